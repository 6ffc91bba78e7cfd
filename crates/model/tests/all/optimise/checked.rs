//! Tests of predictions for records: settings fixed by a run are fixed in its graph.

use std::collections::BTreeMap;

use longhaul_measure::record::{CpuUse, Knob, RunRecord, Side};
use longhaul_model::check::{Checked, Known, Unpredicted, check};
use longhaul_model::fit::{Observation, fit};
use longhaul_model::host::{CodecModel, HostModel};
use longhaul_model::limit::Limit;
use longhaul_model::records::{CpuCost, RecordFits};
use longhaul_model::transfer::LayerCost;
use longhaul_units::ByteCount;

/// Returns a record of one gigabyte in ten seconds over a lab path of 1 Gbit/s and 10 ms, between
/// hosts with two cores.
fn record(knobs: &[(&str, Knob)]) -> RunRecord {
    let text = r#"{"schema":1,"run":{"id":"a"},"measures":"transfer","method":{"name":"longhaul"},
        "path":{"name":"lab","rtt_seconds":0.01,"capacity_bits_per_second":1e9},
        "source":{"name":"a","cores":2},"destination":{"name":"b","cores":2},
        "dataset":{"name":"one","files":1,"bytes":1000000000},
        "outcome":{"ended":"done","bytes":1000000000,"wall_seconds":10.0,
            "goodput_bits_per_second":8e8}}"#;
    let mut record: RunRecord = serde_json::from_str(text).unwrap();
    record.outcome.moved = ByteCount(1_000_000_000);
    for (name, knob) in knobs {
        record.knobs.insert((*name).to_owned(), knob.clone());
    }
    record
}

fn codec(name: &str, ratio: f64, rate: f64) -> CodecModel {
    let by_flows = |rate: f64| {
        let at = |flows| Observation {
            flows,
            rate: rate * f64::from(flows),
        };
        fit(&[1, 2, 3, 4, 6, 8].map(at)).unwrap()
    };
    CodecModel {
        name: name.to_owned(),
        ratio,
        compress: by_flows(rate),
        compress_cpu: 0.5 / rate,
        decompress: by_flows(10.0 * rate),
        decompress_cpu: 0.1 / rate,
    }
}

/// Returns storage that is never a bottleneck, and small CPU costs.
fn known(codecs: Vec<CodecModel>) -> Known {
    let layer = |seconds_per_byte| LayerCost {
        seconds_per_byte,
        seconds_per_file: 0.0,
        flows: 8,
        uncertainty: 0.05,
    };
    let layers = BTreeMap::from([
        (Limit::Read, layer(1e-11)),
        (Limit::Write, layer(1e-11)),
        (Limit::Commit, layer(1e-11)),
    ]);
    let cpu = CpuCost {
        seconds_per_byte: 1e-11,
        seconds_per_file: 0.0,
    };
    let source = HostModel {
        name: "a".to_owned(),
        cores: 2,
        codecs,
        ..HostModel::default()
    };
    Known {
        source: Some(source),
        destination: None,
        fits: Some(RecordFits {
            runs: 3,
            layers,
            source: Some(cpu),
            destination: Some(cpu),
            emulator: Some(cpu),
            busiest: None,
        }),
    }
}

fn word(text: &str) -> Knob {
    Knob::Word(text.to_owned())
}

fn rate_of(checked: &Checked) -> f64 {
    checked.predicted / 1e6
}

#[test]
fn a_fixed_codec_multiplies_the_rate_of_the_path_by_its_ratio() {
    // 125 MB/s on the wire, for data that become four times smaller, and a codec that is fast
    // enough.
    let fast = known(vec![codec("zstd:1", 4.0, 400e6)]);
    let plain = check(&record(&[]), &fast).unwrap();
    let off = check(&record(&[("compress", word("off"))]), &fast).unwrap();
    assert_eq!(plain.predicted, off.predicted);
    assert!((110.0..125.0).contains(&rate_of(&plain)), "{plain:?}");
    let fixed = check(&record(&[("compress", word("zstd:1"))]), &fast).unwrap();
    assert!((400.0..500.0).contains(&rate_of(&fixed)), "{fixed:?}");
    // Two threads together compress 60 MB/s. This is less than the path, but the run fixed the
    // codec.
    let slow = known(vec![codec("zstd:12", 4.0, 30e6)]);
    let fixed = check(&record(&[("compress", word("zstd:12"))]), &slow).unwrap();
    assert!((45.0..60.0).contains(&rate_of(&fixed)), "{fixed:?}");
    assert!(fixed.binding.contains("compress"), "{}", fixed.binding);
}

#[test]
fn incompressible_data_cost_only_the_compression() {
    let known = known(vec![codec("zstd:12", 1.0, 30e6)]);
    let fixed = check(&record(&[("compress", word("zstd:12"))]), &known).unwrap();
    assert!((50.0..60.5).contains(&rate_of(&fixed)), "{fixed:?}");
    assert!(!fixed.binding.contains("decompress"), "{}", fixed.binding);
}

#[test]
fn a_run_with_an_unknown_codec_is_not_predicted() {
    let known = known(vec![codec("zstd:1", 4.0, 400e6)]);
    let it = check(&record(&[("compress", word("zstd:19"))]), &known);
    assert_eq!(it, Err(Unpredicted::Codec("zstd:19".to_owned())));
}

#[test]
fn flows_fixed_by_a_run_are_fixed_in_the_graph() {
    let mut slow = known(Vec::new());
    let fits = slow.fits.as_mut().unwrap();
    let write = fits.layers.get_mut(&Limit::Write).unwrap();
    write.seconds_per_byte = 40e-9;
    slow.source = None;
    // Each writer has a rate of 25 MB/s.
    for (writers, expected) in [(1, 25.0), (2, 50.0), (4, 100.0)] {
        let run = record(&[("writers", Knob::Count(writers))]);
        let checked = check(&run, &slow).unwrap();
        let error = rate_of(&checked) / expected - 1.0;
        assert!(error.abs() < 0.06, "{writers}: {checked:?}");
        assert_eq!(checked.binding, "write");
    }
}

#[test]
fn the_emulator_uses_cores_as_in_other_runs() {
    let mut known = known(Vec::new());
    let run = {
        let mut run = record(&[]);
        // The CPU time of the emulator in this run is part of its outcome and must not affect its
        // prediction.
        run.cpu = vec![CpuUse {
            process: "lab".to_owned(),
            side: Side::Emulator,
            user: std::time::Duration::from_secs(19),
            system: std::time::Duration::ZERO,
        }];
        run
    };
    let before = check(&run, &known).unwrap();
    assert!((110.0..125.0).contains(&rate_of(&before)), "{before:?}");
    // There are two cores, and each byte needs 40 ns.
    let fits = known.fits.as_mut().unwrap();
    fits.emulator = Some(CpuCost {
        seconds_per_byte: 40e-9,
        seconds_per_file: 0.0,
    });
    let after = check(&run, &known).unwrap();
    assert!((47.0..50.5).contains(&rate_of(&after)), "{after:?}");
    assert_eq!(after.binding, "the CPU of a");
    // No run uses more than four fifths of the cores.
    known.fits.as_mut().unwrap().busiest = Some(0.8);
    let shared = check(&run, &known).unwrap();
    assert!((38.0..40.5).contains(&rate_of(&shared)), "{shared:?}");
}

#[test]
fn with_loss_bbr_is_predicted_unless_the_run_fixed_the_congestion_control() {
    let mut run = record(&[("streams", Knob::Count(1))]);
    run.path.loss = 1e-3;
    run.path.congestion_control = "cubic".to_owned();
    let free = check(&run, &known(Vec::new())).unwrap();
    assert!((110.0..125.0).contains(&rate_of(&free)), "{free:?}");
    run.knobs.insert("congestion".to_owned(), word("cubic"));
    let fixed = check(&run, &known(Vec::new())).unwrap();
    assert!(rate_of(&fixed) < 10.0, "{fixed:?}");
}
