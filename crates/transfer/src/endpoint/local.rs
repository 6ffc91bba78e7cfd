//! A path on this host.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_engine::listing::{self, Depth, Found, ListError};
use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_engine::recv::stream::FileStream;
use longhaul_engine::send::source::Source as OpenSource;
use longhaul_proto::listing::Listed;
use longhaul_storage::roots::{Anywhere, OpenRoot};

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{
    Definition, Kind, ListsHosts, NoSource, Sink, SinkOpening, Source, SourceOpening, Tell,
};
use super::promises::Promises;
use crate::stop::{Exit, Stop};

pub(super) const KIND: Definition = Definition {
    name: "`PATH`",
    notation: None,
    promises: Promises {
        jobs_of_daemons: true,
        ..Promises::FILE_SYSTEM
    },
    parse,
};

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    Some(Ok(Endpoint::local(text.to_vec())))
}

/// A path on this host.
#[derive(Debug)]
pub(super) struct LocalPath(pub(super) Vec<u8>);

impl Kind for LocalPath {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        let path = &self.0;
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let is_other = path == b"-" || first.contains(&b':');
        [if is_other { b"./" } else { &b""[..] }, path].concat()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let whole = std::path::absolute(Path::new(OsStr::from_bytes(&self.0)))?;
        let whole = whole.into_os_string().into_encoded_bytes();
        Ok(vec![b"local".to_vec(), whole])
    }

    fn source(&self) -> Option<&dyn Source> {
        Some(self)
    }

    fn sink(&self) -> Option<&dyn Sink> {
        Some(self)
    }

    fn local_path(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn with_path(&self, path: Vec<u8>) -> Option<Endpoint> {
        Some(Endpoint::local(path))
    }

    fn list(&self, depth: Depth, _: &dyn ListsHosts, tell: &mut Tell<'_>) -> Result<(), Stop> {
        list_in(&Anywhere, &self.0, depth, tell)
    }
}

/// Calls `tell` for each entry at a path of a file system.
pub(super) fn list_in(
    root: &dyn OpenRoot,
    path: &[u8],
    depth: Depth,
    tell: &mut Tell<'_>,
) -> Result<(), Stop> {
    let told = listing::list(root, path, depth, &mut |found| match found {
        Found::Entry(entry) => tell(Listed::Entries(vec![entry])),
        Found::Failed(failure) => tell(Listed::Failed(failure)),
    });
    told.map_err(|error| match error {
        ListError::Open { .. } => Stop::because(Exit::Local, error),
        ListError::Told(stop) => stop,
    })
}

impl Source for LocalPath {
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource> {
        opening.open_path(&self.0)
    }
}

impl Sink for LocalPath {
    fn open(&self, opening: &dyn SinkOpening, arrival: Arrival) -> Result<Destination, Stop> {
        opening.open_path(&self.0, arrival)
    }
}

/// Opens a path on this host as the destination of a stream.
///
/// # Errors
///
/// The file cannot be created.
pub fn open_file_of_stream(path: &[u8], arrival: Arrival) -> Result<Destination, Stop> {
    let file = FileStream::open(&Anywhere, path, arrival.owner.session_number());
    let file = file.map_err(|error| Stop::because(Exit::Local, error))?;
    Ok(Destination::stream(Arc::new(file), arrival))
}
