//! Files at FTP and GridFTP servers as a file system.
//!
//! The sender reads it and the receiver writes it like a local one, so that filters, digests,
//! comparisons, journals and resume work as for every other source and destination.
//!
//! - `sessions`: a few sessions to the server, shared by all threads
//! - `directory`: a directory with its listing
//! - `small_files`: files that are fetched in batches before they are read
//! - `file`: a file
//! - `ahead`: a large file, fetched ahead of its reads
//! - `writing`: changes in a directory that is a destination
//! - `records`: journals and locks of a destination, on this host
//! - `uploads`, `small_upload`, `small_handle`: files that are stored in batches after they are
//!   written
//! - `large_upload`: a file that is stored while it is written
//! - `stored_facts`: size, time and mode of a file that is being stored

mod ahead;
mod directory;
mod file;
mod large_upload;
mod records;
mod sessions;
mod small_files;
mod small_handle;
mod small_upload;
mod stored_facts;
#[cfg(test)]
pub mod test_server;
mod uploads;
mod writing;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_gridftp::Error;
use longhaul_storage::Directory;
use longhaul_storage::roots::OpenRoot;

use directory::RemoteDirectory;
pub use sessions::Sessions;
use uploads::Uploads;

/// The file system of a server.
pub struct Server(pub Arc<Sessions>);

/// The file system of a server that is a destination.
pub struct WritableServer {
    sessions: Arc<Sessions>,
    uploads: Arc<Uploads>,
    records: Arc<dyn Directory>,
}

impl WritableServer {
    /// Prepares the records of the server on this host. `name` identifies the server and its
    /// user.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be used.
    pub fn new(server: Server, name: &str) -> io::Result<WritableServer> {
        Ok(WritableServer {
            uploads: Uploads::new(Arc::clone(&server.0)),
            sessions: server.0,
            records: records::open_directory(name)?,
        })
    }
}

impl OpenRoot for WritableServer {
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let path = path.as_os_str().as_bytes();
        let writing = (Arc::clone(&self.uploads), Arc::clone(&self.records));
        RemoteDirectory::open_writable(Arc::clone(&self.sessions), path, writing)
    }

    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        self.open_root(path)
    }

    fn make_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let is_directory = |path: &Path| {
            let path = path.as_os_str().as_bytes();
            self.sessions.with(|session| session.is_directory(path))
        };
        let mut missing = vec![path];
        for above in path.ancestors().skip(1) {
            if above.as_os_str().is_empty() || is_directory(above)? {
                break;
            }
            missing.push(above);
        }
        for path in missing.into_iter().rev() {
            let path = path.as_os_str().as_bytes();
            self.sessions.with(|session| session.make_directory(path))?;
        }
        self.open_root(path)
    }
}

impl Server {
    fn open(&self, path: &Path, follows: bool) -> io::Result<Arc<dyn Directory>> {
        let path = path.as_os_str().as_bytes();
        RemoteDirectory::open(Arc::clone(&self.0), path, follows)
    }
}

impl OpenRoot for Server {
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        self.open(path, false)
    }

    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        self.open(path, true)
    }

    fn make_root(&self, _: &Path) -> io::Result<Arc<dyn Directory>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Returns an error of the client as one of a file system.
fn as_io(error: Error) -> io::Error {
    let kind = match &error {
        error if error.means_absent() => io::ErrorKind::NotFound,
        Error::Silent { .. } => io::ErrorKind::TimedOut,
        Error::Closed => io::ErrorKind::ConnectionReset,
        Error::Unsupported(_) => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
