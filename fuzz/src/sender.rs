//! A sender with arbitrary messages from its peer, with streams that open and close and files that
//! change while they are read.

use longhaul_proto::block::{ContentName, LARGEST_BLOCK_BYTES, PieceName};
use longhaul_proto::digest::{Checksum, is_block};
use longhaul_proto::frame::MAXIMUM_BODY_BYTES;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{
    AgainReason, Answer, Failure, FailureKind, Message, Outcome, Totals,
};
use longhaul_proto::sender::{
    Dispatch, FilterStep, PackedRead, PieceRead, ReadData, ReadJob, Sender, SenderSettings,
};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;
use std::time::Duration;

use super::choices::Choices;

/// Most that one input does.
const MAXIMUM_STEPS: usize = 2000;

/// Streams there are, at most.
const STREAMS: usize = 4;

/// Plays an input.
pub fn sender(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let settings = SenderSettings {
        block_bytes: 1024 << choices.below(15),
        pack_entries: 1 + choices.below(8),
        window_entries: 1 + choices.below(64),
        window_bytes: 4 << 20,
        unacknowledged_entries: 1 + choices.below(16),
        unacknowledged_blocks: 1 + choices.below(32),
        large_files: 4,
        asks: choices.flag(),
        moves: true,
        moves_away: false,
        compares: false,
        deletes: choices.flag(),
        names_only: false,
        fronts: true,
        filters: bytes.last().is_some_and(|byte| byte % 8 == 7),
        filtered_files: 64,
        part: bytes
            .last()
            .is_some_and(|byte| byte % 8 == 3)
            .then_some((1 << 20, 2 << 20)),
        epoch: 1,
    };
    let mut play = Play {
        sender: Sender::new(settings),
        settings,
        choices,
        now: Moment(0),
        next: 0,
        next_stream: 0,
        walked: false,
        reading: Vec::new(),
        streams: Vec::new(),
    };
    for _ in 0..MAXIMUM_STEPS {
        if play.choices.is_empty() || play.step().is_none() {
            return;
        }
        play.drain();
    }
}

struct Play<'a> {
    sender: Sender,
    settings: SenderSettings,
    choices: Choices<'a>,
    now: Moment,
    /// Number of the next entry.
    next: u64,
    next_stream: u32,
    walked: bool,
    /// Jobs that the readers have not finished.
    reading: Vec<ReadJob>,
    streams: Vec<StreamId>,
}

impl Play<'_> {
    /// Does one step. Returns `None` if the session is over.
    fn step(&mut self) -> Option<()> {
        match self.choices.below(10) {
            0 | 1 => self.walk()?,
            2 | 3 => {
                let message = self.message();
                self.sender.handle_message(message, self.now).ok()?;
            }
            4 => {
                let length = self.choices.byte();
                let bytes = self.choices.slice(length.into());
                let message = minicbor::decode(bytes).ok()?;
                self.sender.handle_message(message, self.now).ok()?;
            }
            5 | 6 => self.answer_read(),
            7 => self.change_streams(),
            8 if !self.walked => {
                self.walked = true;
                self.sender.work_mut().handle_walk_end();
            }
            8 => {
                let asks = self.choices.flag();
                let large = self.choices.below(8);
                self.sender.handle_welcome(asks, self.settings.epoch, large);
            }
            _ => self.now = self.now + Duration::from_nanos(self.choices.number()),
        }
        Some(())
    }

    fn drain(&mut self) {
        while let Some(suspect) = self.sender.poll_suspect(self.now) {
            let guilty = self.choices.flag();
            self.sender
                .streams_mut()
                .handle_judged(suspect, guilty, self.now);
        }
        for _ in 0..16 {
            let Some(job) = self.sender.poll_read(self.now) else {
                break;
            };
            check_job(&job, &self.settings);
            self.reading.push(job);
        }
        self.filter();
        for &stream in &self.streams {
            for _ in 0..16 {
                match self.sender.poll_dispatch(stream, self.now) {
                    Some(Dispatch::Send(_) | Dispatch::Discard(_)) => {}
                    None => break,
                }
            }
        }
        let _ = self.sender.poll_timeout(self.now);
        while self.sender.poll_event().is_some() {}
        for _ in 0..64 {
            let Some(message) = self.sender.poll_message() else {
                break;
            };
            let encoded = minicbor::to_vec(&message).expect("what it says can be encoded");
            assert!(encoded.len() < MAXIMUM_BODY_BYTES - 64);
        }
        assert!(self.sender.work().tracked() <= self.settings.window_entries + 1);
        // Duplicates come in addition, at most one for each block.
        let most = 2 * self.settings.unacknowledged_blocks;
        assert!(self.sender.blocks_under_way() <= most);
    }

    /// Passes files through a command with arbitrary output.
    fn filter(&mut self) {
        for _ in 0..16 {
            match self.sender.work_mut().poll_filter() {
                Some(FilterStep::Filter(entry)) => {
                    let id = entry.id;
                    let output = self.entry(id).filter(|_| self.choices.flag());
                    self.sender
                        .work_mut()
                        .handle_filtered(id, output.ok_or_else(failure));
                }
                Some(FilterStep::Forget(_)) => {}
                None => break,
            }
        }
    }

    fn walk(&mut self) -> Option<()> {
        if self.walked || self.sender.work().entry_credit() == 0 {
            return Some(());
        }
        let entry = self.entry(EntryId(self.next))?;
        self.next += 1;
        match self.choices.below(16) {
            0 => self.sender.work_mut().handle_unreadable(entry, failure()),
            1 if entry.kind == EntryKind::Directory => {
                self.sender.work_mut().handle_entry(entry.clone());
                self.sender.work_mut().handle_directory_end(entry, 0);
            }
            2 => self.sender.work_mut().flush_listing(),
            _ => self.sender.work_mut().handle_entry(entry),
        }
        Some(())
    }

    fn entry(&mut self, id: EntryId) -> Option<Entry> {
        let kind = match self.choices.below(6) {
            0 => EntryKind::Directory,
            1 => EntryKind::Symlink {
                target: b"target".to_vec(),
            },
            _ => EntryKind::File {
                identity: SourceIdentity {
                    size: self.choices.number().min(i64::MAX as u64),
                    ..SourceIdentity::default()
                },
                sparse: self.choices.below(8) == 0,
            },
        };
        Some(Entry {
            id,
            parent: None,
            path: TreePath::new(format!("f{}", id.0).as_bytes()).ok()?,
            kind,
            mode: 0o644,
            modified: Timestamp::default(),
            owner: None,
        })
    }

    fn id(&mut self) -> EntryId {
        match self.choices.byte() {
            byte @ 0..250 => EntryId(u64::from(byte) % self.next.max(1)),
            _ => EntryId(self.choices.number()),
        }
    }

    fn piece(&mut self) -> PieceName {
        PieceName {
            file: self.id(),
            generation: self.choices.below(3) as u32,
            offset: self.choices.number(),
            length: self.choices.number(),
        }
    }

    fn content(&mut self) -> ContentName {
        if self.choices.flag() {
            ContentName::Piece(self.piece())
        } else {
            let count = self.choices.below(6);
            ContentName::Pack((0..count).map(|_| self.id()).collect())
        }
    }

    fn message(&mut self) -> Message {
        match self.choices.below(8) {
            0 | 1 => {
                let count = self.choices.below(8);
                let answers = (0..count).map(|_| (self.id(), self.answer())).collect();
                Message::Answers(answers)
            }
            2 | 3 => {
                let count = self.choices.below(4);
                let pieces = (0..count).map(|_| self.piece()).collect();
                Message::Durable { epoch: 1, pieces }
            }
            4 => {
                let outcome = if self.choices.flag() {
                    Outcome::Committed { digest: None }
                } else {
                    Outcome::Failed(failure())
                };
                Message::Done {
                    epoch: 1,
                    entries: vec![(self.id(), outcome)],
                }
            }
            5 => Message::Again {
                content: self.content(),
                reason: match self.choices.below(3) {
                    0 => AgainReason::Corrupt,
                    1 => AgainReason::Undecodable,
                    _ => AgainReason::Overlap,
                },
            },
            6 => Message::Arrived {
                streams: vec![(self.choices.byte().into(), self.choices.number())],
                room: self.choices.flag(),
            },
            _ => Message::Finished(Totals::default(), Vec::new()),
        }
    }

    fn answer(&mut self) -> Answer {
        match self.choices.below(6) {
            5 => Answer::Compare,
            0 => Answer::Skip {
                digest: None,
                mended: self.choices.flag(),
            },
            1 => Answer::Refuse(failure()),
            2 | 3 => {
                let count = self.choices.below(5);
                let ranges = (0..count).map(|_| (self.choices.number(), self.choices.number()));
                Answer::Resume(ranges.collect())
            }
            _ => Answer::Send,
        }
    }

    /// A reader reports.
    fn answer_read(&mut self) {
        if self.reading.is_empty() {
            return;
        }
        let at = self.choices.byte() as usize % self.reading.len();
        let ReadJob { block, data } = self.reading.swap_remove(at);
        match data {
            ReadData::Piece { entry, .. } => {
                let result = match self.choices.below(16) {
                    0 => PieceRead::Failed(failure()),
                    1 => match self.entry(entry.id) {
                        Some(entry) => PieceRead::Changed(entry),
                        None => PieceRead::Ready,
                    },
                    _ => PieceRead::Ready,
                };
                self.sender.handle_piece_read(block, result);
            }
            ReadData::Front { entry, earlier, .. } => {
                let result = match (self.choices.below(16), earlier) {
                    (0, _) => PieceRead::Failed(failure()),
                    (1, _) => PieceRead::Changed(entry),
                    (_, None) => PieceRead::Front(Checksum::Xxh3(0)),
                    (_, Some(_)) => PieceRead::Same,
                };
                self.sender.handle_piece_read(block, result);
            }
            ReadData::Pack(jobs) => {
                let results = jobs
                    .into_iter()
                    .map(|job| {
                        let id = job.entry.id;
                        let read = match self.choices.below(16) {
                            0 => PackedRead::Failed(failure()),
                            1 => self
                                .entry(id)
                                .map_or(PackedRead::Ready(None), PackedRead::Grown),
                            _ => PackedRead::Ready(None),
                        };
                        (id, read)
                    })
                    .collect();
                self.sender.handle_pack_read(block, results);
            }
        }
    }

    fn change_streams(&mut self) {
        let up = self.choices.flag();
        if up && self.streams.len() < STREAMS {
            let stream = StreamId(self.next_stream);
            self.next_stream += 1;
            self.streams.push(stream);
            self.sender.handle_stream_up(stream, self.now);
        } else if !self.streams.is_empty() {
            let at = self.choices.byte() as usize % self.streams.len();
            let stream = self.streams.swap_remove(at);
            self.sender.handle_stream_down(stream);
        }
    }
}

/// Checks that each job reads a block of its file, for any messages of the peer.
fn check_job(job: &ReadJob, settings: &SenderSettings) {
    match &job.data {
        ReadData::Piece { entry, piece } | ReadData::Front { entry, piece, .. } => {
            assert_eq!(entry.id, piece.file);
            let size = entry.size();
            assert!(
                is_block(piece.offset, piece.length, size),
                "{piece:?} of {size}"
            );
            assert!(piece.length <= settings.block_bytes.min(LARGEST_BLOCK_BYTES as u64));
        }
        ReadData::Pack(jobs) => {
            let bytes: u64 = jobs.iter().map(|job| job.entry.size()).sum();
            assert!(!jobs.is_empty() && jobs.len() <= settings.pack_entries);
            assert!(bytes <= settings.block_bytes);
        }
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Other, "it failed")
}
