//! The hand-written peer, and the place that it must not leave.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_engine::recv::ReceiveSide;
use longhaul_engine::recv::landing::Destination;
use longhaul_engine::send::SendSide;
use longhaul_engine::send::source::What;
use longhaul_engine::session::{Ending, Transfer, TransferSettings};
use longhaul_net::clear::local_pair;
use longhaul_net::{Stream, StreamHandle, StreamWriter};
use longhaul_proto::block::{BlockHeader, Codec, Content, PackedEntry, Piece};
use longhaul_proto::control::Numbered;
use longhaul_proto::digest::{BlockHasher, Integrity, whole_file};
use longhaul_proto::frame::{self, FrameKind};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, TreePath};
use longhaul_proto::message::Message;
use longhaul_proto::session::StreamId;
use longhaul_storage::measuring::sink;
use longhaul_storage::posix::PosixDirectory;
use minicbor::Encode;

use crate::support::ends::{PATIENCE, arrival, destination, settings, sources};

/// A root, and files beside it that must not change.
pub struct Place {
    outer: tempfile::TempDir,
    before: Vec<(PathBuf, u64, i64, i64, u32)>,
}

impl Place {
    pub fn new() -> Place {
        let outer = tempfile::tempdir().unwrap();
        for directory in ["root", "beside", "beside/inner"] {
            std::fs::create_dir(outer.path().join(directory)).unwrap();
        }
        for file in ["sentinel", "beside/sentinel", "beside/inner/sentinel"] {
            std::fs::write(outer.path().join(file), b"untouched").unwrap();
        }
        let before = Vec::new();
        let mut place = Place { outer, before };
        place.before = place.look();
        place
    }

    pub fn root(&self) -> PathBuf {
        self.outer.path().join("root")
    }

    pub fn beside(&self) -> PathBuf {
        self.outer.path().join("beside")
    }

    /// Returns name, inode, times and mode of each entry beside the root.
    fn look(&self) -> Vec<(PathBuf, u64, i64, i64, u32)> {
        let mut seen = Vec::new();
        let mut open = vec![self.outer.path().to_owned()];
        while let Some(directory) = open.pop() {
            for name in std::fs::read_dir(&directory).unwrap() {
                let path = name.unwrap().path();
                let status = path.symlink_metadata().unwrap();
                if path == self.root() {
                    continue;
                }
                if status.is_dir() {
                    open.push(path.clone());
                }
                let changed = status.ctime() * 1_000_000_000 + status.ctime_nsec();
                let modified = status.mtime() * 1_000_000_000 + status.mtime_nsec();
                seen.push((path, status.ino(), changed, modified, status.mode()));
            }
        }
        seen.sort();
        seen
    }

    pub fn assert_untouched(&self, context: &str) {
        assert_eq!(self.look(), self.before, "{context}");
    }
}

/// One end, and a stream to it.
pub struct Peer {
    pub end: Arc<Transfer>,
    writer: Box<dyn StreamWriter>,
    pub handle: StreamHandle,
    /// Number of bytes received on the last stream.
    pub heard: Arc<AtomicUsize>,
    before: Option<Box<dyn StreamWriter>>,
    number: u64,
    gone: bool,
}

/// Returns settings for an end that ends soon after its last stream. Silence is allowed longer than
/// a busy host delays a test.
pub fn short() -> TransferSettings {
    TransferSettings {
        linger: Duration::from_millis(500),
        silence: PATIENCE,
        ..settings()
    }
}

/// Returns settings for an end that waits for a peer that comes back on another stream.
pub fn lingering() -> TransferSettings {
    TransferSettings {
        linger: PATIENCE,
        ..short()
    }
}

impl Peer {
    /// Connects to an end that receives into the place's root.
    pub fn of_receiver(place: &Place, settings: TransferSettings) -> Peer {
        let root = PosixDirectory::open_root(&place.root()).unwrap();
        let there = destination(root);
        there.take().unwrap();
        let side = ReceiveSide::new(there);
        Peer::new(Transfer::receiving(settings, side, Arc::new(|_| {})))
    }

    /// Connects to an end that receives into a destination.
    pub fn of_destination(there: Destination, settings: TransferSettings) -> Peer {
        there.take().unwrap();
        let side = ReceiveSide::new(there);
        Peer::new(Transfer::receiving(settings, side, Arc::new(|_| {})))
    }

    /// Connects to an end that discards all data.
    pub fn of_sink(settings: TransferSettings) -> Peer {
        let side = ReceiveSide::new(Destination::sink(sink(), arrival()));
        Peer::new(Transfer::receiving(settings, side, Arc::new(|_| {})))
    }

    /// Connects to an end that sends the content of the place's root.
    pub fn of_sender(root: &Path, settings: TransferSettings) -> Peer {
        let root = PosixDirectory::open_root(root).unwrap();
        let side = SendSide::new(sources(root, What::Contents));
        Peer::new(Transfer::sending(settings, side, Arc::new(|_| {})))
    }

    fn new(end: Arc<Transfer>) -> Peer {
        let (writer, handle, heard) = join(&end, StreamId(0));
        Peer {
            end,
            writer,
            handle,
            heard,
            before: None,
            number: 0,
            gone: false,
        }
    }

    /// Continues on another stream, and keeps the previous one open.
    pub fn come_back(&mut self, stream: StreamId) {
        let (writer, handle, heard) = join(&self.end, stream);
        self.before = Some(std::mem::replace(&mut self.writer, writer));
        (self.handle, self.heard) = (handle, heard);
    }

    /// Sends raw bytes; false once the other end has left.
    pub fn send(&mut self, parts: &[&[u8]]) -> bool {
        self.gone = self.gone || self.writer.write_all(parts).is_err();
        !self.gone
    }

    pub fn frame<T: Encode<()>>(&mut self, kind: FrameKind, value: &T, payload: &[u8]) -> bool {
        let frame = frame::encode(kind, value, payload.len()).unwrap();
        self.send(&[&frame, payload])
    }

    pub fn say(&mut self, message: &Message) -> bool {
        self.say_raw(minicbor::to_vec(message).unwrap())
    }

    /// Sends a message that may be invalid.
    pub fn say_raw(&mut self, message: Vec<u8>) -> bool {
        self.number += 1;
        let numbered = Numbered {
            number: self.number,
            received: 0,
            message: Some(message),
        };
        self.frame(FrameKind::Control, &numbered, &[])
    }

    pub fn block(&mut self, header: &BlockHeader, payload: &[u8]) -> bool {
        self.frame(FrameKind::Block, header, payload)
    }

    /// Waits for the end of the session.
    pub fn ending(self, context: &str) -> Ending {
        let until = Instant::now() + PATIENCE;
        while !self.end.is_over() {
            assert!(
                Instant::now() < until,
                "{context}: the session does not end"
            );
            self.end.wait_for(Duration::from_millis(50));
            if self.end.wait_for(Duration::ZERO) {
                break;
            }
        }
        self.end.wait()
    }
}

/// Joins a stream whose messages are read and ignored.
fn join(
    end: &Arc<Transfer>,
    stream: StreamId,
) -> (Box<dyn StreamWriter>, StreamHandle, Arc<AtomicUsize>) {
    let (ours, theirs) = local_pair().unwrap();
    assert!(end.streams().attach(theirs, stream, false, 0));
    let Stream {
        mut reader,
        writer,
        handle,
    } = ours;
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    std::thread::spawn(move || {
        let mut room = vec![0; 64 << 10];
        while let Ok(count @ 1..) = reader.read(&mut room) {
            hears.fetch_add(count, Ordering::Relaxed);
        }
    });
    (writer, handle, heard)
}

pub fn file(id: u64, path: &[u8], size: u64) -> Entry {
    let identity = SourceIdentity {
        inode: id,
        size,
        ..SourceIdentity::default()
    };
    Entry {
        id: EntryId(id),
        parent: None,
        path: TreePath::new(path).unwrap(),
        kind: EntryKind::File {
            identity,
            sparse: false,
        },
        mode: 0o644,
        modified: Default::default(),
        owner: None,
    }
}

/// Returns a pack of one small file.
pub fn pack(entry: Entry, data: &[u8]) -> BlockHeader {
    let checksum = Some(whole_file(Integrity::Digest, data));
    let packed = PackedEntry {
        entry,
        generation: 0,
        checksum,
    };
    plain(Content::Pack(vec![packed]), data.len())
}

/// Returns a valid piece of a large file.
pub fn piece(entry: Entry, offset: u64, data: &[u8]) -> BlockHeader {
    let length = data.len() as u64;
    let hasher = BlockHasher::new(Integrity::Digest, offset, length, entry.size());
    let checksum = hasher.map(|mut hasher| {
        hasher.update(data);
        hasher.finish()
    });
    let piece = Piece {
        entry,
        generation: 0,
        offset,
        length,
        extents: None,
        checksum,
    };
    plain(Content::Piece(piece), data.len())
}

pub fn plain(content: Content, length: usize) -> BlockHeader {
    BlockHeader {
        content,
        codec: Codec::Plain,
        decoded: length as u64,
        transit: None,
        proof: None,
        trailer: None,
        shuffle: None,
    }
}
