//! The sending pipeline: walk -> read -> compress -> seal -> wire.
//!
//! - [`walk`] lists the sources in byte order and passes the selected entries ([`select`]) to the
//!   state machine. If several sources have the same entry, the first one counts (`earlier`).
//!   Entries that the state machine cannot take yet wait in a file (`backlog`);
//! - [`read`] reads the next data into a buffer of the pool and computes the checksum while they
//!   are in the CPU cache, which gives a [`read::ReadBlock`]. For a file that keeps growing,
//!   `front` reads its first part, twice;
//! - `filter` runs files through a command first; its output is then read instead;
//! - `digest` reads files that the receiver already has, and compares their digests;
//! - [`compress`] makes a [`compress::CodedBlock`] of a block. If codecs are chosen during the
//!   transfer, `automatic` asks the chooser, for the kind of data that [`kinds`] finds; `wire_look`
//!   finds the bottleneck of the transfer;
//! - [`seal`] frames a block, which gives a [`seal::SealedBlock`];
//! - [`stream`] makes a source of an input that can be read only once;
//! - [`wildcards`] expands a source's name with wildcards;
//! - the streams' writers (`session/streams/writing.rs`) pass blocks to TLS and the socket.

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

use longhaul_proto::assembly::Assembly;
use longhaul_proto::coding::CodecUse;
use longhaul_proto::command::FileCommand;
use longhaul_proto::handshake::Operation;
use longhaul_proto::keeping::Keeping;
use longhaul_proto::message::Flows;
use longhaul_proto::sender::{ReadJob, Sender, SenderSettings};
use longhaul_proto::session::StreamId;

use crate::codec::choice::Choose;
use crate::codec::coder::Coder;
use crate::codec::uses::CodecUses;
use crate::flows::{Flow, FlowGroup, LayerUse, busy};
use crate::intents::Intents;
use crate::pool::Buffer;
use crate::session::stages::{SendingStages, Stages, WireBlock, group, need};
use crate::session::{Transfer, TransferSettings};
use crate::shell::{self, Words};
use automatic::Automatic;
use compress::Queued;
use filter::Outputs;
use gather::Gathering;
use kinds::{Elements, Kinds};
use longhaul_storage::DataMode;
use longhaul_storage::fan_out::Pace;
use longhaul_system::queue::Queue;
use longhaul_system::seats::{Role, Seat};
use mounted::Mounted;
use origin::Origins;
use payload::HeldFiles;
use read::OpenFiles;
use select::Selected;
use source::Sources;

/// Resources of a sending end: sources, codecs, threads.
pub struct SendSide {
    /// Its seat among the sessions of this process.
    pub(crate) seat: Arc<Seat>,
    pub(crate) sources: Sources,
    /// Rules that select the entries to send.
    pub(crate) selected: Selected,
    pub(crate) origins: Arc<Origins>,
    pub(crate) coding: Queue<Queued>,
    /// Choice of codecs, if they are chosen during the transfer.
    automatic: Option<Automatic>,
    pub(crate) kinds: Kinds,
    /// Element size of arrays, if the user gave it.
    elements: Option<Elements>,
    pub(crate) uses: CodecUses,
    /// Collector of the metadata that are sent with an entry.
    pub(crate) gathering: Gathering,
    /// File systems that the walk found within sources.
    pub(crate) mounted: Mounted,
    pub(crate) open_files: OpenFiles,
    /// Command that filters the files.
    pub(crate) filter: Option<FileCommand>,
    /// Outputs of the command.
    pub(crate) outputs: Outputs,
    /// Messages of commands that are shown.
    pub(crate) words: Words,
    pub(crate) held_files: Arc<HeldFiles>,
    /// Receives removals of sources before they are made.
    pub(crate) intents: Option<Arc<dyn Intents>>,
    /// Measured time of opening a small file.
    pub(crate) opens: Pace,
    direct: AtomicBool,
    readers: OnceLock<FlowGroup>,
    compressors: OnceLock<FlowGroup>,
    /// True if compressors run for blocks with a chosen codec.
    compressing: OnceLock<bool>,
    digesters: OnceLock<FlowGroup>,
    removers: OnceLock<FlowGroup>,
    filters: OnceLock<FlowGroup>,
}

impl SendSide {
    /// Creates a sending end for these sources.
    pub fn new(sources: Sources) -> SendSide {
        SendSide::of(sources, "")
    }

    /// Creates a sending end for these sources, on behalf of a principal.
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
            intents: None,
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

    /// Limits the sources to a selection.
    pub fn selecting(self, selected: Selected) -> SendSide {
        let (selected, sources) = selected.divide(self.sources);
        SendSide {
            selected,
            sources,
            ..self
        }
    }

    /// Sets the `chooser` of codecs during the transfer, if the other end has every codec. Without
    /// one, blocks have the codec of the transfer's settings. `elements` is the element size of
    /// arrays, if the user gave it.
    pub fn coding(self, chooser: Option<Box<dyn Choose>>, elements: Option<Elements>) -> SendSide {
        SendSide {
            automatic: chooser.map(Automatic::new),
            elements,
            ..self
        }
    }

    /// Sends the output of a command instead of each file.
    pub fn filtering(self, filter: Option<FileCommand>) -> SendSide {
        SendSide { filter, ..self }
    }

    /// Announces removals of sources to `intents` before they are made.
    pub fn announcing(self, intents: Option<Arc<dyn Intents>>) -> SendSide {
        SendSide { intents, ..self }
    }

    /// Sends the metadata that a copy keeps; if `trusted`, also attributes that only the superuser
    /// can read.
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
            part: settings.assembly.and_then(Assembly::range),
            epoch: settings.epoch,
            ..SenderSettings::default()
        }
    }

    pub(crate) fn note_data_mode(&self, mode: DataMode) {
        if mode == DataMode::Direct {
            self.direct.store(true, Ordering::Relaxed);
        }
    }

    /// Runs a read on a stream's own thread and counts its time.
    pub(crate) fn busy_reading<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.readers, work)
    }

    /// Starts compressors for the first block with a chosen codec; false if the system has no
    /// threads for them.
    fn has_compressors(&self, flows: usize) -> bool {
        let start = || {
            let compressors = self.compressors.get();
            compressors.is_some_and(|compressors| compressors.set(flows).is_ok())
        };
        *self.compressing.get_or_init(start)
    }

    /// Runs an encoding on a stream's own thread and counts its time.
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
        let layered = !transfer.settings.is_paired();
        if layered {
            need(transfer, readers.set_count(settings.flows.readers));
        }
        if layered && settings.codec.compresses() {
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
        need(transfer, started.map(drop));
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
            // If there are no threads for more flows, the existing ones continue.
            let _ = readers.set((count as usize).max(1));
        }
        if let (Some(count), Some(compressors)) = (flows.compressors, self.compressors.get()) {
            let _ = compressors.set((count as usize).max(1));
        }
        self.coding.wake();
    }

    fn layers(&self, transfer: &Transfer) -> Vec<LayerUse> {
        let wire = transfer.measurements().wire_use("wire");
        let usage = |group: &FlowGroup| {
            if transfer.settings.is_paired() {
                group.usage_of(wire.flows)
            } else {
                group.usage()
            }
        };
        let mut layers: Vec<LayerUse> = [&self.readers, &self.compressors]
            .into_iter()
            .filter_map(|group| group.get().map(usage))
            .filter(|usage| usage.busy > 0 || usage.flows > 0 && !transfer.settings.is_paired())
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

/// The stages at work: their resources, and the session with state machine, pools and counters.
pub(crate) struct Sending<'a> {
    side: &'a SendSide,
    transfer: &'a Transfer,
}

/// Applies an event to the state machine of a sender, and then [settles](Transfer::settle) the
/// change.
fn tell<T>(transfer: &Transfer, what: impl FnOnce(&mut Sender) -> T) -> Option<T> {
    let mut shared = transfer.lock();
    let told = shared.machine.sender_mut().map(what);
    transfer.settle(shared);
    told
}

impl Sending<'_> {
    /// Applies an event to the state machine, and then [settles](Transfer::settle) the change.
    fn tell<T>(&self, what: impl FnOnce(&mut Sender) -> T) -> Option<T> {
        tell(self.transfer, what)
    }

    /// Waits for the next result of `poll` while the flow is wanted and the session continues. The
    /// second argument of `poll` is true once the session is over. Used for work other than reads
    /// of blocks.
    fn next_step<T>(
        &self,
        flow: &Flow,
        poll: impl Fn(&mut Sender, bool) -> Option<T>,
    ) -> Option<T> {
        let mut shared = self.transfer.lock();
        loop {
            let is_over = shared.is_over();
            let sender = shared.machine.sender_mut()?;
            if let Some(step) = poll(sender, is_over) {
                return Some(step);
            }
            if is_over || !flow.is_wanted() {
                return None;
            }
            let waited = self.transfer.signals.digesting.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
