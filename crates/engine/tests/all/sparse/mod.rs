//! Copies one large sparse file: its holes stay holes, but are hashed. `LONGHAUL_SPARSE_GIB` is its
//! size, 2 by default, 300 for a soak.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_engine::recv::ReceiveSide;
use longhaul_engine::send::SendSide;
use longhaul_engine::send::source::What;
use longhaul_engine::session::{Event, Transfer, TransferSettings, Watch};
use longhaul_proto::digest::Checksum;
use longhaul_proto::message::Farewell;
use longhaul_proto::session::StreamId;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{Creation, DataMode};

use crate::support::ends::{destination, sources};
use crate::support::times;

const GIB: u64 = 1 << 30;

/// Returns the data of the file: at the start, across a block's edge, and at the very end, whose
/// offset is not a multiple of any unit.
fn data(size: u64) -> [(u64, &'static [u8]); 4] {
    [
        (0, b"begin"),
        ((1 << 20) - 3, b"across an edge"),
        (size / 2 + 12_345, b"middle"),
        (size - 3, b"end"),
    ]
}

fn digest(size: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    for (offset, bytes) in data(size) {
        while at < offset {
            let part = (offset - at).min(zeros.len() as u64);
            hasher.update(&zeros[..part as usize]);
            at += part;
        }
        hasher.update(bytes);
        at += bytes.len() as u64;
    }
    *hasher.finalize().as_bytes()
}

// Promise 24.
#[test]
fn a_large_sparse_file_arrives_with_its_holes() {
    let size = times("LONGHAUL_SPARSE_GIB", 2) * GIB + 4567;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = PosixDirectory::open_root(from.path()).unwrap();
    let file = source
        .create_file(b"sparse", Creation::New, DataMode::Buffered)
        .unwrap();
    file.set_length(size).unwrap();
    for (offset, bytes) in data(size) {
        file.write_at(bytes, offset).unwrap();
    }
    let target = PosixDirectory::open_root(to.path()).unwrap();
    let settings = TransferSettings {
        asks: false,
        digests: true,
        silence: Duration::from_secs(600),
        ..TransferSettings::default()
    };
    let digests = Arc::new(Mutex::new(Vec::new()));
    let seen = digests.clone();
    let watch: Watch = Arc::new(move |event| match event {
        Event::Committed { digest, .. } => seen.lock().unwrap().push(digest),
        Event::Durable { .. } => {}
        other => panic!("{other:?}"),
    });
    let there = destination(target.clone());
    there.take().unwrap();
    let receiver = Transfer::receiving(settings.clone(), ReceiveSide::new(there), Arc::new(|_| {}));
    let name: Box<[u8]> = b"sparse"[..].into();
    let what = What::File {
        name: name.clone(),
        landing: name,
    };
    let sender = Transfer::sending(settings, SendSide::new(sources(source, what)), watch);
    for number in 0..2 {
        let (left, right) = longhaul_net::clear::local_pair().unwrap();
        receiver.streams().attach(right, StreamId(number), false, 0);
        sender.streams().attach(left, StreamId(number), false, 0);
    }
    assert_eq!(sender.wait().farewell, Farewell::Complete);
    receiver.wait();
    assert_eq!(
        *digests.lock().unwrap(),
        [Some(Checksum::Blake3(digest(size)))]
    );
    let status = target.status_of(b"sparse").unwrap();
    assert_eq!(status.size, size);
    assert!(
        status.allocated <= 1 << 20,
        "{} bytes taken",
        status.allocated
    );
    let copy = target.open_file(b"sparse", DataMode::Buffered).unwrap();
    for (offset, bytes) in data(size) {
        let mut found = vec![0; bytes.len()];
        copy.read_at(&mut found, offset).unwrap();
        assert_eq!(found, bytes);
    }
}
