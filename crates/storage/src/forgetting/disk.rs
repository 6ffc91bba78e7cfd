//! The simulated disk: inodes, names in two states, faults, and the result of a crash.

use std::collections::{BTreeSet, HashMap};
use std::io;

use longhaul_proto::manifest::Timestamp;
use longhaul_units::Random;
use rustix::io::Errno;

use super::name_change::{NameChange, NameMap};
use super::pages::Pages;
use super::{Down, power_lost, system_error};
use crate::{FileKind, Status};

/// Inode number of the root directory, as in ext4.
pub(super) const ROOT: u64 = 2;

/// Start of the disk's clock in seconds since 1970. Each mutating call takes a microsecond.
const CLOCK_START_SECONDS: i64 = 1_700_000_000;

/// Mode and modification time.
#[derive(Clone, Copy)]
pub(super) struct Metadata {
    pub(super) mode: u32,
    pub(super) modified: Timestamp,
}

/// Content of an inode.
pub(super) enum Body {
    File(Pages),
    Directory(Names),
    Symlink(Box<[u8]>),
}

/// The names of a directory: as the running system sees them, and as they are on the disk.
#[derive(Default)]
pub(super) struct Names {
    pub(super) seen: NameMap,
    durable: NameMap,
}

pub(super) struct Node {
    pub(super) body: Body,
    pub(super) metadata: Metadata,
    durable_metadata: Metadata,
    changed: Timestamp,
    /// True if the inode is on the disk. Only links can have a durable name without this.
    is_written: bool,
}

/// Faults that are still to happen.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) power_lost_at: Option<u64>,
    pub(super) room_bytes: Option<u64>,
    pub(super) syncs_until_failure: Option<u64>,
    pub(super) renames_until_failure: Option<u64>,
    pub(super) directory_syncs_until_down: Option<(u64, Down)>,
}

/// Lock of a file.
#[derive(Default)]
pub(super) struct Lock {
    /// Open files that hold it.
    holders: BTreeSet<u64>,
    /// True if its only holder excludes others.
    exclusive: bool,
}

impl Lock {
    /// Takes the lock for an open file; false if another one excludes it.
    pub(super) fn take(&mut self, handle: u64, exclusive: bool) -> bool {
        let others = self.holders.iter().any(|holder| *holder != handle);
        let is_free = !others || !exclusive && !self.exclusive;
        if is_free {
            self.holders.insert(handle);
            self.exclusive = exclusive;
        }
        is_free
    }

    /// Releases the lock of an open file.
    pub(super) fn release(&mut self, handle: u64) {
        self.holders.remove(&handle);
        self.exclusive &= !self.holders.is_empty();
    }
}

pub(super) struct Disk {
    nodes: HashMap<u64, Node>,
    next_inode: u64,
    /// Changes of names that are not durable yet, oldest first. A crash keeps all changes of a
    /// group, or discards them all.
    pending: Vec<Vec<NameChange>>,
    pub(super) steps: u64,
    pub(super) faults: Faults,
    /// Function to run, without this disk's lock, before a file's next `sync_all`.
    pub(super) interruption: Option<Box<dyn FnOnce() + Send>>,
    /// True if syncs of data must wait.
    pub(super) holds_syncs: bool,
    powered: bool,
    /// Set once the file system went down.
    pub(super) down: Option<Down>,
    pub(super) refuses_direct: bool,
    pub(super) folds_case: bool,
    /// True if an inode may have several names.
    pub(super) has_links: bool,
    /// True if there is no journal: a sync of a directory does not write the inodes of its links.
    pub(super) lacks_journal: bool,
    /// Locks by inode.
    pub(super) locks: HashMap<u64, Lock>,
    pub(super) next_handle: u64,
}

impl Disk {
    pub(super) fn new() -> Disk {
        let mut disk = Disk {
            nodes: HashMap::new(),
            next_inode: ROOT,
            pending: Vec::new(),
            steps: 0,
            faults: Faults::default(),
            interruption: None,
            holds_syncs: false,
            powered: true,
            down: None,
            refuses_direct: false,
            folds_case: false,
            has_links: false,
            lacks_journal: false,
            locks: HashMap::new(),
            next_handle: 0,
        };
        disk.add_node(Body::Directory(Names::default()), 0o755);
        disk
    }

    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: CLOCK_START_SECONDS + (self.steps / 1_000_000) as i64,
            nanoseconds: (self.steps % 1_000_000) as u32 * 1000,
        }
    }

    pub(super) fn lose_power(&mut self) {
        self.powered = false;
    }

    pub(super) fn outlive_process(&mut self) {
        self.powered = true;
        self.faults = Faults::default();
        self.locks.clear();
    }

    /// Fails after the loss of power. Every call checks this first.
    pub(super) fn check_power(&self) -> io::Result<()> {
        if self.powered {
            Ok(())
        } else {
            Err(power_lost())
        }
    }

    /// Counts a mutating call. Changes are made before they are counted, so that an interrupted one
    /// may take effect. Syncs are made after, so that an interrupted one has no effect.
    pub(super) fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.faults.power_lost_at == Some(self.steps) {
            self.powered = false;
        }
        self.check_power()
    }

    pub(super) fn node(&self, inode: u64) -> io::Result<&Node> {
        self.nodes.get(&inode).ok_or(system_error(Errno::NOENT))
    }

    /// Returns an inode to be changed.
    pub(super) fn node_mut(&mut self, inode: u64) -> io::Result<&mut Node> {
        match self.down {
            Some(Down::Journal) => return Err(system_error(Errno::ROFS)),
            Some(Down::ShutDown) => return Err(system_error(Errno::IO)),
            None => {}
        }
        let now = self.now();
        let node = self.nodes.get_mut(&inode);
        let node = node.ok_or(system_error(Errno::NOENT))?;
        node.changed = now;
        Ok(node)
    }

    pub(super) fn names(&self, inode: u64) -> io::Result<&NameMap> {
        match &self.node(inode)?.body {
            Body::Directory(names) => Ok(&names.seen),
            _ => Err(system_error(Errno::NOTDIR)),
        }
    }

    pub(super) fn pages(&self, inode: u64) -> io::Result<&Pages> {
        match &self.node(inode)?.body {
            Body::File(pages) => Ok(pages),
            _ => Err(system_error(Errno::INVAL)),
        }
    }

    /// Returns a file's data to be changed, and updates its times.
    pub(super) fn pages_mut(&mut self, inode: u64) -> io::Result<&mut Pages> {
        let now = self.now();
        let node = self.node_mut(inode)?;
        node.metadata.modified = now;
        match &mut node.body {
            Body::File(pages) => Ok(pages),
            _ => Err(system_error(Errno::INVAL)),
        }
    }

    pub(super) fn find(&self, directory: u64, name: &[u8]) -> io::Result<u64> {
        let name = self.spelled(directory, name)?;
        let found = self.names(directory)?.get(&name);
        found.copied().ok_or(system_error(Errno::NOENT))
    }

    /// Returns the spelling of an existing name, or else the given one.
    pub(super) fn spelled(&self, directory: u64, name: &[u8]) -> io::Result<Box<[u8]>> {
        let names = self.names(directory)?;
        let mut others = names.keys();
        let other = self
            .folds_case
            .then(|| others.find(|other| other.eq_ignore_ascii_case(name)));
        Ok(other.flatten().cloned().unwrap_or_else(|| name.into()))
    }

    pub(super) fn status(&self, inode: u64) -> io::Result<Status> {
        let node = self.node(inode)?;
        let (size, allocated) = match &node.body {
            Body::File(pages) => (pages.length(), pages.allocated_bytes()),
            Body::Directory(_) => (0, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
        };
        Ok(Status {
            kind: node.kind(),
            mode: node.metadata.mode,
            owner: Default::default(),
            size,
            allocated,
            device: 1,
            inode,
            modified: node.metadata.modified,
            changed: node.changed,
            names: self.count_names(inode),
            special: None,
        })
    }

    fn count_names(&self, inode: u64) -> u64 {
        if !self.has_links {
            return 1;
        }
        let directories = self.nodes.values().filter_map(|node| match &node.body {
            Body::Directory(names) => Some(&names.seen),
            _ => None,
        });
        let all = directories.flat_map(NameMap::values);
        all.filter(|named| **named == inode).count() as u64
    }

    fn add_node(&mut self, body: Body, mode: u32) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        let modified = self.now();
        let metadata = Metadata { mode, modified };
        let node = Node {
            body,
            metadata,
            durable_metadata: metadata,
            changed: modified,
            is_written: false,
        };
        self.nodes.insert(inode, node);
        inode
    }

    /// Creates an inode with a name.
    pub(super) fn create(
        &mut self,
        directory: u64,
        name: &[u8],
        body: Body,
        mode: u32,
    ) -> io::Result<u64> {
        if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
            return Err(system_error(Errno::INVAL));
        }
        if name.len() > longhaul_proto::manifest::MAXIMUM_NAME_BYTES {
            return Err(system_error(Errno::NAMETOOLONG));
        }
        if self.find(directory, name).is_ok() {
            return Err(system_error(Errno::EXIST));
        }
        let inode = self.add_node(body, mode);
        self.change(vec![NameChange::appears(directory, name, inode)])?;
        Ok(inode)
    }

    /// Removes a name. The inode stays while it is open.
    pub(super) fn unlink(&mut self, directory: u64, name: &[u8]) -> io::Result<()> {
        let name = &*self.spelled(directory, name)?;
        let inode = self.find(directory, name)?;
        self.lose_name(inode)?;
        self.change(vec![NameChange::goes(directory, name, inode)])
    }

    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> io::Result<()> {
        let to = (to.0, &*self.spelled(to.0, to.1)?);
        let inode = self.find(from.0, from.1)?;
        if let Some(&there) = self.names(to.0)?.get(to.1) {
            if there == inode {
                return Ok(());
            }
            self.check_replaceable(inode, there)?;
            self.lose_name(there)?;
        }
        self.change(vec![
            NameChange::goes(from.0, from.1, inode),
            NameChange::appears(to.0, to.1, inode),
        ])
    }

    /// Exchanges the inodes of two names in a directory.
    pub(super) fn exchange(&mut self, directory: u64, one: &[u8], other: &[u8]) -> io::Result<()> {
        let (first, second) = (self.find(directory, one)?, self.find(directory, other)?);
        self.change(vec![
            NameChange::goes(directory, one, first),
            NameChange::goes(directory, other, second),
            NameChange::appears(directory, one, second),
            NameChange::appears(directory, other, first),
        ])
    }

    /// Gives an inode a further name.
    pub(super) fn link(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> io::Result<()> {
        if !self.has_links {
            return Err(system_error(Errno::OPNOTSUPP));
        }
        let inode = self.find(from.0, from.1)?;
        if self.node(inode)?.kind() == FileKind::Directory {
            return Err(system_error(Errno::PERM));
        }
        if self.find(to.0, to.1).is_ok() {
            return Err(system_error(Errno::EXIST));
        }
        self.node_mut(inode)?;
        self.change(vec![NameChange::appears(to.0, to.1, inode)])
    }

    /// Returns an error if this rename is the one that must fail.
    pub(super) fn check_rename(&mut self) -> io::Result<()> {
        let Some(count) = self.faults.renames_until_failure else {
            return Ok(());
        };
        self.faults.renames_until_failure = count.checked_sub(1);
        match count {
            0 => Err(system_error(Errno::IO)),
            _ => Ok(()),
        }
    }

    /// Updates the change time of an inode that loses a name.
    fn lose_name(&mut self, inode: u64) -> io::Result<()> {
        self.node_mut(inode).map(drop)
    }

    fn check_replaceable(&self, inode: u64, there: u64) -> io::Result<()> {
        let moved = self.node(inode)?.kind();
        match (moved, &self.node(there)?.body) {
            (FileKind::Directory, Body::Directory(names)) if names.seen.is_empty() => Ok(()),
            (FileKind::Directory, Body::Directory(_)) => Err(system_error(Errno::NOTEMPTY)),
            (FileKind::Directory, _) => Err(system_error(Errno::NOTDIR)),
            (_, Body::Directory(_)) => Err(system_error(Errno::ISDIR)),
            _ => Ok(()),
        }
    }

    /// Applies changes to the visible names, and records them for a sync.
    fn change(&mut self, changes: Vec<NameChange>) -> io::Result<()> {
        let now = self.now();
        for change in &changes {
            let node = self.node_mut(change.directory)?;
            node.metadata.modified = now;
            match &mut node.body {
                Body::Directory(names) => change.apply(&mut names.seen),
                _ => return Err(system_error(Errno::NOTDIR)),
            }
        }
        self.pending.push(changes);
        Ok(())
    }

    /// Returns the kind of failure if the file system goes down with this sync of a directory.
    fn goes_down(&mut self) -> Option<Down> {
        let (count, down) = self.faults.directory_syncs_until_down?;
        self.faults.directory_syncs_until_down = count.checked_sub(1).map(|left| (left, down));
        (count == 0).then_some(down)
    }

    pub(super) fn sync_directory(&mut self, inode: u64) -> io::Result<()> {
        if self.down.is_some() {
            return Ok(());
        }
        self.down = self.goes_down();
        match self.down {
            Some(Down::Journal) => return Err(system_error(Errno::IO)),
            Some(Down::ShutDown) => return Ok(()),
            None => {}
        }
        let kept = self.sync_succeeds();
        let pending = std::mem::take(&mut self.pending);
        for mut group in pending {
            // Once one half of a rename is durable, the other half no longer depends on it.
            let of_it = group.extract_if(.., |change| change.directory == inode);
            let of_it: Vec<NameChange> = of_it.collect();
            if kept && let Body::Directory(names) = &mut self.node_mut(inode)?.body {
                of_it
                    .iter()
                    .for_each(|change| change.apply(&mut names.durable));
            }
            if !group.is_empty() {
                self.pending.push(group);
            }
        }
        if !kept {
            return Err(system_error(Errno::IO));
        }
        self.keep_metadata(inode)
    }

    /// Makes all names, data and metadata durable. If that fails, the changes of names are lost.
    pub(super) fn sync_all(&mut self) -> io::Result<()> {
        match self.down {
            Some(Down::Journal) => return Ok(()),
            Some(Down::ShutDown) => return Err(system_error(Errno::IO)),
            None => {}
        }
        let kept = self.sync_succeeds();
        let pending = std::mem::take(&mut self.pending);
        if !kept {
            return Err(system_error(Errno::IO));
        }
        for change in pending.iter().flatten() {
            if let Body::Directory(names) = &mut self.node_mut(change.directory)?.body {
                change.apply(&mut names.durable);
            }
        }
        for node in self.nodes.values_mut() {
            node.durable_metadata = node.metadata;
            node.is_written = true;
            if let Body::File(pages) = &mut node.body {
                pages.keep();
            }
        }
        Ok(())
    }

    pub(super) fn sync_file(&mut self, inode: u64, metadata_too: bool) -> io::Result<()> {
        match self.down {
            Some(Down::Journal) => return Ok(()),
            Some(Down::ShutDown) => return Err(system_error(Errno::IO)),
            None => {}
        }
        let kept = self.sync_succeeds();
        let node = self.nodes.get_mut(&inode);
        let node = node.ok_or(system_error(Errno::NOENT))?;
        match &mut node.body {
            Body::File(pages) if kept => pages.keep(),
            Body::File(pages) => pages.lose(),
            _ => return Err(system_error(Errno::INVAL)),
        }
        if !kept {
            return Err(system_error(Errno::IO));
        }
        if metadata_too {
            self.keep_metadata(inode)
        } else {
            Ok(())
        }
    }

    fn keep_metadata(&mut self, inode: u64) -> io::Result<()> {
        let node = self.nodes.get_mut(&inode);
        let node = node.ok_or(system_error(Errno::NOENT))?;
        node.durable_metadata = node.metadata;
        Ok(())
    }

    fn sync_succeeds(&mut self) -> bool {
        let Some(count) = self.faults.syncs_until_failure else {
            return true;
        };
        self.faults.syncs_until_failure = count.checked_sub(1);
        count > 0
    }

    /// Reserves space for a write of `bytes`, and returns the number of bytes that fit.
    pub(super) fn take_room(&mut self, bytes: u64) -> u64 {
        match &mut self.faults.room_bytes {
            None => bytes,
            Some(room) => {
                let fitting = bytes.min(*room);
                *room -= fitting;
                fitting
            }
        }
    }

    /// Returns the disk as the next boot finds it.
    pub(super) fn after_crash(&self, seed: u64) -> Disk {
        let mut chance = Random::new(seed);
        let mut after = Disk::new();
        after.folds_case = self.folds_case;
        after.has_links = self.has_links;
        after.lacks_journal = self.lacks_journal;
        after.next_inode = self.next_inode;
        after.steps = self.steps;
        // Processed in the order of inodes, so that the result depends on the seed only.
        let inodes: std::collections::BTreeSet<u64> = self.nodes.keys().copied().collect();
        for inode in inodes {
            if let Some(node) = self.nodes.get(&inode) {
                after.nodes.insert(inode, node.after_crash(&mut chance));
            }
        }
        for group in self.pending.iter().filter(|_| chance.below(2) == 0) {
            for change in group {
                if let Some(node) = after.nodes.get_mut(&change.directory)
                    && let Body::Directory(names) = &mut node.body
                {
                    change.apply(&mut names.seen);
                    change.apply(&mut names.durable);
                }
            }
        }
        if self.lacks_journal {
            after.lose_unwritten(&mut chance);
        }
        after
    }

    /// Removes some names of links whose inodes were not written, like a file system check.
    fn lose_unwritten(&mut self, chance: &mut Random) {
        let inodes: std::collections::BTreeSet<u64> = self.nodes.keys().copied().collect();
        let lost = inodes.into_iter().filter(|inode| {
            let node = self.nodes.get(inode);
            let is_link = |node: &&Node| node.kind() == FileKind::Symlink && !node.is_written;
            node.filter(is_link).is_some() && chance.below(2) == 0
        });
        let lost: Vec<u64> = lost.collect();
        for node in self.nodes.values_mut() {
            if let Body::Directory(names) = &mut node.body {
                names.seen.retain(|_, inode| !lost.contains(inode));
                names.durable.retain(|_, inode| !lost.contains(inode));
            }
            node.is_written = true;
        }
    }
}

impl Node {
    pub(super) fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::File,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
        }
    }

    fn after_crash(&self, chance: &mut Random) -> Node {
        let body = match &self.body {
            Body::File(pages) => Body::File(pages.after_crash(chance)),
            Body::Directory(names) => Body::Directory(Names {
                seen: names.durable.clone(),
                durable: names.durable.clone(),
            }),
            Body::Symlink(target) => Body::Symlink(target.clone()),
        };
        let metadata = if chance.below(2) == 0 {
            self.metadata
        } else {
            self.durable_metadata
        };
        Node {
            body,
            metadata,
            durable_metadata: metadata,
            changed: self.changed,
            is_written: self.is_written,
        }
    }
}
