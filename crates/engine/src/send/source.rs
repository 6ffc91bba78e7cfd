//! Sources of a sender: named files and directories, each with its path beneath the destination's
//! anchor.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_proto::manifest::{EntryId, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::failure::failure_of;
use longhaul_storage::measuring::sink;
use longhaul_storage::nested::place_of;
use longhaul_storage::roots::{OpenRoot, split};
use longhaul_storage::{Directory, FileKind};
use longhaul_system::descriptors;
use longhaul_system::queue::lock;

use super::list::Listed;

/// Divisor for the share of open files that may be source directories, and maximum number of these.
const DIRECTORIES_PART: usize = 32;
const OPEN_DIRECTORIES: usize = 1024;

/// A file or directory to send.
pub struct Source {
    /// The directory whose contents are sent, or that holds the file.
    pub directory: SourceDirectory,
    /// Part of the directory that is sent.
    pub what: What,
    /// Name in messages.
    pub shown: String,
    /// The link that was named, if it leads to this file. If sources are removed, the link is
    /// removed and the file stays.
    pub(super) link: Option<NamedLink>,
    /// The paths of a list to which the copy of this source is limited.
    pub(super) listed: Option<Arc<Listed>>,
}

/// A link that was named as a source and leads to a file.
pub(super) struct NamedLink {
    /// The directory that holds the link.
    pub directory: SourceDirectory,
    /// Name of the link in that directory.
    pub name: Box<[u8]>,
    /// Path that the link holds.
    pub target: Box<[u8]>,
}

/// A source's directory. It is held open or, if too many are, opened again by its name when needed.
pub struct SourceDirectory {
    held: Option<Arc<dyn Directory>>,
    named: Option<Named>,
}

/// Name by which a directory is opened again.
struct Named {
    root: Arc<dyn OpenRoot>,
    path: Box<[u8]>,
    follows: bool,
    /// Device and inode of the directory, to detect another one that replaced it.
    place: (u64, u64),
}

impl Named {
    fn open(&self) -> io::Result<Arc<dyn Directory>> {
        let directory = open_named(&*self.root, &self.path, self.follows)?;
        if place_of(&*directory)? == self.place {
            Ok(directory)
        } else {
            // Another directory took the place of the one that was listed.
            Err(rustix::io::Errno::NOENT.into())
        }
    }

    /// True if both names lead to the same directory.
    fn is_as(&self, other: &Named) -> bool {
        (&self.path, self.follows) == (&other.path, other.follows)
            && Arc::ptr_eq(&self.root, &other.root)
            && self.place == other.place
    }
}

impl From<Arc<dyn Directory>> for SourceDirectory {
    fn from(directory: Arc<dyn Directory>) -> SourceDirectory {
        SourceDirectory {
            held: Some(directory),
            named: None,
        }
    }
}

impl SourceDirectory {
    /// Returns the open directory.
    ///
    /// # Errors
    ///
    /// If it is not held open: errors of opening it, and an error if another directory has replaced
    /// it.
    pub fn open(&self) -> io::Result<Arc<dyn Directory>> {
        match (&self.held, &self.named) {
            (Some(held), _) => Ok(Arc::clone(held)),
            (None, Some(named)) => named.open(),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Shares the handle of the previous source if it has the same directory; otherwise true if
    /// this source holds a handle of its own.
    fn holds_own(&mut self, before: Option<&SourceDirectory>) -> bool {
        let same = before.filter(|before| match (&before.named, &self.named) {
            (Some(known), Some(named)) => known.is_as(named),
            _ => false,
        });
        match same {
            Some(before) => {
                self.held.clone_from(&before.held);
                false
            }
            None => self.named.is_some(),
        }
    }
}

pub(super) fn open_named(
    root: &dyn OpenRoot,
    path: &[u8],
    follows: bool,
) -> io::Result<Arc<dyn Directory>> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    if follows {
        root.open_following(path)
    } else {
        root.open_root(path)
    }
}

/// Part of a source's directory that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The directory itself, under this name.
    Tree(Box<[u8]>),
    /// The contents of the directory (`data/`).
    Contents,
    /// One file or link in it, possibly under another name.
    File {
        /// Its name in the directory.
        name: Box<[u8]>,
        /// Its name at the destination.
        landing: Box<[u8]>,
    },
    /// No part: it is one of several sources and could not be opened.
    Missing {
        /// Name that it would have at the destination.
        name: Box<[u8]>,
        /// Reason, with the name of the source.
        failure: Failure,
    },
}

impl Source {
    /// Creates a source from a directory.
    pub fn new(directory: SourceDirectory, what: What, shown: String) -> Source {
        Source {
            directory,
            what,
            shown,
            link: None,
            listed: None,
        }
    }

    /// Creates a source that could not be opened, which is reported as a failure of its own.
    pub(super) fn missing(path: &[u8], failure: Failure) -> Source {
        let (_, name) = split(trim_slashes(path));
        Source {
            directory: sink().into(),
            what: What::Missing {
                name: name.into(),
                failure,
            },
            shown: String::from_utf8_lossy(path).into_owned(),
            link: None,
            listed: None,
        }
    }

    /// Opens the directory at a path of the copy, following all links that this end may read;
    /// `None` if the source has no name.
    pub(super) fn open_following(
        &self,
        path: Option<&TreePath>,
    ) -> io::Result<Option<Arc<dyn Directory>>> {
        let Some(named) = &self.directory.named else {
            return Ok(None);
        };
        let inner = path.and_then(|path| self.inner_path(path)).flatten();
        let inner = inner.as_ref().map_or(&b""[..], TreePath::as_bytes);
        let whole = [&*named.path, b"/", inner].concat();
        let names = whole.split(|byte| *byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
        let begin: &[u8] = match named.path.first() {
            Some(b'/') => b"/",
            _ if names.is_empty() => b".",
            _ => b"",
        };
        let whole = [begin, &names.join(&b'/')].concat();
        open_named(&*named.root, &whole, true).map(Some)
    }

    /// True if the source itself is copied, not only listed paths beneath it.
    pub(super) fn takes_itself(&self) -> bool {
        self.listed.as_ref().is_none_or(|listed| listed.is_itself())
    }

    /// Returns its name in the anchor; `None` if it fills the anchor.
    pub(super) fn landing(&self) -> Option<&[u8]> {
        match &self.what {
            What::Tree(name) | What::File { landing: name, .. } | What::Missing { name, .. } => {
                Some(name)
            }
            What::Contents => None,
        }
    }

    /// Returns the path in the source's directory for a path beneath the anchor; `Some(None)` for
    /// that directory itself, `None` if the path is not in this source.
    pub(super) fn inner_path(&self, path: &TreePath) -> Option<Option<TreePath>> {
        match &self.what {
            What::Contents => Some(Some(path.clone())),
            What::File { name, landing } => {
                (path.as_bytes() == &**landing).then(|| TreePath::new(name).ok())
            }
            What::Missing { .. } => None,
            What::Tree(name) => {
                let rest = path.as_bytes().strip_prefix(&**name)?;
                match rest.strip_prefix(b"/") {
                    Some(inner) => TreePath::new(inner).ok().map(Some),
                    None => rest.is_empty().then_some(None),
                }
            }
        }
    }
}

/// A request to open a source.
pub trait Asked {
    /// Reason why it cannot be opened.
    type Error;

    /// Opens the source.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be opened.
    fn open(&self) -> Result<Source, Self::Error>;

    /// Returns the path and the failure to report if other sources continue; `None` if no source
    /// can continue.
    fn failure(&self, error: &Self::Error) -> Option<(&[u8], Failure)>;
}

/// All sources of a transfer.
pub struct Sources {
    list: Vec<Source>,
    /// Number of the first entry of each source that the walk has reached.
    first: Mutex<Vec<EntryId>>,
}

impl Sources {
    /// Creates a list of sources in this order.
    pub fn new(list: Vec<Source>) -> Sources {
        Sources {
            list,
            first: Mutex::new(Vec::new()),
        }
    }

    /// Opens all requested sources. If some of several cannot be opened, each is reported as a
    /// failure, and the others continue.
    ///
    /// # Errors
    ///
    /// All errors if no source can be opened; a single error if it prevents all others from
    /// continuing.
    pub fn open<A: Asked>(asked: &[A]) -> Result<Sources, Vec<A::Error>> {
        let most = descriptors::share(DIRECTORIES_PART, OPEN_DIRECTORIES);
        Sources::open_holding(asked, most)
    }

    /// Opens sources like [`Sources::open`], with at most this many directories open.
    fn open_holding<A: Asked>(asked: &[A], most: usize) -> Result<Sources, Vec<A::Error>> {
        let (mut list, mut errors) = (Vec::<Source>::new(), Vec::new());
        let mut held = 0;
        for asked in asked {
            match asked.open() {
                Ok(mut source) => {
                    let before = list.last().map(|before| &before.directory);
                    if source.directory.holds_own(before) {
                        if held < most {
                            held += 1;
                        } else {
                            source.directory.held = None;
                        }
                    }
                    list.push(source);
                }
                Err(error) => match asked.failure(&error) {
                    None => return Err(vec![error]),
                    Some((path, failure)) => {
                        list.push(Source::missing(path, failure));
                        errors.push(error);
                    }
                },
            }
        }
        if errors.len() == list.len() && !errors.is_empty() {
            Err(errors)
        } else {
            Ok(Sources::new(list))
        }
    }

    /// Returns the sources by value.
    pub(super) fn into_list(self) -> Vec<Source> {
        self.list
    }

    /// Returns the sources.
    pub fn list(&self) -> &[Source] {
        &self.list
    }

    /// Returns the names that appear directly in the anchor; `None` if a source fills it with its
    /// contents.
    pub fn top_names(&self) -> Option<Vec<Vec<u8>>> {
        self.list
            .iter()
            .filter_map(|source| match &source.what {
                What::Tree(name) | What::File { landing: name, .. } => Some(Some(name.to_vec())),
                What::Contents => Some(None),
                What::Missing { .. } => None,
            })
            .collect()
    }

    /// Records the first entry of the next source, when the walk reaches it.
    pub(super) fn begin(&self, first: EntryId) {
        lock(&self.first).push(first);
    }

    /// Returns the source of an entry and the entry's path beneath the source's directory; no path
    /// for the directory itself.
    pub(super) fn locate(
        &self,
        id: EntryId,
        path: &TreePath,
    ) -> Option<(&Source, Option<TreePath>)> {
        let index = lock(&self.first)
            .partition_point(|first| *first <= id)
            .checked_sub(1)?;
        let source = self.list.get(index)?;
        let inner = source.inner_path(path).flatten();
        Some((source, inner))
    }

    /// Returns the link that was named as an entry's source, if it leads to a file.
    pub(super) fn named_link(&self, id: EntryId, path: &TreePath) -> Option<&NamedLink> {
        self.locate(id, path)?.0.link.as_ref()
    }

    /// Opens the directory that holds an entry, and returns the entry's name.
    ///
    /// # Errors
    ///
    /// Errors of `openat2`; `NotFound` for an entry of no source.
    pub(super) fn open_parent(&self, id: EntryId, path: &TreePath) -> io::Result<Located> {
        let (source, inner) = self.locate(id, path).ok_or(io::ErrorKind::NotFound)?;
        let inner = inner.ok_or(io::ErrorKind::IsADirectory)?;
        let mut directory = source.directory.open()?;
        if let Some(parent) = inner.parent() {
            for name in parent.names() {
                directory = directory.open_directory(name)?;
            }
        }
        Ok((directory, inner.name().into()))
    }
}

/// The directory that holds an entry, and the entry's name in it.
pub(super) type Located = (Arc<dyn Directory>, Box<[u8]>);

/// Reasons why a source cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error("{}", cannot_open(path, error))]
    Open {
        /// Path of the source.
        path: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// It is a directory and `-r` was not given.
    #[error("{0} is a directory: give -r to copy directories")]
    Directory(String),
    /// It is a device, socket or FIFO.
    #[error("{0} is neither a file nor a directory: only those and links within trees are copied")]
    Special(String),
    /// Its name cannot be used at the destination.
    #[error("the source {path} has no name that the destination could use: {error}")]
    Name {
        /// Path of the source.
        path: String,
        /// Error of the name.
        error: longhaul_proto::manifest::PathError,
    },
}

impl SourceError {
    /// Returns the failure to report if other sources continue; `None` if the command is invalid.
    pub fn failure(&self) -> Option<Failure> {
        let kind = match self {
            SourceError::Open { path, error } => failure_of("open", path, error).kind,
            SourceError::Directory(_) => return None,
            SourceError::Special(_) => FailureKind::Special,
            SourceError::Name { .. } => FailureKind::Name,
        };
        Some(Failure::new(kind, self.to_string()))
    }
}

fn cannot_open(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("cannot open the source {path}: {error}: check how it is written")
        }
        _ => format!("cannot open the source {path}: {error}"),
    }
}

/// Opens a source beneath `open`. A trailing `/` (or `.`) selects its contents. With `follows`,
/// links below it and on the way to it are followed.
///
/// # Errors
///
/// [`SourceError`].
pub fn open_source(
    open: &Arc<dyn OpenRoot>,
    path: &[u8],
    recursive: bool,
    follows: bool,
) -> Result<Source, SourceError> {
    let shown = String::from_utf8_lossy(path).into_owned();
    let failed = |error| SourceError::Open {
        path: shown.clone(),
        error,
    };
    let trimmed = trim_slashes(path);
    let (parent, name) = split(trimmed);
    let contents = last_name(path).is_none();
    let held = |path: &[u8]| held_directory(open, path, follows);
    let tree = |directory: SourceDirectory, what: What| {
        if recursive {
            Ok(Source::new(directory, what, shown.clone()))
        } else {
            Err(SourceError::Directory(shown.clone()))
        }
    };
    if contents {
        let (_, directory) = held(path).map_err(failed)?;
        return tree(directory, What::Contents);
    }
    let (above, directory) = held(parent).map_err(failed)?;
    let status = above.status_of(name).map_err(failed)?;
    TreePath::new(name).map_err(|error| SourceError::Name {
        path: shown.clone(),
        error,
    })?;
    // With `-r` a link is copied as one, as `cp -r` and `rsync -a` do.
    let is_leaf = match status.kind {
        FileKind::File => true,
        FileKind::Symlink => recursive,
        FileKind::Directory | FileKind::Special => false,
    };
    match status.kind {
        _ if is_leaf => {
            let what = What::File {
                name: name.into(),
                landing: name.into(),
            };
            Ok(Source::new(directory, what, shown))
        }
        FileKind::File | FileKind::Directory | FileKind::Symlink => match held(path) {
            Ok((_, directory)) => tree(directory, What::Tree(name.into())),
            Err(error) if status.kind == FileKind::Symlink => {
                linked_file(open, path, name, shown, error)
            }
            Err(error) => Err(failed(error)),
        },
        FileKind::Special => Err(SourceError::Special(shown)),
    }
}

/// Opens a directory, and returns it with the name by which it is opened again.
fn held_directory(
    root: &Arc<dyn OpenRoot>,
    path: &[u8],
    follows: bool,
) -> io::Result<(Arc<dyn Directory>, SourceDirectory)> {
    let directory = open_named(&**root, path, follows)?;
    let named = Named {
        root: Arc::clone(root),
        path: path.into(),
        follows,
        place: place_of(&*directory)?,
    };
    let held = SourceDirectory {
        held: Some(Arc::clone(&directory)),
        named: Some(named),
    };
    Ok((directory, held))
}

/// Maximum number of links that are followed, as in the kernel.
const MAXIMUM_LINKS: usize = 40;

/// Opens a named source that is a link to a file, directly or over other links. The file is sent
/// under the link's name.
fn linked_file(
    open: &Arc<dyn OpenRoot>,
    path: &[u8],
    name: &[u8],
    shown: String,
    error: io::Error,
) -> Result<Source, SourceError> {
    let failed = |error| SourceError::Open {
        path: shown.clone(),
        error,
    };
    if error.kind() != io::ErrorKind::NotADirectory {
        return Err(failed(error));
    }
    let (above, directory) = held_directory(open, split(path).0, false).map_err(failed)?;
    let link = NamedLink {
        directory: SourceDirectory {
            held: None,
            ..directory
        },
        name: name.into(),
        target: above.read_symlink(name).map_err(failed)?,
    };
    let mut whole = path.to_vec();
    for _ in 0..MAXIMUM_LINKS {
        let (parent, inner) = split(&whole);
        let (above, directory) = held_directory(open, parent, false).map_err(failed)?;
        match above.status_of(inner).map_err(failed)?.kind {
            FileKind::File => {
                let what = What::File {
                    name: inner.into(),
                    landing: name.into(),
                };
                return Ok(Source {
                    directory,
                    what,
                    shown,
                    link: Some(link),
                    listed: None,
                });
            }
            FileKind::Symlink => {
                let target = above.read_symlink(inner).map_err(failed)?;
                // A confined root rejects paths with `.` in them.
                whole = if target.starts_with(b"/") || parent == b"." {
                    target.to_vec()
                } else {
                    [trim_slashes(parent), b"/", &target].concat()
                };
            }
            _ => return Err(SourceError::Special(shown)),
        }
    }
    Err(failed(rustix::io::Errno::LOOP.into()))
}

/// Returns the name that a source has at the destination; `None` if its contents are sent.
pub fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// Removes the slashes at the end of a path.
pub(super) fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use longhaul_storage::roots::Anywhere;

    use super::*;

    struct Path<'a>(&'a Arc<dyn OpenRoot>, std::path::PathBuf);

    impl Asked for Path<'_> {
        type Error = SourceError;

        fn open(&self) -> Result<Source, SourceError> {
            let path = self.1.as_os_str().as_encoded_bytes();
            open_source(self.0, path, true, false)
        }

        fn failure(&self, _: &SourceError) -> Option<(&[u8], Failure)> {
            None
        }
    }

    #[test]
    fn directories_are_held_once_and_reopened_beyond_the_maximum() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a/1", "a/2", "b/3", "c/4"] {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let root: Arc<dyn OpenRoot> = Arc::new(Anywhere);
        let names = ["a/1", "a/2", "b", "c/4", "b/3"];
        let asked = names.map(|name| Path(&root, place.path().join(name)));
        let sources = Sources::open_holding(&asked, 2).ok().unwrap();
        let held = |at: usize| sources.list()[at].directory.held.as_ref();
        assert!(Arc::ptr_eq(held(0).unwrap(), held(1).unwrap()));
        assert!(held(2).is_some() && held(3).is_none() && held(4).is_none());
        let status = |at: usize, name: &[u8]| {
            let directory = sources.list()[at].directory.open()?;
            directory.status_of(name)
        };
        assert_eq!(status(1, b"2").unwrap().size, 3);
        assert_eq!(status(3, b"4").unwrap().size, 3);
        // A directory that replaced the requested one is rejected.
        std::fs::rename(place.path().join("b"), place.path().join("gone")).unwrap();
        std::fs::rename(place.path().join("c"), place.path().join("b")).unwrap();
        assert_eq!(status(2, b"3").unwrap().size, 3);
        assert_eq!(status(4, b"3").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
