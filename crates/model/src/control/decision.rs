//! What the controller says, with the reason in words.

use std::fmt;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use super::measure::Bound;
use crate::response::Congestion;

/// What a transfer should use from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Streams; at least 1.
    pub streams: u32,
    /// The congestion control of live and future streams; none leaves the
    /// kernel's.
    pub congestion: Option<Congestion>,
    /// Bytes per second that one stream may send at most; none without bound.
    pub pace: Option<f64>,
    /// Bytes that a stream's kernel may hold unsent.
    pub unsent: ByteCount,
    /// Why.
    pub reason: Reason,
}

/// Why something was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Nothing was measured yet but the handshake's round trip.
    Start {
        /// It.
        rtt: Duration,
    },
    /// More streams are tried.
    Try {
        /// What binds.
        bound: Bound,
        /// Rate so far in bytes per second.
        bytes_per_second: f64,
        /// Part of the segments lost.
        loss: f64,
    },
    /// More streams had helped less than they are.
    Settle {
        /// Rates before and with them in bytes per second.
        before: f64,
        /// As above.
        after: f64,
    },
    /// Packets take a longer way, and new streams find sooner than old ones what it carries.
    Reroute {
        /// The round trip now.
        rtt: Duration,
        /// Rate so far in bytes per second.
        bytes_per_second: f64,
    },
    /// The path is full with fewer, too.
    GiveBack {
        /// Rate in bytes per second.
        bytes_per_second: f64,
    },
    /// A slow path has room for a few streams, more or fewer than before.
    Fit {
        /// Rate in bytes per second.
        bytes_per_second: f64,
    },
    /// Another congestion control is tried.
    Switch {
        /// To which.
        to: Congestion,
        /// Part of the segments lost.
        loss: f64,
    },
    /// It carried less than the one before.
    SwitchBack {
        /// To which.
        to: Congestion,
    },
    /// Others use the path, and this transfer yields.
    Yield {
        /// Bytes per second of all streams from now on.
        bytes_per_second: f64,
    },
    /// The path has room again.
    Resume {
        /// Bytes per second of all streams from now on.
        bytes_per_second: f64,
    },
}

fn rate(bytes_per_second: f64) -> BitRate {
    let bytes = ByteCount(bytes_per_second.max(0.0) as u64);
    BitRate::from_transfer(bytes, Duration::from_secs(1))
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Start { rtt } => {
                write!(f, "the round trip is {:.1} ms", rtt.as_secs_f64() * 1e3)
            }
            Reason::Try {
                bound,
                bytes_per_second,
                loss,
            } => {
                write!(f, "{} at {}", bound, rate(*bytes_per_second))?;
                if *bound == Bound::Loss {
                    write!(f, " ({loss:.1e} lost)")
                } else {
                    Ok(())
                }
            }
            Reason::Settle { before, after } => {
                write!(f, "{} became {}", rate(*before), rate(*after))
            }
            Reason::Reroute {
                rtt,
                bytes_per_second,
            } => {
                let (rtt, rate) = (rtt.as_secs_f64() * 1e3, rate(*bytes_per_second));
                write!(f, "the way became longer ({rtt:.1} ms) at {rate}")
            }
            Reason::GiveBack { bytes_per_second } => {
                write!(f, "the path is always full at {}", rate(*bytes_per_second))
            }
            Reason::Fit { bytes_per_second } => {
                write!(
                    f,
                    "as many as {} have segments for",
                    rate(*bytes_per_second)
                )
            }
            Reason::Switch { to, loss } if *loss <= 0.0 => {
                write!(
                    f,
                    "something was lost before a queue was seen: {to} is tried"
                )
            }
            Reason::Switch { to, loss } => {
                write!(f, "{loss:.1e} is lost without a queue: {to} is tried")
            }
            Reason::SwitchBack { to } => write!(f, "{to} carried more"),
            Reason::Yield { bytes_per_second } => {
                write!(f, "others use the path: {}", rate(*bytes_per_second))
            }
            Reason::Resume { bytes_per_second } => {
                write!(f, "the path has room: {}", rate(*bytes_per_second))
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Silence => "nothing moves",
            Bound::Supply => "streams wait for data",
            Bound::Processor => "a host's cores are busy",
            Bound::Receiver => "the receiving end is busy",
            Bound::Path => "the path is full",
            Bound::Growth => "windows still grow",
            Bound::ReceiveBuffer => "windows end at the receive buffer",
            Bound::SendBuffer => "windows end at the send buffer",
            Bound::Loss => "loss keeps windows small",
            Bound::Window => "windows are smaller than the path",
        })
    }
}
