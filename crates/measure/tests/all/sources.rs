//! Tests of reading the results of other instruments.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use longhaul_measure::doubt::Doubt;
use longhaul_measure::record::{Ended, Knob, Measures, PathRecord, RunIdentity};
use longhaul_measure::sources::{
    Direction, ExternalRun, SourceError, read_any, read_iperf3, read_pscheduler,
};
use longhaul_units::{BitRate, ByteCount};

/// Output of `iperf3 -c 127.0.0.1 -J -t 2 -P 2`, version 3.12, without the intervals.
const IPERF3: &str = include_str!("../../../../fuzz/corpus/iperf3/two_streams.json");

/// Written by hand with the field names of pScheduler's plug-in for iperf3.
const PSCHEDULER: &str = include_str!("../../../../fuzz/corpus/pscheduler/two_streams.json");

/// Output of `iperf3 -R` and other commands. The version is 3.12 unless stated, and the host's name
/// is replaced.
const REVERSE: &str = include_str!("../../../../fuzz/corpus/iperf3/reverse.json");
const BIDIRECTIONAL: &str = include_str!("../../../../fuzz/corpus/iperf3/bidirectional.json");
const INTERRUPTED: &str = include_str!("../../../../fuzz/corpus/iperf3/interrupted.json");
const INTERRUPTED_REVERSE: &str =
    include_str!("../../../../fuzz/corpus/iperf3/interrupted_reverse.json");
/// The server was killed during the test, so there are intervals but the end is empty.
const LOST_SERVER: &str = include_str!("../../../../fuzz/corpus/iperf3/lost_server.json");
const REFUSED: &str = include_str!("../../../../fuzz/corpus/iperf3/refused.json");
const SERVER: &str = include_str!("../../../../fuzz/corpus/iperf3/server.json");
const UDP: &str = include_str!("../../../../fuzz/corpus/iperf3/udp.json");
/// Output of `--json-stream`, version 3.21, killed within a line.
const STREAM_KILLED: &str = include_str!("../../../../fuzz/corpus/iperf3/stream_killed.json");
/// Output of `--json-stream --json-stream-full-output`: events, then the whole result.
const STREAM_FULL: &str = include_str!("../../../../fuzz/corpus/iperf3/stream_full.json");

/// Messages of pScheduler's archivers: a reverse run and a failed run.
const ARCHIVED: &str = include_str!("../../../../fuzz/corpus/pscheduler/archived.json");

fn only(runs: Vec<ExternalRun>) -> ExternalRun {
    let [run] = &runs[..] else {
        panic!("{runs:?}");
    };
    run.clone()
}

fn iperf3(text: &str) -> ExternalRun {
    only(read_iperf3(text.as_bytes()).unwrap())
}

fn pscheduler(text: &str) -> ExternalRun {
    only(read_pscheduler(text.as_bytes()).unwrap())
}

#[test]
fn the_direction_is_that_of_the_data() {
    let forward = iperf3(IPERF3);
    assert_eq!(
        (forward.direction, forward.bidirectional),
        (Some(Direction::To), false)
    );
    let reverse = iperf3(REVERSE);
    assert_eq!(reverse.direction, Some(Direction::From));
    assert_eq!(reverse.moved, ByteCount(1_774_977_024));
    assert_eq!(reverse.started, "2026-11-26T06:10:24Z");
    // A receiving client does not measure the round-trip time.
    assert_eq!((reverse.rtt, reverse.least_rtt), (None, None));
    let record = reverse.into_record(RunIdentity::default(), PathRecord::default());
    assert_eq!(record.knobs["direction"], Knob::Word("from".into()));
    assert_eq!(
        [record.source.name, record.destination.name],
        ["127.0.0.1", "near"]
    );
    assert_eq!(record.destination.kernel, "6.18.0");
    // The server's output names the client.
    let server = iperf3(SERVER);
    assert_eq!(server.direction, Some(Direction::To));
    assert_eq!([server.near.name, server.far.name], ["127.0.0.1", "near"]);
}

#[test]
fn each_direction_of_a_bidirectional_test_is_a_run() {
    let runs = read_iperf3(BIDIRECTIONAL.as_bytes()).unwrap();
    let ways: Vec<_> = runs.iter().map(|run| run.direction).collect();
    assert_eq!(ways, [Some(Direction::To), Some(Direction::From)]);
    let moved: Vec<u64> = runs.iter().map(|run| run.moved.0).collect();
    let sums: serde_json::Value = serde_json::from_str(BIDIRECTIONAL).unwrap();
    let of = |name: &str| sums["end"][name]["bytes"].as_u64().unwrap();
    assert_eq!(
        moved,
        [of("sum_received"), of("sum_received_bidir_reverse")]
    );
    assert!(runs.iter().all(|run| run.bidirectional && run.streams == 2));
    assert_ne!(runs[0].id, runs[1].id);
    let again: Vec<_> = runs.iter().map(|run| run.retransmitted_segments).collect();
    assert!(again.iter().all(Option::is_some), "{again:?}");
    // Both directions of a path have the same round-trip time.
    assert!(runs[0].least_rtt.is_some() && runs[0].least_rtt == runs[1].least_rtt);
}

#[test]
fn measurements_of_a_failed_run_are_kept() {
    let sent_only = [Doubt::DifferentReference {
        what: "iperf3 reported the data sent, not the data received".into(),
    }];
    let interrupted = iperf3(INTERRUPTED);
    assert_eq!(interrupted.error, "interrupt - the client has terminated");
    assert_eq!(interrupted.moved, ByteCount(1_820_459_008));
    assert_eq!(interrupted.doubts, sent_only);
    assert_eq!(interrupted.least_rtt, Some(Duration::from_micros(78)));
    let reverse = iperf3(INTERRUPTED_REVERSE);
    assert_eq!(reverse.moved, ByteCount(2_275_606_369));
    assert_eq!(
        (reverse.direction, &reverse.doubts[..]),
        (Some(Direction::From), &[][..])
    );
    let lost = iperf3(LOST_SERVER);
    assert_eq!(lost.error, "control socket has closed unexpectedly");
    assert!(
        lost.moved.0 > 0 && lost.wall > Duration::from_secs(1),
        "{lost:?}"
    );
    assert_eq!(lost.doubts, sent_only);
    assert!(lost.least_rtt.is_some());
    let killed = iperf3(STREAM_KILLED);
    assert!(killed.error.contains("was killed"), "{}", killed.error);
    assert!(killed.moved.0 > 0 && !killed.started.is_empty());
    // The process was killed within its first line.
    let first = &STREAM_KILLED[..300];
    assert!(read_iperf3(first.as_bytes()).is_err());
    let record = interrupted.into_record(RunIdentity::default(), PathRecord::default());
    assert_eq!(
        (record.outcome.ended, record.outcome.exit),
        (Ended::Failed, None)
    );
    assert_eq!(
        record.outcome.error,
        "interrupt - the client has terminated"
    );
}

#[test]
fn a_file_may_have_several_tests_and_repeat_a_test() {
    assert_eq!(iperf3(STREAM_FULL).error, "");
    let two = format!(
        "{SERVER}\n{}",
        SERVER.replace("\"cookie\":\"", "\"cookie\":\"x")
    );
    assert_eq!(read_iperf3(two.as_bytes()).unwrap().len(), 2);
}

#[test]
fn an_archived_run_of_pscheduler_has_its_time_and_direction() {
    let runs = read_pscheduler(ARCHIVED.as_bytes()).unwrap();
    let [back, failed] = &runs[..] else {
        panic!("{runs:?}");
    };
    assert_eq!(back.started, "2026-03-04T04:06:07Z");
    assert_eq!(back.direction, Some(Direction::From));
    assert_eq!(
        [&back.near.name, &back.far.name],
        ["psa.example.org", "psb.example.org"]
    );
    assert_eq!(back.moved, ByteCount(1_160_000_000));
    assert_eq!(failed.error, "Iperf3 failed: unable to connect");
    assert_eq!(failed.direction, Some(Direction::To));
    let array = format!("[{}]", ARCHIVED.trim().replace("}\n{", "},{"));
    assert_eq!(read_any(array.as_bytes()).unwrap(), runs);
    // The run was never started.
    let missed = r#"{"start-time":"2026-03-04T05:06:07Z","state":"missed","result-merged":null,
        "href":"https://ps/pscheduler/tasks/1/runs/2"}"#;
    let missed = only(read_any(missed.as_bytes()).unwrap());
    assert_eq!((missed.error.as_str(), missed.id.as_str()), ("missed", "2"));
}

#[test]
fn tables_are_read_by_the_names_of_their_columns() {
    let runs = read_any(&include_bytes!("../../../../fuzz/corpus/table/units.csv")[..]).unwrap();
    assert_eq!(runs.len(), 3);
    assert_eq!(runs[0].moved, ByteCount(1_175_625_000));
    assert_eq!(
        (runs[0].streams, runs[0].retransmitted_segments),
        (4, Some(7))
    );
    assert_eq!(runs[0].rtt, Some(Duration::from_micros(91_600)));
    assert_eq!(runs[0].started, "2026-01-02T03:04:05Z");
    assert_eq!(runs[1].started, "2026-01-02T03:04:05Z");
    assert_eq!(runs[2].started, "2026-01-02T03:04:05Z");
    // The table's source sends, so the other host started the run.
    assert_eq!(runs[1].direction, Some(Direction::From));
    assert_eq!([&runs[1].near.name, &runs[1].far.name], ["a", "b"]);
    let run = only(
        read_any(&include_bytes!("../../../../fuzz/corpus/table/semicolons.csv")[..]).unwrap(),
    );
    assert_eq!(
        (run.moved, run.wall),
        (ByteCount(1_000_000_000), Duration::from_secs(8))
    );
    for (table, told) in [
        (
            "rtt,throughput\n91.6,1\n",
            "line 2, column rtt: \"91.6\" has no unit",
        ),
        ("throughput,seconds\n940,1\n", "throughput_mbps"),
        ("foo,bar\n1,2\n", "foo,bar"),
        ("seconds,bytes\n1,2\n1\n", "line 3 has 1 cells"),
        ("seconds,bytes\n1,-2\n", "is not a number"),
        ("seconds,bytes\n\"1,2\n", "a quote without an end"),
        ("seconds,bytes\n", "no line below"),
        (
            "seconds,bytes\n1,0\n",
            "neither a throughput greater than zero nor an error",
        ),
        (
            "started,seconds,bytes\n1767323045000,1,1\n",
            "is not a time",
        ),
    ] {
        let error = read_any(table.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn errors_describe_files_that_are_not_results() {
    for (text, told) in [
        ("", "it is empty"),
        ("{\"a\":1}", "neither iperf3's"),
        (&IPERF3[..900], "it is incomplete"),
        ("Connecting to host x, port 5201\n", "--json"),
        (
            "iperf3: error - unable to connect to server: Connection refused",
            "Connection refused",
        ),
        (UDP, "UDP test"),
        ("[package]\nname = 1\n", "this table"),
    ] {
        let error = read_any(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn results_of_iperf3_are_read() {
    let run = iperf3(IPERF3);
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
fn results_of_pscheduler_are_read() {
    let run = pscheduler(PSCHEDULER);
    assert_eq!(run.moved, ByteCount(1_170_000_000));
    assert_eq!(run.wall, Duration::from_secs(10));
    assert_eq!(run.throughput.bits_per_second(), 9.36e8);
    assert_eq!((run.streams, run.retransmitted_segments), (2, Some(41)));
    assert_eq!(run.rtt, Some(Duration::from_micros(91_700)));
    assert_eq!(run.doubts.len(), 1);
}

#[test]
fn results_inside_archiver_messages_and_api_runs_are_read() {
    let bare = pscheduler(PSCHEDULER);
    for name in ["result", "result-merged"] {
        let around =
            format!("{{\"test\": {{\"type\": \"throughput\"}}, \"{name}\": {PSCHEDULER}}}");
        assert_eq!(pscheduler(&around), bare, "{name}");
    }
}

#[test]
fn the_received_throughput_of_pscheduler_takes_precedence() {
    let text = PSCHEDULER.replace(
        "\"throughput-bits\": 936000000.0",
        "\"throughput-bits\": 936000000.0, \"receiver-throughput-bits\": 928000000.0",
    );
    let run = pscheduler(&text);
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
    let record = iperf3(IPERF3).into_record(identity, path);
    assert_eq!(record.measures, Measures::Memory);
    assert_eq!(record.knobs["streams"], Knob::Count(2));
    assert!(record.to_line().is_ok());
}

#[test]
fn errors_name_failures_and_unsupported_files() {
    let failed = iperf3(REFUSED).done().unwrap_err();
    let refused = "unable to connect to server: Connection refused";
    assert!(matches!(failed, SourceError::Failed { cause, .. } if cause == refused));
    let failed = pscheduler(r#"{"succeeded":false,"error":"no route"}"#).done();
    assert!(matches!(failed, Err(SourceError::Failed { cause, .. }) if cause == "no route"));
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
