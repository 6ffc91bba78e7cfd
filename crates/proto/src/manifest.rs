//! Content of a transfer: entries of a tree, the identity of a source file, and the two kinds of
//! block (a piece of a large file, a pack of small entries).

use std::fmt;

use minicbor::{Decode, Decoder, Encode, Encoder};

pub use crate::attributes::{Attributes, Ownership};
use crate::digest::LARGEST_FILE_BYTES;
use crate::text::is_hidden;

/// Maximum length of an entry's path in bytes, including separators. Paths are resolved name by
/// name beneath a directory handle, so the kernel's `PATH_MAX` does not apply.
pub const MAXIMUM_PATH_BYTES: usize = 16 * 1024;

/// Maximum length of a single name in bytes (`NAME_MAX` of all common file systems).
pub const MAXIMUM_NAME_BYTES: usize = 255;

/// Maximum length of a symbolic link's target in bytes (`PATH_MAX` less the NUL).
pub const MAXIMUM_LINK_BYTES: usize = 4095;

/// Prefix of longhaul's own staging files. Entries whose names begin with it are neither sent nor
/// accepted.
pub const RESERVED_PREFIX: &[u8] = b".longhaul-";

/// Number of an entry within one transfer: 0, 1, 2… in the order of the sender's walk (a directory
/// before its entries).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryId(#[n(0)] pub u64);

/// A validated path beneath a transfer's anchor: relative, without empty components, `.`, `..` or
/// NUL, and of bounded length. It consists of bytes, which need not be UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Box<[u8]>);

/// Reason why bytes are not a valid [`TreePath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path is absolute or has an empty component (`a//b`, a trailing `/`).
    #[error("the path is empty, absolute or has an empty component")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("the path has a component \".\" or \"..\"")]
    DotComponent,
    /// The path has a NUL byte.
    #[error("the path has a NUL byte")]
    Nul,
    /// The path is longer than [`MAXIMUM_PATH_BYTES`], or a name is longer than
    /// [`MAXIMUM_NAME_BYTES`].
    #[error("the path or one of its names is too long")]
    TooLong,
    /// A component begins with [`RESERVED_PREFIX`].
    #[error("the path has a name that longhaul keeps for its own staging files")]
    Reserved,
}

impl TreePath {
    /// Validates a path.
    ///
    /// # Errors
    ///
    /// [`PathError`] if the path is invalid and could name an entry outside the anchor.
    pub fn new(bytes: &[u8]) -> Result<TreePath, PathError> {
        if bytes.len() > MAXIMUM_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        for name in bytes.split(|&b| b == b'/') {
            check_name(name)?;
        }
        Ok(TreePath(bytes.into()))
    }

    /// Returns this path with one more name.
    ///
    /// # Errors
    ///
    /// [`PathError`] if the name is invalid or the result is too long.
    pub fn join(&self, name: &[u8]) -> Result<TreePath, PathError> {
        check_name(name)?;
        if self.0.len() + 1 + name.len() > MAXIMUM_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        Ok(TreePath([&self.0, &b"/"[..], name].concat().into()))
    }

    /// Returns the path of a name in the directory `above`, or in the anchor.
    ///
    /// # Errors
    ///
    /// The same errors as [`TreePath::join`].
    pub fn beneath(above: Option<&TreePath>, name: &[u8]) -> Result<TreePath, PathError> {
        match above {
            Some(above) => above.join(name),
            None => {
                check_name(name)?;
                TreePath::new(name)
            }
        }
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the last name.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|&b| b == b'/').next().unwrap_or(&[])
    }

    /// Returns the path without its last name; `None` if it has only one name.
    pub fn parent(&self) -> Option<TreePath> {
        let slash = self.0.iter().rposition(|&b| b == b'/')?;
        Some(TreePath(self.0[..slash].into()))
    }

    /// True if `other` lies beneath this path.
    pub fn is_above(&self, other: &TreePath) -> bool {
        let beneath = other.0.strip_prefix(&*self.0);
        beneath.is_some_and(|rest| rest.starts_with(b"/"))
    }

    /// Returns the names from the anchor downwards.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/')
    }
}

fn check_name(name: &[u8]) -> Result<(), PathError> {
    if name.is_empty() {
        return Err(PathError::EmptyComponent);
    }
    if name == b"." || name == b".." {
        return Err(PathError::DotComponent);
    }
    if name.len() > MAXIMUM_NAME_BYTES {
        return Err(PathError::TooLong);
    }
    if name.contains(&0) {
        return Err(PathError::Nul);
    }
    if name.contains(&b'/') {
        return Err(PathError::EmptyComponent);
    }
    if name.starts_with(RESERVED_PREFIX) {
        return Err(PathError::Reserved);
    }
    Ok(())
}

impl fmt::Display for TreePath {
    /// Writes a printable form: control characters and bytes that are not UTF-8 are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if is_hidden(character) {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    write!(f, "{character}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A time of a file: seconds since 1970 (may be negative) and nanoseconds,
/// 0 to 999,999,999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Timestamp {
    /// Seconds since the epoch.
    #[n(0)]
    pub seconds: i64,
    /// Nanoseconds within the second.
    #[n(1)]
    pub nanoseconds: u32,
}

/// The set-user-ID and set-group-ID bits of a mode.
pub const SET_ID_BITS: u32 = 0o6000;

/// Values that distinguish the states of a source file between two runs. The device number is not
/// part of them because it does not survive a reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SourceIdentity {
    /// Inode number; 0 if the file system does not keep it.
    #[n(0)]
    pub inode: u64,
    /// Size in bytes.
    #[n(1)]
    pub size: u64,
    /// Time of the last change of the data.
    #[n(2)]
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    #[n(3)]
    pub changed: Timestamp,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum EntryKind {
    /// A directory.
    #[n(0)]
    Directory,
    /// A regular file.
    #[n(1)]
    File {
        /// State of the file when the walk found it, including its size.
        #[n(0)]
        identity: SourceIdentity,
        /// True if the file occupies less space than its size.
        #[n(1)]
        sparse: bool,
    },
    /// A symbolic link.
    #[n(2)]
    Symlink {
        /// Target of the link, at most [`MAXIMUM_LINK_BYTES`].
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// A device, FIFO or socket. Sent only if the receiver requested such entries.
    #[n(3)]
    Special {
        /// Kind of the special file.
        #[n(0)]
        kind: SpecialKind,
        /// Major number of a device.
        #[n(1)]
        major: u32,
        /// Minor number of a device.
        #[n(2)]
        minor: u32,
    },
    /// A hard link to an earlier entry. Sent only if the receiver requested hard links.
    #[n(4)]
    HardLink {
        /// Path of the earlier entry.
        #[n(0)]
        target: TreePath,
        /// Number of the earlier entry.
        #[n(1)]
        first: EntryId,
    },
}

/// Kind of a special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum SpecialKind {
    /// A FIFO.
    #[n(0)]
    Fifo,
    /// A socket.
    #[n(1)]
    Socket,
    /// A character device.
    #[n(2)]
    Character,
    /// A block device.
    #[n(3)]
    Block,
}

impl SpecialKind {
    /// True for a device, which only a superuser can create.
    pub fn is_device(self) -> bool {
        matches!(self, SpecialKind::Character | SpecialKind::Block)
    }
}

/// State that a source gives the directory that it fills.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct AnchorState {
    /// Permission bits, 0 to 0o7777.
    #[n(0)]
    pub mode: u32,
    /// Time of the last change.
    #[n(1)]
    pub modified: Timestamp,
    /// Owner and other requested attributes.
    #[n(2)]
    pub owner: Option<Box<Attributes>>,
    /// If true, the state is only a limit: a directory that the copy created grants others no
    /// rights beyond `mode`, and an existing directory does not change.
    #[n(3)]
    pub is_limit: bool,
}

impl AnchorState {
    /// True if every value is within its range.
    pub fn is_valid(&self) -> bool {
        self.mode <= 0o7777
            && self.modified.nanoseconds < 1_000_000_000
            && self.owner.as_ref().is_none_or(|owner| owner.is_valid())
    }
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Number of the entry.
    #[n(0)]
    pub id: EntryId,
    /// Directory that contains the entry; `None` at the top.
    #[n(1)]
    pub parent: Option<EntryId>,
    /// Path beneath the destination's anchor.
    #[n(2)]
    pub path: TreePath,
    /// Kind of the entry.
    #[n(3)]
    pub kind: EntryKind,
    /// Permission bits, 0 to 0o7777.
    #[n(4)]
    pub mode: u32,
    /// Time of the last change of the data, restored at the destination.
    #[n(5)]
    pub modified: Timestamp,
    /// Owner of a file with a set-user-ID or set-group-ID bit, and the attributes that the copy
    /// keeps; otherwise `None`. A box, because few of the many entries in memory have attributes.
    #[n(6)]
    pub owner: Option<Box<Attributes>>,
}

impl Entry {
    /// Returns the bytes of file data: zero if the entry is not a file.
    pub fn size(&self) -> u64 {
        match &self.kind {
            EntryKind::File { identity, .. } => identity.size,
            _ => 0,
        }
    }

    /// Returns the bytes beyond the entry's fixed size: its path, a link's target, its attributes.
    pub fn text_bytes(&self) -> usize {
        let target = match &self.kind {
            EntryKind::Symlink { target } => target.len(),
            EntryKind::HardLink { target, .. } => target.as_bytes().len(),
            EntryKind::File { .. } | EntryKind::Directory | EntryKind::Special { .. } => 0,
        };
        let attributes = self.owner.as_ref().map_or(0, |owner| owner.weight());
        self.path.as_bytes().len() + target + attributes
    }

    /// True if the entry is a file that had holes at the walk.
    pub fn is_sparse(&self) -> bool {
        matches!(self.kind, EntryKind::File { sparse: true, .. })
    }

    /// True if a peer may send this entry: its parent has a smaller number, and its values are
    /// within their ranges.
    pub fn is_valid(&self) -> bool {
        let kind = match &self.kind {
            EntryKind::Directory => true,
            EntryKind::File { identity, .. } => identity.size <= LARGEST_FILE_BYTES,
            EntryKind::Symlink { target } => {
                (1..=MAXIMUM_LINK_BYTES).contains(&target.len()) && !target.contains(&0)
            }
            EntryKind::Special { .. } => true,
            EntryKind::HardLink { target, first } => *first < self.id && *target != self.path,
        };
        kind && self.mode <= 0o7777
            && self.owner.as_ref().is_none_or(|owner| owner.is_valid())
            && self.modified.nanoseconds < 1_000_000_000
            && self.parent.is_none_or(|parent| parent < self.id)
    }
}

impl<C> Encode<C> for TreePath {
    fn encode<W: minicbor::encode::Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        encoder.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for TreePath {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        TreePath::new(decoder.bytes()?).map_err(minicbor::decode::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_paths_are_proved() {
        for path in ["a", "a/b", "...", "..a/b..", "a b/\u{e9}", "\\", "-rf"] {
            assert!(TreePath::new(path.as_bytes()).is_ok(), "{path}");
        }
        for (path, error) in [
            ("", PathError::EmptyComponent),
            ("/a", PathError::EmptyComponent),
            ("a/", PathError::EmptyComponent),
            ("a//b", PathError::EmptyComponent),
            (".", PathError::DotComponent),
            ("a/../b", PathError::DotComponent),
            ("a/..", PathError::DotComponent),
            ("a\0b", PathError::Nul),
            ("a/.longhaul-x", PathError::Reserved),
        ] {
            assert_eq!(TreePath::new(path.as_bytes()), Err(error), "{path:?}");
        }
        assert_eq!(TreePath::new(&[b'a'; 256]), Err(PathError::TooLong));
        assert_eq!(TreePath::new(&b"a/".repeat(9000)), Err(PathError::TooLong));
    }

    #[test]
    fn a_path_is_above_paths_with_further_names() {
        let above = |a: &[u8], b: &[u8]| {
            let [a, b] = [a, b].map(|path| TreePath::new(path).unwrap());
            a.is_above(&b)
        };
        assert!(above(b"a", b"a/b") && above(b"a/b", b"a/b/c/d"));
        assert!(!above(b"a", b"a") && !above(b"a", b"ab/c") && !above(b"a/b", b"a"));
    }

    #[test]
    fn odd_names_print_harmlessly() {
        let path = TreePath::new(b"a\x1b[2J/\xff\xc3\xa9\n").unwrap();
        assert_eq!(path.to_string(), "a\\u{1b}[2J/\\xff\u{e9}\\n");
        let turned = TreePath::new("\u{202e}txt.exe\u{200b}".as_bytes()).unwrap();
        assert_eq!(turned.to_string(), "\\u{202e}txt.exe\\u{200b}");
    }

    #[test]
    fn a_path_has_a_name_and_a_parent() {
        let path = TreePath::new(b"a/b/c").unwrap();
        assert_eq!(path.name(), b"c");
        assert_eq!(path.parent(), TreePath::new(b"a/b").ok());
        assert_eq!(TreePath::new(b"a").unwrap().parent(), None);
        assert_eq!(path.join(b"d"), TreePath::new(b"a/b/c/d"));
        assert!(path.join(b"../x").is_err());
    }
}
