//! The input of the controller.

use std::time::Duration;

use longhaul_units::{ByteCount, Moment};

use crate::response::Congestion;

/// The state of a stream on one of its paths, as the sending kernel reports it (`TCP_INFO`).
/// Counters start when the stream opens on the path, and never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamSample {
    /// Number of the stream in the session.
    pub stream: u32,
    /// Number of the path. Streams on one path share a round-trip time and a queue. A stream with
    /// several paths has one sample for each path.
    pub path: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Least round-trip time.
    pub minimum_rtt: Duration,
    /// Size of a segment in bytes.
    pub segment: u32,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Receive window of the other end in bytes. `None` if the kernel is too old to report it.
    pub send_window: Option<u64>,
    /// Number of bytes acknowledged.
    pub acknowledged: u64,
    /// Number of segments retransmitted.
    pub retransmitted: u64,
    /// Time with data to send.
    pub busy: Duration,
    /// Part of `busy` that the other end's window limited.
    pub window_limited: Duration,
    /// Part of `busy` that this end's send buffer limited.
    pub buffer_limited: Duration,
}

/// All observations at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Moment,
    /// Open streams.
    pub streams: Vec<StreamSample>,
    /// Congestion control of the streams. `None` if unknown.
    pub congestion: Option<Congestion>,
    /// Number of bytes not yet acknowledged. `None` if unknown, for example while the sources are
    /// still being listed.
    pub remaining: Option<ByteCount>,
    /// Utilisation of the cores of the busier host since the last sample, 0 to 1. `None` if
    /// unknown.
    pub processor: Option<f64>,
    /// Utilisation of the busiest layer at the receiver, 0 to 1. `None` if unknown.
    pub receiver: Option<f64>,
}
