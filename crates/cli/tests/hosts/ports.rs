//! `serve --ports`: the first free port of a range.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::TcpListener;

use crate::support::process::{Running, longhaul, run};
use serde_json::Value;

#[test]
fn a_daemon_listens_on_the_first_free_port_of_a_range() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("root")).unwrap();
    let held = TcpListener::bind("[::]:0").unwrap();
    let first = held.local_addr().unwrap().port();
    let last = first.saturating_add(100);
    let serve = |ports: String| {
        let mut command = longhaul();
        command.args(["serve", "--print-ready", "--ports", &ports, "--root"]);
        command.arg(place.path().join("root"));
        command.arg("--state").arg(place.path().join("state"));
        command
    };
    let running = Running::start(&mut serve(format!("{first}-{last}")));
    let ready: Value = serde_json::from_str(&running.line().unwrap()).unwrap();
    let address = ready["listening"].as_str().unwrap().to_owned();
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    assert!(first < port && port <= last, "{address}");
    let mut command = longhaul();
    command.args([
        "ls",
        "--fingerprint",
        ready["fingerprint"].as_str().unwrap(),
    ]);
    command.args(["--token-file", ready["token_file"].as_str().unwrap()]);
    run(command.arg(format!("longhaul://{address}/"))).expect(0);
    drop(running);
    run(&mut serve(format!("{first}-{first}")))
        .expect(6)
        .says(&[&first.to_string()]);
    run(serve("9-8".to_owned()).arg("--write")).expect(1);
    run(serve("1-2".to_owned()).args(["--listen", "127.0.0.1:0"])).expect(1);
}
