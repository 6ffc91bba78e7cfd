//! Endpoints as users write them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use longhaul_transfer::endpoint::{Endpoint, RemotePath};

/// Checks that a parsed URL is complete.
pub fn endpoint(bytes: &[u8]) {
    match Endpoint::parse(OsStr::from_bytes(bytes)) {
        Ok(Endpoint::Local(path)) => assert_eq!(path, bytes),
        Ok(Endpoint::Daemon(remote)) => {
            assert!(remote.host.port() > 0 && remote.principal.as_deref() != Some(""));
            if let RemotePath::Path(path) = remote.path {
                assert!(path.starts_with(b"/"));
            }
        }
        Ok(Endpoint::Ssh(remote)) => {
            assert!(!remote.destination.is_empty() && !remote.destination.starts_with('-'));
            if let RemotePath::Path(path) = remote.path {
                assert!(!path.is_empty());
            }
        }
        Ok(Endpoint::Standard) => assert_eq!(bytes, b"-"),
        Ok(Endpoint::Null | Endpoint::Zero(_)) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
