use proptest::prelude::*;

use super::samples::{tcp, tcp_is_sound};
use super::*;

fn versions() -> impl Strategy<Value = IpVersion> {
    prop_oneof![Just(IpVersion::V4), Just(IpVersion::V6)]
}

/// Returns a piece as it is delivered.
fn assemble(whole: &[u8], offload: Offload, first: usize, count: usize) -> (Vec<u8>, Offload) {
    let packet = Packet::parse(whole, offload).unwrap();
    let (header, payload) = cut::piece(whole, offload, &packet, first, count).unwrap();
    let (note, headers) = header.as_bytes().split_at(OFFLOAD_BYTES);
    let mut bytes = headers.to_vec();
    bytes.extend_from_slice(&whole[payload]);
    (bytes, Offload::from_bytes(note.try_into().unwrap()))
}

fn sequence(bytes: &[u8], packet: &Packet) -> u32 {
    let at = packet.transport + 4;
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

proptest! {
    /// The pieces of a super-packet contain its payload, correct sequence numbers, and a
    /// correct checksum per segment, wherever it is cut.
    #[test]
    fn pieces_make_the_whole(
        version in versions(),
        payload in prop::collection::vec(any::<u8>(), 1..20_000),
        segment in 8_u16..1448,
        cuts in prop::collection::vec(1_usize..9, 1..20),
    ) {
        let all = tcp_flag::ACK | tcp_flag::PSH | tcp_flag::FIN | tcp_flag::CWR;
        let (whole, offload) = tcp(version, &payload, segment, all);
        let packet = Packet::parse(&whole, offload).unwrap();
        if packet.segments() == 1 {
            return Ok(());
        }
        let (mut first, mut turn) = (0, 0);
        let mut seen = Vec::new();
        while first < packet.segments() {
            let count = cuts[turn % cuts.len()].min(packet.segments() - first);
            let (bytes, note) = assemble(&whole, offload, first, count);
            let piece = Packet::parse(&bytes, note).unwrap();
            prop_assert_eq!(piece.segments(), count);
            prop_assert_eq!(
                sequence(&bytes, &piece),
                sequence(&whole, &packet).wrapping_add(seen.len() as u32)
            );
            let last = first + count == packet.segments();
            let mut flags = if last { all } else { tcp_flag::ACK | tcp_flag::CWR };
            if first > 0 {
                flags &= !tcp_flag::CWR;
            }
            prop_assert_eq!(piece.tcp_flags, flags);
            seen.extend_from_slice(&bytes[piece.payload..]);
            for index in first..first + count {
                let (mut one, mut note) = assemble(&whole, offload, index, 1);
                checksum::finish(&mut one, &mut note);
                prop_assert!(tcp_is_sound(&one));
                prop_assert_eq!(one.len() as u32, packet.segment_bytes(index));
            }
            first += count;
            turn += 1;
        }
        prop_assert_eq!(seen, payload);
    }

    /// A pure acknowledgement has no payload that could be damaged unseen.
    #[test]
    fn unseen_damage_needs_a_payload(version in versions(), place: u64) {
        let (mut bytes, mut offload) = tcp(version, &[], 0, tcp_flag::ACK);
        let packet = Packet::parse(&bytes, offload).unwrap();
        let before = bytes.clone();
        prop_assert!(!damage::damage(&mut bytes, &mut offload, &packet, place, true));
        prop_assert_eq!(bytes, before);
    }

    /// One bit differs, and the checksum detects it unless the damage is unseen.
    #[test]
    fn damage_flips_one_bit(
        version in versions(),
        payload in prop::collection::vec(any::<u8>(), 1..1448),
        place: u64,
        finished: bool,
        unseen: bool,
    ) {
        let (mut bytes, mut offload) = tcp(version, &payload, 0, tcp_flag::ACK);
        let packet = Packet::parse(&bytes, offload).unwrap();
        if finished {
            checksum::finish(&mut bytes, &mut offload);
        }
        prop_assert!(damage::damage(&mut bytes, &mut offload, &packet, place, unseen));
        if unseen {
            let flipped: u32 = bytes[packet.payload..]
                .iter()
                .zip(&payload)
                .map(|(a, b)| (a ^ b).count_ones())
                .sum();
            prop_assert_eq!(flipped, 1);
        } else {
            prop_assert_eq!(offload, Offload::default());
        }
        checksum::finish(&mut bytes, &mut offload);
        prop_assert_eq!(tcp_is_sound(&bytes), unseen);
    }

    #[test]
    fn rewriting_keeps_checksums_sound(
        payload in prop::collection::vec(any::<u8>(), 0..1448),
        address: [u8; 4],
        port: u16,
        finished: bool,
        source: bool,
    ) {
        use rewrite::End;
        let (mut bytes, mut offload) = tcp(IpVersion::V4, &payload, 0, tcp_flag::ACK);
        let packet = Packet::parse(&bytes, offload).unwrap();
        if finished {
            checksum::finish(&mut bytes, &mut offload);
        }
        let end = if source { End::Source } else { End::Destination };
        rewrite::rewrite(&mut bytes, offload, &packet, end, (address.into(), port));
        let after = Packet::parse(&bytes, offload).unwrap();
        let (changed, kept) = match end {
            End::Source => ((after.source, after.ports.unwrap().0), after.destination),
            End::Destination => ((after.destination, after.ports.unwrap().1), after.source),
        };
        prop_assert_eq!(changed, (IpAddr::from(address), port));
        prop_assert_eq!(rewrite::number(&bytes, &after, end), Some(port));
        prop_assert!(kept == packet.source || kept == packet.destination);
        checksum::finish(&mut bytes, &mut offload);
        prop_assert!(tcp_is_sound(&bytes));
    }

    /// Parsing any bytes does not panic, and all offsets are within the packet.
    #[test]
    fn any_bytes_are_parsed_or_rejected(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        note: [u8; OFFLOAD_BYTES],
        version in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = version;
        }
        if bytes.len() > 4 && version == 0x45 {
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
        }
        let mut offload = Offload::from_bytes(note);
        prop_assert_eq!(offload.to_bytes(), note);
        let Some(packet) = Packet::parse(&bytes, offload) else { return Ok(()) };
        prop_assert!(packet.transport <= packet.payload && packet.payload <= bytes.len());
        for index in 0..packet.segments() {
            prop_assert!(packet.segment_bytes(index) as usize <= bytes.len());
            cut::piece(&bytes, offload, &packet, index, 1);
        }
        reset::answer(&bytes, &packet);
        damage::damage(&mut bytes, &mut offload, &packet, 12_345, true);
        damage::damage(&mut bytes, &mut offload, &packet, 12_345, false);
        rewrite::rewrite(
            &mut bytes, offload, &packet, rewrite::End::Source, ([1, 2, 3, 4].into(), 5),
        );
    }
}

#[test]
fn a_closed_port_answers_according_to_rfc_9293() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let (syn, offload) = tcp(version, b"", 0, tcp_flag::SYN);
        let packet = Packet::parse(&syn, offload).unwrap();
        let bytes = reset::answer(&syn, &packet).unwrap();
        assert!(tcp_is_sound(&bytes));
        let answer = Packet::parse(&bytes, Offload::default()).unwrap();
        assert_eq!(answer.tcp_flags, tcp_flag::RST | tcp_flag::ACK);
        assert_eq!(answer.ports, Some((5201, 40_000)));
        assert_eq!(
            (answer.source, answer.destination),
            (packet.destination, packet.source)
        );
        let acknowledged = &bytes[answer.transport + 8..answer.transport + 12];
        assert_eq!(acknowledged, 0xffff_ff01_u32.to_be_bytes());
        // A segment with ACK is answered with its acknowledgement number and RST only.
        let (data, offload) = tcp(version, b"data", 0, tcp_flag::ACK);
        let packet = Packet::parse(&data, offload).unwrap();
        let bytes = reset::answer(&data, &packet).unwrap();
        let answer = Packet::parse(&bytes, Offload::default()).unwrap();
        assert_eq!(answer.tcp_flags, tcp_flag::RST);
        assert_eq!(sequence(&bytes, &answer), 77);
        // A reset is not answered.
        assert_eq!(reset::answer(&bytes, &answer), None);
    }
}
