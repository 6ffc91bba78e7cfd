//! Objects at a server as a file system that can only be read.
//!
//! The sender reads it like a local one, so that filters, digests, journals and resume at the
//! other end work as for every source.
//!
//! - `fetcher`: threads that fetch parts, and the memory of the parts
//! - `parts`: an object, whose parts are fetched ahead of the reads
//! - `whole`: an object whose size is unknown before its data arrive
//! - `known`: objects that were found, until they are opened
//! - `file`: an object as a file
//! - `directory`: a directory with its listing

mod directory;
mod fetcher;
mod file;
mod known;
mod parts;
mod whole;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::Directory;
use longhaul_storage::roots::OpenRoot;
use longhaul_stores::store::Store;

use directory::ObjectDirectory;
use known::Known;

/// The file system of a server.
pub struct Objects(Arc<Known>);

impl Objects {
    /// Returns the objects of a server. Sends no request.
    pub fn new(store: Arc<dyn Store>) -> Objects {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let started = Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        };
        Objects(Arc::new(Known::new(store, started)))
    }
}

impl OpenRoot for Objects {
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let path = path.as_os_str().as_bytes();
        Ok(Arc::new(ObjectDirectory::new(Arc::clone(&self.0), path)))
    }

    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        self.open_root(path)
    }

    fn make_root(&self, _: &Path) -> io::Result<Arc<dyn Directory>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
