//! Valid records of journals and digests.

use longhaul_proto::digest::{Checksum, Integrity};
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{SourceIdentity, Timestamp};
use longhaul_storage::journal::digests::{self, FileState};
use longhaul_storage::journal::entry::{self, Entry, Header, Owner};
use longhaul_storage::{FileKind, Status};

/// Returns types and bodies of the records of a journal.
pub fn records() -> Vec<(u8, Vec<u8>)> {
    let header = Entry::Header(Header {
        part: 7,
        integrity: Integrity::Digest,
        source: [2; 32],
        identity: SourceIdentity::default(),
        name: b"data.h5"[..].into(),
        principal: "alice".into(),
    });
    let owner = |epoch| Entry::Owner {
        epoch,
        owner: Owner {
            host: "dtn".into(),
            process: 5,
            started: Timestamp::default(),
            session: [1; 16],
        },
    };
    let block = |offset, length| {
        Entry::Durable(DurableBlock {
            offset,
            length,
            checksum: Checksum::Blake3([3; 32]),
        })
    };
    [
        header,
        owner(1),
        block(0, 1 << 20),
        block(1 << 20, 1 << 20),
        owner(2),
        block(0, 2 << 20),
    ]
    .iter()
    .map(|entry| {
        let mut record = Vec::new();
        entry::encode(entry, 0, &mut record).unwrap();
        (record[0], record[4..record.len() - 8].to_vec())
    })
    .collect()
}

/// Returns a position and a record.
pub fn kept_digest() -> Vec<u8> {
    let status = Status {
        kind: FileKind::File,
        mode: 0o644,
        size: 5,
        allocated: 4096,
        device: 1,
        inode: 7,
        modified: Timestamp::default(),
        owner: Default::default(),
        changed: Timestamp::default(),
        names: 1,
        special: None,
    };
    let file = FileState::new(b"data/run", &Default::default(), &status);
    let record = digests::encode(&file, &[3; 32], 0);
    [&[0], &record[..]].concat()
}
