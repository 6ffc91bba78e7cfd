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
