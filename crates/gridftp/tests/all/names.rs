//! Names at real servers: listings, directories, renames, times.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use longhaul_gridftp::Error;
use longhaul_gridftp::protocol::facts::{Entry, EntryKind};
use longhaul_gridftp::protocol::time::FileTime;
use longhaul_gridftp::session::names::modified_argument;
use longhaul_gridftp::session::{Listed, Session};

use super::servers::{Kind, Server, all};

fn list(session: &mut Session, directory: &[u8]) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    let mut found = |listed| {
        match listed {
            Listed::Entry(entry) => entries.push(entry),
            Listed::Unreadable(text) => unreadable.push(text),
        }
        Ok(())
    };
    session.list(directory, &mut found).unwrap();
    session.complete(directory, &mut entries).unwrap();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    (entries, unreadable)
}

#[test]
fn a_listing_has_all_entries_with_size_and_time() {
    for server in all() {
        let directory = server.local("d e;f");
        std::fs::create_dir(&directory).unwrap();
        let names: [&[u8]; 7] = [
            b"  two",
            b".hidden",
            b"-rf",
            b"a b;c=d; e",
            b"caf\xc3\xa9",
            b"plain",
            b"x -> y",
        ];
        for (size, name) in names.iter().enumerate() {
            let path = directory.join(std::ffi::OsStr::from_bytes(name));
            std::fs::write(&path, vec![0; size]).unwrap();
        }
        std::fs::create_dir(directory.join("sub")).unwrap();
        let mut session = server.session();
        let (entries, unreadable) = list(&mut session, &server.remote("d e;f"));
        assert_eq!(unreadable, [""; 0]);
        let found: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        let mut expected = [&names[..], &[b"sub"]].concat();
        expected.sort_unstable();
        assert_eq!(found, expected, "{:?}", server.kind);
        for entry in &entries {
            let path = directory.join(std::ffi::OsStr::from_bytes(&entry.name));
            let status = std::fs::metadata(path).unwrap();
            if entry.kind == EntryKind::File {
                assert_eq!(entry.size, Some(status.len()), "{entry:?}");
                assert_eq!(entry.modified.unwrap().seconds, status.mtime());
            } else {
                assert_eq!(entry.kind, EntryKind::Directory);
            }
            assert_eq!(entry.mode, Some(status.mode() & 0o7777), "{entry:?}");
        }
    }
}

#[test]
fn a_name_with_a_line_break_is_reported_and_not_another_file() {
    for server in all() {
        std::fs::write(server.local("new\nline"), "x").unwrap();
        std::fs::write(server.local("plain"), "x").unwrap();
        let (entries, unreadable) = list(&mut server.session(), &server.remote(""));
        let has = |name: &[u8]| entries.iter().any(|entry| entry.name == name);
        assert!(has(b"plain") && !has(b"new"), "{entries:?}");
        assert!(!unreadable.is_empty());
    }
}

#[test]
fn an_absent_directory_is_not_an_empty_one() {
    for server in all() {
        let mut session = server.session();
        let mut found = |_| panic!("an entry");
        let refused = session.list(&server.remote("absent"), &mut found);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        assert_eq!(session.status(&server.remote("absent")).unwrap(), None);
    }
}

#[test]
fn names_are_made_changed_and_removed() {
    for server in all() {
        let mut session = server.session();
        let at = |name: &str| server.remote(name);
        for _ in 0..2 {
            session.make_directory(&at("d")).unwrap();
        }
        std::fs::write(server.local("file"), "x").unwrap();
        assert!(session.make_directory(&at("file")).is_err());
        assert!(session.is_directory(&at("d")).unwrap());
        assert!(!session.is_directory(&at("file")).unwrap());
        let status = session.status(&at("file")).unwrap().unwrap();
        assert_eq!((status.kind, status.size), (EntryKind::File, Some(1)));
        let status = session.status(&at("d")).unwrap().unwrap();
        assert_eq!(status.kind, EntryKind::Directory);
        assert_eq!(status.name, b"d");
        session.rename(&at("file"), &at("d/moved")).unwrap();
        assert!(server.local("d/moved").exists());
        assert!(session.rename(&at("file"), &at("x")).is_err());
        assert!(session.remove_directory(&at("d")).is_err());
        session.remove_file(&at("d/moved")).unwrap();
        session.remove_directory(&at("d")).unwrap();
        assert!(!server.local("d").exists());
    }
}

#[test]
fn the_time_of_a_file_is_set_if_the_server_can() {
    for server in all() {
        let mut session = server.session();
        let path = server.remote("f");
        let source = super::servers::Memory::of(b"x");
        let put = longhaul_gridftp::store::Put {
            path: &path,
            size: 1,
            present: Default::default(),
            source: &source,
        };
        session
            .store(&[put], &mut |_, result| result.unwrap())
            .unwrap();
        let time = FileTime {
            seconds: 1_577_836_800,
            nanoseconds: 0,
        };
        let argument = modified_argument(&path, time).unwrap();
        let replies = session.commands(&[("MFMT", argument)]).unwrap();
        let sets_times = server.kind == Kind::Globus;
        assert_eq!(session.features().set_time, sets_times);
        assert_eq!(replies[0].is_success(), sets_times);
        if sets_times {
            let status = session.status(&path).unwrap().unwrap();
            assert_eq!(status.modified, Some(time));
        }
    }
}

#[test]
fn a_name_that_ftp_cannot_express_is_refused_and_the_session_continues() {
    let Some(server) = Server::start(Kind::Vsftpd) else {
        return;
    };
    let mut session = server.session();
    let refused = session.remove_file(b"/data/a\r\nDELE b").unwrap_err();
    assert!(!refused.ends_session(), "{refused}");
    assert!(!session.is_directory(b"/data/b").unwrap());
}
