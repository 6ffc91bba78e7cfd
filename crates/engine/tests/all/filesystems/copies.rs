//! Whole copies within a file system: direct I/O, holes and the page cache must be used as promised
//! by a complete copy, not only by single calls.

use std::ops::Range;
use std::sync::Arc;

use longhaul_engine::send::source::What;
use longhaul_engine::session::TransferSettings;
use longhaul_storage::{Advice, Creation, DataMode, Directory};
use longhaul_units::ByteCount;

use super::cache::resident_pages;
use super::suite::{Expected, Place, byte_at};
use crate::support::ends::{Ends, destination, settings, sources};

const MIB: usize = 1 << 20;

/// Memory for blocks at each end.
const BUDGET: ByteCount = ByteCount(4 << 20);

/// Number of pages of a range that may stay in the cache. The kernel does not drop a page that
/// another core uses at the moment.
const IN_USE: usize = 4;

/// Number of pages that direct reads may leave in the cache. btrfs reads through the cache into
/// memory that was never touched before, so once into each buffer.
const UNTOUCHED: usize = (BUDGET.0 / 4096) as usize;

/// Size of a file that is large enough to spare the cache (256 MiB), almost entirely a hole.
const SPARSE_BYTES: usize = 257 * MIB + 1000;

/// Ranges of data in the source: two, of whole pages, with holes before, between and after them.
const DATA: [Range<usize>; 2] = [2 * MIB..4 * MIB, 250 * MIB..251 * MIB];

/// Copies one file from `source` to `target` beneath a place. Returns the reports of both ends on
/// their I/O mode.
fn copy(place: &Place, name: &[u8], settings: TransferSettings) -> [String; 2] {
    place.root.make_directory(b"target", 0o755).unwrap();
    let target = place.root.open_directory(b"target").unwrap();
    let there = destination(target);
    let settings = TransferSettings {
        epoch: there.take().unwrap(),
        ..settings
    };
    let what = What::File {
        name: name.into(),
        landing: name.into(),
    };
    let ends = Ends::start(settings, sources(place.root.clone(), what), there);
    for number in 0..2 {
        ends.join(number, false);
    }
    let both = [ends.sender.clone(), ends.receiver.clone()];
    let ended = ends.finish("a file system of its own");
    assert!(ended.is_complete(), "{:?}", ended.sent.failed);
    both.map(|end| end.summary().describe())
}

/// Creates a file with data in these ranges, durable and not cached.
fn make(place: &Place, name: &[u8], size: usize, data: &[Range<usize>]) {
    let file = place
        .root
        .create_file(name, Creation::New, DataMode::Buffered);
    let file = file.unwrap();
    file.set_length(size as u64).unwrap();
    for range in data {
        let bytes: Vec<u8> = range.clone().map(byte_at).collect();
        file.write_at(&bytes, range.start as u64).unwrap();
    }
    file.sync_all().unwrap();
    file.advise(Advice::DropCache, 0, 0);
}

fn assert_same(place: &Place, name: &[u8], data: &[Range<usize>], size: usize) {
    let target: Arc<dyn Directory> = place.root.open_directory(b"target").unwrap();
    let file = target.open_file(name, DataMode::Buffered).unwrap();
    assert_eq!(file.status().unwrap().size, size as u64);
    for range in data {
        let mut found = vec![0; range.len()];
        let read = file.read_at(&mut found, range.start as u64).unwrap();
        assert_eq!(read, range.len());
        let expected = range.clone().map(byte_at);
        assert!(found.iter().copied().eq(expected), "{range:?}");
    }
}

/// With `--direct`, both ends bypass the page cache if the file system permits it, and report the
/// mode that was used.
pub fn direct_copy(place: &Place, expected: &Expected) {
    let size = 16 * MIB + 1234;
    let whole = [Range {
        start: 0,
        end: size,
    }];
    make(place, b"f", size, &whole);
    let settings = TransferSettings {
        direct: true,
        block_bytes: MIB,
        budget: BUDGET,
        ..settings()
    };
    let said = copy(place, b"f", settings);
    let is_direct = expected.direct == DataMode::Direct;
    for said in said {
        assert_eq!(said.contains("; direct I/O"), is_direct, "{said}");
        assert_eq!(said.contains("does no direct I/O"), !is_direct, "{said}");
    }
    if is_direct {
        for copy in ["f", "target/f"] {
            let resident = resident_pages(&place.path.join(copy), 0..16 * MIB);
            assert!(
                resident <= UNTOUCHED,
                "{resident} pages of {copy} are cached"
            );
        }
    }
    assert_same(place, b"f", &whole, size);
}

/// A large file leaves the data of neither end in the page cache. Its holes stay holes, although
/// space is reserved for files without holes.
pub fn sparing_copy(place: &Place, expected: &Expected) {
    make(place, b"f", SPARSE_BYTES, &DATA);
    let settings = TransferSettings {
        block_bytes: MIB,
        budget: BUDGET,
        ..settings()
    };
    for said in copy(place, b"f", settings) {
        assert!(said.contains("; buffered I/O at this end"), "{said}");
    }
    if !expected.is_page_cache {
        for copy in ["f", "target/f"] {
            for data in DATA {
                let resident = resident_pages(&place.path.join(copy), data.clone());
                assert!(
                    resident <= IN_USE,
                    "{resident} pages of {data:?} of {copy} are in the page cache"
                );
            }
        }
    }
    let target = place.root.open_directory(b"target").unwrap();
    let status = target.status_of(b"f").unwrap();
    assert!(status.allocated < 5 * MIB as u64, "{status:?}");
    assert_same(place, b"f", &DATA, SPARSE_BYTES);
}
