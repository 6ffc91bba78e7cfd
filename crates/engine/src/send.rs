//! The sending pipeline: walk -> read -> compress -> seal -> wire.
//!
//! - [`walk`] lists the sources in byte order and tells the state machine, of what
//!   several have (`earlier`) the first one's, and no more of them than was asked for
//!   ([`select`]);
//! - [`read`] takes what is to be read next, reads it into a buffer of the
//!   pool, computes its checksum while it is hot: a [`read::ReadBlock`]; of a file that keeps
//!   growing `front` reads the front, twice;
//! - `digest` reads, for their digests, files that the receiver has already and
//!   compares;
//! - [`compress`] makes that a [`compress::CodedBlock`];
//! - [`seal`] frames it: a [`seal::SealedBlock`];
//! - [`stream`] makes a source of what can be read once;
//! - [`wildcards`] is what a source's name with `*` stands for;
//! - the streams' writers (`session/streams.rs`) take it from there to TLS and
//!   the socket.

mod ahead;
pub mod compress;
pub(crate) mod digest;
mod earlier;
mod front;
pub(crate) mod origin;
mod parents;
pub(crate) mod payload;
pub mod read;
pub mod seal;
pub mod select;
pub mod source;
pub mod stream;
pub mod walk;
pub mod wildcards;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use longhaul_proto::block::Codec;
use longhaul_proto::handshake::Purport;
use longhaul_proto::message::Flows;
use longhaul_proto::sender::SenderSettings;

use crate::flows::{Flow, FlowGroup, LayerUse};
use crate::looks::Pace;
use crate::queue::Queue;
use crate::session::{Transfer, TransferSettings};
use crate::shares::{Role, Seat};
use crate::storage::DataMode;
use compress::Uncoded;
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
    pub(crate) coding: Queue<Uncoded>,
    pub(crate) open_files: OpenFiles,
    pub(crate) held_files: Arc<HeldFiles>,
    /// How long it takes to open a small file.
    pub(crate) opens: Pace,
    direct: AtomicBool,
    /// The other end understands trailers.
    pub(crate) trailers: AtomicBool,
    readers: OnceLock<FlowGroup>,
    compressors: OnceLock<FlowGroup>,
    digesters: OnceLock<FlowGroup>,
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
            coding: Queue::default(),
            open_files: OpenFiles::default(),
            held_files: Arc::default(),
            opens: Pace::default(),
            direct: AtomicBool::new(false),
            trailers: AtomicBool::new(false),
            readers: OnceLock::new(),
            compressors: OnceLock::new(),
            digesters: OnceLock::new(),
        }
    }

    /// Sends no more of them than this.
    pub fn selecting(self, selected: Selected) -> SendSide {
        SendSide { selected, ..self }
    }

    pub(crate) fn machine_settings(&self, settings: &TransferSettings) -> SenderSettings {
        SenderSettings {
            block_bytes: settings.block_bytes as u64,
            integrity: settings.integrity,
            large_files: settings.large_files.max(1),
            asks: settings.asks,
            moves: settings.purport != Purport::DryRun,
            fronts: (settings.growth || settings.local) && settings.purport == Purport::Copy,
            epoch: settings.epoch,
            ..SenderSettings::default()
        }
    }

    pub(crate) fn start(&self, transfer: &Arc<Transfer>) {
        let settings = &transfer.settings;
        let readers = group(transfer, "read", Transfer::run_reader);
        let compressors = group(transfer, "compress", Transfer::run_compressor);
        let layered = !transfer.is_paired();
        if layered {
            need(transfer, readers.set_count(settings.flows.readers));
        }
        if layered && compresses(settings.codec) {
            need(transfer, compressors.set(settings.flows.compressors));
        }
        let digesters = group(transfer, "digest", Transfer::run_digester);
        need(transfer, digesters.set(settings.digesters()));
        // They are set once, here; a second start has no effect.
        let _ = self.readers.set(readers);
        let _ = self.compressors.set(compressors);
        let _ = self.digesters.set(digesters);
        let walker = Arc::clone(transfer);
        let started = std::thread::Builder::new()
            .name("walk".into())
            .spawn(move || walker.walk());
        if let Err(error) = started {
            transfer.lacks_thread(&error);
        }
    }

    pub(crate) fn set_flows(&self, flows: Flows) {
        if let (Some(count), Some(readers)) = (flows.readers, self.readers.get()) {
            // Where there are no threads for more, fewer go on.
            let _ = readers.set((count as usize).max(1));
        }
        if let (Some(count), Some(compressors)) = (flows.compressors, self.compressors.get()) {
            let _ = compressors.set((count as usize).max(1));
        }
        self.coding.wake();
    }

    /// Has as many read as there is work for; gives whether some are too many.
    pub(crate) fn adapt_flows(&self) -> bool {
        self.readers.get().is_some_and(FlowGroup::adapt)
    }

    pub(crate) fn stop(&self) {
        self.coding.close();
        let groups = [&self.readers, &self.compressors, &self.digesters];
        for group in groups.into_iter().filter_map(|group| group.get()) {
            group.join();
        }
    }

    pub(crate) fn note_data_mode(&self, mode: DataMode) {
        if mode == DataMode::Direct {
            self.direct.store(true, Ordering::Relaxed);
        }
    }

    /// Whether any file was really read directly.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    pub(crate) fn layers(&self, transfer: &Transfer) -> Vec<LayerUse> {
        let wire = transfer.wire_use("wire");
        let usage = |group: &FlowGroup| match transfer.is_paired() {
            true => group.usage_of(wire.flows),
            false => group.usage(),
        };
        let mut layers: Vec<LayerUse> = [&self.readers, &self.compressors]
            .into_iter()
            .filter_map(|group| group.get().map(usage))
            .filter(|usage| usage.busy > 0 || usage.flows > 0 && !transfer.is_paired())
            .collect();
        layers.push(wire);
        layers
    }

    /// Reads on a stream's own thread.
    pub(crate) fn busy_reading<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.readers, work)
    }

    /// Encodes on a stream's own thread.
    pub(crate) fn busy_encoding<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.compressors, work)
    }
}

/// Whether a codec makes work for the compression layer.
pub(crate) fn compresses(codec: Codec) -> bool {
    matches!(codec, Codec::Zstd { .. } | Codec::Lz4)
}

/// Does a layer's work on another thread than its own.
pub(crate) fn busy<T>(layer: &OnceLock<FlowGroup>, work: impl FnOnce() -> T) -> T {
    match layer.get() {
        Some(group) => group.busy(work),
        None => work(),
    }
}

/// A layer without a flow would have the session stand still.
pub(crate) fn need(transfer: &Transfer, started: io::Result<()>) {
    if let Err(error) = started {
        transfer.lacks_thread(&error);
    }
}

/// A layer's flows, which do not keep the transfer alive.
pub(crate) fn group(
    transfer: &Arc<Transfer>,
    layer: &'static str,
    run: fn(&Arc<Transfer>, &Flow),
) -> FlowGroup {
    let weak = Arc::downgrade(transfer);
    FlowGroup::new(
        layer,
        Arc::new(move |flow: &Flow| {
            if let Some(transfer) = weak.upgrade() {
                run(&transfer, flow);
            }
        }),
    )
}
