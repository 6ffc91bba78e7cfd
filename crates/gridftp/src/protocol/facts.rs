//! Entries of a directory as facts: `type=file;size=3;modify=20261127232325; name` (RFC 3659).

use super::time::{self, FileTime};

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that the server does not follow in its listing.
    Link,
    /// A device, a socket or another kind that cannot be copied.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name in the directory: one component of a path.
    pub name: Vec<u8>,
    /// Kind of the entry, of a link's target if the server follows it.
    pub kind: EntryKind,
    /// Size in bytes, if known.
    pub size: Option<u64>,
    /// Time of the last change, if known. Most servers give whole seconds.
    pub modified: Option<FileTime>,
    /// Permission bits, if known.
    pub mode: Option<u32>,
    /// Target of a symbolic link, if known. GridFTP servers give the path that it leads to.
    pub link_target: Option<Vec<u8>>,
}

/// A line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An entry of the directory.
    Entry(Entry),
    /// The directory itself, with its number of lines if the server tells it.
    Itself {
        /// Number of lines of the listing.
        count: Option<u64>,
    },
    /// The directory above.
    Parent,
}

/// Parses a line of facts. `None` if it has another form, or if the name is not one component
/// of a path, so that no entry can leave its directory.
pub fn parse(line: &[u8]) -> Option<Line> {
    let line = line.strip_prefix(b" ").unwrap_or(line);
    // Names may contain "; ". Facts contain no space except in the values of some servers.
    let end = line.windows(2).position(|pair| pair == b"; ")?;
    let (facts, name) = (&line[..end], &line[end + 2..]);
    let mut kind = None;
    let mut count = None;
    let mut entry = Entry {
        name: name.to_vec(),
        kind: EntryKind::Other,
        size: None,
        modified: None,
        mode: None,
        link_target: None,
    };
    for fact in facts.split(|byte| *byte == b';') {
        let equals = fact.iter().position(|byte| *byte == b'=')?;
        let key = fact[..equals].to_ascii_lowercase();
        let value = &fact[equals + 1..];
        match key.as_slice() {
            b"type" => kind = Some(value.to_ascii_lowercase()),
            b"size" => entry.size = number(value),
            b"modify" => entry.modified = time::parse(value),
            b"unix.mode" => entry.mode = mode(value),
            b"unix.slink" => entry.link_target = Some(value.to_vec()),
            b"x.count" => count = number(value),
            _ => {}
        }
    }
    let kind = kind?;
    entry.kind = match kind.as_slice() {
        b"cdir" => return Some(Line::Itself { count }),
        b"pdir" => return Some(Line::Parent),
        b"file" => EntryKind::File,
        b"dir" => EntryKind::Directory,
        other if other.starts_with(b"os.unix=slink") || other.starts_with(b"os.unix=symlink") => {
            EntryKind::Link
        }
        _ => EntryKind::Other,
    };
    if entry.kind != EntryKind::File {
        entry.size = None;
    }
    is_component(&entry.name).then_some(Line::Entry(entry))
}

/// True if a name is one component of a path.
pub fn is_component(name: &[u8]) -> bool {
    let forbidden = |byte: &u8| matches!(byte, b'/' | b'\r' | b'\n' | 0);
    !matches!(name, b"" | b"." | b"..") && name.len() <= 255 && !name.iter().any(forbidden)
}

/// Parses a decimal number without a sign.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|_| digits)
}

fn mode(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
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
    fn facts_of_a_gridftp_server_are_read() {
        let found = entry(
            " Type=file;Modify=20261127232325;Size=3;Perm=r;UNIX.mode=0644;UNIX.owner=root;\
             UNIX.slink=/t/small; a b;c; d",
        );
        let found = found.unwrap();
        assert_eq!(found.name, b"a b;c; d");
        assert_eq!(found.kind, EntryKind::File);
        assert_eq!((found.size, found.mode), (Some(3), Some(0o644)));
        assert_eq!(found.link_target.as_deref(), Some(&b"/t/small"[..]));
        let itself = parse(b" Type=cdir;X.count=10; .");
        assert_eq!(itself, Some(Line::Itself { count: Some(10) }));
        assert_eq!(parse(b"type=pdir; .."), Some(Line::Parent));
    }

    #[test]
    fn names_stay_in_their_directory() {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b", "a\rb"] {
            assert_eq!(entry(&format!("type=file; {name}")), None, "{name}");
        }
        assert!(entry("type=file; ...").is_some());
        assert!(entry("type=dir;size=4096; d").unwrap().size.is_none());
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "line", "type=file;name", "; x", "size=3; x", "type; x"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(
            entry("type=OS.unix=slink:/t; x").unwrap().kind,
            EntryKind::Link
        );
        assert_eq!(entry("type=OS.unix=chr; x").unwrap().kind, EntryKind::Other);
        assert_eq!(entry("type=file;size=-1; x").unwrap().size, None);
    }
}
