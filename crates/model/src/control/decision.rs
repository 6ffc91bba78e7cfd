//! Decisions of the controller, with their reasons as text.

use std::fmt;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use super::measure::Bound;
use crate::response::Congestion;

/// The settings of a transfer from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Number of streams, at least 1.
    pub streams: u32,
    /// Congestion control of open and future streams. `None` keeps the kernel's default.
    pub congestion: Option<Congestion>,
    /// Maximum rate of one stream in bytes per second. `None` for no limit.
    pub pace: Option<f64>,
    /// Maximum number of unsent bytes in a stream's kernel buffer.
    pub unsent: ByteCount,
    /// Reason for the decision.
    pub reason: Reason,
}

/// Reasons for a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Only the handshake's round-trip time is known.
    Start {
        /// Round-trip time of the handshake.
        rtt: Duration,
    },
    /// A trial with more streams begins.
    Try {
        /// Bottleneck of the last span.
        bound: Bound,
        /// Rate before the trial in bytes per second.
        bytes_per_second: f64,
        /// Share of segments lost.
        loss: f64,
    },
    /// A trial with more streams ended with a smaller gain than expected, and some are removed.
    Settle {
        /// Rate before the trial in bytes per second.
        before: f64,
        /// Rate with the trial's streams in bytes per second.
        after: f64,
    },
    /// Packets take a longer route, and new streams reach its rate sooner than old ones.
    Reroute {
        /// Round-trip time of the longer route.
        rtt: Duration,
        /// Current rate in bytes per second.
        bytes_per_second: f64,
    },
    /// The path is full, so some streams are removed.
    GiveBack {
        /// Current rate in bytes per second.
        bytes_per_second: f64,
    },
    /// The number of streams is adapted to the segments of a slow path.
    Fit {
        /// Current rate in bytes per second.
        bytes_per_second: f64,
    },
    /// A trial of another congestion control begins.
    Switch {
        /// New congestion control.
        to: Congestion,
        /// Share of segments lost.
        loss: f64,
    },
    /// The new congestion control carried less than the one before, which is restored.
    SwitchBack {
        /// Restored congestion control.
        to: Congestion,
    },
    /// Others use the path, and this transfer yields.
    Yield {
        /// Maximum rate of all streams from now on, in bytes per second.
        bytes_per_second: f64,
    },
    /// The path has room again.
    Resume {
        /// Maximum rate of all streams from now on, in bytes per second.
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
                write!(f, "the route became longer ({rtt:.1} ms) at {rate}")
            }
            Reason::GiveBack { bytes_per_second } => {
                write!(f, "the path is always full at {}", rate(*bytes_per_second))
            }
            Reason::Fit { bytes_per_second } => {
                write!(
                    f,
                    "as many streams as there are segments at {}",
                    rate(*bytes_per_second)
                )
            }
            Reason::Switch { to, loss } if *loss <= 0.0 => {
                write!(f, "data were lost before a queue was seen: trying {to}")
            }
            Reason::Switch { to, loss } => {
                write!(
                    f,
                    "a share of {loss:.1e} is lost without a queue: trying {to}"
                )
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
            Bound::Silence => "no data move",
            Bound::Supply => "streams wait for data",
            Bound::Processor => "a host's cores are busy",
            Bound::Receiver => "the receiving end is busy",
            Bound::Path => "the path is full",
            Bound::Growth => "windows still grow",
            Bound::ReceiveBuffer => "the receive buffer limits the windows",
            Bound::SendBuffer => "the send buffer limits the windows",
            Bound::Loss => "loss keeps windows small",
            Bound::Window => "windows are smaller than the path requires",
        })
    }
}
