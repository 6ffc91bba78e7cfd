//! The file of the audit log. A record is written as a whole or not at all. The daemon and its jobs
//! write to the same file, and an administrator may rename it at any time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_system::named_files::kept;
use rustix::fs::{FlockOperation, flock};

/// Permissions of a new file.
const MODE: u32 = 0o640;

/// The open file.
pub struct AuditFile {
    path: PathBuf,
    file: File,
}

/// Releases the lock of the file at the end of a write.
struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the file releases the lock too.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl AuditFile {
    /// Opens the file and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<AuditFile> {
        Ok(AuditFile {
            path: path.to_owned(),
            file: opened(path)?,
        })
    }

    /// Opens the file again if it was renamed or removed. Returns true if this is a new file.
    ///
    /// # Errors
    ///
    /// The new file cannot be opened.
    pub fn follow_rotation(&mut self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        let named = self.path.metadata();
        let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
        if !same {
            self.file = opened(&self.path)?;
        }
        Ok(!same)
    }

    /// Appends lines. If `durable`, they are synced. If this fails, the file is as before.
    ///
    /// # Errors
    ///
    /// The lines cannot be written or synced.
    pub fn append(&mut self, lines: &str, durable: bool) -> io::Result<()> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        let locked = Locked(&self.file);
        let before = self.file.metadata()?.len();
        let written = self.write(before, lines).and_then(|()| {
            if durable {
                self.file.sync_data()
            } else {
                Ok(())
            }
        });
        if written.is_err() {
            // The lock excludes other writers, so only the own lines are removed.
            let _ = self.file.set_len(before);
        }
        drop(locked);
        written
    }

    fn write(&self, before: u64, lines: &str) -> io::Result<()> {
        let mut last = [b'\n'];
        if before > 0 {
            self.file.read_exact_at(&mut last, before - 1)?;
        }
        if last != [b'\n'] {
            // A system crash left a part of a line.
            (&self.file).write_all(b"\n")?;
        }
        (&self.file).write_all(lines.as_bytes())
    }
}

fn opened(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(MODE);
    kept(&mut options, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_line_is_ended_and_a_renamed_file_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit");
        std::fs::write(&path, "{\"torn").unwrap();
        let mut file = AuditFile::open(&path).unwrap();
        assert!(!file.follow_rotation().unwrap());
        file.append("{}\n", true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"torn\n{}\n");
        let older = place.path().join("audit.1");
        std::fs::rename(&path, &older).unwrap();
        assert!(file.follow_rotation().unwrap());
        file.append("{\"a\":1}\n", false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(std::fs::read_to_string(&older).unwrap(), "{\"torn\n{}\n");
    }
}
