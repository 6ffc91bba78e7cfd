//! Checksums of local data, as the command `CKSM` gives them for files of the server.

use aws_lc_rs::digest;

use crate::protocol::features::ChecksumKind;

/// Computes a checksum of data in order.
#[derive(Clone)]
pub enum Checksum {
    /// A cryptographic checksum.
    Digest(digest::Context),
    /// Adler-32 (RFC 1950): two sums modulo 65,521.
    Adler32(u32, u32),
}

/// Number of bytes whose sums of Adler-32 fit into 32 bits without a reduction (zlib's NMAX).
const ADLER_BYTES: usize = 5552;

/// Largest prime below 65,536.
const ADLER_MODULUS: u32 = 65_521;

impl Checksum {
    /// Starts a checksum of no data.
    pub fn new(kind: ChecksumKind) -> Checksum {
        let algorithm = match kind {
            ChecksumKind::Sha256 => &digest::SHA256,
            ChecksumKind::Sha512 => &digest::SHA512,
            ChecksumKind::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            ChecksumKind::Adler32 => return Checksum::Adler32(1, 0),
        };
        Checksum::Digest(digest::Context::new(algorithm))
    }

    /// Adds data.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Checksum::Digest(context) => context.update(bytes),
            Checksum::Adler32(one, two) => {
                for part in bytes.chunks(ADLER_BYTES) {
                    for byte in part {
                        *one += u32::from(*byte);
                        *two += *one;
                    }
                    *one %= ADLER_MODULUS;
                    *two %= ADLER_MODULUS;
                }
            }
        }
    }

    /// Returns the checksum in lower-case hexadecimal digits.
    pub fn finish(self) -> String {
        match self {
            Checksum::Digest(context) => {
                let bytes = context.finish();
                let digits = bytes.as_ref().iter().map(|byte| format!("{byte:02x}"));
                digits.collect()
            }
            Checksum::Adler32(one, two) => format!("{:08x}", two << 16 | one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_standard_ones() {
        let of = |kind: ChecksumKind, parts: [&[u8]; 2]| {
            let mut checksum = Checksum::new(kind);
            parts.iter().for_each(|part| checksum.update(part));
            let found = checksum.finish();
            assert_eq!(found.len(), kind.digits());
            found
        };
        let wikipedia = of(ChecksumKind::Adler32, [b"Wiki", b"pedia"]);
        assert_eq!(wikipedia, "11e60398");
        let abc = of(ChecksumKind::Sha256, [b"a", b"bc"]);
        assert!(abc.starts_with("ba7816bf8f01cfea"));
        let abc = of(ChecksumKind::Sha1, [b"a", b"bc"]);
        assert_eq!(abc, "a9993e364706816aba3e25717850c26c9cd0d89d");
        // Sums over more bytes than 32 bits hold without a reduction.
        let long = [255; 50_000];
        let expected = (0..100_000_u64).fold((1, 0), |(one, two), _| {
            ((one + 255) % 65_521, (two + one + 255) % 65_521)
        });
        let expected = format!("{:08x}", expected.1 << 16 | expected.0);
        assert_eq!(of(ChecksumKind::Adler32, [&long, &long]), expected);
    }
}
