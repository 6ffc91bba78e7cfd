//! Replays the corpora of the fuzz targets through the functions of the targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../fuzz/src/lab.rs"]
mod lab;

use longhaul_lab::packet::{IpVersion, Offload};

#[test]
fn corpora_are_replayed() {
    corpus::replay("packet", lab::packet);
    corpus::replay("scenario", lab::scenario);
    corpus::replay("lab_request", lab::lab_request);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    packets();
    for (name, text) in [
        (
            "path",
            "rtt=91.6ms,delay-back=20ms,rate=5gbit,rate-back=1gbit,loss=1e-5,loss-back=0,\
             queue=0.5bdp,jitter=1ms,reorder=1e-3:2ms,duplicate=1e-4,corrupt=1%,\
             corrupt-unseen=1e-6",
        ),
        ("bursts", "rtt=1ms,loss=1e-4/8,queue=4MiB"),
        ("chain", "loss=ge:1e-4/0.2/0.5/0"),
        ("hosts", "2x4x1"),
        ("pair", "a-c:rtt=20ms,rate=10gbit"),
        ("block", "b:4960-4970:reset"),
        ("new", "a:new"),
        ("sysctl", "b:net.ipv4.tcp_sack=0"),
        ("window", "host"),
        (
            "device",
            "/data:rate=200MBps,flow-rate=50MBps,latency=5ms,contention=4",
        ),
        (
            "gluster",
            "gluster:nodes=4,brick-rate=100MBps,shard=64MiB,at=/mnt,bricks=/b",
        ),
    ] {
        corpus::save("scenario", name, text.as_bytes());
    }
    for (name, line) in [
        ("report", "report\n"),
        ("set", "set rtt=10ms,loss=1e-3\n"),
        ("cut", "cut 1.5s\n"),
        ("down", "down\n"),
    ] {
        corpus::save("lab_request", name, line.as_bytes());
    }
}

/// Saves a packet of each kind that a kernel sends.
fn packets() {
    let v4 = |protocol: u8, transport: &[u8]| {
        let length = (20 + transport.len()) as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0];
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet.extend_from_slice(&[198, 18, 10, 1, 198, 18, 20, 1]);
        [&packet, transport].concat()
    };
    let tcp = |flags: u8, payload: usize| {
        let mut header = vec![0x9c, 0x40, 0x14, 0x51, 0, 0, 0, 9, 0, 0, 0, 7];
        header.extend_from_slice(&[0x50, flags, 1, 0, 0, 0, 0, 0]);
        header.extend((0..payload).map(|index| index as u8));
        header
    };
    let plain = Offload::default();
    let gso = Offload::of_tcp(IpVersion::V4, 20, 40, 100);
    let v6 = {
        let transport = tcp(0x10, 250);
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        packet[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
        packet.extend(1..=32);
        [packet, transport].concat()
    };
    let udp = [0x9c, 0x40, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
    for (name, note, packet) in [
        ("syn", plain, v4(6, &tcp(2, 0))),
        ("super", gso, v4(6, &tcp(0x18, 450))),
        ("super6", Offload::of_tcp(IpVersion::V6, 40, 60, 100), v6),
        ("udp", plain, v4(17, &udp)),
        ("echo", plain, v4(1, &[8, 0, 0, 0, 0, 1, 0, 1, 7, 7])),
        // An offload header of several segments before an incomplete TCP header.
        (
            "short",
            Offload::of_tcp(IpVersion::V4, 20, 20, 5),
            v4(6, &[7; 19]),
        ),
    ] {
        corpus::save("packet", name, &[&note.to_bytes()[..], &packet].concat());
    }
}
