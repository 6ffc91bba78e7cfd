//! Simulated streams. Each direction has a bounded buffer, a rate and a latency, and keeps the
//! order.

use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

/// An end of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Sender,
    Receiver,
}

impl End {
    pub fn other(self) -> End {
        match self {
            End::Sender => End::Receiver,
            End::Receiver => End::Sender,
        }
    }

    pub fn index(self) -> usize {
        self as usize
    }
}

/// Properties of a stream, equal in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bytes per second.
    pub rate: f64,
    /// One-way latency.
    pub latency: Duration,
    /// Maximum number of bytes that an end has written and the link has not taken.
    pub buffer: usize,
    /// Time after which no data moves, without notice to either end.
    pub stalls: Option<Moment>,
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub enum Frame {
    Handshake(Vec<u8>),
    Control(Vec<u8>),
    Block {
        /// Encoded header, with the frame's header.
        header: Vec<u8>,
        payload: Vec<u8>,
        /// True if the payload cannot be decoded.
        undecodable: bool,
    },
}

impl Frame {
    pub fn bytes(&self) -> usize {
        match self {
            Frame::Handshake(bytes) | Frame::Control(bytes) => bytes.len(),
            Frame::Block {
                header, payload, ..
            } => header.len() + payload.len(),
        }
    }
}

#[derive(Debug, Default)]
struct Pipe {
    free_at: Moment,
    buffered: usize,
    flying: usize,
    /// Number of frames that have not left, because the link stands still or earlier frames wait.
    unsent: usize,
    /// Time at which the other end read the last frame.
    read_at: Moment,
}

/// A stream, from its dialing to its end.
#[derive(Debug)]
pub struct Conn {
    pub id: StreamId,
    pub epoch: u64,
    pub link: Link,
    /// True for each end at which the stream joined.
    pub up: [bool; 2],
    pub dead: bool,
    /// Number of frames that still arrive after the stream's death, by direction.
    pub passes: [usize; 2],
    /// Number of bytes written, by writing end.
    pub written: [u64; 2],
    pipes: [Pipe; 2],
}

impl Conn {
    pub fn new(id: StreamId, epoch: u64, link: Link) -> Conn {
        Conn {
            id,
            epoch,
            link,
            up: [false; 2],
            dead: false,
            passes: [0; 2],
            written: [0; 2],
            pipes: [Pipe::default(), Pipe::default()],
        }
    }

    /// True if an end may write.
    pub fn has_room(&self, from: End) -> bool {
        self.pipes[from.index()].buffered < self.link.buffer
    }

    /// Writes bytes that take `pace` times as long as the rate implies. `reading` is the delay
    /// until the other end's process reads them. Returns the times at which they have left and are
    /// read; `None` if that never happens.
    pub fn write(
        &mut self,
        from: End,
        bytes: usize,
        now: Moment,
        (pace, reading): (f64, Duration),
    ) -> Option<(Moment, Moment)> {
        self.written[from.index()] += bytes as u64;
        let pipe = &mut self.pipes[from.index()];
        pipe.buffered += bytes;
        let span = Duration::from_secs_f64(pace * bytes as f64 / self.link.rate);
        pipe.free_at = pipe.free_at.max(now) + span;
        let moves = !self.dead && self.link.stalls.is_none_or(|stalls| pipe.free_at <= stalls);
        pipe.unsent += 1;
        if !moves {
            return None;
        }
        pipe.flying += 1;
        pipe.read_at = pipe.read_at.max(pipe.free_at + self.link.latency) + reading;
        Some((pipe.free_at, pipe.read_at))
    }

    /// True if bytes of an end have not left, as its kernel knows. Bytes that have left arrive
    /// within the latency.
    pub fn has_unsent(&self, from: End) -> bool {
        self.pipes[from.index()].unsent > 0
    }

    pub fn left(&mut self, from: End, bytes: usize) {
        let pipe = &mut self.pipes[from.index()];
        pipe.buffered -= bytes;
        pipe.unsent -= 1;
    }

    /// Delivers a frame. Returns false if it was lost.
    pub fn arrive(&mut self, to: End) -> bool {
        let from = to.other().index();
        self.pipes[from].flying -= 1;
        if !self.dead {
            return true;
        }
        let passes = self.passes[from] > 0;
        self.passes[from] = self.passes[from].saturating_sub(1);
        passes
    }

    /// Kills the stream. `keep` maps the number of frames under way to the number that arrive.
    pub fn die(&mut self, mut keep: impl FnMut(usize) -> usize) {
        self.dead = true;
        for end in 0..2 {
            self.passes[end] = keep(self.pipes[end].flying);
        }
    }
}
