//! Lists a path of the acceptor. A stream of its own carries the request
//! ([`Purpose::List`](crate::handshake::Purpose::List)) and the answers, which end with
//! [`Listed::End`].

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::handshake::Credential;
use crate::manifest::{MAXIMUM_LINK_BYTES, MAXIMUM_PATH_BYTES, Timestamp, TreePath};
use crate::message::Failure;

/// Maximum number of entries in one [`Listed::Entries`].
pub const MOST_LISTED: usize = 512;

/// Bytes of entries at which a frame is full. One more entry (a path and a link's target) still
/// fits the longest body of a handshake.
pub const FULL_BYTES: usize = 32 * 1024;

/// Maximum bytes of an entry beyond its path and target.
const ENTRY_BYTES: usize = 64;

/// Request for a listing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ListRequest {
    /// Identity of the dialer.
    #[n(0)]
    pub credential: Option<Credential>,
    /// Path at the acceptor, at most [`MAXIMUM_PATH_BYTES`].
    #[cbor(n(1), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// True to list directories below the path, too.
    #[n(2)]
    pub recursive: bool,
    /// True to report mode, size, time and target of each entry, which costs a system call each.
    #[n(3)]
    pub details: bool,
}

impl ListRequest {
    /// True if the request is within its bounds.
    pub fn is_valid(&self) -> bool {
        self.path.len() <= MAXIMUM_PATH_BYTES && !self.path.contains(&0)
    }
}

/// Kind of an entry.
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

/// Data of an entry from `lstat`.
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
    /// Target of a link, at most [`MAXIMUM_LINK_BYTES`].
    #[n(3)]
    pub target: Option<ByteVec>,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ListedEntry {
    /// Path beneath the requested directory, or the name of the requested file.
    #[n(0)]
    pub path: TreePath,
    /// Kind of the entry.
    #[n(1)]
    pub kind: ListedKind,
    /// Details, if requested.
    #[n(2)]
    pub details: Option<Details>,
}

impl ListedEntry {
    /// True if every value is within its range.
    pub fn is_valid(&self) -> bool {
        self.details.as_ref().is_none_or(|details| {
            let target = details.target.as_ref();
            details.mode <= 0o7777
                && details.modified.nanoseconds < 1_000_000_000
                && target.is_none_or(|target| target.len() <= MAXIMUM_LINK_BYTES)
        })
    }

    /// Returns the maximum bytes of the entry in a frame.
    pub fn encoded_bytes(&self) -> usize {
        let target = self
            .details
            .as_ref()
            .and_then(|details| details.target.as_ref());
        ENTRY_BYTES + self.path.as_bytes().len() + target.map_or(0, |target| target.len())
    }
}

/// A part of the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Listed {
    /// Entries, at most [`MOST_LISTED`]. Each directory comes before its entries, which are in byte
    /// order.
    #[n(0)]
    Entries(#[n(0)] Vec<ListedEntry>),
    /// A part of the tree could not be read. The listing continues.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// The listing is over.
    #[n(2)]
    End,
}

impl Listed {
    /// True if a peer may send this answer.
    pub fn is_valid(&self) -> bool {
        match self {
            Listed::Entries(entries) => {
                entries.len() <= MOST_LISTED && entries.iter().all(ListedEntry::is_valid)
            }
            Listed::Failed(_) | Listed::End => true,
        }
    }
}

/// Collects entries until a frame is full.
#[derive(Debug, Default)]
pub struct Gathered {
    entries: Vec<ListedEntry>,
    bytes: usize,
}

impl Gathered {
    /// Adds an entry. Returns a frame if it is full.
    pub fn push(&mut self, entry: ListedEntry) -> Option<Listed> {
        self.bytes += entry.encoded_bytes();
        self.entries.push(entry);
        let full = self.bytes >= FULL_BYTES || self.entries.len() >= MOST_LISTED;
        full.then(|| self.take()).flatten()
    }

    /// Returns the collected entries, if there are any.
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
    fn many_short_entries_share_a_frame_without_loss() {
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
    fn numbers_out_of_range_are_refused() {
        let mut odd = entry(b"a", 0);
        odd.details.as_mut().unwrap().mode = 0o10000;
        assert!(!Listed::Entries(vec![odd]).is_valid());
        let many = vec![entry(b"a", 0); MOST_LISTED + 1];
        assert!(!Listed::Entries(many).is_valid());
    }
}
