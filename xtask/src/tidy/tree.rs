//! The tracked files, in memory.

use std::process::Command;

use super::rust_source::RustSource;
use crate::workspace;

/// Crates that are no part of the product.
const NOT_PRODUCT: [&str; 1] = ["testing"];

/// Returns the crate that a path below `crates/*/src` is part of.
pub fn product_crate(path: &str) -> Option<&str> {
    let (krate, inside) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_product = inside.starts_with("src/") && !NOT_PRODUCT.contains(&krate);
    is_product.then_some(krate)
}

/// A tracked file.
pub struct TrackedFile {
    /// Relative to the repository's root, with `/`.
    pub path: String,
    /// Its contents; empty if they are not UTF-8.
    pub text: String,
    /// Its length.
    pub bytes: u64,
    /// Its analysis, where it is Rust.
    pub rust: Option<RustSource>,
}

/// All tracked files, in the order of their paths.
pub struct Tree {
    /// The files.
    pub files: Vec<TrackedFile>,
}

impl Tree {
    /// Reads every file that git tracks, or would track once added.
    ///
    /// # Errors
    ///
    /// If git fails. Files that cannot be read are left out: git lists
    /// those that were deleted, too.
    pub fn of_repository() -> Result<Tree, String> {
        let root = workspace::root();
        let listing = workspace::output_of(
            Command::new("git")
                .args(["ls-files", "-z", "--cached", "--others"])
                .arg("--exclude-standard")
                .current_dir(&root),
        )?;
        let files = listing
            .split_terminator('\0')
            .filter(|path| {
                root.join(path)
                    .symlink_metadata()
                    .is_ok_and(|m| m.is_file())
            })
            .filter_map(|path| {
                let bytes = std::fs::read(root.join(path)).ok()?;
                Some((path.to_owned(), bytes))
            })
            .collect();
        Ok(Tree::new(files))
    }

    /// A tree of paths and contents.
    pub fn new(mut files: Vec<(String, Vec<u8>)>) -> Tree {
        files.sort();
        files.dedup();
        let files = files.into_iter().map(|(path, content)| {
            let bytes = content.len() as u64;
            let text = String::from_utf8(content).unwrap_or_default();
            TrackedFile {
                rust: path.ends_with(".rs").then(|| RustSource::new(&text)),
                path,
                text,
                bytes,
            }
        });
        let mut tree = Tree {
            files: files.collect(),
        };
        tree.mark_test_files();
        tree
    }

    /// Returns the crate, the file and the code of each file of product code.
    pub fn product(&self) -> impl Iterator<Item = (&str, &TrackedFile, &RustSource)> {
        self.rust().filter_map(|(file, rust)| {
            let krate = product_crate(&file.path)?;
            Some((krate, file, rust))
        })
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = (&TrackedFile, &RustSource)> {
        self.files
            .iter()
            .filter_map(|file| file.rust.as_ref().map(|rust| (file, rust)))
    }

    /// The file at a path.
    pub fn get(&self, path: &str) -> Option<&TrackedFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// True if a path is a file, or a directory that contains one.
    pub fn exists(&self, path: &str) -> bool {
        let directory = format!("{path}/");
        self.files
            .iter()
            .any(|file| file.path == path || file.path.starts_with(&directory))
    }

    /// Files below `tests/`, `benches/` and `fuzz/`, and those that a
    /// `#[cfg(test)] mod name;` brings in, are tests from end to end.
    fn mark_test_files(&mut self) {
        let mut prefixes = Vec::new();
        for (file, rust) in self.rust() {
            let base = module_directory(&file.path);
            for name in &rust.test_modules {
                prefixes.push(format!("{base}{name}.rs"));
                prefixes.push(format!("{base}{name}/"));
            }
        }
        for file in &mut self.files {
            let in_test_directory = file
                .path
                .split('/')
                .any(|part| ["tests", "benches", "fuzz"].contains(&part));
            let declared = prefixes.iter().any(|prefix| {
                file.path == *prefix || (prefix.ends_with('/') && file.path.starts_with(prefix))
            });
            if let (true, Some(rust)) = (in_test_directory || declared, &mut file.rust) {
                rust.mark_all_as_test();
            }
        }
    }
}

/// Returns the directory of the modules that a file declares, with a trailing `/`.
fn module_directory(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let slash = if directory.is_empty() { "" } else { "/" };
    if ["mod", "lib", "main"].contains(&stem) {
        return format!("{directory}{slash}");
    }
    format!("{directory}{slash}{stem}/")
}

/// A tree of samples, for the tests of the rules.
#[cfg(test)]
pub fn sample(files: &[(&str, &str)]) -> Tree {
    let owned = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
    Tree::new(owned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_test_modules_are_tests() {
        let tree = sample(&[
            (
                "crates/a/src/lib.rs",
                "#[cfg(test)]\nmod simulation;\nmod other;\n",
            ),
            ("crates/a/src/simulation/mod.rs", "fn x() {}\n"),
            ("crates/a/src/simulation/link.rs", "fn x() {}\n"),
            ("crates/a/src/other.rs", "#[cfg(test)]\nmod deep;\n"),
            ("crates/a/src/other/deep.rs", "fn x() {}\n"),
            ("crates/a/tests/whole.rs", "fn x() {}\n"),
        ]);
        let tests: Vec<&str> = tree
            .rust()
            .filter(|(_, rust)| rust.is_test(1))
            .map(|(file, _)| file.path.as_str())
            .collect();
        assert_eq!(
            tests,
            [
                "crates/a/src/lib.rs",
                "crates/a/src/other.rs",
                "crates/a/src/other/deep.rs",
                "crates/a/src/simulation/link.rs",
                "crates/a/src/simulation/mod.rs",
                "crates/a/tests/whole.rs",
            ]
        );
        let other = tree
            .get("crates/a/src/lib.rs")
            .and_then(|f| f.rust.as_ref());
        assert_eq!(other.map(|rust| rust.is_test(3)), Some(false));
    }

    #[test]
    fn directories_exist_if_they_contain_files() {
        let tree = sample(&[("docs/a.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/a.md"));
        assert!(!tree.exists("doc") && !tree.exists("docs/a"));
    }
}
