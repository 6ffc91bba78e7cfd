//! Entries of a directory as the command `ls -l` prints them, for servers without facts.
//!
//! The format is not defined by any standard. Sizes of files and names are used; the date has
//! no seconds and no time zone, and is ignored. Ask the server for the time of each file.

use super::facts::{Entry, EntryKind, Line, is_component, is_too_large, link_target, number};

/// Number of fields before the name: mode, links, owner, group, size, month, day, year or time.
const FIELDS: usize = 8;

/// Parses a line. `None` if it has another form, or a size or a link target that is too large for
/// a Unix file system.
pub fn parse(line: &[u8]) -> Option<Line> {
    if line.is_empty() || line.starts_with(b"total ") {
        return Some(Line::Total);
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
    let (name, target) = if kind == EntryKind::Link {
        let arrow = name.windows(4).position(|text| text == b" -> ")?;
        (&name[..arrow], Some(link_target(&name[arrow + 4..])?))
    } else {
        (name, None)
    };
    match name {
        b"." => return Some(Line::Itself { count: None }),
        b".." => return Some(Line::Parent),
        _ => {}
    }
    let mut entry = Entry::new(name, kind);
    if kind == EntryKind::File {
        if is_too_large(fields[4]) {
            return None;
        }
        entry.size = number(fields[4]);
    }
    entry.mode = Some(mode);
    entry.link_target = target.map(<[u8]>::to_vec);
    is_component(name).then_some(Line::Entry(entry))
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
    use super::super::facts::MAXIMUM_LINK_BYTES;
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
        for (line, found) in [
            ("total 12", Line::Total),
            ("", Line::Total),
            (
                "drwxr-xr-x 1 a b 5 Nov 27 23:23 .",
                Line::Itself { count: None },
            ),
            ("drwxr-xr-x 1 a b 5 Nov 27 23:23 ..", Line::Parent),
        ] {
            assert_eq!(parse(line.as_bytes()), Some(found), "{line}");
        }
        for line in [
            "11-27-26  11:23PM       <DIR>          sub",
            "-rw-r--r-- 1 a b 3 Nov 27 23:23 a/b",
            "-rw-r--r-- 1 a b 3 Nov 27 23:23",
            "?rw-r--r-- 1 a b 3 Nov 27 23:23 x",
            "lrwxrwxrwx 1 a b 5 Nov 27 23:23 link",
            "lrwxrwxrwx 1 a b 5 Nov 27 23:23 link -> ",
            "-rw-r--r-- 1 a b 9223372036854775808 Nov 27 23:23 x",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        let target = "t".repeat(MAXIMUM_LINK_BYTES + 1);
        let line = format!("lrwxrwxrwx 1 a b 5 Nov 27 23:23 link -> {target}");
        assert_eq!(parse(line.as_bytes()), None);
    }
}
