//! Reasons why the model does not predict a run.

use std::fmt;

use longhaul_measure::record::{Ended, Knob, Measures, RunRecord};

use super::{Known, fixed};

/// Reasons why a run has no prediction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unpredicted {
    /// The run measured storage only.
    NoTransfer,
    /// Another tool moved the data.
    OtherTool(String),
    /// The run failed, or moved no data.
    Unfinished,
    /// The run was a warm-up.
    WarmUp,
    /// The record has no round-trip time of the path.
    UnknownPath,
    /// Other transfers used the path during the run.
    Beside,
    /// The path was disturbed, by the name of the setting. The model requires a steady path.
    Accident(&'static str),
    /// A kernel setting that the model does not support, by name.
    Setting(&'static str),
    /// The data were compressed, and the record has no ratios and speeds for the kinds of data.
    Compressed,
    /// One codec was fixed for all data, and the source's profile lacks this codec.
    Codec(String),
    /// The run yielded to other traffic (`--nice`).
    Nice,
    /// The data were sent over SSH, because no port was open.
    OverSsh,
    /// The run wrote to a named storage without a profile.
    Storage(String),
    /// Storage is the bottleneck, and its rate is unknown. A prediction would be a guess.
    Guess,
    /// The graph has no solution, for this reason.
    Unsolved(String),
}

/// Knobs for disturbances of the path: cuts, changes, cross traffic, corruption.
const ACCIDENTS: [&str; 9] = [
    "cut",
    "change",
    "cross",
    "corrupt-unseen",
    "corrupt",
    "reorder",
    "jitter",
    "rate-back",
    "loss-model",
];

/// Kernel settings that the model requires to be on.
const SETTINGS: [&str; 3] = [
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_moderate_rcvbuf",
];

/// Minimum ratio of wire bytes to moved bytes without compression.
const PLAIN: f64 = 0.98;

/// Returns the reason why the model does not predict a run, as far as the record and `known` show
/// it.
pub fn reason(record: &RunRecord, known: &Known) -> Option<Unpredicted> {
    let is_done = record.outcome.ended == Ended::Done && record.outcome.moved.0 > 0;
    let reasons = [
        (
            record.measures == Measures::Storage,
            Unpredicted::NoTransfer,
        ),
        (
            // Streams from memory to memory are the same with every tool.
            record.measures == Measures::Transfer && !record.method.name.starts_with("longhaul"),
            Unpredicted::OtherTool(record.method.name.clone()),
        ),
        (
            !is_done || record.outcome.goodput.bits_per_second() <= 0.0,
            Unpredicted::Unfinished,
        ),
        (record.run.warm_up, Unpredicted::WarmUp),
        (
            record.measures == Measures::Memory && record.path.rtt.is_zero(),
            Unpredicted::UnknownPath,
        ),
        (!record.beside.is_empty(), Unpredicted::Beside),
        (record.method.name.ends_with("-nice"), Unpredicted::Nice),
        (record.knobs.contains_key("block"), Unpredicted::OverSsh),
        (
            was_compressed(record) && fixed::codec_of(record).is_none(),
            Unpredicted::Compressed,
        ),
    ];
    let reason = reasons.into_iter().find(|(holds, _)| *holds);
    let is_set = |name: &&str| record.knobs.contains_key(*name);
    let accident = || {
        ACCIDENTS
            .into_iter()
            .find(is_set)
            .map(Unpredicted::Accident)
    };
    let setting = || {
        let off = SETTINGS.into_iter().find(|name| is_off(record, name));
        off.map(Unpredicted::Setting)
    };
    let reason = reason.map(|it| it.1).or_else(accident).or_else(setting);
    reason.or_else(|| storage_of_its_own(record, known))
}

/// Returns the run's named storage if it has no profile. Fitted costs are those of other storage.
fn storage_of_its_own(record: &RunRecord, known: &Known) -> Option<Unpredicted> {
    let Some(Knob::Word(name)) = record.knobs.get("storage") else {
        return None;
    };
    let profile = known.destination.as_ref();
    let is_known = name == "none" || profile.is_some_and(|it| it.write.is_some());
    (!is_known).then(|| Unpredicted::Storage(name.clone()))
}

fn was_compressed(record: &RunRecord) -> bool {
    let said = |name: &str| record.outcome.said.get(name).copied();
    let both = said("wire_bytes").zip(said("moved_bytes"));
    both.is_some_and(|(wire, moved)| wire < moved * PLAIN)
}

fn is_off(record: &RunRecord, setting: &str) -> bool {
    let hosts = [&record.source, &record.destination];
    let mut values = hosts.iter().filter_map(|host| host.settings.get(setting));
    values.any(|value| value.trim() == "0")
}

impl fmt::Display for Unpredicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unpredicted::NoTransfer => f.write_str("storage of one host, without a path"),
            Unpredicted::OtherTool(name) => write!(f, "{name} moved the data, not longhaul"),
            Unpredicted::Unfinished => f.write_str("failed, or moved no data"),
            Unpredicted::WarmUp => f.write_str("a warm-up"),
            Unpredicted::UnknownPath => f.write_str(
                "the record has no round-trip time of the path: give `records import` --rtt",
            ),
            Unpredicted::Beside => f.write_str("other transfers used the path at the same time"),
            Unpredicted::Accident(name) => {
                write!(f, "the path was disturbed ({name}), but the model assumes a steady path")
            }
            Unpredicted::Setting(name) => {
                write!(f, "{name} was off, which the model does not support")
            }
            Unpredicted::Compressed => f.write_str(
                "data were compressed, but the record has no ratios and speeds for the kinds of data",
            ),
            Unpredicted::Codec(name) => write!(
                f,
                "the codec {name} was fixed, but the source's profile lacks this codec: measure it \
                with `bench codec`"
            ),
            Unpredicted::Nice => f.write_str("yielded to other traffic (--nice)"),
            Unpredicted::OverSsh => {
                f.write_str("the data were sent over SSH, whose windows are not in the model")
            }
            Unpredicted::Storage(name) => write!(
                f,
                "it wrote to the storage {name}, which has no profile: measure it with `bench disk`, and give \
                 --destination-profile"
            ),
            Unpredicted::Guess => f.write_str(
                "by the model, storage is the bottleneck, but its rate is unknown: give --fits, or \
                 --source-profile and --destination-profile",
            ),
            Unpredicted::Unsolved(error) => write!(f, "no solution: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Checks, summary};
    use super::*;

    fn record() -> RunRecord {
        let text = r#"{"schema": 1, "run": {"id": "a"}, "measures": "transfer",
            "method": {"name": "longhaul"},
            "path": {"name": "lab", "rtt_seconds": 0.1, "capacity_bits_per_second": 941e6,
                     "congestion_control": "cubic"},
            "source": {"name": "a", "cores": 2, "memory_bytes": 0},
            "destination": {"name": "b", "cores": 2, "memory_bytes": 0},
            "dataset": {"name": "large", "files": 1, "bytes": 1000000000, "sizes": []},
            "outcome": {"ended": "done", "bytes": 1000000000, "wall_seconds": 10,
                        "goodput_bits_per_second": 8e8}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn runs_without_a_prediction_have_a_reason() {
        let mut checks = Checks::default();
        let mut add = |change: fn(&mut RunRecord)| {
            let mut record = record();
            change(&mut record);
            checks.add(Path::new("some.jsonl"), &record, &Known::default())
        };
        assert!(add(|_| ())["error"].is_number());
        add(|it| it.method.name = "scp".to_owned());
        add(|it| it.method.name = "scp".to_owned());
        add(|it| it.method.name = "rsync".to_owned());
        add(|it| {
            let slow = Knob::Word("write-20MBps".to_owned());
            it.knobs.insert("storage".to_owned(), slow);
        });
        add(|it| {
            let closed = Knob::Word("b:5000-5009".to_owned());
            it.knobs.insert("block".to_owned(), closed);
        });
        // Only storage limits this run.
        let guessed = add(|it| it.path.capacity = "400gbit".parse().unwrap());
        let why = guessed["unpredicted"].as_str().unwrap();
        assert!(why.contains("its rate is unknown"), "{why}");
        let memory = add(|it| {
            it.measures = Measures::Memory;
            it.method.name = "iperf3".to_owned();
        });
        assert!(memory["error"].is_number(), "{memory}");
        let unknown = add(|it| {
            it.measures = Measures::Memory;
            it.path.rtt = std::time::Duration::ZERO;
        });
        let why = unknown["unpredicted"].as_str().unwrap();
        assert!(why.contains("--rtt"), "{why}");
        add(|it| it.run.warm_up = true);
        add(|it| it.outcome.ended = Ended::Capped);
        for _ in 0..2 {
            add(|it| {
                it.knobs.insert("cut".to_owned(), Knob::Flag(true));
            });
        }
        add(|it| {
            let settings = &mut it.source.settings;
            settings.insert("net.ipv4.tcp_sack".to_owned(), "0".to_owned());
        });
        let compressed = add(|it| {
            it.outcome.said.insert("moved_bytes".to_owned(), 1e9);
            it.outcome.said.insert("wire_bytes".to_owned(), 3e8);
        });
        let why = compressed["unpredicted"].as_str().unwrap();
        assert!(why.contains("compressed"), "{why}");
        let text = summary(&checks);
        for part in [
            "median error",
            "3 runs: another tool moved the data (rsync 1, scp 2)",
            "1 run: it wrote to the storage write-20MBps",
            "1 run: the data were sent over SSH",
            "a in some.jsonl: predicted",
            "2 runs: the path was disturbed (cut)",
            "1 run: failed, or moved no data",
            "1 run: net.ipv4.tcp_sack was off",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
