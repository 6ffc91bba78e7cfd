//! What is to move: entries of a tree, the identity of a source file, and the
//! two kinds of block (a piece of a large file, a pack of small entries).

use std::fmt;

use minicbor::{Decode, Decoder, Encode, Encoder};

pub use crate::attributes::{Attributes, Ownership};
use crate::digest::LARGEST_FILE_BYTES;
use crate::text::is_hidden;

/// Longest path of an entry in bytes, separators included. Paths are walked
/// name by name beneath a directory handle, so the kernel's `PATH_MAX` does
/// not bind.
pub const MAXIMUM_PATH_BYTES: usize = 16 * 1024;

/// Longest single name in bytes (`NAME_MAX` of every file system we know).
pub const MAXIMUM_NAME_BYTES: usize = 255;

/// Longest target of a symbolic link in bytes (`PATH_MAX` less the NUL).
pub const MAXIMUM_LINK_BYTES: usize = 4095;

/// Names that longhaul keeps for its own staging files. Entries that begin
/// with it are neither sent nor accepted.
pub const RESERVED_PREFIX: &[u8] = b".longhaul-";

/// Number of an entry within one transfer: 0, 1, 2… in the order in which the
/// sender's walk meets them (a directory before what it holds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryId(#[n(0)] pub u64);

/// A path beneath a transfer's anchor that was proved harmless: relative, no
/// empty component, no `.` or `..`, no NUL, bounded in length. Bytes, not
/// UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Box<[u8]>);

/// Why bytes are no [`TreePath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Absolute, or with an empty component (`a//b`, a trailing `/`).
    #[error("the path is empty, absolute or has an empty component")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("the path has a component \".\" or \"..\"")]
    DotComponent,
    /// A NUL byte.
    #[error("the path has a NUL byte")]
    Nul,
    /// Longer than [`MAXIMUM_PATH_BYTES`], or a name longer than
    /// [`MAXIMUM_NAME_BYTES`].
    #[error("the path or one of its names is too long")]
    TooLong,
    /// A component begins with [`RESERVED_PREFIX`].
    #[error("the path has a name that longhaul keeps for its own staging files")]
    Reserved,
}

impl TreePath {
    /// Proves bytes.
    ///
    /// # Errors
    ///
    /// [`PathError`] where the bytes could name anything outside the anchor.
    pub fn new(bytes: &[u8]) -> Result<TreePath, PathError> {
        if bytes.len() > MAXIMUM_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        for name in bytes.split(|&b| b == b'/') {
            check_name(name)?;
        }
        Ok(TreePath(bytes.into()))
    }

    /// This path with one more name.
    ///
    /// # Errors
    ///
    /// [`PathError`] where the name is none, or the result is too long.
    pub fn join(&self, name: &[u8]) -> Result<TreePath, PathError> {
        check_name(name)?;
        if self.0.len() + 1 + name.len() > MAXIMUM_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        Ok(TreePath([&self.0, &b"/"[..], name].concat().into()))
    }

    /// The path of a name in the directory `above`, or in the anchor.
    ///
    /// # Errors
    ///
    /// As [`TreePath::join`].
    pub fn beneath(above: Option<&TreePath>, name: &[u8]) -> Result<TreePath, PathError> {
        match above {
            Some(above) => above.join(name),
            None => {
                check_name(name)?;
                TreePath::new(name)
            }
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The last name.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|&b| b == b'/').next().unwrap_or(&[])
    }

    /// Everything before the last name; `None` if there is one name only.
    pub fn parent(&self) -> Option<TreePath> {
        let slash = self.0.iter().rposition(|&b| b == b'/')?;
        Some(TreePath(self.0[..slash].into()))
    }

    /// Whether the other lies beneath it.
    pub fn is_above(&self, other: &TreePath) -> bool {
        let beneath = other.0.strip_prefix(&*self.0);
        beneath.is_some_and(|rest| rest.starts_with(b"/"))
    }

    /// The names from the anchor downwards.
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
    /// Printable: characters that a terminal obeys and bytes that are not UTF-8 are escaped.
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

/// What tells one state of a source file from another between two runs. The
/// device is not part of it because its number does not survive a reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SourceIdentity {
    /// Inode number; 0 where the file system does not keep it.
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

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum EntryKind {
    /// A directory.
    #[n(0)]
    Directory,
    /// A regular file.
    #[n(1)]
    File {
        /// What it looked like when the walk met it; its size is here.
        #[n(0)]
        identity: SourceIdentity,
        /// Whether it takes less room than its size tells.
        #[n(1)]
        sparse: bool,
    },
    /// A symbolic link.
    #[n(2)]
    Symlink {
        /// What it holds, at most [`MAXIMUM_LINK_BYTES`].
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// A device, FIFO or socket, to a receiver that was asked for it.
    #[n(3)]
    Special {
        /// What it is.
        #[n(0)]
        kind: SpecialKind,
        /// Major number of a device.
        #[n(1)]
        major: u32,
        /// Minor number of a device.
        #[n(2)]
        minor: u32,
    },
    /// Another name of what an earlier entry is, to a receiver that was asked for it.
    #[n(4)]
    HardLink {
        /// That entry's path.
        #[n(0)]
        target: TreePath,
        /// That entry.
        #[n(1)]
        first: EntryId,
    },
}

/// What has neither data nor names.
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
    /// Whether it is a device, which only a superuser makes.
    pub fn is_device(self) -> bool {
        matches!(self, SpecialKind::Character | SpecialKind::Block)
    }
}

/// What a source gives the directory that it fills.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct AnchorState {
    /// Permission bits, 0 to 0o7777.
    #[n(0)]
    pub mode: u32,
    /// Time of the last change.
    #[n(1)]
    pub modified: Timestamp,
    /// Who owns it, and what else was asked for.
    #[n(2)]
    pub owner: Option<Box<Attributes>>,
    /// The directory gets nothing of this. If the copy made it, others get no rights beyond `mode`.
    #[n(3)]
    pub is_limit: bool,
}

impl AnchorState {
    /// Whether its numbers are within their ranges.
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
    /// Its number.
    #[n(0)]
    pub id: EntryId,
    /// The directory it is in; none at the top.
    #[n(1)]
    pub parent: Option<EntryId>,
    /// Where it goes beneath the destination's anchor.
    #[n(2)]
    pub path: TreePath,
    /// What it is.
    #[n(3)]
    pub kind: EntryKind,
    /// Permission bits, 0 to 0o7777.
    #[n(4)]
    pub mode: u32,
    /// Time of the last change of the data, to be restored.
    #[n(5)]
    pub modified: Timestamp,
    /// Owner of a file with a set-user-ID or set-group-ID bit, and the attributes that the copy
    /// keeps; otherwise `None`. A box, because few of the many entries in memory have attributes.
    #[n(6)]
    pub owner: Option<Box<Attributes>>,
}

impl Entry {
    /// Bytes of file data: zero for what is not a file.
    pub fn size(&self) -> u64 {
        match &self.kind {
            EntryKind::File { identity, .. } => identity.size,
            _ => 0,
        }
    }

    /// Bytes that it keeps beside its fixed size: its path, a link's target, its attributes.
    pub fn text_bytes(&self) -> usize {
        let target = match &self.kind {
            EntryKind::Symlink { target } => target.len(),
            EntryKind::HardLink { target, .. } => target.as_bytes().len(),
            EntryKind::File { .. } | EntryKind::Directory | EntryKind::Special { .. } => 0,
        };
        let attributes = self.owner.as_ref().map_or(0, |owner| owner.weight());
        self.path.as_bytes().len() + target + attributes
    }

    /// Whether it is a file that had holes when it was looked at.
    pub fn is_sparse(&self) -> bool {
        matches!(self.kind, EntryKind::File { sparse: true, .. })
    }

    /// Whether a peer may send this: its parent came before it, its numbers
    /// are within their ranges.
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
    fn beneath_a_path_is_what_has_a_name_more() {
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
