//! Streams: each direction a bounded buffer, a rate, a latency, in order.

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

/// What a stream is like, both directions alike.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bytes per second.
    pub rate: f64,
    /// One way.
    pub latency: Duration,
    /// Bytes that an end may have written and the link not yet taken.
    pub buffer: usize,
    /// From here on nothing moves, and nobody is told.
    pub stalls: Option<Moment>,
}

/// What travels.
#[derive(Clone, Debug)]
pub enum Frame {
    Handshake(Vec<u8>),
    Control(Vec<u8>),
    Block {
        /// As encoded, with its frame's header.
        header: Vec<u8>,
        payload: Vec<u8>,
        /// The payload cannot be decoded.
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
    /// Frames that have not left: they stand still, or wait for the others.
    unsent: usize,
    /// When the other end read the last frame.
    read_at: Moment,
}

/// A stream, from its dial to its end.
#[derive(Debug)]
pub struct Conn {
    pub id: StreamId,
    pub epoch: u64,
    pub link: Link,
    /// Joined, by end.
    pub up: [bool; 2],
    pub dead: bool,
    /// Frames that still come through after its death, by direction.
    pub passes: [usize; 2],
    /// Bytes that were written, by who wrote them.
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

    /// Whether an end may write.
    pub fn has_room(&self, from: End) -> bool {
        self.pipes[from.index()].buffered < self.link.buffer
    }

    /// An end writes so many bytes, which take `pace` times as long as the rate
    /// says; `reading` is how long the other end's process lets them lie. When
    /// they have left, and when they are read; none where they never are.
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

    /// Whether something that an end wrote has not left, as its kernel knows.
    /// What has left is there within the latency.
    pub fn has_unsent(&self, from: End) -> bool {
        self.pipes[from.index()].unsent > 0
    }

    pub fn left(&mut self, from: End, bytes: usize) {
        let pipe = &mut self.pipes[from.index()];
        pipe.buffered -= bytes;
        pipe.unsent -= 1;
    }

    /// A frame reaches its end; false where it was lost.
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

    /// It dies; `keep` says how many of so many frames under way come through.
    pub fn die(&mut self, mut keep: impl FnMut(usize) -> usize) {
        self.dead = true;
        for end in 0..2 {
            self.passes[end] = keep(self.pipes[end].flying);
        }
    }
}
