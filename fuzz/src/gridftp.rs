//! Bytes of FTP and GridFTP servers.

use longhaul_gridftp::location::Location;
use longhaul_gridftp::protocol::address::{extended_port, passive_port};
use longhaul_gridftp::protocol::block::{BlockReader, Part};
use longhaul_gridftp::protocol::facts::{
    self, Entry, Line, MAXIMUM_FILE_BYTES, MAXIMUM_LINK_BYTES, is_component,
};
use longhaul_gridftp::protocol::features::Features;
use longhaul_gridftp::protocol::ranges::Ranges;
use longhaul_gridftp::protocol::reply::{Reply, ReplyReader};
use longhaul_gridftp::protocol::{time, unix_listing};

/// Size of the file of [`block`] in bytes.
const SIZE: u64 = 4096;

/// Replies do not depend on how their bytes arrive, and their text has no control characters.
pub fn reply(bytes: &[u8]) {
    let whole = replies(bytes, bytes.len().max(1));
    assert_eq!(whole, replies(bytes, 3));
    for reply in whole {
        assert!((100..600).contains(&reply.code));
        assert!(!reply.text().chars().any(char::is_control));
        let _ = Features::parse(&reply);
        for line in &reply.lines {
            let ports = [extended_port(line), passive_port(line)];
            assert!(!ports.contains(&Some(0)));
            if let Some(ranges) = Ranges::parse(line) {
                assert!(
                    ranges.is_empty() || Ranges::parse(ranges.marker().as_bytes()) == Some(ranges)
                );
            }
        }
    }
}

/// Splits bytes that arrive in steps, up to the first error.
fn replies(bytes: &[u8], step: usize) -> Vec<Reply> {
    let mut reader = ReplyReader::default();
    let mut found = Vec::new();
    for part in bytes.chunks(step) {
        reader.push(part);
        loop {
            match reader.next_reply() {
                Ok(Some(reply)) => found.push(reply),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

/// Entries have names that cannot leave their directory.
pub fn listing(bytes: &[u8]) {
    for line in [facts::parse(bytes), unix_listing::parse(bytes)] {
        if let Some(Line::Entry(entry)) = line {
            check(&entry);
        }
    }
    if let Some(parsed) = time::parse(bytes) {
        assert!(parsed.nanoseconds < 1_000_000_000);
    }
}

fn check(entry: &Entry) {
    assert!(is_component(&entry.name));
    assert!(entry.mode.unwrap_or_default() <= 0o7777);
    assert!(entry.size.unwrap_or_default() <= MAXIMUM_FILE_BYTES);
    let target = entry.link_target.as_deref().unwrap_or(b"x");
    assert!((1..=MAXIMUM_LINK_BYTES).contains(&target.len()));
}

/// Parsed URLs contain no bytes that would add a command, or an option of ssh.
pub fn location(bytes: &[u8]) {
    match Location::parse(bytes) {
        Ok(location) => {
            assert!(!location.host.is_empty() && !location.host.starts_with('-'));
            assert_ne!(location.port, Some(0));
            let user = location.user.clone().unwrap_or_default();
            assert!(!user.starts_with('-'));
            for text in [location.path.as_slice(), user.as_bytes()] {
                assert!(!text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            }
            assert!(!location.path.is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Frames lie within the file, and do not depend on how their bytes arrive. The first byte is
/// the number of bytes in each step.
pub fn block(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = frames(bytes, bytes.len().max(1));
    assert_eq!(whole, frames(bytes, usize::from(*step).max(1)));
}

/// Returns the file, its flags as text, and true if all frames are valid.
fn frames(bytes: &[u8], step: usize) -> (Vec<u8>, Vec<String>, bool) {
    let mut reader = BlockReader::default();
    let mut file = vec![0; SIZE as usize];
    let mut flags = Vec::new();
    for part in bytes.chunks(step) {
        let mut rest = part;
        loop {
            let Ok((used, part)) = reader.next(rest, SIZE) else {
                return (file, flags, false);
            };
            rest = &rest[used..];
            match part {
                Some(Part::Data { offset, bytes }) => {
                    let at = offset as usize;
                    file[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Some(other) => flags.push(format!("{other:?}")),
                None if rest.is_empty() => break,
                None => {}
            }
        }
    }
    (file, flags, true)
}
