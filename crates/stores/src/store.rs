//! Servers of objects as file systems see them.

use std::io;
use std::ops::Range;

use crate::error::Error;
use crate::time::ObjectTime;

/// Value that distinguishes the versions of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// A strong entity tag, with its quotation marks.
    Tag(String),
    /// The time of the last change, as the server wrote it.
    Modified(String),
}

impl Version {
    /// Returns the text for headers.
    pub fn text(&self) -> &str {
        let (Version::Tag(text) | Version::Modified(text)) = self;
        text
    }
}

/// An object, which becomes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Size in bytes. `None` if it is unknown before the data arrive.
    pub size: Option<u64>,
    /// Time of the last change of the data.
    pub modified: Option<ObjectTime>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// The version, or `None` if the server distinguishes none.
    pub version: Option<Version>,
    /// False if the server said that it sends no parts of the object.
    pub has_ranges: bool,
    /// URL to which the server redirected. It must not be shown.
    pub place: Option<String>,
}

/// An entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An object.
    Object(Object),
    /// A directory.
    Directory,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A directory.
    Directory(Vec<u8>),
    /// An object. A listing may say nothing but its name.
    Object(Vec<u8>),
    /// A name that no file can have.
    Unreadable(String),
}

/// Receiver of the data of an object, in order.
pub type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// A server of objects. Paths are absolute, and their names are neither empty nor `.` nor `..`.
pub trait Store: Send + Sync {
    /// Returns the entry at a path, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The server cannot answer.
    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error>;

    /// Calls `tell` for each entry of a directory, in any order.
    ///
    /// # Errors
    ///
    /// The directory cannot be listed completely, or `tell` fails.
    fn list(
        &self,
        path: &[u8],
        tell: &mut dyn FnMut(Listed) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Fetches a part of an object of known size.
    ///
    /// # Errors
    ///
    /// [`Error::NoRanges`], [`Error::Changed`], or the part cannot be fetched completely.
    fn fetch(
        &self,
        path: &[u8],
        object: &Object,
        range: Range<u64>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error>;

    /// Fetches a whole object in one stream. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`], or the object cannot be fetched completely.
    fn fetch_whole(&self, path: &[u8], object: &Object, sink: &mut Sink<'_>) -> Result<u64, Error>;
}

/// Maximum length of a name in bytes.
const MAXIMUM_NAME_BYTES: usize = 255;

/// Returns true if a file can have the name.
pub fn is_name(name: &[u8]) -> bool {
    let forbidden = |byte: &u8| b"/\0".contains(byte);
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= MAXIMUM_NAME_BYTES
        && !name.iter().any(forbidden)
}
