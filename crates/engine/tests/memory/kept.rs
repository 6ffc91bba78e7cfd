//! Digests that are stored for a later run: their records and the index are only on disk.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_storage::journal::digests::{FileState, KeptDigests};
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{Creation, DataMode, FileKind, Status, StoredFile};

use super::{LIVE, turn};

/// Bytes by which two tables may differ, independent of their sizes.
const SPREAD_BYTES: i64 = 4096;

fn state(number: u64) -> FileState {
    let status = Status {
        kind: FileKind::File,
        mode: 0o644,
        size: 100,
        allocated: 4096,
        device: 1,
        inode: number,
        modified: Default::default(),
        owner: Default::default(),
        changed: Default::default(),
        names: 1,
        special: None,
    };
    FileState::new(b"data/file", &Default::default(), &status)
}

/// Returns the live bytes of a session's digests for this number of files.
fn taken(files: u64) -> i64 {
    let directory = tempfile::tempdir().unwrap();
    File::create(directory.path().join("digests")).unwrap();
    let root = PosixDirectory::open_root(directory.path()).unwrap();
    let file: Arc<dyn StoredFile> = root
        .create_file(b"digests", Creation::Existing, DataMode::Buffered)
        .unwrap();
    let open = || KeptDigests::open(Arc::clone(&file), directory.path()).unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    let earlier = open();
    for number in 0..files {
        earlier.append(&[(state(number), [number as u8; 32])]);
    }
    let kept = LIVE.load(Ordering::Relaxed) - before;
    drop(earlier);
    let before = LIVE.load(Ordering::Relaxed);
    let later = open();
    for number in (0..files).step_by(97) {
        assert_eq!(later.find(&state(number)), Some([number as u8; 32]));
    }
    assert_eq!(later.find(&state(files)), None);
    kept.max(LIVE.load(Ordering::Relaxed) - before)
}

#[test]
fn digests_that_are_kept_take_no_memory_for_each_file() {
    let _turn = turn();
    let (few, many) = (taken(1000), taken(50_000));
    println!("{few} bytes for 1000 files, {many} for 50000");
    assert!(many - few <= SPREAD_BYTES, "{few} {many}");
}
