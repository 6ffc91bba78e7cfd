//! Tests a copy that keeps replaced and deleted files. At every step, power is lost, the process is
//! killed, or a sync or a rename fails: each old file must exist under one of its names. The file
//! system has hard links or not, the copy has hard links or not, and backups are beside their files
//! or in a separate directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_engine::recv::backup::Backups;
use longhaul_engine::recv::keeper::{Keeper, May};
use longhaul_engine::recv::landing::{Arrival, Destination, Missing};
use longhaul_engine::send::SendSide;
use longhaul_engine::send::source::What;
use longhaul_proto::backup::Backup;
use longhaul_proto::deletion::Deletion;
use longhaul_proto::handshake::Landing;
use longhaul_proto::keeping::Keeping;
use longhaul_storage::Directory;
use longhaul_storage::forgetting::ForgettingStorage;

use super::older;
use crate::support::ends::{Ends, OnlyRoot, arrival, settings, sources};
use crate::support::tree::{self, Node, Tree, small_tree};
use crate::support::{Random, times};

/// Files of the source that are hard links to others.
const FURTHER: [(&[u8], &[u8]); 2] = [(b"top/a", b"top/sub/b"), (b"top/large", b"top/sub/two")];

/// A file of the source that has the name of a backup.
const LIKE_A_BACKUP: &[u8] = b"top/a~";

/// Number of seeds for the state after a power loss: the seed decides the order of changes that may
/// be in any order.
const SEEDS: u64 = 4;

/// A file system and the kind of copy to it.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// True if the file system has hard links.
    links: bool,
    /// True if the copy has hard links.
    hard_links: bool,
    /// True if backups are in a separate directory.
    apart: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Case> {
        (0..8).map(|number| Case {
            links: number & 1 > 0,
            hard_links: number & 2 > 0,
            apart: number & 4 > 0,
        })
    }

    fn backups(self, root: &Arc<dyn Directory>) -> (Backups, Deletion) {
        let asked = Backup {
            suffix: Some(b"~"[..].into()),
            directory: self.apart.then(|| b"old".to_vec().into()),
        };
        let backups = if !self.apart {
            Backups::beside(&asked)
        } else {
            let open = Box::new(OnlyRoot(root.clone()));
            let (anchor, place) = (Path::new("/anchor"), Path::new("/anchor/old"));
            Backups::within(&asked, (open, PathBuf::from("old")), (anchor, place)).unwrap()
        };
        let rules = asked.protection().into_iter().map(Into::into).collect();
        let deletion = Deletion {
            rules,
            ..Deletion::default()
        };
        (backups, deletion)
    }

    /// Copies over existing files and deletes surplus ones. Returns true if the copy was complete.
    fn copy(self, from: &Arc<dyn Directory>, to: &Arc<dyn Directory>, context: &str) -> bool {
        let keeping = Keeping {
            hard_links: self.hard_links,
            ..Keeping::default()
        };
        let keeper = Keeper::new(keeping.clone(), May::ANYTHING).unwrap();
        let arrival = Arrival {
            keeper: Arc::new(keeper),
            ..arrival()
        };
        let root = OnlyRoot(to.clone());
        let (backups, deletion) = self.backups(to);
        let destination =
            Destination::open(&root, b"there/", Landing::Within, Missing::Make, arrival);
        let Ok(destination) = destination else {
            return false;
        };
        let destination = destination.keeping_backups(backups);
        let mut settings = settings();
        settings.asks = true;
        settings.deletion = Some(Arc::new(deletion));
        let Ok(epoch) = destination.take() else {
            return false;
        };
        settings.epoch = epoch;
        let top = from.open_directory(b"top").unwrap();
        let from = sources(top, What::Tree(b"top"[..].into()));
        let from = SendSide::new(from).keeping(&keeping, false);
        let ends = Ends::start_coding(settings, from, destination);
        for number in 0..2 {
            ends.join(number, false);
        }
        ends.finish(context).is_complete()
    }
}

/// The source, and the earlier state of the destination.
struct Scene {
    case: Case,
    source: Arc<dyn Directory>,
    content: Tree,
    older: Tree,
}

impl Scene {
    fn new(case: Case, seed: u64) -> Scene {
        let mut content = small_tree(seed);
        let chance = &mut Random::new(seed);
        content.insert(LIKE_A_BACKUP.into(), tree::file(chance, 100));
        let mut older = older(&content, seed);
        for path in [&b"top/a"[..], b"top/large", b"top/gone", b"top/sub/gone"] {
            older.insert(path.into(), tree::file(chance, 3000));
        }
        for (first, further) in FURTHER {
            content.insert(further.into(), content[first].clone());
            older.insert(further.into(), tree::file(chance, 2000));
        }
        // The destination has this file with the same content as the source.
        older.insert(LIKE_A_BACKUP.into(), content[LIKE_A_BACKUP].clone());
        let disk = ForgettingStorage::new();
        disk.allow_links();
        let mut single = content.clone();
        single.retain(|path, _| FURTHER.iter().all(|(_, further)| path != further));
        tree::build(&disk.root(), &single);
        for (first, further) in FURTHER {
            let [(from, first), (to, further)] = [first, further].map(|path| parent(&disk, path));
            from.link(&first, &*to, &further).unwrap();
        }
        for (path, node) in &content {
            if let Node::Directory { modified, .. } = node {
                let (above, name) = parent(&disk, path);
                above.set_modified_of(&name, *modified).unwrap();
            }
        }
        Scene {
            case,
            source: disk.root(),
            content,
            older,
        }
    }

    fn disk(&self) -> ForgettingStorage {
        let disk = ForgettingStorage::new();
        if self.case.links {
            disk.allow_links();
        }
        tree::build(&disk.root(), &self.older);
        disk
    }

    fn copy(&self, disk: &ForgettingStorage, context: &str) -> bool {
        self.case.copy(&self.source, &disk.root(), context)
    }

    /// True if the copy can be complete: hard links need a file system that supports them.
    fn may_complete(&self) -> bool {
        self.case.links || !self.case.hard_links
    }

    /// Checks that each old file exists under its name or its backup's name.
    fn check_kept(&self, disk: &ForgettingStorage, context: &str) {
        let (found, _) = tree::read(&disk.root());
        for (path, node) in &self.older {
            let (Node::File { data, .. }, true) = (node, path != LIKE_A_BACKUP) else {
                continue;
            };
            let apart = [&b"old/"[..], path, b"~"].concat();
            let is_kept = found.iter().any(|(name, there)| {
                let suffix = name.strip_prefix(&path[..]);
                let beside = suffix.is_some_and(|rest| rest.iter().all(|byte| *byte == b'~'));
                let data_is = matches!(there, Node::File { data: there, .. } if there == data);
                data_is && (beside || *name == apart)
            });
            let shown = path.escape_ascii();
            assert!(is_kept, "{context}: {shown} is lost");
        }
    }

    /// Checks that the names of the source always exist while the process runs.
    fn check_names(&self, disk: &ForgettingStorage, context: &str) {
        let (found, _) = tree::read(&disk.root());
        for path in self.older.keys() {
            let stays = self.content.contains_key(path);
            let shown = path.escape_ascii();
            assert!(
                !stays || found.contains_key(path),
                "{context}: {shown} is gone"
            );
        }
    }

    /// Checks that all files of the source were copied, and that backups replaced none of them.
    fn check_copied(&self, disk: &ForgettingStorage, context: &str) {
        let (found, _) = tree::read(&disk.root());
        for (path, node) in &self.content {
            let shown = path.escape_ascii();
            assert_eq!(found.get(path), Some(node), "{context}: {shown}");
        }
        let inode = |path| {
            let (parent, name) = parent(disk, path);
            parent.status_of(&name).unwrap().inode
        };
        for (first, further) in FURTHER {
            let is_one = inode(first) == inode(further);
            assert_eq!(is_one, self.case.hard_links, "{context}");
        }
        for gone in [&b"top/gone"[..], b"top/sub/gone"] {
            assert!(!found.contains_key(gone), "{context}");
        }
    }

    /// Repeats the copy until it is complete, if that is possible. A file whose backup would take a
    /// name of the copy needs another run.
    fn complete(&self, disk: &ForgettingStorage, context: &str) {
        let runs = if self.may_complete() { 3 } else { 1 };
        let completed = (0..runs).any(|_| self.copy(disk, context));
        assert_eq!(completed, self.may_complete(), "{context}");
        self.check_kept(disk, context);
        self.check_names(disk, context);
        if completed {
            self.check_copied(disk, context);
        }
    }

    /// Checks the state after a power loss now.
    fn check_after_power_loss(&self, disk: &ForgettingStorage, context: &str) {
        for seed in 0..SEEDS {
            let context = format!("{context}, seed {seed}");
            self.check_kept(&disk.if_crashed(seed), &context);
        }
    }

    /// Returns the number of steps of a whole run.
    fn steps(&self) -> u64 {
        let disk = self.disk();
        let before = disk.steps();
        self.copy(&disk, "no crash");
        disk.steps() - before
    }
}

fn parent(disk: &ForgettingStorage, path: &[u8]) -> (Arc<dyn Directory>, Vec<u8>) {
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let last = names.pop().unwrap().to_vec();
    let root = disk.root();
    let parent = names
        .into_iter()
        .fold(root, |above, name| above.open_directory(name).unwrap());
    (parent, last)
}

// Promise 80.
#[test]
fn backups_are_never_lost() {
    for case in Case::all() {
        let scene = Scene::new(case, 5);
        let whole = scene.disk();
        scene.complete(&whole, &format!("{case:?}"));
        scene.check_after_power_loss(&whole, &format!("{case:?}, complete"));
        let steps = scene.steps();
        let stride = (steps / times("LONGHAUL_CRASHES", 40)).max(1);
        println!("{case:?}: {steps} steps, every {stride}");
        for step in (1..=steps).step_by(stride as usize) {
            let context = format!("{case:?}, step {step}");
            let disk = scene.disk();
            disk.fail_after(disk.steps() + step);
            scene.copy(&disk, &context);
            scene.check_after_power_loss(&disk, &context);
            let killed = disk.kill();
            scene.check_kept(&killed, &format!("{context}, killed"));
            let context = format!("{context}, killed, and run again");
            scene.complete(&killed, &context);
            scene.check_after_power_loss(&killed, &context);
        }
    }
}

/// A backup that is not durable does not count, and if a new file does not get its name, the old
/// file keeps it.
#[test]
fn backups_survive_failed_syncs_and_renames() {
    for case in Case::all() {
        let scene = Scene::new(case, 6);
        for count in 0..times("LONGHAUL_CRASHES", 40) {
            let disk = scene.disk();
            disk.fail_sync_after(count);
            let context = format!("{case:?}, sync {count} fails");
            scene.copy(&disk, &context);
            scene.check_kept(&disk, &context);
            scene.check_names(&disk, &context);
            scene.check_after_power_loss(&disk, &context);
            let disk = scene.disk();
            disk.fail_rename_after(count);
            let context = format!("{case:?}, rename {count} fails");
            scene.copy(&disk, &context);
            scene.check_kept(&disk, &context);
            scene.check_names(&disk, &context);
            scene.check_after_power_loss(&disk, &context);
            if disk.has_rename_fault() {
                continue;
            }
            scene.complete(&disk, &format!("{context}, and run again"));
        }
    }
}
