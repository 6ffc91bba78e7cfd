//! What a host may ask for that a principal introduces: one session, as the principal meant it,
//! and no other rights of the principal.

use minicbor::{Decode, Encode};

use crate::backup::Backup;
use crate::command::FileCommand;
use crate::handshake::{MAXIMUM_SOURCES, Operation, Request, RequestPath, Role};
use crate::keeping::Keeping;

/// The session that the host may open.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Allowed {
    /// Which end it is.
    #[n(0)]
    pub role: Role,
    /// Copy or compare.
    #[n(1)]
    pub operation: Operation,
    /// The acceptor's paths, as in the request.
    #[n(2)]
    pub paths: Vec<RequestPath>,
    /// Where it sends: its sources as they were named, which say what may come. At most
    /// [`MAXIMUM_SOURCES`].
    #[n(3)]
    pub sources: Vec<RequestPath>,
    /// Directories too.
    #[n(4)]
    pub recursive: bool,
    /// Links below the sources are followed.
    #[n(5)]
    pub copy_links: bool,
    /// Set-user-ID and set-group-ID bits are kept for any owner of the files.
    #[n(6)]
    pub keep_set_ids: bool,
    /// What is kept of an entry; `None`: what always is.
    #[n(20)]
    pub keeping: Option<Box<Keeping>>,
    /// What the source does not have is deleted at the destination.
    #[n(7)]
    pub deletes: bool,
    /// Sources are removed once they are durable.
    #[n(8)]
    pub moves_away: bool,
    /// What is replaced or deleted is kept so; where the host sends, its request is for exactly
    /// this.
    #[n(9)]
    pub backup: Option<Box<Backup>>,
    /// A command runs for each file that is committed; where the host sends, its request is for
    /// exactly this.
    #[n(30)]
    pub on_commit: Option<Box<FileCommand>>,
    /// Its request is for exactly this command whose output becomes the file.
    #[n(31)]
    pub filter: Option<Box<FileCommand>>,
    /// Files go through a command where the host sends.
    #[n(32)]
    pub filtered: bool,
}

impl Allowed {
    /// Whether its values are within their ranges.
    pub fn is_valid(&self) -> bool {
        let some = |paths: &[RequestPath]| (1..=MAXIMUM_SOURCES).contains(&paths.len());
        match self.role {
            Role::Sender => self.paths.len() == 1 && some(&self.sources),
            Role::Receiver => some(&self.paths) && self.sources.is_empty(),
        }
    }

    /// Whether a request is for that session. Slashes at a path's end change where things land
    /// beneath it, and not what is opened.
    pub fn permits(&self, request: &Request) -> bool {
        let paths = self.paths.iter().map(trimmed);
        self.role == request.role
            && self.operation == request.operation
            && paths.eq(request.paths.iter().map(trimmed))
            && (self.keep_set_ids || !request.keep_set_ids)
            && self.permits_keeping(request.keeping.as_deref())
            // A comparison deletes nothing.
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

/// A path without the slashes at its end, and what it is a path of.
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
