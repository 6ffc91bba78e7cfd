//! Tests of each rule in the module's documentation.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use crate::{Creation, DataMode, DataRange, StoredFile};
use longhaul_proto::manifest::Timestamp;

const SEEDS: std::ops::Range<u64> = 0..200;

fn create(directory: &Arc<dyn Directory>, name: &[u8]) -> Arc<dyn StoredFile> {
    directory
        .create_file(name, Creation::New, DataMode::Buffered)
        .unwrap()
}

fn durable_file(directory: &Arc<dyn Directory>, name: &[u8], data: &[u8]) -> Arc<dyn StoredFile> {
    let file = create(directory, name);
    file.write_at(data, 0).unwrap();
    file.sync_all().unwrap();
    directory.sync().unwrap();
    file
}

fn read(directory: &Arc<dyn Directory>, name: &[u8]) -> Option<Vec<u8>> {
    let file = directory.open_file(name, DataMode::Buffered).ok()?;
    let mut data = vec![0; file.status().unwrap().size as usize];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    Some(data)
}

/// Returns all outcomes of a crash, over many seeds.
fn outcomes(
    storage: &ForgettingStorage,
    look: impl Fn(&Arc<dyn Directory>) -> Option<Vec<u8>>,
) -> BTreeSet<Option<Vec<u8>>> {
    SEEDS
        .map(|seed| look(&storage.if_crashed(seed).root()))
        .collect()
}

#[test]
fn synced_data_under_a_synced_name_stays() {
    let storage = ForgettingStorage::new();
    let data = vec![7; 10_000];
    durable_file(&storage.root(), b"a", &data);
    assert_eq!(
        outcomes(&storage, |root| read(root, b"a")),
        [Some(data)].into()
    );
}

#[test]
fn a_name_without_directory_sync_may_vanish() {
    let storage = ForgettingStorage::new();
    let file = create(&storage.root(), b"a");
    file.write_at(b"data", 0).unwrap();
    file.sync_all().unwrap();
    let expected = [None, Some(b"data".to_vec())].into();
    assert_eq!(outcomes(&storage, |root| read(root, b"a")), expected);
}

#[test]
fn unsynced_data_may_be_old_new_torn_or_short() {
    let storage = ForgettingStorage::new();
    let file = durable_file(&storage.root(), b"a", &[1; 4096]);
    file.write_at(&[2; 8192], 0).unwrap();
    let seen = outcomes(&storage, |root| read(root, b"a"));
    let whole = |byte: u8, length: usize| Some(vec![byte; length]);
    assert!(seen.contains(&whole(1, 4096)) && seen.contains(&whole(2, 8192)));
    let torn = |data: &Option<Vec<u8>>| {
        let data = data.as_deref().unwrap();
        data[..4096].contains(&1) && data[..4096].contains(&2)
    };
    assert!(seen.iter().any(torn));
    let short = |data: &Option<Vec<u8>>| data.as_ref().is_some_and(|data| data.len() < 8192);
    assert!(seen.iter().any(short));
    for data in seen.iter().flatten() {
        let sectors = data[..4096].chunks(512);
        assert!(
            sectors
                .into_iter()
                .all(|sector| sector.iter().all(|&byte| byte == sector[0]))
        );
    }
}

#[test]
fn a_rename_is_atomic_but_may_come_before_the_data() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    durable_file(&root, b"final", b"old");
    let file = create(&root, b"part");
    root.sync().unwrap();
    file.write_at(b"new", 0).unwrap();
    root.rename(b"part", &*root, b"final").unwrap();
    let seen = outcomes(&storage, |root| read(root, b"final"));
    assert!(seen.contains(&Some(b"old".to_vec())) && seen.contains(&Some(b"new".to_vec())));
    assert!(
        seen.contains(&Some(Vec::new())),
        "the bug to catch: renamed, but empty"
    );
    assert!(!seen.contains(&None), "old or new, never neither");
}

#[test]
fn a_synced_rename_of_synced_data_stays() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    durable_file(&root, b"final", b"old");
    durable_file(&root, b"part", b"new");
    root.rename(b"part", &*root, b"final").unwrap();
    root.sync().unwrap();
    let expected = [Some(b"new".to_vec())].into();
    assert_eq!(outcomes(&storage, |root| read(root, b"final")), expected);
    assert_eq!(
        outcomes(&storage, |root| read(root, b"part")),
        [None].into()
    );
}

#[test]
fn a_rename_between_directories_needs_both_synced() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    root.make_directory(b"there", 0o755).unwrap();
    let there = root.open_directory(b"there").unwrap();
    durable_file(&root, b"a", b"data");
    let look = |root: &Arc<dyn Directory>| {
        let there = root.open_directory(b"there").unwrap();
        Some(vec![
            read(root, b"a").is_some() as u8,
            read(&there, b"b").is_some() as u8,
        ])
    };
    root.rename(b"a", &*there, b"b").unwrap();
    assert_eq!(
        outcomes(&storage, look),
        [Some(vec![0, 1]), Some(vec![1, 0])].into()
    );
    there.sync().unwrap();
    assert_eq!(
        outcomes(&storage, look),
        [Some(vec![0, 1]), Some(vec![1, 1])].into()
    );
    root.sync().unwrap();
    assert_eq!(outcomes(&storage, look), [Some(vec![0, 1])].into());
}

/// A further name is created and lost like any other. The inode ends with its last name.
#[test]
fn an_inode_has_several_names_if_links_are_allowed() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    durable_file(&root, b"a", b"data");
    assert!(root.link(b"a", &*root, b"b").is_err());
    storage.allow_links();
    root.link(b"a", &*root, b"b").unwrap();
    assert!(root.link(b"a", &*root, b"b").is_err());
    let [a, b] = [b"a", b"b"].map(|name| root.status_of(name).unwrap());
    assert_eq!((a.inode, a.names, b.names), (b.inode, 2, 2));
    let expected = [None, Some(b"data".to_vec())].into();
    assert_eq!(outcomes(&storage, |root| read(root, b"b")), expected);
    // Renaming a name to another name of the same inode has no effect.
    root.rename(b"a", &*root, b"b").unwrap();
    assert!(read(&root, b"a").is_some());
    root.sync().unwrap();
    root.remove_file(b"a").unwrap();
    let expected = [Some(b"data".to_vec())].into();
    assert_eq!(outcomes(&storage, |root| read(root, b"b")), expected);
    assert_eq!(root.status_of(b"b").unwrap().names, 1);
    assert_eq!(storage.kill().root().status_of(b"b").unwrap().names, 1);
}

#[test]
fn an_injected_rename_failure_changes_no_name() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    durable_file(&root, b"a", b"data");
    storage.fail_rename_after(1);
    root.rename(b"a", &*root, b"b").unwrap();
    assert!(storage.has_rename_fault() && root.rename(b"b", &*root, b"c").is_err());
    assert!(read(&root, b"b").is_some() && !storage.has_rename_fault());
    root.rename(b"b", &*root, b"c").unwrap();
}

#[test]
fn a_directory_is_a_name_like_any() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    root.make_directory(b"d", 0o755).unwrap();
    let look = |root: &Arc<dyn Directory>| root.open_directory(b"d").ok().map(|_| Vec::new());
    assert_eq!(outcomes(&storage, look).len(), 2);
    root.sync().unwrap();
    assert_eq!(outcomes(&storage, look), [Some(Vec::new())].into());
}

#[test]
fn a_removal_may_be_undone_until_synced() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    durable_file(&root, b"a", b"1");
    root.remove_file(b"a").unwrap();
    create(&root, b"a").write_at(b"2", 0).unwrap();
    let seen = outcomes(&storage, |root| read(root, b"a"));
    assert!(seen.contains(&None) && seen.contains(&Some(b"1".to_vec())));
    assert!(seen.contains(&Some(b"2".to_vec())));
}

#[test]
fn sync_data_keeps_the_length_and_only_sync_all_the_mode() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let file = durable_file(&root, b"a", b"data");
    file.set_mode(0o4711).unwrap();
    file.set_length(2).unwrap();
    file.sync_data().unwrap();
    let mode = |root: &Arc<dyn Directory>| {
        let status = root.status_of(b"a").unwrap();
        assert_eq!(status.size, 2);
        Some(status.mode.to_be_bytes().to_vec())
    };
    assert_eq!(outcomes(&storage, mode).len(), 2);
    file.sync_all().unwrap();
    assert_eq!(outcomes(&storage, mode).len(), 1);
}

#[test]
fn a_failed_sync_loses_data_for_good() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let file = durable_file(&root, b"a", b"old");
    file.write_at(b"new", 0).unwrap();
    storage.fail_sync_after(0);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(
        read(&root, b"a").unwrap(),
        b"new",
        "readers see what the disk lost"
    );
    let expected = [Some(b"old".to_vec())].into();
    assert_eq!(outcomes(&storage, |root| read(root, b"a")), expected);
}

#[test]
fn power_is_lost_at_a_step_for_good() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    storage.fail_after(3);
    let file = create(&root, b"a");
    file.write_at(b"1", 0).unwrap();
    assert!(file.sync_all().is_err());
    assert_eq!(storage.steps(), 3);
    assert!(root.sync().is_err() && file.status().is_err());
    assert!(storage.crash(0).root().sync().is_ok());
}

#[test]
fn a_killed_process_leaves_its_writes_and_no_lock() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let file = create(&root, b"a");
    assert!(file.try_lock().unwrap());
    storage.fail_after(2);
    assert!(file.write_at(b"data", 0).is_err());
    let after = storage.kill();
    assert_eq!(read(&after.root(), b"a").unwrap(), b"data");
    let again = after
        .root()
        .create_file(b"a", Creation::Existing, DataMode::Buffered)
        .unwrap();
    assert!(again.try_lock().unwrap() && file.status().is_err());
    drop(file);
    assert!(
        outcomes(&after, |root| read(root, b"a")).contains(&None),
        "still unsynced"
    );
}

#[test]
fn a_full_disk_accepts_the_bytes_that_fit() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    storage.fill_after_bytes(5);
    let file = create(&root, b"a");
    file.write_at(b"123", 0).unwrap();
    let error = file.write_at(b"456", 3).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(read(&root, b"a").unwrap(), b"12345");
}

#[test]
fn locks_end_with_the_last_handle_and_with_power() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let first = durable_file(&root, b"a", b"");
    let second = root
        .create_file(b"a", Creation::Existing, DataMode::Buffered)
        .unwrap();
    let again = first.clone();
    assert!(first.try_lock().unwrap() && again.try_lock().unwrap());
    drop(first);
    assert!(!second.try_lock().unwrap());
    drop(again);
    assert!(second.try_lock().unwrap());
    let after = storage.crash(1).root();
    let third = after
        .create_file(b"a", Creation::Existing, DataMode::Buffered)
        .unwrap();
    assert!(third.try_lock().unwrap());
}

#[test]
fn one_seed_gives_one_outcome() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    for number in 0..20u8 {
        create(&root, &[b'a' + number])
            .write_at(&[number; 9000], 100)
            .unwrap();
    }
    let look = |seed| -> Vec<_> {
        let root = storage.if_crashed(seed).root();
        (0..20u8)
            .map(|number| read(&root, &[b'a' + number]))
            .collect()
    };
    assert_eq!(look(5), look(5));
    assert_ne!(look(5), look(6));
}

#[test]
fn holes_and_offsets_up_to_two_to_the_63() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    let file = create(&root, b"a");
    let end = i64::MAX as u64;
    file.write_at(b"last", end - 4).unwrap();
    file.write_at(&[1; 5000], 4096).unwrap();
    assert!(file.write_at(b"more", end).is_err());
    assert_eq!(
        file.next_data(0).unwrap(),
        Some(DataRange {
            start: 4096,
            end: 12288
        })
    );
    let last = file.next_data(12288).unwrap().unwrap();
    assert_eq!((last.start, last.end), (end / 4096 * 4096, end));
    let mut bytes = [9; 8];
    assert_eq!(file.read_at(&mut bytes, end - 8).unwrap(), 8);
    assert_eq!(&bytes, b"\0\0\0\0last");
}

#[test]
fn names_links_and_times_behave() {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    root.make_symlink(b"link", b"a").unwrap();
    assert_eq!(&*root.read_symlink(b"link").unwrap(), b"a");
    assert!(root.open_file(b"link", DataMode::Buffered).is_err());
    assert!(root.make_directory(b"link", 0o755).is_err());
    root.make_directory(b"d", 0o755).unwrap();
    create(&root.open_directory(b"d").unwrap(), b"x");
    assert!(root.remove_directory(b"d").is_err() && root.remove_file(b"d").is_err());
    assert!(root.rename(b"link", &*root, b"d").is_err());
    let modified = Timestamp {
        seconds: -1,
        nanoseconds: 5,
    };
    root.set_modified_of(b"d", modified).unwrap();
    assert_eq!(root.status_of(b"d").unwrap().modified, modified);
    let mut names = root.list().unwrap();
    let mut listed = BTreeSet::new();
    while let Some(entry) = names.next_name().unwrap() {
        listed.insert(entry.name);
    }
    assert_eq!(listed, [b"d"[..].into(), b"link"[..].into()].into());
}
