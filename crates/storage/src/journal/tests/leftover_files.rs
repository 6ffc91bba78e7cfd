//! Listing and expiry of leftovers.

use std::time::Duration;

use super::super::gate::{create_held, hold};
use super::super::{LeftoverKind, expire, leftovers, names};
use super::*;
use crate::forgetting::ForgettingStorage;
use crate::{Creation, StoredFile};

const HOUR: Duration = Duration::from_secs(3600);

fn later(storage: &ForgettingStorage, duration: Duration) -> Timestamp {
    let mut now = storage.root().status().unwrap().modified;
    now.seconds += duration.as_secs() as i64 + 1;
    now
}

fn expired(storage: &ForgettingStorage, after: Duration) -> Vec<(Box<[u8]>, u64)> {
    let mut removed = Vec::new();
    let now = later(storage, after);
    expire(&*storage.root(), HOUR, now, u64::MAX, &mut |name, bytes| {
        removed.push((name.into(), bytes.unwrap()));
    })
    .unwrap();
    removed
}

#[test]
fn leftovers_have_kinds() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let partial = claim(&root, FIRST, 7);
    FIRST.receive(&partial, 1).unwrap();
    root.create_file(&names::temporary(3, 4), Creation::New, DataMode::Buffered)
        .unwrap();
    root.create_file(b"mine", Creation::New, DataMode::Buffered)
        .unwrap();
    root.create_file(b".longhaul-mine", Creation::New, DataMode::Buffered)
        .unwrap();
    let found: Vec<_> = leftovers(root.clone())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(found.len(), 3);
    for leftover in &found {
        assert_eq!(leftover.held, leftover.kind != LeftoverKind::Temporary);
        assert!(leftover.age(later(&storage, HOUR)) >= HOUR);
        match &leftover.kind {
            LeftoverKind::Part => assert_eq!(leftover.size, 2 * BLOCK_BYTES),
            LeftoverKind::Temporary => assert_eq!(leftover.size, 0),
            LeftoverKind::Journal(whose) => {
                let whose = whose.as_ref().unwrap();
                assert_eq!((&*whose.name, &*whose.principal), (NAME, "alice"));
                assert_eq!(whose.owner, owner(7));
            }
        }
    }
    partial.ensure_owned().unwrap();
    drop(partial);
    assert!(
        leftovers(root)
            .unwrap()
            .all(|leftover| !leftover.unwrap().held)
    );
}

#[test]
fn only_old_leftovers_without_a_process_expire() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    root.create_file(b"mine", Creation::New, DataMode::Buffered)
        .unwrap();
    root.create_file(&names::temporary(3, 4), Creation::New, DataMode::Buffered)
        .unwrap();
    let partial = claim(&root, FIRST, 1);
    FIRST.receive(&partial, 0).unwrap();
    assert!(expired(&storage, Duration::ZERO).is_empty());
    assert_eq!(expired(&storage, HOUR).len(), 1);
    partial.ensure_owned().unwrap();
    drop(partial);
    assert!(expired(&storage, HOUR / 2).is_empty());
    let removed = expired(&storage, HOUR);
    assert_eq!(removed.len(), 2);
    assert!(removed[0].0.ends_with(b".part") && removed[0].1 == BLOCK_BYTES);
    assert_eq!(
        listing(&root).into_keys().collect::<Vec<_>>(),
        [b"mine"[..].into()]
    );
}

/// A removal of leftovers comes between a file's creation and its lock.
#[test]
fn a_file_removed_as_a_leftover_is_made_again_and_stays() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let name = names::temporary(3, 4);
    let make = || root.create_file(&name, Creation::New, DataMode::Buffered);
    let deadline = std::time::Instant::now() + HOUR;
    let hold = |file: &dyn StoredFile| hold(file, (&*root, &name), deadline).unwrap();
    let taken = make().unwrap();
    assert_eq!(expired(&storage, HOUR).len(), 1);
    assert!(!hold(&*taken), "it has no name");
    assert!(hold(&*make().unwrap()), "it has one");
    assert_eq!(expired(&storage, HOUR).len(), 1, "nobody holds it any more");
    let held = create_held(&*root, &name, DataMode::Buffered).unwrap();
    assert!(expired(&storage, HOUR).is_empty());
    assert!(listing(&root).into_keys().any(|there| *there == *name));
    drop(held);
    let again = create_held(&*root, &name, DataMode::Buffered);
    let again = again.err().map(|error| error.kind());
    assert_eq!(again, Some(std::io::ErrorKind::AlreadyExists));
}

#[test]
fn a_journal_that_is_still_written_keeps_an_old_part() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let partial = claim(&root, FIRST, 1);
    partial.file().set_modified(Timestamp::default()).unwrap();
    drop(partial);
    assert!(expired(&storage, Duration::ZERO).is_empty());
    assert_eq!(listing(&root).len(), 2);
}

#[test]
fn parts_and_journals_without_each_other_expire() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let key = names::Key::new(NAME, "alice");
    root.create_file(&key.part(8), Creation::New, DataMode::Buffered)
        .unwrap();
    let held = claim(&root, FIRST, 1);
    let other = names::Key::new(b"other", "alice");
    let torn = root
        .create_file(&other.journal(), Creation::New, DataMode::Buffered)
        .unwrap();
    torn.write_at(b"torn", 0).unwrap();
    let lone = names::Key::new(b"lone", "alice").part(1);
    root.create_file(&lone, Creation::New, DataMode::Buffered)
        .unwrap();
    let removed: Vec<_> = expired(&storage, HOUR)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(removed.len(), 3);
    for name in [key.part(8), other.journal(), lone] {
        assert!(removed.contains(&name));
    }
    held.ensure_owned().unwrap();
}

#[test]
fn a_journal_of_another_version_spares_the_living() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let key = names::Key::new(NAME, "alice");
    root.create_file(&key.journal(), Creation::New, DataMode::Buffered)
        .unwrap();
    let part = root
        .create_file(&key.part(8), Creation::New, DataMode::Buffered)
        .unwrap();
    assert!(part.try_lock().unwrap());
    assert!(expired(&storage, HOUR).is_empty());
    drop(part);
    assert_eq!(expired(&storage, HOUR).len(), 2);
}

/// A crash loses the journal's records and keeps the names. The part is removed when the next copy
/// begins with a new journal.
#[test]
fn the_part_of_a_torn_journal_goes_with_the_next_claim() {
    for torn in [&b""[..], b"never a record"] {
        let root = ForgettingStorage::new().root();
        let first = claim(&root, FIRST, 1);
        FIRST.receive(&first, 0).unwrap();
        drop(first);
        let other = super::super::claim(&Claim {
            name: b"other",
            ..FIRST.claim(&root, 3)
        });
        let other = other.unwrap();
        let journal = names::Key::new(NAME, "alice").journal();
        let journal = root.create_file(&journal, Creation::Existing, DataMode::Buffered);
        let journal = journal.unwrap();
        journal.set_length(0).unwrap();
        journal.write_at(torn, 0).unwrap();
        drop(journal);
        let second = claim(&root, FIRST, 2);
        assert_eq!(listing(&root).len(), 4, "journal and part of both names");
        other.ensure_owned().unwrap();
        assert!(second.recovered().is_empty());
        for number in 0..BLOCKS {
            FIRST.receive(&second, number).unwrap();
        }
        let committed = commit(&second, 0o644).unwrap();
        committed.sync_and_finish().unwrap();
        assert_eq!(listing(&root).len(), 3);
    }
}
