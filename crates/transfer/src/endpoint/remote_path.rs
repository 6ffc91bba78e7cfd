//! The part of an endpoint that the process at the other host opens.

use longhaul_proto::handshake::RequestPath;
use longhaul_units::ByteCount;

use super::error::EndpointError;
use super::zero::parse_size;
use super::{Endpoint, null, zero};

/// Path at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemotePath {
    /// Path within a daemon's roots or on a host.
    Path(Vec<u8>),
    /// Discards all data at the other end.
    Null,
    /// Provides this many zero bytes at the other end.
    Zero(ByteCount),
}

impl RemotePath {
    /// Parses the endpoints without a file: `null:` and `zero:SIZE`. Returns `None` for a path.
    pub(super) fn parse_measured(
        text: &[u8],
        shown: &[u8],
    ) -> Result<Option<RemotePath>, EndpointError> {
        if text == null::TEXT {
            return Ok(Some(RemotePath::Null));
        }
        let size = text.strip_prefix(zero::PREFIX);
        size.map(|size| parse_size(size, shown).map(RemotePath::Zero))
            .transpose()
    }

    /// Returns the text after the host in an endpoint.
    pub(super) fn text(&self) -> Vec<u8> {
        match self {
            RemotePath::Path(path) => path.clone(),
            RemotePath::Null => null::TEXT.to_vec(),
            RemotePath::Zero(size) => zero::text_of(*size),
        }
    }

    /// Returns the path, or `None` if there is no file.
    pub fn as_path(&self) -> Option<&[u8]> {
        match self {
            RemotePath::Path(path) => Some(path),
            RemotePath::Null | RemotePath::Zero(_) => None,
        }
    }

    /// True if the other end discards all data.
    pub(super) fn discards(&self) -> bool {
        *self == RemotePath::Null
    }

    /// True if the other end generates the data.
    pub(super) fn is_generated(&self) -> bool {
        matches!(self, RemotePath::Zero(_))
    }

    /// Returns the path for a request to the other host.
    pub fn request_path(&self) -> RequestPath {
        match self {
            RemotePath::Path(path) => RequestPath::Path(path.clone()),
            RemotePath::Null => RequestPath::Null,
            RemotePath::Zero(size) => RequestPath::Zero(size.0),
        }
    }

    /// Returns the endpoint as the other host itself names it.
    pub fn at_its_host(&self) -> Endpoint {
        match self {
            RemotePath::Path(path) => Endpoint::local(path.clone()),
            RemotePath::Null => Endpoint::new(null::Null),
            RemotePath::Zero(size) => Endpoint::new(zero::Zero(*size)),
        }
    }

    /// Returns the byte strings that identify the path as a source.
    pub(super) fn identity(&self) -> Vec<Vec<u8>> {
        match self {
            RemotePath::Path(path) => vec![b"path".to_vec(), path.clone()],
            RemotePath::Null => vec![b"null".to_vec()],
            RemotePath::Zero(size) => zero::identity_of(*size),
        }
    }
}
