//! Paths of a transfer's streams. A path is a pair of a local and a remote address. Several local
//! addresses make several paths, and so does Multipath TCP within each stream.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use longhaul_net::StreamHandle;
use longhaul_net::multipath::Subflow;
use longhaul_net::tcp_info::TcpInfo;
use longhaul_proto::session::StreamId;
use longhaul_units::ByteCount;

/// Maximum number of paths. Further paths are counted as the last one; no real host has more.
const MAXIMUM_PATHS: usize = 64;

/// Addresses of a path, this end's first.
pub(super) type Ends = (IpAddr, IpAddr);

/// Use and state of a path according to this end's kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct PathUse {
    /// Address of this end.
    pub local: IpAddr,
    /// Address of the other end.
    pub peer: IpAddr,
    /// Maximum number of streams that used it at the same time.
    pub streams: usize,
    /// Number of bytes that the other end acknowledged.
    pub acknowledged: ByteCount,
    /// Number of bytes received.
    pub received: ByteCount,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Smoothed round trip: the longest of its streams at the last observation.
    pub rtt: Duration,
    /// Minimum round trip.
    pub minimum_rtt: Option<Duration>,
    /// Sum of the congestion windows of its streams at the last observation.
    pub window: ByteCount,
}

/// Counts of one or several subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Number of bytes that the other end acknowledged.
    pub acknowledged: u64,
    /// Number of bytes received.
    pub received: u64,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of data segments sent, with retransmissions; `None` if the kernel does not count
    /// them.
    pub sent: Option<u64>,
    /// Number of segments that the other end reported as duplicates; likewise.
    pub duplicates: Option<u64>,
    /// Number of retransmitted bytes; likewise.
    pub retransmitted_bytes: Option<u64>,
}

/// Zero counts, all of them known.
impl Default for Counts {
    fn default() -> Counts {
        Counts {
            acknowledged: 0,
            received: 0,
            retransmitted: 0,
            sent: Some(0),
            duplicates: Some(0),
            retransmitted_bytes: Some(0),
        }
    }
}

impl Counts {
    fn of(subflow: &Subflow) -> Counts {
        Counts {
            acknowledged: subflow.info.acknowledged.unwrap_or_default().0,
            received: subflow.info.received.unwrap_or_default().0,
            retransmitted: u64::from(subflow.info.retransmitted_segments),
            sent: subflow.info.sent_segments.map(u64::from),
            duplicates: subflow.info.duplicate_segments.map(u64::from),
            retransmitted_bytes: subflow.info.retransmitted.map(|bytes| bytes.0),
        }
    }

    fn add(&mut self, other: Counts) {
        self.acknowledged += other.acknowledged;
        self.received += other.received;
        self.retransmitted += other.retransmitted;
        let sum = |one: Option<u64>, two: Option<u64>| Some(one? + two?);
        self.sent = sum(self.sent, other.sent);
        self.duplicates = sum(self.duplicates, other.duplicates);
        self.retransmitted_bytes = sum(self.retransmitted_bytes, other.retransmitted_bytes);
    }
}

/// A stream on one of its paths at one observation. Several subflows between the same addresses,
/// with different ports, are combined.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OnPath {
    /// The stream.
    pub stream: StreamId,
    /// Number of the path.
    pub path: u32,
    /// The kernel's data about the live subflows.
    pub info: TcpInfo,
    /// Counts of all subflows that the stream ever had on the path. They never fall when a subflow
    /// ends.
    pub counts: Counts,
}

/// All paths of a transfer.
#[derive(Debug, Default)]
pub(super) struct Paths {
    known: Vec<PathUse>,
    /// Counts of ended streams, by path.
    gone: Vec<Counts>,
    /// Counts of ended subflows of live streams, by stream and path.
    ended: BTreeMap<(StreamId, usize), Counts>,
    /// Path and counts of live subflows, by stream and the kernel's number.
    live: BTreeMap<(StreamId, u32), (usize, Counts)>,
}

impl Paths {
    /// Processes the kernel's data about all streams; returns them combined by stream and path.
    /// Calls must be in the order in which the data were read.
    pub fn handle_look(&mut self, streams: &[(StreamId, Vec<Subflow>)]) -> Vec<OnPath> {
        let mut before = std::mem::take(&mut self.live);
        let mut places: BTreeMap<(StreamId, usize), Vec<&Subflow>> = BTreeMap::new();
        for (stream, subflows) in streams {
            for subflow in subflows {
                before.remove(&(*stream, subflow.number));
                let path = self.count(*stream, subflow);
                places.entry((*stream, path)).or_default().push(subflow);
            }
        }
        for ((stream, _), (path, counts)) in before {
            self.ended.entry((stream, path)).or_default().add(counts);
        }
        self.forget_all_but(&streams.iter().map(|(stream, _)| *stream).collect());
        let looks = places.iter().map(|(&(stream, path), subflows)| OnPath {
            stream,
            path: path as u32,
            info: on_one_path(subflows),
            counts: self.counts(stream, path),
        });
        let looks: Vec<OnPath> = looks.collect();
        let mut by_path: BTreeMap<u32, Vec<&TcpInfo>> = BTreeMap::new();
        for look in &looks {
            by_path.entry(look.path).or_default().push(&look.info);
        }
        for (path, infos) in by_path {
            self.known[path as usize].note(&infos);
        }
        looks
    }

    /// Processes the kernel's last data about a stream that ended. If the kernel reports no
    /// subflows of a Multipath TCP stream then, the last observation stays valid.
    pub fn handle_last_look(&mut self, stream: StreamId, subflows: &[Subflow]) {
        for subflow in subflows {
            let path = self.count(stream, subflow);
            if self.known[path].streams == 0 {
                self.known[path].note(&[&subflow.info]);
            }
        }
    }

    /// Returns the use of each path so far.
    pub fn list(&self) -> Vec<PathUse> {
        let mut counts = self.gone.clone();
        for ((_, path), ended) in &self.ended {
            counts[*path].add(*ended);
        }
        for (path, live) in self.live.values() {
            counts[*path].add(*live);
        }
        let known = self.known.iter().zip(counts);
        let list = known.map(|(path, counts)| PathUse {
            acknowledged: ByteCount(counts.acknowledged),
            received: ByteCount(counts.received),
            retransmitted: counts.retransmitted,
            ..path.clone()
        });
        list.collect()
    }

    /// Returns the number of retransmitted segments on all paths.
    pub fn retransmitted(&self) -> u64 {
        self.list().iter().map(|path| path.retransmitted).sum()
    }

    /// Records the counts of a subflow; returns the number of its path.
    fn count(&mut self, stream: StreamId, subflow: &Subflow) -> usize {
        let path = self.number(ends(subflow));
        let counted = (path, Counts::of(subflow));
        self.live.insert((stream, subflow.number), counted);
        path
    }

    /// Returns the counts of a stream on a path, with ended and live subflows.
    fn counts(&self, stream: StreamId, path: usize) -> Counts {
        let ended = self.ended.get(&(stream, path)).copied();
        let live = self.live.range((stream, 0)..=(stream, u32::MAX));
        let live = live.filter(|(_, counted)| counted.0 == path);
        let mut counts = ended.unwrap_or_default();
        for (_, (_, live)) in live {
            counts.add(*live);
        }
        counts
    }

    fn forget_all_but(&mut self, streams: &BTreeSet<StreamId>) {
        let gone = &mut self.gone;
        self.ended.retain(|(stream, path), counts| {
            let lives = streams.contains(stream);
            if !lives {
                gone[*path].add(*counts);
            }
            lives
        });
    }

    fn number(&mut self, (local, peer): Ends) -> usize {
        let mut known = self.known.iter();
        let known = known
            .position(|path| (path.local, path.peer) == (local, peer))
            .or_else(|| (self.known.len() >= MAXIMUM_PATHS).then_some(MAXIMUM_PATHS - 1));
        known.unwrap_or_else(|| {
            self.known.push(PathUse {
                local,
                peer,
                streams: 0,
                acknowledged: ByteCount(0),
                received: ByteCount(0),
                retransmitted: 0,
                rtt: Duration::ZERO,
                minimum_rtt: None,
                window: ByteCount(0),
            });
            self.gone.push(Counts::default());
            self.known.len() - 1
        })
    }
}

impl PathUse {
    /// Records the kernel's data about each of its streams.
    fn note(&mut self, infos: &[&TcpInfo]) {
        self.streams = self.streams.max(infos.len());
        let longest = infos.iter().map(|info| info.rtt).max();
        self.rtt = longest.unwrap_or_default();
        let least = infos.iter().filter_map(|info| info.minimum_rtt);
        self.minimum_rtt = least.chain(self.minimum_rtt).min();
        let window = infos
            .iter()
            .map(|info| u64::from(info.congestion_window_segments) * info.send_segment.0)
            .sum();
        self.window = ByteCount(window);
    }
}

/// Combines the kernel's data about a stream's subflows on one path.
fn on_one_path(subflows: &[&Subflow]) -> TcpInfo {
    let infos = || subflows.iter().map(|subflow| subflow.info);
    TcpInfo {
        minimum_rtt: infos().filter_map(|info| info.minimum_rtt).min(),
        ..TcpInfo::together(infos())
    }
}

/// Returns the addresses of a subflow. IPv6 sockets represent IPv4 addresses as IPv6 ones; these
/// are converted back.
fn ends(subflow: &Subflow) -> Ends {
    let [local, peer] = [subflow.local, subflow.peer].map(|end| end.ip().to_canonical());
    (local, peer)
}

/// Returns the path of a stream with a single path; `None` for Multipath TCP, and within a host.
pub(super) fn only_path(handle: &StreamHandle) -> Option<Ends> {
    if handle.is_multipath() {
        return None;
    }
    let ip = |end: std::net::SocketAddr| end.ip().to_canonical();
    Some((ip(handle.local_address()?), ip(handle.peer_address()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subflow(number: u32, local: &str, acknowledged: u64) -> Subflow {
        Subflow {
            number,
            local: format!("{local}:{}", 1000 + number).parse().unwrap(),
            peer: "10.0.0.9:4960".parse().unwrap(),
            info: TcpInfo {
                acknowledged: Some(ByteCount(acknowledged)),
                minimum_rtt: Some(Duration::from_millis(u64::from(number) + 1)),
                rtt: Duration::from_millis(20 + u64::from(number)),
                retransmitted_segments: acknowledged as u32 / 10,
                congestion_window_segments: 10,
                send_segment: ByteCount(1000),
                ..TcpInfo::together([])
            },
        }
    }

    fn acknowledged(looks: &[OnPath]) -> Vec<(u32, u32, u64)> {
        let place = |look: &OnPath| (look.stream.0, look.path, look.counts.acknowledged);
        looks.iter().map(place).collect()
    }

    #[test]
    fn the_counts_of_a_path_outlive_its_streams() {
        let mut paths = Paths::default();
        let one = vec![subflow(0, "10.0.0.1", 100), subflow(1, "10.0.1.1", 30)];
        let two = vec![subflow(0, "[::ffff:10.0.0.1]", 7)];
        let looks = paths.handle_look(&[(StreamId(0), one), (StreamId(1), two)]);
        assert_eq!(acknowledged(&looks), [(0, 0, 100), (0, 1, 30), (1, 0, 7)]);
        // The first stream is gone, and the other one grew.
        let two = vec![subflow(0, "10.0.0.1", 9)];
        paths.handle_look(&[(StreamId(1), two)]);
        let list = paths.list();
        assert_eq!(
            list.iter()
                .map(|path| path.acknowledged.0)
                .collect::<Vec<_>>(),
            [109, 30]
        );
        assert_eq!((list[0].streams, list[1].streams), (2, 1));
        assert_eq!(list[1].minimum_rtt, Some(Duration::from_millis(2)));
        paths.handle_look(&[]);
        assert_eq!(paths.list()[0].acknowledged, ByteCount(109));
    }

    #[test]
    fn two_subflows_between_the_same_addresses_are_one_path() {
        let mut paths = Paths::default();
        let both = |one, two| vec![subflow(0, "10.0.0.1", one), subflow(1, "10.0.0.1", two)];
        let looks = paths.handle_look(&[(StreamId(3), both(100, 30))]);
        assert_eq!(acknowledged(&looks), [(3, 0, 130)]);
        let info = &looks[0].info;
        assert_eq!(info.rtt, Duration::from_millis(21));
        assert_eq!(info.minimum_rtt, Some(Duration::from_millis(1)));
        assert_eq!(info.congestion_window_segments, 20);
        let looks = paths.handle_look(&[(StreamId(3), both(110, 50))]);
        assert_eq!(acknowledged(&looks), [(3, 0, 160)]);
        // One subflow ends, and the other one continues.
        let looks = paths.handle_look(&[(StreamId(3), vec![subflow(1, "10.0.0.1", 60)])]);
        assert_eq!(acknowledged(&looks), [(3, 0, 170)]);
        let [path] = &paths.list()[..] else {
            panic!("{:?}", paths.list());
        };
        assert_eq!((path.streams, path.acknowledged), (1, ByteCount(170)));
    }

    #[test]
    fn a_new_subflow_continues_the_counts_of_its_path() {
        let mut paths = Paths::default();
        let look = |paths: &mut Paths, subflows| paths.handle_look(&[(StreamId(0), subflows)]);
        look(&mut paths, vec![subflow(0, "10.0.0.1", 100)]);
        assert!(look(&mut paths, Vec::new()).is_empty());
        let looks = look(&mut paths, vec![subflow(1, "10.0.0.1", 5)]);
        assert_eq!(acknowledged(&looks), [(0, 0, 105)]);
        assert_eq!(looks[0].counts.retransmitted, 10);
        paths.handle_look(&[]);
        assert_eq!(paths.list()[0].acknowledged, ByteCount(105));
    }

    #[test]
    fn the_last_observation_of_a_stream_adds_its_remaining_bytes() {
        let mut paths = Paths::default();
        let [one, two] = [StreamId(0), StreamId(1)];
        let looks = [one, two].map(|id| (id, vec![subflow(0, "10.0.0.1", 100)]));
        paths.handle_look(&looks);
        paths.handle_last_look(one, &[subflow(0, "10.0.0.1", 120)]);
        // The kernel reports no subflows of a Multipath TCP stream at its end.
        paths.handle_last_look(two, &[]);
        // A stream that was never observed before.
        paths.handle_last_look(StreamId(2), &[subflow(0, "10.0.5.1", 30)]);
        for _ in 0..2 {
            assert_eq!(paths.retransmitted(), 12 + 10 + 3);
            paths.handle_look(&[]);
        }
        let list = paths.list();
        assert_eq!(list[0].acknowledged, ByteCount(220));
        assert_eq!((list[1].streams, list[1].rtt.as_millis()), (1, 20));
    }

    #[test]
    fn the_number_of_remembered_paths_is_bounded() {
        let mut paths = Paths::default();
        for last in 0..200 {
            let one = vec![subflow(0, &format!("10.0.0.{last}"), 1)];
            paths.handle_look(&[(StreamId(last), one)]);
        }
        let list = paths.list();
        assert_eq!(list.len(), MAXIMUM_PATHS);
        let all: u64 = list.iter().map(|path| path.acknowledged.0).sum();
        assert_eq!(all, 200);
    }
}
