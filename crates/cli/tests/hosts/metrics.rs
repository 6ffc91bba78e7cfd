//! Metrics of a daemon, its health, and its reports to a service manager.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::Daemon;
use crate::support::process::{Running, run};
use crate::support::random::Random;
use crate::support::tree;

/// Returns a port that was free a moment ago.
fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn get(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_count_the_sessions_and_bytes_of_each_principal() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("data");
    tree::write(&root.join("a"), &[1; 1000]);
    tree::write(&root.join("large"), &Random::new(1).bytes(8 << 20));
    let address = free_address();
    let text = address.to_string();
    let flags = ["--write", "--metrics", &text, "--drain", "1h"];
    let daemon = Daemon::with(&root, &flags);
    let mut pull = daemon.command("cp");
    run(pull.arg(daemon.url("a")).arg(place.path().join("b"))).expect(0);
    let mut push = daemon.command("cp");
    run(push.arg(place.path().join("b")).arg(daemon.url("c"))).expect(0);
    let mut pull = daemon.command("cp");
    pull.args(["--json", "--timeout", "20", "--bwlimit", "1MB/s"]);
    pull.arg(daemon.url("large")).arg(place.path().join("d"));
    let pull = Running::start(&mut pull);
    let moves = |event: &Value| event["moved_bytes"].as_u64() > Some(0);
    pull.event(moves).unwrap();
    let metrics = get(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    for line in [
        "longhaul_sessions{principal=\"user\"} 1",
        "longhaul_received_bytes_total{principal=\"user\"} 1000",
        "longhaul_sessions_ended_total{principal=\"user\",outcome=\"complete\"} 2",
        "longhaul_sessions_limit 64",
        "longhaul_draining 0",
    ] {
        assert!(metrics.contains(&format!("{line}\n")), "{line}\n{metrics}");
    }
    let health = "GET /healthz HTTP/1.0\r\n\r\n";
    assert!(get(address, health).ends_with("\r\n\r\nok\n"));
    assert!(get(address, "GET / HTTP/1.0\r\n\r\n").contains(" 404 "));
    assert!(get(address, "POST /metrics HTTP/1.0\r\n\r\n").contains(" 400 "));
    daemon.running().signal(Signal::TERM);
    daemon.running().await_words("no new sessions are accepted");
    assert!(get(address, health).contains(" 503 "));
    pull.kill();
}

#[test]
fn a_service_manager_receives_the_state_of_the_daemon() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(crate::support::process::limit()))
        .unwrap();
    let root = place.path().join("data");
    std::fs::create_dir(&root).unwrap();
    let arguments = vec!["--root".into(), root.into()];
    let daemon = Daemon::of(arguments, |mut command| {
        command.env("NOTIFY_SOCKET", &path);
        command
    });
    let next = || {
        let mut state = [0; 64];
        let length = socket.recv(&mut state).unwrap();
        String::from_utf8_lossy(&state[..length]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    daemon.running().signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1");
    daemon.wait().expect(0);
}
