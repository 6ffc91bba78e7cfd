//! Other instruments' results, as they write them.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use longhaul_measure::record::{Knob, Measures, PathRecord, RunIdentity};
use longhaul_measure::sources::{SourceError, read_iperf3, read_pscheduler};
use longhaul_units::{BitRate, ByteCount};

/// `iperf3 -c 127.0.0.1 -J -t 2 -P 2`, version 3.12, the intervals left out.
const IPERF3: &str = include_str!("../../../fuzz/corpus/iperf3/two_streams.json");

/// Made by hand after the names that pScheduler's plug-in for iperf3 gives.
const PSCHEDULER: &str = include_str!("../../../fuzz/corpus/pscheduler/two_streams.json");

#[test]
fn iperf3_is_read() {
    let run = read_iperf3(IPERF3.as_bytes()).unwrap();
    assert_eq!(run.moved, ByteCount(402_915_328));
    assert_eq!(run.wall, Duration::from_micros(2_091_067));
    assert!((run.throughput.bits_per_second() - 1.541_472_666e9).abs() < 1e3);
    assert_eq!((run.streams, run.retransmitted_segments), (2, Some(24)));
    assert_eq!(run.congestion_control, "bbr");
    assert_eq!(run.version, "iperf 3.12");
    let rtt = run.rtt.unwrap();
    assert!(rtt > Duration::from_micros(1_000) && rtt < Duration::from_micros(10_000));
}

#[test]
fn pscheduler_is_read() {
    let run = read_pscheduler(PSCHEDULER.as_bytes()).unwrap();
    assert_eq!(run.moved, ByteCount(1_170_000_000));
    assert_eq!(run.wall, Duration::from_secs(10));
    assert_eq!(run.throughput.bits_per_second(), 9.36e8);
    assert_eq!((run.streams, run.retransmitted_segments), (2, Some(41)));
    assert_eq!(run.rtt, Some(Duration::from_micros(91_700)));
    assert_eq!(run.doubts.len(), 1);
}

#[test]
fn pscheduler_is_read_within_what_archivers_and_its_api_have() {
    let bare = read_pscheduler(PSCHEDULER.as_bytes()).unwrap();
    for name in ["result", "result-merged"] {
        let around =
            format!("{{\"test\": {{\"type\": \"throughput\"}}, \"{name}\": {PSCHEDULER}}}");
        assert_eq!(read_pscheduler(around.as_bytes()).unwrap(), bare, "{name}");
    }
}

#[test]
fn what_pscheduler_says_arrived_counts() {
    let text = PSCHEDULER.replace(
        "\"throughput-bits\": 936000000.0",
        "\"throughput-bits\": 936000000.0, \"receiver-throughput-bits\": 928000000.0",
    );
    let run = read_pscheduler(text.as_bytes()).unwrap();
    assert_eq!(run.throughput.bits_per_second(), 9.28e8);
    assert_eq!(run.moved, ByteCount(1_160_000_000));
    assert_eq!(run.doubts, []);
}

#[test]
fn a_result_becomes_a_record_of_the_path() {
    let identity = RunIdentity {
        id: "iperf3/1".into(),
        ..RunIdentity::default()
    };
    let path = PathRecord {
        rtt: Duration::from_micros(91_600),
        capacity: BitRate::new(2e9).unwrap(),
        ..PathRecord::default()
    };
    let record = read_iperf3(IPERF3.as_bytes())
        .unwrap()
        .into_record(identity, path);
    assert_eq!(record.measures, Measures::Memory);
    assert_eq!(record.knobs["streams"], Knob::Count(2));
    assert!(record.to_line().is_ok());
}

#[test]
fn failures_and_other_things_are_named() {
    let failed = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#;
    let error = read_iperf3(failed.as_bytes()).unwrap_err();
    assert!(matches!(error, SourceError::Failed { cause, .. } if cause == "unable to connect"));
    let failed = r#"{"succeeded":false,"error":"no route"}"#;
    let error = read_pscheduler(failed.as_bytes()).unwrap_err();
    assert!(matches!(error, SourceError::Failed { cause, .. } if cause == "no route"));
    let udp = IPERF3.replace("\"TCP\"", "\"UDP\"");
    for text in [
        udp.as_str(),
        "",
        "[]",
        "{}",
        PSCHEDULER,
        "{\"end\":{\"sum_received\":{}}}",
    ] {
        let error = read_iperf3(text.as_bytes()).unwrap_err();
        assert!(matches!(error, SourceError::NotAResult { .. }), "{error}");
    }
    for text in ["", "{\"succeeded\":true}", IPERF3] {
        let error = read_pscheduler(text.as_bytes()).unwrap_err();
        assert!(matches!(error, SourceError::NotAResult { .. }), "{error}");
    }
    let endless = std::io::BufReader::new(std::io::repeat(b' '));
    assert!(matches!(read_iperf3(endless), Err(SourceError::TooLarge)));
}
