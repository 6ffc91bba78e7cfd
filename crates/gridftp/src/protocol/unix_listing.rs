//! Entries of a directory as the command `ls -l` prints them, for servers without facts.
//!
//! The format is not defined by any standard. Sizes of files and names are used; the date has
//! no seconds and no time zone, and is ignored. Ask the server for the time of each file.

use super::facts::{Entry, EntryKind, is_component, number};

/// A line of such a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An entry of the directory.
    Entry(Entry),
    /// The line has no entry: the total, the directory itself or the directory above.
    Skip,
}

/// Number of fields before the name: mode, links, owner, group, size, month, day, year or time.
const FIELDS: usize = 8;

/// Parses a line. `None` if it has another form.
pub fn parse(line: &[u8]) -> Option<Line> {
    if line.is_empty() || line.starts_with(b"total ") {
        return Some(Line::Skip);
    }
    let (fields, name) = split(line)?;
    let kind = match fields[0].first()? {
        b'-' => EntryKind::File,
        b'd' => EntryKind::Directory,
        b'l' => EntryKind::Link,
        b'b' | b'c' | b'p' | b's' => EntryKind::Other,
        _ => return None,
    };
    let mode = permissions(fields[0])?;
    let (name, link_target) = if kind == EntryKind::Link {
        let arrow = name.windows(4).position(|text| text == b" -> ")?;
        (&name[..arrow], Some(name[arrow + 4..].to_vec()))
    } else {
        (name, None)
    };
    if matches!(name, b"." | b"..") {
        return Some(Line::Skip);
    }
    let size = number(fields[4]).filter(|_| kind == EntryKind::File);
    is_component(name).then(|| {
        Line::Entry(Entry {
            name: name.to_vec(),
            kind,
            size,
            modified: None,
            mode: Some(mode),
            link_target,
        })
    })
}

/// Splits a line into its fields and the name. One space separates the date and the name, so
/// that names may begin with spaces.
fn split(line: &[u8]) -> Option<([&[u8]; FIELDS], &[u8])> {
    let mut fields = [&b""[..]; FIELDS];
    let mut rest = line;
    for field in &mut fields {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        rest = &rest[start..];
        let end = rest.iter().position(|byte| *byte == b' ')?;
        *field = &rest[..end];
        rest = &rest[end..];
    }
    Some((fields, &rest[1..]))
}

/// Reads permission bits from a text such as `-rwxr-sr-t`.
fn permissions(text: &[u8]) -> Option<u32> {
    let bits = text.get(1..10)?;
    let mut mode = 0;
    for (place, letter) in bits.iter().enumerate() {
        let bit = 0o400 >> place;
        let special = 0o4000 >> (place / 3);
        mode |= match letter {
            b'-' => 0,
            b'r' | b'w' | b'x' => bit,
            b's' | b't' => bit | special,
            b'S' | b'T' => special,
            _ => return None,
        };
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> Option<Entry> {
        match parse(line.as_bytes()) {
            Some(Line::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    #[test]
    fn lines_of_ls_are_read() {
        let file = entry("-rw-r--r--    1 0        0         3000000 Nov 27 23:23 big").unwrap();
        assert_eq!((file.name, file.size), (b"big".to_vec(), Some(3_000_000)));
        assert_eq!((file.kind, file.mode), (EntryKind::File, Some(0o644)));
        let spaced = entry("-rw-r--r-- 1 a b 3 Nov 27 2025  a b ").unwrap();
        assert_eq!(spaced.name, b" a b ");
        let link = entry("lrwxrwxrwx 1 a b 5 Nov 27 23:23 link -> to -> x").unwrap();
        assert_eq!((link.kind, link.size), (EntryKind::Link, None));
        assert_eq!(link.name, b"link");
        assert_eq!(link.link_target.as_deref(), Some(&b"to -> x"[..]));
        let directory = entry("drwxrwsr-t 4 a b 4096 Nov 27 23:23 d").unwrap();
        assert_eq!(directory.mode, Some(0o3775));
    }

    #[test]
    fn other_lines_have_no_entry() {
        for line in ["total 12", "", "drwxr-xr-x 1 a b 5 Nov 27 23:23 .."] {
            assert_eq!(parse(line.as_bytes()), Some(Line::Skip), "{line}");
        }
        for line in [
            "11-27-26  11:23PM       <DIR>          sub",
            "-rw-r--r-- 1 a b 3 Nov 27 23:23 a/b",
            "-rw-r--r-- 1 a b 3 Nov 27 23:23",
            "?rw-r--r-- 1 a b 3 Nov 27 23:23 x",
            "lrwxrwxrwx 1 a b 5 Nov 27 23:23 link",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
