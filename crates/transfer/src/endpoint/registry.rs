//! All kinds of endpoints, in the order in which their parsers are tried.

use super::error::EndpointError;
use super::kind::Definition;
use super::{Endpoint, daemon, ftp, http, local, null, s3, ssh, standard, zero};

/// All kinds. A text belongs to the first kind that accepts it. Kinds with a fixed prefix precede
/// SSH, which accepts each text with a colon before the first slash. Local paths are last.
pub(super) const KINDS: [&Definition; 9] = [
    &daemon::KIND,
    &ftp::KIND,
    &http::KIND,
    &s3::KIND,
    &standard::KIND,
    &null::KIND,
    &zero::KIND,
    &ssh::KIND,
    &local::KIND,
];

/// Parses a text that is not empty.
pub(super) fn parse(text: &[u8]) -> Result<Endpoint, EndpointError> {
    let parsed = KINDS.iter().find_map(|kind| (kind.parse)(text));
    parsed.unwrap_or(Err(EndpointError::Empty))
}

/// Returns the notations of other hosts, for error messages.
pub(super) fn notations() -> String {
    let notations = KINDS.iter().rev().filter_map(|kind| kind.notation);
    notations.collect::<Vec<_>>().join(", ")
}
