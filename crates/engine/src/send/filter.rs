//! Runs files through a command before they are read. The output goes into an unnamed file in the
//! system's directory for temporary files, which is then sent. Thus its size is known, and lost
//! blocks can be read again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_net::token::fill_random;
use longhaul_proto::command::FileCommand;
use longhaul_proto::manifest::{Entry, EntryId};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::{FilterStep, MOST_FILTERED, Sender};
use longhaul_storage::failure::failure_of;
use longhaul_storage::refusing::refuse_writes;
use longhaul_storage::spill::{TemporaryError, nameless_file};
use longhaul_storage::{Advice, DataMode, DataRange, Directory, Status, StoredFile};
use longhaul_system::descriptors::{self, until_free};
use longhaul_system::queue::lock;

use super::Sending;
use super::walk::entry_again;
use crate::flows::Flow;
use crate::session::Counters;
use crate::shell;

/// Name of the layer.
pub(super) const LAYER: &str = "filter";

/// Divisor for the share of descriptors that outputs may use.
const OUTPUTS_PART: usize = 8;

/// Maximum number of outputs of unfinished files.
pub(super) fn most_outputs() -> usize {
    descriptors::share(OUTPUTS_PART, MOST_FILTERED)
}

/// Number of attempts to filter a file that changes meanwhile.
const TRIES: usize = 3;

/// Outputs of unfinished files.
#[derive(Default)]
pub(crate) struct Outputs(Mutex<HashMap<EntryId, Arc<dyn StoredFile>>>);

impl Outputs {
    /// Returns the output of a file, if the file was filtered.
    pub(super) fn get(&self, id: EntryId) -> Option<Arc<dyn StoredFile>> {
        lock(&self.0).get(&id).cloned()
    }
}

/// An output. Its status is the source's, with a size and inode of its own.
struct Output {
    file: File,
    status: Status,
}

impl StoredFile for Output {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset.saturating_add(filled as u64);
            match self.file.read_at(&mut buffer[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(self.status)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let end = self.status.size;
        Ok((offset < end).then_some(DataRange { start: offset, end }))
    }

    fn advise(&self, _advice: Advice, _start: u64, _length: u64) {}

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }

    refuse_writes!(io::ErrorKind::Unsupported);
}

/// The entry to send and the output; `None` if the file changed meanwhile.
type Filtered = Option<(Entry, Output)>;

impl Sending<'_> {
    /// Runs a thread that executes commands.
    pub(crate) fn run_filters(&self, flow: &Flow) {
        let Some(asked) = &self.side.filter else {
            return;
        };
        let poll = |sender: &mut Sender, is_over| {
            if is_over {
                None
            } else {
                sender.work_mut().poll_filter()
            }
        };
        while let Some(step) = self.next_step(flow, poll) {
            let entry = match step {
                FilterStep::Filter(entry) => entry,
                FilterStep::Forget(id) => {
                    lock(&self.side.outputs.0).remove(&id);
                    continue;
                }
            };
            let id = entry.id;
            let filtered = flow.busy(|| self.filter(asked, &entry));
            if self.transfer.is_over() || shell::is_ending() {
                return;
            }
            let result = filtered.map(|(entry, output)| {
                lock(&self.side.outputs.0).insert(id, Arc::new(output));
                entry
            });
            let taken = self.tell(|sender| sender.work_mut().handle_filtered(id, result));
            if taken != Some(true) {
                lock(&self.side.outputs.0).remove(&id);
            }
        }
    }

    fn filter(&self, asked: &FileCommand, entry: &Entry) -> Result<(Entry, Output), Failure> {
        for _ in 0..TRIES {
            if let Some((now, output)) = self.filter_once(asked, entry)? {
                // The size that was counted must be the size that is sent.
                let more = output.status.size.wrapping_sub(entry.size());
                Counters::add(&self.transfer.counters.walked_bytes, more);
                return Ok((now, output));
            }
        }
        let text = format!(
            "{}: changes while it goes through the filter; copy it again when nobody writes to it",
            entry.path
        );
        Err(Failure::new(FailureKind::Changing, text))
    }

    fn filter_once(&self, asked: &FileCommand, entry: &Entry) -> Result<Filtered, Failure> {
        let shown = entry.path.to_string();
        let failed = |error: io::Error| failure_of("filter", &shown, &error);
        let origins = &self.side.origins;
        let wanted = || !self.transfer.is_over();
        let sources = &self.side.sources;
        let opened = until_free(&wanted, || sources.open_parent(entry.id, &entry.path));
        let (parent, name) = opened.map_err(failed)?;
        let source = until_free(&wanted, || parent.open_file(&name, DataMode::Buffered));
        let source = source.map_err(failed)?;
        let before = source.status().map_err(failed)?;
        let input = until_free(&wanted, || {
            let input = source.descriptor().ok_or(io::ErrorKind::Unsupported)?;
            input.try_clone_to_owned()
        });
        let command = shell::command(&asked.command, &[]);
        let command = with_variables(command, (&*parent, &name), (entry, before.size));
        let directory = std::env::temp_dir();
        let file = until_free(&wanted, || nameless_file(&directory)).map_err(failed)?;
        let mut size = 0;
        let mut take = |part: &[u8]| {
            let written = file.write_all_at(part, size);
            written.map_err(|error| TemporaryError::wrap(error, &directory))?;
            size += part.len() as u64;
            Ok(())
        };
        let within = Duration::from_millis(asked.milliseconds);
        let ran = shell::pipe(command, input.map_err(failed)?, &mut take, within, &wanted);
        if let Some(fault) = self.side.words.fault(&ran.map_err(failed)?) {
            let text =
                format!("{shown}: its filter did not succeed: {fault}; nothing of it was sent");
            return Err(Failure::new(FailureKind::Other, text));
        }
        let after = source.status().map_err(failed)?;
        if origins.identity_of(&after) != origins.identity_of(&before) {
            return Ok(None);
        }
        let mut number = [0; 8];
        fill_random(&mut number).map_err(|error| failed(io::Error::other(error)))?;
        // Outputs of different runs must not be mixed.
        let status = Status {
            size,
            allocated: size,
            inode: u64::from_le_bytes(number),
            ..before
        };
        let now = entry_again(entry, origins.kind_of(&status), &status);
        Ok(Some((now, Output { file, status })))
    }
}

/// Sets the environment variables with the file's path on this host, its name and its size.
fn with_variables(
    mut command: Command,
    (parent, name): (&dyn Directory, &[u8]),
    (entry, size): (&Entry, u64),
) -> Command {
    let path = parent
        .location()
        .map(|place| place.join(OsStr::from_bytes(name)));
    match path {
        Some(path) => command.env("LONGHAUL_PATH", path),
        None => command.env_remove("LONGHAUL_PATH"),
    };
    command
        .env("LONGHAUL_NAME", OsStr::from_bytes(entry.path.as_bytes()))
        .env("LONGHAUL_SIZE", size.to_string())
        .env_remove("LONGHAUL_BLAKE3");
    command
}
