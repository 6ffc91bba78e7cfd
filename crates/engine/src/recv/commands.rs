//! Runs a command for each committed file. A file counts as done when its command succeeded. The
//! pending command is recorded durably before the file gets its name: a later session of the same
//! transfer runs commands that this one did not start or that failed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use longhaul_proto::command::FileCommand;
use longhaul_proto::criteria::Held;
use longhaul_proto::digest::Checksum;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryKind, TreePath};
use longhaul_proto::message::{Failure, FailureKind, Outcome};
use longhaul_proto::receiver::Compared;
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::JournalError;
use longhaul_storage::journal::digests::FileState;

use super::parts::journal_failure;
use super::{Committer, ReceiveSide};
use crate::flows::Flow;
use crate::shell;

/// Name of the layer.
pub(super) const LAYER: &str = "on-commit";

/// Maximum number of files that wait for their command; with more, committing waits.
pub(super) const MOST_WAITING: usize = 1024;

/// A file that has its name and whose command has not run.
pub(crate) struct Committed {
    entry: Entry,
    digest: Option<Checksum>,
    came: Came,
}

/// Origin of a file, which determines the report to the state machine.
enum Came {
    /// The file came in pieces.
    Large { generation: u32 },
    /// The file came in a pack.
    Small,
    /// An earlier session committed the file; holds the result of its comparison.
    Before(Compared),
}

impl Committed {
    /// Creates an item for a file that came in pieces.
    pub fn large(entry: Entry, generation: u32, digest: Option<Checksum>) -> Committed {
        let came = Came::Large { generation };
        Committed {
            entry,
            digest,
            came,
        }
    }

    /// Creates an item for a file that came in a pack.
    pub fn small(entry: Entry, digest: Option<Checksum>) -> Committed {
        let came = Came::Small;
        Committed {
            entry,
            digest,
            came,
        }
    }
}

impl Committer<'_> {
    /// Returns the number of commands that run at a time; `None` if no commands run.
    pub(super) fn command_jobs(&self) -> Option<usize> {
        let jobs = self.side.destination.on_commit.as_ref()?.jobs;
        let runs = self.runs_commands();
        runs.then(|| shell::most_at_once(jobs))
    }
}

impl Committer<'_> {
    /// True if a command runs for each file.
    pub(super) fn runs_commands(&self) -> bool {
        let destination = &self.side.destination;
        destination.on_commit.is_some()
            && !destination.is_sink
            && self.transfer.settings.operation == Operation::Copy
    }

    /// True if a command runs for this entry: only files have commands.
    pub(super) fn runs_command_for(&self, entry: &Entry) -> bool {
        matches!(entry.kind, EntryKind::File { .. }) && self.runs_commands()
    }

    /// Records the pending commands of the files among these entries before they get their names.
    pub(super) fn await_commands(&self, files: &[(&TreePath, &Entry)]) -> Result<(), JournalError> {
        if !self.runs_commands() {
            return Ok(());
        }
        let states = files.iter();
        let state = |(path, entry): &(&TreePath, &Entry)| state_of(self.side, path, entry);
        let states: Vec<FileState> = states.filter_map(state).collect();
        self.side.destination.await_commands(&states)
    }

    /// Splits compared entries: the second list holds files whose command must run first, because
    /// an earlier session committed them and their command did not succeed.
    pub(super) fn awaiting_commands(
        &self,
        mut compared: Vec<(Entry, Compared)>,
    ) -> (Vec<(Entry, Compared)>, Vec<Committed>) {
        let mut awaited = Vec::new();
        if !self.runs_commands() {
            return (compared, awaited);
        }
        for (entry, found) in &mut compared {
            let path = self.side.destination.path_of(&entry.path);
            let state = || state_of(self.side, &path, entry);
            let digest = match found {
                Compared::Same(digest) | Compared::Mended(digest) => *digest,
                // An earlier session committed the file, even though this one does not compare it.
                Compared::Left(Held::Exists | Held::Newer) => None,
                _ => continue,
            };
            if state().is_some_and(|state| self.side.destination.awaits_command(&state)) {
                let found = std::mem::replace(found, Compared::Later);
                awaited.push(Committed {
                    entry: entry.clone(),
                    digest,
                    came: Came::Before(found),
                });
            }
        }
        (compared, awaited)
    }

    /// Runs the thread of a command runner.
    pub(crate) fn run_commands(&self, flow: &Flow) {
        while let Some(file) = self.side.queues.commands.pop(|| flow.is_wanted()) {
            let result = flow.busy(|| self.run_command(&file));
            if self.transfer.is_over() || shell::is_ending() {
                return;
            }
            if result.is_err() {
                // A later session finds the pending command by this session's claim.
                self.side.parts.note_left_behind();
            }
            self.tell_command(file, result);
        }
    }

    fn tell_command(&self, file: Committed, result: Result<(), Failure>) {
        let Committed {
            entry,
            digest,
            came,
        } = file;
        let wanted = digest.filter(|_| self.transfer.settings.digests);
        match came {
            Came::Large { generation } => self.receiving().tell(|receiver| {
                receiver.handle_committed(entry.id, generation, result);
            }),
            Came::Small => self.receiving().tell(|receiver| {
                let outcome = match result {
                    Ok(()) => Outcome::Committed { digest: wanted },
                    Err(failure) => Outcome::Failed(failure),
                };
                receiver.handle_packed(vec![(entry, outcome)]);
            }),
            Came::Before(found) => self.receiving().tell(|receiver| {
                let compared = match result {
                    Ok(()) => found,
                    Err(failure) => Compared::Refused(failure),
                };
                receiver.handle_contents_compared(entry, compared);
            }),
        };
    }

    fn run_command(&self, file: &Committed) -> Result<(), Failure> {
        let destination = &self.side.destination;
        let shown = file.entry.path.to_string();
        let Some(asked) = &destination.on_commit else {
            return Ok(());
        };
        let owned = destination.ensure_owned();
        owned.map_err(|error| journal_failure(&shown, &error))?;
        let failed = |why: &str| {
            let text = format!(
                "{shown}: it is there, but its command did not succeed: {why}; the same command \
                 runs that again"
            );
            Failure::new(FailureKind::Other, text)
        };
        let path = destination.path_of(&file.entry.path);
        let command = command_for(self.side, asked, (file, &path));
        let command = command.ok_or_else(|| {
            failed("the path of the destination is not known: see that /proc is mounted")
        })?;
        let within = Duration::from_millis(asked.milliseconds);
        let ran = shell::run(command, within, &|| !self.transfer.is_over());
        let ran = ran.map_err(|error| failure_of("run a command for", &shown, &error))?;
        if let Some(fault) = self.side.words.fault(&ran) {
            return Err(failed(&fault));
        }
        if let Some(state) = state_of(self.side, &path, &file.entry) {
            destination.end_command(state);
        }
        Ok(())
    }
}

/// Returns the state that identifies a file with a pending command.
fn state_of(side: &ReceiveSide, path: &TreePath, entry: &Entry) -> Option<FileState> {
    let EntryKind::File { identity, .. } = &entry.kind else {
        return None;
    };
    let mut identity = *identity;
    if side.destination.filtered {
        // The size of filtered output is unknown until the file arrives.
        identity.size = 0;
    }
    Some(FileState::of_command(path.as_bytes(), &identity))
}

/// Returns the digest of a file that an earlier session committed, if it is known.
fn known_digest(side: &ReceiveSide, file: &Committed, path: &TreePath) -> Option<Checksum> {
    let folder = side.folders.find_in_copy(path.parent().as_ref()).ok()?;
    let status = folder.directory().status_of(path.name()).ok()?;
    side.destination.kept_digest(path, &file.entry, &status)
}

/// Returns the command for a file, with its path on this host; `None` if the path is unknown.
fn command_for(
    side: &ReceiveSide,
    asked: &FileCommand,
    (file, path): (&Committed, &TreePath),
) -> Option<std::process::Command> {
    let directory = side.destination.anchor.location()?;
    let whole = directory.join(OsStr::from_bytes(path.as_bytes()));
    let command = shell::command(&asked.command, &[whole.as_os_str()]);
    let mut command = with_variables(command, (&directory, path), &file.entry);
    let digest = file.digest.or_else(|| known_digest(side, file, path));
    if let Some(Checksum::Blake3(digest)) = digest {
        let digest = blake3::Hash::from_bytes(digest);
        command.env("LONGHAUL_BLAKE3", digest.to_hex().as_str());
    }
    Some(command)
}

/// Adds the path on this host and the size at the source to the environment of a command.
pub(super) fn with_variables(
    mut command: std::process::Command,
    (directory, path): (&Path, &TreePath),
    entry: &Entry,
) -> std::process::Command {
    let name = OsStr::from_bytes(path.as_bytes());
    command
        .env("LONGHAUL_PATH", directory.join(name))
        .env("LONGHAUL_NAME", name)
        .env("LONGHAUL_SIZE", entry.size().to_string())
        .env_remove("LONGHAUL_BLAKE3");
    command
}
