//! Earlier transfers between this host and another one, and predictions from them. The crate
//! `transfer` reads and writes the file.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use longhaul_measure::stats::median;
use longhaul_units::{ByteCount, counted};
use serde::{Deserialize, Serialize};

use crate::capacity::Window;
use crate::explain::{rate_text, span_text};
use crate::limit::Limit;
use crate::response::Congestion;
use crate::transfer::{LayerCost, PathFacts};

/// Schema version of a line.
pub const SCHEMA: u32 = 1;

/// Direction of the data, from the point of view of the host that keeps the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// To the other host.
    To,
    /// From the other host.
    From,
}

/// Figures of a layer in an earlier transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastLayer {
    /// Name, as in [`Limit::name`].
    pub layer: String,
    /// Number of flows.
    pub flows: u32,
    /// Utilisation of the flows, 0 to 1.
    pub busy: f64,
}

/// A completed transfer. Contains no file names and no credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastTransfer {
    /// Schema version: [`SCHEMA`].
    pub schema: u32,
    /// Time of the end, in RFC 3339 format.
    pub at: String,
    /// Name of the other host.
    pub host: String,
    /// Direction of the data.
    pub way: Way,
    /// Least round-trip time in seconds.
    pub rtt_seconds: f64,
    /// Number of file bytes moved.
    pub bytes: u64,
    /// Number of files moved.
    pub files: u64,
    /// Duration of the session in seconds.
    pub seconds: f64,
    /// Number of bytes on the wire, without the overhead of encryption.
    pub wire_bytes: u64,
    /// Maximum number of streams.
    pub streams: u32,
    /// Congestion control of the streams. Empty if unknown.
    pub congestion: String,
    /// Guaranteed bytes in flight of one stream, by the limits of both kernels.
    pub window_bytes: Option<u64>,
    /// Expected bytes in flight of one stream. `None` if unknown.
    pub likely_window_bytes: Option<u64>,
    /// Share of segments that were retransmitted, 0 to 1.
    pub sent_again: f64,
    /// Bottleneck, as named by [`Limit`].
    pub limit: Option<String>,
    /// True if a requested rate limited the transfer.
    pub bound: bool,
    /// Figures of the layers at both ends.
    pub layers: Vec<PastLayer>,
    /// Predicted duration in seconds.
    pub predicted_seconds: Option<f64>,
}

/// Facts derived from the earlier transfers in one direction between two hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// Number of transfers used.
    pub transfers: usize,
    /// The path. `None` if there are no transfers.
    pub path: Option<PathFacts>,
    /// Costs of the flows of each layer.
    pub layers: BTreeMap<Limit, LayerCost>,
    /// Reasons to mistrust these facts.
    pub doubts: Vec<String>,
}

/// Maximum number of transfers used, the newest. Hosts and paths change.
const RECENT: usize = 20;

/// Minimum duration of a transfer that shows the path's rate: this many round trips plus this many
/// seconds.
const LONG: (f64, f64) = (20.0, 1.0);

/// Factor on the highest observed rate of a path that was never full, and the uncertainty. The path
/// carries at least the observed rate, so the estimate is twice that, with an uncertainty of a
/// half.
const MORE_THAN_SEEN: f64 = 2.0;
const UNSEEN: f64 = 0.5;

/// Uncertainty of a single transfer, and minimum uncertainty of several.
const OF_ONE: f64 = 0.3;
const LEAST_UNCERTAINTY: f64 = 0.05;

/// Minimum share of retransmitted segments that counts as random loss if the path was not full.
const NOTABLE_LOSS: f64 = 1e-5;

/// Payload of a segment in bytes, at an MTU of 1500 and with timestamps.
const SEGMENT: f64 = 1448.0;

impl PastTransfer {
    /// True if the numbers are valid. The file may have been edited.
    pub fn is_sound(&self) -> bool {
        let numbers = [self.rtt_seconds, self.seconds, self.sent_again];
        let layers = self.layers.iter();
        self.schema == SCHEMA
            && numbers.iter().all(|it| it.is_finite() && *it >= 0.0)
            && self.seconds > 0.0
            && self.rtt_seconds <= 3600.0
            && self.sent_again <= 1.0
            && layers.clone().count() <= Limit::LAYERS.len()
            && layers
                .into_iter()
                .all(|it| (0.0..=1.0).contains(&it.busy) && it.flows <= 100_000)
    }

    /// Returns the rate on the wire in bytes per second, without the round trips at the beginning
    /// and the end.
    fn wire_rate(&self) -> f64 {
        let moving = (self.seconds - 2.0 * self.rtt_seconds).max(self.seconds / 2.0);
        self.wire_bytes as f64 / moving
    }

    fn is_long(&self) -> bool {
        self.seconds >= LONG.1 + LONG.0 * self.rtt_seconds
    }

    fn window(&self) -> Option<Window> {
        let least = self.window_bytes.filter(|bytes| *bytes > 0)?;
        let likely = self.likely_window_bytes.unwrap_or(least).max(least);
        Some(Window {
            likely: likely as f64,
            least: least as f64,
        })
    }

    fn limited_by(&self) -> Option<Limit> {
        self.limit.as_deref().and_then(Limit::of_name)
    }
}

/// Writes the time, direction and host of the transfer, its size, rate and bottleneck.
impl fmt::Display for PastTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            Way::To => "to",
            Way::From => "from",
        };
        let limit = self.limit.as_deref();
        write!(
            f,
            "{} {way} {}: {}, {}, {}, {}, {}, {:.1} ms{}",
            self.at,
            self.host,
            ByteCount(self.bytes),
            counted(self.files, "file"),
            span_text(self.seconds),
            rate_text(self.bytes as f64 / self.seconds),
            counted(self.streams, "stream"),
            self.rtt_seconds * 1e3,
            limit.map_or_else(String::new, |limit| format!(", limited by {limit}")),
        )
    }
}

/// Derives facts for the next transfer with this host in this direction. `past` may contain other
/// hosts; the newest transfer is last.
pub fn remember(past: &[PastTransfer], host: &str, way: Way) -> Remembered {
    let of_pair = past
        .iter()
        .rev()
        .filter(|it| it.host == host && it.way == way && it.is_sound());
    let recent: Vec<&PastTransfer> = of_pair.take(RECENT).collect();
    if recent.is_empty() {
        return Remembered::default();
    }
    let mut doubts = Vec::new();
    let path = path(&recent, &mut doubts);
    let cost = |layer: Limit| Some((layer, cost(&recent, layer)?));
    let layers = [Limit::Read, Limit::Write, Limit::Commit];
    Remembered {
        transfers: recent.len(),
        path: Some(path),
        layers: layers.into_iter().filter_map(cost).collect(),
        doubts,
    }
}

fn path(recent: &[&PastTransfer], doubts: &mut Vec<String>) -> PathFacts {
    let rtts: Vec<f64> = recent.iter().map(|it| it.rtt_seconds).collect();
    let free = || recent.iter().filter(|it| !it.bound && it.wire_bytes > 0);
    let full = |it: &&&PastTransfer| it.limited_by() == Some(Limit::Path) && it.is_long();
    let full: Vec<f64> = free().filter(full).map(|it| it.wire_rate()).collect();
    let seen = free().map(|it| it.wire_rate()).fold(0.0, f64::max);
    let (payload, uncertainty) = match median(&full) {
        // A later transfer with a higher rate takes precedence over the median.
        Some(rate) if seen < rate * 1.1 => (Some(rate), spread(&full, rate)),
        Some(_) => (Some(seen), OF_ONE),
        None if seen > 0.0 => {
            doubts.push(format!(
                "no earlier copy filled the path: it carries {:.0} Mbit/s or more",
                seen * 8.0 / 1e6
            ));
            (Some(seen * MORE_THAN_SEEN), UNSEEN)
        }
        None => (None, UNSEEN),
    };
    let newest = recent.first();
    let window = recent.iter().find_map(|it| it.window());
    let congestion = recent
        .iter()
        .map(|it| it.congestion.as_str())
        .find(|it| !it.is_empty());
    // The queue of a full path also loses segments.
    let lossy = newest.filter(|it| it.limited_by() == Some(Limit::Loss));
    let loss = lossy.map_or(0.0, |it| it.sent_again);
    PathFacts {
        payload,
        rtt: Duration::from_secs_f64(median(&rtts).unwrap_or(0.0).max(1e-5)),
        loss: if loss >= NOTABLE_LOSS { loss } else { 0.0 },
        window,
        segment: SEGMENT,
        congestion: Congestion::of_name(congestion.unwrap_or("cubic")),
        uncertainty,
    }
}

/// Returns half the width of the interval of values around their middle, as a share of the middle.
fn spread(values: &[f64], middle: f64) -> f64 {
    if values.len() < 2 || middle <= 0.0 {
        return OF_ONE;
    }
    let off: Vec<f64> = values.iter().map(|it| (it / middle - 1.0).abs()).collect();
    // The median of the distances is 0.67 standard deviations.
    let half = 1.96 * 1.48 * median(&off).unwrap_or(OF_ONE);
    half.clamp(LEAST_UNCERTAINTY, 0.9)
}

/// The work of a layer's flows, or of an end's cores, in a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worked {
    /// Seconds of all flows together.
    pub(crate) seconds: f64,
    /// Number of bytes processed.
    pub(crate) bytes: f64,
    /// Number of files processed, at least 1.
    pub(crate) files: f64,
}

/// Mean size of files in bytes above which the bytes take the time, not the files.
const LARGE_MEAN: f64 = 4e6;

/// Factor between mean sizes above which the costs of bytes and of files can be separated.
const DIFFERENT: f64 = 4.0;

fn cost(recent: &[&PastTransfer], layer: Limit) -> Option<LayerCost> {
    let mut flows = 1;
    let mut worked = Vec::new();
    for it in recent.iter().filter(|it| it.bytes > 0) {
        let found = it.layers.iter().find(|found| found.layer == layer.name());
        let Some(found) = found.filter(|found| found.busy > 0.0 && found.flows > 0) else {
            continue;
        };
        flows = flows.max(found.flows);
        worked.push(Worked {
            seconds: found.busy * f64::from(found.flows) * it.seconds,
            bytes: it.bytes as f64,
            files: (it.files as f64).max(1.0),
        });
    }
    cost_of(&worked, flows)
}

/// Computes the cost of a layer's flows from all transfers, if there are any.
pub(crate) fn cost_of(worked: &[Worked], flows: u32) -> Option<LayerCost> {
    if worked.is_empty() {
        return None;
    }
    let (by_byte, by_file) = split(worked);
    let off: Vec<f64> = worked
        .iter()
        .map(|it| it.seconds / (by_byte * it.bytes + by_file * it.files).max(f64::MIN_POSITIVE))
        .collect();
    Some(LayerCost {
        seconds_per_byte: by_byte,
        seconds_per_file: by_file,
        flows,
        uncertainty: spread(&off, 1.0),
    })
}

/// Returns the seconds of a flow per byte and per file. Uses least squares of relative residuals if
/// the mean sizes differ enough. Otherwise one of the two gets the whole cost.
fn split(worked: &[Worked]) -> (f64, f64) {
    let means = || worked.iter().map(|it| it.bytes / it.files);
    let least = means().fold(f64::INFINITY, f64::min);
    let most = means().fold(0.0, f64::max);
    let each = |of: fn(&Worked) -> f64| {
        let shares: Vec<f64> = worked.iter().map(|it| it.seconds / of(it)).collect();
        median(&shares).unwrap_or(0.0)
    };
    let (all_bytes, all_files) = (each(|it| it.bytes), each(|it| it.files));
    if most >= least * DIFFERENT {
        // Solves a·x + b·y = 1 with x = bytes / seconds and y = files / seconds.
        let (mut xx, mut xy, mut yy, mut x, mut y) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for it in worked {
            let (of_bytes, of_files) = (it.bytes / it.seconds, it.files / it.seconds);
            xx += of_bytes * of_bytes;
            xy += of_bytes * of_files;
            yy += of_files * of_files;
            x += of_bytes;
            y += of_files;
        }
        let determinant = xx * yy - xy * xy;
        let (a, b) = (
            (x * yy - y * xy) / determinant,
            (y * xx - x * xy) / determinant,
        );
        if determinant > 0.0 && a.is_finite() && b.is_finite() && a >= 0.0 && b >= 0.0 {
            return (a, b);
        }
        // One of the costs would be negative. The other one with the smaller residuals gets the
        // whole cost.
        let left = |a: f64, b: f64| -> f64 {
            let off = worked
                .iter()
                .map(|it| ((a * it.bytes + b * it.files) / it.seconds - 1.0).powi(2));
            off.sum()
        };
        return if left(all_bytes, 0.0) <= left(0.0, all_files) {
            (all_bytes, 0.0)
        } else {
            (0.0, all_files)
        };
    }
    if (least * most).sqrt() >= LARGE_MEAN {
        (all_bytes, 0.0)
    } else {
        (0.0, all_files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(bytes: u64, files: u64, seconds: f64, limit: Limit) -> PastTransfer {
        PastTransfer {
            schema: SCHEMA,
            at: "2026-11-26T10:00:00Z".to_owned(),
            host: "dtn7".to_owned(),
            way: Way::To,
            rtt_seconds: 0.1,
            bytes,
            files,
            seconds,
            wire_bytes: bytes,
            streams: 8,
            congestion: "bbr".to_owned(),
            window_bytes: Some(2_900_000),
            likely_window_bytes: Some(3_700_000),
            sent_again: 0.0,
            limit: Some(limit.name().to_owned()),
            bound: false,
            layers: vec![PastLayer {
                layer: "write".to_owned(),
                flows: 4,
                busy: 0.25,
            }],
            predicted_seconds: None,
        }
    }

    #[test]
    fn the_rate_is_known_only_if_the_path_was_full() {
        let full: Vec<PastTransfer> = (0..30)
            .map(|at| past(10_000_000_000, 1, 100.0 + f64::from(at % 3), Limit::Path))
            .collect();
        let found = remember(&full, "dtn7", Way::To);
        assert_eq!(found.transfers, 20);
        let path = found.path.unwrap();
        assert!(
            (path.payload.unwrap() / 99.2e6 - 1.0).abs() < 0.02,
            "{path:?}"
        );
        assert!(path.uncertainty < 0.1 && found.doubts.is_empty());
        let windows = Window {
            likely: 3.7e6,
            least: 2.9e6,
        };
        assert_eq!(path.window, Some(windows));
        // Only the guaranteed bytes are known.
        let mut old = full.clone();
        old.iter_mut().for_each(|it| it.likely_window_bytes = None);
        let path = remember(&old, "dtn7", Way::To).path.unwrap();
        assert_eq!(path.window, Some(Window::of(2.9e6)));
        let not_full = [past(10_000_000_000, 1, 100.0, Limit::Write)];
        let found = remember(&not_full, "dtn7", Way::To);
        let path = found.path.unwrap();
        let low = path.payload.unwrap() * (1.0 - path.uncertainty);
        assert!((low / 100.2e6 - 1.0).abs() < 0.01, "{low}");
        assert!(found.doubts[0].contains("or more"), "{:?}", found.doubts);
        assert_eq!(remember(&full, "dtn7", Way::From), Remembered::default());
        assert_eq!(remember(&full, "dtn8", Way::To), Remembered::default());
    }

    #[test]
    fn costs_of_bytes_and_files_are_separated() {
        // The cost is 1 ns per byte and 2 ms per file, for four flows.
        let of = |bytes: u64, files: u64| {
            let flow_seconds = bytes as f64 * 1e-9 + files as f64 * 2e-3;
            past(bytes, files, flow_seconds, Limit::Write)
        };
        let both = [of(10_000_000_000, 10), of(100_000_000, 10_000)];
        let cost = remember(&both, "dtn7", Way::To).layers[&Limit::Write];
        assert!(
            (cost.seconds_per_byte / 1e-9 - 1.0).abs() < 1e-6,
            "{cost:?}"
        );
        assert!(
            (cost.seconds_per_file / 2e-3 - 1.0).abs() < 1e-6,
            "{cost:?}"
        );
        assert_eq!(cost.flows, 4);
        let small = [of(100_000_000, 10_000)];
        let cost = remember(&small, "dtn7", Way::To).layers[&Limit::Write];
        assert!(cost.seconds_per_byte == 0.0 && cost.seconds_per_file > 2e-3);
    }

    #[test]
    fn invalid_transfers_are_ignored() {
        let mut odd = past(1, 1, f64::NAN, Limit::Path);
        assert!(!odd.is_sound());
        odd.seconds = 1.0;
        assert!(odd.is_sound());
        odd.layers[0].busy = 7.0;
        assert!(!odd.is_sound());
        assert_eq!(remember(&[odd], "dtn7", Way::To), Remembered::default());
    }
}
