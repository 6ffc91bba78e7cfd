//! Drives the receiving end: verify, write, make durable.

use std::collections::VecDeque;

use longhaul_proto::block::{BlockHeader, Content, ContentName, PackedEntry, Piece};
use longhaul_proto::digest;
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{AgainReason, Change, Outcome};
use longhaul_proto::receiver::{Compared, Receiver, ReceiverSettings, StorageJob, Verdict};
use longhaul_proto::session::StreamId;

use super::source;
use super::streams::decode;
use super::world::{Event, Report, World};

/// A block to be verified and written.
pub struct WriteJob {
    content: Content,
    payload: Vec<u8>,
    undecodable: bool,
    /// True for each entry of a pack that is kept.
    kept: Vec<bool>,
}

/// The receiving end.
pub struct Receiving {
    pub receiver: Receiver,
    /// Number of writers that the steering end set; `None` for the scenario's.
    pub writers: Option<usize>,
    settings: ReceiverSettings,
    queue: VecDeque<WriteJob>,
    writing: usize,
    /// Maximum number of writers so far.
    most_writers: usize,
}

impl Receiving {
    pub fn new(settings: ReceiverSettings) -> Receiving {
        Receiving {
            receiver: Receiver::new(settings),
            writers: None,
            settings,
            queue: VecDeque::new(),
            writing: 0,
            most_writers: 0,
        }
    }
}

fn whole_block(piece: &Piece, payload: &[u8]) -> Vec<u8> {
    let Some(extents) = &piece.extents else {
        return payload.to_vec();
    };
    let (mut data, mut at) = (vec![0; piece.length as usize], 0);
    for extent in extents {
        let (start, length) = (extent.start as usize, extent.length as usize);
        data[start..start + length].copy_from_slice(&payload[at..at + length]);
        at += length;
    }
    data
}

impl World {
    pub fn handle_block(
        &mut self,
        stream: StreamId,
        header: &[u8],
        payload: Vec<u8>,
        undecodable: bool,
    ) {
        let header: BlockHeader = decode(header);
        assert!(header.is_valid(payload.len()));
        self.checks.arrive(self.now);
        let receiver = &mut self.receiving.receiver;
        receiver.acks_mut().handle_arrival(stream);
        let kept: Vec<bool> = match &header.content {
            Content::Piece(piece) => vec![receiver.handle_piece(piece).unwrap() == Verdict::Keep],
            Content::Pack(pack) => {
                let verdicts = receiver.handle_pack(pack).unwrap();
                verdicts
                    .into_iter()
                    .map(|verdict| verdict == Verdict::Keep)
                    .collect()
            }
        };
        if kept.contains(&true) {
            let content = header.content;
            self.receiving.queue.push_back(WriteJob {
                content,
                payload,
                undecodable,
                kept,
            });
        }
    }

    pub fn pump_receiver(&mut self) {
        let writers = self.receiving.writers.unwrap_or(self.scenario.writers);
        while self.receiving.writing < writers
            && self.may_write_next()
            && let Some(job) = self.receiving.queue.pop_front()
        {
            self.receiving.writing += 1;
            self.receiving.most_writers = self.receiving.most_writers.max(writers);
            if self.scenario.write.1.is_zero() {
                self.handle_written(job);
            } else {
                self.push_within(self.scenario.write, Event::Written(job));
            }
        }
        loop {
            // A driver wakes a thread for storage only if `has_storage_job` is true.
            let foretold = self.receiving.receiver.has_storage_job(self.now);
            let Some(job) = self.receiving.receiver.poll_storage(self.now) else {
                break;
            };
            assert!(foretold, "{job:?}");
            if self.scenario.store.1.is_zero() {
                self.handle_stored(job);
            } else {
                self.push_within(self.scenario.store, Event::Stored(job));
            }
        }
        let block = self.scenario.sender.block_bytes;
        let in_hand = block * writers.max(self.receiving.most_writers) as u64;
        let unsynced = self.receiving.receiver.files().durability().unsynced();
        assert!(
            unsynced < self.scenario.receiver.checkpoint_bytes + in_hand,
            "{unsynced} bytes would have to come again: {}",
            self.state()
        );
        let most = self.scenario.sender.window_entries;
        assert!(
            self.receiving.receiver.files().under_way() <= 2 * most,
            "{}",
            self.state()
        );
    }

    /// True if the next block may be written. Pieces wait while too much data is not durable.
    fn may_write_next(&self) -> bool {
        let piece = |job: &WriteJob| matches!(job.content, Content::Piece(_));
        self.receiving.receiver.files().durability().may_write()
            || !self.receiving.queue.front().is_some_and(piece)
    }

    pub fn handle_written(&mut self, job: WriteJob) {
        self.receiving.writing -= 1;
        match &job.content {
            Content::Piece(piece) => self.write_piece(piece, &job),
            Content::Pack(pack) => self.write_pack(pack, &job),
        }
    }

    fn write_piece(&mut self, piece: &Piece, job: &WriteJob) {
        let receiver = &mut self.receiving.receiver;
        let name = piece.name();
        if job.undecodable {
            receiver.handle_corrupt(ContentName::Piece(name), AgainReason::Undecodable);
            return;
        }
        let data = whole_block(piece, &job.payload);
        let integrity = self.receiving.settings.integrity;
        let checksum = source::checksum(integrity, piece.offset, &data, piece.entry.size());
        if piece.checksum != Some(checksum) {
            receiver.handle_corrupt(ContentName::Piece(name), AgainReason::Corrupt);
            return;
        }
        let block = DurableBlock {
            offset: piece.offset,
            length: piece.length,
            checksum,
        };
        match self.disk.write(&piece.entry, piece.generation, block, data) {
            Ok(()) => receiver.handle_written(name, Ok(checksum), self.now),
            Err(failure) => receiver.handle_written(name, Err(failure), self.now),
        }
    }

    fn write_pack(&mut self, pack: &[PackedEntry], job: &WriteJob) {
        let integrity = self.receiving.settings.integrity;
        let (mut wrong, mut done, mut at) = (Vec::new(), Vec::new(), 0);
        for (packed, kept) in pack.iter().zip(&job.kept) {
            let entry = &packed.entry;
            let data = &job.payload[at..at + entry.size() as usize];
            at += data.len();
            if !kept {
                continue;
            }
            let right = digest::whole_file(integrity, data);
            let file = matches!(entry.kind, EntryKind::File { .. });
            if job.undecodable || file && packed.checksum != Some(right) {
                wrong.push(entry.id);
                continue;
            }
            let outcome = match self.disk.commit_packed(entry, data) {
                Ok(()) => Outcome::Committed {
                    digest: file.then_some(right),
                },
                Err(failure) => Outcome::Failed(failure),
            };
            done.push((entry.clone(), outcome));
        }
        if !wrong.is_empty() {
            let reason = AgainReason::Corrupt;
            self.receiving
                .receiver
                .handle_corrupt(ContentName::Pack(wrong), reason);
        }
        self.report(Report::Packed(done));
    }

    /// Delivers a report about durable data to the process after a short delay.
    fn report(&mut self, report: Report) {
        if self.scenario.store.1.is_zero() {
            self.handle_report(report);
        } else {
            self.push_within(self.scenario.store, Event::Reported(report));
        }
    }

    pub fn handle_stored(&mut self, job: StorageJob) {
        let report = match job {
            StorageJob::Compare(entries) => {
                let moves = self.scenario.sender.moves;
                let compare = |entry: Entry| -> (Entry, Compared) {
                    let compared = match self.disk.compare(&entry) {
                        Compared::Send | Compared::Partial(_) if !moves => {
                            let there = self.disk.named.contains_key(&entry.path);
                            Compared::Planned(if there { Change::Changed } else { Change::New })
                        }
                        compared => compared,
                    };
                    (entry, compared)
                };
                Report::Compared(entries.into_iter().map(compare).collect())
            }
            StorageJob::Checkpoint(files) => {
                let sync = |file| (self.disk.checkpoint(&file), file);
                let files = files
                    .into_iter()
                    .map(sync)
                    .map(|(failure, file)| (file, failure));
                Report::Checkpointed(files.collect())
            }
            StorageJob::Commit {
                entry,
                generation,
                digest,
            } => {
                let integrity = self.receiving.settings.integrity;
                let result = self.disk.commit(&entry, generation, digest, integrity);
                Report::Committed(entry.id, generation, result)
            }
            // The simulated sources cause no such jobs.
            StorageJob::CompareContents(..)
            | StorageJob::Link(_)
            | StorageJob::Names(_)
            | StorageJob::EndNames(_)
            | StorageJob::Remove
            | StorageJob::MakeProbes(_)
            | StorageJob::RemoveProbes(_) => return,
            StorageJob::ReadBack {
                entry, generation, ..
            } => Report::ReadBack(entry.id, generation),
            StorageJob::Discard {
                file, generation, ..
            } => {
                self.disk.discard(file, generation);
                return;
            }
            StorageJob::FinishDirectory(entry) if !self.scenario.sender.moves => {
                Report::Planned(entry, Some(Change::New))
            }
            StorageJob::FinishDirectory(entry) => {
                let result = self.disk.finish_directory(&entry);
                Report::Directory(entry, result)
            }
            StorageJob::Finish => Report::Finished,
        };
        self.report(report);
    }

    pub fn handle_report(&mut self, report: Report) {
        let receiver = &mut self.receiving.receiver;
        match report {
            Report::Compared(found) => receiver.handle_compared(found),
            Report::Checkpointed(files) => receiver.handle_checkpointed(files),
            Report::Committed(file, generation, result) => {
                receiver.handle_committed(file, generation, result);
            }
            Report::Directory(entry, result) => receiver.handle_directory(entry, result.into()),
            Report::Planned(entry, change) => {
                receiver.handle_directory(entry, Outcome::Planned(change))
            }
            Report::Packed(entries) => receiver.handle_packed(entries),
            Report::ReadBack(file, generation) => {
                receiver.handle_read_back(file, generation, Ok(()));
            }
            Report::Finished => receiver.handle_finished(Vec::new()),
        }
    }
}
