//! Files at FTP and GridFTP servers as a file system that can only be read.
//!
//! The sender reads it like a local one, so that filters, digests, journals and resume at the
//! other end work as for every source.
//!
//! - `sessions`: a few sessions to the server, shared by all threads
//! - `directory`: a directory with its listing
//! - `small_files`: files that are fetched in batches before they are read
//! - `file`: a file
//! - `ahead`: a large file, fetched ahead of its reads

mod ahead;
mod directory;
mod file;
mod sessions;
mod small_files;
#[cfg(test)]
pub mod test_server;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_gridftp::Error;
use longhaul_storage::Directory;
use longhaul_storage::roots::OpenRoot;

use directory::RemoteDirectory;
pub use sessions::Sessions;

/// The file system of a server.
pub struct Server(pub Arc<Sessions>);

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
