//! What is seen of the path and of the other end while codecs are chosen: what streams carried,
//! and whether the path holds them up, or a receiver that does not read.
//!
//! More to send than a window takes has three reasons. The path is full, or loses much: what is
//! smaller arrives sooner. The receiver's kernel gives no larger window: the same. Or the
//! receiver reads no faster than its disk writes: its window closes, and smaller blocks gain
//! nothing. The kernel tells how long each stream was held up by the other end's window
//! (`TCP_INFO`), and how large that is: one that is much smaller than it was is not read.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_proto::message::Observation;
use longhaul_proto::session::StreamId;

use crate::codec::choice::CoresSeen;
use crate::net::tcp_info::TcpInfo;
use crate::session::observe::LAYERS;

/// A path with a shorter round trip shows by its windows nothing of what it carries.
const LONG: Duration = Duration::from_millis(2);

/// A layer is busy if its flows worked for this part of their time.
const BUSY: f64 = 0.9;

/// Layers whose work is the disk's.
const STORING: [&str; 2] = ["write", "commit"];

/// More cores than any host has.
const MOST_CORES: f64 = 1e5;

/// What streams showed so far.
#[derive(Default)]
pub(super) struct WireLook {
    streams: HashMap<StreamId, Counts>,
    /// Bytes that streams' peers acknowledged, those of streams that ended included.
    carried: u64,
    storing: Storing,
}

/// What the kernel had counted of a stream.
#[derive(Clone, Copy, Default)]
struct Counts {
    acknowledged: u64,
    busy: Duration,
    window_limited: Duration,
    /// The largest window of the other end, in bytes.
    most_window: u64,
}

/// What a look found.
pub(super) struct WireSeen {
    /// Bytes that the path carried since the session began; none if no kernel tells.
    pub carried: Option<u64>,
    /// Half of the streams have more to send than the path takes.
    pub is_full: bool,
    /// Bytes per second that windows allow on a long path; 0 where that is not known.
    pub window_rate: f64,
    /// The other end's disk has as much to do as it can.
    pub is_stored_slowly: bool,
}

impl WireLook {
    /// Takes what the kernel reports about live streams, and what the other end saw last.
    pub fn handle_look(&mut self, infos: &[(StreamId, TcpInfo)], peer: &Observation) -> WireSeen {
        let is_stored_slowly = self.storing.handle_told(peer);
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
            is_full: told > 0 && 2 * full >= told && !is_stored_slowly,
            window_rate,
            is_stored_slowly,
        }
    }
}

impl Counts {
    /// Takes what the kernel counts now. Whether the other end read too slowly since the last
    /// look: its window held the stream up for half of the time, and is less than half of what it
    /// was. Where the kernel does not count that, what it says of this moment has to do.
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

/// How busy the other end's disk is, by what it tells now and then.
#[derive(Default)]
struct Storing {
    /// When it told, in nanoseconds, and what each layer had worked by then.
    at: u64,
    worked: [u64; STORING.len()],
    is_busy: bool,
}

impl Storing {
    /// Takes what it told last; whether a layer worked all the time before that.
    fn handle_told(&mut self, peer: &Observation) -> bool {
        let span = peer.at.saturating_sub(self.at);
        if span == 0 {
            return self.is_busy;
        }
        self.at = peer.at;
        self.is_busy = false;
        for (before, name) in self.worked.iter_mut().zip(STORING) {
            let is_it =
                |told: &(u8, u32, f32)| LAYERS.get(usize::from(told.0)).copied() == Some(name);
            let Some(place) = peer.layers.iter().position(is_it) else {
                continue;
            };
            let Some(worked) = peer.worked.get(place) else {
                continue;
            };
            let flows = f64::from(peer.layers[place].1.max(1));
            let part = worked.saturating_sub(*before) as f64 / (span as f64 * flows);
            *before = *worked;
            self.is_busy |= part >= BUSY;
        }
        self.is_busy
    }
}

/// The other end's cores, where it told, within bounds: it may tell anything.
pub(super) fn cores_of(peer: &Observation) -> Option<CoresSeen> {
    let idle = peer.idle.map(f64::from).filter(|idle| idle.is_finite())?;
    let all = f64::from(peer.cores).min(MOST_CORES);
    Some(CoresSeen {
        at: peer.at as f64 * 1e-9,
        all,
        idle: idle.clamp(0.0, all),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::ByteCount;

    const RATE: u64 = 10_000_000;

    /// A stream after some tenths of a second that has more to send, and was held up by the other
    /// end's window for a part of the time.
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

    fn full_after(looks: impl Fn(u32) -> TcpInfo, peer: &Observation) -> bool {
        let mut wire = WireLook::default();
        let one = StreamId(1);
        // It begins with a large window, before the other end's buffers are full.
        wire.handle_look(&[(one, stream(1, 0.0, 6_000_000))], peer);
        let seen = (2..20).map(|tenths| wire.handle_look(&[(one, looks(tenths))], peer).is_full);
        seen.last().unwrap_or_default()
    }

    #[test]
    fn a_receiver_that_does_not_read_is_no_full_path() {
        let peer = Observation::default();
        assert!(full_after(|at| stream(at, 0.0, 6_000_000), &peer));
        assert!(!full_after(|at| stream(at, 0.9, 200_000), &peer));
        // Its kernel's window is all that it gives, and is read: fewer bytes go sooner.
        assert!(full_after(|at| stream(at, 0.9, 6_000_000), &peer));
        // It closed once, and the path holds it up.
        assert!(full_after(|at| stream(at, 0.1, 200_000), &peer));
    }

    #[test]
    fn a_receiver_whose_disk_is_busy_is_no_full_path() {
        let told = |at: u64, worked: u64| Observation {
            at,
            layers: vec![(6, 4, 0.5)],
            worked: vec![worked],
            ..Observation::default()
        };
        let mut storing = Storing::default();
        let second = 1_000_000_000;
        assert!(!storing.handle_told(&told(second, second)));
        assert!(storing.handle_told(&told(2 * second, 5 * second - second / 10)));
        assert!(
            storing.handle_told(&told(2 * second, 0)),
            "it told nothing new"
        );
        assert!(!storing.handle_told(&told(3 * second, 6 * second)));
        // What makes no sense is no busy disk for ever.
        storing.handle_told(&told(u64::MAX, u64::MAX));
        assert!(!storing.handle_told(&told(u64::MAX, 0)) || storing.at == u64::MAX);
    }

    #[test]
    fn what_ended_streams_carried_counts_on() {
        let mut wire = WireLook::default();
        let peer = Observation::default();
        let of = |number: u32, bytes: u64| {
            let mut info = stream(1, 0.0, 1);
            info.acknowledged = Some(ByteCount(bytes));
            (StreamId(number), info)
        };
        let mut carried = |infos: &[(StreamId, TcpInfo)]| wire.handle_look(infos, &peer).carried;
        assert_eq!(carried(&[of(1, 100), of(2, 50)]), Some(150));
        assert_eq!(carried(&[of(2, 80)]), Some(180));
        assert_eq!(carried(&[of(2, 80), of(3, 20)]), Some(200));
        assert_eq!(carried(&[]), None);
    }

    #[test]
    fn what_a_peer_tells_of_its_cores_is_bounded() {
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
