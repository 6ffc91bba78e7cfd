use longhaul_proto::attributes::AclTag;
use longhaul_proto::manifest::{Ownership, SpecialKind};

use super::lists::{IS_USER, NO_ENTRY, list_of};
use super::*;
use crate::attributes::{ACCESS_LIST, DEFAULT_LIST, KernelAclEntry, write_list};
use crate::posix::PosixDirectory;

fn place() -> Option<(tempfile::TempDir, Arc<dyn Directory>)> {
    let place = tempfile::tempdir().unwrap();
    let root = PosixDirectory::open_root(place.path()).unwrap();
    let takes = root.inode().unwrap().set(b"user.try", b"x");
    if takes.is_err() {
        longhaul_testing::skip("the file system of TMPDIR has no extended attributes");
        return None;
    }
    root.inode().unwrap().remove(b"user.try").unwrap();
    Some((place, FakeDirectory::around(root)))
}

fn kept(root: &dyn Directory, name: &[u8]) -> Option<String> {
    let inner = inner_of(root);
    let value = inner.inode_of(name).unwrap().get(STAT).unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn the_attribute_contains_only_metadata_that_differ() {
    let Some((_place, root)) = place() else {
        return;
    };
    let file = root
        .create_file(b"f", Creation::New, DataMode::Buffered)
        .unwrap();
    let own = file.status().unwrap().owner;
    file.set_mode(0o644).unwrap();
    assert_eq!(kept(&*root, b"f"), None);
    file.set_mode(0o4511).unwrap();
    let Ownership { user, group } = own;
    assert_eq!(
        kept(&*root, b"f").unwrap(),
        format!("104511 0,0 {user}:{group}")
    );
    assert_eq!(root.status_of(b"f").unwrap().mode, 0o4511);
    assert_eq!(inner_of(&*root).status_of(b"f").unwrap().mode, 0o711);
    let inode = root.inode_of(b"f").unwrap();
    inode.set_owner(Some(7), Some(8)).unwrap();
    assert_eq!(kept(&*root, b"f").unwrap(), "104511 0,0 7:8");
    assert_eq!(
        file.status().unwrap().owner,
        Ownership { user: 7, group: 8 }
    );
    // The represented file equals the real one again.
    inode.set_owner(Some(user), Some(group)).unwrap();
    inode.set_mode(0o600).unwrap();
    assert_eq!(kept(&*root, b"f"), None);
}

#[test]
fn special_files_and_links_are_files() {
    let Some((_place, root)) = place() else {
        return;
    };
    let special = Special {
        kind: SpecialKind::Character,
        device: (5, 1),
    };
    root.make_special(b"tty", special).unwrap();
    let status = root.status_of(b"tty").unwrap();
    assert_eq!(
        (status.kind, status.special),
        (FileKind::Special, Some(special))
    );
    assert!(kept(&*root, b"tty").unwrap().starts_with("20600 5,1 "));
    assert!(root.open_file(b"tty", DataMode::Buffered).is_err());
    root.make_symlink(b"link", b"../where").unwrap();
    assert_eq!(root.status_of(b"link").unwrap().kind, FileKind::Symlink);
    assert_eq!(&*root.read_symlink(b"link").unwrap(), b"../where");
    assert!(kept(&*root, b"link").unwrap().starts_with("120777 0,0 "));
    assert!(root.inode_of(b"link").unwrap().set_mode(0o777).is_err());
    // A real link stays a link.
    inner_of(&*root).make_symlink(b"real", b"there").unwrap();
    assert_eq!(root.status_of(b"real").unwrap().kind, FileKind::Symlink);
    assert_eq!(&*root.read_symlink(b"real").unwrap(), b"there");
    let mut names = root.list().unwrap();
    while let Some(listed) = names.next_name().unwrap() {
        assert_ne!(listed.kind, Some(FileKind::File), "{listed:?}");
    }
}

#[test]
fn attributes_of_other_namespaces_have_separate_names() {
    let Some((_place, root)) = place() else {
        return;
    };
    root.make_directory(b"d", 0o755).unwrap();
    let inode = root.inode_of(b"d").unwrap();
    let entry = |tag, id, permissions| KernelAclEntry {
        tag,
        id,
        permissions,
    };
    let list = write_list(&[
        entry(AclTag::Owner, 0, 7),
        entry(AclTag::User, 12, 5),
        entry(AclTag::OwningGroup, 0, 5),
        entry(AclTag::Group, 9, 1),
        entry(AclTag::Mask, 0, 5),
        entry(AclTag::Other, 0, 0),
    ]);
    for (name, value) in [
        (&b"user.a"[..], &b"a"[..]),
        (b"trusted.b", b"b"),
        (b"security.capability", b"c"),
        (ACCESS_LIST, &list),
        (DEFAULT_LIST, &list),
    ] {
        inode.set(name, value).unwrap();
        assert_eq!(inode.get(name).unwrap().as_deref(), Some(value));
        assert!(inode.names().unwrap().iter().any(|found| found == name));
        inode.remove(name).unwrap();
        assert_eq!(inode.get(name).unwrap(), None);
    }
    // The attribute that represents a file cannot be set as an ordinary attribute.
    assert!(inode.set(STAT, b"104755 0,0 0:0").is_err());
    inode.set_mode(0o2750).unwrap();
    assert_eq!(inode.get(STAT).unwrap(), None);
    assert!(inode.names().unwrap().is_empty());
}

#[test]
fn invalid_lists_and_statuses_are_not_parsed() {
    let status = Status {
        kind: FileKind::File,
        mode: 0o600,
        owner: Ownership::default(),
        size: 9,
        allocated: 0,
        device: 1,
        inode: 2,
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        names: 1,
        special: None,
    };
    for bad in [
        "",
        "100644",
        "100644 0,0",
        "100644 0,0 1",
        "100648 0,0 1:1",
        "644 0,0 1:1",
        "40755 0,0 1:1",
        "100644 0,0 -1:1",
        "100644 0,0 4294967296:1",
    ] {
        assert_eq!(Faked::read(bad.as_bytes(), &status), None, "{bad}");
    }
    assert!(Faked::read(b"\xff", &status).is_none());
    let device = Faked::read(b"60660 8,1 0:6", &status).unwrap();
    assert_eq!(device.status(status).size, 0);
    assert_eq!(Faked::read(&device.write(), &status), Some(device));
    // rsync omits entries that the mode already defines.
    let stripped: Vec<u8> = [NO_ENTRY, NO_ENTRY, NO_ENTRY, NO_ENTRY, 7, 6 | IS_USER]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let list = list_of(&stripped, 0o754).unwrap();
    let found: Vec<(AclTag, u8)> = list.iter().map(|e| (e.tag, e.permissions)).collect();
    let wanted = [
        (AclTag::Owner, 7),
        (AclTag::User, 6),
        (AclTag::OwningGroup, 5),
        (AclTag::Mask, 5),
        (AclTag::Other, 4),
    ];
    assert_eq!(found, wanted);
    for bad in [&stripped[..15], &stripped[..20], &[9; 16]] {
        assert_eq!(list_of(bad, 0o754), None);
    }
}
