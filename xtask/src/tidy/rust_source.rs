//! Facts about a Rust file for the rules: its code without comments and literals, its comments
//! without code, its functions, and its test code.
//!
//! This is a scanner, not a parser: rules search for words and braces. A scanner of two hundred
//! lines builds faster than a parser for the whole language.

use literals::{Literal, literals};
use scan::{Kind, classify};

mod literals;
mod scan;

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// Lines between the braces of its body.
    pub body_lines: usize,
}

/// A Rust file, analysed. Lines are counted from 1.
pub struct RustSource {
    /// Lines of code; comments and the insides of literals are spaces.
    code: Vec<String>,
    /// Lines of comments; other characters are spaces.
    comments: Vec<String>,
    /// True for each line of test code.
    test: Vec<bool>,
    /// Its string literals, in order.
    literals: Vec<Literal>,
    /// Its functions, in order.
    pub functions: Vec<Function>,
    /// Modules it declares for tests alone, in other files.
    pub test_modules: Vec<String>,
}

impl RustSource {
    /// Analyses a file's text.
    pub fn new(text: &str) -> RustSource {
        let kinds = classify(text);
        let code = keep(text, &kinds, Kind::Code);
        let comments = keep(text, &kinds, Kind::Comment);
        let mut source = RustSource {
            functions: functions(&code),
            test_modules: Vec::new(),
            literals: literals(text, &kinds),
            test: vec![false; code.lines().count()],
            code: code.lines().map(str::to_owned).collect(),
            comments: comments.lines().map(str::to_owned).collect(),
        };
        source.find_tests(&code);
        source
    }

    /// Lines of code with their numbers.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .iter()
            .enumerate()
            .map(|(index, line)| (index + 1, line.as_str()))
    }

    /// Lines of code outside tests, with their numbers.
    pub fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code().filter(|(line, _)| !self.is_test(*line))
    }

    /// True if a line is test code.
    pub fn is_test(&self, line: usize) -> bool {
        self.test.get(line.wrapping_sub(1)) == Some(&true)
    }

    /// String literals outside tests: the line each begins in, and its text.
    pub fn product_literals(&self) -> impl Iterator<Item = (usize, &str)> {
        self.literals
            .iter()
            .map(|literal| (literal.line, literal.text.as_str()))
            .filter(|(line, _)| !self.is_test(*line))
    }

    /// Number of lines outside tests.
    pub fn product_lines(&self) -> usize {
        self.test.iter().filter(|test| !**test).count()
    }

    /// Number of lines outside tests that have more than blanks and comments. `text` is the text
    /// of the file.
    pub fn product_lines_of_code(&self, text: &str) -> usize {
        let visible = |line: &str| line.chars().filter(|c| !c.is_whitespace()).count();
        let lines = text.lines().zip(&self.comments).zip(&self.test);
        lines
            .filter(|((line, comment), test)| !**test && visible(line) > visible(comment))
            .count()
    }

    /// Declares the whole file test code.
    pub fn mark_all_as_test(&mut self) {
        self.test.fill(true);
    }

    /// Returns the comment in a line, without its slashes; empty if there is no comment.
    pub fn comment(&self, line: usize) -> &str {
        let text = self.comments.get(line.wrapping_sub(1));
        text.map_or("", |text| text.trim().trim_start_matches(['/', '!']).trim())
    }

    /// Returns the comments about the statement or item in a line: the comment in the line itself,
    /// and the comments and attributes above the statement's beginning.
    pub fn said_about(&self, line: usize) -> String {
        let mut said = vec![self.comment(line)];
        let mut in_attribute = false;
        for above in (1..line).rev() {
            let code = self.code[above - 1].trim();
            in_attribute |= code.ends_with(']') && !code.ends_with("];");
            let ends_statement = code.ends_with([';', '{', '}', ',']) && !in_attribute;
            let blank = code.is_empty() && self.comments[above - 1].trim().is_empty();
            if ends_statement || blank {
                break;
            }
            said.push(self.comment(above));
            if in_attribute {
                said.push(code);
                in_attribute = !code.starts_with('#');
            }
        }
        said.join("\n")
    }

    /// True if the code in a line has a `// tidy: reason`, or an attribute that allows it to clippy
    /// with a reason.
    pub fn is_excused(&self, line: usize) -> bool {
        let said = self.said_about(line);
        let tidy = said.lines().any(|line| {
            line.split_once("tidy:")
                .is_some_and(|(_, reason)| !reason.trim().is_empty())
        });
        tidy || (said.contains("clippy::") && said.contains("reason ="))
    }

    fn find_tests(&mut self, code: &str) {
        for marker in ["#[cfg(test)]", "#[cfg(all(test"] {
            for (start, _) in code.match_indices(marker) {
                let end = item_end(code, start);
                let first = line_of(code, start);
                let last = line_of(code, end);
                self.test[first - 1..last].fill(true);
                let item = code[start..end].rsplit(']').next().unwrap_or_default();
                let mut words = item.split_whitespace().skip_while(|word| *word != "mod");
                if let (Some(_), Some(name), true) =
                    (words.next(), words.next(), code[end..].starts_with(';'))
                {
                    self.test_modules
                        .push(name.trim_end_matches(';').to_owned());
                }
            }
        }
    }
}

/// The parts of a text that are of one kind; the others become spaces.
fn keep(text: &str, kinds: &[Kind], kind: Kind) -> String {
    let kept = text.char_indices().map(|(at, character)| {
        if character == '\n' || kinds.get(at) == Some(&kind) {
            character
        } else {
            ' '
        }
    });
    kept.collect()
}

/// The line of an offset, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Returns the end of the item that begins at `start`: its closing brace or its semicolon outside
/// parentheses and brackets, the first of the two.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code[start..].char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return start + at,
            '{' if depth == 0 => return closing_brace(code, start + at),
            _ => {}
        }
    }
    code.len()
}

/// Returns the offset of the brace that closes the one at `open`.
pub fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code[open..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return open + at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the offsets of a word that has no word character next to it.
pub fn word_offsets<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let free = !before.is_some_and(is_word) && !after.is_some_and(is_word);
        free.then_some(at)
    })
}

fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in word_offsets(code, "fn") {
        let rest = code[at + 2..].trim_start();
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let end = item_end(code, at);
        if name.is_empty() || !code[end..].starts_with('}') {
            continue;
        }
        let Some(open) = (at..end).find(|&open| closes_at(code, open, end)) else {
            continue;
        };
        found.push(Function {
            name,
            line: line_of(code, at),
            body_lines: (line_of(code, end) - line_of(code, open)).saturating_sub(1),
        });
    }
    found
}

/// True if the character at an offset is the brace that is closed at `end`.
fn closes_at(code: &str, open: usize, end: usize) -> bool {
    code.as_bytes().get(open) == Some(&b'{') && closing_brace(code, open) == end
}

#[cfg(test)]
mod tests;
