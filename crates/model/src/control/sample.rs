//! What the controller receives.

use std::time::Duration;

use longhaul_units::{ByteCount, Moment};

use crate::response::Congestion;

/// A stream as the sending end's kernel sees it (`TCP_INFO`), on one of its
/// paths. Counts are since it began there and never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamSample {
    /// Its number in the session.
    pub stream: u32,
    /// Its path: streams of one share a round trip and a queue. A stream that
    /// has several is there once for each.
    pub path: u32,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// The least round trip seen.
    pub minimum_rtt: Duration,
    /// Bytes in a segment.
    pub segment: u32,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// The other end's receive window in bytes; `None` if the kernel is too old to tell.
    pub send_window: Option<u64>,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Time with data to send.
    pub busy: Duration,
    /// Of that, held up by the other end's window.
    pub window_limited: Duration,
    /// Of that, held up by this end's send buffer.
    pub buffer_limited: Duration,
}

/// Everything that is seen at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// Streams that are open.
    pub streams: Vec<StreamSample>,
    /// What governs the streams' windows; `None` if it is not known.
    pub congestion: Option<Congestion>,
    /// Bytes still to be acknowledged; `None` if it is not known, as while the sources are still
    /// being walked.
    pub remaining: Option<ByteCount>,
    /// Part of its cores' time that the busier host worked since the last sample, 0 to 1; `None`
    /// if it is not known.
    pub processor: Option<f64>,
    /// Part of its flows' time that the busiest layer of the receiving end worked, 0 to 1; `None`
    /// if it is not known.
    pub receiver: Option<f64>,
}
