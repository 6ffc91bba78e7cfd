//! Input of a lab: packets of its programs, scenarios, and requests.

use longhaul_lab::control::Request;
use longhaul_lab::emulator::gate::{Gate, Nat};
use longhaul_lab::packet::damage::damage;
use longhaul_lab::packet::{OFFLOAD_BYTES, Offload, Packet, cut, reset};
use longhaul_lab::scenario::{
    Hosts, PairPath, PathSettings, QueueLimit, Sysctl, Window, parse_block, public_address,
};
use longhaul_lab::storage::plan::StoragePlan;

/// More segments are cut one by one in no reasonable time.
const MOST_CUT: usize = 64;

/// A note and a packet, through everything that the emulator does to one.
pub fn packet(bytes: &[u8]) {
    let Some((note, bytes)) = bytes.split_first_chunk::<OFFLOAD_BYTES>() else {
        return;
    };
    let offload = Offload::from_bytes(*note);
    assert_eq!(offload.to_bytes(), *note);
    let Some(packet) = Packet::parse(bytes, offload) else {
        return;
    };
    assert_eq!(packet.length, bytes.len());
    assert!(packet.transport <= packet.payload && packet.payload <= packet.length);
    let segments = packet.segments();
    let payload: u64 = (0..segments)
        .map(|index| u64::from(packet.segment_bytes(index)) - packet.payload as u64)
        .sum();
    assert_eq!(payload, (packet.length - packet.payload) as u64);
    cut_and_damage(bytes, offload, &packet);
    if let Some(answer) = reset::answer(bytes, &packet) {
        let answer = Packet::parse(&answer, Offload::default()).expect("an answer is a packet");
        assert_eq!(answer.destination, packet.source);
    }
    translate(bytes, offload, &packet);
}

/// Cuts out each segment, and flips one bit of it.
fn cut_and_damage(bytes: &[u8], offload: Offload, packet: &Packet) {
    let segments = packet.segments();
    for index in 0..segments.min(MOST_CUT) {
        let mut single = match segments {
            1 => [&offload.to_bytes(), bytes].concat(),
            _ => match cut::piece(bytes, offload, packet, index, 1) {
                None => return,
                Some((header, payload)) => [header.as_bytes(), &bytes[payload]].concat(),
            },
        };
        let (note, rest) = single
            .split_first_chunk_mut::<OFFLOAD_BYTES>()
            .expect("a piece has a note");
        let mut note = Offload::from_bytes(*note);
        let piece = Packet::parse(rest, note).expect("a piece is a packet");
        assert_eq!(piece.segments(), 1);
        assert_eq!(piece.length as u32, packet.segment_bytes(index));
        let place = u64::from(*rest.last().unwrap_or(&0)) << 3;
        damage(rest, &mut note, &piece, place, index % 2 == 0);
    }
    assert!(cut::piece(bytes, offload, packet, segments, 1).is_none());
}

/// Translates a packet outward through a NAT, and its answer inward.
fn translate(bytes: &[u8], offload: Offload, packet: &Packet) {
    let mut nat = Nat::new(public_address(0));
    let mut outside = bytes.to_vec();
    if nat.leave(&mut outside, offload, packet) {
        let left = Packet::parse(&outside, offload).expect("it is still a packet");
        assert_eq!(left.source, std::net::IpAddr::V4(public_address(0)));
        assert_eq!(
            (left.length, left.destination),
            (packet.length, packet.destination)
        );
    }
    let mut inside = bytes.to_vec();
    nat.enter(&mut inside, offload, packet);
    let rules = ["a:22", "a:new:reset", "a:1-70"].map(|rule| parse_block(rule).expect("a rule"));
    for rule in rules {
        let gate = Gate {
            rules: vec![rule],
            ..Gate::default()
        };
        gate.firewall(packet, 0);
    }
}

/// Parses one text with every parser of a scenario.
pub fn scenario(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(path) = text.parse::<PathSettings>() {
        let again: PathSettings = path.to_string().parse().expect("it is read as it is shown");
        assert_eq!(again.to_string(), path.to_string());
        assert!(path.links().is_ok());
        let _ = path.bdp();
    }
    if let Ok(pair) = text.parse::<PairPath>() {
        assert_eq!(pair.to_string().parse(), Ok(pair));
    }
    if let Ok(Hosts(hosts)) = text.parse::<Hosts>() {
        assert!(hosts.len() >= 2 && hosts.iter().all(|&count| count > 0));
    }
    if let Ok(limit) = text.parse::<QueueLimit>() {
        assert_eq!(limit.to_string().parse(), Ok(limit));
    }
    if let Ok(plan) = text.parse::<StoragePlan>() {
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }
    if let Ok(sysctl) = text.parse::<Sysctl>() {
        let _ = sysctl.is_for("a1");
        let file = longhaul_lab::netns::sysctl_path(&sysctl.name);
        assert!(file.starts_with("/proc/sys"));
    }
    let _ = text.parse::<Window>();
    let _ = parse_block(text);
}

/// A line of a lab's control socket.
pub fn lab_request(bytes: &[u8]) {
    let Ok(line) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(request) = Request::parse(line) {
        assert_eq!(Request::parse(&request.line()), Ok(request));
    }
}
