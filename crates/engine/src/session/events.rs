//! What observers of a transfer learn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_proto::account::Account;
use longhaul_proto::coding::CodecUse;
use longhaul_proto::criteria::Held;
use longhaul_proto::digest::Checksum;
use longhaul_proto::filter::{LeftOut, Reason};
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Change, Failure, FailureKind};
use longhaul_units::ByteCount;

use super::entry_events::{from_receiver, from_sender};
use super::observe::Silence;
use super::{Counters, Machine, PathUse, Shared, Side, Transfer};
use crate::flows::LayerUse;

/// What became of one entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It is at the destination under its name, verified and durable.
    Committed {
        /// Where, beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for what is no file.
        size: u64,
        /// It is a file.
        file: bool,
        /// Its digest, where that was asked for.
        digest: Option<Checksum>,
    },
    /// It was there, unchanged.
    Skipped {
        /// Where.
        path: TreePath,
        /// Bytes.
        size: u64,
        /// It is a file.
        file: bool,
        /// Its digest, where that was asked for.
        digest: Option<Checksum>,
    },
    /// It was there, and its owner, mode, time or attributes were corrected.
    Mended {
        /// Where.
        path: TreePath,
        /// Bytes; 0 for what is no file.
        size: u64,
        /// It is a file.
        file: bool,
        /// It is a directory.
        directory: bool,
        /// Its digest, where that was asked for.
        digest: Option<Checksum>,
    },
    /// It stays as it is at the destination, on purpose.
    Left {
        /// Where it would be.
        path: TreePath,
        /// Bytes; 0 for what is no file.
        size: u64,
        /// It is a file.
        file: bool,
        /// Why.
        held: Held,
    },
    /// It was left out of the walk on purpose. Only where that is reported.
    Omitted {
        /// Where it would be.
        path: TreePath,
        /// Why.
        reason: Reason,
        /// The rule, as it was written.
        rule: Option<String>,
    },
    /// A name that the source does not have was deleted at the destination, or would be.
    Deleted {
        /// Where it was.
        path: TreePath,
        /// Bytes of a file.
        size: u64,
        /// It was a directory.
        directory: bool,
        /// It would be, were this no dry run.
        planned: bool,
    },
    /// Nothing is deleted at the destination.
    Undeleted {
        /// Why.
        failure: Failure,
    },
    /// It would be copied, were this no dry run.
    Planned {
        /// Where, beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for what is no file.
        size: u64,
        /// It is a file.
        file: bool,
        /// It is a directory.
        directory: bool,
        /// Made, or replaced.
        change: Change,
    },
    /// It is not there; the others continue.
    Failed {
        /// Where it should be; `None` if only the other end knows.
        path: Option<TreePath>,
        /// Why, naming the file.
        failure: Failure,
    },
    /// An earlier attempt left a part of it durable: that is not sent again.
    Resumed {
        /// Where it will be.
        path: TreePath,
        /// Bytes of the whole file.
        size: u64,
        /// Bytes that are there.
        durable: u64,
    },
    /// More of a large file is durable, still without its name.
    Durable {
        /// Where it will be.
        path: TreePath,
        /// Bytes of the whole file.
        size: u64,
        /// Bytes that are durable, those of earlier attempts included.
        durable: u64,
    },
    /// A block arrived wrong, and is sent again.
    Damaged {
        /// The file it is of; of a pack the first one that arrived wrong.
        path: TreePath,
        /// Of a large file, offset and length of the block in bytes.
        piece: Option<(u64, u64)>,
        /// Files and links that arrived wrong.
        entries: usize,
    },
    /// What came on a stream was damaged or altered on its way: the stream is
    /// given up, and what was on it is sent again.
    StreamDamaged {
        /// Its number.
        stream: u32,
        /// What was noticed.
        error: String,
    },
}

/// How far a transfer is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Time since it began, until all was done.
    pub elapsed: Duration,
    /// Entries known so far.
    pub walked_entries: u64,
    /// Bytes of the files known so far.
    pub walked_bytes: u64,
    /// Everything is known.
    pub walk_ended: bool,
    /// Entries done.
    pub done_entries: u64,
    /// Files among them.
    pub files: u64,
    /// Bytes of the files done.
    pub done_bytes: u64,
    /// Entries that were there. In a copy, files and links that were corrected are among them.
    pub skipped_entries: u64,
    /// Their bytes.
    pub skipped_bytes: u64,
    /// Entries that a copy would make, in a dry run.
    pub new_entries: u64,
    /// Entries that it would replace.
    pub changed_entries: u64,
    /// Entries that were there and got another owner, mode, time or attribute, or would in a dry
    /// run.
    pub fixed_entries: u64,
    /// Directories among them.
    pub fixed_directories: u64,
    /// Bytes of the files among both.
    pub planned_bytes: u64,
    /// Files among new and changed entries.
    pub planned_files: u64,
    /// Directories among them.
    pub planned_directories: u64,
    /// In a comparison: of the entries that failed, those that differ or are only at one end.
    pub differing_entries: u64,
    /// Entries that failed.
    pub failed_entries: u64,
    /// Names deleted at the destination, or that would be.
    pub deleted_entries: u64,
    /// Bytes of the files among them.
    pub deleted_bytes: u64,
    /// Names that were left out on purpose; known at the walk's end.
    pub left_out: LeftOut,
    /// Bytes that went over or came from the wire, without encryption's own.
    pub wire_bytes: u64,
    /// Of those, bytes of messages, which no rate limits.
    pub message_bytes: u64,
    /// Bytes of holes in the blocks that this end sent or wrote: they moved as a note of a few
    /// bytes. A block that was sent again counts again.
    pub hole_bytes: u64,
    /// Bytes of file data read or written at this end.
    pub disk_bytes: u64,
    /// Bytes of file data read at this end; holes are not read.
    pub read_bytes: u64,
    /// Of those, bytes that went from the page cache to the wire without being copied.
    pub uncopied_bytes: u64,
    /// Of those read, bytes that a stream's thread read as it sent them.
    pub late_bytes: u64,
    /// Bytes that a block has at most.
    pub block_bytes: usize,
    /// What became of file data; nothing is durable where nothing is copied.
    pub account: Account,
    /// Bytes of files that this end knows to be durable at the destination since
    /// the session began, under their names or not; compared, where nothing is
    /// copied.
    pub settled_bytes: u64,
    /// Bytes before and after compression.
    pub compression: (u64, u64),
    /// What codecs did at the source, by kind of data where they were chosen.
    pub source_codecs: Vec<CodecUse>,
    /// What they did at the destination.
    pub destination_codecs: Vec<CodecUse>,
    /// Live streams.
    pub streams: usize,
    /// Nothing comes from the other end.
    pub silence: Option<Silence>,
    /// Streams lost so far.
    pub lost_streams: u64,
    /// Blocks sent again because they arrived wrong.
    pub again_blocks: u64,
    /// TCP segments sent again, both ends.
    pub retransmitted: u64,
    /// How busy this end's layers are.
    pub layers: Vec<LayerUse>,
    /// How busy the other end's layers are, by its own word.
    pub peer_layers: Vec<LayerUse>,
    /// Time since the session began at the other end, by its last word.
    pub peer_elapsed: Duration,
    /// Most memory in blocks at once, before and after the codec.
    pub memory: (ByteCount, ByteCount),
    /// The paths that streams took; none within a host.
    pub paths: Vec<PathUse>,
}

impl Progress {
    /// Files and links that were there and stayed as they were.
    pub fn unchanged_entries(&self) -> u64 {
        let corrected = self.fixed_entries.saturating_sub(self.fixed_directories);
        self.skipped_entries.saturating_sub(corrected)
    }
}

impl Shared {
    pub(super) fn take_events(&mut self, operation: Operation) -> Vec<Event> {
        let mut events = Vec::new();
        match &mut self.machine {
            Machine::Sending(sender) => {
                while let Some(event) = sender.poll_event() {
                    events.extend(from_sender(event));
                }
            }
            Machine::Receiving(receiver) => {
                while let Some(event) = receiver.poll_event() {
                    events.extend(from_receiver(event));
                }
            }
        }
        if operation == Operation::DryRun {
            for event in &mut events {
                if let Event::Deleted { planned, .. } = event {
                    *planned = true;
                }
            }
        }
        if operation != Operation::Copy {
            // What was compared was there before.
            events.retain(|event| !matches!(event, Event::Durable { .. }));
        }
        events
    }
}

impl Transfer {
    fn count(&self, event: &Event) {
        let counters = &self.counters;
        match event {
            Event::Committed { size, file, .. } => {
                Counters::add(&counters.done_entries, 1);
                Counters::add(&counters.done_bytes, *size);
                Counters::add(&counters.files, u64::from(*file));
            }
            Event::Skipped { size, .. } => {
                Counters::add(&counters.skipped_entries, 1);
                Counters::add(&counters.skipped_bytes, *size);
            }
            Event::Mended {
                size, directory, ..
            } => {
                let is_other = u64::from(!directory);
                Counters::add(&counters.skipped_entries, is_other);
                Counters::add(&counters.skipped_bytes, *size);
                Counters::add(&counters.fixed_entries, 1);
                Counters::add(&counters.fixed_directories, u64::from(*directory));
            }
            Event::Planned {
                size,
                change,
                file,
                directory,
                ..
            } => {
                let counter = match change {
                    Change::New => &counters.new_entries,
                    Change::Changed => &counters.changed_entries,
                    Change::Attributes => &counters.fixed_entries,
                };
                Counters::add(counter, 1);
                if *change == Change::Attributes {
                    Counters::add(&counters.skipped_entries, u64::from(!directory));
                    Counters::add(&counters.skipped_bytes, *size);
                    Counters::add(&counters.fixed_directories, u64::from(*directory));
                } else {
                    Counters::add(&counters.planned_bytes, *size);
                    Counters::add(&counters.planned_files, u64::from(*file));
                    Counters::add(&counters.planned_directories, u64::from(*directory));
                }
            }
            Event::Failed { failure, .. } => {
                let differs = [FailureKind::Differs, FailureKind::Extra].contains(&failure.kind);
                Counters::add(&counters.failed_entries, 1);
                Counters::add(&counters.differing_entries, u64::from(differs));
            }
            Event::Deleted { size, .. } => {
                Counters::add(&counters.deleted_entries, 1);
                Counters::add(&counters.deleted_bytes, *size);
            }
            Event::Damaged { .. } => Counters::add(&counters.again_blocks, 1),
            // It is counted among what is left out.
            Event::Left { .. }
            | Event::Undeleted { .. }
            | Event::Omitted { .. }
            | Event::Resumed { .. }
            | Event::Durable { .. }
            | Event::StreamDamaged { .. } => {}
        }
    }

    /// Informs observers.
    pub(crate) fn report(&self, event: Event) {
        self.count(&event);
        (self.watch)(event);
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let counters = &self.counters;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let seen = self.seen();
        let own = self.side().stages().codec_uses();
        let (source_codecs, destination_codecs) = match self.side() {
            Side::Sending(_) => (own, seen.codecs),
            Side::Receiving(_) => (seen.codecs, own),
        };
        let account = self.account();
        Progress {
            elapsed: seen.elapsed,
            // Only a sender walks.
            walked_entries: get(&counters.walked_entries).max(seen.known_entries),
            walked_bytes: get(&counters.walked_bytes).max(seen.known_bytes),
            walk_ended: get(&counters.walk_ended) > 0 || seen.walk_ended,
            done_entries: get(&counters.done_entries),
            files: get(&counters.files),
            done_bytes: get(&counters.done_bytes),
            skipped_entries: get(&counters.skipped_entries),
            skipped_bytes: get(&counters.skipped_bytes),
            new_entries: get(&counters.new_entries),
            changed_entries: get(&counters.changed_entries),
            fixed_entries: get(&counters.fixed_entries),
            fixed_directories: get(&counters.fixed_directories),
            planned_bytes: get(&counters.planned_bytes),
            planned_files: get(&counters.planned_files),
            planned_directories: get(&counters.planned_directories),
            differing_entries: get(&counters.differing_entries),
            failed_entries: get(&counters.failed_entries),
            deleted_entries: get(&counters.deleted_entries),
            deleted_bytes: get(&counters.deleted_bytes),
            left_out: self.left_out(),
            wire_bytes: get(&counters.wire_bytes),
            message_bytes: get(&counters.message_bytes),
            hole_bytes: get(&counters.hole_bytes),
            disk_bytes: get(&counters.read_bytes) + get(&counters.written_bytes),
            read_bytes: get(&counters.read_bytes),
            uncopied_bytes: get(&counters.uncopied_bytes),
            late_bytes: get(&counters.late_bytes),
            block_bytes: self.settings.block_bytes,
            settled_bytes: account.durable_bytes,
            account: match self.settings.operation {
                Operation::Copy => account,
                Operation::Verify | Operation::DryRun => Account {
                    durable_bytes: 0,
                    ..account
                },
            },
            compression: (get(&counters.coded_from), get(&counters.coded_to)),
            source_codecs,
            destination_codecs,
            streams: seen.streams,
            silence: seen.silence,
            lost_streams: get(&counters.lost_streams),
            again_blocks: get(&counters.again_blocks),
            retransmitted: seen.retransmitted,
            layers: self.layers(),
            peer_layers: seen.layers,
            peer_elapsed: seen.peer_elapsed,
            memory: (self.pool.peak_in_use(), self.coded.peak_in_use()),
            paths: self.paths(),
        }
    }

    pub(super) fn account(&self) -> Account {
        match &self.lock().machine {
            Machine::Sending(sender) => sender.account(),
            Machine::Receiving(receiver) => receiver.account(),
        }
    }

    fn left_out(&self) -> LeftOut {
        match &self.lock().machine {
            Machine::Sending(sender) => sender.left_out(),
            Machine::Receiving(receiver) => receiver.left_out(),
        }
    }
}
