//! The cryptography that TLS connections and identities use.

use std::sync::{Arc, LazyLock};

use rustls::SupportedCipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the cryptography of rustls, with the suites in this processor's order of speed.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = suites(has_aes_instructions());
        Arc::new(provider)
    });
    Arc::clone(&PROVIDER)
}

/// Returns the cipher suites, the fastest first. `aes` is true if the processor has AES
/// instructions.
pub(crate) fn suites(aes: bool) -> Vec<SupportedCipherSuite> {
    use aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut suites = vec![
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
    ];
    if !aes {
        suites.rotate_right(1);
    }
    suites
}

fn has_aes_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}
