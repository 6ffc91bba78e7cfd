//! Reads existing files. Their content is compared with the digests that the sender reports: the
//! content of a manifest and the result of `--verify` then hold for the source. Partial data of an
//! earlier session is compared with its checksums before the file gets its name, because it may
//! have been changed since.

use std::io;

use longhaul_proto::digest::{BlockHasher, Checksum};
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::Entry;
use longhaul_proto::message::{Change, Failure, FailureKind};
use longhaul_proto::receiver::Compared;
use longhaul_storage::failure::failure_of;
use longhaul_storage::file_data::{CHUNK_BYTES, digest_of, read_mode_for};
use longhaul_storage::{Advice, Status, StoredFile};

use super::Comparer;
use super::parts::PartKind;
use super::sparse::punch_zeros;
use crate::flows::Flow;
use crate::session::Counters;

/// Existing data that must be read.
pub(crate) enum ToRead {
    /// A file to compare with the sender's digest.
    Contents(Entry, Checksum),
    /// Partial data of an earlier session, and its generation.
    Part(Entry, u32, Vec<DurableBlock>),
}

impl Comparer<'_> {
    /// Runs the thread that reads existing data.
    pub(crate) fn run_content_comparer(&self, flow: &Flow) {
        while let Some(what) = self.side.queues.to_read.pop(|| flow.is_wanted()) {
            flow.busy(|| match what {
                ToRead::Contents(entry, digest) => {
                    let compared = self.compare_contents(&entry, digest);
                    let (told, awaited) = self
                        .receiving()
                        .committer()
                        .awaiting_commands(vec![(entry, compared)]);
                    for (entry, compared) in told {
                        self.receiving()
                            .tell(|r| r.handle_contents_compared(entry, compared));
                    }
                    awaited
                        .into_iter()
                        .for_each(|there| self.side.queues.commands.push(there));
                }
                ToRead::Part(entry, generation, blocks) => {
                    self.read_part(&entry, generation, &blocks);
                }
            });
        }
    }

    fn read_part(&self, entry: &Entry, generation: u32, blocks: &[DurableBlock]) {
        let id = entry.id;
        let part = self.side.parts.get(id, generation);
        let result = match part.as_deref().map(|part| &part.kind) {
            // With this setting, the whole file is read back at the end.
            Some(PartKind::Partial(partial)) if !self.transfer.settings.verify_written => {
                let each = |block: &DurableBlock| {
                    self.check_block((entry, generation), &**partial.file(), block)
                };
                blocks.iter().try_for_each(each)
            }
            _ => Ok(()),
        };
        drop(part);
        self.receiving()
            .tell(|receiver| receiver.handle_read_back(id, generation, result));
    }

    /// Compares a block with its checksum. The result is not needed if the file is no longer
    /// copied.
    fn check_block(
        &self,
        (entry, generation): (&Entry, u32),
        file: &dyn StoredFile,
        block: &DurableBlock,
    ) -> Result<(), Failure> {
        let shown = entry.path.to_string();
        let altered = || {
            let text = format!(
                "{shown}: what an earlier run left of it was changed since, and is removed: run \
                 the same command again to copy it from its beginning"
            );
            Failure::new(FailureKind::Corrupt, text)
        };
        let (integrity, size) = (self.transfer.settings.integrity, entry.size());
        let hasher = BlockHasher::new(integrity, block.offset, block.length, size);
        let mut hasher = hasher.ok_or_else(altered)?;
        let mut room = vec![0; CHUNK_BYTES];
        let (mut offset, end) = (block.offset, block.offset + block.length);
        while offset < end {
            if self.transfer.is_over() || !self.receiving().is_under_way(entry.id, generation) {
                return Ok(());
            }
            let wanted = (end - offset).min(CHUNK_BYTES as u64) as usize;
            let read = file.read_at(&mut room[..wanted], offset);
            let read = read.map_err(|error| failure_of("read back", &shown, &error))?;
            if read == 0 {
                return Err(altered());
            }
            hasher.update(&room[..read]);
            if self.side.makes_holes() {
                // An earlier run may have written the file without this setting.
                let punched = punch_zeros(file, offset, &room[..read]);
                punched.map_err(|error| failure_of("make a hole in it", &shown, &error))?;
            }
            offset += read as u64;
        }
        if hasher.finish() == block.checksum {
            Ok(())
        } else {
            Err(altered())
        }
    }

    /// Compares a file with a digest. If it differs or cannot be read, it must be sent.
    fn compare_contents(&self, entry: &Entry, digest: Checksum) -> Compared {
        let path = self.side.destination.path_of(&entry.path);
        let above = path.parent();
        let folder = if self.receiving().copies() {
            self.side.folders.find_in_copy(above.as_ref())
        } else {
            self.side.folders.find(above.as_ref())
        };
        let read = folder.and_then(|folder| {
            let mode = read_mode_for(self.transfer.settings.direct, entry.size());
            let file = folder.directory().open_file(path.name(), mode)?;
            let read = self.digest_and_state_of(&*file, entry.size())?;
            Ok((folder, file, read))
        });
        let Ok((folder, file, (found, status))) = read else {
            return self.unlike();
        };
        Counters::add(&self.transfer.counters.read_bytes, entry.size());
        self.receiving()
            .tell(|receiver| receiver.outcomes_mut().count_digest_read(entry.size()));
        if found != digest {
            return if self.receiving().copies() {
                Compared::Differs
            } else {
                self.unlike()
            };
        }
        if !self.receiving().copies() {
            return self.planned(&folder, entry, &status);
        }
        let Some(mended) = self.mend(&folder, (entry, &status), &*file) else {
            return Compared::Send;
        };
        let Ok(status) = file.status() else {
            return Compared::Send;
        };
        // The source will be removed, so the destination must be durable.
        let durable = || file.sync_all().and_then(|()| folder.sync());
        let durable = || durable().and_then(|()| self.side.ensure_up(&folder));
        if self.transfer.settings.moves_away && durable().is_err() {
            return Compared::Send;
        }
        if self.transfer.settings.digests {
            self.side
                .destination
                .keep_digest(&path, entry, status, digest);
        }
        let digest = self.transfer.settings.digests.then_some(digest);
        if mended {
            Compared::Mended(digest)
        } else {
            Compared::Same(digest)
        }
    }

    /// Returns the result for a file that must be sent, or would be.
    pub(super) fn unlike(&self) -> Compared {
        if self.receiving().copies() {
            Compared::Send
        } else {
            Compared::Planned(Change::Changed)
        }
    }

    /// Returns the digest of a file, and the state that it describes.
    fn digest_and_state_of(
        &self,
        file: &dyn StoredFile,
        size: u64,
    ) -> io::Result<(Checksum, Status)> {
        let before = file.status()?;
        if self.transfer.settings.verify_written {
            file.advise(Advice::DropCache, 0, size);
        }
        let digest = digest_of(&|| self.transfer.is_over(), file, size)?;
        let status = file.status()?;
        if status.size != size || status.changed != before.changed {
            return Err(io::Error::other("it changed while it was read"));
        }
        Ok((digest, status))
    }
}
