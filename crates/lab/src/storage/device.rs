//! A storage device as a pure queue in virtual time: how long each request takes, with requests
//! from several flows.
//!
//! A request waits for the device and for its own flow. The device serves requests in order, at a
//! rate that depends on the number of requests outstanding. A flow may have a rate of its own.
//! Then comes the latency, during which the device already serves others. So latency limits one
//! flow with small requests, and the device limits several. An optimiser has to find the point in
//! between.
//!
//! # Accuracy
//!
//! Exact in virtual time to a nanosecond a request. A real caller comes back a
//! moment after its last request was answered; [`SLACK`] keeps that moment from
//! being counted as idle, so that a single synchronous flow gets its full rate.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_units::{ByteRate, Moment};

use crate::emulator::lateness::Lateness;

/// A device is not idle for as long as a caller takes to come back: what a
/// thread's wake-up and a system call take on a busy host, with a margin. A
/// device that rested longer has saved up this much, and no more.
pub const SLACK: Duration = Duration::from_millis(2);

/// Flows whose queues are remembered; beyond that idle ones are forgotten.
const MAXIMUM_FLOWS: usize = 4096;

/// What one direction (reading or writing) of a device does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelSettings {
    /// All flows together, with one request outstanding; none: no limit.
    pub rate: Option<ByteRate>,
    /// Each flow at most; none: no limit of its own.
    pub flow_rate: Option<ByteRate>,
    /// From a request's service to its answer, 0 to an hour.
    pub latency: Duration,
    /// How the rate falls with flows: γ of Eq. 3 in paper 004, T = α/(L + γ). Here α = rate × (1 +
    /// γ), so that one flow has the whole rate. 0 or more; small is steep. `None`: it does not
    /// fall.
    pub contention: Option<f64>,
}

impl ChannelSettings {
    /// The device's rate with this many requests outstanding, in bytes per second (paper 004, Eq.
    /// 3); `None` without a limit.
    pub fn rate_at(&self, outstanding: usize) -> Option<f64> {
        let rate = self.rate?.bytes_per_second();
        let flows = outstanding.max(1) as f64;
        Some(match self.contention {
            Some(gamma) => rate * (1.0 + gamma) / (flows + gamma),
            None => rate,
        })
    }
}

/// What one direction of a device did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes that were asked for in them.
    pub bytes: u64,
    /// The most requests under way at a time.
    pub most_outstanding: usize,
    /// How much later than the device's requests were answered: the directory
    /// behind was slower, or the processors were busy.
    pub lateness: Lateness,
}

/// One direction of a device.
#[derive(Debug)]
pub struct Channel {
    settings: ChannelSettings,
    counters: ChannelCounters,
    /// When the device has served everything so far.
    free: Moment,
    /// When each flow may be served again.
    flows: HashMap<u64, Moment>,
    outstanding: usize,
}

impl Channel {
    /// A channel that has served nothing.
    pub fn new(settings: ChannelSettings) -> Channel {
        Channel {
            settings,
            counters: ChannelCounters::default(),
            free: Moment(0),
            flows: HashMap::new(),
            outstanding: 0,
        }
    }

    /// When a request of `flow` for this many bytes, which comes at `now`, is to be answered.
    /// [`Channel::answered`] must follow.
    pub fn request(&mut self, now: Moment, flow: u64, bytes: u64) -> Moment {
        self.outstanding += 1;
        self.counters.bytes += bytes;
        self.counters.most_outstanding = self.counters.most_outstanding.max(self.outstanding);
        let rested = Moment(now.0.saturating_sub(SLACK.as_nanos() as u64));
        let mut served = now;
        if let Some(rate) = self.settings.rate_at(self.outstanding) {
            self.free = self.free.max(rested) + spent(bytes, rate);
            served = served.max(self.free);
        }
        if let Some(rate) = self.settings.flow_rate {
            self.forget_idle(rested);
            let free = self.flows.entry(flow).or_default();
            *free = (*free).max(rested) + spent(bytes, rate.bytes_per_second());
            served = served.max(*free);
        }
        served + self.settings.latency
    }

    /// A request was answered, so much later than it was to be.
    pub fn answered(&mut self, late: Duration) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.counters.requests += 1;
        self.counters.lateness.add(late);
    }

    /// What it did so far.
    pub fn counters(&self) -> &ChannelCounters {
        &self.counters
    }

    /// Requests under way.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn forget_idle(&mut self, rested: Moment) {
        if self.flows.len() >= MAXIMUM_FLOWS {
            self.flows.retain(|_, free| *free > rested);
        }
    }
}

fn spent(bytes: u64, bytes_per_second: f64) -> Duration {
    // Bounded: a request is at most some MiB, and a rate at least a byte.
    Duration::from_secs_f64((bytes as f64 / bytes_per_second).min(1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1_000_000;

    fn rate(bytes_per_second: f64) -> Option<ByteRate> {
        ByteRate::new(bytes_per_second)
    }

    /// Bytes per second that this many flows get, each with one request of a megabyte outstanding,
    /// over 200 requests per flow.
    fn throughput(settings: ChannelSettings, flows: usize) -> f64 {
        const REQUESTS: usize = 200;
        let mut channel = Channel::new(settings);
        let start = Moment(0) + Duration::from_secs(1);
        let mut next: Vec<Moment> = vec![start; flows];
        let mut waiting = vec![false; flows];
        let mut asked = vec![0; flows];
        let mut last = start;
        loop {
            let due = (0..flows).filter(|&flow| asked[flow] < REQUESTS || waiting[flow]);
            let Some(flow) = due.min_by_key(|&flow| (next[flow], flow)) else {
                break;
            };
            let now = next[flow];
            if std::mem::take(&mut waiting[flow]) {
                channel.answered(Duration::ZERO);
                last = last.max(now);
            }
            if asked[flow] < REQUESTS {
                asked[flow] += 1;
                waiting[flow] = true;
                next[flow] = channel.request(now, flow as u64, MEGABYTE);
            }
        }
        (flows * REQUESTS) as f64 * MEGABYTE as f64 / last.since(start).as_secs_f64()
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        // The slack at the start gives at most 2 ms of some seconds.
        let error = (found / expected - 1.0).abs();
        assert!(error < 0.01, "{found} instead of {expected}");
    }

    #[test]
    fn all_flows_share_the_rate() {
        let settings = ChannelSettings {
            rate: rate(200e6),
            ..ChannelSettings::default()
        };
        for flows in [1, 2, 7, 32] {
            assert_near(throughput(settings, flows), 200e6);
        }
    }

    #[test]
    fn each_flow_has_its_rate_until_the_device_binds() {
        let settings = ChannelSettings {
            rate: rate(200e6),
            flow_rate: rate(60e6),
            ..ChannelSettings::default()
        };
        for (flows, expected) in [(1, 60e6), (2, 120e6), (3, 180e6), (4, 200e6), (16, 200e6)] {
            assert_near(throughput(settings, flows), expected);
        }
    }

    /// Credits × message / latency, until the device binds.
    #[test]
    fn latency_is_hidden_by_flows() {
        let settings = ChannelSettings {
            rate: rate(200e6),
            latency: Duration::from_millis(20),
            ..ChannelSettings::default()
        };
        // The device is idle within the latency, so that a flow's request
        // finds what it saved up: at most the slack.
        let one = throughput(settings, 1);
        let expected = 1e6 / 0.020..1e6 / (0.020 + 0.005 - 0.002) * 1.01;
        assert!(expected.start * 0.8 < one && one < expected.end, "{one}");
        assert_near(throughput(settings, 16), 200e6);
    }

    /// Paper 004, Eq. 3: T = α/(L + γ).
    #[test]
    fn the_rate_falls_with_flows_as_the_paper_has_it() {
        let gamma = 4.0;
        let settings = ChannelSettings {
            rate: rate(500e6),
            contention: Some(gamma),
            ..ChannelSettings::default()
        };
        assert_near(throughput(settings, 1), 500e6);
        for flows in [2, 4, 8, 16] {
            let expected = 500e6 * (1.0 + gamma) / (flows as f64 + gamma);
            let found = throughput(settings, flows);
            // At the beginning and the end fewer are outstanding.
            assert!((found / expected - 1.0).abs() < 0.02, "{flows}: {found}");
        }
    }

    #[test]
    fn without_limits_nothing_waits() {
        let mut channel = Channel::new(ChannelSettings::default());
        let now = Moment(5);
        assert_eq!(channel.request(now, 1, u64::MAX), now);
        assert_eq!(channel.outstanding(), 1);
        channel.answered(Duration::ZERO);
        channel.answered(Duration::ZERO);
        assert_eq!(channel.outstanding(), 0);
    }

    #[test]
    fn a_rest_saves_up_no_more_than_the_slack() {
        let mut channel = Channel::new(ChannelSettings {
            rate: rate(100e6),
            ..ChannelSettings::default()
        });
        let now = Moment(0) + Duration::from_secs(60);
        let done = channel.request(now, 1, MEGABYTE);
        assert_eq!(done.since(now), Duration::from_millis(10) - SLACK);
    }

    #[test]
    fn memory_is_bounded_whatever_the_number_of_flows() {
        let mut channel = Channel::new(ChannelSettings {
            flow_rate: rate(1e9),
            ..ChannelSettings::default()
        });
        for flow in 0..100_000 {
            let now = Moment(flow * 10_000_000);
            channel.request(now, flow, 4096);
            channel.answered(Duration::ZERO);
        }
        assert!(channel.flows.len() <= MAXIMUM_FLOWS);
    }
}
