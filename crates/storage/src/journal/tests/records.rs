//! Encoding and decoding of complete, torn and damaged records.

use proptest::prelude::*;

use super::super::entry::{self, Entry, EntryError, Header};
use super::super::reader::{Found, replay};
use super::*;
use crate::Creation;
use crate::forgetting::ForgettingStorage;

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanoseconds)| Timestamp {
        seconds,
        nanoseconds,
    })
}

fn durable() -> impl Strategy<Value = DurableBlock> {
    let checksum = prop_oneof![
        any::<[u8; 32]>().prop_map(Checksum::Blake3),
        any::<u64>().prop_map(Checksum::Xxh3),
    ];
    let place = (0..entry::MAXIMUM_FILE_BYTES)
        .prop_flat_map(|offset| (Just(offset), 1..=entry::MAXIMUM_FILE_BYTES - offset));
    (place, checksum).prop_map(|((offset, length), checksum)| DurableBlock {
        offset,
        length,
        checksum,
    })
}

fn header() -> impl Strategy<Value = Header> {
    let name = prop::collection::vec(any::<u8>(), 1..=255);
    let identity = (any::<u64>(), any::<u64>(), time(), time());
    (
        any::<u64>(),
        any::<bool>(),
        any::<[u8; 32]>(),
        identity,
        name,
        "[a-z]{0,255}",
    )
        .prop_map(
            |(part, digest, source, (inode, size, modified, changed), name, principal)| Header {
                part,
                integrity: if digest {
                    Integrity::Digest
                } else {
                    Integrity::Checksum
                },
                source,
                identity: SourceIdentity {
                    inode,
                    size,
                    modified,
                    changed,
                },
                name: name.into(),
                principal: principal.into(),
            },
        )
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let owner = (any::<u32>(), time(), any::<[u8; 16]>(), "[a-z.]{0,255}");
    let owner = (any::<u64>(), owner).prop_map(|(epoch, (process, started, session, host))| {
        let host = host.into();
        let owner = Owner {
            host,
            process,
            started,
            session,
        };
        Entry::Owner { epoch, owner }
    });
    prop_oneof![
        header().prop_map(Entry::Header),
        owner,
        durable().prop_map(Entry::Durable)
    ]
}

fn encoded(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        entry::encode(entry, bytes.len() as u64, &mut bytes).unwrap();
    }
    bytes
}

fn replayed(bytes: &[u8]) -> Found {
    let root = ForgettingStorage::new().root();
    let file = root
        .create_file(b"j", Creation::New, DataMode::Buffered)
        .unwrap();
    file.write_at(bytes, 0).unwrap();
    replay(&*file).unwrap()
}

/// Returns a header, an owner, and blocks, with a second owner between them.
fn journal(blocks: u64) -> Vec<Entry> {
    let root = ForgettingStorage::new().root();
    let claim = FIRST.claim(&root, 1);
    let header = Header {
        part: 5,
        integrity: claim.integrity,
        source: claim.source,
        identity: claim.identity,
        name: NAME.into(),
        principal: "alice".into(),
    };
    let mut entries = vec![Entry::Header(header)];
    for epoch in 1..3 {
        let owner = owner(epoch as u32);
        entries.push(Entry::Owner { epoch, owner });
        let start = (epoch - 1) * blocks;
        entries.extend((start..start + blocks).map(|number| {
            Entry::Durable(DurableBlock {
                offset: number * 10,
                length: 10,
                checksum: Checksum::Xxh3(number),
            })
        }));
    }
    entries
}

fn blocks_of(found: &Found) -> &[DurableBlock] {
    match found {
        Found::Journal(replay) => &replay.blocks,
        Found::Nothing => &[],
        Found::Version(version) => panic!("version {version} was never written"),
    }
}

/// Checks that the blocks before the damage are found, and no others.
fn assert_prefix(damaged: &[u8], whole: &Found) {
    let found = replayed(damaged);
    let (found, whole) = (blocks_of(&found), blocks_of(whole));
    assert_eq!(found, &whole[..found.len()]);
}

#[test]
fn a_journal_cut_at_any_byte_keeps_the_records_before_it() {
    let bytes = encoded(&journal(4));
    let whole = replayed(&bytes);
    assert_eq!(blocks_of(&whole).len(), 8);
    let mut most = 0;
    for length in 0..=bytes.len() {
        assert_prefix(&bytes[..length], &whole);
        let found = replayed(&bytes[..length]);
        assert!(blocks_of(&found).len() >= most);
        most = blocks_of(&found).len();
    }
    assert_eq!(most, 8);
}

#[test]
fn a_flipped_byte_never_makes_a_wrong_block() {
    let bytes = encoded(&journal(3));
    let whole = replayed(&bytes);
    for position in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[position] ^= flip;
            assert_prefix(&damaged, &whole);
        }
    }
}

#[test]
fn a_long_journal_is_read_in_pieces() {
    let entries = journal(5_000);
    let found = replayed(&encoded(&entries));
    assert_eq!(blocks_of(&found).len(), 10_000);
    let Found::Journal(replay) = found else {
        panic!()
    };
    assert_eq!((replay.epoch, replay.owner), (2, owner(2)));
}

#[test]
fn another_version_is_named() {
    let mut bytes = encoded(&journal(0));
    bytes[4] = 9;
    let body = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
    let checksum = XxHash3_64::oneshot(&bytes[..4 + body]).to_le_bytes();
    bytes[4 + body..12 + body].copy_from_slice(&checksum);
    assert_eq!(
        entry::decode(&bytes, 0),
        Err(EntryError::Version { version: 9 })
    );
    assert_eq!(replayed(&bytes), Found::Version(9));
}

#[test]
fn a_record_is_valid_in_its_place_only() {
    let entry = Entry::Durable(FIRST.durable(0));
    let mut bytes = Vec::new();
    entry::encode(&entry, 100, &mut bytes).unwrap();
    assert_eq!(entry::decode(&bytes, 100), Ok((entry, bytes.len())));
    assert_eq!(entry::decode(&bytes, 0), Err(EntryError::Checksum));
}

#[test]
fn overlapping_blocks_keep_the_longer() {
    let mut entries = journal(0);
    for (offset, length) in [(10, 10), (0, 10), (0, 20), (20, 5), (22, 3)] {
        let checksum = Checksum::Xxh3(length);
        entries.push(Entry::Durable(DurableBlock {
            offset,
            length,
            checksum,
        }));
    }
    let found = replayed(&encoded(&entries));
    let kept: Vec<_> = blocks_of(&found)
        .iter()
        .map(|block| (block.offset, block.length))
        .collect();
    assert_eq!(kept, [(0, 20), (20, 5)]);
}

#[test]
fn records_beyond_a_limit_are_not_written() {
    let mut bytes = Vec::new();
    let block = DurableBlock {
        offset: 1,
        length: entry::MAXIMUM_FILE_BYTES,
        checksum: Checksum::Xxh3(0),
    };
    assert!(entry::encode(&Entry::Durable(block), 0, &mut bytes).is_err());
    let mut owner = owner(1);
    owner.host = "h".repeat(256).into();
    assert!(entry::encode(&Entry::Owner { epoch: 1, owner }, 0, &mut bytes).is_err());
    assert!(bytes.is_empty());
}

proptest! {
    #[test]
    fn entries_survive_the_journal(entry in any_entry(), position in any::<u64>()) {
        let mut bytes = Vec::new();
        entry::encode(&entry, position, &mut bytes).unwrap();
        prop_assert!(bytes.len() <= entry::MAXIMUM_RECORD_BYTES);
        let length = bytes.len();
        bytes.extend([0xaa; 3]);
        prop_assert_eq!(entry::decode(&bytes, position), Ok((entry, length)));
        for cut in 0..length {
            prop_assert_eq!(entry::decode(&bytes[..cut], position), Err(EntryError::Truncated));
        }
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        prop_assert!(entry::decode(&bytes, 0).is_err());
        replayed(&bytes);
    }

    /// Any body with a valid checksum, which the checksum cannot reject.
    #[test]
    fn no_body_is_too_odd(
        kind in 0..5u8, mut body in prop::collection::vec(any::<u8>(), 0..120), version in 0..3u16,
    ) {
        if let (1, Some(start)) = (kind, body.first_chunk_mut()) {
            *start = version.to_le_bytes();
        }
        let mut bytes = vec![kind, 0];
        bytes.extend((body.len() as u16).to_le_bytes());
        bytes.extend(&body);
        bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
        if let Ok((entry, length)) = entry::decode(&bytes, 0) {
            prop_assert_eq!(length, bytes.len());
            prop_assert_eq!(encoded(&[entry]), bytes);
        }
    }
}
