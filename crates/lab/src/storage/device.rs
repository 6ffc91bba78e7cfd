//! A storage device as a queue in virtual time: computes the duration of each request,
//! for requests from several flows.
//!
//! A request waits for the device and for its own flow. The device serves requests in
//! order, at a rate that depends on the number of outstanding requests. A flow may also
//! have its own rate limit. Then the latency follows, during which the device already
//! serves other requests. Latency therefore limits a single flow with small requests, and
//! the device limits several flows. An optimiser has to find the best number of flows.
//!
//! # Accuracy
//!
//! Exact to a nanosecond per request in virtual time. A real caller sends its next
//! request a moment after the last answer. [`SLACK`] prevents that this moment counts as
//! idle time, so that a single synchronous flow gets its full rate.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_units::{ByteRate, Moment};

use crate::emulator::lateness::Lateness;

/// Maximum idle time for which a device still compensates: the duration of a thread's
/// wake-up and a system call on a busy host, with a margin. After a longer pause, the
/// device has accumulated this much time and no more.
pub const SLACK: Duration = Duration::from_millis(2);

/// Maximum number of flows whose state is kept. Beyond it, idle flows are removed.
const MAXIMUM_FLOWS: usize = 4096;

/// Settings of one direction (reading or writing) of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelSettings {
    /// Rate of all flows together with one outstanding request. `None` means unlimited.
    pub rate: Option<ByteRate>,
    /// Maximum rate per flow. `None` means unlimited.
    pub flow_rate: Option<ByteRate>,
    /// Time from the end of a request's service to its answer, 0 to an hour.
    pub latency: Duration,
    /// Decrease of the rate with flows: γ of Eq. 3 in paper 004, T = α/(L + γ), with α =
    /// rate × (1 + γ), so that one flow has the whole rate. 0 or more; a small γ means a
    /// steep decrease. `None` means a constant rate.
    pub contention: Option<f64>,
}

impl ChannelSettings {
    /// Returns the device's rate with this many outstanding requests, in bytes per second
    /// (paper 004, Eq. 3); `None` if it is unlimited.
    pub fn rate_at(&self, outstanding: usize) -> Option<f64> {
        let rate = self.rate?.bytes_per_second();
        let flows = outstanding.max(1) as f64;
        Some(match self.contention {
            Some(gamma) => rate * (1.0 + gamma) / (flows + gamma),
            None => rate,
        })
    }
}

/// Counters of one direction of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Number of answered requests.
    pub requests: u64,
    /// Number of requested bytes.
    pub bytes: u64,
    /// Maximum number of outstanding requests.
    pub most_outstanding: usize,
    /// Lateness of answers beyond the device's time: the directory behind it was slower,
    /// or the processors were busy.
    pub lateness: Lateness,
}

/// One direction of a device.
#[derive(Debug)]
pub struct Channel {
    settings: ChannelSettings,
    counters: ChannelCounters,
    /// Time at which the device has served all requests so far.
    free: Moment,
    /// Time at which each flow may be served again.
    flows: HashMap<u64, Moment>,
    outstanding: usize,
}

impl Channel {
    /// Creates a channel that has served no request.
    pub fn new(settings: ChannelSettings) -> Channel {
        Channel {
            settings,
            counters: ChannelCounters::default(),
            free: Moment(0),
            flows: HashMap::new(),
            outstanding: 0,
        }
    }

    /// Adds a request of `flow` for `bytes` bytes that arrives at `now`. Returns the time
    /// of its answer. The caller must call [`Channel::answered`] afterwards.
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

    /// Records that a request was answered `late` after its due time.
    pub fn answered(&mut self, late: Duration) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.counters.requests += 1;
        self.counters.lateness.add(late);
    }

    /// Returns the counters since the creation.
    pub fn counters(&self) -> &ChannelCounters {
        &self.counters
    }

    /// Returns the number of outstanding requests.
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
    // The bound is never reached: a request has at most some MiB, and a rate is at least
    // one byte per second.
    Duration::from_secs_f64((bytes as f64 / bytes_per_second).min(1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1_000_000;

    fn rate(bytes_per_second: f64) -> Option<ByteRate> {
        ByteRate::new(bytes_per_second)
    }

    /// Returns the throughput in bytes per second of this many flows. Each has one
    /// outstanding request of a megabyte, and sends 200 requests.
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
        // The slack at the start is at most 2 ms of some seconds.
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
    fn the_flow_rate_applies_until_the_device_rate_is_reached() {
        let settings = ChannelSettings {
            rate: rate(200e6),
            flow_rate: rate(60e6),
            ..ChannelSettings::default()
        };
        for (flows, expected) in [(1, 60e6), (2, 120e6), (3, 180e6), (4, 200e6), (16, 200e6)] {
            assert_near(throughput(settings, flows), expected);
        }
    }

    /// Throughput is flows × request size / latency until the device's rate is reached.
    #[test]
    fn several_flows_hide_the_latency() {
        let settings = ChannelSettings {
            rate: rate(200e6),
            latency: Duration::from_millis(20),
            ..ChannelSettings::default()
        };
        // The device is idle during the latency, so that the next request of the flow
        // gains at most the slack.
        let one = throughput(settings, 1);
        let expected = 1e6 / 0.020..1e6 / (0.020 + 0.005 - 0.002) * 1.01;
        assert!(expected.start * 0.8 < one && one < expected.end, "{one}");
        assert_near(throughput(settings, 16), 200e6);
    }

    /// Paper 004, Eq. 3: T = α/(L + γ).
    #[test]
    fn the_rate_falls_with_flows_according_to_paper_004() {
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
            // At the start and the end, fewer requests are outstanding.
            assert!((found / expected - 1.0).abs() < 0.02, "{flows}: {found}");
        }
    }

    #[test]
    fn requests_do_not_wait_without_limits() {
        let mut channel = Channel::new(ChannelSettings::default());
        let now = Moment(5);
        assert_eq!(channel.request(now, 1, u64::MAX), now);
        assert_eq!(channel.outstanding(), 1);
        channel.answered(Duration::ZERO);
        channel.answered(Duration::ZERO);
        assert_eq!(channel.outstanding(), 0);
    }

    #[test]
    fn an_idle_device_accumulates_at_most_the_slack() {
        let mut channel = Channel::new(ChannelSettings {
            rate: rate(100e6),
            ..ChannelSettings::default()
        });
        let now = Moment(0) + Duration::from_secs(60);
        let done = channel.request(now, 1, MEGABYTE);
        assert_eq!(done.since(now), Duration::from_millis(10) - SLACK);
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_flows() {
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
