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
fn a_profile_is_printed_and_is_json_where_asked() {
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
fn a_report_is_one_page_whose_names_are_text() {
    let directory = records();
    let arguments = ["report", "runs.jsonl", "-o", "r.html", "--svg", "figures"];
    let output = longhaul(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(directory.path().join("r.html")).unwrap();
    assert!(page.contains("&lt;b&gt;scp&lt;/b&gt;") && !page.contains("<b>scp"));
    // Nothing is fetched, and nothing runs.
    let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
    let rest = page.replace(namespace, "");
    for outside in ["http:", "https:", "<script", "src=", "url("] {
        assert!(!rest.contains(outside), "{outside}");
    }
    let figure = fs::read_to_string(directory.path().join("figures/profiles.svg")).unwrap();
    assert!(figure.starts_with("<svg ") && figure.contains("throughput (Mbit/s)"));
}

#[test]
fn faults_are_refused_or_named_and_counted() {
    let directory = records();
    let path = directory.path().join("runs.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let torn = format!("{whole}{{\"schema\":9}}\n{}", &whole[..100]);
    fs::write(&path, torn).unwrap();
    let refused = longhaul(directory.path(), &["profile", "runs.jsonl"]);
    assert_eq!(refused.status.code(), Some(6));
    let error = text(&refused.stderr);
    assert!(
        error.contains("line 61") && error.contains("schema 9"),
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

#[test]
fn every_fault_is_named_with_its_line_and_never_averaged() {
    let directory = records();
    let path = directory.path().join("runs.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let one = lines[0].replace("longhaul/0.0004/0", "new");
    let cases: [(&str, Vec<u8>); 9] = [
        ("is no record", b"{\"schema\": 1, \"run\": }".to_vec()),
        ("is no record", b"\xff\xfe\xfd".to_vec()),
        (
            "is no record",
            one.replace("\"done\"", "\"perhaps\"").into(),
        ),
        (
            "ends in the middle",
            one.as_bytes()[..one.len() / 2].to_vec(),
        ),
        (
            "is of schema 2",
            one.replace("\"schema\":1", "\"schema\":2").into(),
        ),
        (
            "repeats run longhaul/0.0004/0",
            lines[0].as_bytes().to_vec(),
        ),
        ("makes no sense", one.replace("1e9}", "0}").into()),
        (
            "makes no sense",
            one.replace("\"bytes\":1000000000", "\"bytes\":1").into(),
        ),
        (
            "is longer than",
            format!("{one}{}", " ".repeat(5000)).into(),
        ),
    ];
    let clean = longhaul(directory.path(), &["profile", "runs.jsonl"]);
    let figures = |output: &Output| {
        let printed = text(&output.stdout).to_owned();
        printed[printed.find("runs in the figures").unwrap()..].to_owned()
    };
    for (part, fault) in cases {
        // In the middle; what is cut off is so only at the end.
        let at = if part == "ends in the middle" { 60 } else { 30 };
        let mut bytes: Vec<u8> = lines[..at]
            .iter()
            .flat_map(|l| [l.as_bytes(), b"\n"].concat())
            .collect();
        bytes.extend(fault);
        for line in &lines[at..] {
            bytes.extend([b"\n", line.as_bytes()].concat());
        }
        fs::write(&path, &bytes).unwrap();
        let named = format!("runs.jsonl: line {} {part}", at + 1);
        for command in [
            &["profile", "runs.jsonl"][..],
            &["report", "runs.jsonl", "-o", "r.html"],
            &["records", "export", "runs.jsonl", "-o", "r.csv"],
        ] {
            let refused = longhaul(directory.path(), command);
            let error = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(6), "{command:?}: {error}");
            assert!(
                error.contains(&named) && error.contains("--skip-faults"),
                "{command:?}: {error}"
            );
            let written = ["r.html", "r.csv"].map(|name| directory.path().join(name).exists());
            assert_eq!(written, [false, false], "{command:?}");
            let skipped = longhaul(directory.path(), &[command, &["--skip-faults"]].concat());
            let error = text(&skipped.stderr);
            assert!(
                skipped.status.success() && error.contains(&named),
                "{command:?}: {error}"
            );
            if command[0] == "profile" {
                assert_eq!(figures(&skipped), figures(&clean), "{part}");
            }
            for name in ["r.html", "r.csv"] {
                let _ = fs::remove_file(directory.path().join(name));
            }
        }
    }
}
