//! `-`: a pipe, standard input as a source or standard output as a destination.

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

/// The umask where the system does not tell it.
const USUAL_UMASK: u32 = 0o022;

/// What `-` stands for in messages.
const INPUT: &str = "standard input";
const OUTPUT: &str = "standard output";

/// Standard input as a source, where it is one; half of the memory is for its
/// pieces.
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

/// The mask of new files. Asking the kernel for it would change it for a moment.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(USUAL_UMASK)
}

/// How messages name the source.
pub fn shown() -> &'static str {
    INPUT
}

/// Standard output as a destination, without the standard library's buffer, which
/// would look for the ends of lines in it.
///
/// # Errors
///
/// Where there is no descriptor left for it.
pub fn to_output(arrival: Arrival) -> Result<Destination, Stop> {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let output = output.map_err(|error| Stop::because(Exit::Local, error))?;
    let output = OrderedStream::new(File::from(output), OUTPUT);
    Ok(Destination::stream(Arc::new(output), arrival))
}

/// A local file that a stream becomes.
///
/// # Errors
///
/// Where it cannot be made.
pub fn to_file(path: &[u8], arrival: Arrival) -> Result<Destination, Stop> {
    let file = FileStream::open(&Anywhere, path, arrival.owner.session_number());
    let file = file.map_err(|error| Stop::because(Exit::Local, error))?;
    Ok(Destination::stream(Arc::new(file), arrival))
}

/// Reports about one thing, whatever pieces it went in; what the other end has is let go of, and
/// after a failure nothing more is read.
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
