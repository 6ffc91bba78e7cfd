//! What other instruments wrote, and records of runs.

use longhaul_measure::host::{HostDescription, read_hosts};
use longhaul_measure::record::{OnFault, read_records};
use longhaul_measure::runs::Runs;
use longhaul_measure::samples::{over_time, read_samples};
use longhaul_measure::sources::{read_iperf3, read_pscheduler};

/// Records: what is read can be written and is the same again.
pub fn run_record(bytes: &[u8]) {
    let mut runs = Runs::default();
    let read = read_records(bytes, OnFault::Skip, |record| {
        // Quantities lose nothing; a number of seconds may be rounded once.
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
    if let Ok(run) = read_iperf3(bytes) {
        assert!(!run.wall.is_zero());
    }
}

/// pScheduler's JSON.
pub fn pscheduler(bytes: &[u8]) {
    if let Ok(run) = read_pscheduler(bytes) {
        assert!(!run.wall.is_zero());
    }
}
