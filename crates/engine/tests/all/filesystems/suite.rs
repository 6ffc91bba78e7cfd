//! Tests that every file system must pass.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_engine::pool::{Buffer, BufferPool};
use longhaul_proto::manifest::Timestamp;
use longhaul_storage::fan_out::Pace;
use longhaul_storage::listing::SortedListing;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::spill::SpillSettings;
use longhaul_storage::together::sync_together;
use longhaul_storage::{Advice, Creation, DataMode, DataRange, Directory, FileKind, StoredFile};
use longhaul_units::ByteCount;

use super::cache::{pages, read_exactly, resident_pages};
use super::copies;

/// Differences between file systems.
pub struct Expected {
    /// Actual mode of a file opened as [`DataMode::Direct`].
    pub direct: DataMode,
    /// True if the file system has only the page cache, which is never dropped.
    pub is_page_cache: bool,
    /// True if an uncached read can detect data that others cached before.
    pub tells_cached: bool,
}

/// A directory of one test.
pub struct Place {
    /// The open directory.
    pub root: Arc<dyn Directory>,
    /// Path of the directory.
    pub path: PathBuf,
}

type Test = fn(&Place, &Expected);

/// Runs all tests beneath a mount point, each in a separate directory.
pub fn run(point: &Path, expected: &Expected) {
    let tests: [(&str, Test); 17] = [
        ("names", names),
        ("refusals", refusals),
        ("renames", renames),
        ("attributes", attributes),
        ("locks", locks),
        ("syncs", syncs),
        ("together", together),
        ("holes", holes),
        ("preallocation", preallocation),
        ("direct", direct),
        ("bypass", bypass),
        ("parallel", parallel_direct),
        ("uncached_reads", uncached_reads),
        ("uncached_writes", uncached_writes),
        ("listing", listing),
        ("direct_copy", copies::direct_copy),
        ("sparing_copy", copies::sparing_copy),
    ];
    let root = PosixDirectory::open_root(point).unwrap();
    for (name, test) in tests {
        eprintln!("{name}");
        root.make_directory(name.as_bytes(), 0o755).unwrap();
        let place = Place {
            root: root.open_directory(name.as_bytes()).unwrap(),
            path: point.join(name),
        };
        test(&place, expected);
    }
}

impl Place {
    fn create(&self, name: &[u8], mode: DataMode) -> Arc<dyn StoredFile> {
        self.root.create_file(name, Creation::New, mode).unwrap()
    }
}

const BLOCK_BYTES: usize = 1 << 20;

/// Returns buffers that direct I/O can use.
fn pool() -> BufferPool {
    BufferPool::new(ByteCount(16 << 20), BLOCK_BYTES)
}

/// Returns a block whose bytes depend on their offsets in the file.
fn block_at(pool: &BufferPool, offset: usize) -> Buffer {
    let mut buffer = pool.take().unwrap();
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = byte_at(offset + at);
    }
    buffer
}

/// Returns the byte at an offset; never 0, so that no byte looks like a hole.
pub fn byte_at(offset: usize) -> u8 {
    (offset % 251) as u8 + 1
}

/// Reads a file in aligned blocks and compares all of it.
fn assert_content(place: &Place, name: &[u8], mode: DataMode, length: usize) {
    let pool = pool();
    let file = place.root.open_file(name, mode).unwrap();
    let mut buffer = pool.take().unwrap();
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut buffer, offset as u64).unwrap();
        let as_written = |(at, &byte): (usize, &u8)| byte == byte_at(offset + at);
        assert!(buffer[..count].iter().enumerate().all(as_written));
        offset += count;
        if count < buffer.len() {
            break;
        }
    }
    assert_eq!(offset, length);
}

const MODES: [DataMode; 4] = [
    DataMode::Buffered,
    DataMode::Direct,
    DataMode::Bypass,
    DataMode::Uncached,
];

fn names(place: &Place, _: &Expected) {
    let longest = [b'\xc3'; 255];
    for name in [&b"\xff\xfe"[..], b"new\nline", &longest, b" ", b"..."] {
        place.create(name, DataMode::Buffered);
        assert_eq!(place.root.status_of(name).unwrap().kind, FileKind::File);
        place.root.remove_file(name).unwrap();
        place.root.make_directory(name, 0o700).unwrap();
        place.root.remove_directory(name).unwrap();
        place.root.make_symlink(name, name).unwrap();
        assert_eq!(&*place.root.read_symlink(name).unwrap(), name);
    }
}

fn refusals(place: &Place, _: &Expected) {
    std::fs::write(place.path.join("target"), b"secret").unwrap();
    place.root.make_symlink(b"link", b"target").unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, place.path.join("fifo"), mode).unwrap();
    for name in [&b"link"[..], b"fifo"] {
        assert!(place.root.open_directory(name).is_err());
        for mode in MODES {
            assert!(place.root.open_file(name, mode).is_err());
            let created = place.root.create_file(name, Creation::Either, mode);
            assert!(created.is_err());
        }
    }
}

fn renames(place: &Place, _: &Expected) {
    place.root.make_directory(b"below", 0o700).unwrap();
    let below = place.root.open_directory(b"below").unwrap();
    let old = below.create_file(b"name", Creation::New, DataMode::Buffered);
    let old = old.unwrap();
    old.write_at(b"old", 0).unwrap();
    let new = place.create(b"staged", DataMode::Buffered);
    new.write_at(b"newer", 0).unwrap();
    place
        .root
        .rename(b"staged", below.as_ref(), b"name")
        .unwrap();
    let mut buffer = [0; 8];
    let found = below.open_file(b"name", DataMode::Buffered).unwrap();
    assert_eq!(found.read_at(&mut buffer, 0).unwrap(), 5);
    assert_eq!(&buffer[..5], b"newer");
    // A process that had the old file open still has it.
    assert_eq!(old.read_at(&mut buffer, 0).unwrap(), 3);
    let gone = place.root.status_of(b"staged").unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

fn attributes(place: &Place, _: &Expected) {
    let file = place.create(b"f", DataMode::Buffered);
    file.write_at(b"data", 0).unwrap();
    place.root.make_symlink(b"link", b"f").unwrap();
    for seconds in [1_700_000_000, 4_000_000_000, -1] {
        let modified = Timestamp {
            seconds,
            nanoseconds: 123_456_789,
        };
        file.set_modified(modified).unwrap();
        file.set_mode(0o4751).unwrap();
        place.root.set_modified_of(b"link", modified).unwrap();
        for name in [&b"f"[..], b"link"] {
            assert_eq!(place.root.status_of(name).unwrap().modified, modified);
        }
        assert_eq!(file.status().unwrap().mode, 0o4751);
        place.root.set_modified(modified).unwrap();
        assert_eq!(place.root.status().unwrap().modified, modified);
    }
}

fn locks(place: &Place, _: &Expected) {
    let one = place.create(b"f", DataMode::Buffered);
    let mode = DataMode::Direct;
    let other = place.root.create_file(b"f", Creation::Existing, mode);
    let other = other.unwrap();
    assert!(one.try_lock().unwrap());
    assert!(!other.try_lock().unwrap());
    drop(one);
    assert!(other.try_lock().unwrap());
}

fn syncs(place: &Place, _: &Expected) {
    let file = place.create(b"f", DataMode::Buffered);
    file.write_at(&[1; 100_000], 0).unwrap();
    file.advise(Advice::StartWriteback, 0, 100_000);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    file.advise(Advice::DropCache, 0, 0);
    place.root.sync().unwrap();
}

fn holes(place: &Place, _: &Expected) {
    const PIECE: u64 = 64 << 10;
    const SECOND: u64 = 8 << 20;
    let file = place.create(b"f", DataMode::Buffered);
    for start in [0, SECOND] {
        file.write_at(&[1; PIECE as usize], start).unwrap();
    }
    file.set_length(2 * SECOND).unwrap();
    file.sync_all().unwrap();
    for (from, start) in [(0, 0), (PIECE, SECOND), (SECOND + 10, SECOND + 10)] {
        let piece = start - start % PIECE;
        let end = piece + PIECE;
        let expected = DataRange { start, end };
        assert_eq!(file.next_data(from).unwrap(), Some(expected));
    }
    assert_eq!(file.next_data(SECOND + PIECE).unwrap(), None);
    assert_eq!(file.next_data(4 * SECOND).unwrap(), None);
    let status = file.status().unwrap();
    assert_eq!(status.size, 2 * SECOND);
    assert!(status.allocated < SECOND, "{status:?}");
}

fn preallocation(place: &Place, expected: &Expected) {
    const LENGTH: u64 = 4 << 20;
    let file = place.create(b"f", DataMode::Buffered);
    file.preallocate(0).unwrap();
    file.preallocate(LENGTH).unwrap();
    let status = file.status().unwrap();
    assert_eq!(status.size, 0);
    // In memory a reservation has no benefit, and would write every page twice.
    let reserved = if expected.is_page_cache { 0 } else { LENGTH };
    assert!(status.allocated >= reserved, "{status:?}");
    assert_eq!(status.allocated == 0, expected.is_page_cache);
    file.write_at(b"data", LENGTH - 4).unwrap();
    assert_eq!(file.status().unwrap().size, LENGTH);
    let too_large = place.create(b"too_large", DataMode::Buffered);
    let error = too_large.preallocate(1 << 40).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    drop(too_large);
    place.root.remove_file(b"too_large").unwrap();
    gone_on_with(place);
}

/// A part that is continued needs space for the missing data only, not for all of it again.
fn gone_on_with(place: &Place) {
    let small = place.create(b"part", DataMode::Buffered);
    let block = vec![7; 1 << 20];
    // More than half of the smallest of these file systems.
    const WRITTEN: u64 = 40;
    let written = (0..WRITTEN).all(|block_number| {
        let write = small.write_at(&block, block_number << 20);
        write.is_ok()
    });
    if written {
        small.preallocate((WRITTEN + 1) << 20).unwrap();
        // A second request finds the space already reserved.
        small.preallocate((WRITTEN + 1) << 20).unwrap();
    }
    drop(small);
    place.root.remove_file(b"part").unwrap();
}

fn direct(place: &Place, expected: &Expected) {
    direct_as(place, DataMode::Direct, expected.direct);
}

/// Syncs many files together or one by one, depending on the file system.
fn together(place: &Place, _: &Expected) {
    let files: Vec<_> = (0..50)
        .map(|number| {
            let file = place.create(format!("t{number}").as_bytes(), DataMode::Buffered);
            file.write_at(b"small", 0).unwrap();
            file.advise(Advice::StartWriteback, 0, 5);
            file
        })
        .collect();
    let results = sync_together(&files, &Pace::default());
    assert_eq!(results.len(), files.len());
    for result in results {
        result.unwrap();
    }
}

/// Without direct I/O the page cache is spared all the same.
fn bypass(place: &Place, expected: &Expected) {
    let mode = match expected.direct {
        DataMode::Direct => DataMode::Direct,
        _ => DataMode::Uncached,
    };
    direct_as(place, DataMode::Bypass, mode);
}

fn direct_as(place: &Place, asked: DataMode, expected: DataMode) {
    const TAIL: usize = 8192 + 1234;
    let pool = pool();
    let file = place.create(b"f", asked);
    file.write_at(&block_at(&pool, 0), 0).unwrap();
    assert_eq!(file.data_mode(), expected);
    let tail = block_at(&pool, BLOCK_BYTES);
    file.write_at(&tail[..TAIL], BLOCK_BYTES as u64).unwrap();
    file.sync_data().unwrap();
    if expected == DataMode::Direct {
        let aligned = 0..BLOCK_BYTES + 8192;
        assert_eq!(resident_pages(&place.path.join("f"), aligned), 0);
    }
    let again = place.root.open_file(b"f", asked).unwrap();
    again.read_at(&mut pool.take().unwrap(), 0).unwrap();
    assert_eq!(again.data_mode(), expected);
    for mode in MODES {
        assert_content(place, b"f", mode, BLOCK_BYTES + TAIL);
    }
}

/// Many threads write blocks of one file in any order, the tail first: direct and buffered I/O meet
/// in the middle of the file.
fn parallel_direct(place: &Place, _: &Expected) {
    const BLOCKS: usize = 8;
    const LENGTH: usize = BLOCKS * BLOCK_BYTES - 777;
    let pool = pool();
    let file = place.create(b"f", DataMode::Direct);
    file.preallocate(LENGTH as u64).unwrap();
    std::thread::scope(|scope| {
        for number in (0..BLOCKS).rev() {
            let (pool, file) = (&pool, &file);
            scope.spawn(move || {
                let offset = number * BLOCK_BYTES;
                let length = BLOCK_BYTES.min(LENGTH - offset);
                let block = block_at(pool, offset);
                file.write_at(&block[..length], offset as u64).unwrap();
            });
        }
    });
    file.sync_all().unwrap();
    for mode in MODES {
        assert_content(place, b"f", mode, LENGTH);
    }
}

fn uncached_reads(place: &Place, expected: &Expected) {
    let path = place.path.join("f");
    let file = place.create(b"f", DataMode::Buffered);
    file.write_at(&block_at(&pool(), 0), 0).unwrap();
    file.sync_all().unwrap();
    let (others, ours) = (0..BLOCK_BYTES / 4, BLOCK_BYTES / 2..BLOCK_BYTES);
    // A page that another core uses at the moment is not dropped. Of several reads, each with the
    // file uncached, one must leave no pages.
    let leaves_nothing = |_: &u32| {
        file.advise(Advice::DropCache, 0, 0);
        read_exactly(&path, others.clone());
        assert_content(place, b"f", DataMode::Uncached, BLOCK_BYTES);
        if expected.tells_cached || expected.is_page_cache {
            let resident = resident_pages(&path, others.clone());
            assert_eq!(
                resident,
                pages(others.clone()),
                "what another program uses stays"
            );
        }
        let left = resident_pages(&path, ours.clone());
        if left > 0 {
            // tidy: reason: the kernel sends no event when it has dropped pages.
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        left == 0
    };
    let tries = if expected.is_page_cache { 1 } else { 30 };
    let found = (0..tries).find(leaves_nothing);
    assert!(
        found.is_some() || expected.is_page_cache,
        "what we read does not"
    );
}

fn uncached_writes(place: &Place, expected: &Expected) {
    let file = place.create(b"f", DataMode::Uncached);
    assert_eq!(file.data_mode(), DataMode::Uncached);
    file.write_at(&block_at(&pool(), 0), 0).unwrap();
    file.sync_data().unwrap();
    if !expected.is_page_cache {
        let resident = resident_pages(&place.path.join("f"), 0..BLOCK_BYTES);
        assert_eq!(resident, 0);
    }
    for mode in MODES {
        assert_content(place, b"f", mode, BLOCK_BYTES);
    }
}

fn listing(place: &Place, _: &Expected) {
    let name = |number: u32| format!("{:08x}", number.wrapping_mul(2_654_435_761));
    for number in 0..3000 {
        place.create(name(number).as_bytes(), DataMode::Buffered);
    }
    let settings = SpillSettings {
        records: 20,
        ..SpillSettings::default()
    };
    let listing = SortedListing::open(place.root.as_ref(), &settings).unwrap();
    assert!(listing.is_spilled());
    let found: Vec<Vec<u8>> = listing.map(|listed| listed.unwrap().name.into()).collect();
    let mut expected: Vec<Vec<u8>> = (0..3000).map(|number| name(number).into()).collect();
    expected.sort();
    assert_eq!(found, expected);
}
