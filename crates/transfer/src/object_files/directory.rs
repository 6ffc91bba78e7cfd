//! A directory at a server.

use std::any::Any;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex};

use longhaul_storage::refusing::refuse_changes;
use longhaul_storage::{DataMode, Directory, FileKind, ListedName, NameList, Status, StoredFile};
use longhaul_stores::Error;
use longhaul_stores::store::{Found, Listed};
use longhaul_system::queue::lock;

use super::file::{ObjectFile, status_of};
use super::known::Known;

/// Maximum number of entries of a directory. Their names are kept in memory.
const MAXIMUM_ENTRIES: usize = 1_000_000;

/// Permission bits of directories.
const DIRECTORY_MODE: u32 = 0o755;

/// Maximum length in bytes of the text that stands for a name that no file can have.
const MAXIMUM_TEXT_BYTES: usize = 120;

/// Entries of a directory by name.
type Entries = BTreeMap<Vec<u8>, Kind>;

/// Kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Directory,
    /// The server has an object and a directory of this name.
    Both,
    /// The name is not one that a file can have.
    Unreadable,
}

/// A directory at a server.
pub struct ObjectDirectory {
    known: Arc<Known>,
    /// Path without a slash at its end.
    path: Vec<u8>,
    listing: Mutex<Option<Arc<Entries>>>,
}

impl ObjectDirectory {
    /// Returns the directory of a path. Sends no request.
    pub fn new(known: Arc<Known>, path: &[u8]) -> ObjectDirectory {
        let end = path.iter().rposition(|byte| *byte != b'/');
        let path = path[..end.map_or(0, |last| last + 1)].to_vec();
        let listing = Mutex::default();
        ObjectDirectory {
            known,
            path,
            listing,
        }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        [&self.path[..], b"/", name].concat()
    }

    /// Returns the kind of a name in the listing; `None` if it is not listed, or if the directory
    /// was not listed yet.
    fn listed(&self, name: &[u8]) -> io::Result<Option<Kind>> {
        let listing = lock(&self.listing);
        let kind = listing
            .as_ref()
            .and_then(|listing| listing.get(name).copied());
        match kind {
            Some(Kind::Both) => Err(io::Error::other(
                "the server has both a file and a directory of this name",
            )),
            Some(Kind::Unreadable) => Err(io::Error::other(
                "the server has an entry here whose name no file can have",
            )),
            kind => Ok(kind),
        }
    }

    /// Returns the listing. Later calls send no request.
    fn entries(&self) -> io::Result<Arc<Entries>> {
        if let Some(listing) = &*lock(&self.listing) {
            return Ok(Arc::clone(listing));
        }
        let mut entries = Entries::new();
        self.known.store().list(&self.path, &mut |listed| {
            if entries.len() >= MAXIMUM_ENTRIES {
                let text = format!("a directory has more than {MAXIMUM_ENTRIES} entries");
                return Err(Error::Unexpected(text));
            }
            add(&mut entries, listed);
            Ok(())
        })?;
        let entries = Arc::new(entries);
        *lock(&self.listing) = Some(Arc::clone(&entries));
        Ok(entries)
    }

    fn status_of_directory(&self, path: &[u8]) -> Status {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let started = self.known.started;
        Status {
            inode: hasher.finish(),
            modified: started,
            changed: started,
            ..Status::on_no_disk(FileKind::Directory, DIRECTORY_MODE, 0)
        }
    }

    /// Returns the status of a name. `measures` fetches an object of unknown size to find it.
    fn look(&self, name: &[u8], measures: bool) -> io::Result<Status> {
        let path = self.path_of(name);
        if self.listed(name)? == Some(Kind::Directory) {
            return Ok(self.status_of_directory(&path));
        }
        match self.known.find(&path, measures)? {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Found::Directory) => Ok(self.status_of_directory(&path)),
            Some(Found::Object(object)) => Ok(status_of(&object, &path, self.known.started)),
        }
    }
}

/// Adds an entry. A name that no file can have becomes a failure of the copy.
fn add(entries: &mut Entries, listed: Listed) {
    let (name, kind) = match listed {
        Listed::Object(name) => (name, Kind::Object),
        Listed::Directory(name) => (name, Kind::Directory),
        Listed::Unreadable(text) => {
            let mut name = text.replace(['/', '\0'], "?").into_bytes();
            name.truncate(MAXIMUM_TEXT_BYTES);
            if matches!(&name[..], b"" | b"." | b"..") {
                name.push(b'?');
            }
            while entries.contains_key(&name) && name.len() < 2 * MAXIMUM_TEXT_BYTES {
                name.push(b'?');
            }
            (name, Kind::Unreadable)
        }
    };
    let entry = entries.entry(name).or_insert(kind);
    if *entry != kind {
        *entry = Kind::Both;
    }
}

/// Names in byte order.
struct Names(std::vec::IntoIter<ListedName>);

impl NameList for Names {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        Ok(self.0.next())
    }
}

impl Directory for ObjectDirectory {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        let path = self.path_of(name);
        let is_directory = match self.listed(name)? {
            Some(kind) => kind == Kind::Directory,
            None => match self.known.find(&path, false)? {
                Some(found) => found == Found::Directory,
                None => return Err(io::ErrorKind::NotFound.into()),
            },
        };
        if !is_directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Arc::new(ObjectDirectory::new(
            Arc::clone(&self.known),
            &path,
        )))
    }

    fn open_file(&self, name: &[u8], _: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        self.listed(name)?;
        let file = ObjectFile::open(&self.known, self.path_of(name))?;
        Ok(Arc::new(file))
    }

    fn read_symlink(&self, _: &[u8]) -> io::Result<Box<[u8]>> {
        Err(io::ErrorKind::InvalidInput.into())
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.look(name, false)
    }

    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.look(name, true)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(self.status_of_directory(&self.path))
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let entries = self.entries()?;
        let names: Vec<ListedName> = entries
            .iter()
            .map(|(name, kind)| ListedName {
                name: name.clone().into(),
                kind: match kind {
                    Kind::Object => Some(FileKind::File),
                    Kind::Directory => Some(FileKind::Directory),
                    Kind::Both | Kind::Unreadable => None,
                },
            })
            .collect();
        Ok(Box::new(Names(names.into_iter())))
    }

    fn lists_in_order(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    refuse_changes!(io::ErrorKind::Unsupported);
}
