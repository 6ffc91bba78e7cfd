//! `-`: standard input as a source or standard output as a destination.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_engine::recv::stream::OrderedStream;
use longhaul_engine::send::source::Source as OpenSource;
use longhaul_engine::send::stream::{PIECE_BYTES, StreamSource};
use longhaul_engine::session::TransferSettings;

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Kind, NoSource, Sink, SinkOpening, Source, SourceOpening};
use super::promises::Promises;
use crate::stop::{Exit, Stop};

pub(super) const KIND: Definition = Definition {
    name: "`-`",
    notation: None,
    promises: Promises {
        source: true,
        destination: true,
        standard_stream: true,
        ..Promises::NOTHING
    },
    parse,
};

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    (text == b"-").then(|| Ok(Endpoint::new(Standard)))
}

/// Standard input or standard output.
#[derive(Debug)]
pub(super) struct Standard;

impl Kind for Standard {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        b"-".to_vec()
    }

    /// A pipe can be read only once, so a different run has a different source.
    fn identity(&self, run: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(vec![b"pipe".to_vec(), run.to_vec()])
    }

    fn source(&self) -> Option<&dyn Source> {
        Some(self)
    }

    fn sink(&self) -> Option<&dyn Sink> {
        Some(self)
    }
}

impl Source for Standard {
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource> {
        let missing = || Stop::new(Exit::Usage, "there is no standard input");
        Ok(opening.standard_input().ok_or_else(missing)?)
    }
}

impl Sink for Standard {
    fn open(&self, _: &dyn SinkOpening, arrival: Arrival) -> Result<Destination, Stop> {
        open_output(arrival)
    }
}

/// Permission bits of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;

/// Umask assumed if the system does not report one.
const USUAL_UMASK: u32 = 0o022;

/// Name of standard input in messages.
pub const INPUT: &str = "standard input";

/// Name of standard output in messages.
const OUTPUT: &str = "standard output";

/// Opens standard input. Reserves half of the memory for its pieces.
pub fn open_input(settings: &mut TransferSettings) -> Arc<StreamSource> {
    settings.budget.0 /= 2;
    let most = usize::try_from(settings.budget.0).unwrap_or(usize::MAX);
    let piece = settings.block_bytes.min(PIECE_BYTES);
    let mode = NEW_FILE_MODE & !umask();
    StreamSource::new(Box::new(std::io::stdin()), piece, most, mode)
}

/// Returns the mask of new files. Reads it from `/proc`, since the umask system call would change
/// it temporarily.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(USUAL_UMASK)
}

/// Returns an open standard input as a source.
pub fn source_of(input: &Arc<StreamSource>) -> OpenSource {
    input.source(INPUT)
}

/// Opens standard output as a destination. Bypasses the standard library's buffer, which would scan
/// the data for ends of lines.
///
/// # Errors
///
/// No file descriptor is available.
fn open_output(arrival: Arrival) -> Result<Destination, Stop> {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let output = output.map_err(|error| Stop::because(Exit::Local, error))?;
    let output = OrderedStream::new(File::from(output), OUTPUT);
    Ok(Destination::stream(Arc::new(output), arrival))
}
