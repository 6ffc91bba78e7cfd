//! The records of uploads, on this host: journals, claims, and the locks of files that are being
//! stored. FTP servers have neither locks nor appends that are durable.
//!
//! All directories of a server share one directory of this host. A prefix of each name tells the
//! directory at the server.

use std::any::Any;
use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{
    Creation, DataMode, Directory, FileKind, ListedName, NameList, Status, StoredFile,
};

use crate::state::{make_private, state_directory};

/// Number of hexadecimal digits of a prefix.
const PREFIX_DIGITS: usize = 32;

/// Opens the directory of this host for the records of a server.
///
/// # Errors
///
/// If the state directory cannot be used.
pub fn open_directory(server: &str) -> io::Result<Arc<dyn Directory>> {
    let name = blake3::hash(server.as_bytes()).to_hex();
    let path = state_directory()?.join("ftp").join(&name[..PREFIX_DIGITS]);
    make_private(&path)?;
    PosixDirectory::open_root(&path)
}

/// The records of one directory at a server.
pub struct Records {
    inner: Arc<dyn Directory>,
    prefix: Vec<u8>,
}

impl Records {
    /// Selects the records of a directory at the server.
    pub fn of(inner: Arc<dyn Directory>, path: &[u8]) -> Arc<Records> {
        let end = path.iter().rposition(|byte| *byte != b'/');
        let path = end.map_or(&b"/"[..], |end| &path[..=end]);
        let hash = blake3::hash(path).to_hex();
        let prefix = format!("{}-", &hash[..PREFIX_DIGITS]).into_bytes();
        Arc::new(Records { inner, prefix })
    }

    fn whole(&self, name: &[u8]) -> Vec<u8> {
        [&self.prefix, name].concat()
    }

    /// Returns the names of the records.
    ///
    /// # Errors
    ///
    /// As `getdents`.
    pub fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut list = self.inner.list()?;
        while let Some(listed) = list.next_name()? {
            if let Some(name) = listed.name.strip_prefix(&self.prefix[..]) {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Names that were listed.
pub struct Names(pub std::vec::IntoIter<ListedName>);

impl NameList for Names {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        Ok(self.0.next())
    }
}

impl Directory for Records {
    fn open_directory(&self, _: &[u8]) -> io::Result<Arc<dyn Directory>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn make_directory(&self, _: &[u8], _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        self.inner.open_file(&self.whole(name), mode)
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        self.inner.create_file(&self.whole(name), creation, mode)
    }

    fn make_symlink(&self, _: &[u8], _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        self.inner.read_symlink(&self.whole(name))
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        match target.as_any().downcast_ref::<Records>() {
            Some(target) => {
                let (from, to) = (self.whole(from), target.whole(to));
                self.inner.rename(&from, &*target.inner, &to)
            }
            None => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.inner.remove_file(&self.whole(name))
    }

    fn remove_directory(&self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.inner.status_of(&self.whole(name))
    }

    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        self.inner.set_modified_of(&self.whole(name), modified)
    }

    fn set_mode(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&self, _: Timestamp) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let names = self.names()?.into_iter().map(|name| ListedName {
            name: name.into(),
            kind: Some(FileKind::File),
        });
        Ok(Box::new(Names(names.collect::<Vec<_>>().into_iter())))
    }

    fn lists_in_order(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
