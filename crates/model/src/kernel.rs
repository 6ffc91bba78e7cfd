//! The window that a host's kernel allows one stream, and advice if it limits a transfer.

use std::fmt;
use std::time::Duration;

use longhaul_units::ByteCount;

use crate::capacity::Window;

/// The limits on a host's socket buffers in bytes, as in `/proc/sys/net`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLimits {
    /// Third number of `net.ipv4.tcp_wmem`: the maximum for autotuning.
    pub tcp_send: Option<u64>,
    /// Third number of `net.ipv4.tcp_rmem`: the maximum for autotuning.
    pub tcp_receive: Option<u64>,
    /// `net.core.wmem_max`: the maximum for a buffer set explicitly.
    pub core_send: Option<u64>,
    /// `net.core.rmem_max`: the maximum for a buffer set explicitly.
    pub core_receive: Option<u64>,
}

/// Minimum share of a send buffer that holds data in flight; the rest is overhead. Measured on
/// Linux 6.18: a maximum of 4 MiB allowed a window of 2.9 MB.
const SEND_SHARE: f64 = 0.69;

/// Share of a send buffer that holds data in flight with the mover's large writes. Measured on
/// Linux 6.18: 3.1 to 4.0 MB of 4 MiB, at 40 to 200 ms and with 1 or 4 streams.
const LIKELY_SEND_SHARE: f64 = 0.88;

/// Share of a receive buffer that is offered as window: half, because the default of
/// `net.ipv4.tcp_adv_win_scale` has been 1. Newer kernels measure the share and offer up to 0.8.
const RECEIVE_SHARE: f64 = 0.5;

/// The end whose buffer limits a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferEnd {
    /// The send buffer of the sending host.
    Sender,
    /// The receive buffer of the receiving host.
    Receiver,
}

/// The limit of one stream's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimit {
    /// Maximum number of bytes in flight.
    pub window: ByteCount,
    /// End whose buffer is the limit.
    pub end: BufferEnd,
}

impl BufferLimits {
    /// Returns the bytes in flight that the send buffer allows with autotuning.
    pub fn send_window(&self) -> Option<ByteCount> {
        self.send_share(SEND_SHARE)
    }

    fn send_share(&self, share: f64) -> Option<ByteCount> {
        let bytes = self.tcp_send? as f64 * share;
        Some(ByteCount(bytes as u64))
    }

    /// Returns the window that the receive buffer allows with autotuning.
    pub fn receive_window(&self) -> Option<ByteCount> {
        let bytes = self.tcp_receive? as f64 * RECEIVE_SHARE;
        Some(ByteCount(bytes as u64))
    }

    /// True if an explicit buffer of `bytes` allows at least as much as autotuning, in both
    /// directions. (The kernel doubles an explicit size, for its overhead, and then disables
    /// autotuning.)
    pub fn allows_by_hand(&self, bytes: ByteCount) -> bool {
        let further = |core: Option<u64>, tuned: Option<u64>| match (core, tuned) {
            (Some(core), Some(tuned)) => core.min(bytes.0).saturating_mul(2) >= tuned,
            _ => false,
        };
        further(self.core_send, self.tcp_send) && further(self.core_receive, self.tcp_receive)
    }
}

/// Returns the guaranteed window of a stream between two hosts, which determines the number of
/// streams. Returns `None` if neither limit is known.
pub fn window_limit(sender: &BufferLimits, receiver: &BufferLimits) -> Option<WindowLimit> {
    lesser(sender.send_window(), receiver)
}

/// Returns the expected and the guaranteed window of a stream between two hosts. Returns `None` if
/// neither limit is known.
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

/// Advice about windows that a kernel's limit restricted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowAdvice {
    /// End whose buffer was the limit.
    pub end: BufferEnd,
    /// Window of the streams in bytes.
    pub window: ByteCount,
    /// Rate of all streams in bytes per second.
    pub bytes_per_second: f64,
    /// Round-trip time.
    pub rtt: Duration,
    /// Current limit in bytes, if known.
    pub limit: Option<u64>,
    /// True if the user fixed the number of streams, so that no streams were added.
    pub fixed: bool,
}

impl WindowAdvice {
    /// Returns the limit with which one stream would reach the same rate. If the user fixed the
    /// number of streams, the path's rate is unknown, and the result is at least twice the current
    /// limit.
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
        // A power of two shows that the value is not a measurement. The limit comes from another
        // host and may be any number.
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
        write!(f, "a stream's window was limited to {}", self.window)?;
        match self.limit {
            Some(limit) => write!(
                f,
                " because {name} is limited to {limit} on the {host} host"
            )?,
            None => write!(f, " because of {name} on the {host} host")?,
        }
        let (rtt, remedy) = (self.rtt.as_secs_f64() * 1e3, self.remedy());
        if self.fixed {
            return write!(
                f,
                ": more streams would compensate for this, so omit --streams, or let each carry \
                more at {rtt:.0} ms with `sysctl -w {name}=\"{first} {remedy}\"` there"
            );
        }
        write!(
            f,
            ": more streams compensated for this; one would suffice at {rtt:.0} ms after `sysctl -w \
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
    fn the_smaller_buffer_is_the_limit() {
        let usual = limits(4 << 20, 6 << 20);
        let limit = window_limit(&usual, &usual).unwrap();
        assert_eq!(limit.end, BufferEnd::Sender);
        // The measured window was 2.9 MB.
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
    fn an_explicit_buffer_must_not_be_below_autotuning() {
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
        // 11.7 MB in flight divided by 0.69, the share of the buffer, is 17 MB, which is rounded up
        // to 32 MiB.
        assert!(
            text.contains("net.ipv4.tcp_wmem=\"4096 16384 33554432\""),
            "{text}"
        );
        assert!(text.contains("more streams compensated"), "{text}");
        let absurd = WindowAdvice {
            limit: Some(u64::MAX),
            ..advice
        };
        assert_eq!(absurd.remedy(), u64::MAX);
    }

    #[test]
    fn advice_for_a_fixed_number_of_streams_suggests_more() {
        // One stream has the window that 4 MiB allow, 2.9 MB.
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
        assert!(text.contains("omit --streams"), "{text}");
        assert!(!text.contains("compensated for this"), "{text}");
    }
}
