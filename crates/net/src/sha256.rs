//! SHA-256 of a stream of bytes, for comparison with other tools.

use aws_lc_rs::digest;

/// A digest in progress.
pub struct Sha256(digest::Context);

impl Default for Sha256 {
    fn default() -> Sha256 {
        Sha256(digest::Context::new(&digest::SHA256))
    }
}

impl Sha256 {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest in hexadecimal digits, as printed by `sha256sum`.
    pub fn finish(self) -> String {
        let digest = self.0.finish();
        let bytes = digest.as_ref().iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_equals_that_of_other_tools() {
        let mut sha256 = Sha256::default();
        sha256.update(b"a");
        sha256.update(b"bc");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256.finish(), abc);
    }
}
