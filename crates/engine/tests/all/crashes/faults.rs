//! Syncs that fail and disks that become full: files fail, and do not count as durable.

use std::sync::{Arc, OnceLock, Weak};

use longhaul_engine::send::source::What;
use longhaul_engine::session::{Event, Transfer, Watch};
use longhaul_proto::digest::Integrity;
use longhaul_storage::forgetting::{Down, ForgettingStorage};
use longhaul_storage::{Creation, DataMode, Directory};

use super::{Scene, disk_with, steps_of};
use crate::support::ends::{Ends, PATIENCE, copy, destination, sources, watch};
use crate::support::tree::{self, Tree, one_file, single_file, small_tree};
use crate::support::{Random, times};

// Promise 9.
#[test]
fn a_sync_that_fails_is_never_called_durable() {
    let scene = Scene::new(small_tree(4), Tree::new());
    for count in 0..times("LONGHAUL_CRASHES", 40) {
        let context = format!("sync {count} fails");
        let disk = disk_with(&scene.older);
        disk.fail_sync_after(count);
        let first = copy(
            scene.settings.clone(),
            &scene.source,
            &disk.root(),
            &context,
        );
        let told = match first {
            Ok(ended) => {
                let said = !ended.is_complete() || disk.has_sync_fault();
                assert!(said, "{context}: nobody was told");
                ended.sent
            }
            Err(_) => Default::default(),
        };
        for seed in 0..3 {
            let context = format!("{context}, seed {seed}");
            let after = disk.if_crashed(seed);
            scene.check_committed(&after, &told, &context);
            scene.run_again(&after, &context);
        }
    }
}

/// A file system goes down, and its later syncs succeed all the same. Data that was reported as
/// durable must not be lost.
// Promise 9.
#[test]
fn no_data_are_durable_on_a_failed_file_system() {
    let mut content = Tree::new();
    let chance = &mut Random::new(11);
    content.insert(b"top"[..].into(), tree::directory(chance));
    for folder in 0..6 {
        let path = format!("top/d{folder}");
        content.insert(path.as_bytes().into(), tree::directory(chance));
        for file in 0..4 {
            let path = format!("{path}/f{file}");
            content.insert(path.as_bytes().into(), tree::file(chance, 700));
        }
        let path = format!("{path}/large");
        content.insert(path.as_bytes().into(), tree::file(chance, 200_000));
    }
    let scene = Scene::new(content, Tree::new());
    for down in [Down::Journal, Down::ShutDown] {
        let mut told_any = false;
        for count in 0..times("LONGHAUL_CRASHES", 30) {
            let context = format!("{down:?} at sync {count} of a directory");
            let disk = disk_with(&scene.older);
            disk.go_down_at_directory_sync(count, down);
            let settings = scene.settings.clone();
            let ended = copy(settings, &scene.source, &disk.root(), &context);
            let told = match ended {
                Ok(ended) => {
                    let said = !ended.is_complete() || !ended.sent.failed.is_empty();
                    assert!(said || disk.is_up(), "{context}: nobody was told");
                    ended.sent
                }
                Err(_) => Default::default(),
            };
            told_any |= !told.committed.is_empty();
            for seed in 0..3 {
                let context = format!("{context}, seed {seed}");
                scene.check_crashed(&disk.if_crashed(seed), &told, &context);
            }
        }
        assert!(told_any, "nothing was ever committed");
    }
}

/// Changes the partial data that a killed run left.
fn alter_part(root: &Arc<dyn Directory>) -> bool {
    let Ok(top) = root.open_directory(b"top") else {
        return false;
    };
    let mut names = top.list().unwrap();
    let mut altered = false;
    while let Some(listed) = names.next_name().unwrap() {
        if listed.name.ends_with(b".part") {
            let mode = DataMode::Buffered;
            let part = top.create_file(&listed.name, Creation::Existing, mode);
            part.unwrap().write_at(b"altered", 100).unwrap();
            altered = true;
        }
    }
    altered
}

/// Partial data of an earlier run that was changed since must not get the file's name. The file
/// fails, and the next run copies it from the start.
// Promise 31.
#[test]
fn an_altered_part_is_not_resumed() {
    let mut found = 0;
    for (integrity, seed) in [(Integrity::Digest, 9), (Integrity::Checksum, 10)] {
        let mut scene = Scene::new(one_file(seed, "big", 3 << 20), Tree::new());
        scene.settings.integrity = integrity;
        let steps = steps_of(&scene);
        for part in 2..8 {
            let context = format!("{integrity:?}, killed after {part} eighths");
            let disk = disk_with(&scene.older);
            disk.fail_after(disk.steps() + steps * part / 8);
            let settings = scene.settings.clone();
            let _ = copy(settings, &scene.source, &disk.root(), &context);
            let left = disk.kill();
            if !alter_part(&left.root()) {
                continue;
            }
            let mut settings = scene.settings.clone();
            settings.asks = true;
            let ended = copy(settings, &scene.source, &left.root(), &context).unwrap();
            match ended.sent.failed.get(&b"top/big"[..]) {
                Some(text) => {
                    assert!(text.contains("changed since"), "{context}: {text}");
                    found += 1;
                }
                // No data was durable at the changed place.
                None => scene.check_committed(&left, &ended.sent, &context),
            }
            scene.run_again(&left, &context);
        }
    }
    assert!(found > 0, "no part was ever gone on with");
}

/// Copies like [`copy`], but the thread of the receiver that reports a failed file stops until the
/// receiver has done all other work. Returns true if a file failed.
fn copy_holding_failures(scene: &Scene, disk: &ForgettingStorage, context: &str) -> bool {
    let to = destination(disk.root());
    let mut settings = scene.settings.clone();
    let Ok(epoch) = to.take() else {
        return false;
    };
    settings.epoch = epoch;
    let receiver: Arc<OnceLock<Weak<Transfer>>> = Arc::default();
    let (told, received) = watch();
    let held = receiver.clone();
    let holding: Watch = Arc::new(move |event| {
        let failed =
            matches!(&event, Event::Failed { path: Some(path), .. } if path.name() == b"two");
        told(event);
        if let Some(receiver) = held.get().and_then(Weak::upgrade).filter(|_| failed) {
            assert!(receiver.wait_for(PATIENCE), "never done");
        }
    });
    let top = scene.source.open_directory(b"top").unwrap();
    let from = sources(top, What::Tree(b"top"[..].into()));
    let ends = Ends::start_watched(settings, from, to, watch(), (holding, received));
    receiver.set(Arc::downgrade(&ends.receiver)).unwrap();
    for number in 0..2 {
        ends.join(number, false);
    }
    let ended = ends.finish(context);
    ended.received.failed.contains_key(&b"top/sub/two"[..])
}

/// All other work may be done before the thread that reported the last failure has recorded that
/// data was left behind. The next run must find that data nevertheless, even if a crash removes the
/// journal that names it.
#[test]
fn the_part_of_the_last_failed_file_is_found() {
    let scene = Scene::new(single_file(), Tree::new());
    let mut failed = 0;
    for count in 0..times("LONGHAUL_CRASHES", 16) {
        let context = format!("sync {count} fails");
        let disk = disk_with(&scene.older);
        disk.fail_sync_after(count);
        failed += u32::from(copy_holding_failures(&scene, &disk, &context));
        for seed in 0..8 {
            let context = format!("{context}, seed {seed}");
            scene.run_again(&disk.if_crashed(seed), &context);
        }
    }
    assert!(failed > 0, "the file never failed");
}

/// Returns the number of steps on a disk without space for a file of this many pieces.
fn steps_without_room(pieces: usize, context: &str) -> u64 {
    let chance = &mut Random::new(7);
    let mut tree = Tree::new();
    tree.insert(b"top"[..].into(), tree::directory(chance));
    let file = tree::file(chance, pieces * 65_536);
    tree.insert(b"top/file"[..].into(), file);
    let mut scene = Scene::new(tree, Tree::new());
    scene.settings.flows.writers = 4;
    let disk = disk_with(&scene.older);
    disk.fill_after_bytes(20_000);
    let ended = copy(scene.settings.clone(), &scene.source, &disk.root(), context);
    let failed = ended.unwrap().sent.failed;
    assert!(failed[&b"top/file"[..]].contains("room"), "{failed:?}");
    disk.steps()
}

/// Pieces that arrive after a lack of space must not try again: that would change a directory that
/// was finished when the file failed.
#[test]
fn a_file_without_room_is_tried_once() {
    for round in 0..24 {
        let context = format!("round {round}");
        let (few, many) = (
            steps_without_room(2, &context),
            steps_without_room(30, &context),
        );
        assert_eq!(few, many, "{context}");
    }
}

#[test]
fn a_full_disk_is_reported_and_existing_files_stay() {
    let content = small_tree(5);
    let older = super::older(&content, 5);
    for (number, older) in [Tree::new(), older].into_iter().enumerate() {
        let scene = Scene::new(content.clone(), older);
        for room in (0..500_000).step_by(40_000) {
            let context = format!("room for {room} bytes, scene {number}");
            let disk = disk_with(&scene.older);
            disk.fill_after_bytes(room);
            let first = copy(
                scene.settings.clone(),
                &scene.source,
                &disk.root(),
                &context,
            );
            if let Ok(ended) = first {
                let told = ended.sent.failed.values();
                let full = told.filter(|text| text.contains("room")).count();
                assert!(
                    ended.is_complete() || full > 0,
                    "{context}: {:?}",
                    ended.sent.failed
                );
                scene.check_crashed(&disk.if_crashed(1), &ended.sent, &context);
                let (seen, _) = tree::read(&disk.root());
                assert!(
                    scene.older.keys().all(|path| seen.contains_key(path)),
                    "{context}: lost"
                );
            }
            disk.fill_after_bytes(u64::MAX);
            scene.run_again(&disk, &context);
        }
    }
}
