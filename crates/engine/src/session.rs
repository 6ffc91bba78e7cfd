//! Drives one pair of hosts: one end of a transfer, its state machine, its
//! streams and its layers' flows.
//!
//! [`Transfer`] is the same at both ends and the dialer. Every thread does its slow work (disk,
//! socket, cipher, codec) without the lock, then tells the state machine under it what happened.
//! [`Transfer::observe`] and [`Transfer::set_flows`] are for the steering end.

mod arrive;
pub mod black_hole;
mod bucket;
mod dial;
mod end;
pub(crate) mod events;
mod heard;
mod levelling;
mod memory;
pub(crate) mod observe;
pub mod opening;
mod pacing;
mod pairing;
mod paths;
pub(crate) mod stages;
mod stall;
mod steer;
pub(crate) mod streams;
mod threads;
mod tickets;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use longhaul_proto::block::{Codec, ContentName, HeaderKey};
use longhaul_proto::control::ControlChannel;
use longhaul_proto::criteria::Criteria;
use longhaul_proto::deletion::Deletion;
use longhaul_proto::digest::Integrity;
use longhaul_proto::frame::FrameError;
use longhaul_proto::handshake::{Operation, Secret};
use longhaul_proto::manifest::{EntryId, TreePath};
use longhaul_proto::message::{Farewell, Message, Observation, Tuning};
use longhaul_proto::notice::Notice;
use longhaul_proto::receiver::{Receiver, ReceiverError};
use longhaul_proto::sender::{BlockId, MOST_LARGE_FILES, Sender, SenderError};
use longhaul_proto::session::{Session, StreamId};
use longhaul_units::{ByteCount, Moment};

pub use bucket::burst_bytes;
use dial::Calling;
pub use dial::{Caller, Calls, DialError, Dialer, Joined};
pub use end::Ending;
pub use events::{Event, Progress};
pub use observe::{LAYERS, Silence};
pub use paths::PathUse;
pub use steer::{Orders, Steer, View};
pub use threads::Ends;

use crate::flows::{Count, Stack};
use crate::pool::BufferPool;
use longhaul_net::host_limits::HostLimits;
use longhaul_system::allowance;
use longhaul_system::idle::IdleCores;
use longhaul_system::queue::lock;
use longhaul_system::shares::Seat;
use pacing::Pacing;
pub(crate) use stages::Side;
use stages::WireBlock;
use streams::{Damage, Slot};

// tidy: long file because one lock guards what its functions change.

/// How many flows each layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCounts {
    /// Threads that read.
    pub readers: Count,
    /// Threads that compress; none work where nothing is compressed.
    pub compressors: usize,
    /// Streams.
    pub streams: usize,
    /// Threads that decompress, and verify what was compressed.
    pub decompressors: usize,
    /// Threads that write.
    pub writers: usize,
    /// Threads that make large files and directories durable: they wait for disks,
    /// not for cores.
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

/// After so long nobody is expected to continue with a copy: two weeks' holidays and a day.
pub const LEFTOVERS_EXPIRE: Duration = Duration::from_secs(15 * 24 * 3600);

/// Who hears what a walk leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reporting {
    /// Nobody.
    #[default]
    No,
    /// This end's observers.
    Here,
    /// The receiving end's.
    There,
}

/// How an end works.
#[derive(Clone, Debug)]
pub struct TransferSettings {
    /// Copy or compare.
    pub operation: Operation,
    /// Bytes of a block, a power of two.
    pub block_bytes: usize,
    /// Memory for blocks, all layers together.
    pub budget: ByteCount,
    /// Cores that this process may use.
    pub cores: usize,
    /// Flows at the start.
    pub flows: FlowCounts,
    /// Whether layers have flows of their own.
    pub stack: Stack,
    /// How payloads are encoded.
    pub codec: Codec,
    /// How blocks are verified.
    pub integrity: Integrity,
    /// Most bytes of large files received and not durable; half of them are made
    /// durable and reported while the other half comes.
    pub checkpoint_bytes: u64,
    /// Time after which they are.
    pub checkpoint_span: Duration,
    /// How long the session outlives its last stream.
    pub linger: Duration,
    /// How long the other end may be silent before its streams are given up.
    pub silence: Duration,
    /// Direct I/O is asked for.
    pub direct: bool,
    /// Digests of finished files are wanted, also of those that were there.
    pub digests: bool,
    /// Where none is kept of a file that was there, both ends read it: what is there is the
    /// source's only once its contents were compared.
    pub reads_for_digests: bool,
    /// Most large files begun and not done: the receiving end has them open.
    pub large_files: usize,
    /// Age at which leftovers of other copies expire, in directories that this
    /// one finishes; none: never.
    pub expiry: Option<Duration>,
    /// What was written is read back and compared before it counts, and what was there is
    /// compared by its contents too.
    pub verify_written: bool,
    /// When something is copied.
    pub criteria: Criteria,
    /// A sending end reports what it leaves out, to its own observers or to the other end's.
    pub omitted: Reporting,
    /// Sources are removed once they are durable at the destination.
    pub moves_away: bool,
    /// What is deleted after the copy.
    pub deletion: Option<Arc<Deletion>>,
    /// Blocks go over streams in clear only, their headers proved with this key.
    pub clear: Option<HeaderKey>,
    /// The other end has every codec. A sender that dials learns it with the answer.
    pub any_codec: bool,
    /// Both ends are in this process.
    pub local: bool,
    /// The destination is not empty: every entry is asked for first.
    pub asks: bool,
    /// The session's epoch.
    pub epoch: u64,
    /// Bytes per second of all streams together at most, where this end sends;
    /// none without bound.
    pub limit: Option<u64>,
}

/// Buffers for blocks before a codec, and for what comes out of one.
fn pools(settings: &TransferSettings) -> (BufferPool, BufferPool) {
    let bytes = crate::codec::bound(settings.codec, settings.block_bytes);
    if !crate::codec::compresses(settings.codec) {
        // Codecs get their half when the first block has one.
        return BufferPool::pair(settings.budget, bytes);
    }
    let half = ByteCount(settings.budget.0 / 2);
    (BufferPool::new(half, bytes), BufferPool::new(half, bytes))
}

impl TransferSettings {
    /// No more memory and flows than the system allows this process.
    fn fit(&mut self, side: &Side) {
        self.budget = allowance::for_blocks(self.budget);
        if !self.local {
            // Within a host both ends share what there is.
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

/// Most files that an end reads at once to compare their contents.
const MOST_DIGESTERS: usize = 4;

impl TransferSettings {
    /// Threads of a sending end that read files for their digests, which keep a core busy each.
    pub(crate) fn digesters(&self) -> usize {
        if self.compares_contents() {
            self.cores.clamp(1, MOST_DIGESTERS)
        } else {
            0
        }
    }

    /// Threads of a receiving end that read what is there: to compare it, and what an earlier run
    /// left of large files.
    pub(crate) fn content_comparers(&self) -> usize {
        if self.asks && (self.operation == Operation::Copy || self.compares_contents()) {
            self.digesters().max(1)
        } else {
            0
        }
    }

    /// Whether files that are there are compared by their contents as well.
    pub(crate) fn compares_contents(&self) -> bool {
        let wanted = self.verify_written || self.moves_away;
        let wanted = wanted || self.digests && self.reads_for_digests;
        let copies = wanted && self.operation == Operation::Copy;
        let asked = self.criteria.checksum && self.operation != Operation::Verify;
        (copies || asked) && self.integrity == Integrity::Digest
    }
}

/// The other end sent what was not asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the other end sent {0}, which the command did not ask for, and nothing of that was kept: \
     it is broken or hostile; look at what came before in the destination"
)]
pub struct NotAsked(pub(crate) TreePath);

/// What the other end did wrong, or could not be said.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It spoke nonsense.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It lost count of its messages.
    #[error(transparent)]
    Control(#[from] longhaul_proto::control::ControlError),
    /// It broke the protocol as a receiver.
    #[error(transparent)]
    Sender(#[from] SenderError),
    /// It broke the protocol as a sender.
    #[error(transparent)]
    Receiver(#[from] ReceiverError),
    /// It sent what this end did not ask for.
    #[error(transparent)]
    NotAsked(#[from] NotAsked),
    /// It wants more to be remembered than this host has for one session.
    #[error(
        "so much of the copy is under way that it takes {} MiB here, more than this session's \
         share of the memory: run it again when there are fewer sessions",
        bytes >> 20
    )]
    Memory {
        /// Bytes.
        bytes: usize,
    },
}

/// The part of the buffers that may be read and not taken by a stream. All of
/// them would cost a tenth of a copy's CPU time in clear, because what was read
/// has left the caches when it is sent; much fewer, and a source that stutters
/// would be felt.
const PREPARED_PART: usize = 4;

/// The state machine of this end.
pub(crate) enum Machine {
    Sending(Box<Sender>),
    Receiving(Box<Receiver>),
}

/// Observers of the transfer.
pub type Watch = Arc<dyn Fn(Event) + Send + Sync>;

/// One end of a transfer.
pub struct Transfer {
    shared: Mutex<Shared>,
    /// Something to read may have come up.
    pub(crate) reading: Condvar,
    /// A file to be read for its digest, to be filtered or to be removed may have come up.
    pub(crate) digesting: Condvar,
    /// The other end searched its sources.
    pub(crate) searching: Condvar,
    /// The walk may continue.
    pub(crate) walking: Condvar,
    /// Something to do on the disk may have come up.
    pub(crate) storing: Condvar,
    /// More of large files may be written.
    pub(crate) writing: Condvar,
    /// The session's life changed, or its streams.
    pub(crate) living: Condvar,
    pub(crate) settings: TransferSettings,
    pub(crate) pool: BufferPool,
    /// For what comes out of a codec: were it the same pool, blocks waiting
    /// for the codec could take all the room for its output.
    pub(crate) coded: BufferPool,
    pub(crate) counters: Counters,
    /// Bytes of blocks that may wait for streams at most, where that is fewer than usual.
    most_prepared: AtomicU64,
    side: Side,
    began: Instant,
    watch: Watch,
    steering: Mutex<Option<Box<dyn Steer>>>,
    /// Connections to the other end, where that asks for them, and from it.
    calls: Mutex<Calling>,
    limits: HostLimits,
    idle: IdleCores,
    pacing: Pacing,
    /// Locked before `shared`, where both are.
    paths: Mutex<paths::Paths>,
}

pub(crate) struct Shared {
    pub(crate) machine: Machine,
    pub(crate) prepared: BTreeMap<BlockId, Box<dyn WireBlock>>,
    life: Session,
    control: ControlChannel,
    streams: BTreeMap<StreamId, Slot>,
    wanted_streams: usize,
    /// More the system has no threads for.
    most_wanted: usize,
    /// This end's host is why the session ended.
    failed_here: bool,
    /// Streams' own threads read.
    paired: bool,
    /// How the sender's kernel should send.
    tuning: Tuning,
    /// What the first stream's distance called for: all have the same.
    governed_by: Option<&'static str>,
    /// What keeps the sender's streams level.
    leveller: levelling::Levellers,
    /// Streams that have another slow start than their own for now.
    led: BTreeSet<StreamId>,
    heard: Moment,
    /// The same of the session alone: that a stream joined does not count.
    told: Moment,
    peer: Observation,
    /// As [`Transfer::clock_lead`] gives it.
    clock_lead: Option<i64>,
    finished: Option<longhaul_proto::message::Totals>,
    /// When everything was done.
    done: Option<Moment>,
    most_streams: usize,
    /// The session is over and this end's flows have stopped.
    left: bool,
    /// Streams on which damage was noticed, one after the other.
    damage: Damage,
    /// Opens streams, where this end does.
    dialer: Option<Dialer>,
    /// The first number of a stream not used yet.
    next_stream: u32,
    /// A committer waits for no longer than until something is due.
    pub(crate) storing_in_time: bool,
    /// Something moved last, and a stream was dialed because nothing did.
    quiet_since: Moment,
    tried: Moment,
    /// Whether data pass on the streams that this end dials.
    passage: black_hole::Passage,
    /// When streams that fix too slowly were last replaced, and how many there were then.
    replaced: (Moment, usize),
    /// Tickets that the other end gave.
    tickets: VecDeque<Secret>,
    /// Tickets given to the other end.
    issued: VecDeque<Secret>,
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
    /// Streams whose threads have a block in hand, and read nothing meanwhile.
    pub held_streams: AtomicU64,
    /// When the first of them was held, or one was let go since, in nanoseconds.
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
            prepared: BTreeMap::new(),
            life: Session::new(settings.linger, Moment(0)),
            control: ControlChannel::default(),
            streams: BTreeMap::new(),
            wanted_streams: settings.flows.streams,
            most_wanted: usize::MAX,
            failed_here: false,
            paired: settings.stack == Stack::Paired,
            tuning: Tuning::default(),
            governed_by: None,
            heard: Moment(0),
            told: Moment(0),
            peer: Observation::default(),
            clock_lead: None,
            finished: None,
            done: None,
            most_streams: 0,
            left: false,
            damage: Damage::default(),
            dialer: None,
            next_stream: 0,
            leveller: levelling::Levellers::default(),
            led: BTreeSet::new(),
            storing_in_time: false,
            quiet_since: Moment(0),
            tried: Moment(0),
            passage: black_hole::Passage::default(),
            replaced: (Moment(0), 0),
            tickets: VecDeque::new(),
            issued: VecDeque::new(),
        };
        let (pool, coded) = pools(&settings);
        let transfer = Arc::new(Transfer {
            shared: Mutex::new(shared),
            reading: Condvar::new(),
            digesting: Condvar::new(),
            searching: Condvar::new(),
            walking: Condvar::new(),
            storing: Condvar::new(),
            writing: Condvar::new(),
            living: Condvar::new(),
            pool,
            coded,
            pacing: Pacing::new(settings.limit),
            settings,
            counters: Counters::default(),
            most_prepared: AtomicU64::new(u64::MAX),
            side,
            began: Instant::now(),
            watch,
            steering: Mutex::new(None),
            calls: Mutex::default(),
            limits: HostLimits::read(),
            idle: IdleCores::default(),
            paths: Mutex::default(),
        });
        transfer.start_flows();
        transfer
    }

    fn start_flows(self: &Arc<Transfer>) {
        self.side.start(self);
        let timer = Arc::clone(self);
        // Without this thread the session would never time out.
        let started = std::thread::Builder::new()
            .name("timer".into())
            .spawn(move || timer.keep_time());
        if let Err(error) = started {
            self.lacks_thread(&error);
        }
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

    pub(crate) fn seat(&self) -> &Seat {
        self.side.stages().seat()
    }

    /// Large files that this end can have open, where it receives: what the other end should not
    /// exceed.
    pub fn most_open_parts(&self) -> usize {
        self.seat().parts().clamp(1, MOST_LARGE_FILES)
    }

    /// Whether blocks go over streams in clear.
    pub fn is_clear(&self) -> bool {
        self.settings.clear.is_some()
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Tells the state machine something and passes on what follows from it.
    pub(crate) fn tell<T>(&self, what: impl FnOnce(&mut Machine) -> T) -> T {
        let mut shared = self.lock();
        let result = what(&mut shared.machine);
        self.settle(shared);
        result
    }

    /// As [`Transfer::tell`], for events of a sender only.
    pub(crate) fn tell_sender<T>(&self, what: impl FnOnce(&mut Sender) -> T) -> Option<T> {
        self.tell(|machine| match machine {
            Machine::Sending(sender) => Some(what(sender)),
            Machine::Receiving(_) => None,
        })
    }

    /// As [`Transfer::tell`], for events of a receiver only.
    pub(crate) fn tell_receiver<T>(&self, what: impl FnOnce(&mut Receiver) -> T) -> Option<T> {
        self.tell(|machine| match machine {
            Machine::Receiving(receiver) => Some(what(receiver)),
            Machine::Sending(_) => None,
        })
    }

    /// Whether this generation of a file is what is being received of it.
    pub(crate) fn is_under_way(&self, file: EntryId, generation: u32) -> bool {
        let shared = self.lock();
        matches!(&shared.machine, Machine::Receiving(receiver) if receiver.is_under_way(file, generation))
    }

    /// Whether a block of this content may still be of use when it comes.
    pub(crate) fn awaits(&self, content: &ContentName) -> bool {
        let shared = self.lock();
        matches!(&shared.machine, Machine::Receiving(receiver) if receiver.awaits(content))
    }

    /// After the state machine changed: wakes threads that may have something to do, reports what
    /// became of entries, ends what is finished.
    pub(crate) fn settle(&self, mut shared: MutexGuard<'_, Shared>) {
        let events = shared.take_events(self.settings.operation);
        let far_ahead = self.is_far_ahead(&shared);
        let state = &mut *shared;
        let mut ended = false;
        match &mut state.machine {
            Machine::Sending(sender) => {
                if let Some(totals) = sender.finished()
                    && state.finished.is_none()
                {
                    state.finished = Some(totals);
                    // The last message of this end; see `end.rs`.
                    ended = true;
                }
                if !far_ahead {
                    self.reading.notify_one();
                }
                if sender.has_unread_digest()
                    || sender.has_moved()
                    || sender.has_search()
                    || sender.has_filter_step()
                {
                    self.digesting.notify_all();
                }
                self.walking.notify_all();
            }
            Machine::Receiving(receiver) => {
                if receiver.is_finished() && state.finished.is_none() {
                    state.finished = Some(receiver.totals());
                }
                let unwatched = receiver.poll_timeout().is_some() && !state.storing_in_time;
                if unwatched || receiver.has_storage_job(self.now()) {
                    self.storing.notify_one();
                }
                if receiver.may_write() {
                    self.writing.notify_all();
                }
                if receiver.has_sources() {
                    self.searching.notify_all();
                }
            }
        }
        if ended {
            shared.say(&Message::Goodbye(Farewell::Complete));
            shared.life.end(Farewell::Complete);
        }
        if shared.is_over() || shared.finished.is_some() {
            shared.done.get_or_insert(self.now());
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

    /// Whether more blocks wait for streams than these take before the data leave the cache. A
    /// stream that takes a block wakes a reader.
    pub(crate) fn is_far_ahead(&self, shared: &Shared) -> bool {
        let (waiting, streams) = (shared.prepared.len(), shared.stream_count());
        let most = self.pool.maximum_buffers() / PREPARED_PART;
        let most_bytes = self.most_prepared.load(Ordering::Relaxed);
        let bytes = || -> u64 {
            let blocks = shared.prepared.values();
            blocks.map(|block| block.payload_bytes() as u64).sum()
        };
        waiting > most.max(streams)
            || (waiting > streams && most_bytes < u64::MAX && bytes() > most_bytes)
    }

    /// Has blocks of at most this many bytes read from now on, and no more bytes of them wait for
    /// streams than this, or one block for each stream.
    pub(crate) fn bound_prepared(&self, block_bytes: u64, bytes: u64) {
        if let Machine::Sending(sender) = &mut self.lock().machine {
            sender.bound_blocks(block_bytes);
        }
        let before = self.most_prepared.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.reading.notify_all();
        }
    }

    pub(crate) fn wake_everybody(&self, shared: &Shared) {
        if shared.is_over() {
            self.end_pacing();
        }
        self.reading.notify_all();
        self.digesting.notify_all();
        self.searching.notify_all();
        self.walking.notify_all();
        self.storing.notify_all();
        self.writing.notify_all();
        self.living.notify_all();
        for slot in shared.streams.values() {
            slot.wake();
        }
    }
}

impl Shared {
    /// What the destination did not keep or refused, once all is done.
    fn notices(&self) -> &[Notice] {
        match &self.machine {
            Machine::Sending(sender) => sender.notices(),
            Machine::Receiving(receiver) => receiver.notices(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.life.life(), longhaul_proto::session::Life::Over(_))
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Streams that take blocks.
    pub(crate) fn carriers(&self) -> usize {
        let takes = |id: &&StreamId| self.takes_blocks(**id);
        self.streams.keys().filter(takes).count()
    }

    /// Whether the thread that carries messages has something to do: to send one, or to see
    /// whether there is room again.
    pub(crate) fn has_message(&self) -> bool {
        let of_machine = match &self.machine {
            Machine::Sending(sender) => sender.has_message(),
            Machine::Receiving(receiver) => receiver.has_message() || !receiver.has_room(),
        };
        of_machine || self.control.has_frame()
    }

    /// Puts a message into the control channel; too long a one cannot come
    /// from our own state machines, and would be refused by the other end.
    pub(crate) fn say(&mut self, message: &Message) {
        if let Err(error) = self.control.push(message) {
            self.life.end(Farewell::Broken(error.to_string()));
        }
    }
}
