//! What lies at a path of the acceptor: asked for with a stream of its own
//! ([`Purpose::List`](crate::handshake::Purpose::List)), which carries nothing
//! else, and answered entry by entry until [`Listed::End`].

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::handshake::Credential;
use crate::manifest::{MAXIMUM_LINK_BYTES, MAXIMUM_PATH_BYTES, Timestamp, TreePath};
use crate::message::Failure;

/// Most entries in one [`Listed::Entries`].
pub const MOST_LISTED: usize = 512;

/// Bytes of entries from which on a frame is full: what one more entry takes
/// (a path and a link's target) still fits the longest body of a handshake.
pub const FULL_BYTES: usize = 32 * 1024;

/// Bytes that an entry takes beside its path and target, at most.
const ENTRY_BYTES: usize = 64;

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ListRequest {
    /// Who asks.
    #[n(0)]
    pub credential: Option<Credential>,
    /// Path at the acceptor, at most [`MAXIMUM_PATH_BYTES`].
    #[cbor(n(1), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// Directories below it, too.
    #[n(2)]
    pub recursive: bool,
    /// Mode, size, time and target of each entry, which costs a system call
    /// each.
    #[n(3)]
    pub details: bool,
}

impl ListRequest {
    /// Whether an acceptor may act on it.
    pub fn is_valid(&self) -> bool {
        self.path.len() <= MAXIMUM_PATH_BYTES && !self.path.contains(&0)
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum ListedKind {
    /// A regular file.
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Directory,
    /// A symbolic link.
    #[n(2)]
    Symlink,
    /// A device, socket or FIFO, which is not copied.
    #[n(3)]
    Special,
}

/// What `lstat` reports about an entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Details {
    /// Permission bits, 0 to 0o7777.
    #[n(0)]
    pub mode: u32,
    /// Size in bytes.
    #[n(1)]
    pub size: u64,
    /// Time of the last change of the data.
    #[n(2)]
    pub modified: Timestamp,
    /// What a link holds, at most [`MAXIMUM_LINK_BYTES`].
    #[n(3)]
    pub target: Option<ByteVec>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ListedEntry {
    /// Its path beneath what was asked for; of a file that was asked for, its
    /// name.
    #[n(0)]
    pub path: TreePath,
    /// What it is.
    #[n(1)]
    pub kind: ListedKind,
    /// More about it, where that was asked for.
    #[n(2)]
    pub details: Option<Details>,
}

impl ListedEntry {
    /// Whether its numbers are within their ranges.
    pub fn is_valid(&self) -> bool {
        self.details.as_ref().is_none_or(|details| {
            let target = details.target.as_ref();
            details.mode <= 0o7777
                && details.modified.nanoseconds < 1_000_000_000
                && target.is_none_or(|target| target.len() <= MAXIMUM_LINK_BYTES)
        })
    }

    /// Bytes that it takes in a frame, at most.
    pub fn encoded_bytes(&self) -> usize {
        let target = self
            .details
            .as_ref()
            .and_then(|details| details.target.as_ref());
        ENTRY_BYTES + self.path.as_bytes().len() + target.map_or(0, |target| target.len())
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Listed {
    /// Entries, each directory's in the order of their bytes, a directory
    /// before what it holds; at most [`MOST_LISTED`].
    #[n(0)]
    Entries(#[n(0)] Vec<ListedEntry>),
    /// Something in it could not be read; the rest continues.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// That was all.
    #[n(2)]
    End,
}

impl Listed {
    /// Whether a peer may say this.
    pub fn is_valid(&self) -> bool {
        match self {
            Listed::Entries(entries) => {
                entries.len() <= MOST_LISTED && entries.iter().all(ListedEntry::is_valid)
            }
            Listed::Failed(_) | Listed::End => true,
        }
    }
}

/// Gathers entries until a frame is full.
#[derive(Debug, Default)]
pub struct Gathered {
    entries: Vec<ListedEntry>,
    bytes: usize,
}

impl Gathered {
    /// One more; gives what has to be said now.
    pub fn push(&mut self, entry: ListedEntry) -> Option<Listed> {
        self.bytes += entry.encoded_bytes();
        self.entries.push(entry);
        let full = self.bytes >= FULL_BYTES || self.entries.len() >= MOST_LISTED;
        full.then(|| self.take()).flatten()
    }

    /// What was gathered, if anything.
    pub fn take(&mut self) -> Option<Listed> {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        (!entries.is_empty()).then_some(Listed::Entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, FrameKind};
    use crate::handshake::Answer;

    fn entry(path: &[u8], target: usize) -> ListedEntry {
        ListedEntry {
            path: TreePath::new(path).unwrap(),
            kind: ListedKind::Symlink,
            details: Some(Details {
                mode: 0o7777,
                size: u64::MAX,
                modified: Timestamp {
                    seconds: i64::MIN,
                    nanoseconds: 999_999_999,
                },
                target: Some(vec![b'x'; target].into()),
            }),
        }
    }

    #[test]
    fn the_longest_entries_fit_a_frame() {
        let name = [b'n'; 255];
        let path = [&name[..]; 64].join(&b'/');
        let mut gathered = Gathered::default();
        let long = entry(&path[..MAXIMUM_PATH_BYTES - 1], MAXIMUM_LINK_BYTES);
        let said: Vec<Listed> = (0..9).filter_map(|_| gathered.push(long.clone())).collect();
        assert!(said.len() > 3, "{}", said.len());
        for listed in said {
            assert!(listed.is_valid());
            let answer = Answer::Listed(listed);
            assert!(frame::encode(FrameKind::Handshake, &answer, 0).is_ok());
        }
    }

    #[test]
    fn short_entries_go_many_to_a_frame_and_none_is_lost() {
        let mut gathered = Gathered::default();
        let mut said = Vec::new();
        for number in 0..1500 {
            said.extend(gathered.push(entry(format!("{number}").as_bytes(), 1)));
        }
        said.extend(gathered.take());
        assert_eq!(gathered.take(), None);
        let counts = said.iter().map(|listed| match listed {
            Listed::Entries(entries) => entries.len(),
            _ => 0,
        });
        assert_eq!(counts.sum::<usize>(), 1500);
        assert!(said.len() <= 5, "{}", said.len());
    }

    #[test]
    fn numbers_out_of_their_range_are_no_answer() {
        let mut odd = entry(b"a", 0);
        odd.details.as_mut().unwrap().mode = 0o10000;
        assert!(!Listed::Entries(vec![odd]).is_valid());
        let many = vec![entry(b"a", 0); MOST_LISTED + 1];
        assert!(!Listed::Entries(many).is_valid());
    }
}
