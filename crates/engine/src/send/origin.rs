//! Computes the number by which a receiver recognises a source file, independent of the host's name
//! and of the command line.
//!
//! An inode number alone is not enough, since two hosts may use the same one for different files.
//! If the file system has a UUID, the number is made of both. Otherwise the file's state is part of
//! the number, since two files never share a precise change time.

use std::sync::{PoisonError, RwLock};

use longhaul_proto::manifest::{EntryKind, SourceIdentity, Timestamp};
use longhaul_storage::origin::Uuid;
use longhaul_storage::{Directory, Status};
use twox_hash::XxHash3_64;

/// Maximum number of devices whose file systems are remembered. For others no UUID is used.
const MOST_DEVICES: usize = 1024;

/// Change times that are multiples of this are not precise: in images of file systems they are
/// often the same for all files.
const EXACT_NANOSECONDS: u32 = 1_000_000;

/// Larger inode numbers come from cluster file systems, which never reuse them.
const LARGEST_LOCAL_INODE: u64 = u32::MAX as u64;

/// File systems of a transfer's sources.
#[derive(Default)]
pub(crate) struct Origins {
    devices: RwLock<Vec<(u64, Option<Uuid>)>>,
}

impl Origins {
    /// Records the file system of a file in this directory.
    pub fn learn(&self, directory: &dyn Directory, file: &Status) {
        if self.find(file.device).is_some() {
            return;
        }
        // A file may be a mount point, on another file system than its directory.
        let same = directory
            .status()
            .is_ok_and(|status| status.device == file.device);
        let uuid = directory.uuid().filter(|_| same);
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        if devices.len() < MOST_DEVICES {
            devices.push((file.device, uuid));
        }
    }

    fn find(&self, device: u64) -> Option<Option<Uuid>> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        let found = devices.iter().find(|(known, _)| *known == device);
        found.map(|(_, uuid)| *uuid)
    }

    /// Returns the identity of a file's current state.
    pub fn identity_of(&self, status: &Status) -> SourceIdentity {
        let state = SourceIdentity {
            inode: status.inode,
            size: status.size,
            modified: status.modified,
            changed: status.changed,
        };
        let inode = match self.find(status.device).flatten() {
            Some(uuid) => number_of(&uuid, &[status.inode]),
            None => number_of_state(&state),
        };
        SourceIdentity { inode, ..state }
    }

    /// Returns a file's kind.
    pub fn kind_of(&self, status: &Status) -> EntryKind {
        EntryKind::File {
            identity: self.identity_of(status),
            sparse: status.allocated < status.size,
        }
    }
}

/// Returns the number of a file on a file system without a UUID.
fn number_of_state(state: &SourceIdentity) -> u64 {
    let is_exact = !state.changed.nanoseconds.is_multiple_of(EXACT_NANOSECONDS);
    if is_exact || state.inode > LARGEST_LOCAL_INODE {
        let time = |time: Timestamp| [time.seconds as u64, u64::from(time.nanoseconds)];
        let ([a, b], [c, d]) = (time(state.modified), time(state.changed));
        return number_of(b"state", &[state.inode, state.size, a, b, c, d]);
    }
    let host = rustix::system::uname();
    number_of(host.nodename().to_bytes(), &[state.inode])
}

fn number_of(space: &[u8], numbers: &[u64]) -> u64 {
    let mut bytes = space.to_vec();
    for number in numbers {
        bytes.extend(number.to_le_bytes());
    }
    XxHash3_64::oneshot(&bytes)
}

#[cfg(test)]
mod tests {
    use longhaul_storage::FileKind;

    use super::*;

    fn status(inode: u64, size: u64, nanoseconds: u32) -> Status {
        let time = Timestamp {
            seconds: 1_700_000_000,
            nanoseconds,
        };
        Status {
            kind: FileKind::File,
            mode: 0o644,
            owner: Default::default(),
            size,
            allocated: size,
            device: 7,
            inode,
            modified: time,
            changed: time,
            names: 1,
            special: None,
        }
    }

    fn inode(devices: &[(u64, Option<Uuid>)], status: &Status) -> u64 {
        let origins = Origins {
            devices: RwLock::new(devices.to_vec()),
        };
        origins.identity_of(status).inode
    }

    #[test]
    fn a_file_is_identified_by_uuid_and_inode_if_there_is_a_uuid() {
        let [one, other] = [[1; 16], [2; 16]];
        let file = status(12, 5, 3);
        // Device numbers are specific to each host.
        let elsewhere = Status { device: 9, ..file };
        let at = inode(&[(7, Some(one))], &file);
        assert_eq!(at, inode(&[(9, Some(one))], &elsewhere));
        assert_eq!(at, inode(&[(7, Some(one))], &status(12, 6, 4)));
        assert_ne!(at, inode(&[(7, Some(one))], &status(13, 5, 3)));
        assert_ne!(at, inode(&[(7, Some(other))], &file));
    }

    #[test]
    fn without_a_uuid_its_state_is_part_of_it() {
        let none = [(7, None)];
        let at = inode(&none, &status(12, 5, 3));
        assert_eq!(at, inode(&[], &status(12, 5, 3)));
        assert_ne!(at, inode(&none, &status(12, 6, 3)));
        assert_ne!(at, inode(&none, &status(12, 5, 4)));
        // Without precise times the state is not precise either; the inodes of clusters are.
        let coarse = inode(&none, &status(12, 5, 0));
        assert_eq!(coarse, inode(&none, &status(12, 6, 0)));
        let large = 0x2_0000_0001;
        assert_ne!(
            inode(&none, &status(large, 5, 0)),
            inode(&none, &status(large, 6, 0))
        );
    }

    #[test]
    fn a_device_is_queried_once() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), "x").unwrap();
        let root = longhaul_storage::posix::PosixDirectory::open_root(place.path()).unwrap();
        let origins = Origins::default();
        let file = root.status_of(b"f").unwrap();
        for _ in 0..2 {
            origins.learn(&*root, &file);
        }
        // A file on another device than its directory does not get the directory's UUID.
        let mounted = Status {
            device: file.device + 1,
            ..file
        };
        origins.learn(&*root, &mounted);
        assert_eq!(origins.find(mounted.device), Some(None));
        assert_eq!(origins.devices.read().unwrap().len(), 2);
    }
}
