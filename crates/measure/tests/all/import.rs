//! Tests of importing the results of other instruments.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use longhaul_measure::doubt::Doubt;
use longhaul_measure::import::{Found, Given, Imported, import};
use longhaul_measure::record::{Ended, Knob};
use longhaul_measure::runs::Runs;
use longhaul_measure::sources::{Direction, ExternalRun, HostName, read_csv, read_iperf3};
use longhaul_units::{BitRate, ByteCount};

/// Returns a run from `a` to `b` that moves this number of megabits in a second.
fn run(least_rtt_ms: Option<f64>, megabits: u64) -> ExternalRun {
    let name = |name: &str| HostName {
        name: name.to_owned(),
        kernel: String::new(),
    };
    ExternalRun {
        tool: "iperf3".to_owned(),
        direction: Some(Direction::To),
        near: name("a"),
        far: name("b"),
        moved: ByteCount(megabits * 125_000),
        wall: Duration::from_secs(1),
        throughput: BitRate::new(megabits as f64 * 1e6).unwrap(),
        streams: 1,
        least_rtt: least_rtt_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)),
        ..ExternalRun::default()
    }
}

fn back(run: ExternalRun) -> ExternalRun {
    ExternalRun {
        direction: Some(Direction::From),
        ..run
    }
}

fn imported(runs: impl IntoIterator<Item = ExternalRun>, given: &Given) -> Imported {
    let found = runs.into_iter().map(|run| Found {
        file: "results/x.json".to_owned(),
        run,
    });
    import(found.collect(), given)
}

fn rtts_ms(imported: &Imported) -> Vec<f64> {
    let records = imported.records.iter();
    records
        .map(|(_, record)| record.path.rtt.as_secs_f64() * 1e3)
        .collect()
}

#[test]
fn a_path_has_the_least_round_trip_and_the_highest_rate_of_its_runs() {
    let there = [
        run(Some(91.8), 900),
        run(Some(91.6), 940),
        run(Some(183.0), 500),
    ];
    let all = there.into_iter().chain([back(run(Some(95.0), 800))]);
    let imported = imported(all, &Given::default());
    assert_eq!(imported.left, []);
    assert_eq!(rtts_ms(&imported), [91.6, 91.6, 183.0, 91.6]);
    let capacities: Vec<f64> = imported
        .records
        .iter()
        .map(|(_, record)| record.path.capacity.bits_per_second() / 1e6)
        .collect();
    assert_eq!(capacities, [940.0, 940.0, 940.0, 800.0]);
    let record = &imported.records[3].1;
    assert_eq!(record.path.name, "b to a");
    assert_eq!([&record.source.name, &record.destination.name], ["b", "a"]);
    assert_eq!(record.knobs["direction"], Knob::Word("from".to_owned()));
    // The record keeps the value of the file.
    assert_eq!(record.outcome.said["least_rtt_seconds"], 0.095);
    let mut runs = Runs::default();
    for (_, record) in imported.records {
        runs.add(record).unwrap();
    }
    assert_eq!(runs.configurations().len(), 2);
}

#[test]
fn a_missing_round_trip_is_taken_from_other_runs_or_given() {
    let imported_alone = imported([back(run(None, 900))], &Given::default());
    assert!(imported_alone.left[0].why.contains("--rtt"));
    let with_others = imported(
        [back(run(None, 900)), run(Some(10.0), 1)],
        &Given::default(),
    );
    assert_eq!(rtts_ms(&with_others), [10.0, 10.0]);
    let apart = [back(run(None, 900)), run(Some(10.0), 1), run(Some(50.0), 1)];
    let apart = imported(apart, &Given::default());
    assert_eq!((apart.left.len(), apart.records.len()), (1, 2));
    assert!(apart.left[0].is_unpaired);
    let given = Given {
        rtt: Some(Duration::from_millis(20)),
        capacity: BitRate::new(1e9),
        path: Some("far".to_owned()),
        time: None,
    };
    let told = imported([back(run(None, 900)), run(Some(10.0), 1)], &given);
    assert_eq!(rtts_ms(&told), [20.0, 20.0]);
    let names: Vec<&str> = told
        .records
        .iter()
        .map(|(_, record)| record.path.name.as_str())
        .collect();
    assert_eq!(names, ["back from far", "far"]);
    assert!(
        told.records
            .iter()
            .all(|(_, record)| record.path.capacity.bits_per_second() == 1e9)
    );
}

/// Each of the three quantities of the table is wrong by a factor in one line.
#[test]
fn a_table_whose_quantities_disagree_is_doubted() {
    let table = "source,destination,rtt_ms,bytes,seconds,throughput_mbps\n\
                 a,b,40,125000000,1,1000\n\
                 a,b,40,125000000,1,100\n\
                 a,b,40,125000000,1000,1000\n\
                 a,b,40,125000,1,1000\n";
    let runs = read_csv(table.as_bytes()).unwrap();
    let imported = imported(runs, &Given::default());
    let doubted = imported.records.iter().map(|(_, record)| {
        let mut doubts = record.doubts.iter();
        doubts.any(|doubt| matches!(doubt, Doubt::Inconsistent { .. }))
    });
    let doubted: Vec<bool> = doubted.collect();
    assert_eq!(doubted, [false, true, true, true]);
}

#[test]
fn a_round_trip_measured_under_load_raises_a_doubt() {
    let doubts = |runs: Vec<ExternalRun>, given: &Given| {
        let imported = imported(runs, given);
        let records = imported.records.iter();
        let doubts = records.map(|(_, record)| record.doubts.clone());
        doubts.collect::<Vec<_>>()
    };
    let loaded = |rtt_seconds| vec![Doubt::LoadedRoundTrip { rtt_seconds }];
    let own = vec![run(Some(59.0), 900), back(run(None, 900))];
    let by_iperf3 = doubts(own.clone(), &Given::default());
    assert_eq!(by_iperf3, [loaded(0.059), loaded(0.059)]);
    let given = Given {
        rtt: Some(Duration::from_millis(40)),
        ..Given::default()
    };
    assert_eq!(doubts(own, &given), [vec![], vec![]]);
    // A table can have the round-trip time of the idle path.
    let of_table = |least_rtt, rtt| ExternalRun {
        tool: "table".to_owned(),
        least_rtt,
        rtt,
        ..run(None, 900)
    };
    let span = Duration::from_millis(50);
    let idle = doubts(vec![of_table(Some(span), None)], &Given::default());
    assert_eq!(idle, [vec![]]);
    let mean = doubts(vec![of_table(None, Some(span))], &Given::default());
    assert_eq!(mean, [loaded(0.05)]);
}

#[test]
fn a_test_that_failed_at_once_belongs_to_the_only_path_of_its_host() {
    let refused = include_bytes!("../../../../fuzz/corpus/iperf3/refused.json");
    let refused = read_iperf3(&refused[..]).unwrap().remove(0);
    let alone = imported([refused.clone()], &Given::default());
    assert!(
        alone.left[0].why.contains("Connection refused"),
        "{alone:?}"
    );
    let mut near = run(Some(10.0), 900);
    near.near.name = "near".to_owned();
    let both = imported([refused, near], &Given::default());
    let failed = &both.records[0].1;
    assert_eq!(failed.outcome.ended, Ended::Failed);
    assert_eq!(
        failed.outcome.error,
        "unable to connect to server: Connection refused"
    );
    assert_eq!(failed.path.name, "near to b");
    assert_eq!(rtts_ms(&both), [10.0, 10.0]);
}

#[test]
fn repeated_runs_count_once_and_identities_are_unique() {
    let named = ExternalRun {
        id: "cookie".to_owned(),
        ..run(Some(10.0), 900)
    };
    let all = [named.clone(), named, run(Some(10.0), 1), run(Some(10.0), 1)];
    let imported = imported(all, &Given::default());
    let ids: Vec<&str> = imported
        .records
        .iter()
        .map(|(_, record)| record.run.id.as_str())
        .collect();
    assert_eq!(
        ids,
        ["import-iperf3-cookie", "import-x.json", "import-x.json-2"]
    );
    assert!(imported.left[0].why.contains("give each run once"));
}

#[test]
fn a_rate_without_bytes_needs_a_time() {
    let rate_alone = || ExternalRun {
        moved: ByteCount(0),
        wall: Duration::ZERO,
        ..run(Some(10.0), 800)
    };
    let without = imported([rate_alone()], &Given::default());
    assert!(without.left[0].why.contains("--time"), "{without:?}");
    let given = Given {
        time: Some(Duration::from_secs(10)),
        ..Given::default()
    };
    let with = imported([rate_alone()], &given);
    assert_eq!(with.records[0].1.outcome.moved, ByteCount(1_000_000_000));
}
