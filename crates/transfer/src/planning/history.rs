//! Reads and writes the file of earlier transfers: `history.jsonl` in the state directory, one line
//! per transfer. Only its user can read it. It contains no file names and no credentials.
//!
//! A copy continues if the file cannot be read or written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use longhaul_model::history::PastTransfer;
use longhaul_system::named_files::{kept, kept_to_read};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::state::{keep, state_directory};

/// Maximum number of recorded transfers of all pairs of hosts.
pub const MOST_TRANSFERS: usize = 1000;

/// Number of lines above the maximum that are appended before the file is rewritten.
const SLACK: usize = 100;

/// Maximum number of bytes to read from the file. A line has some hundreds.
const MOST_BYTES: u64 = 8 << 20;

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Transfers, the oldest first.
    pub transfers: Vec<PastTransfer>,
    /// Numbers of invalid lines, starting at 1.
    pub damaged: Vec<usize>,
}

/// Earlier transfers as one command sees them. The file is read once, at the first use. An
/// unreadable file counts as empty.
#[derive(Clone, Debug, Default)]
pub struct Past(Arc<OnceLock<Vec<PastTransfer>>>);

impl Past {
    /// Returns the transfers, the oldest first.
    pub fn transfers(&self) -> &[PastTransfer] {
        self.read_by(read)
    }

    fn read_by(&self, read: impl FnOnce() -> io::Result<History>) -> &[PastTransfer] {
        self.0.get_or_init(|| read().unwrap_or_default().transfers)
    }
}

/// Returns the path of the file.
///
/// # Errors
///
/// Fails if there is no state directory.
pub fn file() -> io::Result<PathBuf> {
    Ok(state_directory()?.join("history.jsonl"))
}

/// Reads the file. A missing file counts as empty.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn read() -> io::Result<History> {
    read_from(&file()?)
}

/// Adds a transfer.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn add(transfer: &PastTransfer) -> io::Result<()> {
    add_to(&file()?, transfer)
}

/// Removes the records of one host, or all records; returns the number of removed ones.
///
/// # Errors
///
/// Fails if the file cannot be read or written.
pub fn forget(host: Option<&str>) -> io::Result<usize> {
    forget_in(&file()?, host)
}

fn read_from(file: &Path) -> io::Result<History> {
    let opened = match kept_to_read(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(History::default()),
        Err(error) => return Err(error),
    };
    let mut history = History::default();
    let bounded = BufReader::new(opened.take(MOST_BYTES));
    for (number, line) in bounded.split(b'\n').enumerate() {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice::<PastTransfer>(&line) {
            Ok(transfer) if transfer.is_sound() => history.transfers.push(transfer),
            _ => history.damaged.push(number + 1),
        }
    }
    Ok(history)
}

/// Maximum time to wait for another process that changes the file. A change takes some
/// milliseconds, unless that process is stopped.
const LOCKED_FOR: Duration = Duration::from_secs(2);

/// Pause between two attempts to lock the file.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Locks the file against changes by other processes.
fn locked(file: &Path, within: Duration) -> io::Result<File> {
    let lock = file.with_extension("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = kept(&mut options, &lock)?;
    let until = Instant::now() + within;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                // tidy: reason: the kernel tells nobody when a lock is free, except one who waits
                // without end.
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process has locked it"));
            }
            locked => return Ok(locked.map(|()| lock)?),
        }
    }
}

/// Creates the directory. Also creates those above it, unless the user set `XDG_STATE_HOME`.
fn make_directory(file: &Path) -> io::Result<()> {
    let Some(directory) = file.parent() else {
        return Ok(());
    };
    let named = std::env::var_os("XDG_STATE_HOME").is_some();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(!named).mode(0o700);
    match builder.create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn line_of(transfer: &PastTransfer) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(transfer).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

fn add_to(file: &Path, transfer: &PastTransfer) -> io::Result<()> {
    make_directory(file)?;
    let _lock = locked(file, LOCKED_FOR)?;
    let line = line_of(transfer)?;
    let mut options = OpenOptions::new();
    let mut opened = kept(options.append(true).create(true).mode(0o600), file)?;
    // One write, so that a reader sees a line whole or not at all.
    opened.write_all(&line)?;
    let history = read_from(file)?;
    if history.transfers.len() + history.damaged.len() > MOST_TRANSFERS + SLACK {
        let first = history.transfers.len().saturating_sub(MOST_TRANSFERS);
        write(file, &history.transfers[first..])?;
    }
    Ok(())
}

fn forget_in(file: &Path, host: Option<&str>) -> io::Result<usize> {
    if !file.exists() {
        return Ok(0);
    }
    let _lock = locked(file, LOCKED_FOR)?;
    let history = read_from(file)?;
    let is_kept = |transfer: &PastTransfer| host.is_some_and(|host| transfer.host != host);
    let (kept, forgotten): (Vec<_>, Vec<_>) = history.transfers.into_iter().partition(is_kept);
    write(file, &kept)?;
    Ok(forgotten.len())
}

fn write(file: &Path, transfers: &[PastTransfer]) -> io::Result<()> {
    let mut text = Vec::new();
    for transfer in transfers {
        text.extend(line_of(transfer)?);
    }
    keep(file, &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use longhaul_model::history::{SCHEMA, Way};

    use super::*;

    #[test]
    fn a_permanent_lock_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("history.jsonl");
        let held = locked(&file, Duration::ZERO).unwrap();
        let error = locked(&file, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(held);
        locked(&file, Duration::ZERO).unwrap();
    }

    #[test]
    fn the_history_file_is_read_once() {
        let (past, reads) = (Past::default(), std::cell::Cell::new(0));
        let read = || {
            reads.set(reads.get() + 1);
            Ok(History::default())
        };
        for one in [&past, &past.clone()] {
            assert!(one.read_by(read).is_empty());
        }
        assert_eq!(reads.get(), 1);
    }

    fn transfer(host: &str, bytes: u64) -> PastTransfer {
        PastTransfer {
            schema: SCHEMA,
            at: "2026-11-26T10:00:00Z".to_owned(),
            host: host.to_owned(),
            way: Way::To,
            rtt_seconds: 0.1,
            bytes,
            files: 1,
            seconds: 10.0,
            wire_bytes: bytes,
            streams: 4,
            congestion: String::new(),
            window_bytes: None,
            likely_window_bytes: None,
            sent_again: 0.0,
            limit: None,
            bound: false,
            layers: Vec::new(),
            predicted_seconds: None,
        }
    }

    #[test]
    fn transfers_are_kept_for_their_user_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.jsonl");
        assert_eq!(read_from(&file).unwrap(), History::default());
        add_to(&file, &transfer("a", 1)).unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let many: Vec<PastTransfer> = (0..MOST_TRANSFERS + SLACK)
            .map(|at| transfer("b", at as u64))
            .collect();
        write(&file, &many).unwrap();
        add_to(&file, &transfer("c", 7)).unwrap();
        let found = read_from(&file).unwrap().transfers;
        assert_eq!(found.len(), MOST_TRANSFERS);
        assert_eq!(found.last().unwrap().host, "c");
        assert_eq!(found[0].bytes, SLACK as u64 + 1);
    }

    #[test]
    fn a_damaged_line_is_skipped_and_numbered() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.jsonl");
        add_to(&file, &transfer("a", 1)).unwrap();
        let mut text = fs::read(&file).unwrap();
        text.extend(b"{\"schema\":1,\"at\n\xff\n\n");
        fs::write(&file, text).unwrap();
        add_to(&file, &transfer("a", 2)).unwrap();
        let history = read_from(&file).unwrap();
        assert_eq!(history.damaged, [2, 3]);
        assert_eq!(history.transfers.len(), 2);
    }

    #[test]
    fn a_host_is_removed_from_the_history() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.jsonl");
        assert_eq!(forget_in(&file, Some("a")).unwrap(), 0);
        for host in ["a", "b", "a"] {
            add_to(&file, &transfer(host, 1)).unwrap();
        }
        assert_eq!(forget_in(&file, Some("a")).unwrap(), 2);
        assert_eq!(read_from(&file).unwrap().transfers[0].host, "b");
        assert_eq!(forget_in(&file, None).unwrap(), 1);
    }
}
