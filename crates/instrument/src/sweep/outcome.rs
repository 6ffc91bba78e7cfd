//! Creates the record of a run from its observations.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use longhaul_lab::link::Loss;
use longhaul_measure::doubt::Doubt;
use longhaul_measure::record::{
    DatasetRecord, Ended, HostRecord, Knob, LayerUse, Measures, Method as MethodRecord, Outcome,
    PathRecord, RunIdentity, RunRecord, SCHEMA, Sidecar,
};
use longhaul_measure::sources::{Direction, ExternalRun, read_iperf3};
use longhaul_units::{BitRate, ByteCount};
use serde_json::Value;

use super::file::Reads;
use super::plan::{self, Cell};
use super::step::StepResult;

/// Maximum length of an error message in characters, so that records stay short.
const LONGEST_ERROR: usize = 300;

/// Maximum length of a command line in characters.
const LONGEST_COMMAND: usize = 600;

/// Number of bytes at the end of an output that are searched for the last line. A summary
/// of longhaul has about a kilobyte.
const LAST_BYTES: u64 = 64 << 10;

/// Fraction of all processors above which the hosts had no reserve.
const BUSY_SHARE: f64 = 0.9;

/// Figures of longhaul's summary that are recorded.
const SAID: [&str; 6] = [
    "lost_streams",
    "corrupt_blocks",
    "moved_bytes",
    "moved_again_bytes",
    "wire_bytes",
    "seconds",
];

/// Facts about a run that are known besides its result.
pub struct About<'a> {
    /// Identity of the run.
    pub run: RunIdentity,
    /// Configuration of the run.
    pub cell: &'a Cell,
    /// Description of the dataset.
    pub dataset: DatasetRecord,
    /// Version of the method.
    pub version: String,
    /// Command line of the method.
    pub command: String,
    /// Commit and build of this longhaul.
    pub build: &'a str,
    /// File with the client's standard output.
    pub output: &'a Path,
    /// File with the error output of client and server.
    pub errors: &'a Path,
    /// Storage of the source.
    pub storage: String,
    /// Name of the file of samples.
    pub sidecar: Option<String>,
    /// Digests of source and destination in the file of hosts; empty if they are not
    /// described.
    pub descriptions: [String; 2],
}

/// Returns the last three lines of a file, joined into one line.
pub fn last_words(path: &Path) -> String {
    let text = tail(path).unwrap_or_default();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    shortened(
        &lines[lines.len().saturating_sub(3)..].join("; "),
        LONGEST_ERROR,
    )
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the summary, which is the last line of `longhaul --json`.
fn summary_of(output: &Path) -> Option<Value> {
    let text = tail(output).ok()?;
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let value: Value = serde_json::from_str(line).ok()?;
    (value["event"] == "summary").then_some(value)
}

/// Returns the record of a run.
pub fn record(about: About<'_>, mut result: StepResult) -> RunRecord {
    let cell = about.cell;
    let mut doubts = std::mem::take(&mut result.doubts);
    doubts.extend(cpu_bound(&result));
    let mut outcome = match cell.method.reads {
        Some(Reads::Iperf3) => outcome_of_iperf3(&about, &mut result, &mut doubts),
        None => outcome_of_files(&about, &result, &mut doubts),
    };
    let summary = cell
        .method
        .longhaul
        .then(|| summary_of(about.output))
        .flatten();
    let summary = summary.unwrap_or_default();
    for name in SAID {
        if let Some(number) = summary[name].as_f64() {
            outcome.said.insert(name.to_owned(), number);
        }
    }
    if let Some(segments) = summary["retransmitted_segments"].as_u64() {
        outcome.retransmitted_segments = Some(segments);
    }
    let seconds = outcome.wall.as_secs_f64();
    doubts.extend(Doubt::of_length(seconds, cell.path.rtt.as_secs_f64()));
    let [source, destination] = hosts(&about, &result);
    RunRecord {
        schema: SCHEMA,
        run: about.run,
        measures: cell.method.measures,
        method: MethodRecord {
            name: cell.method.name.clone(),
            version: about.version,
            command: shortened(&about.command, LONGEST_COMMAND),
            endpoint: cell.method.endpoint.clone(),
            security: cell.method.security.clone(),
        },
        knobs: knobs(cell),
        path: path(cell, &result),
        source,
        destination,
        dataset: about.dataset,
        outcome,
        cpu: result.cpu,
        machine_busy_seconds: result.machine_busy.map(|time| time.as_secs_f64()),
        layers: [&summary["layers"], &summary["peer_layers"]]
            .into_iter()
            .flat_map(layers)
            .collect(),
        tcp: result.tcp,
        beside: result.beside,
        samples: about
            .sidecar
            .filter(|_| result.samples > 0)
            .map(|file| Sidecar {
                file,
                count: result.samples,
            }),
        doubts,
    }
}

/// Returns a doubt if the processes of both ends used nearly all processors of the
/// machine.
fn cpu_bound(result: &StepResult) -> Option<Doubt> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let spent = result
        .cpu
        .iter()
        .map(|cpu| (cpu.user + cpu.system).as_secs_f64());
    let busy = spent.sum::<f64>() / (result.wall.as_secs_f64() * cores as f64);
    (busy > BUSY_SHARE).then_some(Doubt::HostCpuBound {
        busy: busy.min(1.0),
    })
}

/// Returns the host records. The destination's settings are only those that differ from
/// the source's.
fn hosts(about: &About<'_>, result: &StepResult) -> [HostRecord; 2] {
    let [of_source, of_destination] = about.descriptions.clone();
    let mut source = result.source_host.record("a");
    source.storage = about.storage.clone();
    source.description = of_source;
    let mut destination = match &result.destination_host {
        Some(host) => host.record("b"),
        None => HostRecord {
            name: "b".to_owned(),
            ..HostRecord::default()
        },
    };
    destination.description = of_destination;
    if about.cell.path.is_local() {
        destination.storage = result.storage.clone();
    }
    let own = &mut destination.settings;
    own.retain(|name, value| source.settings.get(name) != Some(&*value));
    if !about.build.is_empty() {
        source
            .settings
            .insert("longhaul build".to_owned(), about.build.to_owned());
    }
    source
        .settings
        .insert("path".to_owned(), about.cell.path.text());
    [source, destination]
}

/// Returns the parameters of a run by name: those of the method and other values that the
/// sweep varies.
pub fn knobs(cell: &Cell) -> BTreeMap<String, Knob> {
    let mut knobs = cell.knobs.clone();
    let mut note = |name: &str, value: Option<&String>| {
        if let Some(value) = value {
            knobs.insert(name.to_owned(), Knob::Word(value.clone()));
        }
    };
    note("sysctls", cell.sysctls.as_ref().map(|set| &set.name));
    note(
        "storage",
        cell.storage.as_ref().map(|storage| &storage.name),
    );
    note("cross", cell.cross.as_ref().map(|cross| &cross.name));
    for (key, value) in &cell.path.settings {
        let is_elsewhere = matches!(
            key.as_str(),
            "rtt"
                | "rate"
                | "loss"
                | "congestion"
                | "capacity"
                | "endpoint"
                | "link-time"
                | "here"
                | "veth"
        );
        if !is_elsewhere {
            note(key, Some(value));
        }
    }
    let lab = cell.path.lab.as_ref();
    if lab.is_some_and(|(lab, _)| matches!(lab.path.loss, Loss::Bursty(_))) {
        // The recorded loss of the path is only the mean.
        note("loss-model", cell.path.settings.get("loss"));
    }
    knobs
}

/// Returns the name of a path in records.
pub fn path_name(path: &plan::Path) -> String {
    match path.lab {
        Some(_) => "lab".to_owned(),
        None => path.text(),
    }
}

fn path(cell: &Cell, result: &StepResult) -> PathRecord {
    let lab = cell.path.lab.as_ref().map(|(lab, _)| lab);
    PathRecord {
        name: path_name(&cell.path),
        rtt: cell.path.rtt,
        capacity: cell.path.capacity,
        rate: lab.and_then(|lab| lab.path.rate),
        loss: lab.map_or(0.0, |lab| lab.path.loss.mean()),
        // A queue in BDPs differs between paths of one profile; it is recorded in the
        // settings.
        queue: None,
        congestion_control: lab.map(|lab| lab.congestion.clone()).unwrap_or_default(),
        emulator: result.emulator.clone(),
    }
}

fn layers(list: &Value) -> Vec<LayerUse> {
    let list = list.as_array().into_iter().flatten();
    let layer = |value: &Value| {
        Some(LayerUse {
            layer: value["layer"].as_str()?.to_owned(),
            flows: u32::try_from(value["flows"].as_u64()?).ok()?,
            utilisation: value["utilisation"].as_f64()?.clamp(0.0, 1.0),
        })
    };
    list.filter_map(layer).collect()
}

fn outcome(ended: Ended, moved: u64, wall: Duration, result: &StepResult) -> Outcome {
    Outcome {
        ended,
        moved: ByteCount(moved),
        wall,
        goodput: BitRate::from_transfer(ByteCount(moved), wall),
        exit: result.exit,
        error: String::new(),
        retransmitted_segments: result.retransmitted,
        said: BTreeMap::new(),
    }
}

/// Returns the outcome of a transfer of files. Only correct files count, and an incorrect
/// file makes the run fail.
fn outcome_of_files(about: &About<'_>, result: &StepResult, doubts: &mut Vec<Doubt>) -> Outcome {
    let whole = about.dataset.size.0;
    let (moved, wrong) = match &result.arrived {
        Some(arrived) => (arrived.bytes, arrived.wrong.clone()),
        None => {
            if about.cell.method.measures == Measures::Transfer {
                doubts.push(Doubt::NotCompared);
            }
            (
                if result.ended == Ended::Done {
                    whole
                } else {
                    0
                },
                None,
            )
        }
    };
    let mut outcome = outcome(result.ended, moved, result.wall, result);
    outcome.error = match (result.ended, wrong) {
        (Ended::Done, None) => String::new(),
        (Ended::Done, Some(wrong)) => {
            outcome.ended = Ended::Failed;
            shortened(&wrong, LONGEST_ERROR)
        }
        (Ended::Failed | Ended::Capped, _) => match last_words(about.errors) {
            said if said.is_empty() => silence(result),
            said => said,
        },
    };
    outcome
}

/// Returns the error message of a command without error output.
fn silence(result: &StepResult) -> String {
    match (result.ended, result.exit) {
        (Ended::Failed, Some(code)) => format!("no error output; exit code {code}"),
        (Ended::Failed, None) => "no error output; ended by a signal".to_owned(),
        (Ended::Done | Ended::Capped, _) => String::new(),
    }
}

/// Returns the iperf3 run whose data moved from source to destination. If the client is
/// on the receiving host, they move to the client. The other direction of a bidirectional
/// test is ignored.
fn run_of(runs: Vec<ExternalRun>, pulls: bool) -> Result<ExternalRun, String> {
    let wanted = if pulls {
        Direction::From
    } else {
        Direction::To
    };
    let place = runs.iter().position(|run| run.direction == Some(wanted));
    let run = runs.into_iter().nth(place.unwrap_or(0));
    let run = run.ok_or_else(|| "iperf3 measured nothing".to_owned())?;
    let mut run = run.done().map_err(|error| error.to_string())?;
    if place.is_none() {
        run.doubts.push(Doubt::DifferentReference {
            what: "iperf3's data flowed from the destination to the source".to_owned(),
        });
    }
    Ok(run)
}

/// Returns the outcome of iperf3, with its own bytes and seconds.
fn outcome_of_iperf3(
    about: &About<'_>,
    result: &mut StepResult,
    doubts: &mut Vec<Doubt>,
) -> Outcome {
    let read = File::open(about.output).map_err(|error| error.to_string());
    let read = read.and_then(|file| {
        let runs = read_iperf3(BufReader::new(file)).map_err(|error| error.to_string())?;
        run_of(runs, about.cell.method.pulls)
    });
    match read {
        Ok(run) if result.ended == Ended::Done => {
            doubts.extend(run.doubts);
            if !run.omitted.is_zero() {
                // The processor time includes the omitted seconds, so it does not match
                // the bytes.
                result.cpu.clear();
            }
            let mut outcome = outcome(Ended::Done, run.moved.0, run.wall, result);
            outcome.retransmitted_segments = run.retransmitted_segments;
            outcome
        }
        read => {
            let mut outcome = outcome(result.ended, 0, result.wall, result);
            if outcome.ended == Ended::Done {
                outcome.ended = Ended::Failed;
            }
            let said = last_words(about.errors);
            outcome.error = match (said.is_empty(), read) {
                (true, Err(error)) => shortened(&error, LONGEST_ERROR),
                _ => said,
            };
            outcome
        }
    }
}

/// Returns the first non-empty line that a command prints.
pub fn version_of(command: &str) -> String {
    let output = std::process::Command::new("sh")
        .args(["-c", command])
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(output) = output else {
        return String::new();
    };
    // Some programs, such as ssh, print the version on standard error.
    let texts = [output.stdout, output.stderr];
    let mut lines = texts
        .iter()
        .flat_map(|text| text.lines().map_while(Result::ok));
    shortened(
        lines
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default()
            .trim(),
        80,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shortened_and_joined() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("errors");
        std::fs::write(&path, "one\n\ntwo\nthree\n  four\n").unwrap();
        assert_eq!(last_words(&path), "two; three; four");
        std::fs::write(&path, "é".repeat(1000)).unwrap();
        assert_eq!(last_words(&path).chars().count(), LONGEST_ERROR + 1);
        assert_eq!(last_words(&home.path().join("none")), "");
    }

    #[test]
    fn a_summary_is_the_last_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("output");
        std::fs::write(
            &path,
            "{\"event\":\"progress\"}\n{\"event\":\"summary\",\"streams\":3}\n",
        )
        .unwrap();
        assert_eq!(summary_of(&path).unwrap()["streams"], 3);
        std::fs::write(&path, "{\"event\":\"progress\"}\n").unwrap();
        assert_eq!(summary_of(&path), None);
        assert_eq!(version_of("echo; echo '  tool 1.2 '"), "tool 1.2");
    }
}
