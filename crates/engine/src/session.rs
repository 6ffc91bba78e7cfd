//! Drives one pair of hosts: one end of a transfer, its state machine, its
//! streams and its layers' flows.
//!
//! [`Transfer`] is the same at both ends and the dialer. Every thread does its slow work (disk,
//! socket, cipher, codec) without the lock, then tells the state machine under it what happened.
//! The steering end uses its [`Measurements`] and its [`Regulator`].
//!
//! The state under the lock has one owner for each subject: `machine` for the files and blocks,
//! `streams`, `steer` for the settings of the kernel, and `lifetime` for the signs of life and the
//! end of the session.

mod bucket;
mod end;
pub(crate) mod entry_events;
pub(crate) mod events;
mod levelling;
mod lifetime;
mod machine;
mod memory;
pub(crate) mod observe;
pub mod opening;
mod pacing;
mod paths;
mod ready;
mod signals;
pub(crate) mod stages;
mod steer;
pub(crate) mod streams;
mod summary;
mod threads;
mod timer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use longhaul_proto::assembly::Assembly;
use longhaul_proto::block::{Codec, HeaderKey};
use longhaul_proto::coding::Compression;
use longhaul_proto::control::ControlChannel;
use longhaul_proto::criteria::Criteria;
use longhaul_proto::deletion::Deletion;
use longhaul_proto::digest::Integrity;
use longhaul_proto::frame::FrameError;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Farewell, Message};
use longhaul_proto::options::{Digests, Operation, Stack, TransferOptions, Verification};
use longhaul_proto::receiver::ReceiverError;
use longhaul_proto::sender::SenderError;
use longhaul_proto::session::StreamId;
use longhaul_units::{ByteCount, Moment};

pub use bucket::burst_bytes;
pub use end::Ending;
pub use events::{Event, Progress};
use lifetime::Lifetime;
pub(crate) use machine::Machine;
pub use observe::{LAYERS, Measurements, Silence};
pub use opening::Opening;
pub use paths::PathUse;
pub use steer::{Orders, Regulator, Steer, View};
pub use streams::Streams;
pub use streams::black_hole;
pub use streams::dial::{Caller, Calls, DialError, Dialer, Joined};
pub use summary::Summary;
pub use threads::Ends;

use crate::flows::Count;
use crate::pool::BufferPool;
use longhaul_net::host_limits::HostLimits;
use longhaul_system::idle::IdleCores;
use longhaul_system::limits;
use longhaul_system::queue::lock;
use pacing::Pacing;
use ready::ReadyBlocks;
use signals::Signals;
pub(crate) use stages::Side;
use steer::Steering;
use streams::dial::Calling;
use streams::{StreamSet, StreamThread};

// tidy: long file because one lock guards what its functions change.

/// Number of flows of each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCounts {
    /// Number of threads that read files.
    pub readers: Count,
    /// Number of threads that compress. They are not used if the transfer does not compress.
    pub compressors: usize,
    /// Number of streams.
    pub streams: usize,
    /// Number of threads that decompress blocks and verify the compressed ones.
    pub decompressors: usize,
    /// Number of threads that write.
    pub writers: usize,
    /// Number of threads that make large files and directories durable. They wait for disks, not
    /// for cores.
    pub committers: usize,
}

impl Default for FlowCounts {
    /// Counts that keep an unknown host busy: one thread for each core for computing, and a few
    /// more for waiting on a disk. Files of 2 and 5 MB, written directly, took 0.7 to 0.85 of the
    /// time with four writers on two cores; one large file took the same.
    fn default() -> FlowCounts {
        let cores = cores();
        FlowCounts {
            readers: Count::UpTo(cores.clamp(2, 8)),
            compressors: cores,
            streams: 4,
            decompressors: cores.clamp(1, 8),
            writers: cores.clamp(4, 8),
            committers: 4,
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Age after which the leftovers of an unfinished copy are removed: 15 days (two weeks of holidays
/// and one day).
pub const LEFTOVERS_EXPIRE: Duration = Duration::from_secs(15 * 24 * 3600);

/// Observers that receive a report of each entry that a walk omits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reporting {
    /// Omitted entries are not reported.
    #[default]
    No,
    /// The observers of this end.
    Here,
    /// The observers of the receiving end.
    There,
}

/// Settings of one end of a transfer.
#[derive(Clone, Debug)]
pub struct TransferSettings {
    /// Operation: copy or compare.
    pub operation: Operation,
    /// Size of a block in bytes, a power of two.
    pub block_bytes: usize,
    /// Memory for blocks in all layers together.
    pub budget: ByteCount,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Number of flows at the start.
    pub flows: FlowCounts,
    /// Threading model: flows for each layer, or one thread for each stream.
    pub stack: Stack,
    /// Codec of payloads.
    pub codec: Codec,
    /// Method by which blocks are verified.
    pub integrity: Integrity,
    /// Maximum number of bytes of large files that are received but not durable. Half of them are
    /// made durable and reported while the other half arrives.
    pub checkpoint_bytes: u64,
    /// Maximum time until received bytes of large files are made durable.
    pub checkpoint_span: Duration,
    /// Time that the session stays alive after its last stream was lost.
    pub linger: Duration,
    /// Time after which the streams of a silent other end are closed.
    pub silence: Duration,
    /// If true, files are read and written with direct I/O.
    pub direct: bool,
    /// Role of this session if several sessions copy parts of one file; `None`: it copies alone.
    pub assembly: Option<Assembly>,
    /// If true, the transfer reports digests of finished files, including files that the
    /// destination already had.
    pub digests: bool,
    /// If true, both ends read a file that the destination already had and whose digest is unknown:
    /// only a comparison of contents shows that the files are equal.
    pub reads_for_digests: bool,
    /// Maximum number of unfinished large files, which the receiving end keeps open.
    pub large_files: usize,
    /// Age at which leftovers of other copies are removed from directories that this copy finishes;
    /// `None` keeps them.
    pub expiry: Option<Duration>,
    /// If true, written data are read back and compared, and files that the destination already had
    /// are compared by content too.
    pub verify_written: bool,
    /// Criteria that decide which files are copied.
    pub criteria: Criteria,
    /// Observers to which a sending end reports the entries that it omits.
    pub omitted: Reporting,
    /// If true, sources are removed once they are durable at the destination.
    pub moves_away: bool,
    /// Rules for the deletion after the copy.
    pub deletion: Option<Arc<Deletion>>,
    /// Key that authenticates block headers if blocks are sent in clear; `None` if blocks are
    /// encrypted.
    pub clear: Option<HeaderKey>,
    /// If true, the other end has every codec. A sender that dials learns it from the answer.
    pub any_codec: bool,
    /// If true, both ends are in this process.
    pub local: bool,
    /// If true, the destination may not be empty, and the sender requests the state of every entry
    /// first.
    pub asks: bool,
    /// Epoch of the session.
    pub epoch: u64,
    /// Maximum rate of all streams together at a sending end, in bytes per second; `None` if
    /// unlimited.
    pub limit: Option<u64>,
}

/// Returns the pool of buffers for blocks before a codec and the pool for the output of a codec.
fn pools(settings: &TransferSettings) -> (BufferPool, BufferPool) {
    let bytes = crate::codec::bound(settings.codec, settings.block_bytes);
    if !settings.codec.compresses() {
        // If blocks are not compressed now, codecs take their half when the first block has a
        // codec.
        return BufferPool::pair(settings.budget, bytes);
    }
    let half = ByteCount(settings.budget.0 / 2);
    (BufferPool::new(half, bytes), BufferPool::new(half, bytes))
}

impl TransferSettings {
    /// Returns default settings with these options.
    pub fn new(options: &TransferOptions) -> TransferSettings {
        let Verification {
            integrity,
            read_back,
            digests,
        } = options.verification;
        TransferSettings {
            operation: options.operation,
            codec: options.compression.map_or(Codec::Plain, Compression::codec),
            integrity,
            direct: options.direct_io,
            assembly: options.assembly,
            digests: digests != Digests::None,
            // Only a complete list requires reading files without a stored digest.
            reads_for_digests: digests == Digests::All,
            verify_written: read_back,
            criteria: options.criteria,
            omitted: if options.report_omitted {
                Reporting::Here
            } else {
                Reporting::No
            },
            moves_away: options.move_away,
            deletion: options.deletion.clone().map(Arc::new),
            ..TransferSettings::default()
        }
    }

    /// Reduces memory and flows to the limits that the system sets for this process.
    fn fit(&mut self, side: &Side) {
        self.budget = limits::for_blocks(self.budget);
        if !self.local {
            // Two ends within one host share the limits, so the caller reduces both.
            let ends = match side {
                Side::Sending(_) => Ends::Sending,
                Side::Receiving(_) => Ends::Receiving,
            };
            self.flows = self.flows.that_fit(self, ends);
        }
    }
}

impl Default for TransferSettings {
    fn default() -> TransferSettings {
        TransferSettings {
            operation: Operation::Copy,
            block_bytes: 1 << 20,
            budget: ByteCount(64 << 20),
            cores: cores(),
            flows: FlowCounts::default(),
            stack: Stack::default(),
            codec: Codec::Plain,
            integrity: Integrity::Digest,
            checkpoint_bytes: 256 << 20,
            checkpoint_span: Duration::from_secs(1),
            linger: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            direct: false,
            assembly: None,
            digests: false,
            reads_for_digests: true,
            large_files: longhaul_proto::sender::MOST_LARGE_FILES,
            expiry: Some(LEFTOVERS_EXPIRE),
            verify_written: false,
            criteria: Criteria::default(),
            omitted: Reporting::No,
            moves_away: false,
            deletion: None,
            clear: None,
            any_codec: false,
            local: false,
            asks: true,
            epoch: 1,
            limit: None,
        }
    }
}

/// Maximum number of files that an end reads at once to compare their contents.
const MOST_DIGESTERS: usize = 4;

impl TransferSettings {
    /// True if blocks are sent in clear.
    pub(crate) fn is_clear(&self) -> bool {
        self.clear.is_some()
    }

    /// True if streams' own threads do the work of the layers.
    pub(crate) fn is_paired(&self) -> bool {
        self.stack == Stack::Paired
    }

    /// Returns the number of threads of a sending end that read files for their digests. Each keeps
    /// a core busy.
    pub(crate) fn digesters(&self) -> usize {
        if self.compares_contents() {
            self.cores.clamp(1, MOST_DIGESTERS)
        } else {
            0
        }
    }

    /// Returns the number of threads of a receiving end that read existing files, to compare them
    /// and to resume large files of an earlier run.
    pub(crate) fn content_comparers(&self) -> usize {
        if self.asks && (self.operation == Operation::Copy || self.compares_contents()) {
            self.digesters().max(1)
        } else {
            0
        }
    }

    /// True if existing files are compared by their contents as well.
    pub(crate) fn compares_contents(&self) -> bool {
        let wanted = self.verify_written || self.moves_away;
        let wanted = wanted || self.digests && self.reads_for_digests;
        let copies = wanted && self.operation == Operation::Copy;
        let asked = self.criteria.checksum && self.operation != Operation::Verify;
        (copies || asked) && self.integrity == Integrity::Digest
    }
}

/// Error: the other end sent an entry that this end did not request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the other end sent {0}, which the command did not ask for, and nothing of that was kept: \
     it is broken or hostile; look at what came before in the destination"
)]
pub struct NotAsked(pub(crate) TreePath);

/// Violations of the protocol by the other end, and failures to send it a message.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A frame is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The numbering of the control messages is invalid.
    #[error(transparent)]
    Control(#[from] longhaul_proto::control::ControlError),
    /// The receiver violated the protocol.
    #[error(transparent)]
    Sender(#[from] SenderError),
    /// The sender violated the protocol.
    #[error(transparent)]
    Receiver(#[from] ReceiverError),
    /// The other end sent an entry that this end did not request.
    #[error(transparent)]
    NotAsked(#[from] NotAsked),
    /// The session needs more memory for its state than its share on this host.
    #[error(
        "so much of the copy is under way that it takes {} MiB here, more than this session's \
         share of the memory: run it again when there are fewer sessions",
        bytes >> 20
    )]
    Memory {
        /// Memory that the state needs, in bytes.
        bytes: usize,
    },
}

/// Receives the events of a transfer.
pub type Watch = Arc<dyn Fn(Event) + Send + Sync>;

/// One end of a transfer.
pub struct Transfer {
    shared: Mutex<Shared>,
    pub(crate) signals: Signals,
    pub(crate) settings: TransferSettings,
    pub(crate) pool: BufferPool,
    /// Buffers for the output of codecs. With one common pool, blocks that wait for a codec could
    /// take all the room for its output.
    pub(crate) coded: BufferPool,
    pub(crate) counters: Counters,
    side: Side,
    began: Instant,
    watch: Watch,
    steering: Mutex<Option<Box<dyn Steer>>>,
    /// Connections that one end asks the other end to open.
    calls: Mutex<Calling>,
    limits: HostLimits,
    idle: IdleCores,
    pacing: Pacing,
    /// Paths of the streams. Lock order: `paths` before `shared`.
    paths: Mutex<paths::Paths>,
}

pub(crate) struct Shared {
    pub(crate) machine: Machine,
    /// Blocks that wait for streams.
    pub(crate) ready: ReadyBlocks,
    lifetime: Lifetime,
    control: ControlChannel,
    streams: StreamSet,
    pub(crate) steering: Steering,
    /// True if a committer waits no longer than until the next storage job is due.
    pub(crate) storing_in_time: bool,
}

/// Counts that need no lock.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub walked_entries: AtomicU64,
    pub walked_bytes: AtomicU64,
    pub walk_ended: AtomicU64,
    pub read_bytes: AtomicU64,
    pub uncopied_bytes: AtomicU64,
    pub late_bytes: AtomicU64,
    pub coded_from: AtomicU64,
    pub coded_to: AtomicU64,
    pub wire_bytes: AtomicU64,
    pub message_bytes: AtomicU64,
    pub hole_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub done_entries: AtomicU64,
    pub done_bytes: AtomicU64,
    pub skipped_entries: AtomicU64,
    pub skipped_bytes: AtomicU64,
    pub new_entries: AtomicU64,
    pub changed_entries: AtomicU64,
    pub fixed_entries: AtomicU64,
    pub fixed_directories: AtomicU64,
    pub planned_bytes: AtomicU64,
    pub planned_files: AtomicU64,
    pub planned_directories: AtomicU64,
    pub differing_entries: AtomicU64,
    pub failed_entries: AtomicU64,
    pub deleted_entries: AtomicU64,
    pub deleted_bytes: AtomicU64,
    pub files: AtomicU64,
    pub again_blocks: AtomicU64,
    pub lost_streams: AtomicU64,
    pub wire_nanoseconds: AtomicU64,
    /// Number of streams whose threads hold a block and read nothing meanwhile.
    pub held_streams: AtomicU64,
    /// Time since when they hold it, or since when one of them was released, in nanoseconds.
    pub held_since: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transfer")
    }
}

impl Transfer {
    pub(crate) fn start(
        mut settings: TransferSettings,
        machine: Machine,
        side: Side,
        watch: Watch,
    ) -> Arc<Transfer> {
        settings.fit(&side);
        let shared = Shared {
            machine,
            ready: ReadyBlocks::default(),
            lifetime: Lifetime::new(settings.linger),
            control: ControlChannel::default(),
            streams: StreamSet::new(&settings),
            steering: Steering::default(),
            storing_in_time: false,
        };
        let (pool, coded) = pools(&settings);
        let transfer = Arc::new(Transfer {
            shared: Mutex::new(shared),
            signals: Signals::default(),
            pool,
            coded,
            pacing: Pacing::new(settings.limit),
            settings,
            counters: Counters::default(),
            side,
            began: Instant::now(),
            watch,
            steering: Mutex::new(None),
            calls: Mutex::default(),
            limits: HostLimits::read(),
            idle: IdleCores::default(),
            paths: Mutex::default(),
        });
        transfer.side.start(&transfer);
        let own = Arc::clone(&transfer);
        // Without this thread the session would never time out.
        let started = std::thread::Builder::new()
            .name("timer".into())
            .spawn(move || timer::keep_time(&own));
        stages::need(&transfer, started.map(drop));
        transfer
    }

    /// Nanoseconds since this end began.
    pub(crate) fn now(&self) -> Moment {
        Moment(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    pub(crate) fn side(&self) -> &Side {
        &self.side
    }

    /// Returns the streams.
    pub fn streams(self: &Arc<Transfer>) -> Streams<'_> {
        Streams::of(self)
    }

    /// Returns a stream for its threads.
    pub(crate) fn stream(&self, id: StreamId) -> StreamThread<'_> {
        StreamThread::of(self, id)
    }

    /// Returns the measurements.
    pub fn measurements(&self) -> Measurements<'_> {
        Measurements::of(self)
    }

    /// Returns the means to change the streams, the flows and the rate.
    pub fn regulator(&self) -> Regulator<'_> {
        Regulator::of(self)
    }

    /// Returns the description of the transfer and its result.
    pub fn summary(&self) -> Summary<'_> {
        Summary::of(self)
    }

    /// Returns the opening of the session at an end that sends and dials.
    pub fn opening(&self) -> Opening<'_> {
        Opening::of(self)
    }

    /// True if the session is over.
    pub fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Completes a change of the state machine: wakes the threads that may have work, reports the
    /// results of entries, and ends a finished session.
    pub(crate) fn settle(&self, mut shared: MutexGuard<'_, Shared>) {
        let events = shared.take_events(self.settings.operation);
        let may_read = !shared.is_far_ahead(&self.pool);
        // The last message of a sender; see `end.rs`.
        let mut ended = false;
        if !shared.lifetime.is_done()
            && let Some(totals) = shared.machine.totals()
        {
            shared.lifetime.finish(totals);
            ended = shared.machine.is_sending();
        }
        if let Some(sender) = shared.machine.sender() {
            self.signals.notify_for_sender(sender, may_read);
        }
        if let Some(receiver) = shared.machine.receiver() {
            let in_time = shared.storing_in_time;
            self.signals
                .notify_for_receiver(receiver, in_time, self.now());
        }
        if ended {
            shared.say(&Message::Goodbye(Farewell::Complete));
            shared.lifetime.end(Farewell::Complete);
        }
        if shared.lifetime.is_ending() {
            shared.lifetime.note_end_of_work(self.now());
            self.wake_everybody(&shared);
        }
        if shared.has_message() {
            shared.wake_control();
        }
        shared.wake_carrier();
        drop(shared);
        for event in events {
            self.report(event);
        }
    }

    /// Wakes all threads after a change of the session's life.
    pub(crate) fn wake_everybody(&self, shared: &Shared) {
        if shared.is_over() {
            self.pacing.end(self.now());
        }
        self.signals.notify_all();
        shared.streams.wake_all();
    }
}

impl Shared {
    pub(crate) fn is_over(&self) -> bool {
        self.lifetime.is_over()
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.count()
    }

    /// True if more blocks wait for streams than the streams take before the data leave the cache.
    /// A stream that takes a block wakes a reader.
    pub(crate) fn is_far_ahead(&self, pool: &BufferPool) -> bool {
        self.ready
            .are_far_ahead(self.streams.count(), pool.maximum_buffers())
    }

    /// Returns the number of streams that take blocks.
    pub(crate) fn carriers(&self) -> usize {
        let streams = self.streams.iter();
        streams.filter(|(id, _)| self.takes_blocks(*id)).count()
    }

    /// True if the thread that carries messages must send one or must check for free buffers.
    pub(crate) fn has_message(&self) -> bool {
        self.machine.has_message() || self.control.has_frame()
    }

    /// Puts a message into the control channel. Our own state machines make no message that is too
    /// long; the other end would refuse it, so it ends the session.
    pub(crate) fn say(&mut self, message: &Message) {
        if let Err(error) = self.control.push(message) {
            self.lifetime.break_off(error.to_string());
        }
    }
}
