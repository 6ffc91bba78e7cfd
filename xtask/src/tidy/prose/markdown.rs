//! The sentences of a Markdown page. A paragraph, a heading, an item of a list
//! and a cell of a table are blocks: a sentence does not leave its block.

/// One sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// First line of its block, counted from 1.
    pub line: usize,
    /// Its words, with `CODE` in the place of inline code, and the text of links.
    pub text: String,
    /// Number of words; inline code counts as one.
    pub words: usize,
}

/// Placeholder for inline code.
const CODE: &str = "`";

/// Number of words of a sentence that a message repeats.
const BEGINNING_WORDS: usize = 8;

impl Sentence {
    fn new(line: usize, text: &str) -> Option<Sentence> {
        let is_word = |word: &&str| word.contains(|c: char| c.is_alphanumeric() || c == '`');
        let words = text.split_whitespace().filter(is_word).count();
        (words > 0).then(|| Sentence {
            line,
            text: text.trim().to_owned(),
            words,
        })
    }

    /// Returns its first words, for a message.
    pub fn beginning(&self) -> String {
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let shown = words.iter().take(BEGINNING_WORDS).copied();
        let mut text = shown.collect::<Vec<_>>().join(" ");
        if words.len() > BEGINNING_WORDS {
            text += " …";
        }
        text
    }
}

/// All sentences of a page, in order.
pub fn sentences(page: &str) -> Vec<Sentence> {
    let blocks = blocks(page);
    blocks
        .iter()
        .flat_map(|block| sentences_of(block.line, &without_markup(&block.text)))
        .collect()
}

/// A run of prose.
struct Block {
    line: usize,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fenced = false;
    let mut continues = false;
    for (index, line) in page.lines().enumerate() {
        let line_number = index + 1;
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            continues = false;
        } else if fenced || trimmed.is_empty() || trimmed.starts_with("{{#") {
            continues = false;
        } else if trimmed.starts_with('|') {
            let cells = cells(trimmed).map(|cell| Block {
                line: line_number,
                text: cell,
            });
            blocks.extend(cells);
            continues = false;
        } else if let Some(heading) = trimmed.strip_prefix('#') {
            let text = heading.trim_start_matches('#').to_owned();
            blocks.push(Block {
                line: line_number,
                text,
            });
            continues = false;
        } else if let (true, None, Some(block)) = (continues, item(trimmed), blocks.last_mut()) {
            block.text += " ";
            block.text += trimmed;
        } else {
            let text = item(trimmed).unwrap_or(trimmed).to_owned();
            blocks.push(Block {
                line: line_number,
                text,
            });
            continues = true;
        }
    }
    blocks
}

/// Returns the cells of a table's row. A bar within code, or an escaped one, is not a separator.
fn cells(row: &str) -> impl Iterator<Item = String> {
    let mut cells = vec![String::new()];
    let mut in_code = false;
    let mut before = ' ';
    for c in row.chars() {
        in_code ^= c == '`';
        if c == '|' && !in_code && before != '\\' {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
        before = c;
    }
    cells.into_iter()
}

/// Returns the text after the mark of a list item.
fn item(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return Some(rest);
    }
    let (number, rest) = line.split_once(". ")?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then_some(rest)
}

/// Inline code becomes one word, a link its text; emphasis is left out.
fn without_markup(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            plain += CODE;
        } else {
            plain += &without_targets(part).replace(['*', '_'], "");
        }
    }
    plain
}

fn without_targets(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        plain += before;
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    plain += rest;
    plain.replace(['[', ']'], "")
}

/// A sentence ends with a mark and a space before what is no small letter. Between
/// fields of a format `·` ends one, too.
fn sentences_of(line: usize, block: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (at, c) in block.char_indices() {
        let behind = at + c.len_utf8();
        if c == '·' || (is_mark(c) && ends(&block[behind..])) {
            found.extend(Sentence::new(line, &block[begin..behind]));
            begin = behind;
        }
    }
    found.extend(Sentence::new(line, &block[begin..]));
    found
}

fn is_mark(c: char) -> bool {
    matches!(c, '.' | '?' | '!')
}

fn ends(behind: &str) -> bool {
    let behind = behind.trim_start_matches([')', '"', '\'']);
    let next = behind.trim_start();
    behind.len() != next.len() && !next.starts_with(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(page: &str) -> Vec<(usize, usize)> {
        let all = sentences(page);
        all.iter().map(|s| (s.line, s.words)).collect()
    }

    #[test]
    fn blocks_end_sentences() {
        let page = "# A heading\nTwo words\nand two\n\n- an item\n  of four\n- another\n\
                    1. a number\n\n```\nno prose\n```\n| a cell | and one |\n|---|---|\n";
        let expected = [(1, 2), (2, 4), (5, 4), (7, 1), (8, 2), (13, 2), (13, 2)];
        assert_eq!(counts(page), expected);
    }

    #[test]
    fn marks_end_sentences() {
        assert_eq!(
            counts("One two. Three (four.) Five? Six"),
            [(1, 2), (1, 2), (1, 1), (1, 1)]
        );
        assert_eq!(counts("Release 1.2 of e.g. three"), [(1, 5)]);
        assert_eq!(counts("0 name · 1 size"), [(1, 2), (1, 2)]);
    }

    #[test]
    fn markup_is_no_word() {
        let page = "A **bold** [link](https://example.org/a.b c) and `code with words` — here";
        assert_eq!(counts(page), [(1, 6)]);
        assert_eq!(counts("| `a|b` |"), [(1, 1)]);
    }

    #[test]
    fn a_message_repeats_the_beginning() {
        let long = sentences("One two three four five six seven eight nine");
        assert_eq!(
            long[0].beginning(),
            "One two three four five six seven eight …"
        );
        assert_eq!(sentences("One two")[0].beginning(), "One two");
    }
}
