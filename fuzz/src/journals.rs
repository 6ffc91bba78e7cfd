//! Journals of partial files, and digests of finished ones.

use longhaul_storage::forgetting::ForgettingStorage;
use longhaul_storage::journal::digests;
use longhaul_storage::journal::entry::{
    self, Entry, FRAME_BYTES, MAXIMUM_BODY_BYTES, MAXIMUM_FILE_BYTES,
};
use longhaul_storage::journal::reader::{Found, replay};
use longhaul_storage::{Creation, DataMode};
use twox_hash::XxHash3_64;

use super::choices::Choices;

/// Decodes one record, as it is and with a correct checksum.
pub fn journal_entry(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let position = choices.number();
    let record = choices.rest();
    read_record(record, position);
    if let Some((&kind, body)) = record.split_first()
        && body.len() <= MAXIMUM_BODY_BYTES
    {
        read_record(&sealed(kind, body, position), position);
    }
}

fn sealed(kind: u8, body: &[u8], position: u64) -> Vec<u8> {
    let [low, high] = (body.len() as u16).to_le_bytes();
    let mut record = vec![kind, 0, low, high];
    record.extend(body);
    let checksum = XxHash3_64::oneshot_with_seed(position, &record);
    record.extend(checksum.to_le_bytes());
    record
}

fn read_record(bytes: &[u8], position: u64) {
    let Ok((record, length)) = entry::decode(bytes, position) else {
        return;
    };
    assert!(length <= bytes.len() && length <= FRAME_BYTES + MAXIMUM_BODY_BYTES);
    if let Entry::Durable(block) = record {
        assert!(block.length > 0 && block.offset + block.length <= MAXIMUM_FILE_BYTES);
    }
    let mut again = Vec::new();
    assert_eq!(entry::encode(&record, position, &mut again), Ok(()));
    assert_eq!(again, bytes[..length]);
}

/// A kept digest, as it is and with a checksum that fits.
pub fn kept_digest(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let position = choices.number();
    let Some(record) = choices.rest().first_chunk::<{ digests::RECORD_BYTES }>() else {
        return;
    };
    let mut sealed = *record;
    let checked = digests::RECORD_BYTES - 8;
    let checksum = XxHash3_64::oneshot_with_seed(position, &record[..checked]);
    sealed[checked..].copy_from_slice(&checksum.to_le_bytes());
    for record in [record, &sealed] {
        if let Some((file, digest)) = digests::decode(record, position) {
            assert_eq!(digests::encode(&file, &digest, position), *record);
        }
    }
    assert!(digests::decode(&sealed, position).is_some());
}

/// Replays a whole journal, as it is and as records with correct checksums. Each record of the
/// input has two bytes of length, one byte of type, and the body.
pub fn journal(bytes: &[u8]) {
    replay_of(bytes);
    let mut choices = Choices::new(bytes);
    let mut written = Vec::new();
    while !choices.is_empty() {
        let length = (usize::from(choices.byte()) << 8 | usize::from(choices.byte()))
            % (MAXIMUM_BODY_BYTES + 2);
        let kind = choices.byte();
        let body = choices.slice(length);
        let position = written.len() as u64;
        written.extend(sealed(kind, body, position));
    }
    replay_of(&written);
}

fn replay_of(bytes: &[u8]) {
    let storage = ForgettingStorage::new();
    let file = storage
        .root()
        .create_file(b"journal", Creation::New, DataMode::Buffered)
        .expect("a file in memory");
    file.write_at(bytes, 0)
        .expect("memory takes what is written");
    let found = replay(&*file).expect("memory gives what was written");
    let Found::Journal(found) = found else {
        return;
    };
    assert!(found.valid_bytes <= bytes.len() as u64);
    let mut end = 0;
    for block in &found.blocks {
        assert!(block.offset >= end && found.header.integrity.fits(&block.checksum));
        end = block.end();
    }
}
