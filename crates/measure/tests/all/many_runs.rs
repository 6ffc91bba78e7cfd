//! Benchmark of the analysis: profiles and reports many records. Writes synthetic records and a
//! report of them into a temporary directory, and prints the time and memory used. A release build
//! must need less than 5 s and 500 MB.
//! ```text
//! cargo test --release -p longhaul-measure --test all many_runs:: -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used)]

use std::io::{BufReader, Write};
use std::time::{Duration, Instant};

use longhaul_measure::analysis::{analyse, to_text};
use longhaul_measure::doubt::Doubt;
use longhaul_measure::random::Random;
use longhaul_measure::record::{
    CpuUse, DatasetRecord, Ended, HostRecord, Knob, LayerUse, Measures, Method, OnFault, Outcome,
    PathRecord, RunIdentity, RunRecord, SCHEMA, Side, SizeClass, read_records,
};
use longhaul_measure::report::{Heading, SampledRun, figures, report, run_over_time};
use longhaul_measure::runs::Runs;
use longhaul_measure::samples::{Sample, over_time};
use longhaul_measure::stats::Resampling;
use longhaul_units::{BitRate, ByteCount};

/// Round-trip times of paper 001.
const RTTS_MICROSECONDS: [u64; 7] = [400, 11_800, 22_600, 45_600, 91_600, 183_000, 366_000];
/// Rate of TCP payload on a line of 1 Gbit/s at an MTU of 1500.
const CAPACITY: f64 = 9.415e8;

/// Synthetic methods: name, streams, window in bytes, share of the capacity lost at every
/// round-trip time, and variation between runs.
const METHODS: [(&str, u64, f64, f64, f64); 8] = [
    ("longhaul", 8, 4e6, 0.02, 0.01),
    ("longhaul", 1, 4e6, 0.02, 0.02),
    ("longhaul", 32, 4e6, 0.04, 0.01),
    ("gridftp", 8, 4e6, 0.08, 0.04),
    ("gridftp", 1, 4e6, 0.09, 0.06),
    ("scp", 0, 2e6, 0.3, 0.03),
    ("rsync", 0, 2e6, 0.45, 0.03),
    ("iperf3", 8, 4e6, 0.0, 0.005),
];

fn host(name: &str) -> HostRecord {
    let settings = [
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.core.wmem_max", "212992"),
        ("nic", "veth, 10000 Mbit/s, MTU 1500, TSO on, GRO on"),
        ("governor", "performance"),
    ];
    HostRecord {
        name: name.into(),
        kernel: "6.18.0".into(),
        cpu: "AMD EPYC 7B13".into(),
        cores: 2,
        memory: ByteCount(25_000_000_000),
        storage: "ext4 rw,relatime on /dev/vda".into(),
        settings: settings.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        description: "0123456789abcdef".into(),
    }
}

// tidy: long because it is one value
fn record(number: u64, random: &mut Random) -> RunRecord {
    let (name, streams, window, loses, spread) = METHODS[(number % 8) as usize];
    let rtt_index = (number / 8 % 7) as usize;
    let rtt = Duration::from_micros(RTTS_MICROSECONDS[rtt_index]);
    let windows = window * 8.0 * streams.max(1) as f64 / rtt.as_secs_f64();
    let ramp = 1.0 - 0.9 * rtt.as_secs_f64();
    let noise = (0..4)
        .map(|_| random.below(2001) as f64 / 1000.0 - 1.0)
        .sum::<f64>()
        / 2.0;
    let share = windows.min(CAPACITY) * (1.0 - loses) * ramp * (1.0 + spread * noise);
    let moved = ByteCount(1_000_000_000);
    let wall = Duration::from_secs_f64(moved.0 as f64 * 8.0 / share.min(CAPACITY));
    let cpu = |process: &str, side, seconds: f64| CpuUse {
        process: process.into(),
        side,
        user: Duration::from_secs_f64(seconds * 0.3),
        system: Duration::from_secs_f64(seconds * 0.7),
    };
    let transfer = name != "iperf3";
    let layers = ["read", "send", "receive", "write"].iter().enumerate();
    RunRecord {
        schema: SCHEMA,
        run: RunIdentity {
            id: format!("made-up/{number}"),
            sweep: "made-up".into(),
            round: Some(number / 56),
            seed: None,
            started: "2026-11-21T12:00:00Z".into(),
            again: false,
            warm_up: number < 56,
        },
        measures: if transfer {
            Measures::Transfer
        } else {
            Measures::Memory
        },
        method: Method {
            name: name.into(),
            version: "1.0".into(),
            command: format!("{name} --streams {streams} data far:/data"),
            endpoint: "daemon".into(),
            security: if transfer { "tls" } else { "clear" }.into(),
        },
        knobs: match streams {
            0 => [].into(),
            _ => [("streams".to_owned(), Knob::Count(streams))].into(),
        },
        path: PathRecord {
            name: "lab".into(),
            rtt,
            capacity: BitRate::new(CAPACITY).unwrap(),
            rate: BitRate::new(1e9),
            congestion_control: "cubic".into(),
            ..PathRecord::default()
        },
        source: host("near"),
        destination: host("far"),
        dataset: DatasetRecord {
            name: "one file".into(),
            files: 1,
            size: moved,
            sizes: vec![SizeClass {
                below: ByteCount(1 << 30),
                files: 1,
                size: moved,
            }],
        },
        outcome: Outcome {
            ended: if number % 997 == 500 {
                Ended::Failed
            } else {
                Ended::Done
            },
            moved,
            wall,
            goodput: BitRate::from_transfer(moved, wall),
            exit: Some(0),
            error: String::new(),
            retransmitted_segments: Some(random.below(300) as u64),
            said: Default::default(),
        },
        machine_busy_seconds: None,
        cpu: vec![
            cpu(name, Side::Source, 0.9),
            cpu(name, Side::Destination, 1.1),
        ],
        layers: layers
            .map(|(place, layer)| LayerUse {
                layer: (*layer).to_owned(),
                flows: 2,
                utilisation: 0.2 + 0.15 * place as f64,
            })
            .collect(),
        tcp: None,
        beside: Vec::new(),
        samples: None,
        doubts: match number % 400 {
            9 => vec![Doubt::EmulatorLate {
                late: 0.03,
                worst_seconds: 0.0021,
            }],
            _ => Vec::new(),
        },
    }
}

/// Returns the samples of a stream that grows, loses packets, and grows again.
fn samples() -> Vec<Sample> {
    let (mut sent, mut lost) = (0.0, 0);
    (1..200)
        .map(|step: u64| {
            let rate = 1.1e8
                * (1.0 - (-(step as f64) / 15.0).exp())
                * if step % 60 < 4 { 0.4 } else { 1.0 };
            sent += rate * 0.05;
            lost += if step.is_multiple_of(60) { 37 } else { 0 };
            Sample {
                seconds: step as f64 * 0.05,
                stream: 1,
                acknowledged_bytes: sent as u64,
                queued_bytes: None,
                unsent_bytes: None,
                retransmitted_segments: lost,
                window_bytes: None,
                rtt_seconds: None,
                pace_bytes_per_second: None,
                port: None,
            }
        })
        .collect()
}

/// Returns a line of this process's status.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or("VmHWM unknown").to_owned()
}

/// The environment variable `RUNS` sets the number of runs. The report is kept for inspection.
#[test]
#[ignore = "measures"]
fn many_runs_are_reported() {
    let count = std::env::var("RUNS").map_or(100_000, |text| text.parse().unwrap());
    let directory = &std::env::temp_dir().join("longhaul-many-runs");
    std::fs::create_dir_all(directory).unwrap();
    let path = directory.join("records.jsonl");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let mut random = Random::new(1);
    for number in 0..count {
        writeln!(out, "{}", record(number, &mut random).to_line().unwrap()).unwrap();
    }
    drop(out);
    println!("{} bytes of records", path.metadata().unwrap().len());

    let began = Instant::now();
    let mut runs = Runs::default();
    let file = BufReader::with_capacity(1 << 20, std::fs::File::open(&path).unwrap());
    read_records(file, OnFault::Refuse, |record| runs.add(record)).unwrap();
    println!("read after {:.2?}", began.elapsed());
    let analysis = analyse(&runs, &Resampling::default()).unwrap();
    println!("analysed after {:.2?}", began.elapsed());
    let mut plots = figures(&runs, &analysis);
    let sampled = SampledRun {
        label: "longhaul streams=8, 91.6 ms".to_owned(),
        stretches: over_time(&samples(), 120),
    };
    plots.extend(run_over_time(&sampled, 1));
    let heading = Heading {
        title: "Made-up runs over seven round-trip times".to_owned(),
        sources: vec!["records.jsonl, made up".to_owned()],
        scope: runs.scope().facts(),
    };
    let html = report(&heading, &analysis, &plots);
    std::fs::write(directory.join("report.html"), &html).unwrap();
    println!(
        "reported after {:.2?}, {} bytes",
        began.elapsed(),
        html.len()
    );
    println!("{}", peak_memory());
    std::fs::write(directory.join("profile.txt"), to_text(&analysis)).unwrap();
    for plot in plots {
        std::fs::write(directory.join(plot.name + ".svg"), plot.svg).unwrap();
    }
}
