//! The corpora of the fuzz targets, through what the targets do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../src/sockets/answers.rs"]
#[allow(dead_code)]
mod answers;
#[path = "../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../fuzz/src/facts.rs"]
mod facts;
#[path = "../src/doctor/host.rs"]
#[allow(dead_code)]
mod host;
#[path = "../../../fuzz/src/sockets.rs"]
mod sockets;

#[test]
fn corpora_are_replayed() {
    corpus::replay("host_facts", facts::host_facts);
    corpus::replay("sock_diag", sockets::sock_diag);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (name, lines) in [
        ("clock", "longhaul-fact/1 clock 1795276800.25\n"),
        ("old_date", "longhaul-fact/1 clock 1795276800.N\n"),
        (
            "room",
            "longhaul-fact/1 space /dev/my disk 1000 400 600 40% /srv/my data\nlonghaul-fact/1 \
             inodes tank - - - - /tank\n",
        ),
        (
            "kernel",
            "Welcome!\nlonghaul-fact/1 net.ipv4.tcp_wmem 4096 16384 4194304\nlonghaul-fact/1 \
             open_files unlimited\nlonghaul-fact/1 writable no\n",
        ),
    ] {
        corpus::save("host_facts", name, lines.as_bytes());
    }
    for (name, bytes) in kernel_answers() {
        corpus::save("sock_diag", name, &bytes);
    }
}

/// As a little-endian kernel of Linux 6 gives them, made by hand: a socket of each
/// family, the end, a refusal.
fn kernel_answers() -> [(&'static str, Vec<u8>); 4] {
    let message = |kind: u8, content: &[u8]| {
        let length = u32::try_from(16 + content.len()).unwrap();
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend([kind, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(content);
        bytes
    };
    let socket = |family: u8| {
        let mut content = vec![0; 72];
        content[..2].copy_from_slice(&[family, 1]);
        content[4..8].copy_from_slice(&[0x4e, 0x20, 0x13, 0x60]);
        content[24..40].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        content[44] = 9;
        // INET_DIAG_CONG, then INET_DIAG_INFO.
        content.extend([10, 0, 4, 0]);
        content.extend(b"cubic\0\0\0");
        content.extend([244, 0, 2, 0]);
        content.extend((0..240).map(|at| u8::from(at % 4 == 0)));
        message(20, &content)
    };
    let mut both = socket(2);
    both.extend(socket(10));
    let mut last = socket(10);
    last.extend(message(3, &[0; 4]));
    [
        ("both_families", both),
        ("last", last),
        ("done", message(3, &[0; 4])),
        ("refused", message(2, &(-1_i32).to_le_bytes())),
    ]
}
