#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::resolution::Resolution;
use crate::{Creation, DataMode};

fn root(path: &Path, resolution: Resolution) -> Arc<dyn Directory> {
    PosixDirectory::open_root_with(path, resolution).unwrap()
}

fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

/// Runs a test with both methods, if the kernel supports them.
fn by_both(test: impl Fn(Resolution)) {
    match Resolution::available() {
        Resolution::Kernel => test(Resolution::Kernel),
        Resolution::Walk => {
            longhaul_testing::skip_without_kernel("openat2 is absent or forbidden");
        }
    }
    test(Resolution::Walk);
}

#[test]
fn opens_several_names_at_once() {
    by_both(|way| {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b/c")).unwrap();
        let root = root(directory.path(), way);
        let opened = open_beneath(root.as_ref(), &path("a/b/c")).unwrap();
        let creation = Creation::New;
        opened
            .create_file(b"file", creation, DataMode::Buffered)
            .unwrap();
        assert!(directory.path().join("a/b/c/file").is_file());
        let missing = open_beneath(root.as_ref(), &path("a/x")).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let file = open_beneath(root.as_ref(), &path("a/b/c/file"));
        assert_eq!(file.err().unwrap().kind(), io::ErrorKind::NotADirectory);
    });
}

#[test]
fn follows_no_link_in_any_place() {
    by_both(|way| {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("real/below")).unwrap();
        symlink("real", directory.path().join("link")).unwrap();
        symlink("/", directory.path().join("out")).unwrap();
        symlink("below", directory.path().join("real/last")).unwrap();
        let root = root(directory.path(), way);
        for hostile in ["link", "link/below", "out", "out/tmp", "real/last"] {
            assert!(open_beneath(root.as_ref(), &path(hostile)).is_err());
        }
        assert!(root.open_directory(b"link").is_err());
    });
}

#[test]
fn the_root_itself_may_be_a_link() {
    by_both(|way| {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("real/below")).unwrap();
        symlink("real", directory.path().join("link")).unwrap();
        let root = root(&directory.path().join("link"), way);
        assert!(open_beneath(root.as_ref(), &path("below")).is_ok());
    });
}

#[test]
fn names_that_lead_up_or_elsewhere_are_refused() {
    by_both(|way| {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let root = root(&directory.path().join("a"), way);
        for name in [&b""[..], b".", b"..", b"../a", b"b/", b"/", b"/tmp", b"b\0"] {
            let refused = io::ErrorKind::InvalidInput;
            let opened = root.open_directory(name);
            assert_eq!(opened.err().unwrap().kind(), refused);
            let opened = root.open_file(name, DataMode::Buffered);
            assert_eq!(opened.err().unwrap().kind(), refused);
            assert_eq!(root.status_of(name).unwrap_err().kind(), refused);
            assert_eq!(root.remove_directory(name).unwrap_err().kind(), refused);
            let renamed = root.rename(b"b", root.as_ref(), name);
            assert_eq!(renamed.unwrap_err().kind(), refused);
        }
    });
}

#[test]
fn paths_longer_than_one_call_takes_are_walked() {
    by_both(|way| {
        let directory = tempfile::tempdir().unwrap();
        let name = "n".repeat(250);
        let mut current = root(directory.path(), way);
        for _ in 0..20 {
            current.make_directory(name.as_bytes(), 0o700).unwrap();
            current = current.open_directory(name.as_bytes()).unwrap();
        }
        let long = path(&vec![name; 20].join("/"));
        assert!(long.as_bytes().len() > CALL_PATH_MAXIMUM);
        let root = root(directory.path(), way);
        let opened = open_beneath(root.as_ref(), &long).unwrap();
        assert_eq!(opened.status().unwrap(), current.status().unwrap());
    });
}

/// A directory is swapped for a link that leads out, and back, while it is opened repeatedly. The
/// opened directory is always the one inside.
#[test]
fn a_directory_swapped_for_a_link_does_not_lead_out() {
    by_both(|way| {
        let inside = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(inside.path().join("a/below")).unwrap();
        fs::create_dir_all(outside.path().join("below")).unwrap();
        symlink(outside.path(), inside.path().join("hostile")).unwrap();
        let root = root(inside.path(), way);
        let wanted = open_beneath(root.as_ref(), &path("a/below")).unwrap();
        let wanted = wanted.status().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| swap_until(&done, inside.path()));
            let _ended = Ended(&done);
            for _ in 0..5000 {
                if let Ok(opened) = open_beneath(root.as_ref(), &path("a/below")) {
                    let found = opened.status().unwrap();
                    assert_eq!((found.device, found.inode), (wanted.device, wanted.inode));
                }
            }
        });
    });
}

/// Ends the swapping, even if the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn swap_until(done: &AtomicBool, inside: &Path) {
    let (genuine, hostile) = (inside.join("a"), inside.join("hostile"));
    let aside = inside.join("aside");
    while !done.load(Ordering::Relaxed) {
        fs::rename(&genuine, &aside).unwrap();
        fs::rename(&hostile, &genuine).unwrap();
        fs::rename(&genuine, &hostile).unwrap();
        fs::rename(&aside, &genuine).unwrap();
    }
}
