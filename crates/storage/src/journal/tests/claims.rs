//! Ownership of a name, and its loss.

use super::*;
use crate::Creation;
use crate::forgetting::ForgettingStorage;
use crate::posix::PosixDirectory;

fn assert_fenced(partial: &Partial, source: Source) {
    let fenced = |result| matches!(result, Err(JournalError::Fenced { .. }));
    assert!(fenced(partial.ensure_owned()));
    assert!(fenced(partial.append_durable(&[source.durable(2)])));
    assert!(fenced(commit(partial, 0o644).map(drop)));
    assert!(fenced(partial.abandon()));
}

#[test]
fn a_file_arrives() {
    let root = ForgettingStorage::new().root();
    let partial = claim(&root, FIRST, 1);
    assert!(partial.recovered().is_empty());
    for number in [2, 0, 1] {
        FIRST.receive(&partial, number).unwrap();
    }
    assert_eq!(read(&root, NAME), None);
    let committed = commit(&partial, 0o640).unwrap();
    assert!(matches!(partial.ensure_owned(), Err(JournalError::Closed)));
    committed.sync_and_finish().unwrap();
    assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
    let status = root.status_of(NAME).unwrap();
    assert_eq!((status.mode, status.modified), (0o640, MODIFIED));
    assert_eq!(listing(&root).len(), 1);
    assert!(matches!(
        partial.append_durable(&[]),
        Err(JournalError::Closed)
    ));
}

#[test]
fn a_restart_takes_over_from_the_living() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 1).unwrap();
    let mut second = claim(&root, FIRST, 2);
    assert_eq!((first.epoch(), second.epoch()), (1, 2));
    assert_fenced(&first, FIRST);
    assert_eq!(second.take_recovered(), [FIRST.durable(1)]);
    assert!(second.recovered().is_empty());
    FIRST.receive(&second, 0).unwrap();
    FIRST.receive(&second, 2).unwrap();
    commit(&second, 0o644).unwrap().sync_and_finish().unwrap();
    assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
    assert!(
        first.ensure_owned().is_err(),
        "the fence outlives the journal's name"
    );
}

/// GlusterFS with shards reported such lengths of a journal.
#[test]
fn a_file_is_not_taken_over_if_its_storage_reports_excess_bytes() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 1).unwrap();
    let mut names = listing(&root).into_keys();
    let journal = names.find(|name| name.ends_with(b".journal")).unwrap();
    let journal = root
        .create_file(&journal, Creation::Existing, DataMode::Buffered)
        .unwrap();
    for more in [1, 1250] {
        let size = journal.status().unwrap().size;
        journal.set_length(size + more).unwrap();
        first.ensure_owned().unwrap();
    }
    FIRST.receive(&first, 0).unwrap();
    // A new owner cuts off the additional bytes.
    let second = claim(&root, FIRST, 2);
    assert_eq!(second.recovered(), [FIRST.durable(0), FIRST.durable(1)]);
    assert_fenced(&first, FIRST);
    FIRST.receive(&second, 2).unwrap();
    commit(&second, 0o644).unwrap().sync_and_finish().unwrap();
    assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
}

#[test]
fn a_restart_takes_over_from_the_dead() {
    let storage = ForgettingStorage::new();
    FIRST.receive(&claim(&storage.root(), FIRST, 1), 0).unwrap();
    let root = storage.kill().root();
    assert_eq!(claim(&root, FIRST, 1).recovered(), [FIRST.durable(0)]);
}

// Promises 15 and 16.
#[test]
fn a_changed_source_starts_anew_and_fences() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 1).unwrap();
    let second = claim(&root, CHANGED, 2);
    assert!(second.recovered().is_empty());
    assert_eq!(second.epoch(), 2);
    assert_fenced(&first, FIRST);
    second.ensure_owned().unwrap();
    assert_eq!(listing(&root).len(), 2);
}

#[test]
fn another_integrity_starts_anew() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 1).unwrap();
    let mut other = FIRST.claim(&root, 1);
    other.integrity = Integrity::Digest;
    assert!(
        crate::journal::claim(&other)
            .unwrap()
            .recovered()
            .is_empty()
    );
    assert_fenced(&first, FIRST);
}

#[test]
fn another_source_waits_for_the_living_only() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    let Err(ClaimError::InUse { holder }) = crate::journal::claim(&OTHER.claim(&root, 2)) else {
        panic!("two sources for one name");
    };
    assert_eq!(holder, owner(1));
    first.ensure_owned().unwrap();
    // Writers may outlive the session's handle, and show that the session is alive.
    let writing = first.file().clone();
    drop(first);
    assert!(crate::journal::claim(&OTHER.claim(&root, 2)).is_err());
    drop(writing);
    let second = claim(&root, OTHER, 2);
    assert!(second.recovered().is_empty() && second.epoch() == 2);
}

/// A copy was killed at one end, and the other end does not know yet. It is run again after a file
/// was replaced by another one with that name.
#[test]
fn another_source_does_not_wait_for_a_session_that_was_taken_over() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    let superseded = [owner(1).session_number()];
    let restarted = super::super::claim(&Claim {
        superseded: &superseded,
        inherits: false,
        ..OTHER.claim(&root, 2)
    });
    let restarted = restarted.unwrap();
    assert!(restarted.recovered().is_empty());
    assert_fenced(&first, FIRST);
    OTHER.receive(&restarted, 0).unwrap();
    assert_eq!(listing(&root).len(), 2);
}

/// A session is begun by one host, and ended by another host with the same sources.
#[test]
fn leftovers_of_a_dead_session_of_another_host_are_inherited() {
    let root = ForgettingStorage::new().root();
    let inheriting = |source: Source, process| {
        super::super::claim(&Claim {
            inherits: true,
            ..source.claim(&root, process)
        })
    };
    let numbers = |processes: &[u32]| -> Vec<u64> {
        let number = |process: &u32| owner(*process).session_number();
        processes.iter().map(number).collect()
    };
    let first = inheriting(FIRST, 1).unwrap();
    // While the session is alive, another source cannot claim its files.
    assert!(matches!(
        inheriting(OTHER, 2),
        Err(ClaimError::InUse { .. })
    ));
    drop(first);
    let second = inheriting(OTHER, 2).unwrap();
    assert_eq!(second.former_sessions(), numbers(&[1]));
    second.append_durable(&[]).unwrap();
    // The first session is also remembered when the second one dies.
    drop(second);
    let third = inheriting(OTHER, 3).unwrap();
    assert_eq!(third.former_sessions(), numbers(&[1, 2]));
    drop(third);
    assert!(claim(&root, FIRST, 4).former_sessions().is_empty());
}

#[test]
fn a_new_owner_shows_life_once_the_old_one_is_gone() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    let second = claim(&root, FIRST, 2);
    drop(first);
    second.ensure_owned().unwrap();
    assert!(crate::journal::claim(&OTHER.claim(&root, 3)).is_err());
}

#[test]
fn principals_and_names_do_not_meet() {
    let root = ForgettingStorage::new().root();
    let alice = claim(&root, FIRST, 1);
    let mut other = OTHER.claim(&root, 2);
    other.principal = "bob";
    let bob = crate::journal::claim(&other).unwrap();
    alice.ensure_owned().unwrap();
    bob.ensure_owned().unwrap();
}

#[test]
fn a_name_can_be_claimed_again_after_commit_and_abandon() {
    let root = ForgettingStorage::new().root();
    let partial = claim(&root, FIRST, 1);
    FIRST.receive(&partial, 0).unwrap();
    partial.abandon().unwrap();
    assert!(listing(&root).is_empty());
    let partial = claim(&root, FIRST, 1);
    assert!(partial.recovered().is_empty());
    let committed = commit(&partial, 0o644).unwrap();
    let next = claim(&root, OTHER, 2);
    root.sync().unwrap();
    committed.finish().unwrap();
    next.ensure_owned().unwrap();
    OTHER.receive(&next, 0).unwrap();
}

#[test]
fn a_journal_or_part_removed_by_hand_ends_the_owner() {
    for removed in [".journal", ".part"] {
        let root = ForgettingStorage::new().root();
        let first = claim(&root, FIRST, 1);
        FIRST.receive(&first, 0).unwrap();
        for name in listing(&root).into_keys() {
            if name.ends_with(removed.as_bytes()) {
                root.remove_file(&name).unwrap();
            }
        }
        let second = claim(&root, FIRST, 2);
        assert!(second.recovered().is_empty());
        assert!(commit(&first, 0o644).is_err());
        assert_eq!(read(&root, NAME), None);
        second.ensure_owned().unwrap();
    }
}

#[test]
fn blocks_past_the_end_of_the_part_are_dropped() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    FIRST.receive(&first, 2).unwrap();
    first.file().set_length(2 * BLOCK_BYTES).unwrap();
    drop(first);
    assert_eq!(claim(&root, FIRST, 2).recovered(), [FIRST.durable(0)]);
}

#[test]
fn a_torn_tail_is_cut_off_and_written_over() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    drop(first);
    let journal = super::super::names::Key::new(NAME, "alice").journal();
    let file = root
        .create_file(&journal, Creation::Existing, DataMode::Buffered)
        .unwrap();
    // Longer than the record that is written over it.
    let torn = [[3, 0, 49, 0], [7; 4]].concat().repeat(25);
    file.write_at(&torn, file.status().unwrap().size).unwrap();
    let second = claim(&root, FIRST, 2);
    FIRST.receive(&second, 1).unwrap();
    drop(second);
    assert_eq!(
        claim(&root, FIRST, 3).recovered(),
        [FIRST.durable(0), FIRST.durable(1)]
    );
    file.set_length(7).unwrap();
    let fourth = claim(&root, FIRST, 4);
    assert!(fourth.recovered().is_empty());
    FIRST.receive(&fourth, 0).unwrap();
}

#[test]
fn of_many_claimers_one_owns() {
    for source in [FIRST, CHANGED] {
        let root = ForgettingStorage::new().root();
        let earlier = claim(&root, FIRST, 1);
        FIRST.receive(&earlier, 0).unwrap();
        let partials: Vec<Partial> = std::thread::scope(|scope| {
            let claimers = (2..10).map(|process| {
                let root = &root;
                scope.spawn(move || claim(root, source, process))
            });
            let claimers: Vec<_> = claimers.collect();
            claimers
                .into_iter()
                .map(|claimer| claimer.join().unwrap())
                .collect()
        });
        let owning: Vec<_> = partials
            .iter()
            .filter(|one| one.ensure_owned().is_ok())
            .collect();
        assert_eq!(owning.len(), 1);
        let highest = partials.iter().map(Partial::epoch).max();
        assert_eq!(Some(owning[0].epoch()), highest);
        assert_fenced(&earlier, FIRST);
        for number in 0..BLOCKS {
            source.receive(owning[0], number).unwrap();
        }
    }
}

#[test]
fn of_many_committers_one_commits() {
    let root = ForgettingStorage::new().root();
    let first = claim(&root, FIRST, 1);
    for number in 0..BLOCKS {
        FIRST.receive(&first, number).unwrap();
    }
    let committed = std::thread::scope(|scope| {
        let root = &root;
        let racing = scope.spawn(|| commit(&first, 0o644).is_ok());
        let taking = scope.spawn(move || {
            let second = claim(root, FIRST, 2);
            let whole = second.recovered().len() as u64 == BLOCKS;
            whole && commit(&second, 0o644).is_ok()
        });
        [racing.join().unwrap(), taking.join().unwrap()]
    });
    assert_eq!(committed.iter().filter(|&&one| one).count(), 1);
    assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
}

#[test]
fn a_full_disk_closes_the_journal_and_loses_no_record() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let first = claim(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    storage.fill_after_bytes(10);
    assert!(matches!(
        first.append_durable(&[FIRST.durable(1)]),
        Err(JournalError::Io(_))
    ));
    assert!(matches!(
        first.append_durable(&[]),
        Err(JournalError::Closed)
    ));
    storage.fill_after_bytes(u64::MAX);
    drop(first);
    assert_eq!(claim(&root, FIRST, 2).recovered(), [FIRST.durable(0)]);
}

#[test]
fn a_hard_link_in_the_place_of_a_part_or_journal_is_not_written() {
    for suffix in [".part", ".journal"] {
        let place = tempfile::tempdir().unwrap();
        let root = PosixDirectory::open_root(place.path()).unwrap();
        let first = claim(&root, FIRST, 1);
        FIRST.receive(&first, 1).unwrap();
        drop(first);
        let names = std::fs::read_dir(place.path()).unwrap();
        let mut names = names.map(|name| name.unwrap().path());
        let staged = names.find(|name| name.to_str().unwrap().ends_with(suffix));
        let (staged, other) = (staged.unwrap(), place.path().join("other"));
        std::fs::hard_link(&staged, &other).unwrap();
        let before = std::fs::read(&other).unwrap();
        let second = claim(&root, FIRST, 2);
        assert!(second.recovered().is_empty(), "{suffix}");
        for number in [0, 1, 2] {
            FIRST.receive(&second, number).unwrap();
        }
        commit(&second, 0o640).unwrap().sync_and_finish().unwrap();
        assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
        assert_eq!(std::fs::read(&other).unwrap(), before, "{suffix}");
    }
}
