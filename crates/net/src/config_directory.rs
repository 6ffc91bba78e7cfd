//! Location of a user's configuration.

use std::ffi::OsString;
use std::path::PathBuf;

/// Error if no location is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no configuration directory: neither LONGHAUL_CONFIG_DIR nor XDG_CONFIG_HOME nor HOME \
     holds an absolute path: set one of them"
)]
pub struct NoConfigDirectory;

/// Returns the directory of `known_hosts`, `tokens` and the client's key: `LONGHAUL_CONFIG_DIR`,
/// else `longhaul` in `XDG_CONFIG_HOME`, else `.config/longhaul` in `HOME`. It may not exist yet.
///
/// # Errors
///
/// If no variable is an absolute path.
pub fn config_directory() -> Result<PathBuf, NoConfigDirectory> {
    choose(|name| std::env::var_os(name))
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoConfigDirectory> {
    // With a relative path, the trusted hosts would depend on the working directory.
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("LONGHAUL_CONFIG_DIR")
        .or_else(|| absolute("XDG_CONFIG_HOME").map(|p| p.join("longhaul")))
        .or_else(|| absolute("HOME").map(|p| p.join(".config/longhaul")))
        .ok_or(NoConfigDirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_wins() {
        let set = |pairs: &'static [(&str, &str)]| {
            choose(move |name| {
                let found = pairs.iter().find(|(key, _)| *key == name)?;
                Some(found.1.into())
            })
        };
        let all = &[
            ("LONGHAUL_CONFIG_DIR", "/a"),
            ("XDG_CONFIG_HOME", "/b"),
            ("HOME", "/c"),
        ];
        assert_eq!(set(all), Ok("/a".into()));
        assert_eq!(
            set(&[("XDG_CONFIG_HOME", "/b"), ("HOME", "/c")]),
            Ok("/b/longhaul".into())
        );
        assert_eq!(
            set(&[("XDG_CONFIG_HOME", "relative"), ("HOME", "/c")]),
            Ok("/c/.config/longhaul".into())
        );
        assert_eq!(set(&[("HOME", "")]), Err(NoConfigDirectory));
    }
}
