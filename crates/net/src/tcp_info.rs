//! Kernel statistics of a TCP connection (`TCP_INFO`).

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

/// A sample of `TCP_INFO`. Fields that the kernel does not provide are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpInfo {
    /// Smoothed round trip time.
    pub rtt: Duration,
    /// Mean deviation of the round trip time.
    pub rtt_variation: Duration,
    /// Round trip time estimated by the receiver: from an acknowledgement to the data that it
    /// permits.
    pub receive_rtt: Option<Duration>,
    /// Minimum round trip time seen recently (Linux 4.6).
    pub minimum_rtt: Option<Duration>,
    /// Current number of consecutive retransmission timeouts.
    pub timeouts: u8,
    /// Number of unanswered probes of the other end's closed window.
    pub probes: u8,
    /// Time after which an unacknowledged segment is sent again.
    pub retransmission_timeout: Duration,
    /// Size of the segments that this end sends, in bytes.
    pub send_segment: ByteCount,
    /// Estimated size of the segments that this end receives, in bytes.
    pub receive_segment: ByteCount,
    /// Maximum known packet size of the path, in bytes.
    pub path_mtu: ByteCount,
    /// Options that both ends agreed on during connection setup.
    pub options: Agreed,
    /// Congestion window, in segments.
    pub congestion_window_segments: u32,
    /// Slow start threshold, in segments; 2^31 - 1 if it was never reached.
    pub slow_start_threshold_segments: u32,
    /// Receive window of the other end (Linux 5.4).
    pub send_window: Option<ByteCount>,
    /// Number of segments sent and not yet acknowledged.
    pub unacknowledged_segments: u32,
    /// Time since the last acknowledgement from the other end, in whole milliseconds.
    pub since_acknowledged: Duration,
    /// Total number of retransmitted segments.
    pub retransmitted_segments: u32,
    /// True during loss recovery without selective acknowledgements. Recovery then repairs only one
    /// lost segment in each round trip (RFC 6582).
    pub mends_singly: bool,
    /// Number of segments currently considered lost.
    pub lost_segments: u32,
    /// Number of data segments sent, including retransmissions (Linux 4.6).
    pub sent_segments: Option<u32>,
    /// Number of retransmitted segments that the other end reported as duplicates (DSACK, RFC 2883;
    /// Linux 4.18).
    pub duplicate_segments: Option<u32>,
    /// Number of retransmitted bytes (Linux 4.18).
    pub retransmitted: Option<ByteCount>,
    /// Total number of bytes acknowledged by the peer (Linux 4.1).
    pub acknowledged: Option<ByteCount>,
    /// Total number of segments delivered to the peer, including those behind a gap, which are
    /// acknowledged only when it is filled (Linux 4.18). For several paths, that of the first.
    pub delivered_segments: Option<u32>,
    /// Total number of bytes received (Linux 4.1).
    pub received: Option<ByteCount>,
    /// Number of unsent bytes in the send buffer (Linux 4.6).
    pub unsent: Option<ByteCount>,
    /// Rate at which the kernel paces segments, if it does: the lower of the congestion control's
    /// rate and the socket's limit (Linux 3.15).
    pub pacing_rate: Option<BitRate>,
    /// Total time with data to send (Linux 4.10).
    pub busy: Option<Duration>,
    /// Part of `busy` during which the peer's window limited sending.
    pub window_limited: Option<Duration>,
    /// Part of `busy` during which this end's send buffer limited sending.
    pub buffer_limited: Option<Duration>,
}

/// Options that both ends of a connection have (RFC 7323, RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Time stamps.
    pub timestamps: bool,
    /// Selective acknowledgements.
    pub selective: bool,
    /// Windows above 64 KiB.
    pub scaling: bool,
}

/// `TCP_CA_Recovery` of Linux: retransmission of lost segments that acknowledgements report.
const RECOVERY: u8 = 3;

impl TcpInfo {
    /// Samples a connection.
    ///
    /// # Errors
    ///
    /// The error of `getsockopt`.
    pub fn of(socket: &TcpStream) -> io::Result<TcpInfo> {
        Ok(TcpInfo::parse(&RawTcpInfo::read(socket)?))
    }

    /// Combines the samples of the paths of one stream. Counts and windows are summed, and
    /// round trips are the maximum. Values that show waiting are the minimum, because the stream
    /// waits only if all paths do. Without a path, the result shows a stalled stream.
    pub fn together(paths: impl IntoIterator<Item = TcpInfo>) -> TcpInfo {
        let sum = |one: Option<ByteCount>, two: Option<ByteCount>| Some(ByteCount(one?.0 + two?.0));
        let count = |one: Option<u32>, two: Option<u32>| Some(one?.saturating_add(two?));
        let joined = paths.into_iter().reduce(|one, two| TcpInfo {
            rtt: one.rtt.max(two.rtt),
            rtt_variation: one.rtt_variation.max(two.rtt_variation),
            minimum_rtt: one.minimum_rtt.max(two.minimum_rtt),
            timeouts: one.timeouts.min(two.timeouts),
            probes: one.probes.min(two.probes),
            retransmission_timeout: one.retransmission_timeout.max(two.retransmission_timeout),
            congestion_window_segments: one
                .congestion_window_segments
                .saturating_add(two.congestion_window_segments),
            // Each value is already that of the whole stream.
            send_window: one.send_window.max(two.send_window),
            unacknowledged_segments: one
                .unacknowledged_segments
                .saturating_add(two.unacknowledged_segments),
            since_acknowledged: one.since_acknowledged.min(two.since_acknowledged),
            mends_singly: one.mends_singly && two.mends_singly,
            retransmitted_segments: one
                .retransmitted_segments
                .saturating_add(two.retransmitted_segments),
            lost_segments: one.lost_segments.saturating_add(two.lost_segments),
            sent_segments: count(one.sent_segments, two.sent_segments),
            duplicate_segments: count(one.duplicate_segments, two.duplicate_segments),
            retransmitted: sum(one.retransmitted, two.retransmitted),
            acknowledged: sum(one.acknowledged, two.acknowledged),
            received: sum(one.received, two.received),
            unsent: sum(one.unsent, two.unsent),
            busy: one.busy.max(two.busy),
            window_limited: one.window_limited.max(two.window_limited),
            buffer_limited: one.buffer_limited.max(two.buffer_limited),
            ..one
        });
        joined.unwrap_or_else(|| TcpInfo {
            timeouts: u8::MAX,
            probes: u8::MAX,
            ..TcpInfo::parse(&RawTcpInfo::new(&[0; RAW_BYTES]))
        })
    }

    /// Parses the structure of `linux/tcp.h`. Its fields never move. New fields are appended, and
    /// an old kernel returns fewer bytes.
    pub(super) fn parse(raw: &RawTcpInfo) -> TcpInfo {
        let count = |offset| raw.u32_at(offset).unwrap_or(0);
        let span = |offset| Duration::from_micros(count(offset).into());
        let microseconds = |offset| raw.u64_at(offset).map(Duration::from_micros);
        let options = raw
            .array_at::<1>(5)
            .map_or(Agreed::default(), |[bits]| Agreed {
                timestamps: bits & 1 != 0,
                selective: bits & 2 != 0,
                scaling: bits & 4 != 0,
            });
        TcpInfo {
            options,
            mends_singly: raw.array_at(1) == Some([RECOVERY]) && !options.selective,
            receive_segment: ByteCount(count(20).into()),
            path_mtu: ByteCount(count(60).into()),
            timeouts: raw.array_at::<1>(2).map_or(0, |[count]| count),
            probes: raw.array_at::<1>(3).map_or(0, |[count]| count),
            retransmission_timeout: span(8),
            send_segment: ByteCount(count(16).into()),
            unacknowledged_segments: count(24),
            lost_segments: count(32),
            since_acknowledged: Duration::from_millis(count(56).into()),
            rtt: span(68),
            rtt_variation: span(72),
            slow_start_threshold_segments: count(76),
            congestion_window_segments: count(80),
            // Zero before data has arrived.
            receive_rtt: Some(span(92)).filter(|rtt| !rtt.is_zero()),
            retransmitted_segments: count(100),
            sent_segments: raw.u32_at(156),
            duplicate_segments: raw.u32_at(216),
            retransmitted: raw.u64_at(208).map(ByteCount),
            acknowledged: raw.u64_at(120).map(ByteCount),
            delivered_segments: raw.u32_at(192),
            received: raw.u64_at(128).map(ByteCount),
            unsent: raw.u32_at(144).map(|n| ByteCount(n.into())),
            // All bits are set before the first sample.
            minimum_rtt: raw
                .u32_at(148)
                .filter(|n| *n != u32::MAX)
                .map(|n| Duration::from_micros(n.into())),
            // All bits are set if the kernel does not pace.
            pacing_rate: raw
                .u64_at(104)
                .filter(|rate| *rate != u64::MAX)
                .map(per_second),
            busy: microseconds(168),
            window_limited: microseconds(176),
            buffer_limited: microseconds(184),
            send_window: raw.u32_at(228).map(|n| ByteCount(n.into())),
        }
    }

    /// True if data waits for the path: some is still unsent, or acknowledgements are overdue.
    /// False if no data is in flight, or the other end's window is full, because that end then does
    /// not read. Data in flight and retransmissions are not counted as waiting, as another
    /// connection could not be faster.
    pub fn waits_for_path(&self) -> bool {
        let due = self.rtt + 4 * self.rtt_variation + DELAYED_ACKNOWLEDGEMENT;
        let stands = self.since_acknowledged > due;
        let unsent = self.unsent.is_none_or(|unsent| unsent.0 > 0);
        let under_way = u64::from(self.unacknowledged_segments) * self.send_segment.0;
        // A window with room for less than one segment is full.
        let full = |window: ByteCount| under_way + self.send_segment.0 > window.0;
        let unread = self.send_window.is_some_and(full);
        under_way > 0 && (stands || unsent && !unread)
    }

    /// True if sent data is stuck after several timeouts, and no more was acknowledged than the
    /// opening of a stream needs. The path then probably drops full-size segments.
    pub fn chokes(&self) -> bool {
        let acknowledged = self.acknowledged.unwrap_or_default().0;
        self.timeouts >= CHOKED_TIMEOUTS
            && self.unacknowledged_segments > 0
            && acknowledged < OPENING_BYTES
    }

    /// True if the round trip is at least twice its minimum: the path has a standing queue.
    pub fn is_queued(&self) -> bool {
        self.minimum_rtt.is_some_and(|least| self.rtt >= 2 * least)
    }

    /// True if lost segments have not all been repaired.
    pub fn mends(&self) -> bool {
        self.lost_segments > 0 || self.timeouts > 0 || self.mends_singly
    }

    /// Returns the maximum number of bytes in flight: the smaller of the congestion window and the
    /// peer's window. This is the window to compare with the bandwidth-delay product, not the size
    /// of a buffer.
    pub fn window(&self) -> ByteCount {
        let congestion = u64::from(self.congestion_window_segments) * self.send_segment.0;
        let peer = self.send_window.map_or(u64::MAX, |window| window.0);
        ByteCount(congestion.min(peer))
    }
}

/// Number of consecutive timeouts that distinguish a path that drops a segment size from random
/// loss.
const CHOKED_TIMEOUTS: u8 = 3;

/// Upper limit of the bytes sent before a stream carries blocks: a handshake and a small request.
const OPENING_BYTES: u64 = 16 << 10;

fn per_second(bytes: u64) -> BitRate {
    BitRate::from_transfer(ByteCount(bytes), Duration::from_secs(1))
}

/// Maximum delay of Linux before it acknowledges a last segment, as long as the other end reads
/// (`TCP_DELACK_MIN`).
const DELAYED_ACKNOWLEDGEMENT: Duration = Duration::from_millis(40);

/// Size of the buffer for the structure. Linux 6.18 fills 248 bytes.
const RAW_BYTES: usize = 256;

/// The structure as the kernel returned it.
pub(super) struct RawTcpInfo {
    bytes: [u8; RAW_BYTES],
    length: usize,
}

/// States of `include/net/tcp_states.h` in which a connection carries no data, because it is being
/// opened or closed.
const SHUT_STATES: [u8; 4] = [2, 3, 7, 12];

impl RawTcpInfo {
    /// Size of the buffer in bytes.
    pub(super) const BYTES: usize = RAW_BYTES;

    /// Wraps bytes from another source, truncated to the size of the buffer.
    pub(super) fn new(found: &[u8]) -> RawTcpInfo {
        let length = found.len().min(RAW_BYTES);
        let mut bytes = [0; RAW_BYTES];
        bytes[..length].copy_from_slice(&found[..length]);
        RawTcpInfo { bytes, length }
    }

    /// True if the connection is open.
    pub(super) fn is_open(&self) -> bool {
        let state = self.array_at::<1>(0);
        state.is_some_and(|[state]| !SHUT_STATES.contains(&state))
    }

    #[allow(unsafe_code)] // No safe binding returns the length that the kernel filled.
    fn read(socket: &TcpStream) -> io::Result<RawTcpInfo> {
        let mut bytes = [0u8; RAW_BYTES];
        let mut length = RAW_BYTES as libc::socklen_t;
        // SAFETY: the descriptor is open for the borrow's life, the pointer
        // and the length describe `bytes`, and any bytes are valid in it.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let length = (length as usize).min(RAW_BYTES);
        Ok(RawTcpInfo { bytes, length })
    }

    fn array_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes
            .get(..self.length)?
            .get(offset..offset + N)?
            .try_into()
            .ok()
    }

    fn u32_at(&self, offset: usize) -> Option<u32> {
        self.array_at(offset).map(u32::from_ne_bytes)
    }

    fn u64_at(&self, offset: usize) -> Option<u64> {
        self.array_at(offset).map(u64::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn sent_bytes_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 10_000]).unwrap();
        server.read_exact(&mut [0; 10_000]).unwrap();
        // The response acknowledges the request.
        server.write_all(&[2; 500]).unwrap();
        client.read_exact(&mut [0; 500]).unwrap();
        let info = TcpInfo::of(&client).unwrap();
        assert_eq!(info.received, Some(ByteCount(500)));
        // The kernel may count the SYN as a byte.
        let acknowledged = info.acknowledged.unwrap().0;
        assert!((10_000..=10_001).contains(&acknowledged), "{acknowledged}");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(10));
        assert!(info.send_segment.0 > 500 && info.congestion_window_segments > 0);
        assert!(info.window().0 > 0 && info.window().0 <= info.send_window.unwrap().0);
        // Loopback has no loss.
        assert_eq!(info.retransmitted, Some(ByteCount(0)));
        assert_eq!(info.duplicate_segments, Some(0));
        let segments = info.sent_segments.unwrap();
        assert!((1..=20).contains(&segments), "{segments}");
        // Both ends are the same kernel, so they always agree on window scaling.
        assert!(info.options.scaling && info.path_mtu >= info.send_segment);
    }

    #[test]
    fn an_end_that_does_not_read_is_not_the_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        // Fills the buffers of both kernels. The rest waits for the reader.
        while client.write(&[1; 1 << 20]).is_ok() {}
        let mut info = TcpInfo::of(&client).unwrap();
        assert!(info.unsent.is_none_or(|unsent| unsent.0 > 0), "{info:?}");
        assert!(!info.waits_for_path(), "{info:?}");
        // The same with one segment in flight and room for more in the window.
        info.unacknowledged_segments = 1;
        info.send_window = Some(ByteCount(1 << 20));
        info.since_acknowledged = Duration::ZERO;
        assert!(info.waits_for_path(), "the path is slow");
        info.unsent = Some(ByteCount(0));
        assert!(!info.waits_for_path(), "it is under way");
        info.since_acknowledged = Duration::from_secs(10);
        assert!(info.waits_for_path(), "it should have been there");
        server.read_exact(&mut [0; 1000]).unwrap();
    }

    #[test]
    fn paths_together_are_one_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let one = TcpInfo {
            rtt: Duration::from_millis(10),
            acknowledged: Some(ByteCount(5)),
            timeouts: 3,
            ..TcpInfo::of(&client).unwrap()
        };
        let two = TcpInfo {
            rtt: Duration::from_millis(80),
            acknowledged: Some(ByteCount(7)),
            timeouts: 0,
            ..one
        };
        let joined = TcpInfo::together([one, two]);
        assert_eq!(joined.rtt, Duration::from_millis(80));
        assert_eq!(joined.acknowledged, Some(ByteCount(12)));
        // One of the paths still makes progress.
        assert_eq!(joined.timeouts, 0);
        assert_eq!(TcpInfo::together([one]), one);
        let none = TcpInfo::together([]);
        assert_eq!((none.timeouts, none.rtt), (u8::MAX, Duration::ZERO));
    }

    #[test]
    fn losses_are_repaired_singly_without_selective_acknowledgements() {
        let mends = |state: u8, options: u8| {
            let mut raw = RawTcpInfo::new(&[0; RAW_BYTES]);
            (raw.bytes[1], raw.bytes[5]) = (state, options);
            TcpInfo::parse(&raw).mends_singly
        };
        // Open, disorder, reduced, recovery, after a timeout; with time stamps and scaling.
        assert_eq!(
            [0, 1, 2, 3, 4].map(|state| mends(state, 5)),
            [false, false, false, true, false]
        );
        assert!(!mends(3, 7));
    }

    #[test]
    fn an_old_kernel_gives_fewer_fields() {
        let raw = RawTcpInfo {
            bytes: [1; RAW_BYTES],
            length: 104,
        };
        let info = TcpInfo::parse(&raw);
        assert_eq!(info.retransmitted_segments, 0x0101_0101);
        assert_eq!(info.acknowledged, None);
        assert_eq!((info.sent_segments, info.duplicate_segments), (None, None));
        assert_eq!(info.send_window, None);
        assert!(info.window().0 > 0);
    }
}
