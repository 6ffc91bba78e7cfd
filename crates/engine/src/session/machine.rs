//! The state machine of this end: a sender or a receiver.
//!
//! Only this module tells the two apart. The session uses the methods that both have; [`Machine`]
//! gives the rest to the code of one end, which is `None` at the other end.

use longhaul_proto::account::Account;
use longhaul_proto::filter::LeftOut;
use longhaul_proto::message::{Message, Totals};
use longhaul_proto::notice::Notice;
use longhaul_proto::receiver::Receiver;
use longhaul_proto::sender::Sender;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::entry_events::{from_receiver, from_sender};
use super::{Event, SessionError};

/// State machine of this end.
pub(crate) struct Machine(End);

enum End {
    Sending(Box<Sender>),
    Receiving(Box<Receiver>),
}

impl Machine {
    pub fn sending(sender: Sender) -> Machine {
        Machine(End::Sending(Box::new(sender)))
    }

    pub fn receiving(receiver: Receiver) -> Machine {
        Machine(End::Receiving(Box::new(receiver)))
    }

    /// True if this end sends.
    pub fn is_sending(&self) -> bool {
        matches!(self.0, End::Sending(_))
    }

    /// Returns the state machine of an end that sends.
    pub fn sender(&self) -> Option<&Sender> {
        match &self.0 {
            End::Sending(sender) => Some(sender),
            End::Receiving(_) => None,
        }
    }

    /// Returns the state machine of an end that sends.
    pub fn sender_mut(&mut self) -> Option<&mut Sender> {
        match &mut self.0 {
            End::Sending(sender) => Some(sender),
            End::Receiving(_) => None,
        }
    }

    /// Returns the state machine of an end that receives.
    pub fn receiver(&self) -> Option<&Receiver> {
        match &self.0 {
            End::Receiving(receiver) => Some(receiver),
            End::Sending(_) => None,
        }
    }

    /// Returns the state machine of an end that receives.
    pub fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        match &mut self.0 {
            End::Receiving(receiver) => Some(receiver),
            End::Sending(_) => None,
        }
    }

    pub fn account(&self) -> Account {
        match &self.0 {
            End::Sending(sender) => sender.account(),
            End::Receiving(receiver) => receiver.files().account(),
        }
    }

    pub fn left_out(&self) -> LeftOut {
        match &self.0 {
            End::Sending(sender) => sender.work().left_out(),
            End::Receiving(receiver) => receiver.left_out(),
        }
    }

    /// Returns the notices about metadata that the destination dropped or refused, once all is
    /// done.
    pub fn notices(&self) -> &[Notice] {
        match &self.0 {
            End::Sending(sender) => sender.notices(),
            End::Receiving(receiver) => receiver.notices(),
        }
    }

    /// Returns the totals, once all is done.
    pub fn totals(&self) -> Option<Totals> {
        match &self.0 {
            End::Sending(sender) => sender.finished(),
            End::Receiving(receiver) => receiver.is_finished().then(|| receiver.totals()),
        }
    }

    /// Returns the bytes of file data that have arrived at the receiver, as far as this end knows.
    pub fn moved_data(&self) -> u64 {
        match &self.0 {
            End::Sending(sender) => sender.account().arrived_bytes,
            End::Receiving(receiver) => receiver.files().account().moved_bytes,
        }
    }

    /// True if the thread that carries messages must send one or must check for free buffers.
    pub fn has_message(&self) -> bool {
        match &self.0 {
            End::Sending(sender) => sender.has_message(),
            End::Receiving(receiver) => receiver.has_message() || !receiver.acks().has_room(),
        }
    }

    /// Returns the next message to the other end.
    pub fn poll_message(&mut self) -> Option<Message> {
        match &mut self.0 {
            End::Sending(sender) => sender.poll_message(),
            End::Receiving(receiver) => receiver.poll_message(),
        }
    }

    /// Handles a message of the other end.
    ///
    /// # Errors
    ///
    /// Fails if the message violates the protocol.
    pub fn handle_message(&mut self, message: Message, now: Moment) -> Result<(), SessionError> {
        match &mut self.0 {
            End::Sending(sender) => sender.handle_message(message, now)?,
            End::Receiving(receiver) => receiver.handle_message(message)?,
        }
        Ok(())
    }

    /// Handles the loss of a stream: its blocks go to other streams.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        match &mut self.0 {
            End::Sending(sender) => sender.handle_stream_down(stream),
            End::Receiving(receiver) => receiver.acks_mut().handle_stream_down(stream),
        }
    }

    /// Returns the results of entries since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match &mut self.0 {
            End::Sending(sender) => {
                while let Some(event) = sender.poll_event() {
                    events.extend(from_sender(event));
                }
            }
            End::Receiving(receiver) => {
                while let Some(event) = receiver.poll_event() {
                    events.extend(from_receiver(event));
                }
            }
        }
        events
    }
}
