//! Delivers messages once and in order, over streams that may fail.
//!
//! Each end numbers its messages and keeps them until the other end acknowledges them. At any time,
//! one stream of the sender's choice carries them. If that stream fails, all unacknowledged
//! messages are sent again on another.

use std::collections::VecDeque;

use minicbor::{Decode, Encode};

use crate::frame::{self, FrameError, FrameKind, HEADER_BYTES, MAXIMUM_BODY_BYTES};
use crate::message::Message;

/// Bytes of unacknowledged messages at which an end stops producing more: four times the maximum
/// message.
pub const OUTBOX_BYTES: usize = 4 * MAXIMUM_BODY_BYTES;

/// Number of received messages after which an acknowledgement is due even without a message.
const ACKNOWLEDGE_EVERY: u64 = 32;

/// The body of a control frame.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Numbered {
    /// Number of the message, from 1; 0 without a message.
    #[n(0)]
    pub number: u64,
    /// Number up to which all messages of the other end have arrived.
    #[n(1)]
    pub received: u64,
    /// Encoded message.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub message: Option<Vec<u8>>,
}

/// One end of the control channel.
#[derive(Debug, Default)]
pub struct ControlChannel {
    /// Number of the last message produced.
    produced: u64,
    /// Number of the last message handed to the current stream.
    handed: u64,
    /// Messages that the other end has not acknowledged. The last one has the number `produced`.
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
    /// Number of the last message received.
    received: u64,
    /// Value of `received` that was last sent to the other end.
    told: u64,
    /// True if the channel moved. The next frame shows the other end the new stream.
    moved: bool,
}

/// Error of the other end that ends the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A number was skipped.
    #[error("control message {got} came where {expected} was due")]
    Gap {
        /// Expected number.
        expected: u64,
        /// Received number.
        got: u64,
    },
    /// The message is unknown to this version.
    #[error("a control message cannot be decoded: {0}")]
    Undecodable(String),
    /// A message was acknowledged that was never sent.
    #[error("control message {got} was acknowledged, only {produced} were sent")]
    Acknowledged {
        /// Acknowledged number.
        got: u64,
        /// Number of messages sent.
        produced: u64,
    },
}

impl ControlChannel {
    /// True if more messages may be produced now.
    pub fn has_room(&self) -> bool {
        self.kept_bytes < OUTBOX_BYTES
    }

    /// Adds a message.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`] if the message exceeds the limits.
    pub fn push(&mut self, message: &Message) -> Result<(), FrameError> {
        let bytes = minicbor::to_vec(message)
            .map_err(|error| FrameError::Undecodable(error.to_string()))?;
        if bytes.len() > MAXIMUM_BODY_BYTES - ACKNOWLEDGEMENT_BYTES {
            return Err(FrameError::TooLong {
                body: bytes.len(),
                payload: 0,
            });
        }
        self.produced += 1;
        self.kept_bytes += bytes.len();
        self.kept.push_back(bytes);
        Ok(())
    }

    /// Returns the next frame for the stream that carries the channel. A frame without a message
    /// acknowledges received messages, if that is due.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`] if the message exceeds the limits.
    pub fn poll_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let acknowledged = self.produced - self.kept.len() as u64;
        let next = usize::try_from(self.handed.saturating_sub(acknowledged)).unwrap_or(usize::MAX);
        let message = self.kept.get(next).cloned();
        if message.is_none() && !self.owes_acknowledgement() {
            return Ok(None);
        }
        self.moved = false;
        if message.is_some() {
            self.handed += 1;
        }
        self.told = self.received;
        let number = if message.is_some() { self.handed } else { 0 };
        let numbered = Numbered {
            number,
            received: self.received,
            message,
        };
        frame::encode(FrameKind::Control, &numbered, 0).map(Some)
    }

    /// True if [`ControlChannel::poll_frame`] returns a frame.
    pub fn has_frame(&self) -> bool {
        !self.is_drained() || self.owes_acknowledgement()
    }

    /// True if an acknowledgement is due, with a message or without.
    fn owes_acknowledgement(&self) -> bool {
        self.moved || self.received >= self.told + ACKNOWLEDGE_EVERY
    }

    /// True if all messages were handed to a stream.
    pub fn is_drained(&self) -> bool {
        self.handed == self.produced
    }

    /// Returns the number of received messages, for [`crate::handshake::Join`].
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Moves the channel to another stream. All unacknowledged messages are sent again there, or at
    /// least an acknowledgement.
    pub fn handle_stream_change(&mut self) {
        self.handed = self.produced - self.kept.len() as u64;
        self.moved = true;
    }

    /// Handles a frame from any stream. Returns its message if it is new.
    ///
    /// # Errors
    ///
    /// [`ControlError`] ends the session.
    pub fn handle_frame(&mut self, frame: Numbered) -> Result<Option<Message>, ControlError> {
        self.handle_acknowledged(frame.received)?;
        let Some(message) = frame.message else {
            return Ok(None);
        };
        if frame.number <= self.received {
            return Ok(None);
        }
        if frame.number != self.received + 1 {
            return Err(ControlError::Gap {
                expected: self.received + 1,
                got: frame.number,
            });
        }
        let message = minicbor::decode(&message)
            .map_err(|error| ControlError::Undecodable(error.to_string()))?;
        self.received = frame.number;
        Ok(Some(message))
    }

    /// Handles the acknowledgement of all messages up to `received`.
    ///
    /// # Errors
    ///
    /// [`ControlError::Acknowledged`] if message `received` was never sent.
    pub fn handle_acknowledged(&mut self, received: u64) -> Result<(), ControlError> {
        if received > self.produced {
            return Err(ControlError::Acknowledged {
                got: received,
                produced: self.produced,
            });
        }
        while self.produced - (self.kept.len() as u64) < received {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |message| message.len());
        }
        self.handed = self.handed.max(received);
        Ok(())
    }
}

/// Maximum bytes of a control frame beyond its message.
const ACKNOWLEDGEMENT_BYTES: usize = HEADER_BYTES + 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(frame: &[u8], to: &mut ControlChannel) -> Option<Message> {
        let header = frame::FrameHeader::parse(frame[..HEADER_BYTES].try_into().unwrap()).unwrap();
        to.handle_frame(header.decode(&frame[HEADER_BYTES..]).unwrap())
            .unwrap()
    }

    #[test]
    fn every_message_arrives_once_and_in_order_when_streams_are_lost() {
        for seed in 0..200_u64 {
            let mut random = longhaul_units::Random::for_purpose(seed, 0);
            let mut random = move |bound: u64| random.below(bound);
            let (mut left, mut right) = (ControlChannel::default(), ControlChannel::default());
            let (mut sent, mut got) = (0, 0);
            let mut wire: VecDeque<Vec<u8>> = VecDeque::new();
            while got < 100 {
                match random(5) {
                    0 if sent < 100 => {
                        left.push(&Message::WantTickets(sent)).unwrap();
                        sent += 1;
                    }
                    1 => {
                        let foretold = left.has_frame();
                        let frame = left.poll_frame().unwrap();
                        assert_eq!(foretold, frame.is_some(), "seed {seed}");
                        wire.extend(frame);
                    }
                    2 => {
                        if let Some(frame) = wire.pop_front()
                            && let Some(message) = deliver(&frame, &mut right)
                        {
                            assert_eq!(message, Message::WantTickets(got), "seed {seed}");
                            got += 1;
                        }
                    }
                    3 => {
                        if let Some(frame) = right.poll_frame().unwrap() {
                            deliver(&frame, &mut left);
                        }
                    }
                    _ if random(10) == 0 => {
                        // A part of the data on its way may arrive late, partly or never.
                        let late = random(wire.len() as u64 + 1) as usize;
                        wire.truncate(late);
                        left.handle_stream_change();
                        right.handle_stream_change();
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn acknowledged_messages_are_forgotten() {
        let (mut left, mut right) = (ControlChannel::default(), ControlChannel::default());
        for index in 0..1000 {
            left.push(&Message::WantTickets(index)).unwrap();
            let frame = left.poll_frame().unwrap().unwrap();
            deliver(&frame, &mut right);
            if let Some(frame) = right.poll_frame().unwrap() {
                deliver(&frame, &mut left);
            }
        }
        assert!(left.kept.len() < 2 * ACKNOWLEDGE_EVERY as usize);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let mut channel = ControlChannel::default();
        let ahead = Numbered {
            number: 2,
            received: 0,
            message: Some(vec![]),
        };
        assert!(matches!(
            channel.handle_frame(ahead),
            Err(ControlError::Gap { .. })
        ));
        let garbled = Numbered {
            number: 1,
            received: 0,
            message: Some(vec![0xff]),
        };
        assert!(matches!(
            channel.handle_frame(garbled),
            Err(ControlError::Undecodable(_))
        ));
        assert!(channel.handle_acknowledged(1).is_err());
    }
}
