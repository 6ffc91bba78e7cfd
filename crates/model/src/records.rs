//! Fits the costs of layers and their CPU time to records of runs, for predictions of other runs on
//! the same hosts.

use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_measure::record::{Ended, Knob, Measures, RunRecord, Side};
use longhaul_measure::stats::median;
use longhaul_units::counted;
use serde::{Deserialize, Serialize};

use crate::history::{Worked, cost_of};
use crate::limit::Limit;
use crate::transfer::LayerCost;

/// Schema version of the document.
const SCHEMA: u32 = 1;

/// Maximum number of runs used. A sweep has some thousands.
const MOST_RUNS: usize = 100_000;

/// The CPU cost of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuCost {
    /// CPU seconds per byte.
    pub seconds_per_byte: f64,
    /// CPU seconds per file.
    pub seconds_per_file: f64,
}

/// The costs fitted to records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFits {
    /// Number of runs used.
    pub runs: usize,
    /// Costs of the flows of each layer.
    pub layers: BTreeMap<Limit, LayerCost>,
    /// CPU cost of the sending end. `None` if no run records a cost.
    pub source: Option<CpuCost>,
    /// CPU cost of the receiving end. `None` if no run records a cost.
    pub destination: Option<CpuCost>,
    /// CPU cost of the lab's emulator, which shares the cores of both ends.
    pub emulator: Option<CpuCost>,
    /// Utilisation of a host's cores, 0 to 1, in copies that they limit. `None` if no run shows it.
    /// It is below 1 because threads wait for each other.
    pub busiest: Option<f64>,
}

/// The document as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: u32,
    kind: String,
    runs: usize,
    layers: Vec<LayerDocument>,
    source_cpu: Option<CpuCost>,
    destination_cpu: Option<CpuCost>,
    #[serde(default)]
    emulator_cpu: Option<CpuCost>,
    #[serde(default)]
    busiest: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerDocument {
    layer: String,
    seconds_per_byte: f64,
    seconds_per_file: f64,
    flows: u32,
    uncertainty: f64,
}

const KIND: &str = "record fits";

/// Utilisation of the cores below which they did not limit a run.
const LEAST_BUSY: f64 = 0.5;

/// Share of the path's capacity above which the path may have limited a run.
const NEAR_THE_PATH: f64 = 0.8;

/// Collects runs one after the other.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    runs: usize,
    layers: BTreeMap<Limit, (u32, Vec<Worked>)>,
    cpu: [Vec<Worked>; 3],
    busy: Vec<f64>,
}

impl Gathered {
    /// Adds a run if it is a complete transfer by longhaul without compression. The cost of a codec
    /// is not part of the layers.
    pub fn add(&mut self, record: &RunRecord) {
        let is_ours =
            record.measures == Measures::Transfer && record.method.name.starts_with("longhaul");
        let is_whole = record.outcome.ended == Ended::Done && !record.run.warm_up;
        let bytes = record.outcome.moved.0 as f64;
        let seconds = record.outcome.wall.as_secs_f64();
        let is_plain = match record.knobs.get("compress") {
            None => true,
            Some(knob) => *knob == Knob::Word("off".to_owned()),
        };
        let is_timed = bytes > 0.0 && seconds > 0.0;
        if !is_ours || !is_whole || !is_plain || !is_timed || self.runs >= MOST_RUNS {
            return;
        }
        self.runs += 1;
        let files = (record.dataset.files as f64).max(1.0);
        let worked = |seconds: f64| Worked {
            seconds,
            bytes,
            files,
        };
        for layer in &record.layers {
            let known = [Limit::Read, Limit::Write, Limit::Commit];
            let named = Limit::of_name(&layer.layer).filter(|it| known.contains(it));
            let (Some(limit), true) = (named, layer.utilisation > 0.0 && layer.flows > 0) else {
                continue;
            };
            let (flows, all) = self.layers.entry(limit).or_default();
            *flows = layer.flows.max(*flows);
            all.push(worked(layer.utilisation * f64::from(layer.flows) * seconds));
        }
        let sides = [Side::Source, Side::Destination, Side::Emulator];
        for (side, all) in sides.into_iter().zip(&mut self.cpu) {
            let cpu = record.cpu_seconds(&[side]).filter(|cpu| *cpu > 0.0);
            all.extend(cpu.map(worked));
        }
        let is_free = record.path.loss <= 0.0 && path_share(record) < NEAR_THE_PATH;
        let share = busy_share(record).filter(|it| is_free && *it >= LEAST_BUSY);
        self.busy.extend(share);
    }

    /// Returns the fitted costs.
    pub fn fits(&self) -> RecordFits {
        let costs = self.layers.iter();
        let costs = costs.filter_map(|(layer, (flows, all))| Some((*layer, cost_of(all, *flows)?)));
        let cpu = |worked: &[Worked]| {
            let cost = cost_of(worked, 1)?;
            Some(CpuCost {
                seconds_per_byte: cost.seconds_per_byte,
                seconds_per_file: cost.seconds_per_file,
            })
        };
        RecordFits {
            runs: self.runs,
            layers: costs.collect(),
            source: cpu(&self.cpu[0]),
            destination: cpu(&self.cpu[1]),
            emulator: cpu(&self.cpu[2]),
            // Uses the median of the runs that the cores limited. A high quantile would represent
            // lucky runs, and predict too high a rate.
            busiest: median(&self.busy).map(|it| it.min(1.0)),
        }
    }
}

/// Returns the goodput of a run as a share of its path's capacity, or 0 if unknown.
fn path_share(record: &RunRecord) -> f64 {
    let capacity = record.path.capacity.bits_per_second();
    if capacity > 0.0 {
        record.outcome.goodput.bits_per_second() / capacity
    } else {
        0.0
    }
}

/// Returns the utilisation of the cores of a run's busier host.
fn busy_share(record: &RunRecord) -> Option<f64> {
    let share = |cores: u32, sides: &[Side]| {
        let cpu = record.cpu_seconds(sides)?;
        let all = f64::from(cores) * record.outcome.wall.as_secs_f64();
        (cores > 0 && cpu > 0.0 && all > 0.0).then(|| cpu / all)
    };
    let (source, destination) = (&record.source, &record.destination);
    if record.is_one_machine() {
        return share(
            source.cores,
            &[Side::Source, Side::Destination, Side::Emulator],
        );
    }
    let ends = [
        share(source.cores, &[Side::Source]),
        share(destination.cores, &[Side::Destination]),
    ];
    ends.into_iter().flatten().reduce(f64::max)
}

impl RecordFits {
    /// Converts the fits to JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let layers = self.layers.iter().map(|(layer, cost)| LayerDocument {
            layer: layer.name().to_owned(),
            seconds_per_byte: cost.seconds_per_byte,
            seconds_per_file: cost.seconds_per_file,
            flows: cost.flows,
            uncertainty: cost.uncertainty,
        });
        let document = Document {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            runs: self.runs,
            layers: layers.collect(),
            source_cpu: self.source,
            destination_cpu: self.destination,
            emulator_cpu: self.emulator,
            busiest: self.busiest,
        };
        serde_json::to_value(document).unwrap_or_default()
    }

    /// Parses a document.
    ///
    /// # Errors
    ///
    /// If the text is not a document of this release.
    pub fn of_text(text: &str) -> Result<RecordFits, String> {
        let what = "make it with `longhaul model fit RECORDS -o FILE`";
        let document: Document =
            serde_json::from_str(text).map_err(|error| format!("{error}: {what}"))?;
        if document.schema != SCHEMA || document.kind != KIND {
            return Err(format!("it is not a file of fits of this release: {what}"));
        }
        let is_cost = |value: f64| value.is_finite() && value >= 0.0;
        let mut layers = BTreeMap::new();
        for it in document.layers {
            let numbers = [it.seconds_per_byte, it.seconds_per_file, it.uncertainty];
            let limit = Limit::of_name(&it.layer);
            let (Some(limit), true) = (limit, numbers.into_iter().all(is_cost)) else {
                return Err(format!(
                    "layer {}: it is unknown, or a cost is negative",
                    it.layer
                ));
            };
            let cost = LayerCost {
                seconds_per_byte: it.seconds_per_byte,
                seconds_per_file: it.seconds_per_file,
                flows: it.flows.clamp(1, 4096),
                uncertainty: it.uncertainty.min(1.0),
            };
            layers.insert(limit, cost);
        }
        Ok(RecordFits {
            runs: document.runs,
            layers,
            source: document.source_cpu,
            destination: document.destination_cpu,
            emulator: document.emulator_cpu,
            busiest: document
                .busiest
                .filter(|it| (LEAST_BUSY..=1.0).contains(it)),
        })
    }

    /// Formats the fits as text.
    pub fn text(&self) -> String {
        let mut text = format!("from {}:\n", counted(self.runs, "run"));
        // Writing to a String cannot fail.
        for (layer, cost) in &self.layers {
            let _ = writeln!(
                text,
                "{layer}: {:.3} ns a byte, {:.3} ms a file of a flow, {} seen, ±{:.0} %",
                cost.seconds_per_byte * 1e9,
                cost.seconds_per_file * 1e3,
                counted(cost.flows, "flow"),
                cost.uncertainty * 100.0
            );
        }
        let ends = [
            ("source", self.source),
            ("destination", self.destination),
            ("emulator", self.emulator),
        ];
        for (end, cpu) in ends {
            if let Some(cpu) = cpu {
                let _ = writeln!(
                    text,
                    "CPU of the {end}: {:.3} s/GB, {:.3} ms a file",
                    cpu.seconds_per_byte * 1e9,
                    cpu.seconds_per_file * 1e3
                );
            }
        }
        if let Some(busiest) = self.busiest {
            let _ = writeln!(
                text,
                "cores: {:.0} % busy if they are the bottleneck",
                busiest * 100.0
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_measure::record::{CpuUse, LayerUse};
    use longhaul_units::ByteCount;

    use super::*;

    fn record(bytes: u64, files: u64) -> RunRecord {
        let text = r#"{"schema":1,"run":{"id":"a"},"measures":"transfer","method":{"name":"longhaul"},
            "path":{"rtt_seconds":0.1,"capacity_bits_per_second":1e9},
            "outcome":{"ended":"done","bytes":1,"wall_seconds":10.0,"goodput_bits_per_second":1e8}}"#;
        let mut record: RunRecord = serde_json::from_str(text).unwrap();
        record.outcome.moved = ByteCount(bytes);
        record.dataset.files = files;
        // The cost is 0.5 ns per byte and 1 ms per file, for four flows in ten seconds, with the
        // same CPU time.
        let worked = bytes as f64 * 0.5e-9 + files as f64 * 1e-3;
        record.layers = vec![LayerUse {
            layer: "write".to_owned(),
            flows: 4,
            utilisation: worked / 40.0,
        }];
        record.cpu = vec![CpuUse {
            process: "longhaul".to_owned(),
            side: Side::Destination,
            user: Duration::from_secs_f64(worked),
            system: Duration::ZERO,
        }];
        record
    }

    #[test]
    fn runs_limited_by_cores_show_their_utilisation() {
        let busy = |share: f64| {
            let mut record = record(1_000_000_000, 10);
            record.path.name = "lab".to_owned();
            record.path.capacity = "1gbit".parse().unwrap();
            (record.source.cores, record.destination.cores) = (2, 2);
            let each = Duration::from_secs_f64(share * 20.0 / 2.0);
            let of = |side| CpuUse {
                process: "longhaul".to_owned(),
                side,
                user: each,
                system: Duration::ZERO,
            };
            record.cpu = vec![of(Side::Source), of(Side::Emulator)];
            record
        };
        let fits = |shares: &[f64]| {
            let mut gathered = Gathered::default();
            shares.iter().for_each(|it| gathered.add(&busy(*it)));
            gathered.fits()
        };
        // The median counts, neither the highest value nor runs with another bottleneck.
        let found = fits(&[0.2, 0.3, 0.7, 0.75, 0.95]);
        let busiest = found.busiest.unwrap();
        assert!((busiest - 0.75).abs() < 1e-6, "{busiest}");
        let again = RecordFits::of_text(&found.to_json().to_string()).unwrap();
        assert_eq!(again.busiest, found.busiest);
        // Cores did not limit any of these runs.
        assert_eq!(fits(&[0.1, 0.2, 0.3]).busiest, None);
        let mut full = busy(0.9);
        full.path.capacity = "110mbit".parse().unwrap();
        let mut lossy = busy(0.9);
        lossy.path.loss = 1e-4;
        let mut gathered = Gathered::default();
        [full, lossy].iter().for_each(|it| gathered.add(it));
        assert_eq!(gathered.fits().busiest, None);
    }

    #[test]
    fn runs_with_a_codec_are_ignored() {
        let mut record = record(1_000_000_000, 10);
        let codec = Knob::Word("zstd:3".to_owned());
        record.knobs.insert("compress".to_owned(), codec);
        let mut gathered = Gathered::default();
        gathered.add(&record);
        assert_eq!(gathered.fits().runs, 0);
    }

    #[test]
    fn fitted_costs_are_written_and_read_back() {
        let mut gathered = Gathered::default();
        for (bytes, files) in [
            (10_000_000_000, 10),
            (1_000_000, 5000),
            (1_000_000_000, 100),
        ] {
            gathered.add(&record(bytes, files));
        }
        let mut other = record(1, 1);
        other.method.name = "rsync".to_owned();
        gathered.add(&other);
        let fits = gathered.fits();
        assert_eq!(fits.runs, 3);
        let write = fits.layers[&Limit::Write];
        assert!(
            (write.seconds_per_byte / 0.5e-9 - 1.0).abs() < 1e-3,
            "{write:?}"
        );
        assert!(
            (write.seconds_per_file / 1e-3 - 1.0).abs() < 1e-3,
            "{write:?}"
        );
        assert_eq!(fits.source, None);
        let cpu = fits.destination.unwrap();
        assert!(
            (cpu.seconds_per_byte / 0.5e-9 - 1.0).abs() < 1e-3,
            "{cpu:?}"
        );
        assert!(
            fits.text().contains("write: 0.500 ns a byte"),
            "{}",
            fits.text()
        );
        let again = RecordFits::of_text(&fits.to_json().to_string()).unwrap();
        assert_eq!(again.layers.len(), 1);
        assert!(RecordFits::of_text("{}").unwrap_err().contains("model fit"));
    }
}
