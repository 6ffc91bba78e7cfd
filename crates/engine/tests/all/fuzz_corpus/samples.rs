//! Valid payloads and words.

use longhaul_engine::codec::{Encoder, bound};
use longhaul_proto::block::Codec;

/// Returns codec, announced size (a power of two) and payload of each sample.
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

/// Returns names and texts of samples.
pub fn words() -> Vec<(&'static str, String)> {
    let secret = "A".repeat(43);
    let salt = "A".repeat(22);
    let part = ".longhaul-0123456789abcdef0123456789abcdef-0123456789abcdef.part";
    vec![
        ("token", format!("lht_{secret}")),
        ("hash", format!("lhh1${salt}${secret}")),
        ("fingerprint", format!("sha256:{secret}")),
        ("part", part.to_owned()),
        ("host", "[2001:db8::1]".to_owned()),
        ("size", "1.5GiB".to_owned()),
        ("rate", "10Gbit/s".to_owned()),
        ("span", "1.5min".to_owned()),
    ]
}
