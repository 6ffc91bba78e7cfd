//! Formats the entries of an endpoint.

use longhaul_proto::listing::{Details, ListedEntry, ListedKind};
use longhaul_proto::text::is_hidden;
use longhaul_units::rfc3339;

use super::json;
use crate::console::escaped_json;

/// Format of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// If true, shows mode, size, time and the target of a link.
    pub long: bool,
    /// If true, writes an entry as a JSON object.
    pub json: bool,
    /// Byte that terminates an entry.
    pub end: u8,
    /// If true, escapes control characters and bytes that are not UTF-8.
    pub escaped: bool,
}

/// Formats an entry, including its terminator.
pub fn shown(entry: &ListedEntry, style: Style) -> Vec<u8> {
    let mut line = Vec::new();
    if style.json {
        line = escaped_json(&json::listed(entry).to_string()).into_bytes();
    } else {
        let details = entry.details.as_ref().filter(|_| style.long);
        if let Some(details) = details {
            line.extend(columns(entry.kind, details).into_bytes());
        }
        line.extend(name(entry.path.as_bytes(), style.escaped));
        if let Some(target) = details.and_then(|details| details.target.as_ref()) {
            line.extend(b" -> ");
            line.extend(name(target, style.escaped));
        }
    }
    line.push(style.end);
    line
}

fn name(bytes: &[u8], escaped: bool) -> Vec<u8> {
    if escaped {
        harmless(bytes).into_bytes()
    } else {
        bytes.to_vec()
    }
}

/// Escapes text so that it cannot control a terminal.
pub fn harmless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_hidden(character) || character == '\\' {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

/// Formats mode, size and time like `ls -l`.
fn columns(kind: ListedKind, details: &Details) -> String {
    let time = rfc3339(details.modified.seconds);
    format!(
        "{} {:>15} {time} ",
        permissions(kind, details.mode),
        details.size
    )
}

fn permissions(kind: ListedKind, mode: u32) -> String {
    let mut text = String::from(match kind {
        ListedKind::File => '-',
        ListedKind::Directory => 'd',
        ListedKind::Symlink => 'l',
        ListedKind::Special => '?',
    });
    // Three bits for each class of users, and the letter that replaces its x.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 > 0 { 'r' } else { '-' });
        text.push(if bits & 2 > 0 { 'w' } else { '-' });
        text.push(match (mode & special > 0, bits & 1 > 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use longhaul_proto::manifest::{Timestamp, TreePath};
    use serde_json::Value;

    use super::*;

    fn link() -> ListedEntry {
        ListedEntry {
            path: TreePath::new(b"a\x1b[2J\xff b").unwrap(),
            kind: ListedKind::Symlink,
            details: Some(Details {
                mode: 0o777,
                size: 3,
                modified: Timestamp {
                    seconds: -1,
                    nanoseconds: 5,
                },
                target: Some(b"../\n".to_vec().into()),
            }),
        }
    }

    const PLAIN: Style = Style {
        long: false,
        json: false,
        end: b'\n',
        escaped: true,
    };

    #[test]
    fn a_name_prints_no_control_characters() {
        assert_eq!(shown(&link(), PLAIN), b"a\\u{1b}[2J\\xff b\n");
        let raw = Style {
            end: 0,
            escaped: false,
            ..PLAIN
        };
        assert_eq!(shown(&link(), raw), b"a\x1b[2J\xff b\0");
        assert_eq!(harmless(b"\\x1b"), "\\\\x1b");
    }

    #[test]
    fn a_long_line_has_mode_size_time_and_target() {
        let long = Style {
            long: true,
            ..PLAIN
        };
        let line = String::from_utf8(shown(&link(), long)).unwrap();
        let start = "lrwxrwxrwx               3 1969-12-31T23:59:59Z a\\u{1b}";
        assert!(line.starts_with(start), "{line}");
        assert!(line.ends_with(" -> ../\\n\n"), "{line}");
        for (mode, text) in [
            (0o644, "-rw-r--r--"),
            (0o4755, "-rwsr-xr-x"),
            (0o7000, "---S--S--T"),
            (0o1777, "-rwxrwxrwt"),
        ] {
            assert_eq!(permissions(ListedKind::File, mode), text);
        }
    }

    #[test]
    fn json_has_every_name() {
        let style = Style {
            json: true,
            ..PLAIN
        };
        let value: Value = serde_json::from_slice(&shown(&link(), style)).unwrap();
        assert_eq!(value["path"]["bytes"][0], b'a');
        assert_eq!(value["kind"], "link");
        assert_eq!(value["mode"], "0777");
        assert_eq!(value["target"], "../\n");
        assert_eq!(value["modified_nanoseconds"], 5);
        let path = TreePath::new("\u{9b}2J\u{202e}".as_bytes()).unwrap();
        let listed = shown(&ListedEntry { path, ..link() }, style);
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.contains("\\u009b2J\\u202e"), "{listed:?}");
    }
}
