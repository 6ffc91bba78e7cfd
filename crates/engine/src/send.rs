//! The sending pipeline: walk -> read -> compress -> seal -> wire.
//!
//! - [`walk`] lists the sources in byte order and tells the state machine, of what
//!   several have (`earlier`) the first one's, and no more of them than was asked for
//!   ([`select`]). What the state machine does not take yet waits in a file (`backlog`);
//! - [`read`] takes what is to be read next, reads it into a buffer of the
//!   pool, computes its checksum while it is hot: a [`read::ReadBlock`]; of a file that keeps
//!   growing `front` reads the front, twice;
//! - `filter` has files go through a command first: what is read of them is its output;
//! - `digest` reads, for their digests, files that the receiver has already and
//!   compares;
//! - [`compress`] makes that a [`compress::CodedBlock`]; where codecs are chosen while the
//!   transfer runs, `automatic` asks who does that, for the kind of data that [`kinds`] finds, and
//!   `wire_look` sees what holds the transfer up;
//! - [`seal`] frames it: a [`seal::SealedBlock`];
//! - [`stream`] makes a source of what can be read once;
//! - [`wildcards`] is what a source's name with `*` stands for;
//! - the streams' writers (`session/streams.rs`) take it from there to TLS and
//!   the socket.

mod ahead;
pub(crate) mod automatic;
mod backlog;
pub mod compress;
pub(crate) mod digest;
mod earlier;
mod filter;
mod front;
pub(crate) mod gather;
pub mod kinds;
mod links;
mod list;
mod mounted;
mod moving;
mod names;
pub(crate) mod origin;
mod parents;
pub(crate) mod payload;
mod prepared;
pub mod read;
pub(crate) mod rule_files;
pub mod seal;
mod searching;
pub mod select;
pub mod source;
pub mod stream;
pub mod walk;
pub mod wildcards;
mod wire_look;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use longhaul_proto::coding::CodecUse;
use longhaul_proto::command::FileCommand;
use longhaul_proto::handshake::Operation;
use longhaul_proto::keeping::Keeping;
use longhaul_proto::message::Flows;
use longhaul_proto::sender::{ReadJob, Sender, SenderSettings};
use longhaul_proto::session::StreamId;

use crate::codec::choice::Choose;
use crate::codec::coder::Coder;
use crate::codec::compresses;
use crate::codec::uses::CodecUses;
use crate::flows::{Flow, FlowGroup, LayerUse, busy};
use crate::pool::Buffer;
use crate::session::stages::{SendingStages, Stages, WireBlock, group, need};
use crate::session::{Machine, Transfer, TransferSettings};
use crate::shell::{self, Words};
use automatic::Automatic;
use compress::Queued;
use filter::Outputs;
use gather::Gathering;
use kinds::{Elements, Kinds};
use longhaul_storage::DataMode;
use longhaul_storage::looks::Pace;
use longhaul_system::queue::Queue;
use longhaul_system::shares::{Role, Seat};
use mounted::Mounted;
use origin::Origins;
use payload::HeldFiles;
use read::OpenFiles;
use select::Selected;
use source::Sources;

/// What a sending end does with its disks and cores.
pub struct SendSide {
    /// Its seat among the sessions of this process.
    pub(crate) seat: Arc<Seat>,
    pub(crate) sources: Sources,
    /// What of them is sent.
    pub(crate) selected: Selected,
    pub(crate) origins: Arc<Origins>,
    pub(crate) coding: Queue<Queued>,
    /// Who chooses codecs, where they are chosen while the transfer runs.
    automatic: Option<Automatic>,
    pub(crate) kinds: Kinds,
    /// Elements of arrays, where the user said them.
    elements: Option<Elements>,
    pub(crate) uses: CodecUses,
    /// What of an entry goes beside its data.
    pub(crate) gathering: Gathering,
    /// File systems that the walk found within sources.
    pub(crate) mounted: Mounted,
    pub(crate) open_files: OpenFiles,
    /// A command that files go through.
    pub(crate) filter: Option<Box<FileCommand>>,
    /// What came out of it.
    pub(crate) outputs: Outputs,
    /// What is shown of what commands say.
    pub(crate) words: Words,
    pub(crate) held_files: Arc<HeldFiles>,
    /// How long it takes to open a small file.
    pub(crate) opens: Pace,
    direct: AtomicBool,
    readers: OnceLock<FlowGroup>,
    compressors: OnceLock<FlowGroup>,
    /// Whether compressors run, for blocks whose codec is chosen.
    compressing: OnceLock<bool>,
    digesters: OnceLock<FlowGroup>,
    removers: OnceLock<FlowGroup>,
    filters: OnceLock<FlowGroup>,
}

impl SendSide {
    /// For these sources.
    pub fn new(sources: Sources) -> SendSide {
        SendSide::of(sources, "")
    }

    /// For these sources, which a principal asked for.
    pub fn of(sources: Sources, principal: &str) -> SendSide {
        SendSide {
            seat: Arc::new(Seat::take(Role::Sending, principal)),
            sources,
            selected: Selected::default(),
            origins: Arc::default(),
            gathering: Gathering::default(),
            mounted: Mounted::default(),
            coding: Queue::default(),
            automatic: None,
            kinds: Kinds::default(),
            elements: None,
            uses: CodecUses::default(),
            open_files: OpenFiles::default(),
            filter: None,
            outputs: Outputs::default(),
            words: Words::default(),
            held_files: Arc::default(),
            opens: Pace::default(),
            direct: AtomicBool::new(false),
            readers: OnceLock::new(),
            compressors: OnceLock::new(),
            compressing: OnceLock::new(),
            digesters: OnceLock::new(),
            removers: OnceLock::new(),
            filters: OnceLock::new(),
        }
    }

    /// Sends no more of them than this.
    pub fn selecting(self, selected: Selected) -> SendSide {
        let (selected, sources) = selected.divide(self.sources);
        SendSide {
            selected,
            sources,
            ..self
        }
    }

    /// Has codecs chosen by `chooser` while it runs, where the other end takes any; without one,
    /// blocks have the codec of the transfer's settings. Arrays have these elements, where they
    /// are said.
    pub fn coding(self, chooser: Option<Box<dyn Choose>>, elements: Option<Elements>) -> SendSide {
        SendSide {
            automatic: chooser.map(Automatic::new),
            elements,
            ..self
        }
    }

    /// Sends what a command makes of each file.
    pub fn filtering(self, filter: Option<Box<FileCommand>>) -> SendSide {
        SendSide { filter, ..self }
    }

    /// Sends what a copy keeps of each entry; attributes that only a superuser sees as well where
    /// that is `trusted`.
    pub fn keeping(self, keeping: &Keeping, trusted: bool) -> SendSide {
        SendSide {
            selected: self.selected.keeping(keeping),
            gathering: Gathering::new(keeping, trusted),
            ..self
        }
    }

    pub(crate) fn machine_settings(&self, settings: &TransferSettings) -> SenderSettings {
        SenderSettings {
            block_bytes: settings.block_bytes as u64,
            large_files: settings.large_files.max(1),
            asks: settings.asks,
            moves: settings.operation != Operation::DryRun,
            compares: settings.compares_contents(),
            moves_away: settings.moves_away && settings.operation == Operation::Copy,
            deletes: settings.deletion.is_some(),
            names_only: settings.operation == Operation::Verify,
            fronts: settings.operation == Operation::Copy,
            filters: self.filter.is_some() && settings.operation == Operation::Copy,
            filtered_files: filter::most_outputs(),
            epoch: settings.epoch,
            ..SenderSettings::default()
        }
    }

    pub(crate) fn note_data_mode(&self, mode: DataMode) {
        if mode == DataMode::Direct {
            self.direct.store(true, Ordering::Relaxed);
        }
    }

    /// Reads on a stream's own thread.
    pub(crate) fn busy_reading<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.readers, work)
    }

    /// Starts compressors for the first block whose codec is chosen; false where the system has no
    /// threads for them.
    fn has_compressors(&self, flows: usize) -> bool {
        let start = || {
            let compressors = self.compressors.get();
            compressors.is_some_and(|compressors| compressors.set(flows).is_ok())
        };
        *self.compressing.get_or_init(start)
    }

    /// Encodes on a stream's own thread.
    pub(crate) fn busy_encoding<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.compressors, work)
    }
}

impl Stages for SendSide {
    fn start(self: Arc<SendSide>, transfer: &Arc<Transfer>) {
        let settings = &transfer.settings;
        let both = (&self, transfer);
        let readers = group(both, "read", |side, transfer, flow| {
            Sending { side, transfer }.run_reader(flow);
        });
        let compressors = group(both, "compress", |side, transfer, flow| {
            Sending { side, transfer }.run_compressor(flow);
        });
        let layered = !transfer.is_paired();
        if layered {
            need(transfer, readers.set_count(settings.flows.readers));
        }
        if layered && compresses(settings.codec) {
            need(transfer, compressors.set(settings.flows.compressors));
        }
        let digesters = group(both, "digest", |side, transfer, flow| {
            Sending { side, transfer }.run_digester(flow);
        });
        need(transfer, digesters.set(settings.digesters()));
        let removers = group(both, "remove", |side, transfer, flow| {
            Sending { side, transfer }.run_remover(flow);
        });
        let copies = settings.operation == Operation::Copy;
        need(transfer, removers.set(usize::from(copies)));
        let filters = group(both, filter::LAYER, |side, transfer, flow| {
            Sending { side, transfer }.run_filters(flow);
        });
        if let Some(asked) = self
            .filter
            .as_ref()
            .filter(|_| settings.operation == Operation::Copy)
        {
            need(transfer, filters.set(shell::most_at_once(asked.jobs)));
            // It is set once, here.
            let _ = self.filters.set(filters);
        }
        // They are set once, here; a second start has no effect.
        let _ = self.readers.set(readers);
        let _ = self.compressors.set(compressors);
        let _ = self.digesters.set(digesters);
        let _ = self.removers.set(removers);
        let (side, walker) = (Arc::clone(&self), Arc::clone(transfer));
        let started = std::thread::Builder::new()
            .name("walk".into())
            .spawn(move || {
                let (side, transfer) = (&*side, &*walker);
                Sending { side, transfer }.walk();
            });
        if let Err(error) = started {
            transfer.lacks_thread(&error);
        }
    }

    fn stop(&self) {
        self.coding.close();
        let groups = [
            &self.readers,
            &self.compressors,
            &self.digesters,
            &self.removers,
            &self.filters,
        ];
        for group in groups.into_iter().filter_map(|group| group.get()) {
            group.join();
        }
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn set_flows(&self, flows: Flows) {
        if let (Some(count), Some(readers)) = (flows.readers, self.readers.get()) {
            // Where there are no threads for more, fewer go on.
            let _ = readers.set((count as usize).max(1));
        }
        if let (Some(count), Some(compressors)) = (flows.compressors, self.compressors.get()) {
            let _ = compressors.set((count as usize).max(1));
        }
        self.coding.wake();
    }

    fn layers(&self, transfer: &Transfer) -> Vec<LayerUse> {
        let wire = transfer.wire_use("wire");
        let usage = |group: &FlowGroup| {
            if transfer.is_paired() {
                group.usage_of(wire.flows)
            } else {
                group.usage()
            }
        };
        let mut layers: Vec<LayerUse> = [&self.readers, &self.compressors]
            .into_iter()
            .filter_map(|group| group.get().map(usage))
            .filter(|usage| usage.busy > 0 || usage.flows > 0 && !transfer.is_paired())
            .collect();
        layers.push(wire);
        layers.extend(self.filters.get().map(FlowGroup::usage));
        layers
    }

    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    fn codec_uses(&self) -> Vec<CodecUse> {
        self.uses.list()
    }
}

impl SendingStages for SendSide {
    fn handle_any_codec(&self, is_taken: bool) {
        if let Some(automatic) = &self.automatic {
            automatic.handle_agreed(is_taken);
        }
    }

    fn look_for_codecs(&self, transfer: &Transfer) {
        let sending = Sending {
            side: self,
            transfer,
        };
        sending.look_for_codecs();
    }

    fn adapt_flows(&self) -> bool {
        self.readers.get().is_some_and(FlowGroup::adapt)
    }

    fn read_for(
        &self,
        transfer: &Transfer,
        stream: StreamId,
        (job, buffer): (ReadJob, Buffer),
        coder: &mut Option<Coder>,
    ) -> Option<Box<dyn WireBlock>> {
        let sending = Sending {
            side: self,
            transfer,
        };
        let uncoded = self.busy_reading(|| sending.read(job, buffer));
        sending.encode_for(stream, uncoded, coder)
    }
}

/// The stages at work: what they own, and the session's machine, pools and counters.
pub(crate) struct Sending<'a> {
    side: &'a SendSide,
    transfer: &'a Transfer,
}

impl Sending<'_> {
    /// What `poll` gives next of files that are not read to be sent as they are, waiting for it as
    /// long as the flow is wanted and the session continues. `poll` hears whether that is over.
    fn next_step<T>(
        &self,
        flow: &Flow,
        poll: impl Fn(&mut Sender, bool) -> Option<T>,
    ) -> Option<T> {
        let mut shared = self.transfer.lock();
        loop {
            let is_over = shared.is_over();
            let Machine::Sending(sender) = &mut shared.machine else {
                return None;
            };
            if let Some(step) = poll(sender, is_over) {
                return Some(step);
            }
            if is_over || !flow.is_wanted() {
                return None;
            }
            let waited = self.transfer.digesting.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
