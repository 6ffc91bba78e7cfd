//! What the tests of several crates share. Only `[dev-dependencies]` name this crate.
//!
//! A test that cannot run here says so in one line on standard error, past the test harness, which
//! hides what a passing test prints. `cargo xtask test` lists these lines at its end. With
//! `LONGHAUL_SKIP=fail` a test that lacks something that set-up installs fails instead: a green run
//! then means that the test ran.

use std::io::Write;

/// The variable that makes a skip a failure, with the value `fail`.
pub const VARIABLE: &str = "LONGHAUL_SKIP";

/// Reports that the calling test needs something that set-up installs or that root may do:
/// root itself, a program, a device file. The caller returns afterwards.
///
/// # Panics
///
/// With `LONGHAUL_SKIP=fail`.
#[expect(clippy::panic, reason = "a test fails by a panic")]
pub fn skip(reason: &str) {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "fail") {
        // tidy: a test fails by a panic.
        panic!("this test may not be skipped ({VARIABLE}=fail), but: {reason}");
    }
    report(reason);
}

/// Reports that the kernel cannot do what the calling test needs, which no set-up changes. It is
/// listed and never a failure.
pub fn skip_without_kernel(reason: &str) {
    report(reason);
}

/// One line, which `cargo xtask test` looks for.
fn report(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("skipped: {test}: {}\n", reason.replace('\n', " "));
    // Nothing is lost but a line if standard error is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Looks of a shell at what it waits for, 50 ms from each other: minutes, and more than a test may
/// stand still.
const LOOKS: u32 = 6000;

/// A loop for a shell, which waits until `condition` holds; `false` never does. The shell ends (98)
/// once the calling test's process is gone, and after minutes: so nothing stays if that is killed.
pub fn until(condition: &str) -> String {
    until_or_without(&std::process::id().to_string(), condition)
}

/// The same with another process, as a word of the shell.
fn until_or_without(process: &str, condition: &str) -> String {
    format!(
        "n={LOOKS}; until {condition}; do \
         [ $((n -= 1)) -gt 0 ] && kill -0 {process} || exit 98; sleep 0.05; done"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn code_of(text: &str) -> Option<i32> {
        let status = Command::new("sh").args(["-c", text]).status();
        status.ok().and_then(|status| status.code())
    }

    #[test]
    fn a_shell_waits_for_what_comes_and_for_no_test_that_is_gone() {
        let comes = format!("{}; exit 3", until("[ $n -lt 5999 ]"));
        assert_eq!(code_of(&comes), Some(3));
        let gone = format!("true & wait $!; {}", until_or_without("$!", "false"));
        assert_eq!(code_of(&gone), Some(98));
    }
}
