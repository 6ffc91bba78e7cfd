//! Entries of a directory as facts: `type=file;size=3;modify=20261127232325; name` (RFC 3659).

use super::time::{self, FileTime};

/// Maximum size of a file in bytes: the maximum offset of Unix.
pub const MAXIMUM_FILE_BYTES: u64 = i64::MAX as u64;

/// Maximum length of the target of a symbolic link in bytes, as in Linux.
pub const MAXIMUM_LINK_BYTES: usize = 4095;

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

impl Entry {
    /// Creates an entry about which only the name and the kind are known.
    pub fn new(name: &[u8], kind: EntryKind) -> Entry {
        Entry {
            name: name.to_vec(),
            kind,
            size: None,
            modified: None,
            mode: None,
            link_target: None,
        }
    }
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
    /// The size of the directory on the disk of the server.
    Total,
}

/// Parses a line of facts. `None` if it has another form, if the size or the link target is too
/// large for a Unix file system, or if the name is not one component of a path, so that no entry
/// can leave its directory.
pub fn parse(line: &[u8]) -> Option<Line> {
    let line = line.strip_prefix(b" ").unwrap_or(line);
    // Names may contain "; ". Facts contain no space except in the values of some servers.
    let end = line.windows(2).position(|pair| pair == b"; ")?;
    let (facts, name) = (&line[..end], &line[end + 2..]);
    let Facts { kind, count, entry } = facts_of(facts, name)?;
    match kind.as_slice() {
        b"cdir" => Some(Line::Itself { count }),
        b"pdir" => Some(Line::Parent),
        _ => is_component(name).then_some(Line::Entry(entry)),
    }
}

/// Parses the line of facts that describes one path. Its entry gets the name `name`. A directory
/// is an entry here, also if it is the current one.
pub fn parse_status(line: &[u8], name: &[u8]) -> Option<Entry> {
    let line = line.strip_prefix(b" ").unwrap_or(line);
    let end = line.windows(2).position(|pair| pair == b"; ")?;
    facts_of(&line[..end], name).map(|facts| facts.entry)
}

/// The facts of a line.
struct Facts {
    /// Value of the fact `type` in lower case.
    kind: Vec<u8>,
    /// Number of lines of the listing.
    count: Option<u64>,
    entry: Entry,
}

fn facts_of(facts: &[u8], name: &[u8]) -> Option<Facts> {
    let mut kind = None;
    let mut count = None;
    let mut size = None;
    let mut entry = Entry::new(name, EntryKind::Other);
    for fact in facts.split(|byte| *byte == b';') {
        let equals = fact.iter().position(|byte| *byte == b'=')?;
        let key = fact[..equals].to_ascii_lowercase();
        let value = &fact[equals + 1..];
        match key.as_slice() {
            b"type" => kind = Some(value.to_ascii_lowercase()),
            b"size" => size = Some(value),
            b"modify" => entry.modified = time::parse(value),
            b"unix.mode" => entry.mode = mode(value),
            // Some servers give this fact without a value to entries that are no links.
            b"unix.slink" if value.is_empty() => {}
            b"unix.slink" => entry.link_target = Some(link_target(value)?.to_vec()),
            b"x.count" => count = number(value),
            _ => {}
        }
    }
    let kind = kind?;
    entry.kind = match kind.as_slice() {
        b"file" => EntryKind::File,
        b"dir" | b"cdir" | b"pdir" => EntryKind::Directory,
        other if other.starts_with(b"os.unix=slink") || other.starts_with(b"os.unix=symlink") => {
            EntryKind::Link
        }
        _ => EntryKind::Other,
    };
    if entry.kind == EntryKind::File
        && let Some(size) = size
    {
        if is_too_large(size) {
            return None;
        }
        entry.size = number(size);
    }
    Some(Facts { kind, count, entry })
}

/// True if a text is a number, and no file can have this size.
pub(crate) fn is_too_large(size: &[u8]) -> bool {
    let is_number = !size.is_empty() && size.iter().all(u8::is_ascii_digit);
    is_number && number(size).is_none_or(|size| size > MAXIMUM_FILE_BYTES)
}

/// Returns the target of a link. `None` if no link can have it.
pub(crate) fn link_target(text: &[u8]) -> Option<&[u8]> {
    let is_valid = (1..=MAXIMUM_LINK_BYTES).contains(&text.len()) && !text.contains(&0);
    is_valid.then_some(text)
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

    #[test]
    fn sizes_and_links_that_no_file_system_has_are_refused() {
        let largest = entry("type=file;size=9223372036854775807; x").unwrap();
        assert_eq!(largest.size, Some(MAXIMUM_FILE_BYTES));
        for size in ["9223372036854775808", "18446744073709551616"] {
            assert_eq!(entry(&format!("type=file;size={size}; x")), None, "{size}");
            assert!(entry(&format!("type=dir;size={size}; x")).is_some());
        }
        let link = |length| {
            let target = "t".repeat(length);
            entry(&format!("type=OS.unix=slink:;UNIX.slink={target}; x"))
        };
        assert!(link(MAXIMUM_LINK_BYTES).unwrap().link_target.is_some());
        assert!(link(0).unwrap().link_target.is_none());
        assert_eq!(link(MAXIMUM_LINK_BYTES + 1), None);
        assert_eq!(entry("type=OS.unix=slink:;UNIX.slink=a\0b; x"), None);
    }

    #[test]
    fn the_status_of_a_path_is_read() {
        let status = |line: &str| parse_status(line.as_bytes(), b"n").unwrap();
        let file = status(" type=file;size=3; /a b/n");
        assert_eq!((file.name, file.size), (b"n".to_vec(), Some(3)));
        for kind in ["dir", "cdir", "pdir"] {
            let found = status(&format!("type={kind};modify=20261127232325; /n"));
            assert_eq!(found.kind, EntryKind::Directory, "{kind}");
            assert!(found.modified.is_some(), "{kind}");
        }
        assert_eq!(parse_status(b"size=3; /n", b"n"), None);
    }
}
