//! Decoders of `longhaul-proto`. For any input there is no panic and no value out of its bounds,
//! and a decoded value is encoded and decoded again without a change.

use longhaul_proto::block::{BlockHeader, Content, LARGEST_BLOCK_BYTES};
use longhaul_proto::control::{ControlChannel, Numbered};
use longhaul_proto::digest::{
    BlockHasher, Checksum, DigestTree, Integrity, LARGEST_FILE_BYTES, is_block, longest_block,
};
use longhaul_proto::filter::{Action, Ends, Filter, Gathered, InForce, Rules};
use longhaul_proto::frame::{
    self, FrameHeader, FrameKind, HEADER_BYTES, MAXIMUM_BODY_BYTES, MAXIMUM_PAYLOAD_BYTES,
};
use longhaul_proto::handshake::{Answer, Hello, Purpose};
use longhaul_proto::manifest::{EntryKind, MAXIMUM_NAME_BYTES, MAXIMUM_PATH_BYTES, TreePath};
use longhaul_proto::message::Message;
use longhaul_proto::stream::StreamPart;
use minicbor::{Decode, Encode};

use super::choices::Choices;

/// Checks that a `TreePath` cannot name a file outside the anchor.
pub fn tree_path(bytes: &[u8]) {
    let Ok(path) = TreePath::new(bytes) else {
        return;
    };
    assert_eq!(path.as_bytes(), bytes);
    assert!(bytes.len() <= MAXIMUM_PATH_BYTES && !bytes.contains(&0));
    for name in path.names() {
        assert!(!name.is_empty() && name != b"." && name != b"..");
        assert!(name.len() <= MAXIMUM_NAME_BYTES);
    }
    let rejoined = match path.parent() {
        Some(parent) => parent.join(path.name()),
        None => TreePath::new(path.name()),
    };
    assert_eq!(rejoined, Ok(path.clone()));
    assert!(!path.to_string().contains(char::is_control));
    if let Some(part) = StreamPart::parse(path.name()) {
        assert_eq!(*part.name(), *path.name());
    }
}

/// Whole frames. The header's checksum stops a fuzzer, so the input is tried
/// as it is, and as kind, payload length and body of a frame that was sealed
/// right.
pub fn frame(bytes: &[u8]) {
    if let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        read_frame(header, body);
    }
    let mut choices = Choices::new(bytes);
    let kinds = [FrameKind::Handshake, FrameKind::Control, FrameKind::Block];
    let kind = kinds[choices.below(kinds.len())];
    let payload = choices.number() as usize;
    let Ok(sealed) = frame::encode(kind, &Raw(choices.rest()), payload) else {
        return;
    };
    if let Some((header, body)) = sealed.split_first_chunk::<HEADER_BYTES>() {
        read_frame(header, body);
    }
}

/// Bytes that are CBOR, or not.
struct Raw<'a>(&'a [u8]);

impl<C> Encode<C> for Raw<'_> {
    fn encode<W: minicbor::encode::Write>(
        &self,
        encoder: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        encoder
            .writer_mut()
            .write_all(self.0)
            .map_err(minicbor::encode::Error::write)
    }
}

fn read_frame(header: &[u8; HEADER_BYTES], rest: &[u8]) {
    let Ok(header) = FrameHeader::parse(header) else {
        return;
    };
    assert!(header.body <= header.kind.maximum_body() && header.body <= MAXIMUM_BODY_BYTES);
    assert!(header.payload <= MAXIMUM_PAYLOAD_BYTES);
    let body = &rest[..header.body.min(rest.len())];
    match header.kind {
        FrameKind::Handshake => {
            if let Ok(hello) = header.decode::<Hello>(body) {
                same_again(&hello);
                match &hello.purpose {
                    Purpose::Open(request) => drop(request.is_valid()),
                    Purpose::List(request) => drop(request.is_valid()),
                    Purpose::ControlRequest(control_request) => drop(control_request.is_valid()),
                    Purpose::Join(_) | Purpose::Vouch(_) => {}
                }
            }
            if let Ok(answer) = header.decode::<Answer>(body) {
                same_again(&answer);
                if let Answer::Listed(listed) = &answer {
                    listed.is_valid();
                }
            }
        }
        FrameKind::Control => {
            if let Ok(numbered) = header.decode::<Numbered>(body) {
                same_again(&numbered);
                message(numbered.message.as_deref().unwrap_or_default());
            }
        }
        FrameKind::Block => {
            if let Ok(block) = header.decode::<BlockHeader>(body) {
                same_again(&block);
                check_sizes(&block, header.payload);
            }
        }
    }
}

/// A message without its frame.
pub fn message(bytes: &[u8]) {
    if let Ok(message) = minicbor::decode::<Message>(bytes) {
        same_again(&message);
    }
}

/// Decodes the header of a block without its frame. The first two bytes are the length of its
/// payload.
pub fn block_header(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let wire = choices.number() as usize;
    if let Ok(block) = minicbor::decode::<BlockHeader>(choices.rest()) {
        same_again(&block);
        check_sizes(&block, wire);
        // Most mutations only break the length: try the one that fits, too.
        check_sizes(&block, block.decoded as usize);
    }
}

fn same_again<T>(value: &T)
where
    T: Encode<()> + for<'b> Decode<'b, ()>,
{
    let encoded = minicbor::to_vec(value);
    let encoded = encoded.expect("what was decoded can be encoded");
    let decoded: T = minicbor::decode(&encoded).expect("what was encoded can be decoded");
    // Encodings are compared, as a float may be no number.
    assert_eq!(minicbor::to_vec(&decoded).ok(), Some(encoded));
}

/// Checks the lengths of a valid block, on which verification and writing rely.
fn check_sizes(block: &BlockHeader, wire: usize) {
    if !block.is_valid(wire) {
        return;
    }
    assert!(wire <= MAXIMUM_PAYLOAD_BYTES && block.decoded <= LARGEST_BLOCK_BYTES as u64);
    let mut left = block.decoded;
    match &block.content {
        Content::Piece(piece) => {
            let size = piece.entry.size();
            assert!(size <= LARGEST_FILE_BYTES && piece.offset + piece.length <= size);
            assert!(piece.length <= LARGEST_BLOCK_BYTES as u64);
            let hasher = BlockHasher::new(Integrity::Digest, piece.offset, piece.length, size);
            assert!(hasher.is_some());
            let mut hashed = 0;
            for extent in piece.extents.iter().flatten() {
                assert!(u64::from(extent.start) >= hashed);
                hashed = u64::from(extent.start) + u64::from(extent.length);
            }
            assert!(hashed <= piece.length);
            if wire > 0 || block.decoded > 0 {
                assert_eq!(piece.data_bytes(), block.decoded);
            }
        }
        Content::Pack(entries) if block.decoded > 0 => {
            for packed in entries {
                if let EntryKind::File { identity, .. } = &packed.entry.kind {
                    assert!(identity.size <= left);
                    left -= identity.size;
                }
            }
            assert_eq!(left, 0);
        }
        Content::Pack(_) => {}
    }
}

/// One end of the control channel, with arbitrary messages from its peer.
pub fn control(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut channel = ControlChannel::default();
    while !choices.is_empty() {
        match choices.below(5) {
            0 if channel.has_room() => {
                let message = Message::WantTickets(choices.byte().into());
                channel.push(&message).expect("a short message fits");
            }
            1 => {
                let frame = channel.poll_frame().expect("what was pushed fits a frame");
                assert!(frame.is_none_or(|frame| frame.len() <= HEADER_BYTES + MAXIMUM_BODY_BYTES));
            }
            2 => channel.handle_stream_change(),
            3 => {
                let _ = channel.handle_acknowledged(choices.number());
            }
            _ => {
                let number = if choices.flag() {
                    channel.received() + 1
                } else {
                    choices.number()
                };
                let length = choices.below(32);
                let numbered = Numbered {
                    number,
                    received: u64::from(choices.byte()),
                    message: choices.flag().then(|| choices.slice(length).to_vec()),
                };
                let before = channel.received();
                if channel.handle_frame(numbered).is_err() {
                    return;
                }
                assert!(channel.received() - before <= 1);
            }
        }
    }
}

/// Ranges that a peer names, before and within the hasher and the tree.
pub fn digest(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let size = choices.number();
    let limit = 1_u64 << (10 + choices.below(15));
    let tree_size = size.min(LARGEST_FILE_BYTES);
    let mut tree = DigestTree::new(tree_size);
    while !choices.is_empty() {
        let (offset, length) = (choices.number(), choices.number());
        let integrity = if choices.flag() {
            Integrity::Digest
        } else {
            Integrity::Checksum
        };
        let valid = is_block(offset, length, size);
        if let Some(mut hasher) = BlockHasher::new(integrity, offset, length, size) {
            assert!(valid || (offset, length, size) == (0, 0, 0));
            // The data are all or the beginning of a block, and never empty.
            hasher.update(&[choices.byte(); 64][..length.min(64) as usize]);
            assert!(integrity.fits(&hasher.finish()));
        }
        let value = [choices.byte(); 32];
        let known = tree.root().is_some();
        if tree.insert(offset, length, value) {
            assert!(is_block(offset, length, tree_size) && !known);
            assert!(!tree.insert(offset, length, value), "it overlaps itself");
        }
        cut_gap(offset, length, size, limit);
    }
    let _ = tree.root().map(Checksum::Blake3);
}

/// Checks that for any gap between blocks, the part cut off from it is a block.
fn cut_gap(offset: u64, length: u64, size: u64, limit: u64) {
    let end = offset.saturating_add(length).min(size);
    let aligned = |at: u64| at.is_multiple_of(1024) || at == size;
    if size <= LARGEST_FILE_BYTES && offset < end && aligned(offset) && aligned(end) {
        let block = longest_block(offset, end, size, limit);
        assert!(block <= limit && block <= end - offset);
        assert!(
            is_block(offset, block, size),
            "{offset} {end} {size} {limit} {block}"
        );
    }
}

/// Rules of filters from a command line, a file and a request. The collected rules can be parsed,
/// and a match ends for any pattern.
pub fn filter(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let (path, file) = (parts.next().unwrap_or(b"a"), parts.next().unwrap_or(b""));
    let rules = parts.next().unwrap_or(b"");
    let mut gathered = Gathered::default();
    let mut read = |_: &[u8]| Ok::<_, &str>(file.to_vec());
    for rule in rules.split(|byte| *byte == b'\n') {
        let _ = gathered.filter(rule, Ends::Lines, &mut read);
        let _ = gathered.pattern(Action::Exclude, rule);
    }
    let texts = gathered.rules();
    let Ok(rules) = Rules::parse(&texts) else {
        return;
    };
    assert_eq!(Rules::parse(&texts), Ok(rules.clone()));
    let files = vec![Some(file.to_vec()); rules.per_directory().len()];
    let root = InForce::default();
    let below = root
        .enter(&rules, b"", &files)
        .and_then(|force| force.enter(&rules, b"d", &files));
    for force in [Ok(root), below].into_iter().flatten() {
        for directory in [false, true] {
            let verdict = force.decide(&rules, path, directory);
            assert_eq!(force.decide(&rules, path, directory), verdict);
        }
    }
    let selection = Filter {
        rules: texts.into_iter().map(Into::into).collect(),
        ..Filter::default()
    };
    assert!(selection.parse().is_ok());
}
