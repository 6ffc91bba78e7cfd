//! Observes the path and the other end while codecs are chosen: the bytes that streams carried, and
//! if the path or a slow receiver limits them.
//!
//! More data than a window can wait for three reasons. First, the path is full or loses many
//! segments: smaller data arrive sooner. Second, the receiver's kernel gives no larger window: the
//! same holds. Third, the receiver is slower than the path, because it writes, commits or decodes
//! slowly: its buffers fill, and smaller blocks gain no time. The receiver reports that. Without a
//! free buffer it stops reading, and its window closes: the kernel reports how long each stream was
//! limited by that window (`TCP_INFO`), and its size. A window much smaller than before shows that
//! the receiver does not read.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_net::tcp_info::TcpInfo;
use longhaul_proto::message::Observation;
use longhaul_proto::session::StreamId;

use crate::codec::choice::CoresSeen;
use crate::session::observe::LAYERS;

/// Minimum round trip at which the windows of a path show its capacity.
const LONG: Duration = Duration::from_millis(2);

/// Maximum number of cores that a receiver's codecs use, if it did not report its flows.
const USUAL_DECOMPRESSORS: f64 = 8.0;

/// Upper bound for a reported number of cores.
const MOST_CORES: f64 = 1e5;

/// Observations of the streams so far.
#[derive(Default)]
pub(super) struct WireLook {
    streams: HashMap<StreamId, Counts>,
    /// Bytes acknowledged by the peers of all streams, also of ended ones.
    carried: u64,
}

/// The kernel's counts of a stream.
#[derive(Clone, Copy, Default)]
struct Counts {
    acknowledged: u64,
    busy: Duration,
    window_limited: Duration,
    /// Largest window of the other end, in bytes.
    most_window: u64,
}

/// Results of an observation.
pub(super) struct WireSeen {
    /// Bytes that the path carried since the session began; `None` if no kernel reports them.
    pub carried: Option<u64>,
    /// True if at least half of the streams have more to send than the path takes.
    pub is_full: bool,
    /// Rate that the windows allow on a long path, in bytes per second; 0 if unknown.
    pub window_rate: f64,
}

impl WireLook {
    /// Processes the kernel's data about live streams.
    pub fn handle_look(&mut self, infos: &[(StreamId, TcpInfo)]) -> WireSeen {
        let (mut told, mut full, mut window_rate) = (0, 0, 0.0);
        for (id, info) in infos {
            let (Some(acknowledged), Some(unsent)) = (info.acknowledged, info.unsent) else {
                continue;
            };
            told += 1;
            let counts = self.streams.entry(*id).or_default();
            let more = acknowledged.0.saturating_sub(counts.acknowledged);
            self.carried = self.carried.saturating_add(more);
            let is_unread = counts.is_unread_since(info);
            full += usize::from(unsent.0 > 0 && !is_unread);
            let window = u64::from(info.congestion_window_segments) * info.send_segment.0;
            if info.rtt >= LONG {
                window_rate += window as f64 / info.rtt.as_secs_f64();
            }
        }
        let lives = |id: &StreamId| infos.iter().any(|(stream, _)| stream == id);
        self.streams.retain(|id, _| lives(id));
        WireSeen {
            carried: (told > 0).then_some(self.carried),
            is_full: told > 0 && 2 * full >= told,
            window_rate,
        }
    }
}

impl Counts {
    /// Updates the counts; true if the other end read too slowly since the last call: its window
    /// limited the stream for at least half of the time, and is below half of its maximum. Without
    /// these counts, the kernel's current state decides.
    fn is_unread_since(&mut self, info: &TcpInfo) -> bool {
        let before = *self;
        let window = info.send_window.map(|window| window.0);
        *self = Counts {
            acknowledged: info
                .acknowledged
                .map_or(before.acknowledged, |bytes| bytes.0),
            busy: info.busy.unwrap_or_default(),
            window_limited: info.window_limited.unwrap_or_default(),
            most_window: before.most_window.max(window.unwrap_or(0)),
        };
        if info.busy.is_none() || info.window_limited.is_none() {
            return !info.waits_for_path();
        }
        let busy = self.busy.saturating_sub(before.busy);
        let held = self.window_limited.saturating_sub(before.window_limited);
        let is_small = window.is_none_or(|window| 2 * window < self.most_window);
        !held.is_zero() && 2 * held >= busy && is_small
    }
}

/// True if both ends are on this host, as far as streams have addresses. Codecs then save no
/// network time. Two network namespaces of one machine have different addresses, so they count as a
/// path.
pub(super) fn are_here(ends: impl Iterator<Item = Option<(SocketAddr, SocketAddr)>>) -> bool {
    let mut known = ends.flatten().peekable();
    let is_here = |(local, peer): (SocketAddr, SocketAddr)| {
        local.ip().to_canonical() == peer.ip().to_canonical()
            || (local.ip().to_canonical().is_loopback() && peer.ip().to_canonical().is_loopback())
    };
    known.peek().is_some() && known.all(is_here)
}

/// Returns the other end's cores, if it reported them, limited to plausible values.
pub(super) fn cores_of(peer: &Observation) -> Option<CoresSeen> {
    let idle = peer.idle.map(f64::from).filter(|idle| idle.is_finite())?;
    let all = f64::from(peer.cores).min(MOST_CORES);
    let layers = peer.layers.iter();
    let flows = layers
        .filter(|told| LAYERS.get(usize::from(told.0)).copied() == Some("decompress"))
        .map(|told| f64::from(told.1))
        .next();
    Some(CoresSeen {
        at: peer.at as f64 * 1e-9,
        all,
        usable: flows
            .filter(|flows| *flows > 0.0)
            .unwrap_or(USUAL_DECOMPRESSORS),
        idle: idle.clamp(0.0, all),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::ByteCount;

    const RATE: u64 = 10_000_000;

    /// Returns a stream after some tenths of a second that has more to send, and was limited by the
    /// other end's window for a fraction of the time.
    fn stream(tenths: u32, held: f64, window: u64) -> TcpInfo {
        let passed = Duration::from_millis(100) * tenths;
        let mut info = TcpInfo::together([]);
        info.rtt = Duration::from_millis(50);
        info.acknowledged = Some(ByteCount(RATE / 10 * u64::from(tenths)));
        info.unsent = Some(ByteCount(100_000));
        info.busy = Some(passed);
        info.window_limited = Some(passed.mul_f64(held));
        info.send_window = Some(ByteCount(window));
        info
    }

    fn full_after(looks: impl Fn(u32) -> TcpInfo) -> bool {
        let mut wire = WireLook::default();
        let one = StreamId(1);
        // The window is large at first, before the other end's buffers are full.
        wire.handle_look(&[(one, stream(1, 0.0, 6_000_000))]);
        let seen = (2..20).map(|tenths| wire.handle_look(&[(one, looks(tenths))]).is_full);
        seen.last().unwrap_or_default()
    }

    #[test]
    fn a_receiver_that_does_not_read_is_not_a_full_path() {
        assert!(full_after(|at| stream(at, 0.0, 6_000_000)));
        assert!(!full_after(|at| stream(at, 0.9, 200_000)));
        // A constant window is being read: fewer bytes arrive sooner.
        assert!(full_after(|at| stream(at, 0.9, 6_000_000)));
        // It closed once, and the path is the limit.
        assert!(full_after(|at| stream(at, 0.1, 200_000)));
    }

    #[test]
    fn streams_with_one_address_at_both_ends_are_not_a_path() {
        let here = |local: &str, peer: &str| {
            let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 7);
            Some((at(local), at(peer)))
        };
        let are = |ends: &[Option<(SocketAddr, SocketAddr)>]| are_here(ends.iter().copied());
        assert!(are(&[here("127.0.0.1", "127.0.0.1"), here("::1", "::1")]));
        assert!(are(&[here("::ffff:10.0.0.1", "10.0.0.1")]));
        // An SSH channel has no addresses; the other streams decide.
        assert!(are(&[None, here("10.0.0.1", "10.0.0.1")]));
        assert!(!are(&[here("10.0.0.1", "10.0.0.2")]), "two namespaces");
        assert!(!are(&[
            here("10.0.0.1", "10.0.0.1"),
            here("10.0.0.1", "10.9.9.9")
        ]));
        assert!(!are(&[None]) && !are(&[]));
    }

    #[test]
    fn bytes_of_ended_streams_still_count() {
        let mut wire = WireLook::default();
        let of = |number: u32, bytes: u64| {
            let mut info = stream(1, 0.0, 1);
            info.acknowledged = Some(ByteCount(bytes));
            (StreamId(number), info)
        };
        let mut carried = |infos: &[(StreamId, TcpInfo)]| wire.handle_look(infos).carried;
        assert_eq!(carried(&[of(1, 100), of(2, 50)]), Some(150));
        assert_eq!(carried(&[of(2, 80)]), Some(180));
        assert_eq!(carried(&[of(2, 80), of(3, 20)]), Some(200));
        assert_eq!(carried(&[]), None);
    }

    #[test]
    fn the_reported_cores_of_a_peer_are_bounded() {
        for idle in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let peer = Observation {
                idle: Some(idle),
                cores: u32::MAX,
                ..Observation::default()
            };
            assert_eq!(cores_of(&peer), None);
        }
        let peer = Observation {
            idle: Some(f32::MAX),
            cores: u32::MAX,
            at: u64::MAX,
            ..Observation::default()
        };
        let cores = cores_of(&peer).unwrap();
        assert!(cores.all <= MOST_CORES && cores.idle <= MOST_CORES && cores.at.is_finite());
    }
}
