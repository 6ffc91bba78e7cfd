//! The endpoint `-`: standard input as a source or standard output as a destination.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_engine::recv::stream::{FileStream, OrderedStream};
use longhaul_engine::send::stream::{PIECE_BYTES, StreamSource};
use longhaul_engine::session::{Event, TransferSettings, Watch};
use longhaul_storage::roots::Anywhere;

use crate::endpoint::Endpoint;
use crate::stop::{Exit, Stop};

/// Permission bits of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;

/// Umask assumed if the system does not report one.
const USUAL_UMASK: u32 = 0o022;

/// Names of `-` in messages.
const INPUT: &str = "standard input";
const OUTPUT: &str = "standard output";

/// Returns standard input if it is a source. Reserves half of the memory for its pieces.
pub fn source(sources: &[Endpoint], settings: &mut TransferSettings) -> Option<Arc<StreamSource>> {
    if !sources.contains(&Endpoint::Standard) {
        return None;
    }
    settings.budget.0 /= 2;
    let most = usize::try_from(settings.budget.0).unwrap_or(usize::MAX);
    let piece = settings.block_bytes.min(PIECE_BYTES);
    let mode = NEW_FILE_MODE & !umask();
    Some(StreamSource::new(
        Box::new(std::io::stdin()),
        piece,
        most,
        mode,
    ))
}

/// Returns the mask of new files. Reads it from `/proc`, since the umask system call would change
/// it temporarily.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(USUAL_UMASK)
}

/// Returns the name of the source in messages.
pub fn shown() -> &'static str {
    INPUT
}

/// Opens standard output as a destination. Bypasses the standard library's buffer, which would scan
/// the data for ends of lines.
///
/// # Errors
///
/// No file descriptor is available.
pub fn to_output(arrival: Arrival) -> Result<Destination, Stop> {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let output = output.map_err(|error| Stop::because(Exit::Local, error))?;
    let output = OrderedStream::new(File::from(output), OUTPUT);
    Ok(Destination::stream(Arc::new(output), arrival))
}

/// Opens a local file as the destination of a stream.
///
/// # Errors
///
/// The file cannot be created.
pub fn to_file(path: &[u8], arrival: Arrival) -> Result<Destination, Stop> {
    let file = FileStream::open(&Anywhere, path, arrival.owner.session_number());
    let file = file.map_err(|error| Stop::because(Exit::Local, error))?;
    Ok(Destination::stream(Arc::new(file), arrival))
}

/// Wraps the reports of a pipe so that its pieces count as one entry. Releases pieces that the
/// other end has stored. Stops reading after a failure.
pub fn watch(source: &Arc<StreamSource>, inner: Watch) -> Watch {
    let source = Arc::clone(source);
    let failed = AtomicBool::new(false);
    Arc::new(move |event| match event {
        Event::Committed { path, .. }
        | Event::Skipped { path, .. }
        | Event::Mended { path, .. } => source.let_go(&path),
        Event::Failed { failure, .. } => {
            if failed.swap(true, Ordering::Relaxed) {
                return;
            }
            let mut failure = failure;
            if let Some(error) = source.failure() {
                failure.text = format!("{INPUT}: cannot be read: {error}; nothing was kept");
            }
            source.give_up();
            inner(Event::Failed {
                path: None,
                failure,
            });
        }
        Event::Damaged { .. } | Event::StreamDamaged { .. } => inner(event),
        Event::Planned { .. }
        | Event::Left { .. }
        | Event::Deleted { .. }
        | Event::Undeleted { .. }
        | Event::Omitted { .. }
        | Event::Resumed { .. }
        | Event::Durable { .. } => {}
    })
}
