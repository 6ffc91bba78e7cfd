//! Transfers as values.

use longhaul_transfer::spec::TransferSpec;

/// Checks that a parsed specification is written and parsed again without a change, even if it is
/// invalid.
pub fn transfer_spec(bytes: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<TransferSpec>(bytes) else {
        return;
    };
    let text = serde_json::to_string(&spec).expect("a specification is text");
    let again: TransferSpec = serde_json::from_str(&text).expect("what was written");
    assert_eq!(again, spec);
    if let Err(error) = spec.validate() {
        assert!(error.to_string().contains(':'), "{error}");
    }
}
