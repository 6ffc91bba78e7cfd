//! The names of staging files. All begin with [`RESERVED_PREFIX`].

use longhaul_proto::manifest::RESERVED_PREFIX;

/// Context that separates this hash from every other use of BLAKE3.
const CONTEXT: &str = "longhaul 2025 journal name of destination and principal";

const JOURNAL_SUFFIX: &[u8] = b".journal";
const PART_SUFFIX: &[u8] = b".part";
const TEMPORARY_SUFFIX: &[u8] = b".tmp";

/// Number of hexadecimal digits of a destination's hash.
const KEY_DIGITS: usize = 32;

/// Number of hexadecimal digits of a part's number, or of a session's.
const NUMBER_DIGITS: usize = 16;

/// Hash of a destination's name and principal, which the journal's header holds in full. It has 128
/// bits, so that accidental collisions in a directory are negligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; 16]);

impl Key {
    /// Creates the key of a name and a principal. The directory is not included, so that partial
    /// files stay valid when it is moved.
    pub fn new(name: &[u8], principal: &str) -> Key {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for part in [name, principal.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Key(key)
    }

    /// Returns the name of the journal.
    pub fn journal(self) -> Box<[u8]> {
        let key = format!("{:032x}", u128::from_be_bytes(self.0));
        [RESERVED_PREFIX, key.as_bytes(), JOURNAL_SUFFIX]
            .concat()
            .into()
    }

    /// Returns the name of the part with this number, which is in the journal's header.
    pub fn part(self, number: u64) -> Box<[u8]> {
        let middle = format!("{:032x}-{number:016x}", u128::from_be_bytes(self.0));
        [RESERVED_PREFIX, middle.as_bytes(), PART_SUFFIX]
            .concat()
            .into()
    }
}

/// Returns the name of the `number`-th temporary of a session, for a small file.
pub fn temporary(session: u64, number: u64) -> Box<[u8]> {
    let middle = format!("{session:016x}-{number}");
    [RESERVED_PREFIX, middle.as_bytes(), TEMPORARY_SUFFIX]
        .concat()
        .into()
}

/// Kind of a staging file, according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagingName {
    /// A journal.
    Journal(Key),
    /// Partial data, with its number.
    Part(Key, u64),
    /// A small file, with the session's number.
    Temporary(u64),
}

/// Parses a name; `None` if it is not a name that longhaul creates. Such a file must not be
/// touched.
pub fn parse(name: &[u8]) -> Option<StagingName> {
    let rest = name.strip_prefix(RESERVED_PREFIX)?;
    if let Some(key) = rest.strip_suffix(JOURNAL_SUFFIX) {
        return parse_key(key).map(StagingName::Journal);
    }
    if let Some(middle) = rest.strip_suffix(PART_SUFFIX) {
        let (key, number) = middle.split_at_checked(KEY_DIGITS)?;
        let number = parse_number(number.strip_prefix(b"-")?)?;
        return Some(StagingName::Part(parse_key(key)?, number));
    }
    let middle = rest.strip_suffix(TEMPORARY_SUFFIX)?;
    let (session, number) = middle.split_at_checked(NUMBER_DIGITS)?;
    let number = number.strip_prefix(b"-")?;
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let session = parse_number(session)?;
    is_number.then_some(StagingName::Temporary(session))
}

fn parse_key(digits: &[u8]) -> Option<Key> {
    let value = parse_hexadecimal(digits, KEY_DIGITS)?;
    Some(Key(value.to_be_bytes()))
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    parse_hexadecimal(digits, NUMBER_DIGITS)?.try_into().ok()
}

fn parse_hexadecimal(digits: &[u8], count: usize) -> Option<u128> {
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != count || !digits.iter().all(is_digit) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_again() {
        let key = Key::new(b"data.h5", "alice");
        let journal = key.journal();
        assert_eq!(journal.len(), 10 + 32 + 8);
        assert_eq!(parse(&journal), Some(StagingName::Journal(key)));
        assert_eq!(parse(&key.part(7)), Some(StagingName::Part(key, 7)));
        let small = temporary(u64::MAX, 12);
        assert_eq!(&*small, b".longhaul-ffffffffffffffff-12.tmp");
        assert_eq!(parse(&small), Some(StagingName::Temporary(u64::MAX)));
    }

    #[test]
    fn names_and_principals_are_kept_apart() {
        assert_ne!(Key::new(b"ab", "c"), Key::new(b"a", "bc"));
        assert_ne!(Key::new(b"a", "alice"), Key::new(b"a", "bob"));
    }

    #[test]
    fn names_of_other_programs_are_not_parsed() {
        for name in [
            &b"data.h5"[..],
            b".longhaul-",
            b".longhaul-.journal",
            b".longhaul-0123.part",
            b".longhaul-0123456789abcdef-.tmp",
            b".longhaul-0123456789abcdeF-1.tmp",
            b".longhaul-+123456789abcdef-1.tmp",
        ] {
            assert_eq!(parse(name), None);
        }
    }
}
