//! Interfaces of the stages at a session's end: those that send, or those that receive.
//!
//! The stages know the session: its state machine, pools and counters. The session knows only these
//! interfaces of the stages, so it does not import them.

use std::io;
use std::sync::Arc;

use longhaul_net::{StreamReader, StreamWriter};
use longhaul_proto::block::{BlockHeader, ContentName};
use longhaul_proto::coding::CodecUse;
use longhaul_proto::digest::Checksum;
use longhaul_proto::message::{Flows, Message};
use longhaul_proto::sender::ReadJob;
use longhaul_proto::session::StreamId;
use longhaul_system::limits::thread_refusal;
use longhaul_system::seats::Seat;

use super::streams::reading::Stop;
use super::{SessionError, Transfer};
use crate::codec::coder::Coder;
use crate::flows::{Flow, FlowGroup, LayerUse};
use crate::pool::Buffer;

/// A block that is ready to be sent.
pub(crate) trait WireBlock: Send {
    /// Returns the bytes of its frame's header and body.
    fn frame_bytes(&self) -> usize;

    /// Returns the bytes of holes in its files.
    fn hole_bytes(&self) -> u64;

    /// Returns the bytes of payload after the frame.
    fn payload_bytes(&self) -> usize;

    /// Returns the bytes of payload that were read while being sent, so far.
    fn late_bytes(&self) -> usize;

    /// Sends a range of the frame, then one of the payload, each given as offset and length.
    /// Successive calls send successive ranges. `room` is a buffer for reuse.
    ///
    /// # Errors
    ///
    /// Errors of the socket or of the file.
    fn send(
        &mut self,
        writer: &mut dyn StreamWriter,
        frame: (usize, usize),
        payload: (usize, usize),
        room: &mut Vec<u8>,
    ) -> io::Result<()>;
}

/// Stages of an end.
pub(crate) trait Stages: Send + Sync {
    /// Starts the flows of the stages.
    fn start(self: Arc<Self>, transfer: &Arc<Transfer>);

    /// Stops the flows after their current work.
    fn stop(&self);

    /// Returns their seat among the sessions of this process.
    fn seat(&self) -> &Seat;

    /// Sets the number of flows of each layer.
    fn set_flows(&self, flows: Flows);

    /// Returns the utilisation of the layers.
    fn layers(&self, transfer: &Transfer) -> Vec<LayerUse>;

    /// True if a file was actually read or written with direct I/O.
    fn is_direct(&self) -> bool;

    /// Returns the statistics of the codecs.
    fn codec_uses(&self) -> Vec<CodecUse>;
}

/// Stages of an end that sends.
pub(crate) trait SendingStages: Stages {
    /// Records if the other end has every codec.
    fn handle_any_codec(&self, is_taken: bool);

    /// Shows the state of the transfer to the stage that chooses codecs. Called ten times a second.
    fn look_for_codecs(&self, transfer: &Transfer);

    /// Adapts the number of readers to their work; true if there are now too many.
    fn adapt_flows(&self) -> bool;

    /// Reads and encodes a block on a stream's own thread; returns the block that the stream sends
    /// next.
    fn read_for(
        &self,
        transfer: &Transfer,
        stream: StreamId,
        read: (ReadJob, Buffer),
        coder: &mut Option<Coder>,
    ) -> Option<Box<dyn WireBlock>>;
}

/// Stages of an end that receives.
pub(crate) trait ReceivingStages: Stages {
    /// Releases all locks, once the flows have ended.
    fn leave(&self);

    /// True if the other end sent entries that this end did not request.
    fn came_unasked(&self) -> bool;

    /// Checks a message before the state machine gets it.
    ///
    /// # Errors
    ///
    /// Fails if the message contains entries that this end did not request.
    fn check_message(&self, message: &Message) -> Result<(), SessionError>;

    /// Stores the checksums of a block on a stream in clear; false if there are more than allowed.
    fn handle_checksums(
        &self,
        transfer: &Transfer,
        name: ContentName,
        checksums: Vec<Option<Checksum>>,
    ) -> bool;

    /// Reads a block from a stream. `block` is its header, already received, and the bytes of its
    /// payload.
    ///
    /// # Errors
    ///
    /// Returns why the stream, or the session, ends.
    fn read_block(
        &self,
        transfer: &Transfer,
        stream: StreamId,
        block: (BlockHeader, usize),
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop>;
}

/// Stages of this end, for sending or for receiving.
pub(crate) enum Side {
    Sending(Arc<dyn SendingStages>),
    Receiving(Arc<dyn ReceivingStages>),
}

impl Side {
    /// Returns the interface common to both kinds.
    pub fn stages(&self) -> &dyn Stages {
        match self {
            Side::Sending(stages) => &**stages,
            Side::Receiving(stages) => &**stages,
        }
    }

    /// Returns their seat among the sessions of this process.
    pub fn seat(&self) -> &Seat {
        self.stages().seat()
    }

    /// Starts the flows of the stages.
    pub fn start(&self, transfer: &Arc<Transfer>) {
        match self {
            Side::Sending(stages) => Arc::clone(stages).start(transfer),
            Side::Receiving(stages) => Arc::clone(stages).start(transfer),
        }
    }
}

/// Ends the session if a layer has no thread; without it the transfer would stall.
pub(crate) fn need(transfer: &Transfer, started: io::Result<()>) {
    if let Err(error) = started {
        transfer.fail_here(&thread_refusal(&error));
    }
}

/// Creates the flows of a layer, which keep neither the stages nor the transfer alive.
pub(crate) fn group<S: Send + Sync + 'static>(
    (stages, transfer): (&Arc<S>, &Arc<Transfer>),
    layer: &'static str,
    run: fn(&S, &Arc<Transfer>, &Flow),
) -> FlowGroup {
    let (stages, transfer) = (Arc::downgrade(stages), Arc::downgrade(transfer));
    FlowGroup::new(
        layer,
        Arc::new(move |flow: &Flow| {
            if let (Some(stages), Some(transfer)) = (stages.upgrade(), transfer.upgrade()) {
                run(&stages, &transfer, flow);
            }
        }),
    )
}
