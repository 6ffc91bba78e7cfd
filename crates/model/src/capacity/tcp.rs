//! Rates of TCP streams on a path, limited by window, loss and NIC, and the duration of a finite
//! transfer.

use std::time::Duration;

use super::finite::{self, Stream};
use crate::response::{Congestion, mean_window};

/// Bytes in flight that the kernels allow one stream. Infinite if there is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Expected window, used to predict rates.
    pub likely: f64,
    /// Guaranteed window, used to choose the number of streams. Not greater than `likely`.
    pub least: f64,
}

impl Window {
    /// Creates a window whose size is known exactly.
    pub const fn of(bytes: f64) -> Window {
        Window {
            likely: bytes,
            least: bytes,
        }
    }

    /// Multiplies both values by a factor greater than zero.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Window {
        Window {
            likely: self.likely * factor,
            least: self.least * factor,
        }
    }
}

/// The capacity of TCP streams with one congestion control over one path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathCapacity {
    /// Rate of TCP payload that the path carries, in bytes per second: 0.9415 of the line rate at
    /// an MTU of 1500.
    pub path: f64,
    /// Rate of TCP payload that the NIC carries, in bytes per second. Infinite if another node
    /// represents the NIC.
    pub nic: f64,
    /// Least round-trip time.
    pub rtt: Duration,
    /// Window of one stream.
    pub window: Window,
    /// Share of segments lost independently of the rate, 0 to 1.
    pub loss: f64,
    /// Payload of a segment in bytes.
    pub segment: f64,
    /// Congestion control of the streams.
    pub congestion: Congestion,
}

/// Maximum loss at which BBR reaches the capacity. BBR's second version treats a loss above 2 % as
/// congestion. The first version ignores loss, and retransmits about as much as is lost (Cardwell
/// et al., "BBR congestion-based congestion control", 2016; draft-ietf-ccwg-bbr, section 2.7).
pub const BBR_LOSS_LIMIT: f64 = 0.02;

/// Bytes of headers in a packet: IP, TCP and its usual options.
pub const PACKET_HEADERS: u32 = 52;

/// Bytes that Ethernet adds to a packet: header, checksum, preamble and gap.
const ETHERNET_OVERHEAD: f64 = 38.0;

/// Share of TCP payload on a line at an MTU of 1500: 1448 of 1538 bytes.
pub const USUAL_FRAMING: f64 = 1448.0 / 1538.0;

/// Duration of H-TCP's linear growth after a loss, in seconds (Leith and Shorten, "H-TCP", 2004).
const HTCP_LINEAR_SECONDS: f64 = 1.0;

/// Product of Scalable TCP's mean window in segments and the loss p. Scalable TCP adds a fixed
/// share of its window per round trip and keeps 7/8 after a loss (Kelly, "Scalable TCP", 2003): its
/// mean window is 0.08 / p.
const SCALABLE_WINDOW: f64 = 0.08;

/// Returns the share of TCP payload on a line for segments of this size in bytes: 0.9415 at an MTU
/// of 1500.
pub fn framing_of(segment: f64) -> f64 {
    segment / (segment + f64::from(PACKET_HEADERS) + ETHERNET_OVERHEAD)
}

impl PathCapacity {
    /// Returns the rate of `streams` streams in bytes per second: paper 000, Eq. 1 (with windows
    /// instead of buffers), and paper 004, Eq. 6, with the law of loss of the congestion control.
    /// Zero for zero streams.
    ///
    /// Valid for random loss, and for streams that share the path evenly. Does not include loss
    /// that the streams cause themselves.
    pub fn at(&self, streams: u32) -> f64 {
        if streams == 0 {
            return 0.0;
        }
        let one = self.of_one_stream();
        self.most().min(f64::from(streams) * one)
    }

    /// Returns the share of TCP payload on the path's line: 0.9415 at an MTU of 1500.
    pub fn framing(&self) -> f64 {
        framing_of(self.segment)
    }

    /// Returns the path with the guaranteed windows as expected windows.
    pub fn surely(&self) -> PathCapacity {
        PathCapacity {
            window: Window::of(self.window.least),
            ..self.clone()
        }
    }

    /// Returns the rate of any number of streams in bytes per second: the limit of path and NIC,
    /// minus retransmissions.
    pub fn most(&self) -> f64 {
        self.path.min(self.nic) * (1.0 - self.loss).max(0.0)
    }

    /// Returns the rate in bytes per second that the window of one stream allows, independent of
    /// the path's rate.
    pub fn of_one_stream(&self) -> f64 {
        let seconds = self.rtt.as_secs_f64();
        if seconds <= 0.0 {
            return f64::INFINITY;
        }
        let lossy = self
            .lossy_window()
            .map_or(f64::INFINITY, |window| window * self.segment);
        self.window.likely.min(lossy) / seconds
    }

    /// Returns the mean window under loss, in segments. Returns `None` if loss does not limit the
    /// window.
    fn lossy_window(&self) -> Option<f64> {
        if self.loss <= 0.0 {
            return None;
        }
        let name = self.congestion.name().to_owned();
        match name.as_str() {
            "bbr" if self.loss <= BBR_LOSS_LIMIT => None,
            // There is no published law for BBR above the limit, so the least of the laws is used.
            "bbr" => mean_window(&Congestion::Reno, self.loss, self.rtt),
            "htcp" => Some(htcp_window(self.loss, self.rtt.as_secs_f64())),
            "scalable" => Some(SCALABLE_WINDOW / self.loss),
            _ => mean_window(&self.congestion, self.loss, self.rtt),
        }
    }

    /// Returns the number of streams that reach `rate`, at least 1.
    pub fn streams_for(&self, rate: f64) -> u32 {
        let one = self.of_one_stream();
        if one >= rate || one <= 0.0 {
            return 1;
        }
        (rate / one).ceil().min(f64::from(u32::MAX)) as u32
    }

    /// Returns the time in seconds from a transfer's first byte on: slow start from `first_window`
    /// bytes for each stream, doubling every round trip, then the full rate. Paper 000's section 5
    /// leaves this open. The ramp follows Padhye et al. (1998), section on short flows, without
    /// loss.
    pub fn seconds_for(&self, bytes: f64, streams: u32, first_window: f64) -> f64 {
        let rate = self.at(streams);
        if rate <= 0.0 {
            return f64::INFINITY;
        }
        bytes / rate + self.ramp_seconds(rate, bytes, first_window * f64::from(streams))
    }

    /// True if loss limits the rate of this number of streams, and neither the path nor the
    /// kernels' windows do.
    pub fn is_limited_by_loss(&self, streams: u32) -> bool {
        let one = self.of_one_stream();
        let windows = f64::from(streams) * one;
        let is_lossy = self.lossy_window().is_some();
        is_lossy && one < self.window.likely / self.rtt.as_secs_f64() && windows < self.most()
    }

    /// Returns the time in seconds from a transfer's first byte on if loss limits it and other
    /// limits allow at most `most` bytes per second. At the start, windows are larger than loss
    /// allows in the long run. Returns `None` if another limit applies or the congestion control
    /// cannot be simulated.
    pub fn lossy_seconds(
        &self,
        bytes: f64,
        streams: u32,
        first_window: f64,
        most: f64,
    ) -> Option<f64> {
        if !self.is_limited_by_loss(streams) || !finite::is_known(&self.congestion) {
            return None;
        }
        let (rtt, flows) = (self.rtt.as_secs_f64(), f64::from(streams));
        let part = most.min(self.most()) / flows * rtt;
        let stream = Stream {
            rtt,
            loss: self.loss,
            first_window: first_window / self.segment,
            most: part.min(self.window.likely) / self.segment,
            law: self.of_one_stream() / self.segment,
            is_cubic: self.congestion == Congestion::Cubic,
        };
        Some(finite::seconds_for(&stream, bytes / flows / self.segment))
    }

    /// Returns the time in seconds that slow start loses in a transfer of `bytes`, compared with a
    /// constant `rate` in bytes per second. Slow start begins with `first_window` bytes of all
    /// streams together and doubles every round trip.
    pub fn ramp_seconds(&self, rate: f64, bytes: f64, first_window: f64) -> f64 {
        let seconds = self.rtt.as_secs_f64();
        let (mut left, mut spent, mut window) = (bytes, 0.0, first_window);
        if rate <= 0.0 || !rate.is_finite() || window <= 0.0 {
            return 0.0;
        }
        // Each round trip carries one window, until the windows reach the rate.
        while seconds > 0.0 && window < rate * seconds && left > window {
            left -= window;
            spent += seconds;
            window *= 2.0;
        }
        spent - (bytes - left) / rate
    }
}

/// Returns the mean window of H-TCP in segments at a random loss. A time Δ in seconds after a loss,
/// the window grows by 1 + 10(Δ-1) + (Δ-1)²/4 segments per round trip (draft-leith-tcp-htcp-06,
/// section 3), and a loss halves it. This integrates the growth over the time between two losses.
/// Not tested against a kernel: no kernel tried so far has H-TCP.
fn htcp_window(loss: f64, rtt: f64) -> f64 {
    let reno = (1.5 / loss).sqrt();
    if rtt <= 0.0 {
        return reno;
    }
    // Number of segments between two losses, for a sawtooth from w/2 to w over `span` seconds.
    let sent = |window: f64, span: f64| 0.75 * window * span / rtt;
    let growth = |span: f64| {
        let beyond = (span - HTCP_LINEAR_SECONDS).max(0.0);
        let linear = span / rtt;
        linear + (5.0 * beyond.powi(2) + beyond.powi(3) / 12.0) / rtt
    };
    // Finds the time in which the window grows by half of its final size while 1/p segments are
    // sent.
    let (mut low, mut high) = (rtt, 1e6);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if sent(2.0 * growth(middle), middle) > 1.0 / loss {
            high = middle;
        } else {
            low = middle;
        }
    }
    (1.5 * growth(low)).max(reno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathCapacity {
        PathCapacity {
            path: 0.9415e9 / 8.0,
            nic: f64::INFINITY,
            rtt: Duration::from_millis(100),
            window: Window::of(2.9e6),
            loss: 0.0,
            segment: 1448.0,
            congestion: Congestion::Cubic,
        }
    }

    #[test]
    fn windows_limit_the_rate_of_few_streams() {
        let path = path();
        assert!((path.at(1) - 29e6).abs() < 1.0);
        assert!((path.at(4) - 116e6).abs() < 1.0);
        assert_eq!(path.at(5), path.most());
        assert_eq!(path.streams_for(path.most()), 5);
        assert_eq!(path.at(0), 0.0);
    }

    #[test]
    fn the_limit_by_loss_depends_on_the_congestion_control() {
        let with = |name: &str| PathCapacity {
            loss: 1e-4,
            congestion: Congestion::of_name(name),
            ..path()
        };
        // Mathis: 1448 / 0.1 s × √(1.5 / 1e-4) = 1.77 MB/s.
        assert!((with("reno").at(1) / 1.773e6 - 1.0).abs() < 0.01);
        assert!((40..50).contains(&with("cubic").streams_for(path().most())));
        assert_eq!(
            with("bbr").streams_for(path().most()),
            5,
            "the window alone binds"
        );
        // Scalable TCP: the window is 0.08 / 1e-4 = 800 segments.
        assert!((with("scalable").at(1) / 11.58e6 - 1.0).abs() < 0.01);
        let htcp = with("htcp").at(1);
        assert!(
            htcp > with("reno").at(1) && htcp < with("scalable").at(1),
            "{htcp}"
        );
    }

    #[test]
    fn bbr_does_not_ignore_heavy_loss() {
        let heavy = PathCapacity {
            loss: 0.05,
            congestion: Congestion::Bbr,
            ..path()
        };
        assert!(heavy.at(1) < 0.1e6, "{}", heavy.at(1));
    }

    #[test]
    fn slow_start_dominates_a_short_transfer() {
        let path = path();
        let first = 10.0 * 1448.0;
        // One window needs less than a round trip at the full rate.
        assert!(path.seconds_for(first, 1, first) < 0.1);
        // 11.8 MB are in flight: nine doublings of the first windows of the streams.
        let long = path.seconds_for(10e9, 5, first);
        let ideal = 10e9 / path.most();
        assert!(long > ideal && long < ideal + 1.0, "{long} {ideal}");
        assert!(path.seconds_for(1e6, 0, first).is_infinite());
    }
}
