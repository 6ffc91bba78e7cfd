//! Tests of the analysis, from records to figures and texts.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use longhaul_measure::analysis::{Analysis, analyse, to_json, to_text};
use longhaul_measure::doubt::Doubt;
use longhaul_measure::profile::Bend;
use longhaul_measure::record::{
    CpuUse, DatasetRecord, Ended, HostRecord, Knob, LayerUse, Measures, Method, Outcome,
    PathRecord, RunIdentity, RunRecord, SCHEMA, Side,
};
use longhaul_measure::report::{Heading, SampledRun, figures, page, run_over_time};
use longhaul_measure::runs::Runs;
use longhaul_measure::samples::Stretch;
use longhaul_measure::stats::Resampling;
use longhaul_units::{BitRate, ByteCount};

const CAPACITY: f64 = 1e9;

/// Returns a run of a method at a round-trip time, with a share of the capacity.
fn run(name: &str, measures: Measures, milliseconds: u64, round: u64, share: f64) -> RunRecord {
    let moved = ByteCount(1_000_000_000);
    let wall = Duration::from_secs_f64(8e9 / (CAPACITY * share));
    RunRecord {
        schema: SCHEMA,
        run: RunIdentity {
            id: format!("{name}/{measures:?}/{milliseconds}/{round}"),
            round: Some(round),
            seed: None,
            ..RunIdentity::default()
        },
        measures,
        method: Method {
            name: name.to_owned(),
            ..Method::default()
        },
        knobs: [].into(),
        path: PathRecord {
            rtt: Duration::from_millis(milliseconds),
            capacity: BitRate::new(CAPACITY).unwrap(),
            ..PathRecord::default()
        },
        source: HostRecord::default(),
        destination: HostRecord::default(),
        dataset: DatasetRecord::default(),
        outcome: Outcome {
            ended: Ended::Done,
            moved,
            wall,
            goodput: BitRate::from_transfer(moved, wall),
            exit: Some(0),
            error: String::new(),
            retransmitted_segments: None,
            said: Default::default(),
        },
        cpu: Vec::new(),
        machine_busy_seconds: None,
        layers: Vec::new(),
        tcp: None,
        beside: Vec::new(),
        samples: None,
        doubts: Vec::new(),
    }
}

/// Returns ten rounds of two methods and of TCP at three round-trip times.
fn sweep() -> Vec<RunRecord> {
    let mut records = Vec::new();
    for (milliseconds, tcp, fast, slow) in [
        (1, 1.0, 0.9, 0.5),
        (50, 0.8, 0.72, 0.4),
        (100, 0.4, 0.36, 0.1),
    ] {
        for round in 0..10 {
            let noise = 1.0 - 0.001 * (round % 3) as f64;
            let mut add = |name, measures, share: f64| {
                records.push(run(name, measures, milliseconds, round, share * noise));
            };
            add("iperf3", Measures::Memory, tcp);
            add("slow", Measures::Transfer, slow);
            add("fast", Measures::Transfer, fast);
        }
    }
    records
}

fn analysed(records: Vec<RunRecord>) -> (Runs, Analysis) {
    let mut runs = Runs::default();
    for record in records {
        runs.add(record).unwrap();
    }
    let analysis = analyse(&runs, &Resampling::default()).unwrap();
    (runs, analysis)
}

#[test]
fn methods_are_ranked_and_compared_with_each_other_and_tcp() {
    let (_, analysis) = analysed(sweep());
    let labels: Vec<&str> = analysis
        .transfers
        .iter()
        .map(|m| m.label.as_str())
        .collect();
    assert_eq!(labels, ["fast", "slow"]);
    assert_eq!(analysis.runs, 90);
    // Noise of a round cancels out, so Θ_F is 0.9 in every resample.
    let fast = &analysis.transfers[0];
    let scheme = fast.scheme.as_ref().unwrap();
    for point in &scheme.points {
        assert!((point.mean.estimate - 0.9).abs() < 1e-9);
        assert!(point.mean.interval.width() < 1e-9);
    }
    assert!(!fast.host_limited);
    let regions: Vec<Bend> = fast.figures.shape.regions.iter().map(|r| r.bend).collect();
    assert_eq!(regions, [Bend::Concave]);
    let difference = &analysis.comparisons[0].difference;
    assert!(
        difference
            .points
            .iter()
            .all(|(_, d)| d.is_paired && d.is_told_apart())
    );
}

#[test]
fn a_slow_host_is_divided_out() {
    let mut records = sweep();
    for (round, share) in [(0, 0.5), (1, 0.6), (2, 0.55)] {
        records.push(run("bench", Measures::Storage, 0, round, share));
    }
    let (_, analysis) = analysed(records);
    let fast = &analysis.transfers[0];
    assert!(fast.host_limited);
    let first = &fast.scheme.as_ref().unwrap().points[0];
    assert!((first.mean.estimate - 0.9 / 0.55).abs() < 1e-6, "{first:?}");
}

/// Returns the record with a dataset of this name and size in bytes.
fn of_data(mut record: RunRecord, name: &str, bytes: u64) -> RunRecord {
    record.run.id = format!("{name}/{}", record.run.id);
    record.dataset.name = name.to_owned();
    record.dataset.size = ByteCount(bytes);
    record
}

#[test]
fn a_transfer_is_compared_with_tcp_for_the_same_data() {
    let mut records = Vec::new();
    for round in 0..5 {
        for (name, bytes, tcp, host, own) in [
            ("large", 4_000_000_000, 0.9, 2.0, 0.85),
            ("small", 100_000_000, 0.4, 0.15, 0.14),
        ] {
            let mut add = |method, measures, share| {
                records.push(of_data(
                    run(method, measures, 100, round, share),
                    name,
                    bytes,
                ));
            };
            add("iperf3", Measures::Memory, tcp);
            add("writer", Measures::Storage, host);
            add("mover", Measures::Transfer, own);
        }
        // The run is so slow that it moves only a fifth of the data.
        let part = run("slow", Measures::Transfer, 100, round, 0.1);
        records.push(of_data(part, "large", 800_000_000));
    }
    let (runs, analysis) = analysed(records);
    for transfer in &analysis.transfers {
        let data = |configuration: usize| &runs.configurations()[configuration].traits["dataset"];
        let tcp = &analysis.memory[transfer.tcp.unwrap()];
        assert_eq!(data(tcp.configuration), data(transfer.configuration));
        let is_small = data(transfer.configuration) == "small";
        assert_eq!(transfer.host_limited, is_small, "{}", transfer.label);
        let host = transfer.slower_host.unwrap().estimate / CAPACITY;
        assert!(
            (host - if is_small { 0.15 } else { 2.0 }).abs() < 1e-6,
            "{host}"
        );
    }
    let is_of_size = |doubt: &Doubt| matches!(doubt, Doubt::DifferentReference { what } if what.contains("moves"));
    let doubts = analysis
        .doubts
        .iter()
        .filter(|named| is_of_size(&named.doubt));
    let about: Vec<&str> = doubts.map(|named| named.about.as_str()).collect();
    assert_eq!(about, ["slow"]);
}

#[test]
fn profiles_exclude_failed_and_repeated_runs() {
    let mut records = sweep();
    let mut failed = run("fast", Measures::Transfer, 1, 90, 0.01);
    failed.outcome.ended = Ended::Failed;
    let mut again = run("fast", Measures::Transfer, 1, 91, 0.01);
    again.run.again = true;
    let mut warm_up = run("fast", Measures::Transfer, 1, 92, 0.01);
    warm_up.run.warm_up = true;
    records.extend([failed, again, warm_up]);
    let (_, analysis) = analysed(records);
    assert_eq!((analysis.runs, analysis.warm_ups), (90, 1));
    assert_eq!(analysis.transfers[0].figures.points[0].summary.count, 10);
    let doubts = analysis.doubts.iter().map(|named| &named.doubt);
    let failures: Vec<&Doubt> = doubts
        .filter(|d| matches!(d, Doubt::FailedRuns { .. }))
        .collect();
    assert_eq!(failures, [&Doubt::FailedRuns { failed: 1, of: 32 }]);
}

#[test]
fn doubts_of_one_kind_are_grouped() {
    // There are ten configurations with two repetitions each.
    let mut records = Vec::new();
    for number in 0..10 {
        for round in 1..=2 {
            let name = format!("m{number}");
            records.push(run(&name, Measures::Transfer, 1, round, 0.5));
        }
    }
    let (_, analysis) = analysed(records);
    let few = |doubt: &Doubt| matches!(doubt, Doubt::FewRepetitions { .. });
    let doubts = analysis.doubts.iter().filter(|named| few(&named.doubt));
    assert_eq!(doubts.count(), 10);
    let advice = Doubt::FewRepetitions { repetitions: 2 }.advice();
    let text = to_text(&analysis);
    assert_eq!(text.matches("only 2 repetitions").count(), 3, "{text}");
    assert_eq!(text.matches(&advice).count(), 1, "{text}");
    assert!(text.contains("and 7 more"), "{text}");
    // The page lists all doubts.
    let heading = Heading {
        title: "Doubts".to_owned(),
        sources: Vec::new(),
        ..Heading::default()
    };
    let html = page(&heading, &analysis, &[]);
    assert_eq!(html.matches("only 2 repetitions").count(), 10);
    assert!(html.contains("and 7 more"));
}

#[test]
fn differences_from_the_tcp_reference_raise_doubts() {
    let mut records = sweep();
    for record in &mut records {
        let (streams, control) = match record.measures {
            Measures::Memory => (8, "cubic"),
            _ => (4, "bbr"),
        };
        record.knobs.insert("streams".into(), Knob::Count(streams));
        record.path.congestion_control = control.into();
    }
    let (_, analysis) = analysed(records);
    let of_fast = analysis.doubts.iter().filter(|named| named.about == "fast");
    assert_eq!(of_fast.count(), 2);
}

#[test]
fn tcp_with_the_same_congestion_control_is_preferred_as_reference() {
    let mut records = sweep();
    for (index, mut record) in sweep().into_iter().enumerate() {
        record.run.id = format!("bbr/{index}");
        record.path.congestion_control = "bbr".into();
        // It is slower than the others, so only its congestion control can make it the reference.
        let slower = 1.25;
        record.outcome.wall = record.outcome.wall.mul_f64(slower);
        records.push(record);
    }
    for record in &mut records {
        if record.path.congestion_control.is_empty() {
            record.path.congestion_control = "cubic".into();
        }
    }
    let (_, analysis) = analysed(records);
    assert_eq!(analysis.transfers.len(), 4);
    for transfer in &analysis.transfers {
        let tcp = &analysis.memory[transfer.tcp.unwrap()].label;
        let control = |label: &str| {
            label
                .rsplit_once('=')
                .map(|(_, control)| control.to_owned())
        };
        assert_eq!(control(tcp), control(&transfer.label));
        assert!(control(tcp).is_some());
    }
    let doubted = analysis.doubts.iter().map(|named| &named.doubt);
    let other = |doubt: &&Doubt| matches!(doubt, Doubt::DifferentCongestionControl { .. });
    assert_eq!(doubted.filter(other).count(), 0);
}

/// Settings of the hosts and the path also affect Θ_T.
#[test]
fn tcp_with_the_same_host_and_path_settings_is_preferred_as_reference() {
    let mut records = Vec::new();
    for (word, tcp, share) in [("plain", 0.9, 0.8), ("scaled-down", 0.03, 0.6)] {
        for round in 0..10 {
            let both = [
                ("copy", Measures::Transfer, share),
                ("iperf3", Measures::Memory, tcp),
            ];
            for (name, measures, share) in both {
                let mut record = run(name, measures, 50, round, share);
                record.run.id += word;
                record.knobs = [("sysctls".to_owned(), Knob::Word(word.to_owned()))].into();
                records.push(record);
            }
        }
    }
    let without_own = records.clone().into_iter().filter(|record| {
        record.measures == Measures::Transfer || record.knobs["sysctls"].to_string() == "plain"
    });
    let named = |analysis: &Analysis, word: &str| {
        let has =
            |transfer: &&longhaul_measure::analysis::MethodProfile| transfer.label.contains(word);
        let transfer = analysis.transfers.iter().find(has).unwrap();
        analysis.memory[transfer.tcp.unwrap()].label.clone()
    };
    let (_, own) = analysed(records.clone());
    assert!(named(&own, "plain").contains("plain"));
    assert!(named(&own, "scaled-down").contains("scaled-down"));
    let differs = |analysis: &Analysis| {
        let doubts = analysis.doubts.iter();
        let is = |doubt: &Doubt| matches!(doubt, Doubt::DifferentReference { what } if what.contains("sysctls"));
        doubts.filter(|named| is(&named.doubt)).count()
    };
    assert_eq!(differs(&own), 0);
    let (_, others) = analysed(without_own.collect());
    assert!(named(&others, "scaled-down").contains("iperf3"));
    assert_eq!(differs(&others), 1);
}

#[test]
fn a_congestion_control_set_as_a_knob_takes_precedence() {
    let mut records = Vec::new();
    for (control, slower) in [("cubic", 1.25), ("bbr", 1.0)] {
        for (index, mut record) in sweep().into_iter().enumerate() {
            record.run.id = format!("{control}/{index}");
            record.path.congestion_control = "cubic".into();
            let by_hand = Knob::Word(control.into());
            record.knobs.insert("congestion".into(), by_hand);
            record.outcome.wall = record.outcome.wall.mul_f64(slower);
            records.push(record);
        }
    }
    let (_, analysis) = analysed(records);
    for transfer in &analysis.transfers {
        let tcp = &analysis.memory[transfer.tcp.unwrap()].label;
        assert_eq!(tcp.contains("bbr"), transfer.label.contains("bbr"));
    }
    assert!(
        analysis
            .transfers
            .iter()
            .any(|own| own.label.contains("bbr"))
    );
}

#[test]
fn the_best_of_a_sweep_is_reported_after_repeated_measurements() {
    let mut records = Vec::new();
    for (name, share) in [("a", 0.5), ("b", 0.9), ("c", 0.89), ("d", 0.88)] {
        for round in 0..5 {
            records.push(run(name, Measures::Transfer, 50, round, share));
        }
    }
    let (_, analysis) = analysed(records.clone());
    assert_eq!(analysis.best[0].best, Err(vec![1, 2, 3]));
    for (name, share) in [("b", 0.8), ("c", 0.89), ("d", 0.85)] {
        for round in 5..10 {
            let mut record = run(name, Measures::Transfer, 50, round, share);
            record.run.again = true;
            records.push(record);
        }
    }
    let (_, analysis) = analysed(records);
    let best = analysis.best[0].best.as_ref().unwrap();
    assert_eq!((best.fastest, best.as_good.as_slice()), (2, &[2][..]));
    let text = to_text(&analysis);
    assert!(
        text.contains("best of 4 at 50 ms: c with 890.0 Mbit/s"),
        "{text}"
    );
    assert!(
        text.contains("ahead of d by +40.0 [+40.0, +40.0], paired"),
        "{text}"
    );
    let json = &to_json(&analysis)["best"][0];
    assert_eq!(json["fastest"], "c");
    let ahead = json["ahead_bits_per_second"].as_array().unwrap();
    // Configurations measured again in the same rounds are paired; those of the sweep only are not.
    let paired: Vec<(&str, bool)> = ahead
        .iter()
        .map(|d| (d["of"].as_str().unwrap(), d["paired"].as_bool().unwrap()))
        .collect();
    assert_eq!(paired, [("a", false), ("b", true), ("d", true)]);
}

#[test]
fn only_configurations_under_the_same_conditions_are_compared() {
    let mut records = Vec::new();
    for (dataset, loss) in [("large", 0.0), ("large", 1e-4), ("small", 0.0)] {
        for name in ["a", "b", "c", "d"] {
            let mut record = run(name, Measures::Transfer, 50, 0, 0.9);
            record.run.id = format!("{name}/{dataset}/{loss:e}");
            record.dataset.name = dataset.to_owned();
            record.path.loss = loss;
            records.push(record);
        }
    }
    // These are too few to compare.
    records.extend(["a", "b", "c"].map(|name| run(name, Measures::Transfer, 90, 0, 0.9)));
    let (_, analysis) = analysed(records);
    let compared: Vec<usize> = analysis.best.iter().map(|at| at.compared).collect();
    assert_eq!(compared, [4, 4, 4]);
    let text = to_text(&analysis);
    for place in [
        "at 50 ms, dataset=large: not",
        "at 50 ms, dataset=large, loss=1e-4: not",
        "at 50 ms, dataset=small: not",
        "one repetition has no interval",
    ] {
        assert!(text.contains(place), "{place}: {text}");
    }
}

/// Returns the sweep with costs that differ by round. In each round the fast method needs one CPU
/// second and a hundred segments more than the slow one.
fn costly_sweep() -> Vec<RunRecord> {
    let mut records = sweep();
    for record in &mut records {
        let round = record.run.round.unwrap_or_default();
        let more = u64::from(record.method.name == "fast");
        record.cpu = vec![CpuUse {
            process: record.method.name.clone(),
            side: Side::Source,
            user: Duration::from_secs(1 + more + round),
            system: Duration::ZERO,
        }];
        record.outcome.retransmitted_segments = Some(100 * more + round * round);
        record.layers = vec![
            LayerUse {
                layer: "read".to_owned(),
                flows: 1,
                utilisation: 0.0,
            },
            LayerUse {
                layer: "send".to_owned(),
                flows: 1,
                utilisation: 0.5 + 0.01 * round as f64,
            },
        ];
    }
    records
}

#[track_caller]
fn near(value: &serde_json::Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
}

#[test]
fn costs_have_intervals() {
    let (_, analysis) = analysed(costly_sweep());
    let json = to_json(&analysis);
    let fast = &json["transfers"][0];
    // The means over rounds 0 to 9 are 2 + 4.5 seconds and 100 + 28.5 segments.
    let cpu = &fast["cpu_seconds_per_gigabyte"];
    near(&cpu["points"][1]["estimate"], 6.5);
    near(&cpu["points"][1]["rtt_seconds"], 0.05);
    near(&cpu["mean"]["estimate"], 6.5);
    let ends = |figure: &serde_json::Value| {
        (
            figure["low"].as_f64().unwrap(),
            figure["high"].as_f64().unwrap(),
        )
    };
    // The standard deviation of 0 to 9 is 2.87. That of a mean of ten values is 0.91.
    let (low, high) = ends(&cpu["points"][1]);
    assert!(
        (4.4..5.1).contains(&low) && (7.9..8.6).contains(&high),
        "{low} {high}"
    );
    // With three times as many values, the interval is narrower by √3.
    let (low, high) = ends(&cpu["mean"]);
    assert!((1.9..2.2).contains(&(high - low)), "{low} {high}");
    near(
        &fast["retransmitted_segments"]["points"][0]["estimate"],
        128.5,
    );
    near(&fast["layers"][1]["mean"]["estimate"], 0.545);
    let layers: Vec<&str> = fast["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["layer"].as_str().unwrap())
        .collect();
    assert_eq!(layers, ["read", "send"]);
}

#[test]
fn differences_of_costs_are_paired() {
    let (runs, analysis) = analysed(costly_sweep());
    let json = to_json(&analysis);
    let fast = &json["transfers"][0];
    // A round has the same effect on both methods, so the difference does not contain it.
    let comparison = &json["comparisons"][0];
    for (name, expected) in [
        ("cpu_seconds_per_gigabyte", 1.0),
        ("retransmitted_segments", 100.0),
    ] {
        for difference in comparison[name].as_array().unwrap() {
            assert_eq!(difference["paired"], true);
            near(&difference["estimate"], expected);
            near(&difference["low"], expected);
            near(&difference["high"], expected);
        }
        assert_eq!(comparison[name].as_array().unwrap().len(), 3);
    }
    // Θ_T is 10/9 of Θ_E in every round. So TCP adds a tenth of the C_UC of Θ_T without its
    // constant.
    let added = &fast["tcp_adds_c_uc"];
    assert_eq!(added["paired"], true);
    let own = fast["coefficients"][1]["c_uc"]["estimate"]
        .as_f64()
        .unwrap();
    near(&added["estimate"], (own - 0.25) / 9.0);
    let tcp = &json["memory"][0]["coefficients"][1]["c_uc"];
    let unused = &fast["unused_c_uc"];
    near(&unused["estimate"], 1.0 - tcp["estimate"].as_f64().unwrap());
    assert!(unused["low"].as_f64() < unused["high"].as_f64());
    let text = to_text(&analysis);
    assert!(
        text.contains("CPU s/GB +1.00 [+1.00, +1.00] paired"),
        "{text}"
    );
    assert!(text.contains("send busy 54.5 % ["), "{text}");
    let page = page(&Heading::default(), &analysis, &figures(&runs, &analysis));
    assert!(
        page.contains("<td class=\"word\">50 ms</td><td>1.00 <small>[1.00, 1.00]</small></td>"),
        "{page}"
    );
}

/// With other traffic on the path, the processes cannot be distinguished. Only the emulator's CPU
/// time is known.
#[test]
fn unknown_cpu_time_is_not_zero() {
    let mut record = run("copy", Measures::Transfer, 50, 0, 0.5);
    let busy = |side| CpuUse {
        side,
        process: "p".into(),
        user: Duration::from_secs(1),
        system: Duration::ZERO,
    };
    record.cpu = vec![busy(Side::Emulator)];
    assert_eq!(record.cpu_seconds_per_gigabyte(), None);
    record.cpu.push(busy(Side::Source));
    assert_eq!(record.cpu_seconds_per_gigabyte(), Some(1.0));
}

#[test]
fn repetitions_with_different_data_raise_a_doubt() {
    let mut records: Vec<RunRecord> = (0..10)
        .map(|round| run("copy", Measures::Transfer, 50, round, 0.5))
        .collect();
    for record in &mut records[..5] {
        record.dataset.size = ByteCount(7);
    }
    let (_, analysis) = analysed(records);
    let is = |doubt: &Doubt| matches!(doubt, Doubt::DifferentData { .. });
    let found = analysis
        .doubts
        .iter()
        .find(|named| is(&named.doubt))
        .unwrap();
    assert_eq!(found.runs, 5);
}

/// Figures identify lines by their labels.
#[test]
fn labels_of_configurations_are_unique() {
    let mut records = Vec::new();
    for (number, capacity) in [941.5e6, 941.6e6, 941.7e6].into_iter().enumerate() {
        for streams in [Knob::Count(8), Knob::Word("8".into())] {
            let mut record = run("copy", Measures::Transfer, 50, number as u64, 0.5);
            record.run.id += &format!("{capacity} {streams:?}");
            record.path.capacity = BitRate::new(capacity).unwrap();
            record.knobs = [("streams".to_owned(), streams)].into();
            records.push(record);
        }
    }
    let (runs, _) = analysed(records);
    let mut labels = runs.labels();
    assert_eq!(labels.len(), 6);
    labels.sort();
    labels.dedup();
    assert_eq!(labels.len(), 6, "{labels:?}");
}

#[test]
fn methods_are_compared_at_common_round_trip_times() {
    let mut records = sweep();
    records.retain(|record| {
        record.method.name != "slow" || record.path.rtt != Duration::from_millis(50)
    });
    let (_, analysis) = analysed(records.clone());
    let difference = &analysis.comparisons[0].difference;
    let rtts: Vec<u128> = difference
        .points
        .iter()
        .map(|(rtt, _)| rtt.as_millis())
        .collect();
    assert_eq!((rtts, difference.c_uc), (vec![1, 100], None));
    assert!(
        difference
            .points
            .iter()
            .all(|(_, difference)| difference.is_paired)
    );
    // The methods have no common round-trip time.
    records.retain(|record| {
        (record.method.name == "slow") == (record.path.rtt == Duration::from_millis(1))
    });
    let (_, analysis) = analysed(records);
    assert!(analysis.transfers.len() == 2 && analysis.comparisons.is_empty());
}

#[test]
fn rounds_of_two_files_are_not_paired() {
    let mut runs = Runs::default();
    for record in sweep() {
        let file = usize::from(record.method.name == "slow");
        runs.add_of(file, record).unwrap();
    }
    let analysis = analyse(&runs, &Resampling::default()).unwrap();
    let points = &analysis.comparisons[0].difference.points;
    assert!(points.iter().all(|(_, difference)| !difference.is_paired));
}

/// Returns runs for which every kind of figure is drawn.
fn of_every_kind() -> Vec<RunRecord> {
    let mut records = costly_sweep();
    records.extend(over_loss());
    for storage in ["one", "other"] {
        for streams in [1, 2, 4] {
            for rtt in [20, 52] {
                let mut record = run("many", Measures::Transfer, rtt, 1, 0.1 * streams as f64);
                record.run.id = format!("{storage}/{streams}/{rtt}");
                let storage = ("storage".to_owned(), Knob::Word(storage.to_owned()));
                let streams = ("streams".to_owned(), Knob::Count(streams));
                record.knobs = [storage, streams].into();
                records.push(record);
            }
        }
    }
    records
}

#[test]
fn every_figure_has_a_table_of_its_numbers() {
    let records = of_every_kind();
    let (runs, analysis) = analysed(records);
    let mut plots = figures(&runs, &analysis);
    let sampled = SampledRun {
        label: "one".to_owned(),
        stretches: vec![Stretch {
            at: Duration::from_millis(1500),
            rate: BitRate::new(8.125e8).unwrap(),
            retransmitted_segments: 37.0,
        }],
    };
    plots.extend(run_over_time(&sampled, 1));
    let numbers = |name: &str| {
        let plot = plots.iter().find(|plot| plot.name == name);
        let rows = plot.unwrap_or_else(|| panic!("{name}")).table.rows.iter();
        rows.map(|row| row.join(" | "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    for plot in &plots {
        let table = &plot.table;
        assert!(!table.rows.is_empty(), "{}", plot.name);
        let is_whole = |row: &Vec<String>| row.len() == table.columns.len();
        assert!(
            table.rows.iter().all(is_whole) && table.words < table.columns.len(),
            "{}",
            plot.name
        );
    }
    for (name, row) in [
        ("profiles", "Θ_E fast | 1 | 899."),
        ("c-uc", "fast | 0."),
        (
            "streams-at-52000-us",
            "many storage=other | 4 | 1 | 400.0 | –",
        ),
        (
            "boxes-by-streams-at-52000-us",
            "many storage=one | 2 | 1 | 200.0 | – | 200.0 | – | 200.0 | 0",
        ),
        ("streams-by-rtt-1", "4 | 52 | 1 | 400.0"),
        ("loss-at-100000-us", "reno | 1e-2 | 1 | 50.00 | – | 50.0"),
        ("layers-1", "send | all | 54.50 ["),
        ("throughput-over-time-1", "1.500 | 812.5"),
        ("retransmissions-over-time-1", "1.500 | 12.33"),
    ] {
        let numbers = numbers(name);
        assert!(numbers.contains(row), "{name}: {row}\n{numbers}");
    }
    // Only a layer that was never busy shows a zero.
    let layers = plots.iter().find(|plot| plot.name == "layers-1").unwrap();
    assert!(layers.svg.contains(">0.0 % [0.0, 0.0]<"), "{}", layers.svg);
    assert_eq!(layers.svg.matches(">100<").count(), 1, "the axis alone");
    let page = page(&Heading::default(), &analysis, &plots);
    assert_eq!(
        page.matches("<summary>Numbers</summary>").count(),
        plots.len()
    );
}

#[test]
fn a_report_without_runs_is_a_page_without_figures() {
    let (runs, analysis) = analysed(Vec::new());
    assert!(figures(&runs, &analysis).is_empty());
    assert!(page(&Heading::default(), &analysis, &[]).ends_with("</html>\n"));
    assert_eq!(to_json(&analysis)["runs"], 0);
}

#[test]
fn every_figure_has_its_axes_named() {
    let (runs, analysis) = analysed(sweep());
    let plots = figures(&runs, &analysis);
    let names: Vec<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
    assert_eq!(names, ["profiles", "c-uc-over-rtt", "c-uc", "boxes-by-rtt"]);
    for plot in &plots {
        assert!(
            plot.svg.contains("(ms)") || plot.name == "c-uc",
            "{}",
            plot.name
        );
        assert!(
            !plot.svg.contains("NaN") && !plot.svg.contains("inf"),
            "{}",
            plot.name
        );
        assert_eq!(plot.svg.matches('<').count(), plot.svg.matches('>').count());
    }
}

/// Returns memory-to-memory runs at 100 ms with five loss rates and without loss, following the
/// laws of Reno and CUBIC.
fn over_loss() -> Vec<RunRecord> {
    let mut records = Vec::new();
    for (name, power) in [("reno", -0.5), ("cubic", -0.75)] {
        for loss in [1e-6, 1e-5, 1e-4, 1e-3] {
            for round in 0..4 {
                let scatter = 1.0 + 0.02 * (round as f64 - 1.5);
                // The throughput at a loss of 1e-4 is half of the capacity. The path limits greater
                // values.
                let share = (0.5 * (loss / 1e-4_f64).powf(power)).min(0.99) * scatter;
                let mut record = run(name, Measures::Memory, 100, round, share);
                record.run.id = format!("{}/{loss:e}", record.run.id);
                record.path.loss = loss;
                records.push(record);
            }
        }
    }
    // Adds one more decade, in which loss limits a third point.
    for name in ["reno", "cubic"] {
        let power = if name == "reno" { -0.5 } else { -0.75 };
        let share = 0.5 * 100_f64.powf(power);
        let mut record = run(name, Measures::Memory, 100, 9, share);
        record.path.loss = 1e-2;
        records.push(record.clone());
        record.path.loss = 0.0;
        record.run.id += "/without";
        record.run.round = Some(10);
        records.push(record);
    }
    for record in &mut records {
        record.knobs = [("streams".to_owned(), Knob::Count(1))].into();
    }
    records
}

#[test]
fn a_law_is_fitted_to_points_limited_by_loss() {
    let (runs, analysis) = analysed(over_loss());
    let labels: Vec<&str> = analysis
        .over_loss
        .iter()
        .map(|l| l.label.as_str())
        .collect();
    assert_eq!(labels, ["cubic", "reno"]);
    for (line, power) in analysis.over_loss.iter().zip([0.75, 0.5]) {
        assert_eq!(
            line.points.len(),
            5,
            "a line needs a loss above zero: {line:?}"
        );
        let law = line.law.unwrap();
        assert_eq!(law.points, 3);
        assert!((law.exponent - power).abs() < 0.001, "{line:?}");
        assert_eq!(line.points[4].standard_error, None);
    }
    let text = to_text(&analysis);
    assert!(
        text.contains("reno at 100 ms: throughput is proportional to loss to the power of -0.50"),
        "{text}"
    );
    assert!(text.contains("-0.75 below a loss of 5.5e-4"), "{text}");
    assert!(text.contains("standard error"), "{text}");
    let line = &to_json(&analysis)["over_loss"][0];
    assert_eq!(line["law"]["points"], 3);
    assert_eq!(line["law"]["least_loss"], 1e-4);
    let end = |name: &str| line["law"][name].as_f64().unwrap();
    assert!(end("exponent_low") < end("exponent") && end("exponent") < end("exponent_high"));
    let plots = figures(&runs, &analysis);
    let plot = plots
        .iter()
        .find(|plot| plot.name == "loss-at-100000-us")
        .unwrap();
    assert!(
        plot.svg.contains("1e-4") && !plot.svg.contains("NaN"),
        "{}",
        plot.svg
    );
    assert!(
        plot.caption.contains("a loss of 5.5e-4"),
        "{}",
        plot.caption
    );
    let page = page(&Heading::default(), &analysis, &plots);
    assert!(page.contains("Mathis et al. (1997), equation 3"));
}

#[test]
fn many_lines_are_split_into_several_figures() {
    let mut records = Vec::new();
    for storage in 0..10_u64 {
        for streams in [1, 2, 4] {
            let mut record = run("longhaul", Measures::Transfer, 52, 1, 0.1 * streams as f64);
            record.run.id = format!("{storage}/{streams}");
            let storage = Knob::Word(format!("node{storage}"));
            let streams = ("streams".to_owned(), Knob::Count(streams));
            record.knobs = [("storage".to_owned(), storage), streams].into();
            records.push(record);
        }
    }
    let (runs, analysis) = analysed(records);
    let plots = figures(&runs, &analysis);
    let of = |name: &str| plots.iter().find(|plot| plot.name == name).unwrap();
    let (first, second) = (of("streams-at-52000-us-1"), of("streams-at-52000-us-2"));
    assert!(first.svg.contains("node7") && !first.svg.contains("node8"));
    assert!(second.svg.contains("node8") && second.svg.contains("node9"));
    assert_eq!(second.title, "Throughput over streams at 52 ms, 2 of 2");
    let boxes = of("boxes-by-streams-at-52000-us-2");
    assert!(boxes.svg.contains("node8") && boxes.svg.contains("node9"));
}

#[test]
fn all_lines_over_loss_are_drawn() {
    let mut records = Vec::new();
    for line in 0..9_u64 {
        for loss in [1e-5, 1e-4, 1e-3] {
            let mut record = run("iperf3", Measures::Memory, 52, 1, 0.1 / (1.0 + line as f64));
            record.run.id = format!("{line}/{loss:e}");
            record.path.loss = loss;
            let streams = ("streams".to_owned(), Knob::Count(1 << line));
            record.knobs = [streams].into();
            records.push(record);
        }
    }
    let (runs, analysis) = analysed(records);
    assert_eq!(analysis.over_loss.len(), 9);
    let plots = figures(&runs, &analysis);
    let of = |name: &str| plots.iter().find(|plot| plot.name == name).unwrap();
    let (first, second) = (of("loss-at-52000-us-1"), of("loss-at-52000-us-2"));
    let mut drawn = first.svg.clone();
    drawn += &second.svg;
    for line in &analysis.over_loss {
        assert!(
            drawn.contains(&line.label),
            "{} is in no figure",
            line.label
        );
    }
    assert_eq!(second.title, "Throughput over loss at 52 ms, 2 of 2");
    assert!(!second.caption.contains("left out"), "{}", second.caption);
}

/// Returns a sweep with this number of rounds, without a memory-to-memory reference.
fn transfers(rounds: u64, rtts: &[u64]) -> Vec<RunRecord> {
    let records = sweep().into_iter().filter(|record| {
        let rtt = record.path.rtt.as_millis() as u64;
        record.measures == Measures::Transfer
            && record.run.round < Some(rounds)
            && rtts.contains(&rtt)
    });
    records.collect()
}

fn plot_of<'a>(
    plots: &'a [longhaul_measure::plot::Plot],
    name: &str,
) -> &'a longhaul_measure::plot::Plot {
    plots.iter().find(|plot| plot.name == name).unwrap()
}

#[test]
fn a_legend_names_only_the_parts_that_are_drawn() {
    let (runs, analysis) = analysed(transfers(10, &[1, 50, 100]));
    let plots = figures(&runs, &analysis);
    let bars = plot_of(&plots, "c-uc");
    assert!(bars.svg.contains("C_UC of the transfer") || bars.svg.contains("of the transfer"));
    assert!(!bars.svg.contains("not used by TCP") && !bars.svg.contains("what TCP adds"));
    assert_eq!(bars.table.columns, ["method", "C_UC"]);
    assert!(
        !bars.caption.contains("memory-to-memory"),
        "{}",
        bars.caption
    );
    let (runs, analysis) = analysed(sweep());
    let with_tcp = figures(&runs, &analysis);
    let bars = plot_of(&with_tcp, "c-uc");
    assert!(bars.svg.contains("not used by TCP") && bars.svg.contains("what TCP adds"));
}

#[test]
fn few_runs_are_drawn_as_points_and_many_as_boxes() {
    let rings = |svg: &str| svg.matches("<circle").count();
    let (runs, analysis) = analysed(transfers(4, &[1, 50, 100]));
    let plots = figures(&runs, &analysis);
    let few = plot_of(&plots, "boxes-by-rtt");
    assert!(
        few.caption.starts_with("Each ring is a run"),
        "{}",
        few.caption
    );
    // The background of the page is also a rectangle.
    let boxes = |svg: &str| svg.matches("<rect").count();
    let (runs, analysis) = analysed(transfers(10, &[1, 50, 100]));
    let many = figures(&runs, &analysis);
    let many = plot_of(&many, "boxes-by-rtt");
    assert!(boxes(&few.svg) + 6 <= boxes(&many.svg));
    assert!(
        many.caption.starts_with("Median, quartiles"),
        "{}",
        many.caption
    );
    assert!(
        few.table
            .rows
            .iter()
            .all(|row| row[4] == "–" && row[6] == "–")
    );
    assert!(rings(&many.svg) <= rings(&few.svg), "{}", few.svg);
}

#[test]
fn retransmissions_have_their_own_caption() {
    let stretch = |at| Stretch {
        at: Duration::from_millis(at),
        rate: BitRate::new(1e9).unwrap(),
        retransmitted_segments: 3.0,
    };
    let run = SampledRun {
        label: "x".to_owned(),
        stretches: vec![stretch(500), stretch(1500)],
    };
    let plots = run_over_time(&run, 1);
    assert_ne!(plots[0].caption, plots[1].caption);
    assert!(
        plots[1].caption.contains("sent again"),
        "{}",
        plots[1].caption
    );
}

#[test]
fn undistinguished_differences_have_a_reason_and_meaningless_values_are_a_dash() {
    let (_, analysis) = analysed(transfers(3, &[1, 50]));
    let heading = Heading::default();
    let html = page(&heading, &analysis, &[]);
    let text = to_text(&analysis);
    assert!(
        html.contains("no: 3 repetitions, and 5 are needed"),
        "{html}"
    );
    assert!(
        text.contains("not distinguished (3 repetitions, and 5 are needed)"),
        "{text}"
    );
    // A profile with two points is the line between them, so C_CC is always zero.
    assert!(
        text.lines()
            .any(|line| line.contains("–  ") || line.contains(" – ")),
        "{text}"
    );
    let json = to_json(&analysis);
    let rows = json["transfers"][0]["coefficients"].as_array().unwrap();
    assert!(rows[0]["c_cc"].is_null() && rows[0]["c_uc"]["estimate"].is_number());
    let (_, analysis) = analysed(transfers(3, &[1, 50, 100]));
    let json = to_json(&analysis);
    let rows = json["transfers"][0]["coefficients"].as_array().unwrap();
    assert!(rows[0]["c_cc"].is_null() && rows[1]["c_cc"]["estimate"].is_number());
}

#[test]
fn one_run_has_no_interval() {
    let (_, analysis) = analysed(transfers(1, &[1, 50, 100]));
    let text = to_text(&analysis);
    let html = page(&Heading::default(), &analysis, &[]);
    assert!(text.contains("0.9"), "{text}");
    for shown in [&text, &html] {
        for (place, _) in shown.match_indices('[') {
            let inside = shown[place + 1..].split(']').next().unwrap();
            if let Some((low, high)) = inside.split_once(", ") {
                assert!(
                    low.parse::<f64>().is_err() || low != high,
                    "[{inside}]: {shown}"
                );
            }
        }
    }
}

#[test]
fn a_page_shows_the_scope_of_its_runs() {
    let mut records = transfers(2, &[1, 50]);
    for (record, minute) in records.iter_mut().zip(10..) {
        record.run.started = format!("2026-11-03T10:{minute}:12Z");
        record.source.name = "near".to_owned();
        record.source.kernel = "6.18.0".to_owned();
        record.destination.name = "far".to_owned();
        record.path.name = "lab".to_owned();
        *record = of_data(record.clone(), "genomes", 1_000_000_000);
    }
    let count = records.len();
    let (runs, analysis) = analysed(records);
    let facts = runs.scope().facts();
    let of = |name: &str| {
        let fact = facts.iter().find(|(own, _)| *own == name);
        fact.map(|(_, text)| text.as_str())
    };
    let last = format!("2026-11-03 10:10 to 2026-11-03 10:{} UTC", 9 + count);
    assert_eq!(of("Runs began"), Some(last.as_str()));
    assert_eq!(of("Hosts"), Some("far\nnear: Linux 6.18.0"));
    assert_eq!(
        of("Paths"),
        Some("lab: round trip 1, 50 ms, capacity 1.00 Gbit/s")
    );
    let data = of("Data of a run").unwrap();
    assert!(
        data.starts_with("genomes: 1.00 GB") || data.starts_with("genomes: "),
        "{data}"
    );
    let heading = Heading {
        scope: facts.clone(),
        ..Heading::default()
    };
    let html = page(&heading, &analysis, &[]);
    assert!(
        html.contains("far<br>near: Linux 6.18.0") && html.contains("Runs began"),
        "{html}"
    );
}
