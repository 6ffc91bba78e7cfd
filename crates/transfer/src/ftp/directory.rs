//! A directory at a server.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use longhaul_gridftp::Error;
use longhaul_gridftp::protocol::facts::{Entry, EntryKind};
use longhaul_gridftp::session::{Listed, Session, join};
use longhaul_proto::manifest::{MAXIMUM_NAME_BYTES, Timestamp};
use longhaul_storage::journal::names::parse;
use longhaul_storage::{
    Creation, DataMode, Directory, FileKind, ListedName, NameList, Status, StoredFile,
};
use longhaul_system::queue::lock;

use super::file::RemoteFile;
use super::records::Names;
use super::sessions::Sessions;
use super::small_files::{SMALL_FILE_BYTES, SmallFiles};
use super::stored_facts::{TIME_UNIT, inode_of, set_modified};
use super::uploads::Uploads;
use super::writing::{Writing, unsupported};

/// Maximum number of entries of a directory. Their listing is kept in memory, about 200 bytes for
/// each, and its texts.
const MAXIMUM_ENTRIES: usize = 1_000_000;

/// Maximum size in bytes of all names and link targets of a directory.
const MAXIMUM_TEXT_BYTES: usize = 256 << 20;

/// Permission bits of files whose server tells none.
const FILE_MODE: u32 = 0o644;

/// Permission bits of directories whose server tells none.
const DIRECTORY_MODE: u32 = 0o755;

/// Entries of a directory by name. `None` stands for a line of the listing that is no entry.
pub type Entries = BTreeMap<Vec<u8>, Option<Entry>>;

/// A directory at a server.
pub struct RemoteDirectory {
    sessions: Arc<Sessions>,
    path: Vec<u8>,
    /// If true, links are followed.
    follows: bool,
    /// Directories to which the links on the way here lead.
    entered: Vec<PathBuf>,
    status: Mutex<Status>,
    listing: Mutex<Option<Arc<Entries>>>,
    small_files: Arc<SmallFiles>,
    /// State of a destination. `None` for a source.
    writing: Option<Writing>,
}

impl RemoteDirectory {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// `NotFound` or `NotADirectory`, or if the session fails.
    pub fn open(
        sessions: Arc<Sessions>,
        path: &[u8],
        follows: bool,
    ) -> io::Result<Arc<dyn Directory>> {
        let entry = sessions.with(|session| session.status(path))?;
        let entry = entry.ok_or(io::ErrorKind::NotFound)?;
        if entry.kind != EntryKind::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let how = (follows, Vec::new());
        Ok(Arc::new(RemoteDirectory::of(sessions, path, how, &entry)))
    }

    /// Opens a directory of a destination.
    ///
    /// # Errors
    ///
    /// As [`RemoteDirectory::open`].
    pub fn open_writable(
        sessions: Arc<Sessions>,
        path: &[u8],
        (uploads, records): (Arc<Uploads>, Arc<dyn Directory>),
    ) -> io::Result<Arc<dyn Directory>> {
        let entry = sessions.with(|session| session.status(path))?;
        let entry = entry.ok_or(io::ErrorKind::NotFound)?;
        if entry.kind != EntryKind::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let writing = Some(Writing::new(uploads, records, path));
        let how = (false, Vec::new());
        let opened = RemoteDirectory::of(sessions, path, how, &entry);
        Ok(Arc::new(RemoteDirectory { writing, ..opened }))
    }

    fn of(
        sessions: Arc<Sessions>,
        path: &[u8],
        (follows, entered): (bool, Vec<PathBuf>),
        entry: &Entry,
    ) -> RemoteDirectory {
        RemoteDirectory {
            small_files: Arc::new(SmallFiles::new(Arc::clone(&sessions), path)),
            status: Mutex::new(status_of(entry, path, sessions.started())),
            sessions,
            path: path.to_vec(),
            follows,
            entered,
            listing: Mutex::new(None),
            writing: None,
        }
    }

    /// Returns the state of a destination.
    fn writing(&self) -> io::Result<&Writing> {
        let writing = self.writing.as_ref();
        writing.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Gives files or directories other names. Returns their results in order. `None` if one of
    /// the directories is no destination.
    fn change_names(
        &self,
        target: &RemoteDirectory,
        names: &[(&[u8], &[u8])],
    ) -> Option<Vec<io::Result<()>>> {
        let (writing, other) = (self.writing.as_ref()?, target.writing.as_ref()?);
        let results = writing.change_names(other, names).into_iter().zip(names);
        let results = results.map(|(result, (from, to))| {
            let entry = match result? {
                Some(entry) => entry,
                None => {
                    let mut entry = self.entry(from)?;
                    self.take_entry(from);
                    entry.name = to.to_vec();
                    entry
                }
            };
            target.put_entry(entry);
            Ok(())
        });
        Some(results.collect())
    }

    /// Adds an entry to the listing, if that is known.
    fn put_entry(&self, entry: Entry) {
        if let Some(listing) = &mut *lock(&self.listing) {
            Arc::make_mut(listing).insert(entry.name.clone(), Some(entry));
        }
    }

    /// Removes an entry from the listing, if that is known.
    fn take_entry(&self, name: &[u8]) {
        if let Some(listing) = &mut *lock(&self.listing) {
            Arc::make_mut(listing).remove(name);
        }
    }

    /// Returns the entry of a name, from the listing if that is known.
    fn entry(&self, name: &[u8]) -> io::Result<Entry> {
        if self.writing.as_ref().is_some_and(Writing::should_list) {
            self.entries()?;
        }
        let listing = lock(&self.listing).clone();
        let found = match listing {
            Some(listing) => match listing.get(name) {
                Some(None) => {
                    let text = "the server lists no valid entry here, or a name with a line break";
                    return Err(io::Error::other(text));
                }
                found => found.cloned().flatten(),
            },
            None => {
                let path = join(&self.path, name);
                self.sessions.with(|session| session.status(&path))?
            }
        };
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the listing. Later calls send no command to the server.
    fn entries(&self) -> io::Result<Arc<Entries>> {
        if let Some(listing) = &*lock(&self.listing) {
            return Ok(Arc::clone(listing));
        }
        let follows = self.follows;
        let read = self
            .sessions
            .with(|session| list(session, &self.path, follows))?;
        let entries = Arc::new(read);
        *lock(&self.listing) = Some(Arc::clone(&entries));
        Ok(entries)
    }

    /// Returns the kind of an entry for this way of reading links.
    fn kind_of(&self, entry: &Entry) -> FileKind {
        match entry.kind {
            EntryKind::Link => FileKind::Symlink,
            _ if entry.link_target.is_some() && !self.follows => FileKind::Symlink,
            EntryKind::File => FileKind::File,
            EntryKind::Directory => FileKind::Directory,
            EntryKind::Other => FileKind::Special,
        }
    }
}

/// Lists a directory completely.
fn list(session: &mut Session, path: &[u8], follows: bool) -> Result<Entries, Error> {
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    session.list(path, &mut |listed| {
        bytes += text_bytes(&listed);
        if entries.len() + unreadable.len() == MAXIMUM_ENTRIES || bytes > MAXIMUM_TEXT_BYTES {
            let text = format!(
                "a directory has more than {MAXIMUM_ENTRIES} entries, or more than \
                 {MAXIMUM_TEXT_BYTES} bytes of names"
            );
            return Err(Error::Unexpected(text));
        }
        match listed {
            Listed::Entry(entry) => entries.push(entry),
            Listed::Unreadable(text) => unreadable.push(text),
        }
        Ok(())
    })?;
    if follows {
        for entry in entries
            .iter_mut()
            .filter(|entry| entry.kind == EntryKind::Link)
        {
            let whole = join(path, &entry.name);
            if let Some(target) = session.status(&whole)? {
                *entry = target;
            }
        }
    }
    session.complete(path, &mut entries)?;
    let named = entries
        .into_iter()
        .map(|entry| (entry.name.clone(), Some(entry)));
    let mut named: Entries = named.collect();
    for text in unreadable {
        // Each becomes a failure of the copy, under a name that no file has.
        let mut name = text.replace('/', "?").into_bytes();
        name.truncate(MAXIMUM_NAME_BYTES / 2);
        while named.contains_key(&name) && name.len() < MAXIMUM_NAME_BYTES {
            name.push(b'?');
        }
        named.entry(name).or_insert(None);
    }
    Ok(named)
}

/// Returns the size in bytes of the texts of a line of a listing.
fn text_bytes(listed: &Listed) -> usize {
    match listed {
        Listed::Entry(entry) => entry.name.len() + entry.link_target.as_ref().map_or(0, Vec::len),
        Listed::Unreadable(text) => text.len(),
    }
}

/// Returns the status of an entry at a path. Servers tell no inode: a hash of the path
/// distinguishes directories. `otherwise` is the time if the server tells none.
fn status_of(entry: &Entry, path: &[u8], otherwise: Timestamp) -> Status {
    let (kind, mode) = match entry.kind {
        EntryKind::File => (FileKind::File, FILE_MODE),
        EntryKind::Directory => (FileKind::Directory, DIRECTORY_MODE),
        EntryKind::Link => (FileKind::Symlink, 0o777),
        EntryKind::Other => (FileKind::Special, FILE_MODE),
    };
    let size = entry.size.unwrap_or_default();
    let modified = entry.modified.map_or(otherwise, |time| Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    });
    Status {
        inode: inode_of(path),
        modified,
        changed: modified,
        ..Status::on_no_disk(kind, entry.mode.unwrap_or(mode), size)
    }
}

/// Returns the path to which a link in a directory leads. Other links in it are not resolved.
fn target_path(directory: &[u8], target: &[u8]) -> PathBuf {
    let mut path = PathBuf::from(OsStr::from_bytes(directory));
    for component in Path::new(OsStr::from_bytes(target)).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            other => path.push(other),
        }
    }
    path
}

impl Directory for RemoteDirectory {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        let entry = self.entry(name)?;
        if self.kind_of(&entry) != FileKind::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let path = join(&self.path, name);
        let mut entered = self.entered.clone();
        if let Some(target) = &entry.link_target {
            let target = target_path(&self.path, target);
            if Path::new(OsStr::from_bytes(&path)).starts_with(&target) || entered.contains(&target)
            {
                let text = "the link leads to a directory that contains it";
                return Err(io::Error::other(text));
            }
            entered.push(target);
        }
        let sessions = Arc::clone(&self.sessions);
        let how = (self.follows, entered);
        let mut opened = RemoteDirectory::of(sessions, &path, how, &entry);
        if let Some(writing) = &self.writing {
            if writing.take_made(name) {
                opened.listing = Mutex::new(Some(Arc::default()));
            }
            opened.writing = Some(writing.below(&path));
        }
        Ok(Arc::new(opened))
    }

    fn open_file(&self, name: &[u8], _: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        if self.writing.is_some() && parse(name).is_some() {
            return self.writing()?.stage(name, Creation::Existing);
        }
        let entry = self.entry(name)?;
        let Some(size) = entry
            .size
            .filter(|_| self.kind_of(&entry) == FileKind::File)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let path = join(&self.path, name);
        let status = status_of(&entry, &path, self.sessions.started());
        let mut file = if size <= SMALL_FILE_BYTES {
            let listing = lock(&self.listing).clone();
            let small_files = Arc::clone(&self.small_files);
            RemoteFile::small(small_files, listing, name, status)
        } else {
            RemoteFile::large(Arc::clone(&self.sessions), path.clone(), status)
        };
        if let Some(writing) = &self.writing {
            file.make_changeable(Arc::clone(&writing.uploads), path);
        }
        Ok(Arc::new(file))
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        let entry = self.entry(name)?;
        match entry.link_target {
            Some(target) if entry.kind == EntryKind::Link => Ok(target.into()),
            _ => Err(io::Error::other(
                "the server does not tell the text of a link; --copy-links copies its target",
            )),
        }
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        let staged = self.writing.as_ref();
        if let Some(status) = staged.and_then(|writing| writing.status_of(name)) {
            return status;
        }
        let entry = self.entry(name)?;
        let path = join(&self.path, name);
        let mut status = status_of(&entry, &path, self.sessions.started());
        status.kind = self.kind_of(&entry);
        if status.kind == FileKind::File && entry.size.is_none() {
            // It vanished after the listing, or its size is unknown.
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(status)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(*lock(&self.status))
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let entries = self.entries()?;
        let mut names: Vec<ListedName> = entries
            .iter()
            .filter(|(name, _)| self.writing.is_none() || parse(name).is_none())
            .map(|(name, entry)| ListedName {
                name: name.clone().into(),
                kind: entry.as_ref().map(|entry| self.kind_of(entry)),
            })
            .collect();
        if let Some(writing) = &self.writing {
            names.extend(writing.staging_names()?.into_iter().map(|name| ListedName {
                name: name.into(),
                kind: Some(FileKind::File),
            }));
            names.sort_by(|one, other| one.name.cmp(&other.name));
        }
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

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        _: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        self.writing()?.stage(name, creation)
    }

    fn make_directory(&self, name: &[u8], _: u32) -> io::Result<()> {
        let made = self.writing()?.make(name)?;
        self.put_entry(made);
        Ok(())
    }

    fn make_symlink(&self, _: &[u8], _: &[u8]) -> io::Result<()> {
        Err(unsupported(
            "FTP cannot make symbolic links; --copy-links copies their targets",
        ))
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        match target.as_any().downcast_ref::<RemoteDirectory>() {
            Some(target) => {
                let results = self.change_names(target, &[(from, to)]);
                let unsupported = || vec![Err(io::ErrorKind::Unsupported.into())];
                results.unwrap_or_else(unsupported).into_iter().collect()
            }
            None => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn rename_together(&self, names: &[(&[u8], &[u8])]) -> Option<Vec<io::Result<()>>> {
        self.change_names(self, names)
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.writing()?.remove(name)?;
        self.take_entry(name);
        Ok(())
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.writing()?.remove_empty(name)?;
        self.take_entry(name);
        Ok(())
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        set_modified(&self.sessions, &join(&self.path, name), modified).map(drop)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.writing()?.uploads.set_mode(&self.path, mode)?;
        lock(&self.status).mode = mode;
        Ok(())
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        let stored = set_modified(&self.sessions, &self.path, modified)?;
        let mut status = lock(&self.status);
        status.modified = stored;
        status.changed = stored;
        Ok(())
    }

    fn records(&self) -> Option<Arc<dyn Directory>> {
        let writing = self.writing.as_ref()?;
        Some(Arc::clone(&writing.records) as Arc<dyn Directory>)
    }

    fn time_unit(&self) -> Option<u32> {
        Some(TIME_UNIT)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_gridftp::session::Options;

    use super::super::test_server::{Answer, TestServer};
    use super::*;

    /// Opens a path of a server in whose directories each name is a link to a directory.
    fn open(link: &'static str, names: &[&str]) -> io::Result<Arc<dyn Directory>> {
        let server = TestServer::start(" MLST Type*;\r\n", move |_, command| {
            if command.starts_with("MLST") {
                Answer::Lines(link)
            } else {
                Answer::Usual
            }
        });
        let sessions = Sessions::new(server.location(), Options::default());
        let root = RemoteDirectory::open(Arc::new(sessions), b"/data/run10", true)?;
        let mut names = names.iter();
        names.try_fold(root, |directory, name| {
            directory.open_directory(name.as_bytes())
        })
    }

    #[test]
    fn a_link_to_a_directory_above_is_refused() {
        let near = "250-\r\n type=dir;UNIX.slink=/data/run1; x\r\n250 End\r\n";
        assert!(open(near, &["a"]).is_ok());
        for above in [
            "250-\r\n type=dir;UNIX.slink=/data; x\r\n250 End\r\n",
            "250-\r\n type=dir;UNIX.slink=.././; x\r\n250 End\r\n",
        ] {
            assert!(open(above, &["a"]).is_err(), "{above}");
        }
        // The second link leads to the directory that the first one leads to.
        assert!(open(near, &["a", "b"]).is_err());
    }
}
