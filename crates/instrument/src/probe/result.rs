//! Results of a probe.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_engine::benchmark::this_host;
use longhaul_measure::doubt::Doubt;
use longhaul_measure::host::HostDescription;
use longhaul_measure::sources::Direction;
use longhaul_measure::sources::ExternalRun;
use longhaul_measure::stats::{median, quantile, sorted};
use longhaul_model::advice::{Advice, PathFacts, advise};
use longhaul_model::kernel::BufferLimits;
use longhaul_model::response::Congestion;
use longhaul_net::tcp_info::Agreed;
use longhaul_system::clock;

use super::known::KnownPath;
use super::trial::{EndFacts, Trial};
use super::unqueued::Unqueued;

/// Ratio to the greatest rate above which a rate counts as equally good: the spread of
/// repetitions.
const AS_GOOD: f64 = 0.97;

/// Ratio to the best rate below which streams do not fill the path. One CUBIC stream uses
/// more than this fraction of a path, even without a queue.
const FAR_LESS: f64 = 0.6;

/// Minimum number of intervals with losses in trials with few streams. Fewer may be a
/// single event.
const LEAST_OF_FEWEST: usize = 2;

/// Estimated time in seconds for a thread to run and read the clock.
const THREADS: f64 = 1e-3;

/// Result of a probe.
pub struct Probe {
    /// The probed endpoint.
    pub endpoint: Option<String>,
    /// Software of the daemon.
    pub software: String,
    /// Protection of the data, for example TLS.
    pub protection: &'static str,
    /// Number of the probe: start time in seconds since 1970.
    pub number: u64,
    /// Start time in RFC 3339 format.
    pub started: String,
    /// Results per path.
    pub paths: Vec<PathResult>,
    /// External measurements, each with its file.
    pub external: Vec<(String, ExternalRun)>,
    /// Description of this host.
    pub host: HostDescription,
    /// Facts about the path that were not measured.
    pub known: Option<KnownPath>,
}

impl Probe {
    /// Creates an empty probe of this host that begins now.
    pub fn begin(external: Vec<(String, ExternalRun)>) -> Probe {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Probe {
            endpoint: None,
            software: String::new(),
            protection: "",
            number: since.map_or(0, |since| since.as_secs()),
            started: clock::now(),
            paths: Vec::new(),
            external,
            host: this_host::describe(),
            known: None,
        }
    }
}

/// Result of one path, from one local address to one address of the daemon.
pub struct PathResult {
    /// Address of the daemon.
    pub address: SocketAddr,
    /// Local address, if the user named one.
    pub local: Option<IpAddr>,
    /// Reason why the path was not measured.
    pub failure: Option<String>,
    /// Round-trip times of connections in seconds, in order of time.
    pub round_trips: Vec<f64>,
    /// Segment size in bytes.
    pub segment: u64,
    /// Path MTU in bytes.
    pub path_mtu: u64,
    /// TCP options that both ends agreed on.
    pub options: Agreed,
    /// Lead of the daemon's clock, if it is known.
    pub clock: Option<Clock>,
    /// Description of the daemon's host, if it was sent.
    pub host: Option<HostDescription>,
    /// True for the path that a copy uses: the first one to the address that answers
    /// first.
    pub is_usual: bool,
    /// Results per direction.
    pub ways: Vec<Way>,
}

/// Lead of a clock over this host's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Lead in seconds; negative if the clock is behind.
    pub ahead: f64,
    /// Maximum error in seconds: half a round trip, plus the delay of threads.
    pub uncertainty: f64,
}

impl Clock {
    /// Computes the lead from `Measurements::clock_lead` in nanoseconds and the minimum
    /// round-trip time in seconds. A message takes between zero and one round trip; half
    /// a round trip is assumed.
    pub fn of(lead: i64, least_rtt: f64) -> Clock {
        Clock {
            ahead: lead as f64 / 1e9 + least_rtt / 2.0,
            uncertainty: least_rtt / 2.0 + THREADS,
        }
    }
}

/// Result of one direction of a path.
pub struct Way {
    /// Direction of the data.
    pub direction: Direction,
    /// All repetitions in order of time.
    pub trials: Vec<Trial>,
    /// Facts about the sending end.
    pub sender: EndFacts,
    /// Facts about the receiving end.
    pub receiver: EndFacts,
}

/// Quantiles of round-trip times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrips {
    /// Minimum.
    pub least: f64,
    /// Median.
    pub median: f64,
    /// The 95 % quantile.
    pub high: f64,
    /// Maximum.
    pub greatest: f64,
}

impl PathResult {
    /// Returns the quantiles of round-trip times, if there are any.
    pub fn distribution(&self) -> Option<RoundTrips> {
        let ascending = sorted(&self.round_trips);
        Some(RoundTrips {
            least: *ascending.first()?,
            median: quantile(&ascending, 0.5)?,
            high: quantile(&ascending, 0.95)?,
            greatest: *ascending.last()?,
        })
    }

    /// Returns the minimum round-trip time; 0 without round trips.
    pub fn least(&self) -> Duration {
        let least = self.distribution().map_or(0.0, |found| found.least);
        Duration::try_from_secs_f64(least).unwrap_or_default()
    }

    /// Returns advice about a direction.
    pub fn advice(&self, way: &Way) -> Vec<Advice> {
        way.facts(self)
            .map_or_else(Vec::new, |facts| advise(&facts))
    }

    fn refused_options(&self) -> Vec<&'static str> {
        let options = [
            (self.options.timestamps, "net.ipv4.tcp_timestamps"),
            (self.options.selective, "net.ipv4.tcp_sack"),
            (self.options.scaling, "net.ipv4.tcp_window_scaling"),
        ];
        let refused = options.into_iter().filter(|option| !option.0);
        refused.map(|option| option.1).collect()
    }
}

impl Way {
    /// Returns the numbers of streams in ascending order.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.trials.iter().map(|trial| trial.streams).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Returns the repetitions with this number of streams.
    pub fn of(&self, streams: u32) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |t| t.streams == streams)
    }

    /// Returns the median of a figure over the repetitions with this number of streams.
    pub fn median(&self, streams: u32, value: fn(&Trial) -> f64) -> f64 {
        let values: Vec<f64> = self.of(streams).map(value).collect();
        median(&values).unwrap_or(0.0)
    }

    /// Returns the median over the repetitions that have the figure; `None` if none of
    /// them has.
    pub fn median_if_any(&self, streams: u32, value: fn(&Trial) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.of(streams).filter_map(value).collect();
        median(&values)
    }

    /// Returns the smallest number of streams that is as good as the best, and its
    /// settled rate in bytes per second. The path carries at least that rate.
    pub fn best(&self) -> Option<(u32, f64)> {
        let settled = |streams| self.median(streams, |trial| trial.settled);
        let counts = self.counts();
        let most = counts.iter().map(|&n| settled(n)).max_by(f64::total_cmp)?;
        let streams = counts.into_iter().find(|&n| settled(n) >= AS_GOOD * most)?;
        Some((streams, settled(streams)))
    }

    /// Returns the doubts about a direction.
    pub fn doubts(&self, path: &PathResult) -> Vec<Doubt> {
        let Some((streams, _)) = self.best() else {
            return Vec::new();
        };
        let settled: Vec<f64> = self.of(streams).map(|trial| trial.settled).collect();
        let mut doubts = Doubt::of_series(&settled);
        let wall = self.median(streams, |trial| trial.wall.as_secs_f64());
        doubts.extend(Doubt::of_length(wall, path.least().as_secs_f64()));
        let busy = self.median(streams, busiest);
        if busy > 0.9 {
            doubts.push(Doubt::HostCpuBound { busy });
        }
        doubts
    }

    /// Returns the fraction of segments lost at random, 0 to 1. It is 0 unless the fewest
    /// streams lost segments repeatedly while they carried far less than the path can. A
    /// full path may drop segments in a queue too short to be seen.
    fn random_loss(&self, best_streams: u32, best: f64) -> f64 {
        let fewest = self.counts().first().copied().unwrap_or(0);
        let pooled = |streams| {
            let found = self.of(streams).map(|trial| trial.unqueued);
            found.fold(Unqueued::default(), Unqueued::and)
        };
        let few = pooled(fewest);
        let is_free = self.median(fewest, |trial| trial.settled) < FAR_LESS * best;
        if is_free && few.intervals >= LEAST_OF_FEWEST {
            few.and(pooled(best_streams)).loss()
        } else {
            0.0
        }
    }

    fn facts(&self, path: &PathResult) -> Option<PathFacts> {
        let (streams, bytes_per_second) = self.best()?;
        let limits = |end: &EndFacts| BufferLimits {
            tcp_send: end.send_buffer,
            tcp_receive: end.receive_buffer,
            ..BufferLimits::default()
        };
        let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
        Some(PathFacts {
            rtt: path.least(),
            loaded_rtt: seconds(self.median(streams, |trial| trial.rtt.as_secs_f64())),
            bytes_per_second,
            streams,
            one_stream: (self.of(1).count() > 0).then(|| self.median(1, |trial| trial.settled)),
            loss: self.random_loss(streams, bytes_per_second),
            segment: self.median(streams, |trial| f64::from(trial.segment)) as u32,
            congestion: Congestion::of_name(&self.sender.congestion),
            congestions: self.sender.congestions.clone(),
            sender: limits(&self.sender),
            receiver: limits(&self.receiver),
            processor: Some(self.median(streams, busiest)),
            refused_options: path.refused_options(),
        })
    }
}

/// Returns the processor use of the busier host, 0 to 1.
pub fn busiest(trial: &Trial) -> f64 {
    let known = trial.processors.iter().flatten().copied();
    known.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(streams: u32, settled: f64) -> Trial {
        Trial {
            streams,
            most_streams: streams as usize,
            bytes: 1_000_000,
            wall: Duration::from_secs(5),
            bytes_per_second: settled / 2.0,
            settled,
            retransmitted: 0,
            retransmitted_bytes: Some(0),
            duplicates: Some(0),
            lost: Some(0),
            lost_at_end: 0,
            unqueued: Default::default(),
            segments: 690,
            sent: Some(690),
            segment: 1448,
            rtt: Duration::from_millis(100),
            window_limited: 0.0,
            buffer_limited: 1.0,
            processors: [Some(0.2), None],
            samples: Vec::new(),
        }
    }

    fn path() -> PathResult {
        let trials = [
            (1, 28e6),
            (4, 115e6),
            (8, 116e6),
            (1, 30e6),
            (4, 117e6),
            (8, 118e6),
        ];
        let end = EndFacts {
            congestion: "cubic".into(),
            congestions: vec!["cubic".into()],
            send_buffer: Some(4 << 20),
            receive_buffer: Some(6 << 20),
            cores: 2,
        };
        PathResult {
            address: ([192, 0, 2, 1], 4960).into(),
            local: None,
            failure: None,
            round_trips: vec![0.101, 0.1, 0.103],
            segment: 1448,
            path_mtu: 1500,
            options: Agreed {
                timestamps: true,
                selective: true,
                scaling: true,
            },
            clock: None,
            host: None,
            is_usual: true,
            ways: vec![Way {
                direction: Direction::To,
                trials: trials
                    .map(|(streams, settled)| trial(streams, settled))
                    .into(),
                sender: end.clone(),
                receiver: end,
            }],
        }
    }

    #[test]
    fn the_smallest_sufficient_number_of_streams_is_best() {
        let path = path();
        let way = &path.ways[0];
        assert_eq!(way.counts(), [1, 4, 8]);
        assert_eq!(way.best(), Some((4, 116e6)));
        let trips = path.distribution().unwrap();
        assert_eq!(
            (trips.least, trips.median, trips.greatest),
            (0.1, 0.101, 0.103)
        );
    }

    #[test]
    fn the_advice_names_the_end_with_the_smaller_window() {
        let path = path();
        let advice = path.advice(&path.ways[0]);
        let topics: Vec<_> = advice.iter().map(|advice| advice.topic).collect();
        // Windows of 2.9 MB and 3.1 MB; 17 MB are needed.
        assert_eq!(topics, ["window", "window"]);
        assert!(advice[0].text.contains("tcp_wmem"), "{advice:?}");
        let doubts = path.ways[0].doubts(&path);
        assert_eq!(doubts, [Doubt::FewRepetitions { repetitions: 2 }]);
    }

    #[test]
    fn random_loss_is_measured_with_few_streams_on_a_free_path() {
        let loss = |one_stream| {
            let lossy = |streams, settled, lost| Trial {
                unqueued: Unqueued {
                    lost,
                    sent: lost * 1000,
                    intervals: lost as usize,
                },
                ..trial(streams, settled)
            };
            let mut path = path();
            path.ways[0].trials = vec![lossy(1, one_stream, 2), lossy(4, 100e6, 30)];
            path.ways[0].facts(&path).unwrap().loss
        };
        assert!((loss(30e6) - 1e-3).abs() < 1e-12);
        // One stream nearly fills the path: a short queue may have dropped the segments.
        assert_eq!(loss(80e6), 0.0);
    }

    #[test]
    fn a_clock_is_accurate_to_half_a_round_trip() {
        let clock = Clock::of(1_950_000_000, 0.1);
        assert!((clock.ahead - 2.0).abs() < 1e-9, "{clock:?}");
        assert!((clock.uncertainty - 0.051).abs() < 1e-9, "{clock:?}");
    }
}
