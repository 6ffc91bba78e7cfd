//! Valid samples of payloads, texts and answers of a kernel.

use longhaul_engine::codec::{Encoder, bound};
use longhaul_proto::block::Codec;

/// Codec, announced size (a power of two), payload.
pub fn payloads() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new().unwrap();
    let text = b"what repeats is shorter, what repeats is shorter.".repeat(100);
    let mut payloads = Vec::new();
    for (codec, byte) in [(Codec::Lz4, 0), (Codec::Zstd { level: 1 }, 1)] {
        for log in [0, 6, 12] {
            let plain = &text[..1 << log];
            let mut packed = vec![0; bound(codec, plain.len())];
            let length = encoder.encode(codec, plain, &mut packed).unwrap();
            payloads.push([&[byte, 1 << 6 | log], &packed[..length]].concat());
        }
    }
    payloads
}

/// Target, name, text.
pub fn texts() -> Vec<(&'static str, &'static str, String)> {
    let secret = "A".repeat(43);
    let token = format!("lht_{secret}");
    let salt = "A".repeat(22);
    let hash = format!("lhh1${salt}${secret}");
    let fingerprint = format!("sha256:{secret}");
    let principals = format!(
        "[[principal]]\nname = \"alice\"\ntoken = \"{hash}\"\ncertificates = [\"{fingerprint}\"]\n\
         [[principal.root]]\nat = \"/data\"\npath = \"/srv/data\"\nrights = [\"read\", \"write\"]\n"
    );
    let part = ".longhaul-0123456789abcdef0123456789abcdef-0123456789abcdef.part";
    vec![
        ("principals", "sample", principals.clone()),
        (
            "principals",
            "with-url",
            format!("{principals}\0/data/run/../x"),
        ),
        ("principals", "empty", String::new()),
        (
            "known_hosts",
            "sample",
            format!("# mine\n[::1]:7 {fingerprint}\nhost:1 {fingerprint}\n"),
        ),
        ("known_hosts", "no-key", "host:1\n".to_owned()),
        (
            "client_tokens",
            "sample",
            format!("# mine\nhost:1 alice {token}\n"),
        ),
        ("client_tokens", "no-token", "host:1 alice\n".to_owned()),
        ("words", "token", token),
        ("words", "hash", hash),
        ("words", "fingerprint", fingerprint),
        ("words", "part", part.to_owned()),
        ("words", "host", "[2001:db8::1]".to_owned()),
        ("words", "size", "1.5GiB".to_owned()),
        ("words", "rate", "10Gbit/s".to_owned()),
        ("words", "span", "1.5min".to_owned()),
    ]
}

/// As a little-endian kernel of Linux 6 gives them, made by hand: a socket of each
/// family, the end, a refusal.
pub fn kernel_answers() -> [(&'static str, Vec<u8>); 4] {
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
