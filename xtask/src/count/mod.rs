//! Counts the sources, so that a change of their shape is measured the same way before and after:
//!
//! - lines of product code in each crate, without blank lines, comments and tests
//! - product files that each of a few options touches ([`options`])
//! - inherent methods of the types that have most of them ([`tidy::types`])
//!
//! Product code is `crates/*/src`, except the crates for tests and benchmarks of [`Tree::product`].

mod options;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::tidy::{self, Tree, option_files, product_crate};
use crate::workspace;

/// Types that the list of methods has.
const TYPES_SHOWN: usize = 15;

/// `cargo xtask count`.
///
/// # Errors
///
/// If an argument is unknown, or git fails.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut names_shown = false;
    let mut range = None;
    let mut given = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--files" => names_shown = true,
            "--commits" => range = Some(rest.next().ok_or("--commits needs a range, as A..B")?),
            option => given.push(option_files::parse(option)?),
        }
    }
    let tree = Tree::of_repository()?;
    let mut text = lines(&tree);
    text += &options::report(&tree, &given, names_shown);
    if let Some(range) = range {
        text += &files_of_commits(range, names_shown)?;
    }
    text += &methods(&tree);
    print!("{text}");
    Ok(())
}

/// Returns the number of lines of code in each crate and in total.
fn lines(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, usize> = BTreeMap::new();
    for (krate, file, rust) in tree.product() {
        *crates.entry(krate).or_default() += rust.product_lines_of_code(&file.text);
    }
    let mut text = "lines of product code, without blank lines, comments and tests\n".to_owned();
    for (krate, lines) in &crates {
        let _ = writeln!(text, "  {krate:<12} {lines:>7}");
    }
    let total: usize = crates.values().sum();
    let _ = writeln!(text, "  {:<12} {total:>7}", "total");
    text
}

/// Returns the types with the most inherent methods, with the number of files that have some.
fn methods(tree: &Tree) -> String {
    let types = tidy::types(tree);
    let total: usize = types.values().map(|methods| methods.number).sum();
    let mut sorted: Vec<_> = types.iter().collect();
    sorted.sort_by_key(|(_, methods)| std::cmp::Reverse(methods.number));
    let mut text = format!("\ninherent methods: {total} of {} types\n", types.len());
    for ((module, name), methods) in sorted.into_iter().take(TYPES_SHOWN) {
        let (number, files) = (methods.number, methods.files.len());
        let _ = writeln!(
            text,
            "  {number:>4} in {files:>2} files  {name} of {module}.rs"
        );
    }
    text
}

/// Returns the number of files of product code that a range of commits changes.
fn files_of_commits(range: &str, names_shown: bool) -> Result<String, String> {
    let mut git = std::process::Command::new("git");
    git.args(["diff", "--name-only", range, "--"]);
    let changed = workspace::output_of(git.current_dir(workspace::root()))?;
    let is_product = |path: &&str| product_crate(path).is_some() && path.ends_with(".rs");
    let files: Vec<&str> = changed.lines().filter(is_product).collect();
    let mut text = format!("\nproduct files that {range} changes: {}\n", files.len());
    if names_shown {
        text += &list(&files);
    }
    Ok(text)
}

/// Returns names, a line each.
fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("    {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sample;

    #[test]
    fn lines_of_product_code_are_counted_by_crate() {
        let code = "//! A crate.\n\nfn a() {\n    // Nothing.\n    b(); // Why.\n}\n\
                    const TEXT: &str = \"one\n\n  two // three\";\n#[cfg(test)]\nmod tests {\n}\n";
        let tree = sample(&[
            ("crates/a/src/lib.rs", code),
            ("crates/b/src/lib.rs", "fn a() {}\n"),
            ("crates/b/tests/all/main.rs", "fn a() {}\n"),
            ("crates/testing/src/lib.rs", "fn a() {}\n"),
            ("xtask/src/main.rs", "fn a() {}\n"),
        ]);
        let expected = "  a                  5\n  b                  1\n  total              6\n";
        assert!(lines(&tree).ends_with(expected), "{}", lines(&tree));
    }
}
