//! What lies on disks: journals, lists of principals, keys and tokens; and the
//! payloads of blocks.

use std::path::Path;

use longhaul_engine::codec::{Decoder, Encoder, bound};
use longhaul_engine::journal::digests;
use longhaul_engine::journal::entry::{
    self, Entry, FRAME_BYTES, MAXIMUM_BODY_BYTES, MAXIMUM_FILE_BYTES,
};
use longhaul_engine::journal::reader::{Found, replay};
use longhaul_engine::net::client_tokens::{BadLine, ClientTokens};
use longhaul_engine::net::identity::Fingerprint;
use longhaul_engine::net::known_hosts::{self, Knowledge};
use longhaul_engine::net::principals::Principals;
use longhaul_engine::net::tcp::HostPort;
use longhaul_engine::net::token::Token;
use longhaul_engine::storage::forgetting::ForgettingStorage;
use longhaul_engine::storage::{Creation, DataMode};
use longhaul_proto::block::Codec;
use twox_hash::XxHash3_64;

use crate::choices::Choices;

/// Longest payload that is tried, before and after.
const PAYLOAD_BYTES: u64 = 256 << 10;

/// A payload that is decoded into a room of the announced size, which it never
/// leaves.
pub fn codec(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let codec = match choices.below(3) {
        0 => Codec::Lz4,
        _ => Codec::Zstd { level: 1 },
    };
    let announced = (choices.number() % PAYLOAD_BYTES) as usize;
    let payload = choices.rest();
    let Ok(mut decoder) = Decoder::new() else {
        return;
    };
    // What is behind the room must stay as it is.
    let mut room = vec![0xa5; announced + 64];
    let decoded = decoder.decode(codec, payload, &mut room[..announced]);
    assert!(room[announced..].iter().all(|&byte| byte == 0xa5));
    if decoded.is_ok() {
        let Ok(mut encoder) = Encoder::new() else {
            return;
        };
        let mut packed = vec![0; bound(codec, announced)];
        let length = encoder
            .encode(codec, &room[..announced], &mut packed)
            .expect("there is room");
        let mut back = vec![0; announced];
        let again = decoder.decode(codec, &packed[..length], &mut back);
        assert!(again.is_ok() && back == room[..announced]);
    }
}

/// One record, as it is and with a checksum that fits.
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

/// A whole journal, as it is and as records whose checksums fit: two bytes of
/// length, one of type, the body.
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

/// A file of principals; what it grants leads beneath a root.
pub fn principals(bytes: &[u8]) {
    let (text, url) = match bytes.iter().position(|&byte| byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b"/data/x"[..]),
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let parsed = match Principals::parse(text, Path::new("principals.toml")) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let token: Token = format!("lht_{}", "A".repeat(43))
        .parse()
        .expect("it is a token");
    if let Ok(principal) = parsed.by_token("alice", &token)
        && let Ok(resolved) = principal.resolve(url)
    {
        assert!(resolved.root.is_absolute());
    }
}

/// A list of known hosts.
pub fn known_hosts(bytes: &[u8]) {
    let key: Fingerprint = format!("sha256:{}", "A".repeat(43))
        .parse()
        .expect("it is a fingerprint");
    let host = HostPort::new("host", 1);
    let judged = known_hosts::judge(Path::new("known_hosts"), bytes, &host, &key);
    if let Ok(Knowledge::Changed { line, known }) = judged {
        assert!(line > 0 && known != key);
    }
}

/// A user's file of tokens; errors do not repeat what may be a secret.
pub fn client_tokens(bytes: &[u8]) {
    let lines = bytes.split(|&byte| byte == b'\n').count();
    let tokens = ClientTokens::parse(bytes);
    assert!(tokens.bad_lines().all(|line| (1..=lines).contains(&line)));
    if let Err(BadLine(line)) = tokens.lookup(&HostPort::new("host", 1), Some("alice")) {
        assert!(tokens.bad_lines().any(|bad| bad == line));
    }
}
