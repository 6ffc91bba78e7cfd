//! Dependencies have allowed licences and come from allowed registries: cargo-deny checks
//! `deny.toml`, if it is installed.

use std::process::Command;

use super::Finding;
use crate::workspace;

const RULE: &str = "licences";

/// Checks that need no network. Advisories need one, so `cargo deny check` covers them.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

/// Runs cargo-deny. If it is missing, prints that, and returns no findings.
///
/// # Errors
///
/// If it is installed and cannot be run.
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
