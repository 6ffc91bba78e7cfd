//! A directory of a worker for secrets. Only its user can access it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_net::token::fill_random;

/// A new directory in the system's directory for temporary files. Dropping it removes it.
#[derive(Debug)]
pub struct Private(PathBuf);

impl Private {
    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn new() -> io::Result<Private> {
        let mut bytes = [0; 8];
        fill_random(&mut bytes).map_err(io::Error::other)?;
        let number = u64::from_le_bytes(bytes);
        let path = std::env::temp_dir().join(format!("longhaul-worker-{number:016x}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Private(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of an empty directory that is removed at the same time.
    pub fn beside(&self) -> PathBuf {
        self.0.with_extension("empty")
    }

    /// Writes a file and returns its path. A file of that name has the same contents and stays.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn keep(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        let new = self
            .0
            .join(format!("{name}.{:?}", std::thread::current().id()));
        if path.exists() {
            return Ok(path);
        }
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600);
        opened.open(&new)?.write_all(text.as_bytes())?;
        fs::rename(&new, &path)?;
        Ok(path)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The system removes old files of this directory later.
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir(self.beside());
    }
}
