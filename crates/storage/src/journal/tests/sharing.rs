//! Several owners of one partial file.

use super::*;
use crate::forgetting::ForgettingStorage;
use crate::journal::Sharing;
use crate::posix::PosixDirectory;

fn share(directory: &Arc<dyn Directory>, source: Source, process: u32) -> Partial {
    try_claim(directory, source, process, Sharing::Shared).unwrap()
}

fn try_claim(
    directory: &Arc<dyn Directory>,
    source: Source,
    process: u32,
    sharing: Sharing,
) -> Result<Partial, ClaimError> {
    super::super::claim(&Claim {
        sharing,
        ..source.claim(directory, process)
    })
}

fn is_fenced(result: &Result<(), JournalError>) -> bool {
    matches!(result, Err(JournalError::Fenced { .. }))
}

#[test]
fn owners_that_share_a_file_append_to_one_journal() {
    let root = ForgettingStorage::new().root();
    let owners = [1, 2, 3].map(|process| share(&root, FIRST, process));
    for number in [2, 0, 1] {
        FIRST.receive(&owners[number as usize], number).unwrap();
    }
    assert!(owners.iter().all(|owner| owner.ensure_owned().is_ok()));
    // An owner that joins later finds the blocks of the others.
    let late = share(&root, FIRST, 4);
    assert_eq!(
        late.recovered(),
        [0, 1, 2].map(|number| FIRST.durable(number))
    );
    drop((owners, late));
    let last = claim(&root, FIRST, 5);
    assert_eq!(last.recovered().len(), 3);
    commit(&last, 0o644).unwrap().sync_and_finish().unwrap();
    assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
    assert_eq!(listing(&root).len(), 1);
}

#[test]
fn a_single_owner_fences_the_owners_that_share() {
    let root = ForgettingStorage::new().root();
    let (first, second) = (share(&root, FIRST, 1), share(&root, FIRST, 2));
    FIRST.receive(&first, 0).unwrap();
    let single = claim(&root, FIRST, 3);
    for owner in [&first, &second] {
        assert!(is_fenced(&owner.ensure_owned()));
        assert!(is_fenced(&owner.append_durable(&[FIRST.durable(1)])));
        assert!(is_fenced(&owner.abandon()));
    }
    FIRST.receive(&single, 1).unwrap();
    assert_eq!(claim(&root, FIRST, 4).recovered().len(), 2);
}

#[test]
fn owners_that_share_join_a_single_owner_only_after_its_death() {
    let root = ForgettingStorage::new().root();
    let single = claim(&root, FIRST, 1);
    FIRST.receive(&single, 0).unwrap();
    let refused = try_claim(&root, FIRST, 2, Sharing::Shared);
    assert!(matches!(refused, Err(ClaimError::InUse { holder }) if holder == owner(1)));
    single.ensure_owned().unwrap();
    drop(single);
    let joined = share(&root, FIRST, 2);
    assert_eq!(joined.recovered(), [FIRST.durable(0)]);
}

#[test]
fn a_failed_owner_leaves_the_file_to_the_others() {
    let root = ForgettingStorage::new().root();
    let (first, second) = (share(&root, FIRST, 1), share(&root, FIRST, 2));
    FIRST.receive(&first, 0).unwrap();
    first.abandon().unwrap();
    FIRST.receive(&second, 1).unwrap();
    assert_eq!(share(&root, FIRST, 3).recovered().len(), 2);
}

/// An owner that was stopped within a write may end it at any later time.
#[test]
fn a_late_write_of_a_fenced_owner_does_not_reach_the_complete_file() {
    let directory = tempfile::tempdir().unwrap();
    let root = PosixDirectory::open_root(directory.path()).unwrap();
    let stopped = share(&root, FIRST, 1);
    stopped.file().set_length(BLOCKS * BLOCK_BYTES).unwrap();
    FIRST.receive(&stopped, 0).unwrap();
    let apart = try_claim(&root, FIRST, 2, Sharing::Apart).unwrap();
    apart.file().set_length(BLOCKS * BLOCK_BYTES).unwrap();
    assert_eq!(apart.recovered(), [FIRST.durable(0)]);
    for number in [1, 2] {
        FIRST.receive(&apart, number).unwrap();
    }
    commit(&apart, 0o644).unwrap().sync_and_finish().unwrap();
    stopped.file().write_at(b"late", 0).unwrap();
    assert_eq!(read(&root, NAME).unwrap(), FIRST.whole());
    assert_eq!(listing(&root).len(), 1);
}

#[test]
fn without_other_owners_the_data_stay_in_their_file() {
    let directory = tempfile::tempdir().unwrap();
    let root = PosixDirectory::open_root(directory.path()).unwrap();
    let first = share(&root, FIRST, 1);
    FIRST.receive(&first, 0).unwrap();
    let inode = first.file().status().unwrap().inode;
    drop(first);
    let apart = try_claim(&root, FIRST, 2, Sharing::Apart).unwrap();
    assert_eq!(apart.file().status().unwrap().inode, inode);
}

#[test]
fn another_state_of_the_source_discards_shared_data() {
    let root = ForgettingStorage::new().root();
    let old = share(&root, FIRST, 1);
    FIRST.receive(&old, 0).unwrap();
    let new = share(&root, CHANGED, 2);
    assert!(new.recovered().is_empty());
    assert!(old.append_durable(&[FIRST.durable(1)]).is_err());
    CHANGED.receive(&new, 1).unwrap();
}

#[test]
fn a_torn_record_of_a_dead_owner_is_replaced() {
    let root = ForgettingStorage::new().root();
    let (first, second) = (share(&root, FIRST, 1), share(&root, FIRST, 2));
    FIRST.receive(&first, 0).unwrap();
    let journal = super::super::Key::new(NAME, "alice").journal();
    let file = root.open_file(&journal, DataMode::Buffered).unwrap();
    let end = file.status().unwrap().size;
    let torn = [3, 0, 200, 0, 9, 9];
    let creation = crate::Creation::Existing;
    let writable = root.create_file(&journal, creation, DataMode::Buffered);
    writable.unwrap().write_at(&torn, end).unwrap();
    second.ensure_owned().unwrap();
    FIRST.receive(&second, 1).unwrap();
    FIRST.receive(&first, 2).unwrap();
    assert_eq!(share(&root, FIRST, 3).recovered().len(), 3);
}
