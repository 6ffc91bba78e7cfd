//! From a source, a destination and what is known of the path to a graph. Nothing is moved, and no
//! host is asked: the path comes from options or from records of a probe.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_measure::record::{Ended, RunRecord};
use longhaul_model::graph::Part;
use longhaul_model::kernel::{BufferLimits, window_limit};
use longhaul_model::response::Congestion;
use longhaul_model::transfer::{End, PathFacts, TransferGraph, transfer_graph};
use longhaul_units::ByteCount;

use super::super::model::host_model;
use super::super::profile::each_record;
use super::survey::{Survey, SurveyLimits, survey};
use crate::arguments::PlanArguments;
use crate::messages::{Exit, Stop};

/// Bytes of payload in a segment at an MTU of 1500, with timestamps.
const SEGMENT: f64 = 1448.0;

/// What TCP payload carries of a line at that MTU.
const PAYLOAD: f64 = 1448.0 / 1538.0;

/// A path that a probe measured is this sure, as a share; one that was given is taken as it is.
const PROBED: f64 = 0.05;

/// A graph with what is printed above the plan.
pub struct RealPlan {
    /// The graph and its doubts.
    pub built: TransferGraph,
    /// The dataset and the path, a line each.
    pub lines: Vec<String>,
}

/// Looks at what there is.
pub fn real(arguments: &PlanArguments) -> Result<RealPlan, Stop> {
    let usage = |text: &str| Stop::new(Exit::Usage, text.to_owned());
    let [sources @ .., destination] = arguments.paths.as_slice() else {
        return Err(usage(
            "name a source and a destination, or a graph with --graph",
        ));
    };
    if sources.is_empty() {
        return Err(usage("name a destination as well"));
    }
    let mut doubts = Vec::new();
    let dataset = dataset(arguments, sources, &mut doubts)?;
    let path = path(arguments)?;
    let source = end(
        &sources[0],
        arguments.source_profile.as_deref(),
        &mut doubts,
    )?;
    let destination = end(
        destination,
        arguments.destination_profile.as_deref(),
        &mut doubts,
    )?;
    let lines = vec![dataset_line(&dataset), path_line(&path)];
    let part = Part {
        name: "dataset".to_owned(),
        bytes: dataset.bytes.max(1.0),
        files: dataset.files.max(1.0),
        codecs: Vec::new(),
    };
    let mut built = transfer_graph(&source, &destination, &path, vec![part], false);
    built.doubts.splice(0..0, doubts);
    Ok(RealPlan { built, lines })
}

/// `host:path` and URLs are of other hosts, as in a copy; a path with a slash before its first
/// colon is of this one.
fn is_remote(endpoint: &str) -> bool {
    match endpoint.split_once(':') {
        Some((before, _)) => !before.is_empty() && !before.contains('/'),
        None => false,
    }
}

/// The host of an endpoint.
fn host_name(endpoint: &str) -> String {
    let after = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, after)| after);
    let host = after.split(['/', ':']).next().unwrap_or_default();
    host.to_owned()
}

fn dataset(
    arguments: &PlanArguments,
    sources: &[String],
    doubts: &mut Vec<String>,
) -> Result<Survey, Stop> {
    if let Some(bytes) = arguments.bytes {
        return Ok(Survey {
            bytes: bytes.0 as f64,
            files: arguments.files.unwrap_or(1) as f64,
            is_whole: true,
            ..Survey::default()
        });
    }
    if let Some(source) = sources.iter().find(|source| is_remote(source)) {
        let text = format!(
            "{source}: what lies there is not looked at: give --bytes and --files, as `longhaul ls` \
             shows them"
        );
        return Err(Stop::new(Exit::Usage, text));
    }
    let paths: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
    let found = survey(&paths, SurveyLimits::default());
    let found = found.map_err(|error| Stop::new(Exit::Local, error.to_string()))?;
    if !found.is_whole {
        doubts.push(format!(
            "not all of the dataset was looked at: {} in {} files were seen, the rest is estimated",
            ByteCount(found.seen_bytes),
            found.seen_files
        ));
    }
    if found.failed > 0 {
        doubts.push(format!(
            "{} files and directories could not be looked at",
            found.failed
        ));
    }
    Ok(found)
}

fn path(arguments: &PlanArguments) -> Result<PathFacts, Stop> {
    let probed = match &arguments.probe {
        Some(file) => Some(last_record(file)?),
        None => None,
    };
    let of_probe = probed.as_ref();
    let rtt = arguments.rtt.or(of_probe.map(|record| record.path.rtt));
    let Some(rtt) = rtt else {
        let text = "nothing is known of the path: give --rtt and --rate, or records that `longhaul \
                    probe --records FILE` made, with --probe FILE";
        return Err(Stop::new(Exit::Usage, text.to_owned()));
    };
    let payload = match arguments.rate {
        Some(line) => Some(line.bits_per_second() / 8.0 * PAYLOAD),
        None => of_probe.map(|record| record.path.capacity.bits_per_second() / 8.0),
    };
    let congestion = arguments.congestion.clone();
    let congestion = congestion.or_else(|| {
        let name = of_probe.map(|record| record.path.congestion_control.clone());
        name.filter(|name| !name.is_empty())
    });
    let window = arguments.window.or_else(|| {
        let here = own_limits();
        window_limit(&here, &here).map(|limit| limit.window)
    });
    Ok(PathFacts {
        payload,
        rtt: rtt.max(Duration::from_micros(10)),
        loss: arguments
            .loss
            .or(of_probe.map(|record| record.path.loss))
            .unwrap_or(0.0),
        window: window.map(|window| window.0 as f64),
        segment: SEGMENT,
        congestion: Congestion::of_name(congestion.as_deref().unwrap_or("cubic")),
        uncertainty: if arguments.rate.is_some() {
            0.0
        } else {
            PROBED
        },
    })
}

/// The last good record of a file: a path may have changed since the others.
fn last_record(file: &Path) -> Result<RunRecord, Stop> {
    let mut last = None;
    each_record(&[file.to_owned()], false, |_, record| {
        if record.outcome.ended == Ended::Done {
            last = Some(record);
        }
        Ok(())
    })?;
    last.ok_or_else(|| {
        let text = format!(
            "{}: it has no record of a run that ended well",
            file.display()
        );
        Stop::new(Exit::Usage, text)
    })
}

/// This host's limits on buffers, as autotuning has them.
fn own_limits() -> BufferLimits {
    let third = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().last()?.parse().ok()
    };
    BufferLimits {
        tcp_send: third("tcp_wmem"),
        tcp_receive: third("tcp_rmem"),
        ..BufferLimits::default()
    }
}

fn end(endpoint: &str, profile: Option<&Path>, doubts: &mut Vec<String>) -> Result<End, Stop> {
    let is_here = !is_remote(endpoint);
    let here = is_here.then(|| fs::canonicalize(endpoint).ok()).flatten();
    let model = match profile {
        Some(file) => Some(host_model(file, here.as_deref())?),
        None => None,
    };
    let name = match is_here {
        true => "this host".to_owned(),
        false => host_name(endpoint),
    };
    if let (true, Some(model)) = (is_here, &model) {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if model.kernel != kernel.trim() {
            doubts.push(format!(
                "the profile of {} was made with kernel {}, and this host runs {}",
                model.name,
                model.kernel,
                kernel.trim()
            ));
        }
    }
    let cores = std::thread::available_parallelism();
    Ok(End {
        name,
        cores: cores
            .ok()
            .filter(|_| is_here)
            .map(|cores| cores.get() as f64),
        model,
    })
}

fn dataset_line(found: &Survey) -> String {
    let about = if found.is_whole { "" } else { "about " };
    let mean = found.bytes / found.files.max(1.0);
    format!(
        "Dataset: {about}{} in {about}{:.0} files, {} each on average.",
        ByteCount(found.bytes as u64),
        found.files,
        ByteCount(mean as u64)
    )
}

fn path_line(path: &PathFacts) -> String {
    let rate = match path.payload {
        Some(rate) => format!("{:.2} Gbit/s of payload", rate * 8.0 / 1e9),
        None => "unknown rate".to_owned(),
    };
    let window = match path.window {
        Some(window) => format!("windows of {}", ByteCount(window as u64)),
        None => "unknown windows".to_owned(),
    };
    format!(
        "Path: {:.1} ms, {rate}, {:.4} % loss, {window}, {}.",
        path.rtt.as_secs_f64() * 1e3,
        path.loss * 100.0,
        path.congestion
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_other_hosts_are_known() {
        for (endpoint, remote, host) in [
            ("data", false, "data"),
            ("./a:b", false, "."),
            ("dtn7:run7", true, "dtn7"),
            ("user@dtn7:/scratch", true, "user@dtn7"),
            (
                "longhaul://dtn9.example.org:4960/x",
                true,
                "dtn9.example.org",
            ),
        ] {
            assert_eq!(is_remote(endpoint), remote, "{endpoint}");
            assert_eq!(host_name(endpoint), host, "{endpoint}");
        }
    }
}
