//! Users and groups of this host by name and ID. They come from `/etc/passwd` and `/etc/group`. If
//! the system has other sources too (LDAP, SSSD), `getent` is called once for each name or ID.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use longhaul_system::queue::lock;

/// Kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
}

impl OwnerKind {
    fn file(self) -> &'static str {
        match self {
            OwnerKind::User => "/etc/passwd",
            OwnerKind::Group => "/etc/group",
        }
    }

    /// Returns the name of the database for `getent` and `nsswitch.conf`.
    fn database(self) -> &'static str {
        match self {
            OwnerKind::User => "passwd",
            OwnerKind::Group => "group",
        }
    }
}

/// Maximum number of remembered `getent` results. When it is reached, they are all removed.
const MOST_KNOWN: usize = 16_384;

/// Maximum size in bytes of a file of names, and of an answer of `getent`.
const MOST_FILE_BYTES: u64 = 64 << 20;
const MOST_ANSWER_BYTES: u64 = 64 << 10;

/// Number of consecutive lookups without a result after which `getent` is no longer called. Names
/// may come from an untrusted peer.
const MOST_IN_VAIN: u32 = 256;

/// The owners of one kind.
#[derive(Debug)]
pub struct Owners {
    kind: OwnerKind,
    known: Mutex<Option<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Entries of the file.
    numbers: HashMap<Vec<u8>, u32>,
    names: HashMap<u32, Vec<u8>>,
    /// Answers of `getent`.
    asked_numbers: HashMap<Vec<u8>, Option<u32>>,
    asked_names: HashMap<u32, Option<Vec<u8>>>,
    /// True if the system has other sources than the file.
    has_others: bool,
    in_vain: u32,
}

impl Owners {
    /// Creates an empty cache. The file is read at the first lookup.
    pub fn new(kind: OwnerKind) -> Owners {
        Owners {
            kind,
            known: Mutex::default(),
        }
    }

    /// Returns the name of an ID; `None` if it has no name here.
    pub fn name_of(&self, number: u32) -> Option<Vec<u8>> {
        self.with(|known, kind| {
            if let Some(found) = known.names.get(&number) {
                return Some(found.clone());
            }
            if let Some(found) = known.asked_names.get(&number) {
                return found.clone();
            }
            let found = known.ask(kind, number.to_string().as_bytes());
            let name = found.filter(|(_, of)| *of == number).map(|(name, _)| name);
            if known.asked_names.len() >= MOST_KNOWN {
                known.asked_names.clear();
            }
            known.asked_names.insert(number, name.clone());
            name
        })
    }

    /// Returns the ID of a name; `None` if the name is unknown here.
    pub fn number_of(&self, name: &[u8]) -> Option<u32> {
        self.with(|known, kind| {
            if let Some(found) = known.numbers.get(name) {
                return Some(*found);
            }
            if let Some(found) = known.asked_numbers.get(name) {
                return *found;
            }
            // `getent` would interpret the name as an ID.
            let is_number = name.iter().all(u8::is_ascii_digit);
            let found = (!is_number).then(|| known.ask(kind, name)).flatten();
            let number = found.map(|(_, number)| number);
            if known.asked_numbers.len() >= MOST_KNOWN {
                known.asked_numbers.clear();
            }
            known.asked_numbers.insert(name.to_vec(), number);
            number
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut Known, OwnerKind) -> T) -> T {
        let mut known = lock(&self.known);
        let known = known.get_or_insert_with(|| Known::read(self.kind));
        what(known, self.kind)
    }
}

impl Known {
    fn read(kind: OwnerKind) -> Known {
        let mut known = Known {
            has_others: has_others(kind),
            ..Known::default()
        };
        let mut text = Vec::new();
        if let Ok(file) = std::fs::File::open(kind.file()) {
            // Entries beyond the limit, or after a read error, are looked up with `getent`.
            let _ = file.take(MOST_FILE_BYTES).read_to_end(&mut text);
        }
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((name, number)) = parse_line(line) {
                known.names.entry(number).or_insert_with(|| name.clone());
                known.numbers.entry(name).or_insert(number);
            }
        }
        known
    }

    /// Looks up a name, or an ID in digits, with `getent`.
    fn ask(&mut self, kind: OwnerKind, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        use std::os::unix::ffi::OsStrExt;
        if !self.has_others || self.in_vain >= MOST_IN_VAIN || key.contains(&0) {
            return None;
        }
        let child = Command::new("getent")
            .arg("--")
            .arg(kind.database())
            .arg(std::ffi::OsStr::from_bytes(key))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            self.has_others = false;
            return None;
        };
        let mut answer = Vec::new();
        if let Some(output) = child.stdout.take() {
            // A read error counts as no answer.
            let _ = output.take(MOST_ANSWER_BYTES).read_to_end(&mut answer);
        }
        let _ = child.wait();
        let found = answer.split(|byte| *byte == b'\n').find_map(parse_line);
        self.in_vain = match found {
            Some(_) => 0,
            None => self.in_vain + 1,
        };
        found
    }
}

/// True if the system has other sources than the file.
fn has_others(kind: OwnerKind) -> bool {
    let Ok(text) = std::fs::read_to_string(Path::new("/etc/nsswitch.conf")) else {
        return false;
    };
    names_others(&text, kind)
}

fn names_others(text: &str, kind: OwnerKind) -> bool {
    let database = kind.database();
    let mut lines = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        line.strip_prefix(database)?.trim_start().strip_prefix(':')
    });
    // `systemd` has users of running services, which do not own files for long.
    lines.any(|services| {
        let mut services = services.split_whitespace();
        services.any(|service| !matches!(service, "files" | "compat" | "systemd"))
    })
}

/// Parses name and ID of a line `name:password:number:…`.
fn parse_line(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let mut fields = line.split(|byte| *byte == b':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let number = std::str::from_utf8(fields.nth(1)?).ok()?;
    // NIS used entries that begin with `+` and `-`.
    let plain = !matches!(name.first(), Some(b'+' | b'-' | b'#'));
    plain.then_some((name.to_vec(), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_number_and_unknown_owners_are_not() {
        for kind in [OwnerKind::User, OwnerKind::Group] {
            let owners = Owners::new(kind);
            assert_eq!(owners.number_of(b"root"), Some(0));
            assert_eq!(owners.name_of(0), Some(b"root".to_vec()));
            assert_eq!(owners.number_of(b"no such owner"), None);
            assert_eq!(owners.number_of(b"0"), None);
            assert_eq!(owners.name_of(3_999_999_999), None);
        }
    }

    #[test]
    fn lines_are_read_or_passed_over() {
        assert_eq!(parse_line(b"a:x:7:8::/:/bin/sh"), Some((b"a".to_vec(), 7)));
        assert_eq!(parse_line(b"g:x:9:"), Some((b"g".to_vec(), 9)));
        for line in ["", "a", "a:x", "a:x:", "a:x:-1", ":x:1", "+:x:1", "#a:x:1"] {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_system_is_queried_only_if_it_has_other_sources_of_names() {
        let text = "passwd:  files systemd\ngroup: files sss # x\n# passwd: ldap\n";
        assert!(!names_others(text, OwnerKind::User));
        assert!(names_others(text, OwnerKind::Group));
    }
}
