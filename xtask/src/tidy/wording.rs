//! Counts comments and names of tests with words that make a reader read twice. The number of each
//! crate only shrinks.

use std::collections::BTreeMap;

use super::Finding;
use super::rust_source::{RustSource, word_offsets};
use super::tree::Tree;

const RULE: &str = "wording";

/// First words of unclear comments, in small letters.
const OPENINGS: &str = "what, where, whether, who, whom, whoever, whatever, how, of, nobody, none";

/// Phrases of unclear comments, in small letters.
const PHRASES: &str = "whoever, nobody, so many, is told, are told, is asked, are asked, is none, \
                       are none, goes on, far side, over there";

/// Words of unclear test names.
const NAME_WORDS: &str = "who, whom, whoever, what, whatever, nobody, none, told, asked";

/// The highest number for each crate. A crate that is not listed has the number 0.
const MOST: [(&str, usize); 10] = [
    ("cli", 1),
    ("engine", 2),
    ("fuzz", 2),
    ("gridftp", 1),
    ("instrument", 2),
    ("model", 1),
    ("net", 2),
    ("proto", 1),
    ("system", 1),
    ("transfer", 2),
];

/// Finds crates with more unclear comments and names than their number.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut rows = counts(tree);
    rows.retain(|(_, count, most)| count > most);
    let finding = |(name, count, most): &(String, usize, usize)| {
        let message = format!(
            "{count} comments or test names have a word of xtask/src/tidy/wording.rs, and {most} \
             may: reword those that were added"
        );
        Finding::new(name, 1, RULE, message)
    };
    rows.iter().map(finding).collect()
}

/// Returns a note for each crate whose number can be lowered.
pub fn notes(tree: &Tree) -> Vec<String> {
    let mut rows = counts(tree);
    rows.retain(|(_, count, most)| count < most);
    let note = |(name, count, most)| format!("{RULE}: lower {name} from {most} to {count}");
    rows.into_iter().map(note).collect()
}

/// Returns each crate with its count and its highest number.
fn counts(tree: &Tree) -> Vec<(String, usize, usize)> {
    let mut counts = BTreeMap::new();
    for (file, rust) in tree.rust() {
        let path = file.path.strip_prefix("crates/").unwrap_or(&file.path);
        let name = path.split('/').next().unwrap_or_default();
        let count = unclear_comments(rust, file.text.lines().count()) + unclear_names(rust);
        *counts.entry(name.to_owned()).or_default() += count;
    }
    let row = |(name, count): (String, usize)| {
        let listed = MOST.iter().find(|(listed, _)| *listed == name);
        let most = listed.map_or(0, |(_, most)| *most);
        (name, count, most)
    };
    counts.into_iter().map(row).collect()
}

/// Counts the paragraphs of comments that begin with an opening or have a phrase.
fn unclear_comments(rust: &RustSource, lines: usize) -> usize {
    let mut paragraphs = vec![String::new()];
    for line in 1..=lines {
        let comment = rust.comment(line).to_lowercase();
        match paragraphs.last_mut() {
            Some(last) if !comment.is_empty() => *last += &format!("{comment} "),
            _ => paragraphs.push(String::new()),
        }
    }
    let is_unclear = |text: &&String| {
        let at = |word| word_offsets(text, word).next();
        let has_phrase = PHRASES.split(", ").any(|phrase| at(phrase).is_some());
        has_phrase || OPENINGS.split(", ").any(|word| at(word) == Some(0))
    };
    paragraphs.iter().filter(is_unclear).count()
}

/// Counts the tests whose name has one of the words.
fn unclear_names(rust: &RustSource) -> usize {
    let code: Vec<&str> = rust.code().map(|(_, line)| line.trim()).collect();
    let is_word = |part: &str| NAME_WORDS.split(", ").any(|word| word == part);
    let tests = rust.functions.iter().filter(|function| {
        let above = code[..function.line - 1].iter().rev();
        let mut attributes = above.take_while(|line| line.is_empty() || line.starts_with('#'));
        function.name.split('_').any(is_word) && attributes.any(|line| *line == "#[test]")
    });
    tests.count()
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn unclear_comments_and_test_names_are_counted() {
        let text = "/// What it is.\n///\n/// A user, so\n/// many of them.\nfn a() {}\n\n\
                    // Somewhat clear: no fault.\n#[test]\nfn who_is_told() {}\nfn what() {}\n";
        let tree = sample(&[("crates/a/src/lib.rs", text)]);
        assert_eq!(counts(&tree), [("a".to_owned(), 3, 0)]);
        assert_eq!((check(&tree).len(), notes(&tree).len()), (1, 0));
        let tree = sample(&[("crates/a/src/lib.rs", "/// Returns nothing of note.\n")]);
        assert_eq!((check(&tree).len(), notes(&tree).len()), (0, 0));
    }
}
