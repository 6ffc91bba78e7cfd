//! Chooses the numbers of flows with which a copy begins, if earlier copies with the same host are
//! recorded. It uses the plan's numbers if they exceed the defaults. The controllers adjust them
//! afterwards.

use std::time::Duration;

use longhaul_model::forecast::forecast;
use longhaul_model::history::{self, PastTransfer};
use longhaul_model::limit::Limit;
use longhaul_net::host_limits::HostLimits;

use super::foresight::{Facts, is_same_rtt, known_from, way};

/// Maximum number of writers that a copy begins with. The storage may have changed, and the
/// controllers add writers while the copy runs.
const MOST_WRITERS: u32 = 8;

/// Maximum ratio of the initial streams to the default. A small copy would pay for more streams
/// without using them.
const MOST_MORE_STREAMS: u32 = 4;

/// Initial numbers of flows, planned from earlier transfers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beginning {
    rtt: Duration,
    streams: Option<u32>,
    writers: Option<u32>,
}

impl Beginning {
    /// Plans a copy of large files from earlier transfers, the oldest first. `None` if no sound one
    /// was with this host in this direction. Takes a few milliseconds.
    pub fn new(past: Vec<PastTransfer>, host: &str, receives: bool) -> Option<Beginning> {
        let newest = past.iter().rev();
        let newest = newest
            .filter(|it| it.host == host && it.way == way(receives))
            .find(|it| it.is_sound())?;
        let rtt = Duration::try_from_secs_f64(newest.rtt_seconds).ok()?;
        let facts = Facts {
            host: Some(host.to_owned()),
            receives,
            rtt,
            limits: HostLimits::read(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            ..Facts::default()
        };
        let mut past = past;
        past.retain(|it| is_same_rtt(rtt.as_secs_f64(), it.rtt_seconds));
        let remembered = history::remember(&past, host, way(receives));
        let writes = remembered.layers.contains_key(&Limit::Write);
        let planned = forecast(&known_from(&facts, &remembered)).ok()?;
        let layers = planned.layers();
        let of = |layer: Limit| {
            let found = layers.iter().find(|(each, _)| *each == layer);
            found.map(|(_, figures)| figures.flows)
        };
        Some(Beginning {
            rtt,
            streams: of(Limit::Wire),
            writers: of(Limit::Write).filter(|_| writes),
        })
    }

    /// Returns the number of streams for a path with this round trip; `usual` is the default.
    pub fn streams(&self, rtt: Duration, usual: u32) -> u32 {
        let is_same = is_same_rtt(rtt.as_secs_f64(), self.rtt.as_secs_f64());
        let planned = self.streams.filter(|_| is_same).unwrap_or(usual);
        planned.clamp(usual, usual.saturating_mul(MOST_MORE_STREAMS))
    }

    /// Returns the number of writers if it exceeds the default, `usual`.
    pub fn more_writers(&self, usual: usize) -> Option<u32> {
        let planned = self.writers?.min(MOST_WRITERS);
        (planned as usize > usual).then_some(planned)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_model::history::{PastLayer, SCHEMA, Way};

    use super::*;

    /// Returns a copy to a host whose streams lost segments, and whose writers were busy.
    fn past(host: &str, rtt_seconds: f64) -> PastTransfer {
        PastTransfer {
            schema: SCHEMA,
            at: "2026-01-31T12:00:00Z".into(),
            host: host.into(),
            way: Way::To,
            rtt_seconds,
            bytes: 10_000_000_000,
            files: 10,
            seconds: 100.0,
            wire_bytes: 10_100_000_000,
            streams: 4,
            congestion: "cubic".into(),
            window_bytes: Some(2_900_000),
            likely_window_bytes: Some(3_700_000),
            sent_again: 0.0,
            limit: Some("path".into()),
            bound: false,
            layers: vec![PastLayer {
                layer: "write".into(),
                flows: 2,
                busy: 0.9,
            }],
            predicted_seconds: None,
        }
    }

    #[test]
    fn a_copy_on_a_known_path_begins_with_the_streams_that_fill_it() {
        let begins = Beginning::new(vec![past("a", 0.2)], "a", false).unwrap();
        // 100 MB/s at 200 ms are seven windows of 2.9 MB.
        let streams = begins.streams(Duration::from_millis(200), 2);
        assert!((7..=8).contains(&streams), "{begins:?}");
        assert_eq!(begins.streams(Duration::from_millis(200), 16), 16);
        assert_eq!(
            begins.streams(Duration::from_millis(20), 2),
            2,
            "another path"
        );
        assert!(begins.more_writers(1) >= Some(2), "{begins:?}");
        assert_eq!(begins.more_writers(9), None);
    }

    #[test]
    fn without_history_no_flows_are_planned() {
        assert_eq!(Beginning::new(Vec::new(), "a", false), None);
        assert_eq!(Beginning::new(vec![past("a", 0.2)], "b", false), None);
        assert_eq!(Beginning::new(vec![past("a", 0.2)], "a", true), None);
    }

    #[test]
    fn a_short_path_begins_with_the_default_streams() {
        let begins = Beginning::new(vec![past("a", 0.001)], "a", false).unwrap();
        assert_eq!(begins.streams(Duration::from_millis(1), 4), 4);
    }
}
