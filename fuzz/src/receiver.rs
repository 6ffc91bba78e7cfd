//! A receiver with arbitrary messages from its peer, and with a disk that answers late and fails.
//! Blocks are valid, as the code that reads them off a stream ensures.

use std::time::Duration;

use longhaul_proto::block::{
    BlockHeader, Codec, Content, ContentName, MAXIMUM_PACK_ENTRIES, PackedEntry, Piece,
};
use longhaul_proto::digest::{Checksum, Integrity, longest_block};
use longhaul_proto::filter::LeftOut;
use longhaul_proto::frame::MAXIMUM_BODY_BYTES;
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{AgainReason, Change, Failure, FailureKind, Message, Outcome};
use longhaul_proto::receiver::{Compared, Receiver, ReceiverSettings, StorageJob, Verdict};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::choices::Choices;

/// Most that one input does: long inputs find what short ones find.
const MAXIMUM_STEPS: usize = 2000;

/// Plays an input.
pub fn receiver(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let integrity = integrity(&mut choices);
    let mut play = Play {
        receiver: Receiver::new(ReceiverSettings {
            integrity,
            epoch: 1,
            checkpoint_bytes: choices.number().max(1),
            checkpoint_span: Duration::from_nanos(choices.number()),
            digests: choices.flag(),
            compares: true,
            deletes: choices.flag(),
            names_only: false,
            moves_away: choices.flag(),
            part: bytes
                .last()
                .is_some_and(|byte| byte % 8 == 7)
                .then_some((1 << 20, 2 << 20)),
            reads_back: bytes.last().is_none_or(|byte| byte % 16 != 7),
        }),
        choices,
        integrity,
        now: Moment(0),
        jobs: Vec::new(),
        blocks: Vec::new(),
    };
    for _ in 0..MAXIMUM_STEPS {
        if play.choices.is_empty() || play.step().is_none() {
            return;
        }
        play.drain();
    }
}

fn integrity(choices: &mut Choices<'_>) -> Integrity {
    if choices.flag() {
        Integrity::Digest
    } else {
        Integrity::Checksum
    }
}

struct Play<'a> {
    receiver: Receiver,
    choices: Choices<'a>,
    integrity: Integrity,
    now: Moment,
    /// Jobs that the disk has not finished.
    jobs: Vec<StorageJob>,
    /// Blocks that the writers have not finished.
    blocks: Vec<(Content, Vec<Verdict>)>,
}

impl Play<'_> {
    /// Does one step. Returns `None` if the session is over.
    fn step(&mut self) -> Option<()> {
        match self.choices.below(8) {
            0 | 1 => {
                let message = self.message()?;
                self.receiver.handle_message(message).ok()
            }
            2 => {
                let length = self.choices.byte();
                let bytes = self.choices.slice(length.into());
                let message = minicbor::decode(bytes).ok()?;
                self.receiver.handle_message(message).ok()
            }
            3 | 4 => self.block(),
            5 => {
                self.answer_block();
                Some(())
            }
            6 => {
                self.answer_job();
                Some(())
            }
            _ => {
                let span = Duration::from_nanos(self.choices.number());
                self.now = self.now + span;
                Some(())
            }
        }
    }

    fn drain(&mut self) {
        for _ in 0..64 {
            match self.receiver.poll_storage(self.now) {
                Some(job) => self.jobs.push(job),
                None => break,
            }
        }
        let _ = self.receiver.files().durability().poll_timeout();
        while self.receiver.poll_event().is_some() {}
        for _ in 0..64 {
            let Some(message) = self.receiver.poll_message() else {
                break;
            };
            let encoded = minicbor::to_vec(&message).expect("what it says can be encoded");
            assert!(encoded.len() < MAXIMUM_BODY_BYTES - 64);
        }
    }

    fn id(&mut self) -> EntryId {
        match self.choices.byte() {
            byte @ 0..240 => EntryId(u64::from(byte % 16)),
            _ => EntryId(self.choices.number()),
        }
    }

    fn generation(&mut self) -> u32 {
        match self.choices.byte() {
            byte @ 0..250 => u32::from(byte % 3),
            _ => u32::MAX - u32::from(self.choices.byte() % 2),
        }
    }

    fn checksum(&mut self) -> Checksum {
        match self.choices.below(8) {
            0 => Checksum::Xxh3(7),
            1 => Checksum::Blake3([7; 32]),
            _ => match self.integrity {
                Integrity::Digest => Checksum::Blake3([self.choices.byte(); 32]),
                Integrity::Checksum => Checksum::Xxh3(self.choices.byte().into()),
            },
        }
    }

    fn entry(&mut self) -> Option<Entry> {
        let id = self.id();
        let kind = match self.choices.below(4) {
            0 => EntryKind::Directory,
            1 if id.0 > 0 && self.choices.flag() => EntryKind::HardLink {
                target: TreePath::new(b"d/first").ok()?,
                first: EntryId(u64::from(self.choices.byte()) % id.0),
            },
            1 => EntryKind::Symlink {
                target: b"target".to_vec(),
            },
            _ => EntryKind::File {
                identity: SourceIdentity {
                    size: self.choices.number(),
                    ..SourceIdentity::default()
                },
                sparse: self.choices.flag(),
            },
        };
        let parent = self.choices.flag().then(|| self.id());
        let path = TreePath::new(format!("d/{}", id.0).as_bytes()).ok()?;
        let modified = Timestamp {
            seconds: -1,
            nanoseconds: u32::from(self.choices.byte()),
        };
        Some(Entry {
            id,
            parent,
            path,
            kind,
            mode: 0o644,
            modified,
            owner: None,
        })
    }

    fn message(&mut self) -> Option<Message> {
        Some(match self.choices.below(8) {
            0 => {
                let count = self.choices.below(8);
                let entries: Option<Vec<Entry>> = (0..count).map(|_| self.entry()).collect();
                Message::Entries(entries?)
            }
            1 => Message::DirectoryEnd {
                entry: Entry {
                    kind: EntryKind::Directory,
                    ..self.entry()?
                },
                children: self.choices.number(),
            },
            2 => Message::WalkEnd {
                entries: self.choices.number(),
                left_out: LeftOut::default(),
                anchor: None,
            },
            3 | 4 => Message::Sealed {
                file: self.id(),
                generation: self.generation(),
                size: self.choices.number(),
                grew: false,
            },
            5 => Message::Abandoned {
                id: self.id(),
                parent: self.choices.flag().then(|| self.id()),
                failure: failure(),
            },
            _ => Message::Checksums {
                content: ContentName::Pack(vec![self.id()]),
                checksums: vec![Some(self.checksum())],
            },
        })
    }

    /// Delivers a valid block, as from a stream.
    fn block(&mut self) -> Option<()> {
        let header = self.header()?;
        let wire = match header.codec {
            Codec::Plain => header.decoded as usize,
            _ => 0,
        };
        if !header.is_valid(wire) {
            return Some(());
        }
        let stream = StreamId(self.choices.byte().into());
        self.receiver.acks_mut().handle_arrival(stream);
        let keeps = match &header.content {
            Content::Piece(piece) => vec![self.receiver.handle_piece(piece).ok()?],
            Content::Pack(pack) => self.receiver.handle_pack(pack).ok()?,
        };
        if keeps.contains(&Verdict::Keep) {
            self.blocks.push((header.content, keeps));
        }
        Some(())
    }

    fn header(&mut self) -> Option<BlockHeader> {
        let content = if self.choices.flag() {
            Content::Piece(self.piece()?)
        } else {
            let count = 1 + self.choices.below(MAXIMUM_PACK_ENTRIES.min(6));
            let entries: Option<Vec<PackedEntry>> = (0..count)
                .map(|_| {
                    Some(PackedEntry {
                        entry: self.entry()?,
                        generation: self.generation(),
                        checksum: Some(self.checksum()),
                    })
                })
                .collect();
            Content::Pack(entries?)
        };
        let data = match &content {
            Content::Piece(piece) => piece.data_bytes(),
            Content::Pack(entries) => entries
                .iter()
                .fold(0_u64, |sum, packed| sum.saturating_add(packed.entry.size())),
        };
        let omitted = self.choices.below(4) == 0;
        Some(BlockHeader {
            content,
            codec: if omitted {
                Codec::Omitted
            } else {
                Codec::Plain
            },
            decoded: if omitted { 0 } else { data },
            transit: None,
            proof: None,
            trailer: None,
            shuffle: None,
        })
    }

    fn piece(&mut self) -> Option<Piece> {
        let entry = self.entry()?;
        let size = entry.size();
        let limit = 1024 << self.choices.below(12);
        let offset = match size / limit {
            0 => 0,
            blocks => self.choices.number() % blocks * limit,
        };
        let length = if size > offset {
            longest_block(offset, size, size, limit)
        } else {
            self.choices.number()
        };
        Some(Piece {
            generation: self.generation(),
            checksum: Some(self.checksum()),
            extents: None,
            entry,
            offset,
            length,
        })
    }

    /// A writer or verifier reports.
    fn answer_block(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        let at = self.choices.byte() as usize % self.blocks.len();
        let (content, keeps) = self.blocks.swap_remove(at);
        let corrupt = self.choices.below(8) == 0;
        match content {
            Content::Piece(piece) if corrupt => {
                let name = ContentName::Piece(piece.name());
                self.receiver.handle_corrupt(name, AgainReason::Corrupt);
            }
            Content::Piece(piece) if self.choices.below(16) == 0 => {
                self.receiver
                    .handle_written(piece.name(), Err(failure()), self.now);
            }
            Content::Piece(piece) => {
                if let Some(checksum) = piece.checksum.filter(|c| self.integrity.fits(c)) {
                    let name = piece.name();
                    self.receiver.handle_written(name, Ok(checksum), self.now);
                }
            }
            Content::Pack(pack) if corrupt => {
                let ids = pack.iter().map(|packed| packed.entry.id).collect();
                let name = ContentName::Pack(ids);
                self.receiver.handle_corrupt(name, AgainReason::Undecodable);
            }
            Content::Pack(pack) => {
                let kept = pack.into_iter().zip(keeps);
                let kept = kept.filter(|(_, verdict)| *verdict == Verdict::Keep);
                let (links, others): (Vec<Entry>, Vec<Entry>) = kept
                    .map(|(packed, _)| packed.entry)
                    .partition(|entry| matches!(entry.kind, EntryKind::HardLink { .. }));
                let done = others.into_iter();
                let done = done.map(|entry| (entry, self.outcome())).collect();
                self.receiver.handle_packed(done);
                for link in links {
                    self.receiver.handle_link(link);
                }
            }
        }
    }

    fn outcome(&mut self) -> Outcome {
        match self.choices.below(8) {
            0 => Outcome::Failed(failure()),
            _ => Outcome::Committed { digest: None },
        }
    }

    fn result(&mut self) -> Result<(), Failure> {
        match self.choices.below(8) {
            0 => Err(failure()),
            _ => Ok(()),
        }
    }

    /// The disk reports.
    // tidy: long because there is one arm for each kind of job.
    fn answer_job(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.choices.byte() as usize % self.jobs.len();
        match self.jobs.swap_remove(at) {
            StorageJob::Compare(entries) => {
                let found = entries
                    .into_iter()
                    .map(|entry| {
                        let compared = self.compared(&entry);
                        (entry, compared)
                    })
                    .collect();
                self.receiver.handle_compared(found);
            }
            StorageJob::CompareContents(entry, digest) => {
                let compared = if self.choices.flag() {
                    Compared::Same(Some(digest))
                } else {
                    Compared::Send
                };
                self.receiver.handle_contents_compared(entry, compared);
            }
            StorageJob::Checkpoint(files) => {
                let done = files
                    .into_iter()
                    .map(|file| (file, self.result().err()))
                    .collect();
                self.receiver.handle_checkpointed(done);
            }
            StorageJob::Commit {
                entry, generation, ..
            } => {
                let result = self.result();
                self.receiver.handle_committed(entry.id, generation, result);
            }
            StorageJob::ReadBack {
                entry, generation, ..
            } => {
                let result = self.result();
                self.receiver.handle_read_back(entry.id, generation, result);
            }
            StorageJob::Discard { .. } => {}
            StorageJob::FinishDirectory(entry) => match self.result() {
                Ok(()) if entry.mode % 2 == 1 => {
                    self.receiver
                        .handle_directory(entry, Outcome::Planned(Some(Change::New)));
                }
                result => self.receiver.handle_directory(entry, result.into()),
            },
            StorageJob::Link(entry) => {
                let outcome = self.outcome();
                self.receiver.handle_packed(vec![(entry, outcome)]);
            }
            StorageJob::Names(_) => self.receiver.removals_mut().handle_names_taken(),
            StorageJob::EndNames(end) => {
                let compared = end.map_or_else(|| self.result(), Err);
                self.receiver.removals_mut().handle_names_compared(compared);
            }
            StorageJob::Remove => {
                let ended = self.choices.flag();
                self.receiver
                    .removals_mut()
                    .handle_removed(Vec::new(), ended);
            }
            StorageJob::MakeProbes(questions) => {
                self.receiver
                    .probes_mut()
                    .handle_probes_made(vec![None; questions.len()]);
            }
            StorageJob::RemoveProbes(seen) => {
                let results = seen.into_iter().map(|seen| seen.then(failure));
                self.receiver
                    .probes_mut()
                    .handle_probes_removed(results.collect());
            }
            StorageJob::Finish => self.receiver.handle_finished(Vec::new()),
        }
    }

    fn compared(&mut self, entry: &Entry) -> Compared {
        match self.choices.below(4) {
            0 => Compared::Same(None),
            1 => Compared::Refused(failure()),
            2 if matches!(entry.kind, EntryKind::File { .. }) => {
                let count = self.choices.below(6);
                let blocks = (0..count).map(|_| DurableBlock {
                    offset: self.choices.number(),
                    length: self.choices.number(),
                    checksum: Checksum::Blake3([1; 32]),
                });
                Compared::Partial(blocks.collect())
            }
            3 if entry.mode % 2 == 1 => Compared::Planned(Change::New),
            _ => Compared::Send,
        }
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Other, "it failed")
}
