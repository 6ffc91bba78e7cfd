//! Tests that a session with too many open files waits for another one to close some, without the
//! locks that closing needs.

#![allow(clippy::unwrap_used)]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use longhaul_proto::block::Piece;
use longhaul_proto::handshake::Landing;
use longhaul_proto::manifest::{SourceIdentity, Timestamp, TreePath};
use longhaul_storage::roots::Anywhere;
use longhaul_system::descriptors::scarce;

use super::*;
use crate::recv::landing::{Arrival, Missing};
use crate::session::Transfer;

const SIZE: u64 = 3 << 20;

fn receiver(root: &Path) -> (Arc<Transfer>, Arc<ReceiveSide>) {
    let arrival = Arrival::of_tests();
    let path = [root.as_os_str().as_bytes(), b"/"].concat();
    let there = Destination::open(&Anywhere, &path, Landing::Within, Missing::Make, arrival);
    let there = there.unwrap();
    let settings = TransferSettings {
        epoch: there.take().unwrap(),
        ..TransferSettings::default()
    };
    let side = Arc::new(ReceiveSide::new(there));
    let transfer = Transfer::receiving_into(settings, &side, Arc::new(|_| {}));
    (transfer, side)
}

/// Returns a large file whose first piece has arrived.
fn begun(receiving: Receiving<'_>) -> Entry {
    let entry = Entry {
        id: EntryId(0),
        parent: None,
        path: TreePath::new(b"large").unwrap(),
        kind: EntryKind::File {
            identity: SourceIdentity {
                inode: 1,
                size: SIZE,
                ..SourceIdentity::default()
            },
            sparse: false,
        },
        mode: 0o644,
        modified: Timestamp::default(),
        owner: None,
    };
    let piece = Piece {
        entry: entry.clone(),
        generation: 0,
        offset: 0,
        length: 1 << 20,
        extents: None,
        checksum: None,
    };
    let told = receiving.tell(|receiver| receiver.handle_piece(&piece));
    told.unwrap().unwrap();
    entry
}

/// Runs an action that first finds too many files open. Returns its result, how often it waited,
/// and how often it held the lock of parts meanwhile.
fn scarcely<T>(side: &Arc<ReceiveSide>, what: impl FnOnce() -> T) -> (T, usize, usize) {
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (seen, parts) = (Arc::clone(&counts), Arc::clone(side));
    let waits = move || {
        seen[0].fetch_add(1, Ordering::Relaxed);
        let keeps = parts.parts.open.try_lock().is_err();
        seen[1].fetch_add(usize::from(keeps), Ordering::Relaxed);
    };
    let done = scarce::during(3, waits, what);
    let [waited, kept] = [0, 1].map(|at: usize| counts[at].load(Ordering::Relaxed));
    (done, waited, kept)
}

#[test]
fn a_part_is_opened_later_without_the_lock_of_parts() {
    let place = tempfile::tempdir().unwrap();
    let (transfer, side) = receiver(place.path());
    let entry = begun(side.at_work(&transfer));
    let (opened, waited, kept) = scarcely(&side, || side.at_work(&transfer).part(&entry, 0));
    assert!(opened.is_ok(), "{:?}", opened.err());
    assert_eq!((waited, kept), (3, 0));
}

#[test]
fn the_part_of_an_earlier_run_is_claimed_later() {
    let place = tempfile::tempdir().unwrap();
    let (transfer, side) = receiver(place.path());
    let entry = begun(side.at_work(&transfer));
    side.at_work(&transfer).part(&entry, 0).unwrap();
    side.parts.leave_behind(entry.id, 0);
    let anchor = side.folders.anchor();
    let resume = || side.at_work(&transfer).resume_part(anchor, &entry);
    let (resumed, waited, _) = scarcely(&side, resume);
    assert!(resumed.is_ok(), "{:?}", resumed.err());
    assert_eq!(waited, 3);
}

#[test]
fn operations_do_not_wait_while_the_session_is_locked() {
    let place = tempfile::tempdir().unwrap();
    let (_transfer, side) = receiver(place.path());
    let (owned, waited, _) = scarcely(&side, || side.destination.while_owned(|| ()));
    // The check of ownership needs a descriptor.
    assert!(owned.is_err());
    assert_eq!(waited, 0);
}
