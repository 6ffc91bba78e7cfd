//! What a session knows of the stages at its end: those that send, or those that receive.
//!
//! The stages know the session: its machine, its pools, its counters. It knows no more of them
//! than this, so that no import leads from here to them.

use std::io;
use std::sync::Arc;

use longhaul_net::{StreamReader, StreamWriter};
use longhaul_proto::block::{BlockHeader, ContentName};
use longhaul_proto::coding::CodecUse;
use longhaul_proto::digest::Checksum;
use longhaul_proto::message::{Flows, Message};
use longhaul_proto::sender::ReadJob;
use longhaul_proto::session::StreamId;
use longhaul_system::shares::Seat;

use super::streams::Stop;
use super::{SessionError, Transfer};
use crate::codec::coder::Coder;
use crate::flows::{Flow, FlowGroup, LayerUse};
use crate::pool::Buffer;

/// A block that lacks nothing but to be sent.
pub(crate) trait WireBlock: Send {
    /// Bytes of its frame's header and body.
    fn frame_bytes(&self) -> usize;

    /// Bytes of holes in the files of which it is.
    fn hole_bytes(&self) -> u64;

    /// Bytes that follow them.
    fn payload_bytes(&self) -> usize;

    /// Of these, bytes that were read while they were sent, so far.
    fn late_bytes(&self) -> usize;

    /// Sends a range of the frame, then one of the payload, each as its offset and its length.
    /// Ranges come one after the other. `room` is memory to use.
    ///
    /// # Errors
    ///
    /// What the socket says, or the file.
    fn send(
        &mut self,
        writer: &mut dyn StreamWriter,
        frame: (usize, usize),
        payload: (usize, usize),
        room: &mut Vec<u8>,
    ) -> io::Result<()>;
}

/// The stages of an end.
pub(crate) trait Stages: Send + Sync {
    /// Starts their flows.
    fn start(self: Arc<Self>, transfer: &Arc<Transfer>);

    /// Ends the flows; what they have in hand is finished.
    fn stop(&self);

    /// Their seat among the sessions of this process.
    fn seat(&self) -> &Seat;

    /// Sets how many flows each layer has.
    fn set_flows(&self, flows: Flows);

    /// How busy the layers are.
    fn layers(&self, transfer: &Transfer) -> Vec<LayerUse>;

    /// Whether any file was really read or written directly.
    fn is_direct(&self) -> bool;

    /// What codecs did.
    fn codec_uses(&self) -> Vec<CodecUse>;
}

/// Those of an end that sends.
pub(crate) trait SendingStages: Stages {
    /// The other end said whether it has every codec.
    fn handle_any_codec(&self, is_taken: bool);

    /// Shows what is seen of the transfer to who chooses codecs, ten times a second.
    fn look_for_codecs(&self, transfer: &Transfer);

    /// Has as many read as there is work for; gives whether some are too many.
    fn adapt_flows(&self) -> bool;

    /// Reads and encodes on a stream's own thread; gives what that sends next.
    fn read_for(
        &self,
        transfer: &Transfer,
        stream: StreamId,
        read: (ReadJob, Buffer),
        coder: &mut Option<Coder>,
    ) -> Option<Box<dyn WireBlock>>;
}

/// Those of an end that receives.
pub(crate) trait ReceivingStages: Stages {
    /// Lets go of everything that is locked, once the flows have ended.
    fn leave(&self);

    /// Whether the other end sent what was not asked for.
    fn came_unasked(&self) -> bool;

    /// Looks at a message before the state machine gets it.
    ///
    /// # Errors
    ///
    /// Where it brings what was not asked for.
    fn check_message(&self, message: &Message) -> Result<(), SessionError>;

    /// Checksums of a block on a stream in clear; false where there are more than can be.
    fn handle_checksums(
        &self,
        transfer: &Transfer,
        name: ContentName,
        checksums: Vec<Option<Checksum>>,
    ) -> bool;

    /// Reads a block whose header came on a stream, and its bytes of payload.
    ///
    /// # Errors
    ///
    /// Why the stream, or the session, ends.
    fn read_block(
        &self,
        transfer: &Arc<Transfer>,
        stream: StreamId,
        block: (BlockHeader, usize),
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop>;
}

/// What this end does with disks.
pub(crate) enum Side {
    Sending(Arc<dyn SendingStages>),
    Receiving(Arc<dyn ReceivingStages>),
}

impl Side {
    /// What both kinds have.
    pub fn stages(&self) -> &dyn Stages {
        match self {
            Side::Sending(stages) => &**stages,
            Side::Receiving(stages) => &**stages,
        }
    }

    /// Starts the flows.
    pub fn start(&self, transfer: &Arc<Transfer>) {
        match self {
            Side::Sending(stages) => Arc::clone(stages).start(transfer),
            Side::Receiving(stages) => Arc::clone(stages).start(transfer),
        }
    }
}

/// A layer without a flow would have the session stand still.
pub(crate) fn need(transfer: &Transfer, started: io::Result<()>) {
    if let Err(error) = started {
        transfer.lacks_thread(&error);
    }
}

/// A layer's flows, which keep neither the stages nor the transfer alive.
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
