//! `cp --explain`: a forecast, and the outcome beside it; and the history that it learns from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::Daemon;
use crate::support::process::{longhaul, run};
use serde_json::{Value, json};

/// Makes a directory of some files. The history must not contain their names.
fn dataset(place: &Path) {
    fs::create_dir(place.join("run7")).unwrap();
    for file in 0..20 {
        let path = place.join(format!("run7/hidden-name-{file}"));
        fs::write(path, vec![file; 100_000]).unwrap();
    }
}

// Promise 87.
#[test]
fn explain_prints_the_forecast_and_then_the_outcome() {
    let place = tempfile::tempdir().unwrap();
    dataset(place.path());
    let daemon = Daemon::start(place.path());
    let mut command = daemon.command("cp");
    command
        .args(["-r", "--explain"])
        .arg(place.path().join("run7"));
    run(command.arg(daemon.url("pushed"))).expect(0).says(&[
        "plan: 2.00 MB in ",
        "plan: limited by ",
        "plan: doubt: the rate of the storage",
        "predicted",
        "limited by",
        "commit",
    ]);
    let mut command = daemon.command("cp");
    command.args(["-r", "--explain", "--json"]);
    command
        .arg(daemon.url("pushed"))
        .arg(place.path().join("pulled"));
    let done = run(&mut command).expect(0);
    let events = done.events();
    let plan = events
        .iter()
        .find(|event| event["event"] == "plan")
        .unwrap();
    assert_eq!(
        plan["seconds"],
        Value::Null,
        "the dataset is not known yet: {plan}"
    );
    assert!(plan["rate_bytes_per_second"]["likely"].is_f64(), "{plan}");
    let summary = done.summary();
    let explained = &summary["plan"];
    assert_eq!(explained["refined"], true, "{explained}");
    assert_eq!(explained["bytes"], 2_000_000.0);
    assert_eq!(explained["outcome_bytes"], 2_000_000.0);
    let layers = explained["layers"].as_array().unwrap();
    for name in ["read", "wire", "open", "write", "commit"] {
        let layer = layers.iter().find(|layer| layer["layer"] == name).unwrap();
        assert!(layer["predicted"]["flows"].is_u64(), "{name}: {layer}");
        assert!(layer["outcome"]["flows"].is_u64(), "{name}: {layer}");
    }
    run(longhaul()
        .args(["cp", "-r", "--explain"])
        .arg(place.path().join("run7"))
        .arg(place.path().join("copied")))
    .expect(0)
    .says(&["plan: 2.00 MB in ", "predicted"]);
    run(longhaul().args(["cp", "--explain", "--quiet", "a", "b"])).expect(1);
}

/// This includes copies that end before an end sends its first report, which happens four times a
/// second.
#[test]
fn the_shortest_copy_has_the_layers_and_codecs_of_both_ends() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("tiny"), vec![7; 10_000]).unwrap();
    let daemon = Daemon::start(place.path());
    for way in ["to", "from"] {
        let mut command = daemon.command("cp");
        command.args(["--json", "--compress=zstd"]);
        match way {
            "to" => command
                .arg(place.path().join("tiny"))
                .arg(daemon.url("pushed")),
            _ => command
                .arg(daemon.url("tiny"))
                .arg(place.path().join("pulled")),
        };
        let summary = run(&mut command).expect(0).summary();
        let (sending, receiving) = match way {
            "to" => ("layers", "peer_layers"),
            _ => ("peer_layers", "layers"),
        };
        for (end, names) in [
            (sending, &["read", "compress", "wire"][..]),
            (receiving, &["open", "decompress", "write", "commit"]),
        ] {
            let layers = summary[end].as_array().unwrap();
            let has = |name: &str| layers.iter().any(|layer| layer["layer"] == name);
            assert!(names.iter().all(|name| has(name)), "{way}: {end} {summary}");
        }
        for end in ["source", "destination"] {
            let uses = summary["codecs"][end].as_array().unwrap();
            let bytes = uses.iter().filter_map(|of| of["bytes"].as_u64());
            assert_eq!(bytes.sum::<u64>(), 10_000, "{way}: {end} {summary}");
        }
    }
}

// Promise 87.
#[test]
fn copies_are_added_to_and_removed_from_the_history() {
    let place = tempfile::tempdir().unwrap();
    dataset(place.path());
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    let file = state.join("longhaul/history.jsonl");
    let daemon = Daemon::start(place.path());
    let copy = |name: &str| {
        let mut command = daemon.command("cp");
        command.env("XDG_STATE_HOME", &state);
        command
            .args(["-r", "--explain"])
            .arg(place.path().join("run7"));
        run(command.arg(daemon.url(name))).expect(0)
    };
    copy("one");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        !text.contains("hidden-name") && !text.contains("run7"),
        "{text}"
    );
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let past: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&past["host"], &past["way"]),
        (&"127.0.0.1".into(), &"to".into())
    );
    assert_eq!(
        (&past["bytes"], &past["files"]),
        (&2_000_000.into(), &20.into())
    );
    // A damaged history does not prevent a copy.
    fs::write(&file, format!("{text}not a line\n")).unwrap();
    copy("two").says(&["and 1 earlier copy"]);
    let history = |arguments: &[&str]| {
        let mut command = longhaul();
        command.env("XDG_STATE_HOME", &state).arg("history");
        let done = run(command.args(arguments)).expect(0);
        (String::from_utf8(done.output).unwrap(), done.errors)
    };
    let (shown, said) = history(&[]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(said.contains("line 2 of the history is damaged"), "{said}");
    assert_eq!(history(&["elsewhere"]).0, "");
    assert!(
        history(&["--json", "127.0.0.1"])
            .0
            .contains("\"way\":\"to\"")
    );
    let mut planned = longhaul();
    planned.env("XDG_STATE_HOME", &state).arg("plan");
    planned.arg(place.path().join("run7"));
    let planned = run(planned.arg(daemon.url("three"))).expect(0);
    let planned = String::from_utf8(planned.output).unwrap();
    assert!(planned.contains("Path: "), "{planned}");
    // The durations of the copies depend on the host, but the plan must use them.
    assert!(planned.contains("earlier cop"), "{planned}");
    assert!(
        history(&["--forget", "127.0.0.1"])
            .0
            .contains("forgotten: 2")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

/// Flows of a layer of this end.
fn flows(summary: &Value, name: &str) -> u64 {
    let layers = summary["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["layer"] == name).unwrap();
    layer["flows"].as_u64().unwrap()
}

#[test]
fn a_policy_or_a_plan_sets_the_flows() {
    let place = tempfile::tempdir().unwrap();
    dataset(place.path());
    let daemon = Daemon::start(place.path());
    let copy = |name: &str, arguments: &[&str]| {
        let mut command = daemon.command("cp");
        command.args(["-r", "--json"]).args(arguments);
        command.arg(place.path().join("run7"));
        run(command.arg(daemon.url(name))).expect(0).summary()
    };
    assert_eq!(flows(&copy("globus", &["--policy", "globus"]), "read"), 2);
    assert_eq!(flows(&copy("fixed", &["--policy", "fixed"]), "read"), 4);
    let own = ["--policy", "fixed", "--readers", "3"];
    assert_eq!(flows(&copy("own", &own), "read"), 3);
    assert_eq!(flows(&copy("bdp", &["--policy", "bdp:1gbit"]), "read"), 1);
    copy("gradient", &["--policy", "gradient"]);
    let graph = place.path().join("graph.toml");
    let plan = place.path().join("plan.json");
    let data = place.path().join("run7");
    let mut planned = longhaul();
    planned.args([
        "plan",
        "--json",
        "--rtt",
        "10ms",
        "--rate",
        "10gbit",
        "--write-graph",
    ]);
    planned.arg(&graph).arg(&data).arg("host.invalid:x");
    let planned = run(&mut planned).expect(0).output;
    fs::write(&plan, &planned).unwrap();
    let planned: Value = serde_json::from_slice(&planned).unwrap();
    let nodes = planned["nodes"].as_array().unwrap();
    let read = nodes.iter().find(|node| node["name"] == "read").unwrap();
    let wanted = read["members"][0]["flows"].as_u64().unwrap();
    for file in [&plan, &graph] {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let summary = copy(name, &["--plan", file.to_str().unwrap()]);
        assert_eq!(flows(&summary, "read"), wanted, "{name}");
    }
    let refused = |arguments: &[&str]| {
        let mut command = daemon.command("cp");
        command
            .args(arguments)
            .arg(place.path().join("run7/hidden-name-1"));
        run(command.arg(daemon.url("refused"))).expect(1)
    };
    refused(&["--policy", "bdp"]).says(&["no copy with 127.0.0.1 is remembered", "bdp:RATE"]);
    refused(&["--policy", "fixed", "--stack", "paired"]).says(&["--policy"]);
    refused(&[
        "--plan",
        place.path().join("run7/hidden-name-1").to_str().unwrap(),
    ]);
}

/// Writes a file with the directories above it.
fn put(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

#[test]
fn profiles_of_hosts_are_read_from_the_state_directory() {
    let place = tempfile::tempdir().unwrap();
    dataset(place.path());
    let state = place.path().join("state");
    let hosts = state.join("longhaul/hosts");
    let daemon = Daemon::start(place.path());
    // The storage of this host carries 1 MB/s, with one flow or two.
    let job = |flows: u64| {
        let sample = json!({ "bytes": 1e6, "wall_seconds": 1.0, "was_direct": true });
        json!({
            "about": { "kind": "write", "flows": flows, "block_bytes": 1 << 20 },
            "samples": [sample.clone(), sample.clone(), sample.clone(), sample],
        })
    };
    let profile = json!({
        "schema": 1, "kind": "host",
        "host": { "name": "slow", "kernel": "2.4.0", "cores": 4 },
        "sections": { "disk /data": {
            "about": { "path": "/data" },
            "jobs": { "a": job(1), "b": job(2), "c": job(4) },
        } },
    });
    put(&hosts.join("127.0.0.1.json"), &profile.to_string());
    let run7 = place.path().join("run7");
    let copy = |name: &str, arguments: &[&str]| {
        let mut command = daemon.command("cp");
        command.env("XDG_STATE_HOME", &state).args(arguments);
        run(command
            .args(["-r", "--explain"])
            .arg(&run7)
            .arg(daemon.url(name)))
        .expect(0)
    };
    copy("one", &[]).says(&[
        "plan: limited by write",
        "plan: from this kernel, the handshake and the profile of 127.0.0.1",
        "was made with kernel 2.4.0",
    ]);
    let events = copy("two", &["--json"]).events();
    let plan = events.iter().find(|it| it["event"] == "plan").unwrap();
    assert_eq!(plan["profiles"], json!(["127.0.0.1"]), "{plan}");
    assert_eq!(plan["limits"], json!(["write"]), "{plan}");
    // The same with `plan`; an option names another.
    let planned = |arguments: &[&str]| {
        let mut command = longhaul();
        command
            .env("XDG_STATE_HOME", &state)
            .arg("plan")
            .args(arguments);
        let done = run(command.arg(&run7).arg("longhaul://127.0.0.1:1/x")).expect(0);
        String::from_utf8(done.output).unwrap()
    };
    let path = ["--rtt", "1ms", "--rate", "1gbit"];
    let printed = planned(&path);
    for part in [
        "Profile of 127.0.0.1: ",
        "The bottleneck is write",
        "kernel 2.4.0",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let other = place.path().join("other.json");
    put(&other, &profile.to_string().replace("2.4.0", "2.6.0"));
    let other = ["--destination-profile", other.to_str().unwrap()];
    let printed = planned(&[&path[..], &other].concat());
    assert!(printed.contains("kernel 2.6.0"), "{printed}");
    assert!(!printed.contains("Profile of"), "{printed}");
    // A file that is not a profile is a doubt, and the copy continues.
    put(&hosts.join("127.0.0.1.json"), "{ torn");
    copy("three", &[]).says(&["plan: doubt: the profile ", "127.0.0.1.json is not used: "]);
}

#[test]
fn a_copy_begins_with_the_flows_that_earlier_copies_needed() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::write(&data, vec![7; 20_000_000]).unwrap();
    let daemon = Daemon::start(place.path());
    // The path carried 100 MB/s, of which a stream's window is a tenth, and six writers were full.
    let past = |way: &str| {
        let past = json!({
            "schema": 1, "at": "2026-01-31T12:00:00Z", "host": "127.0.0.1", "way": way,
            "rtt_seconds": 0.001, "bytes": 10_000_000_000_u64, "files": 10, "seconds": 100.0,
            "wire_bytes": 10_100_000_000_u64, "streams": 4, "congestion": "cubic",
            "window_bytes": 10_000, "sent_again": 0.0, "limit": "path", "bound": false,
            "layers": [{ "layer": "write", "flows": 6, "busy": 0.9 }],
            "predicted_seconds": null,
        });
        format!("{past}\n")
    };
    let state = place.path().join("state");
    let history = state.join("longhaul/history.jsonl");
    // Streams and writers in the end: it takes less time than a change of theirs.
    let copy = |name: &str, way: &str| {
        let mut command = daemon.command("cp");
        command
            .env("XDG_STATE_HOME", &state)
            // All streams join before it ends.
            .args(["--json", "--explain", "--bwlimit=40MB/s", "--compress=off"]);
        match way {
            "to" => command.arg(&data).arg(daemon.url(name)),
            _ => command.arg(daemon.url("data")).arg(place.path().join(name)),
        };
        let summary = run(&mut command).expect(0).summary();
        let layers = summary["plan"]["layers"].as_array().unwrap();
        let flows = |name: &str| {
            let layer = layers.iter().find(|layer| layer["layer"] == name);
            layer.unwrap()["outcome"]["flows"].as_u64().unwrap()
        };
        (flows("wire"), flows("write"))
    };
    for way in ["to", "from"] {
        put(&history, "");
        let usual = copy(&format!("usual-{way}"), way);
        put(&history, &past(way));
        let begun = copy(&format!("begun-{way}"), way);
        assert!(
            usual.0 <= 4 && (8..=16).contains(&begun.0),
            "{way}: {usual:?} {begun:?}"
        );
        assert!(usual.1 < 6 && begun.1 == 6, "{way}: {usual:?} {begun:?}");
        // Copies in the other direction have no influence.
        put(&history, &past(if way == "to" { "from" } else { "to" }));
        let other = copy(&format!("other-{way}"), way);
        assert!(other.0 <= 4 && other.1 < 6, "{way}: {other:?}");
    }
}

#[test]
fn special_files_in_the_state_directory_block_no_command() {
    let place = tempfile::tempdir().unwrap();
    dataset(place.path());
    let state = place.path().join("state");
    let own = state.join("longhaul");
    fs::create_dir_all(own.join("jobs/0a1b2c3e")).unwrap();
    fs::create_dir_all(own.join("started")).unwrap();
    let fifo = |name: &str| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, own.join(name), kind, mode, 0).unwrap();
    };
    for name in [
        "history.jsonl",
        "history.lock",
        "history.new",
        "jobs/0a1b2c3d",
        "jobs/0a1b2c3e/record",
        "jobs/0a1b2c3e/outcome",
        "started/0a1b2c3f",
    ] {
        fifo(name);
    }
    let command = |words: &[&str]| {
        let mut command = longhaul();
        command.env("XDG_STATE_HOME", &state).args(words);
        command
    };
    run(&mut command(&["history"])).expect(6).says(&["a FIFO"]);
    run(&mut command(&["jobs"])).expect(0);
    assert_ne!(run(&mut command(&["attach", "0a1b2c3d"])).code, Some(0));
    let daemon = Daemon::start(place.path());
    let copy = |name: &str| {
        let mut command = daemon.command("cp");
        command.env("XDG_STATE_HOME", &state).arg("-r");
        run(command.arg(place.path().join("run7")).arg(daemon.url(name))).expect(0)
    };
    copy("one");
    fs::remove_file(own.join("history.lock")).unwrap();
    copy("two");
}

#[test]
fn the_history_prints_no_control_characters() {
    let place = tempfile::tempdir().unwrap();
    dataset(place.path());
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    let daemon = Daemon::start(place.path());
    let mut copy = daemon.command("cp");
    copy.env("XDG_STATE_HOME", &state).arg("-r");
    run(copy.arg(place.path().join("run7")).arg(daemon.url("one"))).expect(0);
    let file = state.join("longhaul/history.jsonl");
    let host = "h\u{1b}[2J\u{9b}2J\u{202e}";
    let json = serde_json::to_string(host).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"127.0.0.1\"", &json)).unwrap();
    for option in [None, Some("--json")] {
        let mut history = longhaul();
        history
            .env("XDG_STATE_HOME", &state)
            .arg("history")
            .args(option);
        let shown = String::from_utf8(run(&mut history).expect(0).output).unwrap();
        assert!(shown.contains('h') && shown.contains("[2J"), "{shown:?}");
        assert!(
            !shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']),
            "{shown:?}"
        );
        if option.is_some() {
            let past: Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(past["host"], host);
        }
    }
}
