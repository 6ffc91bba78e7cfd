//! `longhaul profile` and `longhaul report` as a user runs them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn longhaul(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .current_dir(directory)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A directory with records of two methods at three round-trip times.
fn records() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for (method, share) in [("longhaul", 0.9), ("<b>scp</b>", 0.5)] {
        for (index, rtt) in [0.0004, 0.0456, 0.366].iter().enumerate() {
            for round in 0..10 {
                let rate = 1e9 * (share - 0.1 * index as f64 + 0.001 * f64::from(round));
                let seconds = 8e9 / rate;
                lines.push_str(&format!(
                    "{{\"schema\":1,\"run\":{{\"id\":\"{method}/{rtt}/{round}\",\
                     \"round\":{round}}},\"measures\":\"transfer\",\
                     \"method\":{{\"name\":\"{method}\"}},\"path\":{{\"rtt_seconds\":{rtt},\
                     \"capacity_bits_per_second\":1e9}},\"outcome\":{{\"ended\":\"done\",\
                     \"bytes\":1000000000,\"wall_seconds\":{seconds},\
                     \"goodput_bits_per_second\":{rate}}}}}\n"
                ));
            }
        }
    }
    fs::write(directory.path().join("runs.jsonl"), lines).unwrap();
    directory
}

#[test]
fn a_profile_is_printed_as_text_or_json() {
    let directory = records();
    let output = longhaul(directory.path(), &["profile", "runs.jsonl"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("60 runs in the figures"), "{printed}");
    assert!(printed.contains("paired"), "{printed}");
    assert!(printed.contains("C_UC over all RTTs"), "{printed}");
    let runs = fs::read_to_string(directory.path().join("runs.jsonl")).unwrap();
    let near = runs.lines().filter(|line| line.contains("/0.0004/"));
    let near: String = near.map(|line| format!("{line}\n")).collect();
    fs::write(directory.path().join("near.jsonl"), near).unwrap();
    let output = longhaul(directory.path(), &["profile", "near.jsonl"]);
    let of_one = text(&output.stdout);
    assert!(of_one.contains("20 runs"), "{of_one}");
    assert!(!of_one.contains("C_UC over all RTTs"), "{of_one}");
    let output = longhaul(directory.path(), &["profile", "--json", "runs.jsonl"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["transfers"][0]["label"], "longhaul");
    let c_uc = &json["transfers"][0]["coefficients"][1]["c_uc"]["estimate"];
    // Means of 0.9045, 0.8045, 0.7045: by hand ¼ + Σ w Θ with the interval's trapezoids.
    let mean = (0.8545 * 0.0452 + 0.7545 * 0.3204) / 0.3656;
    let expected = mean - (0.9045 + 0.7045) / 4.0 + 0.25;
    assert!((c_uc.as_f64().unwrap() - expected).abs() < 1e-9);
}

#[test]
fn a_report_is_one_page_with_escaped_names() {
    let directory = records();
    let arguments = ["report", "runs.jsonl", "-o", "r.html", "--svg", "figures"];
    let output = longhaul(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(directory.path().join("r.html")).unwrap();
    assert!(page.contains("&lt;b&gt;scp&lt;/b&gt;") && !page.contains("<b>scp"));
    // The page loads no external content and runs no script.
    let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
    let rest = page.replace(namespace, "");
    for outside in ["http:", "https:", "<script", "src=", "url("] {
        assert!(!rest.contains(outside), "{outside}");
    }
    let figure = fs::read_to_string(directory.path().join("figures/profiles.svg")).unwrap();
    assert!(figure.starts_with("<svg ") && figure.contains("throughput (Mbit/s)"));
}

#[test]
fn faulty_lines_are_refused_or_named_and_counted() {
    let directory = records();
    let path = directory.path().join("runs.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let torn = format!("{whole}{{\"schema\":9}}\n{}", &whole[..100]);
    fs::write(&path, torn).unwrap();
    let refused = longhaul(directory.path(), &["profile", "runs.jsonl"]);
    assert_eq!(refused.status.code(), Some(6));
    let error = text(&refused.stderr);
    assert!(
        error.contains("line 61") && error.contains("schema version 9"),
        "{error}"
    );
    let skipped = longhaul(
        directory.path(),
        &["profile", "--skip-faults", "runs.jsonl"],
    );
    assert!(skipped.status.success());
    let error = text(&skipped.stderr);
    assert!(
        error.contains("line 61") && error.contains("line 62"),
        "{error}"
    );
    let first = text(&skipped.stdout).lines().next().unwrap();
    assert!(first.contains("2 records were skipped"), "{first}");
}

/// Faulty lines with their messages. They replace a record like `one`; `other` is the record next
/// to it.
fn faults(one: &str, other: &str) -> [(&'static str, Vec<u8>); 9] {
    let with = |from: &str, to: &str| {
        assert!(one.contains(from));
        one.replace(from, to).into_bytes()
    };
    [
        ("is not a record", b"{\"schema\": 1, \"run\": }".to_vec()),
        ("is not a record", b"\xff\xfe\xfd".to_vec()),
        ("is not a record", with("\"done\"", "\"perhaps\"")),
        ("is incomplete", one.as_bytes()[..one.len() / 2].to_vec()),
        ("has schema version 2", with("\"schema\":1", "\"schema\":2")),
        ("repeats run longhaul/0.0004/0", other.into()),
        ("is inconsistent", with("1e9}", "0}")),
        (
            "is inconsistent",
            with("\"bytes\":1000000000", "\"bytes\":1"),
        ),
        ("is longer than", [one.as_bytes(), &[b' '; 5000]].concat()),
    ]
}

/// Checks that faulty records are refused without output, and that `--skip-faults` names them and
/// leaves them out.
fn refuse_and_skip(directory: &Path, command: &[&str], named: &str) -> Output {
    let refused = longhaul(directory, command);
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{command:?}: {error}");
    let is_told = error.contains(named) && error.contains("--skip-faults");
    assert!(is_told, "{command:?}: {error}");
    let written = ["r.html", "r.csv"].map(|name| directory.join(name));
    assert!(!written.iter().any(|path| path.exists()), "{command:?}");
    let skipped = longhaul(directory, &[command, &["--skip-faults"]].concat());
    let error = text(&skipped.stderr);
    let is_done = skipped.status.success() && error.contains(named);
    assert!(is_done, "{command:?}: {error}");
    for path in written {
        let _ = fs::remove_file(path);
    }
    skipped
}

#[test]
fn every_fault_is_named_with_its_line_and_never_averaged() {
    let directory = records();
    let path = directory.path().join("runs.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let one = lines[0].replace("longhaul/0.0004/0", "new");
    let figures = |output: &Output| {
        let printed = text(&output.stdout).to_owned();
        printed[printed.find("runs in the figures").unwrap()..].to_owned()
    };
    let clean = figures(&longhaul(directory.path(), &["profile", "runs.jsonl"]));
    for (part, fault) in faults(&one, lines[0]) {
        // In the middle; what is cut off is so only at the end.
        let at = if part == "is incomplete" { 60 } else { 30 };
        let mut all: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        all.insert(at, &fault);
        fs::write(&path, all.join(&b'\n')).unwrap();
        let named = format!("runs.jsonl: line {} {part}", at + 1);
        for command in [
            &["profile", "runs.jsonl"][..],
            &["report", "runs.jsonl", "-o", "r.html"],
            &["records", "export", "runs.jsonl", "-o", "r.csv"],
        ] {
            let skipped = refuse_and_skip(directory.path(), command, &named);
            if command[0] == "profile" {
                assert_eq!(figures(&skipped), clean, "{part}");
            }
        }
    }
}

#[test]
fn every_fault_is_named_even_if_there_are_many() {
    let directory = records();
    let path = directory.path().join("runs.jsonl");
    let mut lines: Vec<String> = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let run = lines[0].clone();
    lines.extend((0..40).map(|number| format!("{}x", "y".repeat(number % 3))));
    lines.extend([lines[3].clone(), run.clone(), "z".to_owned()]);
    fs::write(&path, lines.join("\n")).unwrap();
    let skipped = longhaul(
        directory.path(),
        &["profile", "--skip-faults", "runs.jsonl"],
    );
    let said = text(&skipped.stderr);
    assert!(skipped.status.success(), "{said}");
    assert!(
        said.contains("runs.jsonl: lines 61–100, 103 (41 lines): line 61 is not a record"),
        "{said}"
    );
    assert!(
        said.contains("runs.jsonl: lines 101–102 (2 lines): line 101 repeats run"),
        "{said}"
    );
    assert!(text(&skipped.stdout).contains("43 records were skipped"));
    // A directory is no file of records.
    let refused = longhaul(directory.path(), &["profile", "."]);
    assert_eq!(refused.status.code(), Some(6));
    assert!(text(&refused.stderr).contains("it is a directory: name the files in it"));
}

#[test]
fn files_of_sweeps_with_one_name_are_one_study() {
    let directory = records();
    let whole = fs::read_to_string(directory.path().join("runs.jsonl")).unwrap();
    // The same sweep on another day: the same identities, other runs.
    let slower = |line: &str| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        let outcome = &mut record["outcome"];
        outcome["wall_seconds"] = (outcome["wall_seconds"].as_f64().unwrap() * 1.25).into();
        let rate = outcome["goodput_bits_per_second"].as_f64().unwrap();
        outcome["goodput_bits_per_second"] = (rate * 0.8).into();
        format!("{record}\n")
    };
    let other: String = whole.lines().map(slower).collect();
    fs::write(directory.path().join("other.jsonl"), &other).unwrap();
    fs::write(directory.path().join("copy.jsonl"), &whole).unwrap();
    let both = longhaul(directory.path(), &["profile", "runs.jsonl", "other.jsonl"]);
    let printed = text(&both.stdout);
    assert!(both.status.success(), "{}", text(&both.stderr));
    assert!(printed.contains("120 runs in the figures"), "{printed}");
    let arguments = [
        "records",
        "export",
        "runs.jsonl",
        "other.jsonl",
        "-o",
        "r.csv",
    ];
    assert!(longhaul(directory.path(), &arguments).status.success());
    for twice in ["runs.jsonl", "copy.jsonl"] {
        let refused = longhaul(directory.path(), &["profile", "runs.jsonl", twice]);
        assert_eq!(refused.status.code(), Some(6));
        let said = text(&refused.stderr);
        assert!(
            said.contains(&format!("{twice}: line 1 repeats run")),
            "{said}"
        );
    }
}

#[test]
fn a_directory_of_samples_plots_one_run_of_each_kind() {
    let directory = records();
    let path = directory.path().join("runs.jsonl");
    let samples = directory.path().join("runs.samples");
    fs::create_dir(&samples).unwrap();
    let (mut lines, mut number) = (String::new(), 0);
    for line in fs::read_to_string(&path).unwrap().lines() {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["samples"] =
            serde_json::json!({"file": format!("runs.samples/{number}.jsonl"), "count": 2});
        lines += &format!("{record}\n");
        let sample = |seconds: f64, bytes: u64| {
            format!("{{\"seconds\":{seconds},\"stream\":1,\"acknowledged_bytes\":{bytes}}}\n")
        };
        // Only the two slowest of the first ten runs have samples.
        if !(2..10).contains(&number) {
            let text = sample(1.0, 1_000_000) + &sample(2.0, 3_000_000);
            fs::write(samples.join(format!("{number}.jsonl")), text).unwrap();
        }
        number += 1;
    }
    fs::write(&path, lines).unwrap();
    let report = |samples: &str| {
        longhaul(
            directory.path(),
            &["report", "runs.jsonl", "-o", "r.html", "--samples", samples],
        )
    };
    let output = report("runs.samples");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(directory.path().join("r.html")).unwrap();
    // Two methods over three round-trip times.
    assert_eq!(page.matches("<h3>Throughput over time: ").count(), 6);
    assert_eq!(page.matches("<h3>Retransmissions over time: ").count(), 6);
    assert!(
        page.contains("over time: longhaul, 0.4 ms, 900 Mbit/s"),
        "{page}"
    );
    // The one in the middle of ten.
    assert!(
        page.contains("over time: longhaul, 45.6 ms, 804 Mbit/s"),
        "{page}"
    );
    let one = report("runs.samples/11.jsonl");
    assert!(one.status.success(), "{}", text(&one.stderr));
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let refused = report("empty");
    assert_eq!(refused.status.code(), Some(6));
    assert!(text(&refused.stderr).contains("empty: it has no samples of a run in these records"));
}

#[test]
fn the_model_and_the_analysis_agree_on_the_loss_at_which_cubic_changes_its_law() {
    use longhaul_model::response::{Congestion, mean_window};
    for milliseconds in [1, 22, 100, 366] {
        let rtt = std::time::Duration::from_millis(milliseconds);
        let bend = longhaul_measure::analysis::cubic_bend(rtt);
        let window = |congestion, loss| mean_window(congestion, loss, rtt).unwrap();
        let gain = |loss| window(&Congestion::Cubic, loss) / window(&Congestion::Reno, loss);
        // The ratio of CUBIC's rate to Reno's grows as loss^-1/4 below the bend, and is 1 above it.
        assert!((gain(bend / 16.0) - 2.0).abs() < 1e-6, "{milliseconds} ms");
        assert_eq!(gain(1.01 * bend), 1.0, "{milliseconds} ms");
    }
}

#[test]
fn results_of_other_tools_become_records_that_a_profile_reads() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/iperf3");
    let result = |name: &str| {
        let path = corpus.join(name);
        path.to_str().unwrap().to_owned()
    };
    let (forward, reverse) = (result("two_streams.json"), result("reverse.json"));
    let (both, refused) = (result("bidirectional.json"), result("refused.json"));
    let import = |arguments: &[&str]| {
        let mut all = vec!["records", "import", "-o", "runs.jsonl"];
        all.extend(arguments);
        longhaul(directory.path(), &all)
    };
    let output = directory.path().join("runs.jsonl");
    // The error of iperf3 is printed, and no file is written.
    let alone = import(&[&refused]);
    assert_eq!(alone.status.code(), Some(6));
    assert!(
        text(&alone.stderr).contains("Connection refused"),
        "{}",
        text(&alone.stderr)
    );
    assert!(!output.exists());
    let udp = import(&[&result("udp.json"), &forward]);
    assert_eq!(udp.status.code(), Some(6));
    assert!(text(&udp.stderr).contains("UDP") && !output.exists());
    let all = ["--rtt", "10ms", &forward, &reverse, &both, &refused];
    let imported = import(&all);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let told = text(&imported.stderr);
    assert!(told.contains("recorded as a failed run"), "{told}");
    let lines = fs::read_to_string(&output).unwrap();
    let records: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ways: Vec<Option<&str>> = records
        .iter()
        .map(|record| record["knobs"]["direction"].as_str())
        .collect();
    let [to, from] = [Some("to"), Some("from")];
    assert_eq!(ways, [to, from, to, from, None]);
    assert_eq!(records[1]["run"]["started"], "2026-11-26T06:10:24Z");
    assert_eq!(records[4]["outcome"]["ended"], "failed");
    let profile = longhaul(directory.path(), &["profile", "runs.jsonl"]);
    assert!(profile.status.success(), "{}", text(&profile.stderr));
    assert!(text(&profile.stdout).contains("4 runs in the figures"));
    // The file is replaced only if that is requested, and other records are never replaced.
    let kept = import(&all);
    assert_eq!(kept.status.code(), Some(1), "{}", text(&kept.stderr));
    assert!(text(&kept.stderr).contains("--replace"));
    assert_eq!(fs::read_to_string(&output).unwrap(), lines);
    let again = [&["--replace"], &all[..]].concat();
    assert!(import(&again).status.success());
    fs::write(&output, lines.replace("import-", "sweep-")).unwrap();
    let kept = import(&again);
    assert_eq!(kept.status.code(), Some(1), "{}", text(&kept.stderr));
    assert!(fs::read_to_string(&output).unwrap().contains("sweep-"));
}

/// A receiver does not measure the round trip, and no other run is of its hosts.
#[test]
fn a_run_without_a_round_trip_does_not_stop_the_import() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/iperf3");
    let forward = corpus.join("two_streams.json");
    let forward = forward.to_str().unwrap();
    let elsewhere = fs::read_to_string(corpus.join("reverse.json")).unwrap();
    let elsewhere = elsewhere.replace("127.0.0.1", "192.0.2.7");
    fs::write(directory.path().join("unpaired.json"), elsewhere).unwrap();
    let import = |arguments: &[&str]| {
        let mut all = vec!["records", "import", "-o", "runs.jsonl"];
        all.extend(arguments);
        longhaul(directory.path(), &all)
    };
    let others = import(&[forward, "unpaired.json"]);
    assert_eq!(others.status.code(), Some(2), "{}", text(&others.stderr));
    assert!(text(&others.stderr).contains("unpaired.json: its round-trip time is missing"));
    let lines = fs::read_to_string(directory.path().join("runs.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 1);
    assert!(lines.contains("loaded_round_trip"), "{lines}");
    let skips = import(&["--replace", "--skip-faults", forward, "unpaired.json"]);
    assert!(skips.status.success(), "{}", text(&skips.stderr));
    assert_eq!(
        import(&["--replace", "unpaired.json"]).status.code(),
        Some(6)
    );
}

#[test]
fn compressed_records_are_read_as_uncompressed_ones() {
    let directory = records();
    let plain = longhaul(directory.path(), &["profile", "runs.jsonl"]);
    let compress = ["records", "compress", "--remove", "runs.jsonl"];
    let output = longhaul(directory.path(), &compress);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!directory.path().join("runs.jsonl").exists());
    let packed = fs::read(directory.path().join("runs.jsonl.zst")).unwrap();
    let profile = longhaul(directory.path(), &["profile", "runs.jsonl.zst"]);
    assert!(profile.status.success(), "{}", text(&profile.stderr));
    assert_eq!(text(&profile.stdout), text(&plain.stdout));
    for arguments in [
        &["report", "runs.jsonl.zst", "-o", "r.html"][..],
        &["records", "export", "runs.jsonl.zst", "-o", "r.csv"],
    ] {
        let output = longhaul(directory.path(), arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    // Compressed files are not compressed again, existing files are not replaced, and incomplete
    // files are refused.
    fs::write(directory.path().join("runs.jsonl"), "{}\n").unwrap();
    for arguments in [
        &["records", "compress", "runs.jsonl.zst"][..],
        &["records", "compress", "--remove", "runs.jsonl"],
    ] {
        assert_eq!(longhaul(directory.path(), arguments).status.code(), Some(6));
    }
    assert!(directory.path().join("runs.jsonl").exists());
    let kept = fs::read(directory.path().join("runs.jsonl.zst")).unwrap();
    assert!(kept == packed);
    fs::write(
        directory.path().join("cut.zst"),
        &packed[..packed.len() / 2],
    )
    .unwrap();
    let refused = longhaul(directory.path(), &["profile", "cut.zst"]);
    assert_eq!(refused.status.code(), Some(6));
}

#[test]
fn the_length_of_a_compressed_line_is_bounded() {
    let directory = records();
    let long = vec![b'x'; 64 << 20];
    fs::write(directory.path().join("bomb"), long).unwrap();
    longhaul(directory.path(), &["records", "compress", "bomb"]);
    assert!(directory.path().join("bomb.zst").metadata().unwrap().len() < 1 << 20);
    let refused = longhaul(directory.path(), &["profile", "bomb.zst"]);
    assert_eq!(refused.status.code(), Some(6));
    let error = text(&refused.stderr);
    assert!(error.contains("longer than"), "{error}");
}
