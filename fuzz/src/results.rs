//! Results of other instruments, and records of runs.

use longhaul_measure::host::{HostDescription, read_hosts};
use longhaul_measure::import::{Found, Given, import};
use longhaul_measure::record::{OnFault, read_records};
use longhaul_measure::runs::Runs;
use longhaul_measure::samples::{over_time, read_samples};
use longhaul_measure::sources::{ExternalRun, read_csv, read_iperf3, read_pscheduler};

/// Records: what is read can be written and is the same again.
pub fn run_record(bytes: &[u8]) {
    let mut runs = Runs::default();
    let read = read_records(bytes, OnFault::Skip, |record| {
        // Quantities are read without loss, except that a number of seconds may be rounded once.
        if let Ok(line) = record.to_line() {
            let mut again = None;
            let read = read_records(line.as_bytes(), OnFault::Refuse, |record| {
                again = Some(record);
                Ok(())
            });
            assert!(read.is_ok(), "{read:?}");
            let again = again.map(|record| record.to_line());
            assert_eq!(again, Some(Ok(line)));
        }
        runs.add(record)
    });
    assert!(read.is_ok());
    assert_eq!(runs.labels().len(), runs.configurations().len());
}

/// Samples of a run, summed up over time.
pub fn samples(bytes: &[u8]) {
    if let Ok(samples) = read_samples(bytes) {
        let stretches = over_time(&samples, 50);
        assert!(stretches.is_empty() || stretches.len() == 50);
    }
}

/// Hosts: in a file beside records, and one as another host describes itself. What is
/// read is written and is the same again.
pub fn hosts(bytes: &[u8]) {
    for line in read_hosts(bytes).unwrap_or_default() {
        if let Ok(text) = line.to_line() {
            let again = read_hosts(format!("{text}\n").as_bytes());
            assert_eq!(again.ok(), Some(vec![line]));
        }
    }
    if let Ok(host) = HostDescription::from_json(bytes) {
        assert!(host.record("far").kernel.chars().count() <= 80);
        if let Ok(json) = host.to_json() {
            assert_eq!(HostDescription::from_json(json.as_bytes()).ok(), Some(host));
        }
    }
}

/// iperf3's JSON.
pub fn iperf3(bytes: &[u8]) {
    imported(read_iperf3(bytes).unwrap_or_default());
}

/// pScheduler's JSON.
pub fn pscheduler(bytes: &[u8]) {
    imported(read_pscheduler(bytes).unwrap_or_default());
}

/// A table with named columns.
pub fn table(bytes: &[u8]) {
    imported(read_csv(bytes).unwrap_or_default());
}

/// Checks that an imported run is a measurement if it did not fail, and that its record can be
/// written.
fn imported(runs: Vec<ExternalRun>) {
    let found = runs.into_iter().map(|run| {
        assert!(!run.error.is_empty() || run.throughput.bits_per_second() > 0.0);
        let file = "x".to_owned();
        Found { file, run }
    });
    for (_, record) in import(found.collect(), &Given::default()).records {
        assert!(record.to_line().is_ok());
    }
}
