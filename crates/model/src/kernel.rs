//! What a host's kernel lets one stream's window become, and what to say where
//! that binds.

use std::fmt;
use std::time::Duration;

use longhaul_units::ByteCount;

use crate::capacity::Window;

/// A host's limits on socket buffers, in bytes, as `/proc/sys/net` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLimits {
    /// The third number of `net.ipv4.tcp_wmem`: what autotuning may reach.
    pub tcp_send: Option<u64>,
    /// The third number of `net.ipv4.tcp_rmem`.
    pub tcp_receive: Option<u64>,
    /// `net.core.wmem_max`: what a buffer set by hand may reach.
    pub core_send: Option<u64>,
    /// `net.core.rmem_max`.
    pub core_receive: Option<u64>,
}

/// What of a send buffer carries data in flight at least; the rest is bookkeeping.
/// Measured on Linux 6.18: a maximum of 4 MiB carried a window of 2.9 MB.
const SEND_SHARE: f64 = 0.69;

/// What of it carries data with the mover's large writes. Measured on Linux 6.18: 3.1 to 4.0 MB of
/// 4 MiB, at 40 to 200 ms and 1 or 4 streams.
const LIKELY_SEND_SHARE: f64 = 0.88;

/// What of a receive buffer is offered as window: half, as
/// `net.ipv4.tcp_adv_win_scale` has been 1 by default; newer kernels measure
/// and offer up to 0.8 of it.
const RECEIVE_SHARE: f64 = 0.5;

/// Which end's buffer ends a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferEnd {
    /// The sending host's send buffer.
    Sender,
    /// The receiving host's receive buffer.
    Receiver,
}

/// The window that one stream can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimit {
    /// Bytes in flight at most.
    pub window: ByteCount,
    /// Whose buffer it is.
    pub end: BufferEnd,
}

impl BufferLimits {
    /// Bytes in flight that the send buffer allows where the kernel tunes it.
    pub fn send_window(&self) -> Option<ByteCount> {
        self.send_share(SEND_SHARE)
    }

    fn send_share(&self, share: f64) -> Option<ByteCount> {
        let bytes = self.tcp_send? as f64 * share;
        Some(ByteCount(bytes as u64))
    }

    /// The window that the receive buffer allows where the kernel tunes it.
    pub fn receive_window(&self) -> Option<ByteCount> {
        let bytes = self.tcp_receive? as f64 * RECEIVE_SHARE;
        Some(ByteCount(bytes as u64))
    }

    /// Whether a buffer of `bytes` set by hand reaches further than the
    /// kernel's own tuning, in both directions. (Set by hand, the kernel
    /// doubles what it is given, for its bookkeeping, and tunes no more.)
    pub fn allows_by_hand(&self, bytes: ByteCount) -> bool {
        let further = |core: Option<u64>, tuned: Option<u64>| match (core, tuned) {
            (Some(core), Some(tuned)) => core.min(bytes.0).saturating_mul(2) >= tuned,
            _ => false,
        };
        further(self.core_send, self.tcp_send) && further(self.core_receive, self.tcp_receive)
    }
}

/// The window that a stream between two hosts has at least: for choosing a number of streams.
/// `None` if neither limit is known.
pub fn window_limit(sender: &BufferLimits, receiver: &BufferLimits) -> Option<WindowLimit> {
    lesser(sender.send_window(), receiver)
}

/// What the window of a stream between two hosts is likely to be, and the least that it has. `None`
/// if neither limit is known.
pub fn window_between(sender: &BufferLimits, receiver: &BufferLimits) -> Option<Window> {
    let least = window_limit(sender, receiver)?;
    let likely = lesser(sender.send_share(LIKELY_SEND_SHARE), receiver)?;
    Some(Window {
        likely: likely.window.0 as f64,
        least: least.window.0 as f64,
    })
}

fn lesser(sends: Option<ByteCount>, receiver: &BufferLimits) -> Option<WindowLimit> {
    let sends = sends.map(|window| (window, BufferEnd::Sender));
    let receives = receiver
        .receive_window()
        .map(|window| (window, BufferEnd::Receiver));
    let (window, end) = sends
        .into_iter()
        .chain(receives)
        .min_by_key(|found| found.0)?;
    Some(WindowLimit { window, end })
}

/// Streams whose windows together hold what is on its way at this rate: BDP ≤
/// window × streams (paper 000, equation 1, with the window instead of the
/// buffer that was asked for). At least 1.
pub fn streams_for_window(bytes_per_second: f64, rtt: Duration, window: ByteCount) -> u32 {
    let product = bytes_per_second * rtt.as_secs_f64();
    (product / window.0.max(1) as f64).ceil().max(1.0) as u32
}

/// A window that ended at a kernel's limit: what it is and what to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowAdvice {
    /// Whose buffer.
    pub end: BufferEnd,
    /// The window that streams had, in bytes.
    pub window: ByteCount,
    /// Bytes per second that all of them carried.
    pub bytes_per_second: f64,
    /// Round trip.
    pub rtt: Duration,
    /// Its limit now, where it is known.
    pub limit: Option<u64>,
    /// The number of streams was the user's: none made up for it.
    pub fixed: bool,
}

impl WindowAdvice {
    /// The limit under which one stream would carry as much; where there were no
    /// more streams than the user said, what the path carries is not known, and it
    /// is twice the limit now.
    pub fn remedy(&self) -> u64 {
        let share = match self.end {
            BufferEnd::Sender => SEND_SHARE,
            BufferEnd::Receiver => RECEIVE_SHARE,
        };
        let product = self.bytes_per_second * self.rtt.as_secs_f64();
        let needed = (product / share) as u64;
        let limit = self.limit.unwrap_or(0);
        let least = if self.fixed {
            limit.saturating_mul(2)
        } else {
            limit
        };
        // A power of two says that it is no measurement. A limit is another host's
        // word, and may be beyond all.
        let wanted = needed.max(least).max(1 << 20);
        wanted.checked_next_power_of_two().unwrap_or(u64::MAX)
    }
}

impl fmt::Display for WindowAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, host, first) = match self.end {
            BufferEnd::Sender => ("net.ipv4.tcp_wmem", "sending", "4096 16384"),
            BufferEnd::Receiver => ("net.ipv4.tcp_rmem", "receiving", "4096 131072"),
        };
        write!(f, "a stream's window ended at {}", self.window)?;
        match self.limit {
            Some(limit) => write!(f, " because {name} ends at {limit} on the {host} host")?,
            None => write!(f, " because of {name} on the {host} host")?,
        }
        let (rtt, remedy) = (self.rtt.as_secs_f64() * 1e3, self.remedy());
        if self.fixed {
            return write!(
                f,
                ": more streams would make up for it, so leave --streams out, or let each carry \
                 more at {rtt:.0} ms by `sysctl -w {name}=\"{first} {remedy}\"` there"
            );
        }
        write!(
            f,
            ": more streams made up for it; one would do at {rtt:.0} ms after `sysctl -w \
             {name}=\"{first} {remedy}\"` there"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(send: u64, receive: u64) -> BufferLimits {
        BufferLimits {
            tcp_send: Some(send),
            tcp_receive: Some(receive),
            core_send: Some(212_992),
            core_receive: Some(212_992),
        }
    }

    #[test]
    fn the_lesser_buffer_binds() {
        let usual = limits(4 << 20, 6 << 20);
        let limit = window_limit(&usual, &usual).unwrap();
        assert_eq!(limit.end, BufferEnd::Sender);
        // Measured: 2.9 MB.
        assert!(
            (2_850_000..2_950_000).contains(&limit.window.0),
            "{limit:?}"
        );
        let limit = window_limit(&limits(4 << 20, 0), &limits(0, 1 << 20)).unwrap();
        assert_eq!((limit.end, limit.window.0), (BufferEnd::Receiver, 1 << 19));
        assert_eq!(
            window_limit(&BufferLimits::default(), &BufferLimits::default()),
            None
        );
    }

    #[test]
    fn the_product_of_paper_000_takes_its_streams() {
        // Section 4.5: 10 Gbit/s at 52 ms needs 62 MiB: 16 streams of 4 MiB or
        // 4 of 16 MiB.
        let rtt = Duration::from_millis(52);
        assert_eq!(streams_for_window(1.25e9, rtt, ByteCount(4 << 20)), 16);
        assert_eq!(streams_for_window(1.25e9, rtt, ByteCount(16 << 20)), 4);
        assert_eq!(streams_for_window(0.0, rtt, ByteCount(0)), 1);
    }

    #[test]
    fn a_buffer_set_by_hand_must_not_lower_what_the_kernel_reaches() {
        assert!(!limits(4 << 20, 6 << 20).allows_by_hand(ByteCount(64 << 20)));
        let wide = BufferLimits {
            core_send: Some(64 << 20),
            core_receive: Some(64 << 20),
            ..limits(4 << 20, 6 << 20)
        };
        assert!(wide.allows_by_hand(ByteCount(16 << 20)));
        assert!(!wide.allows_by_hand(ByteCount(1 << 20)));
        assert!(!BufferLimits::default().allows_by_hand(ByteCount(1 << 30)));
    }

    #[test]
    fn the_advice_names_the_sysctl_and_its_value() {
        let advice = WindowAdvice {
            end: BufferEnd::Sender,
            window: ByteCount(700_000),
            bytes_per_second: 117e6,
            rtt: Duration::from_millis(100),
            limit: Some(1 << 20),
            fixed: false,
        };
        let text = advice.to_string();
        // 11.7 MB in flight at 0.69 of the buffer: 17 MB, so 32 MiB.
        assert!(
            text.contains("net.ipv4.tcp_wmem=\"4096 16384 33554432\""),
            "{text}"
        );
        assert!(text.contains("more streams made up"), "{text}");
        let absurd = WindowAdvice {
            limit: Some(u64::MAX),
            ..advice
        };
        assert_eq!(absurd.remedy(), u64::MAX);
    }

    #[test]
    fn streams_that_the_user_fixed_made_up_for_nothing() {
        // One stream whose window was what 4 MiB allow, 2.9 MB.
        let advice = WindowAdvice {
            end: BufferEnd::Sender,
            window: ByteCount(2_890_000),
            bytes_per_second: 28.9e6,
            rtt: Duration::from_millis(100),
            limit: Some(4 << 20),
            fixed: true,
        };
        assert_eq!(advice.remedy(), 8 << 20);
        let text = advice.to_string();
        assert!(text.contains("leave --streams out"), "{text}");
        assert!(!text.contains("made up for it"), "{text}");
    }
}
