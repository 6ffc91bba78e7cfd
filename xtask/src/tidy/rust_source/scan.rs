//! Distinguishes code, comments and the insides of literals.

/// Kind of a byte of a Rust file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code; also the quotes of a literal.
    Code,
    /// A comment, documentation included.
    Comment,
    /// The inside of a string or character literal.
    Literal,
}

/// The kind of every byte.
pub fn classify(text: &str) -> Vec<Kind> {
    let bytes = text.as_bytes();
    let mut kinds = Vec::with_capacity(bytes.len());
    while kinds.len() < bytes.len() {
        let at = kinds.len();
        let (kind, length) = next_token(bytes, at);
        // The quotes of a literal stay code, so that its place is visible.
        let quotes = usize::from(kind == Kind::Literal && length >= 2);
        for offset in 0..length {
            let quote = offset < quotes || offset + quotes >= length;
            kinds.push(if quote && kind == Kind::Literal {
                Kind::Code
            } else {
                kind
            });
        }
    }
    kinds
}

/// Returns the kind of the token at an offset, and its number of bytes (at least one).
fn next_token(bytes: &[u8], at: usize) -> (Kind, usize) {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => (Kind::Comment, line_length(rest)),
        b'/' if rest.starts_with(b"/*") => (Kind::Comment, block_comment_length(rest)),
        b'"' => (Kind::Literal, quoted_length(rest, b'"')),
        b'\'' => match character_length(rest) {
            Some(length) => (Kind::Literal, length),
            None => (Kind::Code, 1),
        },
        b'r' if starts_word(bytes, at) => match raw_string_length(rest) {
            Some(length) => (Kind::Literal, length),
            None => (Kind::Code, 1),
        },
        _ => (Kind::Code, 1),
    }
}

/// True if no identifier continues at `at`. The prefixes of byte and C strings (`br"…"`, `cr"…"`)
/// do not count as identifiers.
fn starts_word(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match bytes[..at].split_last() {
        Some((b'b' | b'c', before)) => !before.last().is_some_and(is_word),
        Some((last, _)) => !is_word(last),
        None => true,
    }
}

fn line_length(rest: &[u8]) -> usize {
    let end = rest.iter().position(|&byte| byte == b'\n');
    end.unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// A literal with escapes, from its opening to its closing quote.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal; `None` if the quote begins a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted_length(rest, b'\''));
    }
    // One character is at most four bytes of UTF-8.
    let text = rest.get(1..rest.len().min(6))?;
    let first = text.utf8_chunks().next()?.valid().chars().next()?;
    let closing = 1 + first.len_utf8();
    (first != '\'' && rest.get(closing) == Some(&b'\'')).then_some(closing + 1)
}

/// Returns the length of a raw string; `None` for an identifier such as `r#type` or `rest`.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let closing = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let inside = 2 + hashes;
    let end = rest[inside..]
        .windows(closing.len())
        .position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| inside + end + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with comments as `c` and insides of literals as `l`.
    fn drawn(text: &str) -> String {
        let kinds = classify(text);
        assert_eq!(kinds.len(), text.len());
        let draw = |(at, character): (usize, char)| match kinds[at] {
            Kind::Code => character,
            Kind::Comment => 'c',
            Kind::Literal => 'l',
        };
        text.char_indices().map(draw).collect()
    }

    #[test]
    fn comments() {
        assert_eq!(drawn("a // b\nc"), "a cccc\nc");
        assert_eq!(drawn("a /* /* b */ */ c"), "a ccccccccccccc c");
        assert_eq!(drawn("1 / 2"), "1 / 2");
    }

    #[test]
    fn strings() {
        assert_eq!(drawn(r#"f("// \" {", x)"#), r#"f("lllllll", x)"#);
        assert_eq!(drawn("r#\"a\"b\"# c"), "rllllll# c");
        assert_eq!(drawn("br\"x\" r#type rest"), "brll\" r#type rest");
        assert_eq!(drawn("\"open"), "\"llln");
    }

    #[test]
    fn characters_and_lifetimes() {
        assert_eq!(drawn("'{' 'a 'é' '\\'' '\"'"), "'l' 'a 'l' 'll' 'l'");
        assert_eq!(drawn("&'a str, 'static"), "&'a str, 'static");
    }
}
