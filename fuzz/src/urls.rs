//! Endpoints as users write them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use longhaul_transfer::endpoint::{Endpoint, HostAccess, RemotePath};

/// Checks that a parsed URL is complete.
pub fn endpoint(bytes: &[u8]) {
    let endpoint = match Endpoint::parse(OsStr::from_bytes(bytes)) {
        Ok(endpoint) => endpoint,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Some(path) = endpoint.local_path() {
        assert_eq!(path, bytes);
    }
    let path = endpoint.remote_path().and_then(RemotePath::as_path);
    match endpoint.access() {
        Some(HostAccess::Daemon(remote)) => {
            assert!(remote.host.port() > 0 && remote.principal.as_deref() != Some(""));
            assert!(path.is_none_or(|path| path.starts_with(b"/")));
        }
        Some(HostAccess::Login(remote)) => {
            assert!(!remote.destination.is_empty() && !remote.destination.starts_with('-'));
            assert!(path.is_none_or(|path| !path.is_empty()));
        }
        None if endpoint.promises().standard_stream => assert_eq!(bytes, b"-"),
        None => {}
    }
}
