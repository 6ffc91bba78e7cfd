//! Tests of records: written records are read back, and every fault is reported.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use longhaul_measure::doubt::Doubt;
use longhaul_measure::record::{
    Beside, CpuUse, DatasetRecord, EmulatorReport, Ended, Fault, HostRecord, Knob, LONGEST_LINE,
    LayerUse, Measures, Method, OnFault, Outcome, PathRecord, RecordError, RunIdentity, RunRecord,
    SCHEMA, Side, Sidecar, SizeClass, TcpSummary, read_records,
};
use longhaul_measure::runs::Runs;
use longhaul_units::{BitRate, ByteCount};

/// Returns a record with every field.
// tidy: long because it is one value
fn full() -> RunRecord {
    let host = |name: &str| HostRecord {
        name: name.into(),
        kernel: "6.18.0".into(),
        cpu: "AMD EPYC 7B13".into(),
        cores: 2,
        memory: ByteCount(25_000_000_000),
        storage: "ext4 rw,relatime".into(),
        settings: [(
            "net.ipv4.tcp_wmem".to_owned(),
            "4096 16384 4194304".to_owned(),
        )]
        .into(),
        description: "0123456789abcdef".into(),
    };
    let (moved, wall) = (ByteCount(1_000_000_000), Duration::from_millis(9_100));
    RunRecord {
        schema: SCHEMA,
        run: RunIdentity {
            id: "suite/17".into(),
            sweep: "suite".into(),
            round: Some(3),
            seed: None,
            started: "2026-11-03T10:11:12Z".into(),
            again: false,
            warm_up: false,
        },
        measures: Measures::Transfer,
        method: Method {
            name: "longhaul".into(),
            version: "0.1.0".into(),
            command: "longhaul cp -r data longhaul://far/data".into(),
            endpoint: "daemon".into(),
            security: "tls".into(),
        },
        knobs: [
            ("streams".to_owned(), Knob::Count(8)),
            ("direct".to_owned(), Knob::Flag(true)),
            ("ratio".to_owned(), Knob::Number(1.5)),
            ("codec".to_owned(), Knob::Word("zstd:1".into())),
        ]
        .into(),
        path: PathRecord {
            name: "lab".into(),
            rtt: Duration::from_micros(91_600),
            capacity: BitRate::new(9.415e8).unwrap(),
            rate: BitRate::new(1e9),
            loss: 1e-5,
            queue: Some(ByteCount(11_450_000)),
            congestion_control: "bbr".into(),
            emulator: Some(EmulatorReport {
                packets: 690_000,
                lost: 7,
                overflowed: 0,
                corrupted_unseen: 0,
                late: 12,
                worst_late: Duration::from_micros(1_200),
                busy: 0.41,
            }),
        },
        source: host("near"),
        destination: host("far"),
        dataset: DatasetRecord {
            name: "genomes".into(),
            files: 345,
            size: moved,
            sizes: vec![SizeClass {
                below: ByteCount(1 << 30),
                files: 345,
                size: moved,
            }],
        },
        outcome: Outcome {
            ended: Ended::Done,
            moved,
            wall,
            goodput: BitRate::from_transfer(moved, wall),
            exit: Some(0),
            error: String::new(),
            retransmitted_segments: Some(70),
            said: [("lost_streams".to_owned(), 1.0)].into(),
        },
        machine_busy_seconds: Some(6.5),
        cpu: vec![
            CpuUse {
                process: "longhaul".into(),
                side: Side::Source,
                user: Duration::from_millis(400),
                system: Duration::from_millis(600),
            },
            CpuUse {
                process: "lab".into(),
                side: Side::Emulator,
                user: Duration::from_millis(4_000),
                system: Duration::from_millis(1_000),
            },
        ],
        layers: vec![LayerUse {
            layer: "read".into(),
            flows: 2,
            utilisation: 0.12,
        }],
        tcp: Some(TcpSummary {
            streams: 8,
            most_streams: 8,
            largest_bytes: 130_000_000,
            smallest_bytes: 110_000_000,
            largest_by_share: Some(1.08),
            smallest_by_share: Some(0.91),
            largest_by_capacity: Some(1.04),
            smallest_by_capacity: Some(0.97),
            congestion: "bbr".into(),
            seconds_to_90_percent: Some(1.5),
            bits_per_second_after_5_seconds: None,
            seconds_until_it_moved_again: None,
            idle_beside_unsent: Some(0.002),
        }),
        beside: vec![Beside {
            method: "iperf3".into(),
            port: 20_001,
            moved: ByteCount(900_000_000),
            share_after_15_seconds: Some(0.5),
        }],
        samples: Some(Sidecar {
            file: "samples/17.jsonl".into(),
            count: 91,
        }),
        doubts: vec![Doubt::FewRepetitions { repetitions: 5 }],
    }
}

fn numbered(id: &str) -> RunRecord {
    let mut record = full();
    record.run.id = id.into();
    record
}

fn read(text: &[u8]) -> (Vec<RunRecord>, Vec<(u64, Fault)>) {
    let mut records = Vec::new();
    let skipped = read_records(text, OnFault::Skip, |record| {
        records.push(record);
        Ok(())
    });
    let skipped = skipped.unwrap();
    assert_eq!(
        skipped.count,
        skipped.kinds.len() as u64,
        "one of each kind"
    );
    let faults = skipped.kinds.into_iter().map(|kind| kind.first);
    (records, faults.map(|f| (f.line, f.fault)).collect())
}

#[test]
fn a_record_is_one_short_line_that_is_read_back() {
    let line = full().to_line().unwrap();
    assert!(line.len() < LONGEST_LINE && !line.contains('\n'));
    assert_eq!(read(line.as_bytes()), (vec![full()], vec![]));
    // The CPU time of both ends excludes the emulator.
    assert_eq!(full().cpu_seconds_per_gigabyte(), Some(1.0));
}

#[test]
fn the_schema_equals_the_example_in_format_md() {
    // If this fails, either the schema has changed or FORMAT.md is wrong.
    let line = full().to_line().unwrap();
    let format = include_str!("../../../../FORMAT.md");
    let shown = format.split("```json\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&line).unwrap(),
        shown
    );
}

#[test]
fn unknown_fields_are_ignored_and_optional_ones_may_be_absent() {
    let line = br#"{"schema":1,"run":{"id":"a"},"measures":"memory","method":{"name":"iperf3"},
        "moon":"full","path":{"rtt_seconds":0.1,"capacity_bits_per_second":1e9},
        "outcome":{"ended":"done","bytes":125000000,"wall_seconds":1,
        "goodput_bits_per_second":1e9}}"#;
    let line: Vec<u8> = line.iter().copied().filter(|b| *b != b'\n').collect();
    let (records, faults) = read(&line);
    assert_eq!(faults, []);
    assert_eq!(records[0].path.rtt, Duration::from_millis(100));
    assert_eq!(records[0].cpu_seconds_per_gigabyte(), None);
}

#[test]
fn faults_are_named_with_their_lines() {
    let good = numbered("1").to_line().unwrap();
    let newer = good.replacen("\"schema\":1", "\"schema\":2", 1);
    let strange = r#"{"schema":7,"shape":"unknown"}"#;
    let wrong = good.replacen(
        "\"bytes\":1000000000,\"wall",
        "\"bytes\":2000000000,\"wall",
        1,
    );
    let negative = good.replacen("\"rtt_seconds\":0.0916", "\"rtt_seconds\":-1", 1);
    let long = "x".repeat(LONGEST_LINE + 1);
    let truncated = &good[..good.len() / 2];
    let text =
        format!("{good}\n\n{newer}\n{strange}\nnonsense\n{wrong}\n{negative}\n{long}\n{truncated}");
    let (records, faults) = read(text.as_bytes());
    assert_eq!(records, [numbered("1")]);
    let lines: Vec<u64> = faults.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9]);
    let faults: Vec<Fault> = faults.into_iter().map(|(_, fault)| fault).collect();
    assert_eq!(faults[0], Fault::Schema(2));
    assert_eq!(faults[1], Fault::Schema(7));
    assert!(matches!(faults[2], Fault::Malformed(_)));
    assert!(matches!(&faults[3], Fault::Nonsense(text) if text.contains("goodput")));
    assert!(matches!(&faults[4], Fault::Malformed(text) if text.contains("negative")));
    assert_eq!(faults[5], Fault::TooLong);
    assert_eq!(faults[6], Fault::Truncated);
}

#[test]
fn a_line_of_maximum_length_is_read_and_a_longer_one_is_not() {
    let mut record = full();
    let room = LONGEST_LINE - record.to_line().unwrap().len();
    record.method.command.push_str(&"x".repeat(room));
    let line = record.to_line().unwrap();
    assert_eq!(line.len(), LONGEST_LINE);
    for text in [line.clone(), format!("{line}\n"), format!("{line}\n{line}")] {
        assert_eq!(read(text.as_bytes()).1, []);
    }
    record.method.command.push('x');
    assert_eq!(
        record.to_line(),
        Err(RecordError::TooLong(LONGEST_LINE + 1))
    );
    let (records, faults) = read(format!("{line} \n{line}").as_bytes());
    assert_eq!((records.len(), faults), (1, vec![(1, Fault::TooLong)]));
}

#[test]
fn reading_stops_at_a_fault_if_faults_are_refused() {
    let good = numbered("1").to_line().unwrap();
    let text = format!("{good}\nnonsense\n{good}");
    let mut count = 0;
    let refused = read_records(text.as_bytes(), OnFault::Refuse, |_| {
        count += 1;
        Ok(())
    });
    assert_eq!(refused.unwrap_err().line, 2);
    assert_eq!(count, 1);
}

#[test]
fn a_run_is_counted_once() {
    let mut runs = Runs::default();
    let text = ["1", "2", "1"].map(|id| numbered(id).to_line().unwrap());
    let skipped = read_records(text.join("\n").as_bytes(), OnFault::Skip, |r| runs.add(r));
    let first = &skipped.unwrap().kinds[0].first;
    assert_eq!(
        (first.line, &first.fault),
        (3, &Fault::Repeated("1".into()))
    );
    assert_eq!(runs.runs().len(), 2);
}

#[test]
fn sweeps_with_the_same_name_may_have_different_files() {
    let mut runs = Runs::default();
    let other = |wall: u64| {
        let mut record = numbered("1");
        record.outcome.wall = Duration::from_secs(wall);
        record.outcome.goodput = BitRate::from_transfer(record.outcome.moved, record.outcome.wall);
        record
    };
    runs.add_of(0, numbered("1")).unwrap();
    runs.add_of(1, other(20)).unwrap();
    runs.add_of(2, other(30)).unwrap();
    let repeated = Err(Fault::Repeated("1".into()));
    // Adds the same run from another file, and a different run with an identity used in that file.
    assert_eq!(runs.add_of(3, numbered("1")), repeated);
    assert_eq!(runs.add_of(3, other(20)), repeated);
    runs.add_of(3, other(40)).unwrap();
    assert_eq!(runs.add_of(3, other(50)), repeated);
    // Rounds with the same number in different files were not interleaved with each other.
    let rounds: std::collections::BTreeSet<Option<u64>> =
        runs.runs().iter().map(|run| run.round).collect();
    assert_eq!((runs.runs().len(), rounds.len()), (4, 4));
    let mut partner = numbered("2");
    partner.run.round = Some(3);
    runs.add_of(3, partner).unwrap();
    assert_eq!(runs.runs()[4].round, runs.runs()[3].round);
    assert!(runs.runs()[4].round.is_some());
}

#[test]
fn configurations_are_named_by_their_distinguishing_properties() {
    let mut runs = Runs::default();
    let variant = |id: &str, change: fn(&mut RunRecord)| {
        let mut record = numbered(id);
        change(&mut record);
        record
    };
    for record in [
        variant("1", |_| {}),
        variant("2", |r| r.path.rtt = Duration::ZERO),
        variant("3", |r| {
            drop(r.knobs.insert("streams".into(), Knob::Count(1)));
        }),
        variant("4", |r| {
            r.method.name = "scp".into();
            r.knobs.clear();
        }),
        variant("5", |r| r.run.warm_up = true),
    ] {
        runs.add(record).unwrap();
    }
    assert_eq!(
        runs.labels(),
        ["longhaul streams=8", "longhaul streams=1", "scp"]
    );
    assert_eq!((runs.runs().len(), runs.warm_ups()), (4, 1));
    assert_eq!(runs.doubts(0)[0].runs, 2);
}

#[test]
fn inconsistent_records_are_not_written() {
    let broken: [fn(&mut RunRecord); 6] = [
        |r| r.run.id.clear(),
        |r| r.path.loss = 1.5,
        |r| r.layers[0].utilisation = 1.5,
        |r| r.path.capacity = BitRate::default(),
        |r| r.outcome.wall = Duration::ZERO,
        |r| r.outcome.goodput = BitRate::default(),
    ];
    for change in broken {
        let mut record = full();
        change(&mut record);
        assert!(
            matches!(record.to_line(), Err(RecordError::Nonsense(_))),
            "{record:?}"
        );
    }
}

#[test]
#[ignore = "prints what FORMAT.md shows"]
fn print_the_example() {
    println!("{}", full().to_line().unwrap());
}
