//! Dials, joins and loses streams, and moves the control channel between them.

use longhaul_proto::control::Numbered;
use longhaul_proto::frame::{self, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_proto::handshake::{
    Answer, Capability, Hello, Join, Joined, PROTOCOL_VERSION, Purpose, Secret, SessionId,
};
use longhaul_proto::message::Message;
use longhaul_proto::session::StreamId;

use super::network::{Conn, End, Frame};
use super::world::{Event, World};

/// Maximum number of messages sent together with the request.
const FIRST_WORDS: usize = 3;

/// Splits an encoded frame and decodes its body.
pub fn decode<'b, T: minicbor::Decode<'b, ()>>(bytes: &'b [u8]) -> T {
    let header = FrameHeader::parse(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
    header.decode(&bytes[HEADER_BYTES..]).unwrap()
}

impl World {
    /// Returns the live streams of this session.
    pub fn live(&self) -> Vec<usize> {
        let live = |conn: &Conn| conn.epoch == self.epoch && !conn.dead;
        (0..self.conns.len())
            .filter(|&conn| live(&self.conns[conn]))
            .collect()
    }

    fn new_conn(&mut self) -> usize {
        let dialer = self.scenario.dialer.index();
        let id = self.sides[dialer].session.next_stream();
        let links = &self.scenario.links;
        let count = self
            .conns
            .iter()
            .filter(|conn| conn.epoch == self.epoch)
            .count();
        let link = links[count.min(links.len() - 1)];
        self.conns.push(Conn::new(id, self.epoch, link));
        self.conns.len() - 1
    }

    /// Joins all first streams at once.
    pub fn join_all(&mut self) {
        for _ in 0..self.want {
            let conn = self.new_conn();
            self.bring_up(conn, End::Sender);
            self.bring_up(conn, End::Receiver);
        }
    }

    /// Lets the dialer open or close streams until their number is the wanted one.
    pub fn top_up(&mut self) {
        let dialer = self.scenario.dialer.index();
        let up: Vec<usize> = self
            .live()
            .into_iter()
            .filter(|&conn| self.conns[conn].up[dialer])
            .collect();
        // Further streams join with the secret in the answer to the first one.
        let want = if self.welcomed { self.want } else { 1 };
        while up.len() + self.dialing < want {
            self.dialing += 1;
            let first = self.conns.iter().all(|conn| conn.epoch != self.epoch);
            if first {
                self.push(std::time::Duration::ZERO, Event::Dial);
            } else {
                self.push_within(self.scenario.redial, Event::Dial);
            }
        }
        for &conn in up.iter().skip(self.want) {
            // The stream is closed regularly, so that all data under way arrives.
            self.conns[conn].die(|flying| flying);
            self.notice(conn);
        }
    }

    /// Handles a dial. TCP and TLS take a round trip each, then the dialer sends its hello.
    pub fn handle_dial(&mut self) {
        let conn = self.new_conn();
        let latency = self.conns[conn].link.latency;
        self.push(latency * 4, Event::Hello(conn));
    }

    pub fn handle_hello(&mut self, conn: usize) {
        if self.conns[conn].dead {
            return;
        }
        let dialer = self.scenario.dialer;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            software: "simulation".into(),
            capabilities: Capability::ALL.to_vec(),
            purpose: Purpose::Join(Join {
                session: SessionId([1; 16]),
                secret: Secret([2; 32]),
                stream: self.conns[conn].id.0,
                received: self.sides[dialer.index()].control.received(),
            }),
        };
        let bytes = frame::encode(FrameKind::Handshake, &hello, 0).unwrap();
        self.write(conn, dialer, Frame::Handshake(bytes));
        if !self.welcomed {
            self.say_first_words(conn);
        }
    }

    /// Sends the messages that a dialing sender can send with its request, before any answer.
    fn say_first_words(&mut self, conn: usize) {
        self.sending.sender.work_mut().flush_listing();
        for _ in 0..FIRST_WORDS {
            let control = &mut self.sides[End::Sender.index()].control;
            if control.is_drained() {
                let Some(message) = self.sending.sender.poll_message() else {
                    return;
                };
                self.checks.say(&message);
                control.push(&message).unwrap();
            }
            if let Some(frame) = control.poll_frame().unwrap() {
                self.write(conn, End::Sender, Frame::Control(frame));
            }
        }
    }

    /// Writes a frame of an end to a stream.
    pub fn write(&mut self, conn: usize, from: End, frame: Frame) {
        let bytes = frame.bytes();
        if from == End::Sender {
            self.checks.wire.push((self.now, bytes as u64));
        }
        let slower = self.scenario.jitter * self.random.below(1000) as f64 / 1000.0;
        let delay = (1.0 + slower, self.random.span(self.scenario.reading));
        if let Some((left, arrives)) = self.conns[conn].write(from, bytes, self.now, delay) {
            self.push_at(left, Event::Left(conn, from, bytes));
            self.push_at(arrives, Event::Arrive(conn, from.other(), frame));
        }
    }

    pub fn handle_arrive(&mut self, conn: usize, to: End, frame: Frame) {
        if !self.conns[conn].arrive(to) {
            return;
        }
        match frame {
            Frame::Handshake(bytes) => self.handle_handshake(conn, to, &bytes),
            // The dialer reads no messages before the answer to its first frame.
            Frame::Control(_) if to == self.scenario.dialer && !self.welcomed => {}
            Frame::Control(bytes) => {
                let numbered: Numbered = decode(&bytes);
                let bare = numbered.message.is_none();
                let side = &mut self.sides[to.index()];
                let message = side.control.handle_frame(numbered).unwrap();
                // The receiver answers on the stream that the sender uses.
                let news = bare || message.is_some();
                let id = self.conns[conn].id;
                if to == End::Receiver && news && side.session.move_control(id) {
                    side.control.handle_stream_change();
                }
                if let Some(message) = message {
                    self.hear(to, message);
                }
            }
            Frame::Block {
                header,
                payload,
                undecodable,
            } => {
                self.handle_block(self.conns[conn].id, &header, payload, undecodable);
            }
        }
    }

    fn handle_handshake(&mut self, conn: usize, to: End, bytes: &[u8]) {
        if self.conns[conn].dead {
            return;
        }
        let control = &mut self.sides[to.index()].control;
        if to == self.scenario.dialer {
            let Answer::Joined(joined) = decode(bytes) else {
                panic!("refused")
            };
            control.handle_acknowledged(joined.received).unwrap();
            self.dialing -= 1;
            if !std::mem::replace(&mut self.welcomed, true) {
                let asks = self.asks();
                let large = self.scenario.sender.large_files;
                self.sending.sender.handle_welcome(asks, self.epoch, large);
            }
            self.bring_up(conn, to);
            self.top_up();
            return;
        }
        let Purpose::Join(join) = decode::<Hello>(bytes).purpose else {
            panic!("no join")
        };
        assert_eq!(StreamId(join.stream), self.conns[conn].id);
        control.handle_acknowledged(join.received).unwrap();
        let received = control.received();
        self.bring_up(conn, to);
        let answer = Answer::Joined(Joined { received });
        let bytes = frame::encode(FrameKind::Handshake, &answer, 0).unwrap();
        self.write(conn, to, Frame::Handshake(bytes));
    }

    fn bring_up(&mut self, conn: usize, end: End) {
        let id = self.conns[conn].id;
        assert!(
            self.sides[end.index()].session.handle_stream_up(id),
            "{id:?} was refused"
        );
        self.conns[conn].up[end.index()] = true;
        if end == End::Sender {
            let round_trip = 2 * self.conns[conn].link.latency;
            self.sending.sender.handle_stream_up(id, self.now);
            self.sending
                .sender
                .streams_mut()
                .handle_round_trip(id, round_trip);
        }
    }

    /// Kills a stream. A part of the data under way is lost, and the ends notice one after the
    /// other.
    pub fn kill(&mut self, conn: usize) {
        let random = &mut self.random;
        self.conns[conn].die(|flying| random.below(flying as u64 + 1) as usize);
        self.notice(conn);
    }

    fn notice(&mut self, conn: usize) {
        for end in [End::Sender, End::Receiver] {
            self.push_within(self.scenario.notice, Event::Down(conn, end));
        }
    }

    pub fn handle_down(&mut self, conn: usize, end: End) {
        let id = self.conns[conn].id;
        let was_up = std::mem::take(&mut self.conns[conn].up[end.index()]);
        if was_up {
            let side = &mut self.sides[end.index()];
            if side.session.handle_stream_down(id, self.now) {
                side.control.handle_stream_change();
            }
            if end == End::Sender {
                self.sending.sender.handle_stream_down(id);
            }
        }
        if end == self.scenario.dialer {
            if !was_up && !self.welcomed {
                // The messages that were sent with the request are lost with it.
                self.sides[end.index()].control.handle_stream_change();
            }
            self.dialing -= usize::from(!was_up);
            self.top_up();
        }
    }

    fn hear(&mut self, end: End, message: Message) {
        self.obey(end, &message);
        self.checks.hear(end, &message, &self.sending, &self.disk);
        match end {
            End::Sender => self
                .sending
                .sender
                .handle_message(message, self.now)
                .unwrap(),
            End::Receiver => self.receiving.receiver.handle_message(message).unwrap(),
        }
    }

    /// Writes messages of an end to the stream that carries them.
    pub fn pump_control(&mut self, end: End) {
        loop {
            let side = &mut self.sides[end.index()];
            if !side.control.has_room() {
                break;
            }
            // A driver wakes a thread for messages only if `has_message` is true.
            let (foretold, message) = match end {
                End::Sender => {
                    let sender = &mut self.sending.sender;
                    (sender.has_message(), sender.poll_message())
                }
                End::Receiver => {
                    let receiver = &mut self.receiving.receiver;
                    (receiver.has_message(), receiver.poll_message())
                }
            };
            assert_eq!(foretold, message.is_some(), "{end:?}");
            let Some(message) = message else { break };
            self.checks.say(&message);
            side.control.push(&message).unwrap();
        }
        let side = &mut self.sides[end.index()];
        let Some(mut id) = side.session.control_stream(|_| true) else {
            return;
        };
        if end == End::Sender
            && let Some(better) = self.sending.sender.streams_mut().poll_control(id, self.now)
            && side.session.move_control(better)
        {
            side.control.handle_stream_change();
            id = better;
        }
        let own = |conn: &Conn| conn.epoch == self.epoch && conn.id == id;
        let conn = self.conns.iter().rposition(own).unwrap();
        while self.conns[conn].has_room(end)
            && let Some(bytes) = self.sides[end.index()].control.poll_frame().unwrap()
        {
            self.write(conn, end, Frame::Control(bytes));
        }
    }
}
