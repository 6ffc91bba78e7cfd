//! Plain technical English in pages, doc comments and messages: sentences of a bounded length,
//! without words that readers misunderstood.
//!
//! - [`markdown`]: the blocks and sentences of a page
//! - [`rust_docs`]: the doc comments of a Rust file
//! - [`words`]: words to avoid, and their replacements
//!
//! Pages below `bench/runs` are records of their day and are not checked.

mod markdown;
mod rust_docs;
mod words;

use super::Finding;
use super::rust_source::RustSource;
use super::tree::{TrackedFile, Tree};
use markdown::Sentence;

const SENTENCES: &str = "sentences";
const WORDS: &str = "words";
const PAGES: &str = "pages";

/// Maximum number of words in a sentence. In longer ones, readers lose the beginning.
const MAXIMUM_WORDS: usize = 40;

/// A sentence with more words than this is long.
const LONG_WORDS: usize = 25;

/// Per cent of a page's sentences that may be long.
const LONG_PER_CENT: usize = 15;

/// Long sentences that every page may have, so that a short page may have one.
const LONG_ALWAYS: usize = 1;

/// Pages that are overviews, and their most lines.
const OVERVIEWS: [(&str, usize); 2] = [("README.md", 200), ("ARCHITECTURE.md", 150)];

/// Pages in the repository's root that are checked, besides all of `docs`.
const ROOT_PAGES: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SEMANTICS.md",
    "FORMAT.md",
];

/// Directory of the code whose strings users read.
const PRODUCT: &str = "crates/";

/// All three rules.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_checked_page(&file.path)) {
        let sentences = markdown::sentences(&file.text);
        check_lengths(file, &sentences, &mut findings);
        for sentence in &sentences {
            check_words(file, sentence.line, sentence, &mut findings);
        }
    }
    for (file, rust) in tree.rust() {
        if rust_docs::is_checked(&file.path) {
            check_rust_docs(file, &mut findings);
        }
        if file.path.starts_with(PRODUCT) {
            check_messages(file, rust, &mut findings);
        }
    }
    for (path, most) in OVERVIEWS {
        let lines = tree.get(path).map_or(0, |file| file.text.lines().count());
        if lines > most {
            let message = format!("{lines} lines, more than {most}: move details to docs");
            findings.push(Finding::new(path, most + 1, PAGES, message));
        }
    }
    findings
}

fn is_checked_page(path: &str) -> bool {
    let in_docs = path.starts_with("docs/") && path.ends_with(".md");
    in_docs || ROOT_PAGES.contains(&path)
}

fn check_lengths(file: &TrackedFile, sentences: &[Sentence], findings: &mut Vec<Finding>) {
    let long: Vec<&Sentence> = sentences.iter().filter(|s| s.words > LONG_WORDS).collect();
    for sentence in long.iter().filter(|s| s.words > MAXIMUM_WORDS) {
        let message = format!(
            "a sentence of {} words, more than {MAXIMUM_WORDS}: \"{}\"",
            sentence.words,
            sentence.beginning()
        );
        findings.push(Finding::new(&file.path, sentence.line, SENTENCES, message));
    }
    let allowed = LONG_ALWAYS.max(sentences.len() * LONG_PER_CENT / 100);
    if long.len() > allowed {
        let lines: Vec<String> = long.iter().map(|s| s.line.to_string()).collect();
        let message = format!(
            "{} of {} sentences have more than {LONG_WORDS} words, {allowed} may: in lines {}",
            long.len(),
            sentences.len(),
            lines.join(", ")
        );
        findings.push(Finding::new(&file.path, 1, SENTENCES, message));
    }
}

fn check_rust_docs(file: &TrackedFile, findings: &mut Vec<Finding>) {
    for comment in rust_docs::comments(&file.text) {
        for sentence in markdown::sentences(&comment.text) {
            let line = comment.line + sentence.line - 1;
            check_words(file, line, &sentence, findings);
        }
    }
}

fn check_messages(file: &TrackedFile, rust: &RustSource, findings: &mut Vec<Finding>) {
    for (line, text) in rust.product_literals() {
        for sentence in markdown::sentences(text) {
            check_words(file, line, &sentence, findings);
        }
    }
}

fn check_words(file: &TrackedFile, line: usize, sentence: &Sentence, findings: &mut Vec<Finding>) {
    for (phrase, instead) in words::found(&sentence.text) {
        let message = format!("\"{phrase}\": {instead}: \"{}\"", sentence.beginning());
        findings.push(Finding::new(&file.path, line, WORDS, message));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let tree = sample(&[(path, text)]);
        check(&tree).into_iter().map(|f| (f.rule, f.line)).collect()
    }

    fn sentence_of(words: usize) -> String {
        format!("It{}.", " goes".repeat(words - 1))
    }

    #[test]
    fn short_sentences_pass() {
        let text = format!("# A page\n\n{}\n", sentence_of(LONG_WORDS));
        assert_eq!(found("docs/a.md", &text), []);
    }

    #[test]
    fn a_sentence_beyond_the_maximum_is_found() {
        let text = format!("# A page\n\n{}\n", sentence_of(MAXIMUM_WORDS + 1));
        assert_eq!(found("docs/a.md", &text), [(SENTENCES, 3)]);
    }

    #[test]
    fn a_page_may_have_few_long_sentences() {
        let long = sentence_of(LONG_WORDS + 1);
        let one = format!("{long} Short.\n");
        assert_eq!(found("README.md", &one), []);
        let two = format!("{long} {long}\n");
        assert_eq!(found("README.md", &two), [(SENTENCES, 1)]);
        let in_twenty = format!("{two}\n{}\n", "Short. ".repeat(18).trim_end());
        assert_eq!(found("README.md", &in_twenty), []);
    }

    #[test]
    fn words_are_found_in_prose_and_tables_but_not_in_code() {
        let text =
            "Whoever reads\nit, goes on.\n\n| what |\n|---|\n| `whoever` |\n| but for it |\n";
        assert_eq!(
            found("docs/a/b.md", text),
            [(WORDS, 1), (WORDS, 1), (WORDS, 7)]
        );
    }

    #[test]
    fn words_are_found_in_doc_comments() {
        let text = "//! A file.\n\n/// An item.\n///\n/// Whoever reads.\nfn a() {}\n// He.\n";
        assert_eq!(found("crates/units/src/a.rs", text), [(WORDS, 5)]);
        assert_eq!(found("xtask/src/a.rs", text), []);
    }

    #[test]
    fn words_are_found_in_messages_but_not_in_tests() {
        let text = "fn a() {\n    say(\"the copy \\\n         goes on\");\n}\n\
                    #[cfg(test)]\nmod tests {\n    const A: &str = \"he\";\n}\n";
        assert_eq!(found("crates/cli/src/a.rs", text), [(WORDS, 2)]);
        assert_eq!(found("xtask/src/a.rs", text), []);
    }

    #[test]
    fn other_pages_are_not_checked() {
        assert_eq!(found("bench/runs/a.md", "Whoever.\n"), []);
        assert_eq!(found("docs/a.toml", "Whoever.\n"), []);
    }

    #[test]
    fn overviews_are_short() {
        let text = "Line.\n\n".repeat(101);
        assert_eq!(found("README.md", &text), [(PAGES, 201)]);
        assert_eq!(found("docs/a.md", &text), []);
    }
}
