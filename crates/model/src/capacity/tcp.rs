//! TCP streams on a path: what window, loss and NIC allow, and what a finite transfer makes of it.

use std::time::Duration;

use super::finite::{self, Stream};
use crate::response::{Congestion, mean_window};

/// Bytes in flight that one stream's window reaches, as its kernel lets it; infinite where nothing
/// bounds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// What it is likely to reach: by this it is predicted what streams carry.
    pub likely: f64,
    /// What it reaches at least, no more than `likely`: by this a number of streams is chosen.
    pub least: f64,
}

impl Window {
    /// One that nothing bounds.
    pub const UNBOUNDED: Window = Window::of(f64::INFINITY);

    /// One that is known.
    pub const fn of(bytes: f64) -> Window {
        Window {
            likely: bytes,
            least: bytes,
        }
    }

    /// Both times a factor, greater than zero.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Window {
        Window {
            likely: self.likely * factor,
            least: self.least * factor,
        }
    }
}

/// What TCP streams of one congestion control carry over one path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathCapacity {
    /// Bytes of TCP payload per second that the path carries: 0.9415 of the line's rate at MTU
    /// 1500.
    pub path: f64,
    /// The same of the NIC in front of it; infinite where another node stands for it.
    pub nic: f64,
    /// The least round trip.
    pub rtt: Duration,
    /// Bytes in flight of one stream.
    pub window: Window,
    /// The share of segments that is lost whatever is sent, 0 to 1.
    pub loss: f64,
    /// Bytes of payload in a segment.
    pub segment: f64,
    /// What governs the windows.
    pub congestion: Congestion,
}

/// The loss up to which BBR carries the capacity. Its second version takes more than 2 % for
/// congestion. The first one ignores loss, and loses about what it sends twice (Cardwell et al.,
/// "BBR congestion-based congestion control", 2016; draft-ietf-ccwg-bbr, section 2.7).
pub const BBR_LOSS_LIMIT: f64 = 0.02;

/// H-TCP grows linearly at first, for this long after a loss (Leith and Shorten, "H-TCP", 2004).
const HTCP_LINEAR_SECONDS: f64 = 1.0;

/// Scalable TCP adds this share of its window in a round trip, and keeps 7/8 at a loss (Kelly,
/// "Scalable TCP", 2003): its mean window is 0.08 / p.
const SCALABLE_WINDOW: f64 = 0.08;

impl PathCapacity {
    /// Bytes per second of `streams` streams: paper 000, Eq. 1 (windows instead of buffers), and
    /// paper 004, Eq. 6, with the loss law of the congestion control in use. Zero of none.
    ///
    /// Valid for random loss and for streams that share the path evenly. Loss that the streams
    /// cause themselves is no part of it.
    pub fn at(&self, streams: u32) -> f64 {
        if streams == 0 {
            return 0.0;
        }
        let one = self.of_one_stream();
        self.most().min(f64::from(streams) * one)
    }

    /// The same with the least windows.
    pub fn surely(&self) -> PathCapacity {
        PathCapacity {
            window: Window::of(self.window.least),
            ..self.clone()
        }
    }

    /// What any number of streams carries: path and NIC, less what loss makes them send twice.
    pub fn most(&self) -> f64 {
        self.path.min(self.nic) * (1.0 - self.loss).max(0.0)
    }

    /// What the windows of one stream allow, whatever the path carries.
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

    /// The mean window that loss leaves, in segments; `None` if loss does not bound it.
    fn lossy_window(&self) -> Option<f64> {
        if self.loss <= 0.0 {
            return None;
        }
        let name = self.congestion.name().to_owned();
        match name.as_str() {
            "bbr" if self.loss <= BBR_LOSS_LIMIT => None,
            // Beyond the limit nothing is published for it: the least of the laws.
            "bbr" => mean_window(&Congestion::Reno, self.loss, self.rtt),
            "htcp" => Some(htcp_window(self.loss, self.rtt.as_secs_f64())),
            "scalable" => Some(SCALABLE_WINDOW / self.loss),
            _ => mean_window(&self.congestion, self.loss, self.rtt),
        }
    }

    /// Streams of which `most` is carried; 1 where one does.
    pub fn streams_for(&self, rate: f64) -> u32 {
        let one = self.of_one_stream();
        if one >= rate || one <= 0.0 {
            return 1;
        }
        (rate / one).ceil().min(f64::from(u32::MAX)) as u32
    }

    /// Seconds that a transfer of `bytes` takes once its first byte leaves: slow start from
    /// `first_window` bytes for each stream, doubling each round trip, then the full rate. What
    /// paper 000's section 5 leaves open; the ramp after Padhye et al. (1998), section on short
    /// flows, without loss.
    pub fn seconds_for(&self, bytes: f64, streams: u32, first_window: f64) -> f64 {
        let rate = self.at(streams);
        if rate <= 0.0 {
            return f64::INFINITY;
        }
        bytes / rate + self.ramp_seconds(rate, bytes, first_window * f64::from(streams))
    }

    /// Whether loss, rather than the path or a kernel's window, limits this number of streams.
    pub fn is_limited_by_loss(&self, streams: u32) -> bool {
        let one = self.of_one_stream();
        let windows = f64::from(streams) * one;
        let is_lossy = self.lossy_window().is_some();
        is_lossy && one < self.window.likely / self.rtt.as_secs_f64() && windows < self.most()
    }

    /// Seconds that a transfer of `bytes` takes once its first byte leaves, where loss limits it
    /// and nothing else carries more than `most` bytes per second: windows begin above what loss
    /// leaves of them in the long run. `None` if that is not known of the congestion control, or
    /// another thing limits.
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

    /// Seconds by which slow start is behind `rate`, bytes per second that something else or the
    /// path itself limits, in a transfer of `bytes`. It begins with `first_window` bytes of all
    /// streams together and doubles each round trip.
    pub fn ramp_seconds(&self, rate: f64, bytes: f64, first_window: f64) -> f64 {
        let seconds = self.rtt.as_secs_f64();
        let (mut left, mut spent, mut window) = (bytes, 0.0, first_window);
        if rate <= 0.0 || !rate.is_finite() || window <= 0.0 {
            return 0.0;
        }
        // Each round trip carries one window, until the windows carry the rate.
        while seconds > 0.0 && window < rate * seconds && left > window {
            left -= window;
            spent += seconds;
            window *= 2.0;
        }
        spent - (bytes - left) / rate
    }
}

/// Mean window of H-TCP in segments at a random loss. Its increase, Δ seconds after a loss, is
/// 1 + 10(Δ-1) + (Δ-1)²/4 segments a round trip (draft-leith-tcp-htcp-06, section 3), and it keeps
/// half of its window at a loss. This integrates the increase over the time between two losses.
/// Untested: the kernels tried so far have no H-TCP.
fn htcp_window(loss: f64, rtt: f64) -> f64 {
    let reno = (1.5 / loss).sqrt();
    if rtt <= 0.0 {
        return reno;
    }
    // Segments between two losses, for a sawtooth from w/2 to w over `span` seconds.
    let sent = |window: f64, span: f64| 0.75 * window * span / rtt;
    let growth = |span: f64| {
        let beyond = (span - HTCP_LINEAR_SECONDS).max(0.0);
        let linear = span / rtt;
        linear + (5.0 * beyond.powi(2) + beyond.powi(3) / 12.0) / rtt
    };
    // The span in which the window grows by half of what it becomes, and 1/p segments are sent.
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
    fn windows_bind_until_there_are_streams_enough() {
        let path = path();
        assert!((path.at(1) - 29e6).abs() < 1.0);
        assert!((path.at(4) - 116e6).abs() < 1.0);
        assert_eq!(path.at(5), path.most());
        assert_eq!(path.streams_for(path.most()), 5);
        assert_eq!(path.at(0), 0.0);
    }

    #[test]
    fn loss_binds_by_the_congestion_control() {
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
        // Scalable TCP: 0.08 / 1e-4 = 800 segments.
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
    fn a_short_transfer_is_all_ramp() {
        let path = path();
        let first = 10.0 * 1448.0;
        // One window: one round trip's worth at the rate.
        assert!(path.seconds_for(first, 1, first) < 0.1);
        // 11.8 MB are on the way at once: nine doublings of four streams' first windows.
        let long = path.seconds_for(10e9, 5, first);
        let ideal = 10e9 / path.most();
        assert!(long > ideal && long < ideal + 1.0, "{long} {ideal}");
        assert!(path.seconds_for(1e6, 0, first).is_infinite());
    }
}
