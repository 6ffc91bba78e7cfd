//! The paths that a transfer's streams take: pairs of addresses, one from
//! here, one from there. Several local addresses make several, and so does
//! Multipath TCP within each stream.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::ByteCount;

use crate::net::StreamHandle;
use crate::net::multipath::Subflow;

/// More paths than these are taken for the last one: no host has so many.
const MAXIMUM_PATHS: usize = 64;

/// A path's addresses, this end's first.
pub(super) type Ends = (IpAddr, IpAddr);

/// What a path carried and how it is, as this end's kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathUse {
    /// This end's address.
    pub local: IpAddr,
    /// The other end's.
    pub peer: IpAddr,
    /// Streams that had it at the same time, at most.
    pub streams: usize,
    /// Bytes that the other end acknowledged.
    pub acknowledged: ByteCount,
    /// Bytes received.
    pub received: ByteCount,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Smoothed round trip, the longest of its streams at the last look at any.
    pub rtt: Duration,
    /// The least round trip.
    pub minimum_rtt: Option<Duration>,
    /// Congestion windows of its streams together, at the last look at any.
    pub window: ByteCount,
}

/// Counts of one stream on one path.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acknowledged: u64,
    received: u64,
    retransmitted: u64,
}

impl Counts {
    fn of(subflow: &Subflow) -> Counts {
        Counts {
            acknowledged: subflow.info.acknowledged.unwrap_or_default().0,
            received: subflow.info.received.unwrap_or_default().0,
            retransmitted: u64::from(subflow.info.retransmitted_segments),
        }
    }

    fn add(&mut self, other: Counts) {
        self.acknowledged += other.acknowledged;
        self.received += other.received;
        self.retransmitted += other.retransmitted;
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Paths {
    known: Vec<PathUse>,
    /// Of streams that are gone.
    gone: Vec<Counts>,
    /// Of those that live, with the path: by stream and the kernel's number.
    live: BTreeMap<(StreamId, u32), (usize, Counts)>,
}

impl Paths {
    /// Takes what the kernel tells of all streams now; says of each of its
    /// subflows, in the same order, which path it is.
    pub fn handle_look(&mut self, streams: &[(StreamId, Vec<Subflow>)]) -> Vec<Vec<u32>> {
        let mut before = std::mem::take(&mut self.live);
        let mut now: BTreeMap<usize, Vec<&Subflow>> = BTreeMap::new();
        let mut numbers = Vec::new();
        for (stream, subflows) in streams {
            let mut of_stream = Vec::new();
            for subflow in subflows {
                let path = self.number(ends(subflow));
                let counts = Counts::of(subflow);
                before.remove(&(*stream, subflow.number));
                self.live.insert((*stream, subflow.number), (path, counts));
                now.entry(path).or_default().push(subflow);
                of_stream.push(path as u32);
            }
            numbers.push(of_stream);
        }
        for (path, counts) in before.into_values() {
            self.gone[path].add(counts);
        }
        for (path, subflows) in now {
            self.known[path].note(&subflows);
        }
        numbers
    }

    /// What each carried so far.
    pub fn list(&self) -> Vec<PathUse> {
        let mut counts = self.gone.clone();
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
    fn note(&mut self, subflows: &[&Subflow]) {
        let infos = || subflows.iter().map(|subflow| subflow.info);
        self.streams = self.streams.max(subflows.len());
        self.rtt = infos().map(|info| info.rtt).max().unwrap_or_default();
        let least = infos().filter_map(|info| info.minimum_rtt);
        self.minimum_rtt = least.chain(self.minimum_rtt).min();
        let window = infos()
            .map(|info| u64::from(info.congestion_window_segments) * info.send_segment.0)
            .sum();
        self.window = ByteCount(window);
    }
}

/// Addresses as they are meant: an IPv6 socket has IPv4 ones in a form of its
/// own.
fn ends(subflow: &Subflow) -> Ends {
    let [local, peer] = [subflow.local, subflow.peer].map(|end| end.ip().to_canonical());
    (local, peer)
}

/// The path of a stream that has one alone; none within a host.
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
    use crate::net::tcp_info::TcpInfo;

    fn subflow(number: u32, local: &str, acknowledged: u64) -> Subflow {
        Subflow {
            number,
            local: format!("{local}:1").parse().unwrap(),
            peer: "10.0.0.9:4960".parse().unwrap(),
            info: TcpInfo {
                acknowledged: Some(ByteCount(acknowledged)),
                minimum_rtt: Some(Duration::from_millis(u64::from(number) + 1)),
                rtt: Duration::from_millis(20),
                ..TcpInfo::together([])
            },
        }
    }

    #[test]
    fn what_a_path_carried_outlives_its_streams() {
        let mut paths = Paths::default();
        let one = vec![subflow(0, "10.0.0.1", 100), subflow(1, "10.0.1.1", 30)];
        let two = vec![subflow(0, "[::ffff:10.0.0.1]", 7)];
        let numbers = paths.handle_look(&[(StreamId(0), one), (StreamId(1), two)]);
        assert_eq!(numbers, [vec![0, 1], vec![0]]);
        // The first stream is gone, and another one grew.
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
    fn paths_without_end_are_not_remembered() {
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
