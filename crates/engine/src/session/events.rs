//! Events and progress that a transfer reports to its observers.

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

use super::observe::Silence;
use super::{Counters, PathUse, Shared, Transfer};
use crate::flows::LayerUse;

/// Result of one entry, or a problem of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The entry has its name at the destination, verified and durable.
    Committed {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for entries that are not files.
        size: u64,
        /// True for a file.
        file: bool,
        /// Digest of the file, if requested.
        digest: Option<Checksum>,
    },
    /// The entry existed at the destination, unchanged.
    Skipped {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for entries that are not files.
        size: u64,
        /// True for a file.
        file: bool,
        /// Digest of the file, if requested.
        digest: Option<Checksum>,
    },
    /// The entry existed, and its owner, mode, time or attributes were corrected.
    Mended {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for entries that are not files.
        size: u64,
        /// True for a file.
        file: bool,
        /// True for a directory.
        directory: bool,
        /// Digest of the file, if requested.
        digest: Option<Checksum>,
    },
    /// The entry at the destination was left unchanged on purpose.
    Left {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for entries that are not files.
        size: u64,
        /// True for a file.
        file: bool,
        /// Reason to leave it.
        held: Held,
    },
    /// The walk left the entry out on purpose. Reported only on request.
    Omitted {
        /// Path that the entry would have at the destination.
        path: TreePath,
        /// Reason to leave it out.
        reason: Reason,
        /// The filter rule, as it was written.
        rule: Option<String>,
    },
    /// A name that the source lacks was deleted at the destination, or would be in a dry run.
    Deleted {
        /// Path before the deletion.
        path: TreePath,
        /// Bytes; 0 for entries that are not files.
        size: u64,
        /// True for a directory.
        directory: bool,
        /// True in a dry run, which deletes no files.
        planned: bool,
    },
    /// Deletion at the destination was skipped as a whole.
    Undeleted {
        /// Reason to skip it.
        failure: Failure,
    },
    /// A copy would transfer the entry; reported by a dry run.
    Planned {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes; 0 for entries that are not files.
        size: u64,
        /// True for a file.
        file: bool,
        /// True for a directory.
        directory: bool,
        /// Kind of the change.
        change: Change,
    },
    /// The entry failed; the other entries continue.
    Failed {
        /// Path beneath the destination's anchor; `None` if only the other end knows it.
        path: Option<TreePath>,
        /// Reason, which names the file.
        failure: Failure,
    },
    /// A part of the entry is durable from an earlier attempt and is not sent again.
    Resumed {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes of the whole file.
        size: u64,
        /// Bytes that are durable.
        durable: u64,
    },
    /// More of a large file is durable; the file does not have its name yet.
    Durable {
        /// Path beneath the destination's anchor.
        path: TreePath,
        /// Bytes of the whole file.
        size: u64,
        /// Bytes that are durable, those of earlier attempts included.
        durable: u64,
    },
    /// A block arrived corrupt and is sent again.
    Damaged {
        /// Path of the file; for a pack, of the first file that arrived corrupt.
        path: TreePath,
        /// Offset and length of the block in bytes, for a large file.
        piece: Option<(u64, u64)>,
        /// Number of files and links that arrived corrupt.
        entries: usize,
    },
    /// Data on a stream was corrupted or altered in transit. The stream is closed, and its data is
    /// sent again.
    StreamDamaged {
        /// Number of the stream.
        stream: u32,
        /// Description of the error.
        error: String,
    },
}

/// Progress of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Time from the start of the transfer until it was complete.
    pub elapsed: Duration,
    /// Number of entries that the walk has found.
    pub walked_entries: u64,
    /// Bytes of the files that the walk has found.
    pub walked_bytes: u64,
    /// True if the walk is complete.
    pub walk_ended: bool,
    /// Number of committed entries.
    pub done_entries: u64,
    /// Number of committed files.
    pub files: u64,
    /// Bytes of the committed files.
    pub done_bytes: u64,
    /// Number of entries that existed at the destination. In a copy, they include corrected files
    /// and links.
    pub skipped_entries: u64,
    /// Bytes of the skipped entries.
    pub skipped_bytes: u64,
    /// Number of entries that a copy would create, in a dry run.
    pub new_entries: u64,
    /// Number of entries that a copy would replace, in a dry run.
    pub changed_entries: u64,
    /// Number of existing entries whose owner, mode, time or attributes were corrected, or would be
    /// in a dry run.
    pub fixed_entries: u64,
    /// Number of directories among the corrected entries.
    pub fixed_directories: u64,
    /// Bytes of the files among new and changed entries.
    pub planned_bytes: u64,
    /// Number of files among new and changed entries.
    pub planned_files: u64,
    /// Number of directories among new and changed entries.
    pub planned_directories: u64,
    /// Number of failed entries that differ or exist at one end only, in a comparison.
    pub differing_entries: u64,
    /// Number of entries that failed.
    pub failed_entries: u64,
    /// Number of names deleted at the destination, or that would be deleted in a dry run.
    pub deleted_entries: u64,
    /// Bytes of the files among the deleted names.
    pub deleted_bytes: u64,
    /// Names that were left out on purpose; known when the walk ends.
    pub left_out: LeftOut,
    /// Bytes sent or received on the network, without the overhead of encryption.
    pub wire_bytes: u64,
    /// Bytes of messages among `wire_bytes`; rate limits do not apply to them.
    pub message_bytes: u64,
    /// Bytes of holes in the blocks that this end sent or wrote. A hole is sent as a note of a few
    /// bytes. A block that is sent again counts again.
    pub hole_bytes: u64,
    /// Bytes of file data read or written at this end.
    pub disk_bytes: u64,
    /// Bytes of file data read at this end, without holes.
    pub read_bytes: u64,
    /// Bytes among `read_bytes` that went from the page cache to the network without a copy.
    pub uncopied_bytes: u64,
    /// Bytes among `read_bytes` that a stream's thread read as it sent them.
    pub late_bytes: u64,
    /// Maximum size of a block in bytes.
    pub block_bytes: usize,
    /// Bytes of file data by state. Durable bytes are 0 in a comparison and in a dry run.
    pub account: Account,
    /// Bytes of files that became durable at the destination since the session began, with or
    /// without their final names. In a comparison, bytes that were compared.
    pub settled_bytes: u64,
    /// Bytes before and after compression.
    pub compression: (u64, u64),
    /// Use of codecs at the source, by kind of data if codecs were chosen for each kind.
    pub source_codecs: Vec<CodecUse>,
    /// Use of codecs at the destination.
    pub destination_codecs: Vec<CodecUse>,
    /// Number of live streams.
    pub streams: usize,
    /// Set if the other end is silent.
    pub silence: Option<Silence>,
    /// Number of streams lost.
    pub lost_streams: u64,
    /// Number of blocks sent again because they arrived corrupt.
    pub again_blocks: u64,
    /// Number of TCP segments that both ends retransmitted.
    pub retransmitted: u64,
    /// Utilization of each layer at this end.
    pub layers: Vec<LayerUse>,
    /// Utilization of each layer at the other end, from its latest report.
    pub peer_layers: Vec<LayerUse>,
    /// Time since the session began at the other end, from its latest report.
    pub peer_elapsed: Duration,
    /// Peak memory of blocks before and after the codec.
    pub memory: (ByteCount, ByteCount),
    /// Network paths of the streams; empty for a copy within one host.
    pub paths: Vec<PathUse>,
}

impl Progress {
    /// Returns the number of files and links that existed and did not change.
    pub fn unchanged_entries(&self) -> u64 {
        let corrected = self.fixed_entries.saturating_sub(self.fixed_directories);
        self.skipped_entries.saturating_sub(corrected)
    }
}

impl Shared {
    pub(super) fn take_events(&mut self, operation: Operation) -> Vec<Event> {
        let mut events = self.machine.take_events();
        if operation == Operation::DryRun {
            for event in &mut events {
                if let Event::Deleted { planned, .. } = event {
                    *planned = true;
                }
            }
        }
        if operation != Operation::Copy {
            // Compared data existed before the session.
            events.retain(|event| !matches!(event, Event::Durable { .. }));
        }
        events
    }
}

impl Counters {
    fn count(&self, event: &Event) {
        let counters = self;
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
            // The walk counts these entries among those left out.
            Event::Left { .. }
            | Event::Undeleted { .. }
            | Event::Omitted { .. }
            | Event::Resumed { .. }
            | Event::Durable { .. }
            | Event::StreamDamaged { .. } => {}
        }
    }
}

impl Transfer {
    /// Counts an event and passes it to the observer.
    pub(crate) fn report(&self, event: Event) {
        self.counters.count(&event);
        (self.watch)(event);
    }
}
