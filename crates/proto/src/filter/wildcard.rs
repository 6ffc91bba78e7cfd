//! Wildcards in a path: `*`, `**`, `?` and classes, with rsync's or git's meaning.
//!
//! A pattern becomes a list of tokens. A match tracks all places in this list that the text can
//! have reached so far. The number of steps is at most the bytes of the text times the tokens of
//! the pattern, for every pattern, because no place is tried twice.

/// Unit of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// Matches this byte.
    Byte(u8),
    /// Matches one byte that is not a slash.
    One,
    /// Matches one byte of this set that is not a slash.
    Class(Box<[u64; 4]>),
    /// Matches any number of bytes that are not slashes.
    Name,
    /// Matches any number of bytes.
    Path,
    /// Makes the next token optional.
    Skip,
    /// Matches any number of bytes, the last of which is a slash.
    Directories,
    /// Matches no text, so that the whole pattern cannot match.
    Never,
}

/// A parsed pattern with wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wildcard {
    tokens: Box<[Token]>,
    /// Literal end of every matching text, checked first because it rejects most texts.
    end: Box<[u8]>,
}

/// Dialect of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Two or more stars match slashes everywhere.
    Rsync,
    /// Two or more stars match slashes only if they are a whole name.
    Git,
}

impl Wildcard {
    /// Parses a pattern.
    pub(super) fn new(pattern: &[u8], dialect: Dialect) -> Wildcard {
        let mut tokens = Vec::with_capacity(pattern.len());
        let mut at = 0;
        while let Some(byte) = pattern.get(at) {
            at += 1;
            match byte {
                b'?' => tokens.push(Token::One),
                b'*' => at = push_stars(&mut tokens, pattern, at - 1, dialect),
                b'[' => match class(&pattern[at..]) {
                    Some((class, length)) => {
                        tokens.push(Token::Class(class));
                        at += length;
                    }
                    None => tokens.push(Token::Never),
                },
                b'\\' => {
                    let escaped = pattern.get(at);
                    tokens.push(escaped.map_or(Token::Never, |byte| Token::Byte(*byte)));
                    at += 1;
                }
                byte => tokens.push(Token::Byte(*byte)),
            }
        }
        let literal = |token: &Token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        };
        let mut end: Vec<u8> = tokens.iter().rev().map_while(literal).collect();
        end.reverse();
        Wildcard {
            tokens: tokens.into(),
            end: end.into(),
        }
    }

    /// True if the pattern matches a whole text or, with `after_slashes`, the part after any slash.
    pub(super) fn matches(&self, text: &[u8], after_slashes: bool) -> bool {
        if !text.ends_with(&self.end) {
            return false;
        }
        let mut places = Places::new(self.tokens.len() + 1);
        let mut next = places.clone();
        self.arrive(&mut places, 0);
        for byte in text {
            next.clear();
            let mut alive = false;
            for place in places.iter() {
                alive |= self.step(&mut next, place, *byte);
            }
            if after_slashes && *byte == b'/' {
                self.arrive(&mut next, 0);
                alive = true;
            }
            if !alive && !after_slashes {
                return false;
            }
            std::mem::swap(&mut places, &mut next);
        }
        places.has(self.tokens.len())
    }

    /// Adds the places that a place reaches with this byte. Returns false without such places.
    fn step(&self, next: &mut Places, place: usize, byte: u8) -> bool {
        let (stays, goes) = match self.tokens.get(place) {
            Some(Token::Byte(wanted)) => (false, *wanted == byte),
            Some(Token::One) => (false, byte != b'/'),
            Some(Token::Class(class)) => (false, byte != b'/' && has(class, byte)),
            Some(Token::Name) => (byte != b'/', false),
            Some(Token::Path) => (true, false),
            Some(Token::Directories) => (true, byte == b'/'),
            Some(Token::Skip | Token::Never) | None => (false, false),
        };
        if stays {
            self.arrive(next, place);
        }
        if goes {
            self.arrive(next, place + 1);
        }
        stays || goes
    }

    /// Adds a place and the places that it reaches without a byte.
    fn arrive(&self, places: &mut Places, mut place: usize) {
        while places.add(place) {
            match self.tokens.get(place) {
                Some(Token::Name | Token::Path) => place += 1,
                Some(Token::Skip) => {
                    places.add(place + 1);
                    place += 2;
                }
                _ => return,
            }
        }
    }
}

/// Adds the token for a run of stars that begins at `start`. Returns the end of the run.
fn push_stars(tokens: &mut Vec<Token>, pattern: &[u8], start: usize, dialect: Dialect) -> usize {
    let stars = pattern[start..].iter().take_while(|byte| **byte == b'*');
    let end = start + stars.count();
    let slash_before = start == 0 || pattern[start - 1] == b'/';
    let whole = slash_before && matches!(pattern.get(end), None | Some(b'/'));
    match dialect {
        _ if end == start + 1 => tokens.push(Token::Name),
        Dialect::Rsync => tokens.push(Token::Path),
        Dialect::Git if !whole => tokens.push(Token::Name),
        Dialect::Git if end == pattern.len() => tokens.push(Token::Path),
        Dialect::Git => {
            tokens.extend([Token::Skip, Token::Directories]);
            return end + 1;
        }
    }
    end
}

fn has(class: &[u64; 4], byte: u8) -> bool {
    class[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
}

/// Parses a class of characters after its `[`. Returns its bytes and its length with the `]`;
/// `None` if it has no end or an unknown class name.
fn class(text: &[u8]) -> Option<(Box<[u64; 4]>, usize)> {
    let mut set = Box::new([0; 4]);
    let mut add = |first: u8, last: u8| {
        for byte in first..=last {
            set[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
    };
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    // The character that can begin a range.
    let mut before = None;
    let mut first = true;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        if byte == b']' && !first {
            break;
        }
        first = false;
        let follows = text.get(at).copied();
        match (byte, before) {
            (b'\\', _) => {
                let escaped = follows?;
                at += 1;
                add(escaped, escaped);
                before = Some(escaped);
            }
            (b'-', Some(start)) if follows.is_some_and(|byte| byte != b']') => {
                let mut last = follows?;
                at += 1;
                if last == b'\\' {
                    last = *text.get(at)?;
                    at += 1;
                }
                add(start, last);
                before = None;
            }
            (b'[', _) if follows == Some(b':') => {
                let rest = text.get(at + 1..)?;
                let end = rest.iter().position(|byte| *byte == b']')?;
                match rest[..end].strip_suffix(b":") {
                    Some(name) => {
                        let member = named_class(name)?;
                        (0..128).filter(member).for_each(|byte| add(byte, byte));
                        at += 1 + end + 1;
                        before = None;
                    }
                    // Not a class name, so it is an ordinary set.
                    None => {
                        add(b'[', b'[');
                        before = Some(b'[');
                    }
                }
            }
            (byte, _) => {
                add(byte, byte);
                before = Some(byte);
            }
        }
    }
    if negated {
        set.iter_mut().for_each(|word| *word = !*word);
    }
    Some((set, at))
}

/// Returns the predicate of a named class; `None` for an unknown name.
fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

/// The set of places in a pattern that a text can have reached.
#[derive(Clone)]
struct Places {
    /// The first 64 places. Most patterns have no more.
    few: u64,
    more: Vec<u64>,
}

impl Places {
    fn new(count: usize) -> Places {
        Places {
            few: 0,
            more: vec![0; count.saturating_sub(1) / 64],
        }
    }

    fn clear(&mut self) {
        self.few = 0;
        self.more.fill(0);
    }

    fn word(&mut self, place: usize) -> Option<&mut u64> {
        match place / 64 {
            0 => Some(&mut self.few),
            word => self.more.get_mut(word - 1),
        }
    }

    /// Adds a place. Returns true if it is new.
    fn add(&mut self, place: usize) -> bool {
        let bit = 1 << (place % 64);
        self.word(place).is_some_and(|word| {
            let new = *word & bit == 0;
            *word |= bit;
            new
        })
    }

    fn has(&self, place: usize) -> bool {
        let word = match place / 64 {
            0 => Some(&self.few),
            word => self.more.get(word - 1),
        };
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let words = std::iter::once(&self.few).chain(&self.more);
        words.enumerate().flat_map(|(number, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(number * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Wildcard::new(pattern.as_bytes(), Dialect::Rsync).matches(text.as_bytes(), false)
    }

    #[test]
    fn wildcards_match_their_texts() {
        for (pattern, text, expected) in [
            ("*.o", "a.o", true),
            ("*.o", ".o", true),
            ("*.o", "a/b.o", false),
            ("**.o", "a/b.o", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("a**c", "ac", true),
            ("a***c", "a/b/c", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "/x", false),
            ("[]]", "]", true),
            ("[!]]", "a", true),
            ("[a-]", "-", true),
            ("[[:digit:]b]", "7", true),
            ("[[:digit:]b]", "b", true),
            ("[[:nothing:]]", "n", false),
            ("[[:digit]", "[", true),
            ("[\\]a]", "]", true),
            ("[a", "[a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*\\", "a\\", false),
            ("*a*b*c", "xaybzc", true),
            ("*", "", true),
            ("?*", "", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn wildcards_of_git_cross_slashes_only_with_whole_names() {
        for (pattern, text, expected) in [
            ("**/f", "f", true),
            ("**/f", "a/b/f", true),
            ("**/f", "a/bf", false),
            ("a/**/f", "a/f", true),
            ("a/**/f", "a/b/c/f", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a**f", "a/f", false),
            ("a**f", "abf", true),
            ("**", "a/b", true),
        ] {
            let pattern = Wildcard::new(pattern.as_bytes(), Dialect::Git);
            assert_eq!(pattern.matches(text.as_bytes(), false), expected, "{text}");
        }
    }

    #[test]
    fn a_text_may_match_after_any_of_its_slashes() {
        let pattern = Wildcard::new(b"a/**", Dialect::Rsync);
        assert!(pattern.matches(b"x/a/b", true));
        assert!(!pattern.matches(b"x/a/b", false));
        assert!(!pattern.matches(b"xa/b", true));
    }

    #[test]
    fn patterns_beyond_a_word_match_too() {
        let long = "ab".repeat(100);
        assert!(matches(&format!("*{long}?"), &format!("xx{long}y")));
        assert!(!matches(&format!("*{long}?"), &format!("xx{long}")));
    }

    /// Backtracking would need more steps than any computer can do.
    // Promise 65.
    #[test]
    fn a_hostile_pattern_takes_no_more_steps_than_bytes_times_tokens() {
        let pattern = "*a".repeat(1000) + "*b";
        assert!(!matches(&pattern, &"a".repeat(16_000)));
        let pattern = "**a*".repeat(1000) + "b";
        assert!(!matches(&pattern, &"a/".repeat(8_000)));
        let text = "a".repeat(3_000) + "x" + "b";
        assert!(!matches(&("**a*".repeat(1000) + "y?"), &text));
    }
}
