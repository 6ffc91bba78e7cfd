//! Tests of the journal on storage that loses unsynced data.

#![allow(clippy::unwrap_used, clippy::panic)]

mod claims;
mod crashes;
mod leftover_files;
mod meanwhile;
mod records;
mod sharing;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_proto::digest::Checksum;
use longhaul_proto::manifest::{SourceIdentity, Timestamp};
use twox_hash::XxHash3_64;

use longhaul_proto::digest::Integrity;
use longhaul_proto::ledger::DurableBlock;

use super::doing::doing;
use super::{Claim, ClaimError, Committed, JournalError, Owner, Partial};
use crate::{DataMode, Directory, StoredFile};

/// Size in bytes of a block, aligned neither to a page nor to a sector.
const BLOCK_BYTES: u64 = 5_000;
const BLOCKS: u64 = 3;
const NAME: &[u8] = b"data.h5";
const MODIFIED: Timestamp = Timestamp {
    seconds: 77,
    nanoseconds: 999_999_999,
};

/// A state of a source file, which determines its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    path: u8,
    version: u8,
}

const FIRST: Source = Source {
    path: 1,
    version: 1,
};
const CHANGED: Source = Source {
    path: 1,
    version: 2,
};
const OTHER: Source = Source {
    path: 2,
    version: 1,
};

impl Source {
    fn claim<'a>(self, directory: &Arc<dyn Directory>, process: u32) -> Claim<'a> {
        Claim {
            directory: directory.clone(),
            name: NAME,
            principal: "alice",
            source: [self.path; 32],
            identity: SourceIdentity {
                inode: 9,
                size: BLOCKS * BLOCK_BYTES,
                modified: Timestamp {
                    seconds: self.version.into(),
                    nanoseconds: 0,
                },
                changed: Timestamp::default(),
            },
            integrity: Integrity::Checksum,
            owner: owner(process),
            superseded: &[],
            inherits: false,
            data_mode: DataMode::Buffered,
            sharing: super::Sharing::Alone,
        }
    }

    fn block(self, number: u64) -> Vec<u8> {
        let seed = [self.path, self.version, number as u8];
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        blake3::Hasher::new()
            .update(&seed)
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    }

    fn whole(self) -> Vec<u8> {
        (0..BLOCKS).flat_map(|number| self.block(number)).collect()
    }

    fn durable(self, number: u64) -> DurableBlock {
        DurableBlock {
            offset: number * BLOCK_BYTES,
            length: BLOCK_BYTES,
            checksum: Checksum::Xxh3(XxHash3_64::oneshot(&self.block(number))),
        }
    }

    /// Writes a block and makes it durable, as a receiver does.
    fn receive(self, partial: &Partial, number: u64) -> Result<(), JournalError> {
        partial.ensure_owned()?;
        let block = self.block(number);
        partial
            .file()
            .write_at(&block, number * BLOCK_BYTES)
            .map_err(doing("writing"))?;
        partial.file().sync_data().map_err(doing("writing"))?;
        partial.append_durable(&[self.durable(number)])
    }
}

fn owner(process: u32) -> Owner {
    Owner {
        host: "gauss".into(),
        process,
        started: Timestamp::default(),
        session: [process as u8; 16],
    }
}

fn claim(directory: &Arc<dyn Directory>, source: Source, process: u32) -> Partial {
    super::claim(&source.claim(directory, process)).unwrap()
}

fn commit(partial: &Partial, mode: u32) -> Result<Committed, JournalError> {
    let finish = |file: &dyn StoredFile| {
        file.set_mode(mode)?;
        file.set_modified(MODIFIED)
    };
    partial.finalise(finish)?.commit(NAME)
}

fn read(directory: &Arc<dyn Directory>, name: &[u8]) -> Option<Vec<u8>> {
    let file = directory.open_file(name, DataMode::Buffered).ok()?;
    Some(read_file(&*file))
}

fn read_file(file: &dyn StoredFile) -> Vec<u8> {
    let mut data = vec![0; file.status().unwrap().size as usize];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    data
}

fn listing(directory: &Arc<dyn Directory>) -> BTreeMap<Box<[u8]>, u64> {
    let mut names = directory.list().unwrap();
    let mut listed = BTreeMap::new();
    while let Some(entry) = names.next_name().unwrap() {
        let size = directory.status_of(&entry.name).unwrap().size;
        listed.insert(entry.name, size);
    }
    listed
}
