//! Dependencies come under allowed licences from allowed registries: cargo-deny
//! proves `deny.toml`, where it is installed.

use std::process::Command;

use super::Finding;
use crate::workspace;

const RULE: &str = "licences";

/// What is proved without a network: advisories need one, and so are left to `cargo deny check`.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

/// Asks cargo-deny; where there is none, says so and finds nothing.
///
/// # Errors
///
/// Where it is installed and cannot be run.
pub fn check_repository() -> Result<Vec<Finding>, String> {
    if !is_installed() {
        println!(
            "tidy: licences not checked: cargo-deny is missing (cargo install --locked cargo-deny)"
        );
        return Ok(Vec::new());
    }
    let output = workspace::cargo()
        .args(["deny", "--offline", "--locked", "--color=never", "check"])
        .args(CHECKS)
        .output()
        .map_err(|error| format!("cargo deny: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(if output.status.success() {
        Vec::new()
    } else {
        vec![Finding::new("deny.toml", 1, RULE, text.trim())]
    })
}

fn is_installed() -> bool {
    let version = Command::new("cargo-deny").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}
