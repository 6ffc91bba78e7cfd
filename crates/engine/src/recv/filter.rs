//! Passes received files through a command. A file has arrived completely and matches its checksums
//! by then. The command reads the file by its temporary name. Its output goes into another
//! temporary file and is hashed on the way. If the command fails, no file gets the name.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_proto::command::FileCommand;
use longhaul_proto::digest::{Checksum, Integrity};
use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{Failure, FailureKind, Outcome};
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::gate::create_held;
use longhaul_storage::journal::temporary;
use longhaul_storage::{Advice, DataMode};
use longhaul_system::descriptors::{self, until_free};

use super::Committer;
use super::commands::{Committed, with_variables};
use super::commit::{Staged, StagedFile};
use super::folders::Folder;
use super::parts::{PartKind, journal_failure};
use crate::flows::Flow;
use crate::shell;

/// Name of the layer.
pub(super) const LAYER: &str = "filter";

/// Maximum number of files that wait for the command; with more, writing waits.
const MOST_WAITING: usize = 64;

/// Divisor of the descriptor limit for waiting small files, since these are open.
const WAITING_PART: usize = 8;

/// Returns the number of files that may wait for the command.
pub(super) fn most_waiting() -> usize {
    descriptors::share(WAITING_PART, MOST_WAITING)
}

/// A file that has arrived completely.
pub(super) enum Unfiltered {
    /// The file came in pieces, and its part is open.
    Large {
        /// Entry of the file.
        entry: Entry,
        /// Generation of the file.
        generation: u32,
    },
    /// The file came in a pack and has a temporary name.
    Small(Staged),
}

impl Committer<'_> {
    /// Returns the number of commands that run at a time; `None` without a filter.
    pub(super) fn filter_jobs(&self) -> Option<usize> {
        let jobs = self.side.destination.filter.as_ref()?.jobs;
        self.filters().then(|| shell::most_at_once(jobs))
    }
}

impl Committer<'_> {
    /// True if files go through a command.
    pub(super) fn filters(&self) -> bool {
        self.side.destination.filter.is_some()
            && !self.side.destination.is_sink
            && self.receiving().copies()
    }

    /// True if this entry goes through a command.
    pub(super) fn filters_entry(&self, entry: &Entry) -> bool {
        matches!(entry.kind, EntryKind::File { .. }) && self.filters()
    }

    /// Runs the thread of a filter.
    pub(crate) fn run_filters(&self, flow: &Flow) {
        while let Some(file) = self.side.queues.filtering.pop(|| flow.is_wanted()) {
            match file {
                Unfiltered::Small(staged) => self.filter_small(flow, staged),
                Unfiltered::Large { entry, generation } => {
                    self.filter_large(flow, (entry, generation));
                }
            }
        }
    }

    fn filter_small(&self, flow: &Flow, came: Staged) {
        let Staged { entry, file, .. } = came;
        let StagedFile {
            folder,
            temporary,
            name,
            ..
        } = file;
        let filtered = flow.busy(|| self.filter(&entry, (&folder, &temporary)));
        // `longhaul clean` finds files that cannot be removed here.
        let _ = folder.directory().remove_file(&temporary);
        match filtered {
            Ok((file, digest)) => self.side.staging.push(Staged {
                entry,
                file: StagedFile { name, ..file },
                digest,
            }),
            Err(_) if self.transfer.is_over() || self.receiving().end_if_lost() => {}
            Err(failure) => {
                let done = vec![(entry, Outcome::Failed(failure))];
                self.receiving()
                    .tell(|receiver| receiver.handle_packed(done));
            }
        }
    }

    /// Filters a large file. If the command fails, the part stays, and a later session continues
    /// with its durable data.
    fn filter_large(&self, flow: &Flow, (entry, generation): (Entry, u32)) {
        let result = flow.busy(|| self.filter_part(&entry, generation));
        if result.is_err() && (self.transfer.is_over() || self.receiving().end_if_lost()) {
            return;
        }
        let id = entry.id;
        match result {
            Ok(digest) => {
                self.side.parts.discard(id, generation);
                if let Some(digest) = digest {
                    self.receiving()
                        .tell(|r| r.files_mut().handle_filtered(id, generation, digest));
                }
                if self.runs_commands() {
                    let large = Committed::large(entry, generation, digest);
                    self.side.queues.commands.push(large);
                    return;
                }
                self.receiving()
                    .tell(|r| r.handle_committed(id, generation, Ok(())));
            }
            Err(failure) => {
                self.receiving()
                    .tell(|r| r.handle_committed(id, generation, Err(failure)));
                self.side.parts.leave_behind(id, generation);
            }
        }
    }

    fn filter_part(&self, entry: &Entry, generation: u32) -> Result<Option<Checksum>, Failure> {
        let part = self.receiving().part(entry, generation)?;
        let PartKind::Partial(partial) = &part.kind else {
            return Ok(None);
        };
        let (file, digest) = self.filter(entry, (&part.folder, partial.part_name()))?;
        let staged = [Staged {
            entry: entry.clone(),
            file,
            digest,
        }];
        match self.commit_batch(&staged).pop() {
            Some(Err(failure)) => Err(failure),
            _ => Ok(digest),
        }
    }

    /// Runs the command for a file with a temporary name, and returns its output.
    fn filter(
        &self,
        entry: &Entry,
        (folder, from): (&Arc<Folder>, &[u8]),
    ) -> Result<(StagedFile, Option<Checksum>), Failure> {
        let destination = &self.side.destination;
        let shown = entry.path.to_string();
        let Some(asked) = &destination.filter else {
            return Err(Failure::new(FailureKind::Other, "no command"));
        };
        let owned = destination.ensure_owned();
        owned.map_err(|error| journal_failure(&shown, &error))?;
        let number = self.side.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = temporary(destination.owner.session_number(), number);
        let made = self.fill((asked, entry), (folder, from, &name));
        let made = made.and_then(|(file, digest)| {
            let directory = &**folder.directory();
            let finished = destination.finish_file(directory, &*file, entry);
            finished.map_err(|error| failure_of("write", &shown, &error))?;
            Ok((file, digest))
        });
        match made {
            Ok((file, digest)) => {
                let staged = StagedFile {
                    folder: Arc::clone(folder),
                    temporary: name,
                    name: destination.path_of(&entry.path),
                    file: Some(file),
                };
                Ok((staged, digest))
            }
            Err(failure) => {
                // `longhaul clean` finds files that cannot be removed here.
                let _ = folder.directory().remove_file(&name);
                Err(failure)
            }
        }
    }

    /// Writes the command's output for one file into a new file.
    fn fill(
        &self,
        (asked, entry): (&FileCommand, &Entry),
        (folder, from, to): (&Folder, &[u8], &[u8]),
    ) -> Result<(Arc<dyn longhaul_storage::StoredFile>, Option<Checksum>), Failure> {
        let shown = entry.path.to_string();
        let failed = |error: std::io::Error| failure_of("filter", &shown, &error);
        let directory = folder.directory();
        let wanted = || !self.transfer.is_over();
        let input = until_free(&wanted, || directory.open_descriptor(from)).map_err(failed)?;
        let file = until_free(&wanted, || {
            create_held(&**directory, to, DataMode::Buffered)
        });
        let file = file.map_err(failed)?;
        let place = self.side.destination.anchor.location();
        let place = place.ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))?;
        let path = self.side.destination.path_of(&entry.path);
        let command = shell::command(&asked.command, &[]);
        let command = with_variables(command, (&place, &path), entry);
        let (mut offset, mut hasher) = (0, blake3::Hasher::new());
        let mut take = |part: &[u8]| {
            file.write_at(part, offset)?;
            hasher.update(part);
            file.advise(Advice::StartWriteback, offset, part.len() as u64);
            offset += part.len() as u64;
            Ok(())
        };
        let within = Duration::from_millis(asked.milliseconds);
        let ran = shell::pipe(command, input, &mut take, within, &wanted);
        if let Some(fault) = self.side.words.fault(&ran.map_err(failed)?) {
            let text =
                format!("{shown}: its filter did not succeed: {fault}; nothing was kept of it");
            return Err(Failure::new(FailureKind::Other, text));
        }
        let digests = self.transfer.settings.integrity == Integrity::Digest;
        let digest = Checksum::Blake3(*hasher.finalize().as_bytes());
        Ok((file, digests.then_some(digest)))
    }
}
