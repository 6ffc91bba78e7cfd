//! The receiving pipeline: wire -> open -> decompress -> write -> commit.
//!
//! - a stream's reader (`session/streams.rs`) decrypts what comes; `open` reads a
//!   block into a buffer of the pool and hashes it, unless it is compressed; the state machine says
//!   whether it is wanted: an [`verify::ArrivedBlock`];
//! - [`verify`] decompresses it where needed and compares its checksum: a
//!   [`verify::VerifiedBlock`];
//! - [`mod@write`] writes it, not synced; `sparse` leaves zeros out;
//! - `staging` gathers small files that were written;
//! - [`commit`] alone makes things durable: data, then journal, then the
//!   state machine's ledger, and gives files their names; `standing` asks
//!   whether the file system is still up;
//! - [`stream`] takes one stream of data instead of files;
//! - `filter` puts a command between what comes and what gets a file's name;
//! - `commands` runs a command for each file that is committed;
//! - [`backup`] keeps what is replaced or deleted, where somebody asked for it;
//! - `replacing` lets entries take the place of what is of another kind, in a copy that deletes;
//! - `deletion` removes what the source does not have, once everything is copied;
//! - [`compare`] says what is there already, `foreseeing` what a copy would change of that,
//!   `contents` reads whether that is the same, and `mend` corrects its mode and attributes.

mod announced;
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
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_proto::block::{BlockHeader, Content, ContentName};
use longhaul_proto::coding::CodecUse;
use longhaul_proto::digest::Checksum;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, TreePath};
use longhaul_proto::message::{Flows, Message};
use longhaul_proto::receiver::{ReceiverSettings, Verdict};
use longhaul_proto::session::StreamId;

use crate::codec::Decoder;
use crate::codec::uses::CodecUses;
use crate::flows::{FlowGroup, LayerUse, busy};
use crate::pool::Buffer;
use crate::session::stages::{ReceivingStages, Stages, group, need};
use crate::session::streams::Stop;
use crate::session::{SessionError, Transfer, TransferSettings};
use crate::shell::Words;
use announced::Announced;
use asked::Asked;
use commands::Committed;
use commit::Discarding;
use compare::Listed;
use contents::ToRead;
use deletion::Deletions;
use extras::Extras;
use filter::Unfiltered;
use folders::Folders;
use landing::Destination;
use longhaul_net::StreamReader;
use longhaul_storage::DataMode;
use longhaul_storage::looks::Pace;
use longhaul_storage::together::SYNCS_AT_ONCE;
use longhaul_system::queue::{Queue, lock};
use longhaul_system::shares::{Role, Seat};
use mending::Mending;
use parts::Parts;
use probes::Probes;
use replacing::Replacements;
use staging::Staging;
use verify::{ArrivedBlock, Awaited, Found, VerifiedBlock, match_checksums};

/// What a receiving end does with its disks and cores.
pub struct ReceiveSide {
    pub(crate) destination: Destination,
    /// What may come; `None` if the other end decides that.
    pub(crate) asked: Option<Asked>,
    /// The paths of entries, which further names are tied to; `None` where there are none.
    announced: Option<Mutex<Announced>>,
    /// Its seat among the sessions of this process.
    pub(crate) seat: Arc<Seat>,
    pub(crate) folders: Folders,
    pub(crate) extras: Extras,
    pub(crate) deletions: Deletions,
    probes: Probes,
    pub(crate) replacements: Replacements,
    /// Held while something makes way for a directory.
    pub(crate) clearing: Mutex<()>,
    /// Held while the other end searches its sources for a probe.
    asking: Mutex<()>,
    pub(crate) parts: Parts,
    pub(crate) arrived: Queue<ArrivedBlock>,
    pub(crate) verified: Queue<VerifiedBlock>,
    pub(crate) listed: Queue<Listed>,
    /// What is there and is to be read.
    pub(crate) to_read: Queue<ToRead>,
    pub(crate) staging: Staging,
    pub(crate) awaited: Mutex<Awaited>,
    pub(crate) temporaries: AtomicU64,
    /// For streams' own threads, where these decode.
    pub(crate) decoders: Mutex<Vec<Decoder>>,
    pub(crate) uses: CodecUses,
    /// Discards under way: a directory is not finished meanwhile.
    pub(crate) discarding: Discarding,
    /// How long it takes to sync a small file, and to give one its name.
    pub(crate) syncs: Pace,
    pub(crate) renames: Pace,
    /// Files whose command is still to run. One that comes to it once no command runs any more is
    /// dropped: it is kept that this one did not.
    commands: Queue<Committed>,
    /// Files that wait for the command that they go through.
    filtering: Queue<Unfiltered>,
    /// What is shown of what commands say.
    pub(crate) words: Words,
    /// Directories that are done, and have something of an earlier session.
    pub(crate) unswept: Mutex<Vec<TreePath>>,
    pub(crate) mending: Mutex<Mending>,
    direct: AtomicBool,
    decompressors: OnceLock<FlowGroup>,
    writers: OnceLock<FlowGroup>,
    committers: OnceLock<FlowGroup>,
    small_committers: OnceLock<FlowGroup>,
    comparers: OnceLock<FlowGroup>,
    content_comparers: OnceLock<FlowGroup>,
    command_runners: OnceLock<FlowGroup>,
    filters: OnceLock<FlowGroup>,
}

impl ReceiveSide {
    /// Into this destination.
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
            arrived: Queue::default(),
            verified: Queue::default(),
            listed: Queue::default(),
            to_read: Queue::default(),
            awaited: Mutex::default(),
            temporaries: AtomicU64::new(0),
            decoders: Mutex::default(),
            uses: CodecUses::default(),
            discarding: Discarding::default(),
            syncs: Pace::with_threads(SYNCS_AT_ONCE),
            renames: Pace::default(),
            commands: Queue::bounded(commands::MOST_WAITING),
            filtering: Queue::bounded(filter::most_waiting()),
            words: Words::default(),
            unswept: Mutex::default(),
            mending: Mutex::default(),
            direct: AtomicBool::new(false),
            decompressors: OnceLock::new(),
            writers: OnceLock::new(),
            committers: OnceLock::new(),
            small_committers: OnceLock::new(),
            comparers: OnceLock::new(),
            content_comparers: OnceLock::new(),
            command_runners: OnceLock::new(),
            filters: OnceLock::new(),
        }
    }

    /// Into this destination, and only what was asked for.
    pub fn only(destination: Destination, asked: Asked) -> ReceiveSide {
        ReceiveSide {
            asked: Some(asked),
            ..ReceiveSide::new(destination)
        }
    }

    /// The other end announced entries.
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
        }
    }

    /// The committer of small files, once there were any: where there are none, the others' time
    /// says by itself how busy the layer is.
    fn committers_of_small_files(&self) -> Option<LayerUse> {
        let usage = self.small_committers.get().map(FlowGroup::usage);
        usage.filter(|usage| usage.busy > 0)
    }

    /// Decodes and compares on a stream's own thread.
    pub(crate) fn busy_decoding<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.decompressors, work)
    }

    /// Writes on a stream's own thread.
    pub(crate) fn busy_writing<T>(&self, work: impl FnOnce() -> T) -> T {
        busy(&self.writers, work)
    }

    pub(crate) fn note_data_mode(&self, mode: DataMode) {
        if mode == DataMode::Direct {
            self.direct.store(true, Ordering::Relaxed);
        }
    }

    /// A block arrived whole; `found` is what it was hashed to, if it was.
    pub(crate) fn handle_block(
        &self,
        transfer: &Transfer,
        stream: StreamId,
        header: BlockHeader,
        buffer: Buffer,
        found: Option<Found>,
    ) -> Result<(), SessionError> {
        if let Some(asked) = &self.asked {
            asked.check_content(&header.content)?;
        }
        match &header.content {
            Content::Piece(piece) => self.note_announced([&piece.entry].into_iter()),
            Content::Pack(packed) => {
                self.note_announced(packed.iter().map(|packed| &packed.entry));
            }
        }
        // In clear, a twin must not make this block's checksums be forgotten
        // between the verdict and the match.
        let mut awaited = transfer.is_clear().then(|| lock(&self.awaited));
        let keeps = transfer.tell_receiver(|receiver| {
            receiver.handle_arrival(stream);
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
                self.pass_on(transfer, ready);
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
        let both = (&self, transfer);
        let decompressors = group(both, "decompress", |side, transfer, flow| {
            transfer.run_verifier(side, flow);
        });
        let writers = group(both, "write", |side, transfer, flow| {
            transfer.run_writer(side, flow);
        });
        if !transfer.is_paired() {
            need(transfer, decompressors.set(flows.decompressors));
            need(transfer, writers.set(flows.writers));
        }
        let committers = group(both, "commit", |side, transfer, flow| {
            transfer.run_committer(side, flow);
        });
        need(transfer, committers.set(flows.committers));
        let small = group(both, "commit", |side, transfer, flow| {
            transfer.run_small_committer(side, flow);
        });
        need(transfer, small.set(1));
        let comparers = group(both, "compare", |side, transfer, flow| {
            transfer.run_comparer(side, flow);
        });
        need(transfer, comparers.set(1));
        let content_comparers = group(both, "compare", |side, transfer, flow| {
            transfer.run_content_comparer(side, flow);
        });
        let count = transfer.settings.content_comparers();
        need(transfer, content_comparers.set(count));
        let runners = group(both, commands::LAYER, |side, transfer, flow| {
            transfer.run_commands(side, flow);
        });
        let filters = group(both, filter::LAYER, |side, transfer, flow| {
            transfer.run_filters(side, flow);
        });
        if let Some(jobs) = self.filters(transfer) {
            need(transfer, filters.set(jobs));
            // It is set once, here.
            let _ = self.filters.set(filters);
        }
        if let Some(jobs) = self.jobs(transfer) {
            need(transfer, runners.set(jobs));
            // It is set once, here.
            let _ = self.command_runners.set(runners);
        }
        // They are set once, here; a second start has no effect.
        let _ = self.decompressors.set(decompressors);
        let _ = self.writers.set(writers);
        let _ = self.committers.set(committers);
        let _ = self.small_committers.set(small);
        let _ = self.comparers.set(comparers);
        let _ = self.content_comparers.set(content_comparers);
    }

    fn stop(&self) {
        self.arrived.close();
        self.verified.close();
        self.listed.close();
        self.to_read.close();
        self.commands.close();
        self.filtering.close();
        let join = |groups: &[&OnceLock<FlowGroup>]| {
            for group in groups.iter().filter_map(|group| group.get()) {
                group.join();
            }
        };
        join(&[&self.decompressors, &self.writers, &self.filters]);
        // Streams' own threads begin nothing any more.
        self.staging.wait_for_writers();
        // What they wrote is still committed.
        self.staging.close();
        join(&[&self.small_committers, &self.committers]);
        join(&[&self.comparers, &self.content_comparers]);
        join(&[&self.command_runners]);
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn set_flows(&self, flows: Flows) {
        if let (Some(count), Some(group)) = (flows.decompressors, self.decompressors.get()) {
            // Where there are no threads for more, fewer go on.
            let _ = group.set((count as usize).max(1));
        }
        if let (Some(count), Some(group)) = (flows.writers, self.writers.get()) {
            let _ = group.set((count as usize).max(1));
        }
        if let (Some(count), Some(group)) = (flows.committers, self.committers.get()) {
            // The one of small files is not changed, where it counts as one of them.
            let small = self
                .committers_of_small_files()
                .map_or(0, |small| small.flows);
            let _ = group.set((count as usize).saturating_sub(small).max(1));
        }
        self.arrived.wake();
        self.verified.wake();
    }

    fn layers(&self, transfer: &Transfer) -> Vec<LayerUse> {
        let open = transfer.wire_use("open");
        let usage = |group: &FlowGroup| {
            if transfer.is_paired() {
                group.usage_of(open.flows)
            } else {
                group.usage()
            }
        };
        let of_blocks = [&self.decompressors, &self.writers].into_iter();
        let mut layers: Vec<LayerUse> = of_blocks
            .filter_map(|group| group.get().map(usage))
            .filter(|usage| usage.busy > 0 || !transfer.is_paired())
            .collect();
        let commits = self.committers.get();
        layers.extend(commits.map(FlowGroup::usage));
        let small = self.committers_of_small_files();
        if let (Some(commit), Some(small)) =
            (layers.last_mut().filter(|_| commits.is_some()), small)
        {
            // One layer; whichever kind of file keeps it busier is what counts.
            commit.flows += small.flows;
            commit.busy += small.busy;
            commit.utilisation = commit.utilisation.max(small.utilisation);
        }
        layers.push(open);
        let commands = [&self.command_runners, &self.filters].into_iter();
        layers.extend(commands.filter_map(|group| group.get().map(FlowGroup::usage)));
        layers
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
        self.take_checksums(transfer, name, checksums)
    }

    fn read_block(
        &self,
        transfer: &Arc<Transfer>,
        stream: StreamId,
        block: (BlockHeader, usize),
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop> {
        self.open_block(transfer, stream, block, reader)
    }
}
