//! Restricts a host that a principal introduces to one session, as the principal requested it,
//! without other rights of the principal.

use minicbor::{Decode, Encode};

use crate::backup::Backup;
use crate::command::FileCommand;
use crate::handshake::{MAXIMUM_SOURCES, Operation, Request, RequestPath, Role};
use crate::keeping::Keeping;

/// The session that the introduced host may open.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Allowed {
    /// End of the session that the host is.
    #[n(0)]
    pub role: Role,
    /// Operation of the session.
    #[n(1)]
    pub operation: Operation,
    /// Paths at the acceptor, as in the request.
    #[n(2)]
    pub paths: Vec<RequestPath>,
    /// If the host sends, its sources as they were named, which restrict the names that it may
    /// send. At most [`MAXIMUM_SOURCES`].
    #[n(3)]
    pub sources: Vec<RequestPath>,
    /// True if directories may be copied.
    #[n(4)]
    pub recursive: bool,
    /// True if symbolic links below the sources may be followed.
    #[n(5)]
    pub copy_links: bool,
    /// True if set-user-ID and set-group-ID bits may be kept for any owner of the files.
    #[n(6)]
    pub keep_set_ids: bool,
    /// Metadata that may be preserved; `None` for the defaults.
    #[n(20)]
    pub keeping: Option<Box<Keeping>>,
    /// True if names that the source does not have may be deleted at the destination.
    #[n(7)]
    pub deletes: bool,
    /// True if sources may be removed once they are durable.
    #[n(8)]
    pub moves_away: bool,
    /// Backups of replaced and deleted names. A sending host must request exactly these.
    #[n(9)]
    pub backup: Option<Box<Backup>>,
    /// Command that runs for each committed file. A sending host must request exactly this command.
    #[n(30)]
    pub on_commit: Option<Box<FileCommand>>,
    /// Command whose output becomes the file. The host must request exactly this command.
    #[n(31)]
    pub filter: Option<Box<FileCommand>>,
    /// True if a sending host filters files through a command.
    #[n(32)]
    pub filtered: bool,
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
            && self.operation == request.operation
            && paths.eq(request.paths.iter().map(trimmed))
            && (self.keep_set_ids || !request.keep_set_ids)
            && self.permits_keeping(request.keeping.as_deref())
            // A comparison deletes no names.
            && (self.deletes || request.deletion.is_none() || request.operation == Operation::Verify)
            && (self.moves_away || !request.moves_away)
            && (self.role == Role::Receiver || self.backup == request.backup)
            && (self.role == Role::Receiver || self.on_commit == request.on_commit)
            && self.filter == request.filter
            && self.filtered == request.filtered
            && (self.role == Role::Sender
                || (self.recursive || !request.recursive)
                    && (self.copy_links || !request.copy_links))
    }

    fn permits_keeping(&self, asked: Option<&Keeping>) -> bool {
        match (asked, self.keeping.as_deref()) {
            (None, _) => true,
            (Some(asked), allowed) => asked.is_within(allowed.unwrap_or(&Keeping::default())),
        }
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
