//! Functions for tests of several crates. Only `[dev-dependencies]` name this crate.
//!
//! A test that cannot run reports this in one line on standard error. It bypasses the
//! test harness, which hides the output of passing tests. `cargo xtask test` lists these
//! lines at its end. With `LONGHAUL_SKIP=fail`, a test fails if it lacks something that
//! set-up installs. A successful run then means that the test ran.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// Name of the environment variable that makes a skip a failure if its value is `fail`.
pub const VARIABLE: &str = "LONGHAUL_SKIP";

/// Reports that the calling test lacks something that set-up installs or that needs root:
/// root rights, a program, or a device file. The caller must return afterwards.
///
/// # Panics
///
/// Panics with `LONGHAUL_SKIP=fail`.
#[expect(clippy::panic, reason = "a test fails by a panic")]
pub fn skip(reason: &str) {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "fail") {
        // tidy: a test fails by a panic.
        panic!("this test may not be skipped ({VARIABLE}=fail), but: {reason}");
    }
    report(reason);
}

/// Reports that the kernel lacks a feature that the calling test needs. No set-up can
/// change this, so it is listed but never a failure.
pub fn skip_without_kernel(reason: &str) {
    report(reason);
}

/// Writes the line that `cargo xtask test` looks for.
fn report(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("skipped: {test}: {}\n", reason.replace('\n', " "));
    // If standard error is closed, only this line is lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Time limit of [`await_that`]: longer than a busy host delays a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time between two checks of [`await_that`].
const CHECKED_EVERY: Duration = Duration::from_millis(1);

/// Waits until the condition is true. For states that send no event.
///
/// # Panics
///
/// Panics if the condition is still false after two minutes.
#[track_caller]
pub fn await_that(mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "the condition is still false");
        // tidy: reason: the state sends no event.
        std::thread::sleep(CHECKED_EVERY);
    }
}

/// Waits until a process has ended, even if its parent has not waited for it yet.
///
/// # Panics
///
/// Panics if it still runs after two minutes.
#[track_caller]
pub fn await_end(process: i32) {
    let process = Pid::from_raw(process);
    // A process that is gone has ended.
    let Some(Ok(held)) = process.map(|process| pidfd_open(process, PidfdFlags::empty())) else {
        return;
    };
    let limit = Timespec {
        tv_sec: PATIENCE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(&held, PollFlags::IN)];
    let ended = poll(&mut polled, Some(&limit));
    assert_eq!(ended, Ok(1), "the process did not end");
}

/// Maximum number of checks of a waiting shell, 50 ms apart: five minutes, longer than
/// any test may wait.
const LOOKS: u32 = 6000;

/// Returns a shell loop that waits until the command `condition` succeeds. The shell
/// exits with code 98 when the process of the calling test has ended, or after five
/// minutes, so that no shell remains after a killed test.
pub fn until(condition: &str) -> String {
    until_or_without(&std::process::id().to_string(), condition)
}

/// Returns the loop with another process, given as a word of the shell.
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
    fn a_shell_waits_for_the_condition_and_ends_with_the_test() {
        let comes = format!("{}; exit 3", until("[ $n -lt 5999 ]"));
        assert_eq!(code_of(&comes), Some(3));
        let gone = format!("true & wait $!; {}", until_or_without("$!", "false"));
        assert_eq!(code_of(&gone), Some(98));
    }
}
