use super::*;
use crate::Creation;
use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

/// Creates `root/` with links of every kind, and a secret file next to it.
fn tree() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    fs::create_dir_all(at("root/a/b")).unwrap();
    fs::create_dir_all(at("root/other")).unwrap();
    fs::write(at("root/other/file"), b"inside").unwrap();
    fs::write(at("secret"), b"secret").unwrap();
    symlink("../../other", at("root/a/b/up")).unwrap();
    symlink("up/file", at("root/a/b/through")).unwrap();
    symlink("../other/file", at("root/a/file")).unwrap();
    symlink("nothing", at("root/a/dangling")).unwrap();
    symlink("endless", at("root/a/endless")).unwrap();
    symlink("../../secret", at("root/a/out")).unwrap();
    symlink("../../root/other/file", at("root/a/out-and-in")).unwrap();
    symlink(at("root/other/file"), at("root/a/absolute")).unwrap();
    symlink("../..", at("root/a/above")).unwrap();
    symlink("file/x", at("root/other/through-file")).unwrap();
    directory
}

fn confined(directory: &TempDir) -> Arc<dyn Directory> {
    let root = PosixDirectory::open_root(&directory.path().join("root")).unwrap();
    let reach = Reach::Beneath(Arc::clone(&root));
    Arc::new(FollowingDirectory::new(root, reach, Vec::new()))
}

fn free(directory: &TempDir) -> Arc<dyn Directory> {
    let path = directory.path().join("root");
    let root = PosixDirectory::open_root(&path).unwrap();
    let path = path.into_os_string().into_encoded_bytes();
    Arc::new(FollowingDirectory::new(root, Reach::Anywhere, path))
}

fn content(directory: &dyn Directory, name: &str) -> io::Result<Vec<u8>> {
    let status = directory.status_of(name.as_bytes())?;
    assert_eq!(status.kind, FileKind::File);
    let file = directory.open_file(name.as_bytes(), DataMode::Buffered)?;
    let mut room = [0; 100];
    let read = file.read_at(&mut room, 0)?;
    assert_eq!(read as u64, status.size);
    Ok(room[..read].to_vec())
}

fn why(result: io::Result<Vec<u8>>) -> LinkError {
    let error = result.unwrap_err();
    LinkError::within(&error).cloned().unwrap()
}

#[test]
fn followed_links_are_their_targets() {
    let directory = tree();
    for root in [confined(&directory), free(&directory)] {
        let a = root.open_directory(b"a").unwrap();
        assert_eq!(content(&*a, "file").unwrap(), b"inside");
        let b = a.open_directory(b"b").unwrap();
        assert_eq!(content(&*b, "through").unwrap(), b"inside");
        assert_eq!(b.status_of(b"up").unwrap().kind, FileKind::Directory);
        // Links inside the target of a link are relative to their own directory.
        let up = b.open_directory(b"up").unwrap();
        assert_eq!(content(&*up, "file").unwrap(), b"inside");
        assert!(b.open_file(b"up", DataMode::Buffered).is_err());
        assert!(a.open_directory(b"file").is_err());
    }
}

#[test]
fn a_broken_link_is_reported() {
    let directory = tree();
    for root in [confined(&directory), free(&directory)] {
        let a = root.open_directory(b"a").unwrap();
        let dangling = LinkError::Dangling("nothing".to_owned());
        assert_eq!(why(content(&*a, "dangling")), dangling);
        assert_eq!(why(content(&*a, "endless")), LinkError::Endless);
        let other = root.open_directory(b"other").unwrap();
        assert!(content(&*other, "through-file").is_err());
    }
}

#[test]
fn a_confined_link_does_not_leave_its_root() {
    let directory = tree();
    let root = confined(&directory);
    let a = root.open_directory(b"a").unwrap();
    for name in ["out", "out-and-in", "absolute"] {
        let why = why(content(&*a, name));
        assert!(matches!(why, LinkError::Outside(_)), "{name}: {why:?}");
    }
    assert!(a.open_directory(b"above").is_err());
    let free = free(&directory).open_directory(b"a").unwrap();
    assert_eq!(content(&*free, "out").unwrap(), b"secret");
    assert_eq!(content(&*free, "out-and-in").unwrap(), b"inside");
    assert_eq!(content(&*free, "absolute").unwrap(), b"inside");
}

#[test]
fn a_following_directory_is_read_only() {
    let directory = tree();
    let root = confined(&directory);
    let created = root.create_file(b"new", Creation::New, DataMode::Buffered);
    assert!(created.is_err());
    assert!(root.remove_file(b"other/file").is_err());
    assert!(root.sync().is_err());
}
