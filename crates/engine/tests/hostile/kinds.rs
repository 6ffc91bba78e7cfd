//! A sender of entries that were not requested: devices, hard links, a mode for the destination
//! itself.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use longhaul_engine::recv::keeper::{Keeper, May};
use longhaul_engine::recv::landing::{Arrival, Destination, Missing};
use longhaul_proto::attributes::{Attributes, Extended};
use longhaul_proto::filter::LeftOut;
use longhaul_proto::handshake::Landing;
use longhaul_proto::keeping::Keeping;
use longhaul_proto::manifest::{
    AnchorState, Entry, EntryId, EntryKind, SpecialKind, Timestamp, TreePath,
};
use longhaul_proto::message::Message;
use longhaul_storage::roots::Anywhere;
use longhaul_testing::await_that;

use super::peer::{Peer, Place, file, pack, short};
use crate::support::ends::arrival;

fn of_kind(id: u64, path: &[u8], kind: EntryKind) -> Entry {
    Entry {
        kind,
        ..file(id, path, 0)
    }
}

fn special(id: u64, path: &[u8], kind: SpecialKind) -> Entry {
    let (major, minor) = (1, 3);
    of_kind(id, path, EntryKind::Special { kind, major, minor })
}

#[test]
fn unrequested_kinds_of_entries_are_not_made() {
    let place = Place::new();
    std::fs::write(place.root().join("own"), b"own").unwrap();
    let mode = std::fs::metadata(place.root())
        .unwrap()
        .permissions()
        .mode();
    let mut peer = Peer::of_receiver(&place, short());
    let owned = Attributes {
        user: 12,
        group: 12,
        extended: Some(vec![Extended {
            name: b"user.a".to_vec().into(),
            value: b"1".to_vec().into(),
        }]),
        ..Attributes::default()
    };
    let dressed = Entry {
        owner: Some(Box::new(owned.clone())),
        ..file(0, b"dressed", 4)
    };
    peer.block(&pack(dressed, b"data"), b"data");
    for (id, kind) in [(1, SpecialKind::Character), (2, SpecialKind::Fifo)] {
        peer.block(&pack(special(id, b"special", kind), b""), b"");
    }
    let link = EntryKind::HardLink {
        target: TreePath::new(b"own").unwrap(),
        first: EntryId(0),
    };
    peer.block(&pack(of_kind(3, b"link", link), b""), b"");
    let anchor = AnchorState {
        mode: 0o777,
        modified: Timestamp::default(),
        owner: Some(Box::new(owned)),
        is_limit: false,
    };
    peer.say(&Message::WalkEnd {
        entries: 4,
        left_out: LeftOut::default(),
        anchor: Some(Box::new(anchor)),
    });
    let counts = || {
        let progress = peer.end.measurements().progress();
        (progress.failed_entries, progress.done_entries)
    };
    await_that(|| counts() == (3, 1));
    drop(peer);
    let root = place.root();
    for name in ["special", "link"] {
        assert!(root.join(name).symlink_metadata().is_err(), "{name}");
    }
    let own = std::fs::metadata(root.join("own")).unwrap();
    let dressed = std::fs::metadata(root.join("dressed")).unwrap();
    assert_eq!((own.nlink(), dressed.uid()), (1, own.uid()));
    let after = std::fs::metadata(&root).unwrap().permissions().mode();
    assert_eq!(after, mode);
    place.assert_untouched("kinds");
}

/// A hard link must be tied to the entry that was sent under the number that it names, and to no
/// other existing file.
// Promise 73.
#[test]
fn a_hard_link_is_tied_to_its_entry() {
    let place = Place::new();
    let root = place.root();
    std::fs::write(root.join("own"), b"own").unwrap();
    let keeping = Keeping {
        hard_links: true,
        ..Keeping::default()
    };
    let arrival = Arrival {
        keeper: Arc::new(Keeper::new(keeping, May::ANYTHING).unwrap()),
        ..arrival()
    };
    let path = [root.as_os_str().as_bytes(), b"/"].concat();
    let there = Destination::open(&Anywhere, &path, Landing::Within, Missing::Make, arrival);
    let mut peer = Peer::of_destination(there.unwrap(), short());
    peer.block(&pack(file(0, b"came", 4), b"data"), b"data");
    for (id, path, target, first) in [
        (1, &b"of own"[..], &b"own"[..], 0),
        (2, b"of came", b"came", 0),
        (3, b"of a further one", b"of came", 2),
    ] {
        let link = EntryKind::HardLink {
            target: TreePath::new(target).unwrap(),
            first: EntryId(first),
        };
        peer.block(&pack(of_kind(id, path, link), b""), b"");
    }
    let counts = || {
        let progress = peer.end.measurements().progress();
        (progress.failed_entries, progress.done_entries)
    };
    await_that(|| counts() == (2, 2));
    drop(peer);
    let status = |name: &str| std::fs::metadata(root.join(name)).unwrap();
    assert_eq!((status("own").nlink(), status("came").nlink()), (1, 2));
    assert_eq!(status("of came").ino(), status("came").ino());
    for name in ["of own", "of a further one"] {
        assert!(root.join(name).symlink_metadata().is_err(), "{name}");
    }
    place.assert_untouched("links");
}

/// Sends attributes beyond their bounds, and a hard link before its target.
// Promise 74.
#[test]
fn attributes_beyond_their_bounds_end_the_session() {
    let link = EntryKind::HardLink {
        target: TreePath::new(b"own").unwrap(),
        first: EntryId(9),
    };
    let large = Attributes {
        extended: Some(vec![Extended {
            name: b"user.a".to_vec().into(),
            value: vec![0; 64 << 10].into(),
        }]),
        ..Attributes::default()
    };
    let large = Entry {
        owner: Some(Box::new(large)),
        ..file(0, b"large", 0)
    };
    for entry in [large, of_kind(1, b"link", link)] {
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        let shown = entry.path.to_string();
        peer.say(&Message::Entries(vec![entry]));
        let ending = peer.ending(&shown);
        let text = format!("{:?}", ending.farewell);
        assert!(text.contains("out of their range"), "{shown}: {text}");
    }
}
