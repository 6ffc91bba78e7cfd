//! Directories and packages of the workspace, as cargo reports them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The root of the repository.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Returns a command of the cargo that runs this program.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs a command to its end and gives what it printed.
///
/// # Errors
///
/// If it cannot be started or fails, with what it wrote to stderr.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{errors}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end; its output is shown.
///
/// # Errors
///
/// If it cannot be started or fails.
pub fn run(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}"));
    }
    Ok(())
}

/// The target triple of this host.
///
/// # Errors
///
/// If rustc cannot be asked.
pub fn host_triple() -> Result<String, String> {
    let version = output_of(Command::new("rustc").arg("-vV").current_dir(root()))?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Returns the directory of cargo's builds.
///
/// # Errors
///
/// If cargo fails, or `Cargo.lock` is behind the manifests.
pub fn target_directory() -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["metadata", "--format-version=1", "--locked", "--no-deps"]);
    let text = output_of(&mut command)?;
    let metadata: Value =
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata names no target directory".to_owned())
}
