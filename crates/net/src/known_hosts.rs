//! The known keys of servers, one `host:port fingerprint` a line, as in SSH.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_system::named_files::{kept, kept_to_read};

use super::identity::Fingerprint;
use super::tcp::HostPort;

/// Maximum size of the file in bytes. A list from a user's connections is smaller.
const MAXIMUM_FILE_BYTES: u64 = 16 << 20;

/// Reasons why the list cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KnownHostsError {
    /// The list cannot be read or written.
    #[error("{file}: {cause}: check that the file and its directory belong to this user")]
    File {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        cause: Arc<io::Error>,
    },
    /// A line is invalid. It is not skipped, because it may be the entry for the wanted server.
    #[error("{file}, line {line}: not \"host:port sha256:...\": correct or delete the line")]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// All users may change the file.
    #[error(
        "{file} says which daemons are trusted, and anybody may change it (mode {mode:o}): run \
         `chmod go-w {file}`, and look through it"
    )]
    Writable {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is too large.
    #[error("{file} is larger than {MAXIMUM_FILE_BYTES} bytes: move it away")]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
}

/// Result of looking up a server's key in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// The key is listed for the host and port.
    Known,
    /// No key is listed for the host and port.
    Unknown,
    /// Another key is listed.
    Changed {
        /// Line number of the other key, from 1.
        line: usize,
        /// The key in that line.
        known: Fingerprint,
    },
}

/// The keys that are listed for one host and port, with their line numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(Vec<(usize, Fingerprint)>);

impl Pins {
    /// Reads the list. A missing file is an empty list.
    pub(super) fn load(file: &Path, host: &HostPort) -> Result<Pins, KnownHostsError> {
        match kept_to_read(file) {
            Ok(opened) => Pins::read(file, &opened, host),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Pins::default()),
            Err(error) => Err(file_error(file)(error)),
        }
    }

    fn read(file: &Path, opened: &File, host: &HostPort) -> Result<Pins, KnownHostsError> {
        let mode = opened.metadata().map_err(file_error(file))?.mode() & 0o7777;
        // Group permission is accepted, as many users have a private group.
        if mode & 0o002 != 0 {
            let file = file.into();
            return Err(KnownHostsError::Writable { file, mode });
        }
        let mut bytes = Vec::new();
        opened
            .take(MAXIMUM_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(file_error(file))?;
        if bytes.len() as u64 > MAXIMUM_FILE_BYTES {
            return Err(KnownHostsError::TooLarge { file: file.into() });
        }
        Pins::parse(file, &bytes, host)
    }

    fn parse(file: &Path, bytes: &[u8], host: &HostPort) -> Result<Pins, KnownHostsError> {
        let wanted = host.to_string();
        let mut pins = Vec::new();
        for (index, line) in bytes.split(|&b| b == b'\n').enumerate() {
            let bad = || KnownHostsError::Line {
                file: file.into(),
                line: index + 1,
            };
            let text = std::str::from_utf8(line).map_err(|_| bad())?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (name, key) = text.split_once(char::is_whitespace).ok_or_else(bad)?;
            let key = key.trim_start().parse().map_err(|_| bad())?;
            if name.eq_ignore_ascii_case(&wanted) {
                pins.push((index + 1, key));
            }
        }
        Ok(Pins(pins))
    }

    /// Compares a key with the list. A host may have several keys, one in each line.
    pub(super) fn judge(&self, key: &Fingerprint) -> Knowledge {
        match self.0.first() {
            None => Knowledge::Unknown,
            _ if self.0.iter().any(|(_, known)| known == key) => Knowledge::Known,
            Some((line, known)) => Knowledge::Changed {
                line: *line,
                known: *known,
            },
        }
    }
}

fn file_error(file: &Path) -> impl Fn(io::Error) -> KnownHostsError {
    move |cause| KnownHostsError::File {
        file: file.into(),
        cause: Arc::new(cause),
    }
}

/// Looks up `key` as the key of `host` in the list `file`.
///
/// # Errors
///
/// The file cannot be read or has an invalid line.
pub fn look_up(
    file: &Path,
    host: &HostPort,
    key: &Fingerprint,
) -> Result<Knowledge, KnownHostsError> {
    Ok(Pins::load(file, host)?.judge(key))
}

/// Looks up `key` in a list in memory. Errors name `file`.
///
/// # Errors
///
/// A line is invalid.
pub fn judge(
    file: &Path,
    list: &[u8],
    host: &HostPort,
    key: &Fingerprint,
) -> Result<Knowledge, KnownHostsError> {
    Ok(Pins::parse(file, list, host)?.judge(key))
}

/// Adds a key durably, unless the host is listed already. If another process adds a key at the same
/// time, this call waits for it. Returns the result of the lookup before the change; a line was
/// added only if that is `Unknown`.
///
/// # Errors
///
/// The file cannot be read or written.
pub fn record(
    file: &Path,
    host: &HostPort,
    key: &Fingerprint,
) -> Result<Knowledge, KnownHostsError> {
    let error = file_error(file);
    let mut opened = open_locked(file).map_err(&error)?;
    let knowledge = Pins::read(file, &opened, host)?.judge(key);
    if knowledge == Knowledge::Unknown {
        append(&mut opened, &format!("{host} {key}\n")).map_err(&error)?;
    }
    Ok(knowledge)
}

fn open_locked(file: &Path) -> io::Result<File> {
    if let Some(directory) = file.parent().filter(|d| !d.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let opened = kept(&mut options, file)?;
    opened.lock()?;
    Ok(opened)
}

/// Appends a line with one write, so that a crash leaves a complete line or no line. If the last
/// line lacks a newline, that is added first.
fn append(opened: &mut File, line: &str) -> io::Result<()> {
    let mut last = [b'\n'];
    if opened.metadata()?.len() > 0 {
        opened.seek(SeekFrom::End(-1))?;
        opened.read_exact(&mut last)?;
    }
    let text = match last {
        [b'\n'] => line.to_owned(),
        _ => format!("\n{line}"),
    };
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use std::fs;

    fn key() -> Fingerprint {
        Identity::ephemeral().unwrap().fingerprint()
    }

    #[test]
    fn remembers() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("new/known_hosts");
        let (host, other) = (HostPort::new("::1", 7), HostPort::new("::1", 8));
        let (a, b) = (key(), key());
        assert_eq!(look_up(&file, &host, &a).unwrap(), Knowledge::Unknown);
        assert_eq!(record(&file, &host, &a).unwrap(), Knowledge::Unknown);
        assert_eq!(record(&file, &host, &a).unwrap(), Knowledge::Known);
        let changed = Knowledge::Changed { line: 1, known: a };
        assert_eq!(record(&file, &host, &b).unwrap(), changed);
        assert_eq!(look_up(&file, &host, &b).unwrap(), changed);
        assert_eq!(look_up(&file, &other, &b).unwrap(), Knowledge::Unknown);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("[::1]:7 {a}\n"));
    }

    #[test]
    fn lines_of_the_user_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        let (a, b) = (key(), key());
        // Two keys for one host, as during a replacement, and no newline at the end.
        fs::write(&file, format!("# mine\n\nHost:1\t {a}\nhost:1 {b}")).unwrap();
        let host = HostPort::new("host", 1);
        assert_eq!(look_up(&file, &host, &a).unwrap(), Knowledge::Known);
        assert_eq!(look_up(&file, &host, &b).unwrap(), Knowledge::Known);
        record(&file, &HostPort::new("more", 2), &a).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.ends_with(&format!("host:1 {b}\nmore:2 {a}\n")),
            "{text}"
        );
    }

    #[test]
    fn a_broken_line_is_named() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        let lines: [&[u8]; 3] = [b"#\nhost:1", b"#\nhost:1 sha256:x", b"#\n\xff\xff"];
        for text in lines {
            fs::write(&file, text).unwrap();
            let error = look_up(&file, &HostPort::new("h", 1), &key()).unwrap_err();
            assert!(
                matches!(error, KnownHostsError::Line { line: 2, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn many_at_once_add_one_line_each() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        let a = key();
        std::thread::scope(|scope| {
            for port in 0..8 {
                let (file, a) = (&file, &a);
                scope.spawn(move || record(file, &HostPort::new("h", port % 4), a).unwrap());
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 4);
    }

    #[test]
    fn a_list_that_anybody_may_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("known_hosts");
        std::fs::write(&file, "").unwrap();
        for (mode, refused) in [(0o664, false), (0o666, true)] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            let pins = Pins::load(&file, &HostPort::new("h", 1));
            assert_eq!(pins.is_err(), refused, "{mode:o}");
        }
    }
}
