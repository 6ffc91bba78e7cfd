//! Describes clients and their requests for a daemon's log.

use longhaul_net::Stream;
use longhaul_net::principals::Principal;
use longhaul_proto::handshake::{Credential, Operation, Request, RequestPath, Role};

use super::Daemon;
use super::admission::authenticate;

impl Daemon {
    /// Describes a client for the log, by its proven name or else its claimed name.
    pub(super) fn described(
        &self,
        credential: Option<&Credential>,
        stream: &Stream,
        peer: &str,
    ) -> String {
        let principals = self.principals();
        let claimed = credential.map(|credential| credential.principal.as_str());
        let claimed = claimed.filter(|name| !name.is_empty());
        let proved = authenticate(&principals, credential, stream).ok();
        let by_key = || {
            let key = stream.handle.peer_fingerprint()?;
            principals.by_certificate(None, &key).ok()
        };
        match (proved.or_else(by_key).map(Principal::name), claimed) {
            (Some(name), _) => format!("{name} from {peer}"),
            (None, Some(name)) => format!("{peer}, which calls itself {name:?}"),
            (None, None) => peer.to_owned(),
        }
    }
}

/// Maximum number of a request's paths in the log.
const LOGGED_PATHS: usize = 4;

/// Describes a request for the log.
pub(super) fn described_request(request: &Request) -> String {
    let verb = match (request.role, request.options.operation) {
        (Role::Receiver, _) => "reading",
        (Role::Sender, Operation::Copy) => "writing",
        (Role::Sender, Operation::DryRun) => "asking what a copy would write to",
        (Role::Sender, Operation::Verify) => "comparing with",
    };
    let shown = |path: &RequestPath| match path {
        RequestPath::Path(path) | RequestPath::Stream(path) => {
            String::from_utf8_lossy(path).into_owned()
        }
        RequestPath::Null => "null:".to_owned(),
        RequestPath::Zero(_) => "zero:".to_owned(),
    };
    let paths: Vec<String> = request.paths.iter().take(LOGGED_PATHS).map(shown).collect();
    let more = match request.paths.len().saturating_sub(LOGGED_PATHS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{verb} {}{more}", paths.join(" "))
}
