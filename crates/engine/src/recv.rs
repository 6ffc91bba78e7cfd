//! The receiving pipeline: wire -> open -> decompress -> write -> commit.
//!
//! - The reader of a stream (`session/streams/reading.rs`) decrypts data. `open` reads a block into
//!   a buffer of the pool and hashes it, unless it is compressed. The state machine decides if the
//!   block is wanted, which gives an [`verify::ArrivedBlock`].
//! - [`verify`] decompresses the block if needed and compares its checksum, which gives a
//!   [`verify::VerifiedBlock`].
//! - [`mod@write`] writes the block without a sync; `sparse` leaves zeros out.
//! - `staging` gathers small files that were written.
//! - [`commit`] alone makes data durable: data, then journal, then the state machine's ledger. It
//!   also gives files their names. `standing` checks that the file system is still up.
//! - [`stream`] receives one stream of data in place of files.
//! - `filter` passes received data through a command before the file gets its name.
//! - `commands` runs a command for each committed file.
//! - [`backup`] keeps replaced and deleted files, if requested.
//! - `replacing` lets entries replace entries of another kind, in a copy that deletes.
//! - `deletion` removes names that the source lacks, after all data is copied.
//! - `announcing` announces commits and deletions before they are made.
//! - [`compare`] compares entries with the destination, `foreseeing` predicts the changes of a
//!   copy, `contents` compares file content, and `mending` corrects modes and attributes.

mod announced;
mod announcing;
mod apart;
pub mod asked;
pub mod backup;
mod commands;
pub mod commit;
pub mod compare;
mod contents;
mod deletion;
mod extras;
mod filter;
pub mod folders;
mod foreseeing;
pub mod keeper;
pub mod keeping;
pub mod landing;
mod layers;
mod links;
mod mending;
mod open;
pub mod parts;
mod probes;
mod replacing;
mod sparse;
mod staging;
mod standing;
pub mod stream;
mod times;
pub mod verify;
pub mod write;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_proto::assembly::Assembly;
use longhaul_proto::block::{BlockHeader, Content, ContentName};
use longhaul_proto::coding::CodecUse;
use longhaul_proto::digest::Checksum;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryId, TreePath};
use longhaul_proto::message::{Flows, Message};
use longhaul_proto::receiver::{Receiver, ReceiverSettings, Verdict};
use longhaul_proto::session::StreamId;

use crate::codec::Decoder;
use crate::codec::uses::CodecUses;
use crate::flows::{LayerUse, busy};
use crate::pool::Buffer;
use crate::session::stages::{ReceivingStages, Stages, group, need};
use crate::session::streams::reading::Stop;
use crate::session::{SessionError, Transfer, TransferSettings};
use crate::shell::Words;
use announced::Announced;
use asked::Asked;
use commit::Discarding;
use deletion::Deletions;
use extras::Extras;
use folders::Folders;
use landing::Destination;
use layers::{Layers, Queues};
use longhaul_net::StreamReader;
use longhaul_storage::DataMode;
use longhaul_storage::fan_out::Pace;
use longhaul_storage::together::SYNCS_AT_ONCE;
use longhaul_system::queue::lock;
use longhaul_system::seats::{Role, Seat};
use mending::Mending;
use parts::Parts;
use probes::Probes;
use replacing::Replacements;
use staging::Staging;
use verify::{ArrivedBlock, Awaited, Found, match_checksums};

/// State of a receiving end: its destination, its queues and its threads.
pub struct ReceiveSide {
    pub(crate) destination: Destination,
    /// Entries that may come; `None` if the other end decides.
    pub(crate) asked: Option<Asked>,
    /// Paths of entries, which hard links refer to; `None` if hard links are not copied.
    announced: Option<Mutex<Announced>>,
    /// Seat among the sessions of this process.
    pub(crate) seat: Arc<Seat>,
    pub(crate) folders: Folders,
    pub(crate) extras: Extras,
    pub(crate) deletions: Deletions,
    probes: Probes,
    pub(crate) replacements: Replacements,
    /// Held while an entry of another kind is moved out of the way of a directory.
    pub(crate) clearing: Mutex<()>,
    /// Held while the other end searches its sources for a probe.
    asking: Mutex<()>,
    pub(crate) parts: Parts,
    queues: Queues,
    pub(crate) staging: Staging,
    pub(crate) awaited: Mutex<Awaited>,
    pub(crate) temporaries: AtomicU64,
    /// Decoders for the threads of streams, if these decode.
    pub(crate) decoders: Mutex<Vec<Decoder>>,
    pub(crate) uses: CodecUses,
    /// Discards that are running: no directory is finished meanwhile.
    pub(crate) discarding: Discarding,
    /// Measures how long it takes to sync a small file, and to rename one.
    pub(crate) syncs: Pace,
    pub(crate) renames: Pace,
    /// Limits the output of commands that is shown.
    pub(crate) words: Words,
    /// Finished directories that hold leftovers of an earlier session.
    pub(crate) unswept: Mutex<Vec<TreePath>>,
    pub(crate) mending: Mutex<Mending>,
    direct: AtomicBool,
    layers: Layers,
}

impl ReceiveSide {
    /// Creates the receiving end of a destination.
    pub fn new(destination: Destination) -> ReceiveSide {
        let seat = Arc::new(Seat::take(Role::Receiving, &destination.principal));
        let links = destination.keeper.keeping().hard_links;
        ReceiveSide {
            folders: Folders::seated(
                (Arc::clone(&destination.anchor), Arc::clone(&seat)),
                Arc::clone(&destination.notices),
            )
            .keeping(destination.keeper.keeping())
            .barring(destination.barred().cloned()),
            staging: Staging::of(Arc::clone(&seat)),
            seat,
            extras: Extras::default(),
            deletions: Deletions::default(),
            probes: Probes::default(),
            replacements: Replacements::default(),
            clearing: Mutex::default(),
            asking: Mutex::default(),
            parts: Parts::default(),
            announced: links.then(Mutex::default),
            destination,
            asked: None,
            queues: Queues::default(),
            awaited: Mutex::default(),
            temporaries: AtomicU64::new(0),
            decoders: Mutex::default(),
            uses: CodecUses::default(),
            discarding: Discarding::default(),
            syncs: Pace::with_threads(SYNCS_AT_ONCE),
            renames: Pace::default(),
            words: Words::default(),
            unswept: Mutex::default(),
            mending: Mutex::default(),
            direct: AtomicBool::new(false),
            layers: Layers::default(),
        }
    }

    /// Creates a receiving end that accepts only the requested entries.
    pub fn only(destination: Destination, asked: Asked) -> ReceiveSide {
        ReceiveSide {
            asked: Some(asked),
            ..ReceiveSide::new(destination)
        }
    }

    /// Returns the stages at work in a session.
    fn at_work<'a>(&'a self, transfer: &'a Transfer) -> Receiving<'a> {
        let side = self;
        Receiving { side, transfer }
    }

    /// Records entries that the other end announced.
    fn note_announced<'a>(&self, entries: impl Iterator<Item = &'a Entry>) {
        if let Some(announced) = &self.announced {
            let mut announced = lock(announced);
            entries.for_each(|entry| announced.note(entry));
        }
    }

    pub(crate) fn machine_settings(&self, settings: &TransferSettings) -> ReceiverSettings {
        ReceiverSettings {
            integrity: settings.integrity,
            epoch: settings.epoch,
            checkpoint_bytes: settings.checkpoint_bytes,
            checkpoint_span: settings.checkpoint_span,
            digests: settings.digests,
            compares: settings.asks,
            deletes: settings.deletion.is_some(),
            names_only: settings.operation == Operation::Verify,
            moves_away: settings.moves_away && settings.operation == Operation::Copy,
            part: settings.assembly.and_then(Assembly::range),
            reads_back: settings.assembly != Some(Assembly::Whole),
        }
    }

    /// Measures decoding on a stream's thread.
    pub(crate) fn busy_decoding<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.layers.decompressors, work)
    }

    /// Measures writing on a stream's thread.
    pub(crate) fn busy_writing<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.layers.writers, work)
    }

    pub(crate) fn note_data_mode(&self, mode: DataMode) {
        if mode == DataMode::Direct {
            self.direct.store(true, Ordering::Relaxed);
        }
    }
}

/// The stages at work: their resources, and the session with state machine, pools and counters.
#[derive(Clone, Copy)]
pub(crate) struct Receiving<'a> {
    side: &'a ReceiveSide,
    transfer: &'a Transfer,
}

/// The committers at work: they make data durable, name files, and run commands.
#[derive(Clone, Copy)]
pub(crate) struct Committer<'a> {
    side: &'a ReceiveSide,
    transfer: &'a Transfer,
}

/// The comparers at work: they compare entries with the destination and correct metadata.
#[derive(Clone, Copy)]
pub(crate) struct Comparer<'a> {
    side: &'a ReceiveSide,
    transfer: &'a Transfer,
}

/// The work on names that are removed or replaced.
#[derive(Clone, Copy)]
pub(crate) struct Remover<'a> {
    side: &'a ReceiveSide,
    transfer: &'a Transfer,
}

impl<'a> Committer<'a> {
    fn receiving(&self) -> Receiving<'a> {
        self.side.at_work(self.transfer)
    }
}

impl<'a> Comparer<'a> {
    fn receiving(&self) -> Receiving<'a> {
        self.side.at_work(self.transfer)
    }
}

impl<'a> Remover<'a> {
    fn receiving(&self) -> Receiving<'a> {
        self.side.at_work(self.transfer)
    }
}

impl<'a> Receiving<'a> {
    fn committer(&self) -> Committer<'a> {
        let Receiving { side, transfer } = *self;
        Committer { side, transfer }
    }

    fn comparer(&self) -> Comparer<'a> {
        let Receiving { side, transfer } = *self;
        Comparer { side, transfer }
    }

    fn remover(&self) -> Remover<'a> {
        let Receiving { side, transfer } = *self;
        Remover { side, transfer }
    }
}

impl Receiving<'_> {
    /// Applies an event to the state machine, and then [settles](Transfer::settle) the change.
    fn tell<T>(&self, what: impl FnOnce(&mut Receiver) -> T) -> Option<T> {
        let mut shared = self.transfer.lock();
        let told = shared.machine.receiver_mut().map(what);
        self.transfer.settle(shared);
        told
    }

    /// True if this generation of the file is being received.
    fn is_under_way(&self, file: EntryId, generation: u32) -> bool {
        let shared = self.transfer.lock();
        shared
            .machine
            .receiver()
            .is_some_and(|receiver| receiver.files().is_under_way(file, generation))
    }

    /// True if a block of this content may still be needed when it arrives.
    fn awaits(&self, content: &ContentName) -> bool {
        let shared = self.transfer.lock();
        shared
            .machine
            .receiver()
            .is_some_and(|receiver| receiver.awaits(content))
    }

    /// Handles a complete block. `found` are its checksums, if it was already hashed.
    pub(crate) fn handle_block(
        &self,
        stream: StreamId,
        header: BlockHeader,
        buffer: Buffer,
        found: Option<Found>,
    ) -> Result<(), SessionError> {
        if let Some(asked) = &self.side.asked {
            asked.check_content(&header.content)?;
        }
        match &header.content {
            Content::Piece(piece) => self.side.note_announced([&piece.entry].into_iter()),
            Content::Pack(packed) => {
                self.side
                    .note_announced(packed.iter().map(|packed| &packed.entry));
            }
        }
        // On a clear connection, a duplicate block must not remove this block's checksums between
        // the verdict and the match.
        let mut awaited = self
            .transfer
            .settings
            .is_clear()
            .then(|| lock(&self.side.awaited));
        let keeps = self.tell(|receiver| {
            receiver.acks_mut().handle_arrival(stream);
            match &header.content {
                Content::Piece(piece) => receiver.handle_piece(piece).map(|verdict| vec![verdict]),
                Content::Pack(entries) => receiver.handle_pack(entries),
            }
        });
        let keeps = keeps.transpose()?.unwrap_or_default();
        if keeps.contains(&Verdict::Keep) {
            let arrived = ArrivedBlock {
                header,
                keeps,
                buffer,
                found,
            };
            let ready = match &mut awaited {
                Some(awaited) => match_checksums(awaited, arrived),
                None => Some(arrived),
            };
            drop(awaited);
            if let Some(ready) = ready {
                self.pass_on(ready);
            }
        } else if let Some(awaited) = &mut awaited {
            awaited.forget(&header.name());
        }
        Ok(())
    }
}

impl Stages for ReceiveSide {
    fn start(self: Arc<ReceiveSide>, transfer: &Arc<Transfer>) {
        let flows = transfer.settings.flows;
        let receiving = self.at_work(transfer);
        let both = (&self, transfer);
        let decompressors = group(both, "decompress", |side, transfer, flow| {
            Receiving { side, transfer }.run_verifier(flow);
        });
        let writers = group(both, "write", |side, transfer, flow| {
            Receiving { side, transfer }.run_writer(flow);
        });
        if !transfer.settings.is_paired() {
            need(transfer, decompressors.set(flows.decompressors));
            need(transfer, writers.set(flows.writers));
        }
        let committers = group(both, "commit", |side, transfer, flow| {
            Receiving { side, transfer }.committer().run_committer(flow);
        });
        need(transfer, committers.set(flows.committers));
        let small = group(both, "commit", |side, transfer, flow| {
            Receiving { side, transfer }
                .committer()
                .run_small_committer(flow);
        });
        need(transfer, small.set(1));
        let comparers = group(both, "compare", |side, transfer, flow| {
            Receiving { side, transfer }.comparer().run_comparer(flow);
        });
        need(transfer, comparers.set(1));
        let content_comparers = group(both, "compare", |side, transfer, flow| {
            Receiving { side, transfer }
                .comparer()
                .run_content_comparer(flow);
        });
        let count = transfer.settings.content_comparers();
        need(transfer, content_comparers.set(count));
        let runners = group(both, commands::LAYER, |side, transfer, flow| {
            Receiving { side, transfer }.committer().run_commands(flow);
        });
        let filters = group(both, filter::LAYER, |side, transfer, flow| {
            Receiving { side, transfer }.committer().run_filters(flow);
        });
        if let Some(jobs) = receiving.committer().filter_jobs() {
            need(transfer, filters.set(jobs));
            // The group is set once, here.
            let _ = self.layers.filters.set(filters);
        }
        if let Some(jobs) = receiving.committer().command_jobs() {
            need(transfer, runners.set(jobs));
            // The group is set once, here.
            let _ = self.layers.command_runners.set(runners);
        }
        // The groups are set once, here; a second start has no effect.
        let _ = self.layers.decompressors.set(decompressors);
        let _ = self.layers.writers.set(writers);
        let _ = self.layers.committers.set(committers);
        let _ = self.layers.small_committers.set(small);
        let _ = self.layers.comparers.set(comparers);
        let _ = self.layers.content_comparers.set(content_comparers);
    }

    fn stop(&self) {
        self.queues.close();
        self.layers.join_writers();
        // The threads of streams begin no more work.
        self.staging.wait_for_writers();
        // Files that they wrote are still committed.
        self.staging.close();
        self.layers.join_committers();
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn set_flows(&self, flows: Flows) {
        self.layers.set_flows(flows);
        self.queues.arrived.wake();
        self.queues.verified.wake();
    }

    fn layers(&self, transfer: &Transfer) -> Vec<LayerUse> {
        let open = transfer.measurements().wire_use("open");
        self.layers.uses(open, transfer.settings.is_paired())
    }

    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    fn codec_uses(&self) -> Vec<CodecUse> {
        self.uses.list()
    }
}

impl ReceivingStages for ReceiveSide {
    fn leave(&self) {
        if let Some(stream) = &self.destination.stream {
            stream.give_up();
        }
        self.parts.clear();
        Probes::clear(self);
        self.folders.clear();
    }

    fn came_unasked(&self) -> bool {
        self.asked.as_ref().is_some_and(Asked::is_violated)
    }

    fn check_message(&self, message: &Message) -> Result<(), SessionError> {
        if let Some(asked) = &self.asked {
            asked.check_message(message)?;
        }
        if let Message::Entries(entries) = message {
            self.note_announced(entries.iter());
        }
        Ok(())
    }

    fn handle_checksums(
        &self,
        transfer: &Transfer,
        name: ContentName,
        checksums: Vec<Option<Checksum>>,
    ) -> bool {
        self.at_work(transfer).take_checksums(name, checksums)
    }

    fn read_block(
        &self,
        transfer: &Transfer,
        stream: StreamId,
        block: (BlockHeader, usize),
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop> {
        self.at_work(transfer).open_block(stream, block, reader)
    }
}
