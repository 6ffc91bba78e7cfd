#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use longhaul_proto::manifest::SpecialKind;

use super::*;
use crate::{Advice, DIRECT_ALIGNMENT_BYTES, DataRange};

struct Place {
    directory: tempfile::TempDir,
    root: Arc<dyn Directory>,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let root = PosixDirectory::open_root(directory.path()).unwrap();
    Place { directory, root }
}

impl Place {
    fn new_file(&self, name: &[u8]) -> Arc<dyn StoredFile> {
        let mode = DataMode::Buffered;
        self.root.create_file(name, Creation::New, mode).unwrap()
    }

    fn open_error(&self, name: &[u8]) -> io::Error {
        self.root.open_file(name, DataMode::Buffered).err().unwrap()
    }

    fn create_error(&self, name: &[u8], creation: Creation) -> io::Error {
        let mode = DataMode::Buffered;
        self.root.create_file(name, creation, mode).err().unwrap()
    }
}

const CREATIONS: [Creation; 3] = [Creation::New, Creation::Existing, Creation::Either];

#[test]
fn files_are_created_as_requested() {
    let place = place();
    let existing = place.create_error(b"f", Creation::Existing);
    assert_eq!(existing.kind(), io::ErrorKind::NotFound);
    place.new_file(b"f").write_at(b"kept", 0).unwrap();
    let new = place.create_error(b"f", Creation::New);
    assert_eq!(new.kind(), io::ErrorKind::AlreadyExists);
    let mode = DataMode::Buffered;
    let file = place
        .root
        .create_file(b"f", Creation::Either, mode)
        .unwrap();
    assert_eq!(file.status().unwrap().size, 4);
    assert_eq!(file.status().unwrap().mode, 0o600);
}

/// The kernel reports `ENOENT` for a removed directory, and so do failed FUSE servers.
#[cfg(target_os = "linux")]
#[test]
fn a_listing_that_ends_with_an_error_is_not_an_empty_one() {
    let place = place();
    place.root.make_directory(b"d", 0o700).unwrap();
    let removed = place.root.open_directory(b"d").unwrap();
    let mut listing = removed.list().unwrap();
    place.root.remove_directory(b"d").unwrap();
    let error = listing.next_name().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(listing.next_name().unwrap(), None);
}

#[test]
fn a_listing_has_each_name_once() {
    let place = place();
    let names = (0..1000).map(|number| format!("{number:0>60}").into_bytes());
    let names: Vec<Vec<u8>> = names.collect();
    names.iter().for_each(|name| drop(place.new_file(name)));
    let mut listing = place.root.list().unwrap();
    let mut listed = Vec::new();
    while let Some(next) = listing.next_name().unwrap() {
        listed.push(next.name.into_vec());
    }
    listed.sort();
    assert_eq!(listed, names);
}

#[test]
fn a_link_is_never_followed() {
    let place = place();
    fs::write(place.directory.path().join("target"), b"secret").unwrap();
    symlink("target", place.directory.path().join("link")).unwrap();
    symlink("nothing", place.directory.path().join("dangling")).unwrap();
    for name in [&b"link"[..], b"dangling"] {
        place.open_error(name);
        for creation in CREATIONS {
            place.create_error(name, creation);
        }
        assert!(place.root.open_directory(name).is_err());
        assert_eq!(place.root.status_of(name).unwrap().kind, FileKind::Symlink);
    }
    assert!(!place.directory.path().join("nothing").exists());
}

#[test]
fn special_files_are_refused_without_blocking() {
    let place = place();
    let fifo = place.directory.path().join("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let socket = place.directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    for name in [&b"fifo"[..], b"socket"] {
        assert_eq!(place.open_error(name).kind(), io::ErrorKind::InvalidInput);
        let error = place.create_error(name, Creation::Either);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(place.root.status_of(name).unwrap().kind, FileKind::Special);
    }
    place.root.make_directory(b"directory", 0o700).unwrap();
    let error = place.open_error(b"directory");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn reads_end_with_the_file() {
    let place = place();
    let file = place.new_file(b"f");
    file.write_at(b"0123456789", 5).unwrap();
    let mut buffer = [1; 20];
    assert_eq!(file.read_at(&mut buffer, 3).unwrap(), 12);
    assert_eq!(&buffer[..12], b"\0\x000123456789");
    assert_eq!(file.read_at(&mut buffer, 100).unwrap(), 0);
    file.set_length(7).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 7);
}

#[test]
fn names_are_bytes() {
    let place = place();
    let name = b"\xff\xfe new\nline";
    place.new_file(name);
    let mut list = place.root.list().unwrap();
    let listed = list.next_name().unwrap().unwrap();
    assert_eq!(&*listed.name, name);
    assert_eq!(list.next_name().unwrap(), None);
    assert_eq!(list.next_name().unwrap(), None);
    place.root.remove_file(name).unwrap();
}

#[test]
fn two_listings_do_not_disturb_each_other() {
    let place = place();
    for name in [b"a", b"b", b"c"] {
        place.new_file(name);
    }
    let mut one = place.root.list().unwrap();
    one.next_name().unwrap();
    let mut other = place.root.list().unwrap();
    let mut count = 0;
    while other.next_name().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
    assert!(one.next_name().unwrap().is_some());
}

#[test]
fn times_have_nanoseconds_and_both_are_given() {
    let place = place();
    let file = place.new_file(b"f");
    let accessed = |name: &str| {
        let path = place.directory.path().join(name);
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.atime(), metadata.atime_nsec())
    };
    // FUSE file systems on version 2 of its library set both times or none. The access time becomes
    // the current time.
    let before = accessed("f");
    let long_ago = std::fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
    let path = place.directory.path().join("f");
    fs::File::open(path).unwrap().set_times(long_ago).unwrap();
    for seconds in [1_700_000_000, -1] {
        let modified = Timestamp {
            seconds,
            nanoseconds: 123_456_789,
        };
        file.set_modified(modified).unwrap();
        assert_eq!(file.status().unwrap().modified, modified);
        place.root.set_modified(modified).unwrap();
        assert_eq!(place.root.status().unwrap().modified, modified);
        let _ = place.root.remove_file(b"link");
        place.root.make_symlink(b"link", b"f").unwrap();
        place.root.set_modified_of(b"link", modified).unwrap();
        assert_eq!(place.root.status_of(b"link").unwrap().modified, modified);
    }
    assert!(accessed("f") >= before);
}

#[test]
fn nanoseconds_that_mean_now_to_the_kernel_are_refused() {
    let place = place();
    let file = place.new_file(b"f");
    for nanoseconds in [1_000_000_000, 0x3fff_ffff, 0x3fff_fffe, u32::MAX] {
        let hostile = Timestamp {
            seconds: 0,
            nanoseconds,
        };
        let refused = io::ErrorKind::InvalidInput;
        assert_eq!(file.set_modified(hostile).unwrap_err().kind(), refused);
        let of_name = place.root.set_modified_of(b"f", hostile);
        assert_eq!(of_name.unwrap_err().kind(), refused);
    }
}

#[test]
fn modes_are_permission_bits() {
    let place = place();
    let file = place.new_file(b"f");
    file.set_mode(0o640).unwrap();
    assert_eq!(file.status().unwrap().mode, 0o640);
    assert!(file.set_mode(0o100_644).is_err());
    place.root.make_directory(b"d", 0o700).unwrap();
    place
        .root
        .open_directory(b"d")
        .unwrap()
        .set_mode(0o1770)
        .unwrap();
    let metadata = fs::metadata(place.directory.path().join("d")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o1770);
}

#[test]
fn rename_replaces_between_directories() {
    let place = place();
    place.root.make_directory(b"d", 0o700).unwrap();
    let below = place.root.open_directory(b"d").unwrap();
    place.new_file(b"from").write_at(b"new", 0).unwrap();
    let old = below.create_file(b"to", Creation::New, DataMode::Buffered);
    old.unwrap().write_at(b"older", 0).unwrap();
    place.root.rename(b"from", below.as_ref(), b"to").unwrap();
    assert_eq!(below.status_of(b"to").unwrap().size, 3);
    let gone = place.root.status_of(b"from").unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    below.remove_file(b"to").unwrap();
    place.root.remove_directory(b"d").unwrap();
}

#[test]
fn links_hold_any_target() {
    let place = place();
    let target = [b'x'; 4000];
    place.root.make_symlink(b"link", &target).unwrap();
    assert_eq!(*place.root.read_symlink(b"link").unwrap(), target);
}

#[test]
fn a_lock_belongs_to_one_open_file() {
    let place = place();
    let one = place.new_file(b"f");
    let mode = DataMode::Buffered;
    let other = place.root.create_file(b"f", Creation::Existing, mode);
    let other = other.unwrap();
    assert!(one.try_lock().unwrap());
    assert!(!other.try_lock().unwrap());
    drop(one);
    assert!(other.try_lock().unwrap());
}

#[test]
fn syncs_and_advice_are_taken() {
    let place = place();
    let file = place.new_file(b"f");
    file.write_at(&[1; 10_000], 0).unwrap();
    for advice in [
        Advice::Sequential,
        Advice::StartWriteback,
        Advice::DropCache,
    ] {
        file.advise(advice, 0, 10_000);
        file.advise(advice, u64::MAX, u64::MAX);
    }
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    place.root.sync().unwrap();
}

#[test]
fn data_of_a_file_without_holes_is_one_run() {
    let place = place();
    let file = place.new_file(b"f");
    assert_eq!(file.next_data(0).unwrap(), None);
    file.write_at(&[1; 10_000], 0).unwrap();
    let whole = DataRange {
        start: 100,
        end: 10_000,
    };
    assert_eq!(file.next_data(100).unwrap(), Some(whole));
    assert_eq!(file.next_data(10_000).unwrap(), None);
    assert_eq!(file.next_data(u64::MAX).unwrap(), None);
}

/// Data is the same in all modes, even if the file system of the tests does not support a mode,
/// with aligned and unaligned offsets, lengths and memory.
#[test]
fn every_mode_reads_data_written_in_every_mode() {
    let place = place();
    let mut room = Vec::new();
    let buffer = aligned(&mut room);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at % 251) as u8 + 1;
    }
    let pieces = [
        (0, 0, 8192),
        (8192, 0, 5000),
        (13_192, 7, 300),
        (13_492, 0, 4096),
    ];
    for (name, mode) in [
        (b"b", DataMode::Buffered),
        (b"d", DataMode::Direct),
        (b"u", DataMode::Uncached),
    ] {
        let file = place.root.create_file(name, Creation::New, mode).unwrap();
        let mut expected = Vec::new();
        for (offset, from, length) in pieces {
            let data = &buffer[from..from + length];
            file.write_at(data, offset).unwrap();
            expected.extend_from_slice(data);
        }
        file.sync_data().unwrap();
        assert_eq!(file.status().unwrap().size, expected.len() as u64);
        for mode in [DataMode::Buffered, DataMode::Direct, DataMode::Uncached] {
            assert_eq!(read_all(place.root.as_ref(), name, mode), expected);
        }
    }
}

/// Returns 16 KiB of `room` that are aligned for direct I/O.
fn aligned(room: &mut Vec<u8>) -> &mut [u8] {
    room.resize(16_384 + DIRECT_ALIGNMENT_BYTES, 0);
    let skip = room.as_ptr().align_offset(DIRECT_ALIGNMENT_BYTES);
    &mut room[skip..][..16_384]
}

fn read_all(root: &dyn Directory, name: &[u8], mode: DataMode) -> Vec<u8> {
    let file = root.open_file(name, mode).unwrap();
    let mut room = Vec::new();
    let buffer = aligned(&mut room);
    let mut all = Vec::new();
    loop {
        let count = file.read_at(&mut buffer[..8192], all.len() as u64).unwrap();
        all.extend_from_slice(&buffer[..count]);
        if count < 8192 {
            return all;
        }
    }
}

/// Another process may give a name to another file while its owner and mode are set.
#[test]
fn changes_apply_to_the_inode_that_had_the_name_first() {
    let place = place();
    let fifo = Special {
        kind: SpecialKind::Fifo,
        device: (0, 0),
    };
    for name in [&b"one"[..], b"other"] {
        place.root.make_special(name, fifo).unwrap();
    }
    let path = |name: &str| place.directory.path().join(name);
    let mode = |name: &str| fs::symlink_metadata(path(name)).unwrap().mode() & 0o7777;
    let before = mode("other");
    let inode = place.root.inode_of(b"one").unwrap();
    let found = inode.status().unwrap();
    assert_eq!((found.special, found.names), (Some(fifo), 1));
    fs::rename(path("one"), path("away")).unwrap();
    fs::rename(path("other"), path("one")).unwrap();
    inode.set_mode(0o640).unwrap();
    let (user, group) = (found.owner.user, found.owner.group);
    inode.set_owner(Some(user), Some(group)).unwrap();
    assert_eq!((mode("away"), mode("one")), (0o640, before));
    assert_eq!(inode.status().unwrap().inode, found.inode);
    // A link is not followed, and has no mode.
    symlink("away", path("link")).unwrap();
    let link = place.root.inode_of(b"link").unwrap();
    assert_eq!(link.status().unwrap().kind, FileKind::Symlink);
    link.set_owner(Some(user), Some(group)).unwrap();
    assert!(link.set_mode(0o777).is_err());
    assert_eq!(link.get(b"user.x").unwrap(), None);
    assert_eq!(mode("away"), 0o640);
}
