//! Product files that an option of the command line touches: those that have one of the option's
//! words in their code. A word is compared without case, `_` and `-`, and may be a part of a name:
//! `fakesuper` stands in `fake_super`, `FakeSuper` and `--fake-super`. Comments and tests do not
//! count.

use std::fmt::Write;

use super::{list, product};
use crate::tidy::{RustSource, Tree};

/// An option, and the words of its types, fields and flags.
pub struct Counted {
    name: String,
    words: Vec<String>,
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

/// Returns the number of files of the usual options and of those that are given.
pub fn report(tree: &Tree, given: &[Counted], names_shown: bool) -> String {
    let usual: Vec<Counted> = OPTIONS.iter().filter_map(|text| parse(text).ok()).collect();
    let mut text = "\nproduct files that an option touches\n".to_owned();
    for option in usual.iter().chain(given) {
        let files = files_of(tree, option);
        let words = option.words.join(", ");
        let _ = writeln!(text, "  {:<16} {:>3}  {words}", option.name, files.len());
        if names_shown {
            text += &list(&files);
        }
    }
    text
}

/// Returns the files that have one of the option's words.
fn files_of<'a>(tree: &'a Tree, option: &Counted) -> Vec<&'a str> {
    product(tree)
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
