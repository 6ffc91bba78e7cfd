//! The thread that reads a stream: it passes messages to the state machine, and blocks to the
//! stages.

use std::io;
use std::sync::atomic::Ordering;

use longhaul_net::StreamReader;
use longhaul_proto::block::{BlockHeader, HeaderKey};
use longhaul_proto::control::Numbered;
use longhaul_proto::frame::{FrameError, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_proto::message::Message;

use super::StreamThread;
use super::dial::Calls;
use crate::session::{Counters, Event, SessionError, Shared, Side};
use crate::session::{memory, observe};

/// Maximum number of streams that end because of corrupt data while no data become durable.
const MOST_DAMAGED: u32 = 64;

/// Error message if more streams were damaged.
const DAMAGED_AGAIN: &str = "what it sends arrives damaged again and again: look for faulty memory \
    or network hardware on the way, or for something that changes connections";

/// Number of streams closed because of corrupt data since the last block became durable.
#[derive(Debug, Default)]
pub(super) struct Damage {
    streams: u32,
    /// Durable bytes and completed entries at that time.
    durable: (u64, u64),
}

impl Damage {
    /// Counts a damaged stream; true if there were too many since the values in `durable` last
    /// changed.
    fn is_hopeless(&mut self, durable: (u64, u64)) -> bool {
        if self.durable != durable {
            *self = Damage {
                streams: 0,
                durable,
            };
        }
        self.streams += 1;
        self.streams > MOST_DAMAGED
    }
}

/// Description of the damage if a message arrives on a stream without messages.
const MESSAGE_IN_CLEAR: &str = "a message came on a stream in clear";

/// Description of the damage if a block's header is not authentic.
pub(crate) const CHANGED_IN_CLEAR: &str = "a block's header was changed on a stream in clear";

/// Reasons why a stream's reader stops.
pub(crate) enum Stop {
    /// The other end closed the stream, or the connection broke. Its blocks go to other streams.
    /// For corrupt data it holds a description.
    Lost(Option<String>),
    /// The other end violated the protocol; the session ends.
    Broken(SessionError),
}

/// Returns the header of a block on a stream in clear if it is authentic. An attacker on the path
/// can only end the stream.
fn proved(key: HeaderKey, decoded: Result<BlockHeader, FrameError>) -> Result<BlockHeader, Stop> {
    let proved = decoded
        .ok()
        .and_then(|mut block| key.check(&mut block).then_some(block));
    proved.ok_or_else(|| Stop::Lost(Some(CHANGED_IN_CLEAR.to_owned())))
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        let damaged = error.kind() == io::ErrorKind::InvalidData;
        Stop::Lost(damaged.then(|| error.to_string()))
    }
}

impl From<FrameError> for Stop {
    /// A stream with corrupt data is lost; its data are sent again on another one.
    fn from(error: FrameError) -> Stop {
        match error {
            FrameError::Unexpected(_) | FrameError::Undecodable(_) => Stop::Broken(error.into()),
            _ => Stop::Lost(Some(error.to_string())),
        }
    }
}

impl StreamThread<'_> {
    pub(super) fn read_stream(&self, mut reader: Box<dyn StreamReader>) {
        let stop = loop {
            if let Err(stop) = self.read_frame(&mut *reader) {
                break stop;
            }
        };
        match stop {
            Stop::Broken(error) => self.transfer.break_off(&error),
            Stop::Lost(Some(error)) => self.handle_damage(error),
            Stop::Lost(None) => self.hear_out(&mut *reader),
        }
        self.handle_stream_lost();
    }

    /// Closes a stream with corrupt data. Ends the session after too many of them, because a path
    /// that damages all data would cost stream after stream.
    fn handle_damage(&self, error: String) {
        let mut shared = self.transfer.lock();
        if shared.lifetime.is_ending() {
            return;
        }
        let account = shared.machine.account();
        let done = self.transfer.counters.done_entries.load(Ordering::Relaxed);
        let hopeless = shared
            .streams
            .damage
            .is_hopeless((account.durable_bytes, done));
        drop(shared);
        self.transfer.report(Event::StreamDamaged {
            stream: self.id.0,
            error,
        });
        if hopeless {
            self.transfer.break_off(&DAMAGED_AGAIN);
        }
    }

    /// True if a stream is in clear and therefore carries no messages.
    fn carries_no_messages(&self) -> bool {
        let shared = self.transfer.lock();
        shared
            .streams
            .slots
            .get(&self.id)
            .is_some_and(|slot| slot.clear)
    }

    fn read_frame(&self, reader: &mut dyn StreamReader) -> Result<(), Stop> {
        let mut bytes = [0; HEADER_BYTES];
        read_exact(reader, &mut bytes)?;
        let header = FrameHeader::parse(&bytes)?;
        let mut body = vec![0; header.body];
        read_exact(reader, &mut body)?;
        Counters::add(
            &self.transfer.counters.wire_bytes,
            (HEADER_BYTES + header.body + header.payload) as u64,
        );
        match header.kind {
            FrameKind::Control => {
                let bytes = HEADER_BYTES + header.body + header.payload;
                Counters::add(&self.transfer.counters.message_bytes, bytes as u64);
                if self.carries_no_messages() {
                    // An attacker on the path may have sent it.
                    return Err(Stop::Lost(Some(MESSAGE_IN_CLEAR.to_owned())));
                }
                let numbered = header.decode(&body)?;
                self.handle_control(numbered).map_err(Stop::Broken)
            }
            FrameKind::Block => {
                let block = match self.transfer.settings.clear {
                    Some(key) => proved(key, header.decode(&body))?,
                    None => header.decode(&body)?,
                };
                match self.transfer.side() {
                    Side::Receiving(side) => {
                        side.read_block(self.transfer, self.id, (block, header.payload), reader)
                    }
                    Side::Sending(_) => {
                        Err(FrameError::Unexpected("a block came to a sender").into())
                    }
                }
            }
            FrameKind::Handshake if self.carries_no_messages() => {
                Err(Stop::Lost(Some(MESSAGE_IN_CLEAR.to_owned())))
            }
            FrameKind::Handshake => {
                Err(FrameError::Unexpected("a handshake within a session").into())
            }
        }
    }

    /// Handles a message about the session rather than its state machine; false for other messages.
    fn handle_session_message(&self, shared: &mut Shared, message: &Message) -> bool {
        match message {
            Message::Observed(observation) => {
                shared
                    .steering
                    .handle_observed(observation, observe::wall_clock());
            }
            Message::Tune(tuning) => {
                // A receiver sends no data whose transmission could be tuned.
                if shared.machine.is_sending() {
                    self.transfer.regulator().limit_as(tuning);
                    shared.steering.tune(tuning.clone(), &shared.streams);
                }
            }
            Message::Goodbye(farewell) => {
                shared.lifetime.handle_goodbye(farewell);
                self.transfer.wake_everybody(shared);
            }
            _ => return false,
        }
        true
    }

    fn handle_control(&self, numbered: Numbered) -> Result<(), SessionError> {
        let mut shared = self.transfer.lock();
        shared.lifetime.note_heard(self.transfer.now());
        // Answers go to the stream on which the questions arrive.
        if !shared.machine.is_sending() && shared.lifetime.move_control(self.id) {
            shared.control.handle_stream_change();
            // There may be no new message, but the earlier messages must be sent again.
            shared.wake_writers();
        }
        let Some(message) = shared.control.handle_frame(numbered)? else {
            // The control channel may have room again for waiting messages.
            if shared.has_message() {
                shared.wake_control();
            }
            return Ok(());
        };
        if self.handle_session_message(&mut shared, &message) {
            return Ok(());
        }
        if let Message::SetFlows(flows) = message {
            drop(shared);
            self.transfer
                .regulator()
                .set_flows(self.transfer.regulator().bounded(flows));
            return Ok(());
        }
        if let Message::WantCalls { count, told } = message {
            drop(shared);
            self.answer_calls(Calls { count, told });
            return Ok(());
        }
        match message {
            Message::Called(calls) => return self.handle_called(calls),
            Message::WantTickets(count) => {
                self.issue_tickets(&mut shared, count);
                return Ok(());
            }
            Message::Tickets(tickets) => {
                shared.streams.tickets.handle_tickets(tickets);
                self.transfer.signals.living.notify_all();
                return Ok(());
            }
            _ => {}
        }
        if let (Message::Checksums { content, checksums }, Side::Receiving(side)) =
            (&message, self.transfer.side())
        {
            drop(shared);
            if !side.handle_checksums(self.transfer, content.clone(), checksums.clone()) {
                return Err(FrameError::Unexpected("too many checksums without blocks").into());
            }
            return Ok(());
        }
        if let Side::Receiving(side) = self.transfer.side() {
            side.check_message(&message)?;
        }
        if matches!(message, Message::Finished(..)) && !shared.is_over() {
            // A goodbye follows.
            drop(shared);
            self.transfer.measurements().observe_at_last();
            shared = self.transfer.lock();
        }
        let now = self.transfer.now();
        shared.machine.handle_message(message, now)?;
        if let Some(receiver) = shared.machine.receiver() {
            memory::check(receiver, self.transfer.side().seat())?;
        }
        self.transfer.settle(shared);
        Ok(())
    }
}

/// Reads all of `buffer`.
pub(crate) fn read_exact(reader: &mut dyn StreamReader, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}
