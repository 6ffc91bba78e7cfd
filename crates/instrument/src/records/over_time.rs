//! Which runs a report plots over time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_measure::analysis::milliseconds;
use longhaul_measure::compressed::{compressed_name, plain_name};
use longhaul_measure::record::Ended;
use longhaul_measure::report::SampledRun;
use longhaul_measure::runs::{Run, Runs};
use longhaul_measure::samples::{over_time, read_samples};

use longhaul_transfer::console::say;
use longhaul_transfer::stop::{Exit, Stop};

use super::{local, open};

/// Stretches of time in a run's figures: about one for each five units of width.
const STRETCHES: usize = 120;

/// This many runs of a directory are plotted: about half a megabyte of the page.
const MOST_OF_A_DIRECTORY: usize = 32;

/// The runs that a path asks for: a sidecar's, or of a directory of sidecars one of each
/// configuration and round-trip time.
///
/// `records` are the files that the runs are of, `labels` the names of their configurations.
///
/// # Errors
///
/// Where samples cannot be read, or a directory has none of these runs.
pub fn sampled_runs(
    runs: &Runs,
    labels: &[String],
    records: &[PathBuf],
    path: &Path,
) -> Result<Vec<SampledRun>, Stop> {
    if !path.is_dir() {
        // The name of the record's may be longer than what was typed.
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let run = runs.runs().iter().find(|run| is_of(run, records, &whole));
        return Ok(vec![sampled_run(run, labels, path)?]);
    }
    let chosen = of_directory(runs, records, path)?;
    if chosen.is_empty() {
        let text = format!(
            "{}: it holds no samples of a run in these records: give the directory that their \
             samples.file names, or files of samples one by one",
            path.display()
        );
        return Err(Stop::new(Exit::Local, text));
    }
    if let Some(more) = chosen
        .len()
        .checked_sub(MOST_OF_A_DIRECTORY)
        .filter(|more| *more > 0)
    {
        say(&format!(
            "{}: {MOST_OF_A_DIRECTORY} runs are plotted over time, {more} more are not: give files \
             of samples one by one to choose",
            path.display()
        ));
    }
    let shown = chosen.iter().take(MOST_OF_A_DIRECTORY);
    shown
        .map(|(run, path)| sampled_run(Some(*run), labels, path))
        .collect()
}

/// Whether a file, by its whole path, has a run's samples: the one that lies where its
/// record says, or, where none lies there, one of that name.
fn is_of(run: &Run, records: &[PathBuf], path: &Path) -> bool {
    let sidecar = run.sidecar.as_deref();
    let plain = plain_name(path);
    let Some(sidecar) = sidecar.filter(|sidecar| plain.ends_with(sidecar) && !sidecar.is_empty())
    else {
        return false;
    };
    let own = records
        .get(run.file)
        .map(|file| file.with_file_name(sidecar));
    let own = own.and_then(|own| fs::canonicalize(present(own)).ok());
    own.is_none_or(|own| own == path)
}

/// A file, or its compressed form where only that is there.
fn present(path: PathBuf) -> PathBuf {
    let compressed = compressed_name(&path);
    if !path.exists() && compressed.exists() {
        compressed
    } else {
        path
    }
}

/// Of each configuration and round-trip time the run whose throughput is in the middle of
/// those that are done and have samples there.
fn of_directory<'a>(
    runs: &'a Runs,
    records: &[PathBuf],
    path: &Path,
) -> Result<Vec<(&'a Run, PathBuf)>, Stop> {
    let whole = fs::canonicalize(path).map_err(|error| local(path, &error))?;
    let mut cells: BTreeMap<(usize, Duration), Vec<(&Run, PathBuf)>> = BTreeMap::new();
    for run in runs.runs().iter().filter(|run| run.ended == Ended::Done) {
        let name = run
            .sidecar
            .as_deref()
            .and_then(|sidecar| Path::new(sidecar).file_name());
        let file = name.map(|name| present(whole.join(name)));
        if let Some(file) = file.filter(|file| is_of(run, records, file) && file.is_file()) {
            let cell = cells.entry((run.configuration, run.rtt)).or_default();
            cell.push((run, file));
        }
    }
    let middle = |mut cell: Vec<(&'a Run, PathBuf)>| {
        cell.sort_by(|(a, _), (b, _)| {
            let (a, b) = (a.goodput, b.goodput);
            a.bits_per_second().total_cmp(&b.bits_per_second())
        });
        let place = cell.len().checked_sub(1)? / 2;
        Some(cell.swap_remove(place))
    };
    Ok(cells.into_values().filter_map(middle).collect())
}

/// A run by its sidecar, under the name that its record gives it.
fn sampled_run(run: Option<&Run>, labels: &[String], path: &Path) -> Result<SampledRun, Stop> {
    let samples = read_samples(open(path)?);
    let samples =
        samples.map_err(|error| Stop::new(Exit::Local, format!("{}: {error}", path.display())))?;
    let label = match run {
        Some(run) => format!(
            "{}, {} ms, {}",
            labels[run.configuration],
            milliseconds(run.rtt),
            run.goodput
        ),
        None => path.display().to_string(),
    };
    Ok(SampledRun {
        label,
        stretches: over_time(&samples, STRETCHES),
    })
}
