//! Tests of a mirrored directory with a real mount: each operation takes effect in the
//! directory behind it. Skipped with a message if mounting is not permitted.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use longhaul_lab::storage::StorageSettings;
use longhaul_lab::storage::mirror::MountedStorage;

struct Scene {
    directory: tempfile::TempDir,
    mounted: Option<MountedStorage>,
}

impl Scene {
    fn new(device: &str) -> Option<Scene> {
        let directory = tempfile::tempdir().unwrap();
        for name in ["behind", "at"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let settings: StorageSettings = device.parse().unwrap();
        let at = directory.path().join("at");
        match MountedStorage::mount(&directory.path().join("behind"), &at, &settings) {
            Ok(mounted) => Some(Scene {
                directory,
                mounted: Some(mounted),
            }),
            Err(error) => {
                longhaul_testing::skip(&format!("no FUSE mount: {error}"));
                None
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join("at").join(name)
    }

    fn behind(&self, name: &str) -> PathBuf {
        self.directory.path().join("behind").join(name)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount().unwrap();
        }
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 % 251) as u8).collect()
}

#[test]
fn files_are_the_same_on_both_sides() {
    let Some(scene) = Scene::new("") else { return };
    let data = pattern(3_000_001);
    fs::write(scene.at("file"), &data).unwrap();
    assert!(fs::read(scene.behind("file")).unwrap() == data);
    assert!(fs::read(scene.at("file")).unwrap() == data);
    let file = File::options()
        .read(true)
        .write(true)
        .open(scene.at("file"))
        .unwrap();
    file.write_all_at(b"changed", 1_000_000).unwrap();
    file.sync_all().unwrap();
    file.set_len(2_000_000).unwrap();
    let behind = fs::read(scene.behind("file")).unwrap();
    assert_eq!(behind.len(), 2_000_000);
    assert_eq!(&behind[1_000_000..1_000_007], b"changed");
    // The file is removed but still open.
    fs::remove_file(scene.at("file")).unwrap();
    let mut buffer = [0; 7];
    file.read_exact_at(&mut buffer, 1_000_000).unwrap();
    assert_eq!(&buffer, b"changed");
    assert_eq!(file.metadata().unwrap().len(), 2_000_000);
}

#[test]
fn appending_holes_and_preallocation_work() {
    let Some(scene) = Scene::new("") else { return };
    fs::write(scene.at("log"), b"one").unwrap();
    let mut log = File::options().append(true).open(scene.at("log")).unwrap();
    log.write_all(b"two").unwrap();
    assert_eq!(fs::read(scene.behind("log")).unwrap(), b"onetwo");

    let mut sparse = File::create(scene.at("sparse")).unwrap();
    sparse.seek(SeekFrom::Start(8 << 20)).unwrap();
    sparse.write_all(b"end").unwrap();
    let end = rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert_eq!(end, 8 << 20);
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&sparse, flags, 0, 1 << 20).unwrap();
    let blocks = fs::metadata(scene.behind("sparse")).unwrap().blocks();
    assert!(blocks * 512 >= 1 << 20, "{blocks}");
}

#[test]
fn names_modes_times_and_links_are_kept() {
    let Some(scene) = Scene::new("") else { return };
    fs::create_dir_all(scene.at("a/b")).unwrap();
    fs::write(scene.at("a/b/file"), b"x").unwrap();
    fs::rename(scene.at("a/b"), scene.at("c")).unwrap();
    assert_eq!(fs::read(scene.at("c/file")).unwrap(), b"x");
    fs::hard_link(scene.at("c/file"), scene.at("again")).unwrap();
    fs::remove_file(scene.at("c/file")).unwrap();
    assert_eq!(fs::metadata(scene.at("again")).unwrap().nlink(), 1);
    std::os::unix::fs::symlink("again", scene.at("link")).unwrap();
    assert_eq!(
        fs::read_link(scene.behind("link")).unwrap(),
        PathBuf::from("again")
    );
    fs::set_permissions(scene.at("again"), fs::Permissions::from_mode(0o640)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let file = File::options().write(true).open(scene.at("again")).unwrap();
    file.set_modified(time).unwrap();
    let behind = fs::metadata(scene.behind("again")).unwrap();
    assert_eq!(behind.mode() & 0o7777, 0o640);
    assert_eq!(
        (behind.mtime(), behind.mtime_nsec()),
        (1_000_000_000, 123_456_789)
    );
    let mut names: Vec<_> = fs::read_dir(scene.at("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "again", "c", "link"]);
    fs::remove_dir(scene.at("c")).unwrap();
    assert!(!scene.behind("c").exists());
}

/// The listing needs more than one answer of the kernel. Error numbers are passed
/// through.
#[test]
fn large_directories_are_listed_completely() {
    let Some(scene) = Scene::new("") else { return };
    for number in 0..3000 {
        File::create(scene.behind(&format!("file with a rather long name {number}"))).unwrap();
    }
    assert_eq!(fs::read_dir(scene.at(".")).unwrap().count(), 3000);
    let error = fs::read(scene.at("missing")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let error = fs::create_dir(scene.at("file with a rather long name 7")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}

/// Data through a device with limits are unchanged.
#[test]
fn a_slow_device_changes_no_data() {
    let device = "rate=400MBps,flow-rate=200MBps,latency=100us,operation-latency=1ms";
    let Some(scene) = Scene::new(device) else {
        return;
    };
    let data = pattern(4 << 20);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (scene, data) = (&scene, &data);
            scope.spawn(move || {
                fs::write(scene.at(&number.to_string()), data).unwrap();
                let mut back = Vec::new();
                let mut file = File::open(scene.at(&number.to_string())).unwrap();
                file.read_to_end(&mut back).unwrap();
                assert!(&back == data);
            });
        }
    });
}
