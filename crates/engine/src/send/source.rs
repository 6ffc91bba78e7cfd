//! What a sender was asked to send: named files and directories, each with
//! the place it takes beneath the destination's anchor.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_proto::manifest::{EntryId, TreePath};
use longhaul_proto::message::{Failure, FailureKind};

use crate::failure::failure_of;
use crate::queue::lock;
use crate::storage::measuring::sink;
use crate::storage::roots::{OpenRoot, split};
use crate::storage::{Directory, FileKind};

/// One source.
pub struct Source {
    /// The directory whose contents are sent, or that holds the file.
    pub directory: Arc<dyn Directory>,
    /// What is sent.
    pub what: What,
    /// How messages name it.
    pub shown: String,
}

/// What of a source's directory is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The directory itself, under this name.
    Tree(Box<[u8]>),
    /// What is in the directory (`data/`).
    Contents,
    /// One file in it, by this name, under another.
    File {
        /// Its name in the directory.
        name: Box<[u8]>,
        /// Its name at the destination.
        landing: Box<[u8]>,
    },
    /// Nothing: it is one of several, and could not be opened.
    Missing {
        /// The name that it would have at the destination.
        name: Box<[u8]>,
        /// Why, naming it.
        failure: Failure,
    },
}

impl Source {
    /// One of several that cannot be opened: a failure of its own.
    fn missing(path: &[u8], failure: Failure) -> Source {
        let (_, name) = split(trim_slashes(path));
        Source {
            directory: sink(),
            what: What::Missing {
                name: name.into(),
                failure,
            },
            shown: String::from_utf8_lossy(path).into_owned(),
        }
    }

    /// Where in its directory lies what a path beneath the anchor names: that
    /// directory itself, or a path in it; none where it is not of this source.
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

/// What is asked for as a source.
pub trait Asked {
    /// Why it cannot be opened.
    type Error;

    /// Opens it.
    ///
    /// # Errors
    ///
    /// Where it cannot be.
    fn open(&self) -> Result<Source, Self::Error>;

    /// Its path, and the failure that an error is where others go on; none where
    /// nothing can go on.
    fn failure(&self, error: &Self::Error) -> Option<(&[u8], Failure)>;
}

/// All sources of a transfer.
pub struct Sources {
    list: Vec<Source>,
    /// Number of the first entry of each source, as the walk gets to it.
    first: Mutex<Vec<EntryId>>,
}

impl Sources {
    /// In this order.
    pub fn new(list: Vec<Source>) -> Sources {
        Sources {
            list,
            first: Mutex::new(Vec::new()),
        }
    }

    /// Opens all that is asked for. Of several the ones that cannot be opened are
    /// failures of their own, and the others go on.
    ///
    /// # Errors
    ///
    /// Where none can be opened all errors; where nothing can go on that one.
    pub fn open<A: Asked>(asked: &[A]) -> Result<Sources, Vec<A::Error>> {
        let (mut list, mut errors) = (Vec::new(), Vec::new());
        for asked in asked {
            match asked.open() {
                Ok(source) => list.push(source),
                Err(error) => match asked.failure(&error) {
                    None => return Err(vec![error]),
                    Some((path, failure)) => {
                        list.push(Source::missing(path, failure));
                        errors.push(error);
                    }
                },
            }
        }
        match errors.len() == list.len() && !errors.is_empty() {
            true => Err(errors),
            false => Ok(Sources::new(list)),
        }
    }

    /// The sources.
    pub fn list(&self) -> &[Source] {
        &self.list
    }

    /// Names that appear directly in the anchor; none where a source fills it
    /// with whatever it contains.
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

    /// The walk begins with the next source.
    pub(super) fn begin(&self, first: EntryId) {
        lock(&self.first).push(first);
    }

    /// Where an entry lies: its source, and its path beneath that source's
    /// directory; no path for the directory itself.
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

    /// Opens the directory that holds an entry, and gives the entry's name.
    ///
    /// # Errors
    ///
    /// As `openat2`; `NotFound` for an entry of no source.
    pub(super) fn open_parent(&self, id: EntryId, path: &TreePath) -> io::Result<Located> {
        let (source, inner) = self.locate(id, path).ok_or(io::ErrorKind::NotFound)?;
        let inner = inner.ok_or(io::ErrorKind::IsADirectory)?;
        let mut directory = Arc::clone(&source.directory);
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

/// Why a source cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error("{}", cannot_open(path, error))]
    Open {
        /// The source.
        path: String,
        /// Why.
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
        /// The source.
        path: String,
        /// Why.
        error: longhaul_proto::manifest::PathError,
    },
}

impl SourceError {
    /// The failure that it is where other sources go on; none where the command
    /// makes no sense.
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

/// Opens a source beneath `open`: a trailing `/` (or `.`) means what is in it.
/// With `follows` links below it, and on the way to it, are what they lead to.
///
/// # Errors
///
/// [`SourceError`].
pub fn open_source(
    open: &dyn OpenRoot,
    path: &[u8],
    recursive: bool,
    follows: bool,
) -> Result<Source, SourceError> {
    use std::os::unix::ffi::OsStrExt;
    let shown = String::from_utf8_lossy(path).into_owned();
    let failed = |error| SourceError::Open {
        path: shown.clone(),
        error,
    };
    let trimmed = trim_slashes(path);
    let (parent, name) = split(trimmed);
    let contents = trimmed.len() < path.len() || matches!(name, b"." | b".." | b"");
    let as_path = |bytes: &[u8]| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned();
    let open_directory = |path: &[u8]| match follows {
        true => open.open_following(&as_path(path)),
        false => open.open_root(&as_path(path)),
    };
    if contents {
        let directory = open_directory(path).map_err(failed)?;
        return directory_source(directory, What::Contents, shown, recursive);
    }
    let above = open_directory(parent).map_err(failed)?;
    let status = above.status_of(name).map_err(failed)?;
    TreePath::new(name).map_err(|error| SourceError::Name {
        path: shown.clone(),
        error,
    })?;
    match status.kind {
        FileKind::File => {
            let what = What::File {
                name: name.into(),
                landing: name.into(),
            };
            Ok(Source {
                directory: above,
                what,
                shown,
            })
        }
        FileKind::Directory | FileKind::Symlink => match open_directory(path) {
            Ok(directory) => directory_source(directory, What::Tree(name.into()), shown, recursive),
            Err(error) if status.kind == FileKind::Symlink => {
                linked_file(open, path, name, shown, error)
            }
            Err(error) => Err(failed(error)),
        },
        FileKind::Special => Err(SourceError::Special(shown)),
    }
}

fn directory_source(
    directory: Arc<dyn Directory>,
    what: What,
    shown: String,
    recursive: bool,
) -> Result<Source, SourceError> {
    if !recursive {
        return Err(SourceError::Directory(shown));
    }
    Ok(Source {
        directory,
        what,
        shown,
    })
}

/// Links that lead to links, at most: as many as the kernel follows.
const MAXIMUM_LINKS: usize = 40;

/// A named source that is a link to a file, over others or not: the file is sent
/// under the link's name.
fn linked_file(
    open: &dyn OpenRoot,
    path: &[u8],
    name: &[u8],
    shown: String,
    error: io::Error,
) -> Result<Source, SourceError> {
    use std::os::unix::ffi::OsStrExt;
    let failed = |error| SourceError::Open {
        path: shown.clone(),
        error,
    };
    if error.kind() != io::ErrorKind::NotADirectory {
        return Err(failed(error));
    }
    let as_path = |bytes: &[u8]| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned();
    let mut whole = path.to_vec();
    for _ in 0..MAXIMUM_LINKS {
        let (parent, inner) = split(&whole);
        let above = open.open_root(&as_path(parent)).map_err(failed)?;
        match above.status_of(inner).map_err(failed)?.kind {
            FileKind::File => {
                let what = What::File {
                    name: inner.into(),
                    landing: name.into(),
                };
                return Ok(Source {
                    directory: above,
                    what,
                    shown,
                });
            }
            FileKind::Symlink => {
                let target = above.read_symlink(inner).map_err(failed)?;
                whole = match target.starts_with(b"/") {
                    true => target.to_vec(),
                    false => [parent, b"/", &target].concat(),
                };
            }
            _ => return Err(SourceError::Special(shown)),
        }
    }
    Err(failed(rustix::io::Errno::LOOP.into()))
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    &path[..end]
}
