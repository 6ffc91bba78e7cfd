//! Restricts a host that a principal introduces to one session, as the principal requested it,
//! without other rights of the principal.

use minicbor::{Decode, Encode};

use crate::handshake::{MAXIMUM_SOURCES, Request, RequestPath, Role};
use crate::options::TransferOptions;

/// The session that the introduced host may open.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Allowed {
    /// End of the session that the host is.
    #[n(0)]
    pub role: Role,
    /// Options that the host may request ([`TransferOptions::permits`]).
    #[n(1)]
    pub options: Box<TransferOptions>,
    /// Paths at the acceptor, as in the request.
    #[n(2)]
    pub paths: Vec<RequestPath>,
    /// If the host sends, its sources as they were named, which restrict the names that it may
    /// send. At most [`MAXIMUM_SOURCES`].
    #[n(3)]
    pub sources: Vec<RequestPath>,
}

impl Allowed {
    /// True if every value is within its range.
    pub fn is_valid(&self) -> bool {
        let some = |paths: &[RequestPath]| (1..=MAXIMUM_SOURCES).contains(&paths.len());
        match self.role {
            Role::Sender => self.paths.len() == 1 && some(&self.sources),
            Role::Receiver => some(&self.paths) && self.sources.is_empty(),
        }
    }

    /// True if a request is for the allowed session. Slashes at a path's end are ignored, because
    /// they change the place of copied entries beneath it and not the path that is opened.
    pub fn permits(&self, request: &Request) -> bool {
        let paths = self.paths.iter().map(trimmed);
        self.role == request.role
            && paths.eq(request.paths.iter().map(trimmed))
            && self.options.permits(&request.options)
    }
}

/// Returns a number for the kind of path, the path without trailing slashes, and its size.
fn trimmed(path: &RequestPath) -> (u8, &[u8], u64) {
    match path {
        RequestPath::Path(path) => {
            let end = path.iter().rposition(|&byte| byte != b'/');
            (0, &path[..end.map_or(0, |last| last + 1)], 0)
        }
        RequestPath::Zero(bytes) => (1, &[], *bytes),
        RequestPath::Null => (2, &[], 0),
        RequestPath::Stream(path) => (3, path, 0),
    }
}
