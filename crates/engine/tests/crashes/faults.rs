//! Syncs that fail and disks that fill: told as failures, never as durable.

use super::support::ends::copy;
use super::support::times;
use super::support::tree::{self, Tree, small_tree};
use super::{Scene, disk_with};

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

#[test]
fn a_full_disk_is_told_and_what_was_there_stays() {
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
