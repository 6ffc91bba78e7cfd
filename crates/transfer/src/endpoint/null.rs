//! `null:` discards all data.

use std::io;

use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_storage::measuring::sink;

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Kind, Sink, SinkOpening};
use super::promises::Promises;
use crate::stop::Stop;

/// Text of the endpoint.
pub(super) const TEXT: &[u8] = b"null:";

pub(super) const KIND: Definition = Definition {
    name: "`null:`",
    notation: None,
    promises: Promises {
        destination: true,
        ranges: true,
        repeatable: true,
        jobs_of_daemons: true,
        ..Promises::NOTHING
    },
    parse,
};

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    (text == TEXT).then(|| Ok(Endpoint::new(Null)))
}

/// Discards all data.
#[derive(Debug)]
pub(super) struct Null;

impl Kind for Null {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        TEXT.to_vec()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(vec![b"null".to_vec()])
    }

    fn sink(&self) -> Option<&dyn Sink> {
        Some(self)
    }
}

impl Sink for Null {
    fn open(&self, opening: &dyn SinkOpening, arrival: Arrival) -> Result<Destination, Stop> {
        let sink = opening.may_measure().map(|()| sink())?;
        Ok(Destination::sink(sink, arrival))
    }
}
