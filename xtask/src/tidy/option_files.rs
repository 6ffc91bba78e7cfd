//! An option touches few product files: those that have one of the option's words in their code. A
//! word is compared without case, `_` and `-`, and may be a part of a name: `fakesuper` stands in
//! `fake_super`, `FakeSuper` and `--fake-super`. Comments and tests do not count. The number of
//! files is bounded, and `cargo xtask count --files` names them.

use super::Finding;
use super::rust_source::RustSource;
use super::tree::Tree;

const RULE: &str = "options";

/// The document that explains how an option is added.
const DOCUMENT: &str = "CONTRIBUTING.md";

/// Maximum number of files of each option. The numbers may only shrink.
const BOUNDS: [(&str, usize); 6] = [
    ("--modify-window", 28),
    ("--fake-super", 13),
    ("--bwlimit", 27),
    ("--backup", 29),
    ("--on-commit", 19),
    ("--compress", 87),
];

/// An option, and the words of its types, fields and flags.
pub struct Counted {
    /// Name of the option.
    pub name: String,
    /// Its words, in lower case.
    pub words: Vec<String>,
}

/// Options that are always counted: each crosses the wire, and each has a name of its own.
const OPTIONS: [&str; 6] = [
    "--modify-window=modify-window,criteria",
    "--fake-super=fake-super,fake-source",
    "--bwlimit=bwlimit,bandwidth-limit,rate-limit",
    "--backup=backup",
    "--on-commit=on-commit,commit-rules",
    "--compress=compression,codec",
];

/// Reads `NAME=WORD,WORD`, or a name that is its only word.
///
/// # Errors
///
/// If there is no word.
pub fn parse(argument: &str) -> Result<Counted, String> {
    let (name, words) = argument.split_once('=').unwrap_or((argument, argument));
    let words: Vec<String> = words
        .split(',')
        .map(plain)
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Err(format!("\"{argument}\" has no word: write NAME=WORD,WORD"));
    }
    Ok(Counted {
        name: name.to_owned(),
        words,
    })
}

/// Returns the text without case, `_` and `-`.
fn plain(text: &str) -> String {
    let kept = text.chars().filter(|character| !"_-".contains(*character));
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the options that are always counted.
pub fn usual() -> Vec<Counted> {
    OPTIONS.iter().filter_map(|text| parse(text).ok()).collect()
}

/// Compares the number of files of each option with its bound.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for option in usual() {
        let bound = BOUNDS.iter().find(|(name, _)| *name == option.name);
        let bound = bound.map_or(0, |(_, bound)| *bound);
        let (name, number) = (&option.name, files_of(tree, &option).len());
        if number > bound {
            let message = format!(
                "{name} touches {number} product files, more than {bound}: let files pass the \
                 options on as one value (\"cargo xtask count --files\" names the files)"
            );
            findings.push(Finding::new(DOCUMENT, 1, RULE, message));
        }
    }
    findings
}

/// Returns the files that have one of the option's words.
pub fn files_of<'a>(tree: &'a Tree, option: &Counted) -> Vec<&'a str> {
    tree.product()
        .filter(|(_, _, rust)| has_word(rust, &option.words))
        .map(|(_, file, _)| file.path.as_str())
        .collect()
}

/// True if the code or a literal outside tests has one of the words.
fn has_word(rust: &RustSource, words: &[String]) -> bool {
    let code = rust.product_code().map(|(_, line)| line);
    let literals = rust.product_literals().map(|(_, literal)| literal);
    code.chain(literals).any(|text| {
        let text = plain(text);
        words.iter().any(|word| text.contains(word.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sample;

    #[test]
    fn an_option_that_touches_more_files_is_found() {
        let found = |files: usize| {
            let paths: Vec<String> = (0..files)
                .map(|number| format!("crates/a/src/{number}.rs"))
                .collect();
            let files: Vec<(&str, &str)> = paths
                .iter()
                .map(|path| (path.as_str(), "struct FakeSuper;\n"))
                .collect();
            check(&sample(&files)).len()
        };
        assert_eq!((found(13), found(14)), (0, 1));
    }

    #[test]
    fn files_of_an_option_are_found_by_its_words_in_any_case() {
        let tree = sample(&[
            ("crates/a/src/comment.rs", "// FakeSuper\nfn a() {}\n"),
            (
                "crates/a/src/literal.rs",
                "const A: &str = \"--fake-super\";\n",
            ),
            ("crates/a/src/name.rs", "struct NoFakeSource;\n"),
            ("crates/a/src/other.rs", "struct Fake;\n"),
            ("crates/a/tests/all/main.rs", "fn fake_super() {}\n"),
        ]);
        let option = parse("--fake-super=fake-super,fakesource").unwrap();
        let expected = ["crates/a/src/literal.rs", "crates/a/src/name.rs"];
        assert_eq!(files_of(&tree, &option), expected);
        assert!(parse("--x=,").is_err());
    }
}
