//! Power is lost at every step of small transfers and at random in larger ones. Data that was
//! reported to the sender as durable must exist, partial files must not have final names, and a
//! second run of the same transfer must complete normally.
//!
//! `LONGHAUL_CRASHES` is the number of power losses of each test. A failure prints seed and step.
#![allow(clippy::unwrap_used, clippy::panic)]

mod backups;
mod faults;

use std::sync::Arc;

use longhaul_engine::session::TransferSettings;
use longhaul_storage::Directory;
use longhaul_storage::forgetting::ForgettingStorage;

use crate::support::ends::{Told, copy, settings};
use crate::support::tree::{self, Node, Tree, random_tree, small_tree};
use crate::support::{Random, times};

/// Returns a disk with a tree.
fn disk_with(content: &Tree) -> ForgettingStorage {
    let disk = ForgettingStorage::new();
    tree::build(&disk.root(), content);
    disk
}

/// Returns earlier versions of some of a tree's files, to be replaced.
fn older(content: &Tree, seed: u64) -> Tree {
    let mut chance = Random::new(seed ^ 0x01d);
    let mut older = Tree::new();
    for (path, node) in content {
        match node {
            Node::Directory { .. } => {
                older.insert(path.clone(), node.clone());
            }
            Node::File { data, .. } if chance.below(2) == 0 => {
                older.insert(path.clone(), tree::file(&mut chance, data.len() / 2 + 3));
            }
            _ => {}
        }
    }
    older
}

/// The source and the earlier destination of a copy.
struct Scene {
    source: Arc<dyn Directory>,
    content: Tree,
    older: Tree,
    settings: TransferSettings,
    /// True if the destination's file system has no journal.
    lacks_journal: bool,
}

impl Scene {
    fn new(content: Tree, older: Tree) -> Scene {
        let mut settings = settings();
        settings.asks = !older.is_empty();
        Scene {
            source: disk_with(&content).root(),
            content,
            older,
            settings,
            lacks_journal: false,
        }
    }

    /// Returns the destination before the copy.
    fn disk(&self) -> ForgettingStorage {
        let disk = disk_with(&self.older);
        if self.lacks_journal {
            disk.remove_journal();
        }
        disk
    }

    /// Checks the promises for the state after a crash.
    fn check_crashed(&self, disk: &ForgettingStorage, told: &Told, context: &str) {
        let (found, _) = tree::read(&disk.root());
        for path in told.committed.iter().chain(&told.skipped) {
            let (found, expected) = (found.get(path), &self.content[path]);
            let shown = path.escape_ascii();
            assert_eq!(
                found,
                Some(expected),
                "{context}: {shown} was called durable"
            );
        }
        for (path, node) in &found {
            let Node::File { data, .. } = node else {
                continue;
            };
            let whole = |tree: &Tree| matches!(tree.get(path), Some(Node::File { data: all, .. }) if all == data);
            let shown = path.escape_ascii();
            assert!(
                whole(&self.content) || whole(&self.older),
                "{context}: {shown} is half written"
            );
        }
    }

    /// Runs the same transfer again, and checks that it is complete, also after another crash.
    fn run_again(&self, disk: &ForgettingStorage, context: &str) {
        let mut settings = self.settings.clone();
        settings.asks = true;
        let ended = copy(settings, &self.source, &disk.root(), context).unwrap();
        assert!(
            ended.is_complete(),
            "{context}: {:?} {:?}",
            ended.sender,
            ended.sent.failed
        );
        self.check_finished(disk, context);
        for seed in 0..3 {
            self.check_finished(&disk.if_crashed(seed), &format!("{context}, crashed again"));
        }
    }

    fn check_finished(&self, disk: &ForgettingStorage, context: &str) {
        let (found, staging) = tree::read(&disk.root());
        if let Some(difference) = tree::difference(&found, &self.content) {
            panic!("{context}: {difference}");
        }
        assert_eq!(staging, [""; 0], "{context}: left behind");
    }

    /// Runs until power is lost at `step`; false if the run ended before.
    fn lose_power_at(&self, step: u64, seeds: std::ops::Range<u64>) -> bool {
        let context = format!("power lost at step {step}, seeds {seeds:?}");
        let disk = self.disk();
        let before = disk.steps();
        disk.fail_after(before + step);
        let told = match copy(self.settings.clone(), &self.source, &disk.root(), &context) {
            Ok(ended) => ended.sent,
            Err(_) => Told::default(),
        };
        let lost = disk.steps() >= before + step;
        for seed in seeds {
            let context = format!("power lost at step {step}, seed {seed}");
            let after = disk.if_crashed(seed);
            self.check_crashed(&after, &told, &context);
            self.run_again(&after, &context);
        }
        lost
    }

    /// Runs until the process is killed at `step`: its changes are visible, but not all durable.
    /// Then power is lost in the second run.
    fn kill_at(&self, step: u64, seed: u64) {
        let context = format!("killed at step {step}, seed {seed}");
        let disk = self.disk();
        let before = disk.steps();
        disk.fail_after(before + step);
        let first = copy(self.settings.clone(), &self.source, &disk.root(), &context);
        let told = first.map(|ended| ended.sent).unwrap_or_default();
        let disk = disk.kill();
        self.check_crashed(&disk, &told, &context);
        let mut settings = self.settings.clone();
        settings.asks = true;
        disk.fail_after(disk.steps() + 1 + Random::new(seed ^ step).below(120));
        let second = copy(settings, &self.source, &disk.root(), &context);
        let told = second.map(|ended| ended.sent).unwrap_or_default();
        for seed in [seed, seed + 1] {
            let after = disk.if_crashed(seed);
            self.check_committed(&after, &told, &context);
            self.run_again(&after, &context);
        }
    }

    /// Checks only data that the last run itself made durable: files that it skipped may be an
    /// earlier run's, which were not synced.
    fn check_committed(&self, disk: &ForgettingStorage, told: &Told, context: &str) {
        let committed = Told {
            skipped: Vec::new(),
            ..told.clone()
        };
        self.check_crashed(disk, &committed, context);
    }
}

/// Returns the number of steps of a whole run of a scene.
fn steps_of(scene: &Scene) -> u64 {
    let disk = scene.disk();
    let before = disk.steps();
    let ended = copy(
        scene.settings.clone(),
        &scene.source,
        &disk.root(),
        "no crash",
    )
    .unwrap();
    assert!(
        ended.is_complete(),
        "{:?} {:?}",
        ended.sender,
        ended.sent.failed
    );
    // A directory that was there and did not change is not reported.
    let is_reported = |path: &[u8]| {
        scene.older.is_empty() || !matches!(scene.content[path], Node::Directory { .. })
    };
    let told = ended.sent.committed.iter().chain(&ended.sent.skipped);
    let expected = scene.content.keys().filter(|path| is_reported(path));
    assert_eq!(
        told.filter(|path| is_reported(path)).count(),
        expected.count()
    );
    scene.check_finished(&disk, "no crash");
    for seed in 0..5 {
        scene.check_finished(&disk.if_crashed(seed), "no crash until the end");
    }
    disk.steps() - before
}

/// Crashes at every step once, and again with other seeds until the number of crashes is reached.
fn at_every_step(scene: &Scene, crashes: u64) {
    let steps = steps_of(scene);
    let stride = (steps / crashes).max(1);
    println!("{steps} steps, every {stride}");
    for round in 0..crashes.div_ceil(steps) {
        for step in (1..=steps).step_by(stride as usize) {
            let seed = round * 2;
            scene.lose_power_at(step, seed..seed + 2);
        }
    }
}

// Promises 8, 9 and 11.
#[test]
fn power_is_lost_at_every_step_of_a_copy_to_an_empty_place() {
    let scene = Scene::new(small_tree(1), Tree::new());
    at_every_step(&scene, times("LONGHAUL_CRASHES", 200));
}

// Promises 8 and 9.
#[test]
fn power_is_lost_at_every_step_of_a_copy_over_older_files() {
    let content = small_tree(2);
    let older = older(&content, 2);
    at_every_step(&Scene::new(content, older), times("LONGHAUL_CRASHES", 200));
}

/// Without a journal, the sync of a directory does not write the inodes of links in it.
// Promise 9.
#[test]
fn links_are_durable_before_they_are_called_so_without_a_journal() {
    let mut content = small_tree(7);
    for number in 0..6 {
        let path = format!("top/sub/link{number}");
        content.insert(path.into_bytes(), Node::Link(b"target".into()));
    }
    let mut scene = Scene::new(content, Tree::new());
    scene.lacks_journal = true;
    at_every_step(&scene, times("LONGHAUL_CRASHES", 100));
}

#[test]
fn a_process_is_killed_and_then_power_is_lost() {
    let scene = Scene::new(small_tree(3), Tree::new());
    let steps = steps_of(&scene);
    let mut chance = Random::new(3);
    for seed in 0..times("LONGHAUL_CRASHES", 60) {
        scene.kill_at(1 + chance.below(steps), seed);
    }
}

#[test]
fn power_is_lost_at_random_in_larger_copies() {
    for seed in 0..times("LONGHAUL_CRASHES", 60) / 20 {
        let content = random_tree(seed, 300);
        let older = if seed % 2 == 0 {
            Tree::new()
        } else {
            older(&content, seed)
        };
        let scene = Scene::new(content, older);
        let steps = steps_of(&scene);
        let mut chance = Random::new(seed);
        for number in 0..20 {
            scene.lose_power_at(1 + chance.below(steps), number..number + 1);
        }
    }
}
