//! Reads measurements of the path by other instruments.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use longhaul_measure::sources::{ExternalRun, SourceError, read_iperf3, read_pscheduler};
use longhaul_transfer::stop::{Exit, Stop};

/// Reads runs from files of iperf3 (`--json`) and pScheduler. Each run has the name of
/// its file.
///
/// # Errors
///
/// Returns an error if a file cannot be read, has another format, or has no complete run.
pub fn read(
    iperf3: &[PathBuf],
    pscheduler: &[PathBuf],
) -> Result<Vec<(String, ExternalRun)>, Stop> {
    type Read = fn(BufReader<File>) -> Result<Vec<ExternalRun>, SourceError>;
    let iperf3 = iperf3.iter().map(|path| (path, read_iperf3 as Read));
    let others = pscheduler.iter();
    let others = others.map(|path| (path, read_pscheduler as Read));
    let mut external = Vec::new();
    for (path, read) in iperf3.chain(others) {
        let stop = |error: &dyn std::fmt::Display| {
            Stop::new(Exit::Local, format!("{}: {error}", path.display()))
        };
        let file = File::open(path).map_err(|error| stop(&error))?;
        for run in read(BufReader::new(file)).map_err(|error| stop(&error))? {
            let run = run.done().map_err(|error| stop(&error))?;
            external.push((path.display().to_string(), run));
        }
    }
    Ok(external)
}
