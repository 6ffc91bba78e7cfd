//! `zero:SIZE` provides zero bytes without reading a file.

use std::io;

use longhaul_engine::send::source::{Source as OpenSource, What};
use longhaul_storage::measuring::{ZERO_NAME, zero_source};
use longhaul_units::ByteCount;

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Kind, NoSource, Source, SourceOpening};
use super::promises::Promises;

/// Begin of the text.
pub(super) const PREFIX: &[u8] = b"zero:";

pub(super) const KIND: Definition = Definition {
    name: "`zero:SIZE`",
    notation: None,
    promises: Promises {
        source: true,
        files: true,
        ranges: true,
        repeatable: true,
        jobs_of_daemons: true,
        ..Promises::NOTHING
    },
    parse,
};

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    let size = text.strip_prefix(PREFIX)?;
    Some(parse_size(size, text).map(|size| Endpoint::new(Zero(size))))
}

/// Parses the size of an endpoint. `shown` is its whole text.
pub(super) fn parse_size(size: &[u8], shown: &[u8]) -> Result<ByteCount, EndpointError> {
    let size = String::from_utf8_lossy(size).parse();
    size.map_err(|error| EndpointError::Size(String::from_utf8_lossy(shown).into_owned(), error))
}

/// Returns the text of an endpoint with this size.
pub(super) fn text_of(size: ByteCount) -> Vec<u8> {
    format!("zero:{}B", size.0).into_bytes()
}

/// Returns the byte strings that identify zeros as a source.
pub(super) fn identity_of(size: ByteCount) -> Vec<Vec<u8>> {
    vec![b"zero".to_vec(), size.0.to_le_bytes().to_vec()]
}

/// Returns a source of this many zero bytes.
pub fn zero_of(size: u64) -> OpenSource {
    let what = What::File {
        name: ZERO_NAME.into(),
        landing: ZERO_NAME.into(),
    };
    OpenSource::new(zero_source(size).into(), what, "zero:".to_owned())
}

/// Provides this many zero bytes.
#[derive(Debug)]
pub(super) struct Zero(pub(super) ByteCount);

impl Kind for Zero {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        text_of(self.0)
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(identity_of(self.0))
    }

    fn source(&self) -> Option<&dyn Source> {
        Some(self)
    }

    fn generated(&self) -> Option<ByteCount> {
        Some(self.0)
    }
}

impl Source for Zero {
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource> {
        opening.may_measure()?;
        Ok(zero_of(self.0.0))
    }
}
