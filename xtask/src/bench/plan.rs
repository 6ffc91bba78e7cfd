//! How long plans take, beside their bars.

use crate::workspace;

/// What is built and run, in release.
const ARGUMENTS: [&str; 12] = [
    "test",
    "--release",
    "--locked",
    "--quiet",
    "--package=longhaul-model",
    "--test=all",
    "--",
    "--ignored",
    "--nocapture",
    "--test-threads=1",
    "--exact",
    "optimise::speed::speed",
];

/// Builds the measurement, runs it and shows what it says.
///
/// # Errors
///
/// Where it cannot be built or fails.
pub fn run() -> Result<(), String> {
    workspace::run(workspace::cargo().args(ARGUMENTS))
}
