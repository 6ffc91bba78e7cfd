//! Trees that a demo copies: real ones on every host that can build this project, with tens of
//! thousands of small files and some large ones.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// Minimum number of files. With fewer, the result says little about small files.
const ENOUGH_FILES: u64 = 20_000;

/// Minimum number of bytes. With fewer, the result says little about large files.
const ENOUGH_BYTES: u64 = 1_000_000_000;

/// Further directories if the toolchain is small (without its documentation it has a few hundred
/// files).
const FURTHER_ROOTS: [&str; 3] = ["/usr/share", "/usr/include", "/usr/lib"];

/// Files and bytes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Regular files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Amount {
    fn is_enough(self) -> bool {
        self.files >= ENOUGH_FILES && self.bytes >= ENOUGH_BYTES
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = self.bytes as f64 / 1e9;
        write!(f, "{} files of {gigabytes:.2} GB", self.files)
    }
}

/// The trees to copy.
pub struct Sources {
    /// Directories; their names differ, because they land side by side.
    pub roots: Vec<PathBuf>,
    /// All of them together.
    pub total: Amount,
    /// Files and bytes of each root.
    amounts: Vec<Amount>,
}

impl Sources {
    /// Takes the toolchain, then the sources of our dependencies, then what
    /// the system brought, until there is enough.
    ///
    /// # Errors
    ///
    /// If the toolchain cannot be found.
    pub fn choose() -> Result<Sources, String> {
        let sysroot = workspace::output_of(
            Command::new("rustc")
                .args(["--print", "sysroot"])
                .current_dir(workspace::root()),
        )?;
        let mut candidates = vec![PathBuf::from(sysroot.trim())];
        candidates.extend(registry_sources());
        candidates.extend(FURTHER_ROOTS.map(PathBuf::from));
        Ok(Sources::first_enough(candidates))
    }

    fn first_enough(candidates: Vec<PathBuf>) -> Sources {
        let mut sources = Sources {
            roots: Vec::new(),
            total: Amount::default(),
            amounts: Vec::new(),
        };
        for root in candidates {
            if sources.total.is_enough() {
                break;
            }
            let taken = sources
                .roots
                .iter()
                .any(|r| r.file_name() == root.file_name());
            if taken || !root.is_dir() {
                continue;
            }
            let amount = measure(&root);
            sources.total += amount;
            sources.amounts.push(amount);
            sources.roots.push(root);
        }
        sources
    }

    /// Describes the choice for the user.
    pub fn describe(&self) -> String {
        let mut text = self.total.to_string();
        for (root, amount) in self.roots.iter().zip(&self.amounts) {
            text += &format!("\n  {}: {amount}", root.display());
        }
        text
    }
}

/// Directory in which cargo unpacked the sources of the dependencies.
fn registry_sources() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".cargo"))
        })?;
    Some(home.join("registry/src"))
}

/// Counts a tree without following links. Unreadable entries are not counted (the copy reports
/// them).
pub fn measure(root: &Path) -> Amount {
    let mut amount = Amount::default();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let Ok(names) = std::fs::read_dir(&directory) else {
            continue;
        };
        for name in names.flatten() {
            let Ok(status) = name.metadata() else {
                continue;
            };
            if status.is_dir() {
                directories.push(name.path());
            } else if status.is_file() {
                amount += Amount {
                    files: 1,
                    bytes: status.len(),
                };
            }
        }
    }
    amount
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_existing_directory_of_each_name_is_used() {
        let base = std::env::temp_dir().join(format!("longhaul-sources-{}", std::process::id()));
        for directory in ["a/same", "b/same", "c/other"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
            std::fs::write(base.join(directory).join("file"), b"12345").unwrap();
        }
        let candidates = ["a/same", "missing", "b/same", "c/other"].map(|d| base.join(d));
        let sources = Sources::first_enough(candidates.to_vec());
        std::fs::remove_dir_all(&base).unwrap();
        assert_eq!(sources.roots, [base.join("a/same"), base.join("c/other")]);
        assert_eq!(
            sources.total,
            Amount {
                files: 2,
                bytes: 10
            }
        );
    }
}
