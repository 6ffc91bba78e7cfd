//! Compares the time of plans with their limits.

use crate::workspace;

/// Arguments of the build and of the run, in release.
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

/// Builds the measurement, runs it and shows its output.
///
/// # Errors
///
/// If it cannot be built or fails.
pub fn run() -> Result<(), String> {
    workspace::run(workspace::cargo().args(ARGUMENTS))
}
