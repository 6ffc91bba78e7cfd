//! Selects the runs that a report plots over time.

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

/// Number of time intervals in the figure of a run: about one per five units of width.
const STRETCHES: usize = 120;

/// Maximum number of runs of a directory that are plotted. They add about half a megabyte
/// to the page.
const MOST_OF_A_DIRECTORY: usize = 32;

/// Returns the runs of a path. For a file of samples this is its run. For a directory, it
/// is one run for each configuration and round-trip time.
///
/// `records` are the files of the runs, and `labels` the names of their configurations.
///
/// # Errors
///
/// Returns an error if samples cannot be read, or the directory has no samples of these
/// runs.
pub fn sampled_runs(
    runs: &Runs,
    labels: &[String],
    records: &[PathBuf],
    path: &Path,
) -> Result<Vec<SampledRun>, Stop> {
    if !path.is_dir() {
        // The record may contain a longer path than the user typed.
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let run = runs.runs().iter().find(|run| is_of(run, records, &whole));
        return Ok(vec![sampled_run(run, labels, path)?]);
    }
    let chosen = of_directory(runs, records, path)?;
    if chosen.is_empty() {
        let text = format!(
            "{}: it has no samples of a run in these records: name the directory in the records' \
             samples.file, or single files of samples",
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
            "{}: {MOST_OF_A_DIRECTORY} runs are plotted over time, {more} more are not: name single \
             files of samples to choose",
            path.display()
        ));
    }
    let shown = chosen.iter().take(MOST_OF_A_DIRECTORY);
    shown
        .map(|(run, path)| sampled_run(Some(*run), labels, path))
        .collect()
}

/// True if a file contains a run's samples. This is the file named in the run's record.
/// If that file is missing, a file of the same name counts.
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

/// Returns the path of a file, or of its compressed form if only that exists.
fn present(path: PathBuf) -> PathBuf {
    let compressed = compressed_name(&path);
    if !path.exists() && compressed.exists() {
        compressed
    } else {
        path
    }
}

/// Returns, for each configuration and round-trip time, the successful run with the
/// median throughput that has samples in the directory.
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

/// Reads the samples of a run and labels them by its record.
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
