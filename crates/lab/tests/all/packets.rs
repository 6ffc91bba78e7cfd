//! Tests of the lab with real packets between two kernels; their counters must agree.
//!
//! Needs root. Skipped with a message otherwise. No test asserts on time.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use longhaul_lab::emulator::WireReport;
use longhaul_lab::lab::{Host, Lab};
use longhaul_lab::scenario::{Scenario, parse_block};
use longhaul_lab::state::StateDirectory;
use longhaul_units::Random;

/// A lab for a test.
struct Trial {
    lab: Lab,
}

impl Trial {
    /// Starts a lab. Returns `None` and reports a skip if root rights or `/dev/net/tun`
    /// are missing.
    fn start(scenario: Scenario) -> Option<Trial> {
        if !rustix::process::geteuid().is_root() || longhaul_lab::isolate::check().is_err() {
            longhaul_testing::skip("labs need root and /dev/net/tun");
            return None;
        }
        let state = StateDirectory::open().unwrap();
        let lab = Lab::start(scenario, &state).unwrap();
        Some(Trial { lab })
    }

    fn on_cable() -> Option<Trial> {
        Trial::start(Scenario {
            veth: true,
            ..Scenario::default()
        })
    }

    fn on_path(path: &str) -> Option<Trial> {
        Trial::start(Scenario {
            path: path.parse().unwrap(),
            ..Scenario::default()
        })
    }

    fn host(&self, name: &str) -> &Host {
        self.lab.host(name).unwrap()
    }

    fn wire(&self, from: usize) -> WireReport {
        let report = self.lab.report().unwrap();
        *report
            .emulator
            .wires
            .iter()
            .find(|w| w.from == from)
            .unwrap()
    }

    fn listen(&self, host: &str, address: IpAddr, port: u16) -> TcpListener {
        let bind = || TcpListener::bind((address, port)).unwrap();
        self.host(host).namespace().within(bind).unwrap()
    }

    fn connect(&self, host: &str, to: SocketAddr) -> std::io::Result<TcpStream> {
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(20));
        self.host(host).namespace().within(connect).unwrap()
    }

    /// Sends bytes over TCP from A to B and returns the received bytes.
    fn carry(&self, bytes: &[u8]) -> Vec<u8> {
        let listener = self.listen("b", self.host("b").address(), 0);
        let target = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let mut received = Vec::new();
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_to_end(&mut received).unwrap();
                received
            });
            let mut stream = self.connect("a", target).unwrap();
            stream.write_all(bytes).unwrap();
            drop(stream);
            receiver.join().unwrap()
        })
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut random = Random::for_purpose(1, 99);
    let words = std::iter::repeat_with(|| random.bits().to_le_bytes());
    words.take(length / 8).flatten().collect()
}

/// The tolerance is 4.5 standard deviations: one run in 150,000 would be outside. Lost
/// segments are cut out of super-packets.
#[test]
fn losses_inside_super_packets_have_the_configured_mean() {
    let Some(trial) = Trial::on_path("rtt=1ms,loss=0.02,loss-back=0,rate=2gbit") else {
        return;
    };
    let sent = noise(24 << 20);
    assert!(trial.carry(&sent) == sent);
    let wire = trial.wire(0);
    let c = wire.counters;
    assert_eq!(c.offered, c.delivered + c.lost + c.queue_drops);
    let expected = c.offered as f64 * 0.02;
    let deviation = (expected * 0.98).sqrt();
    assert!(
        (c.lost as f64 - expected).abs() < 4.5 * deviation,
        "{} of {}",
        c.lost,
        c.offered
    );
    assert!(wire.super_packets > 100, "{wire:?}");
    assert_eq!(trial.wire(1).counters.lost, 0);
}

/// Two hosts are connected by a cable only. IPv6 addresses are usable at once.
#[test]
fn a_cable_carries_data_without_an_emulator() {
    let Some(trial) = Trial::on_cable() else {
        return;
    };
    let sent = noise(8 << 20);
    assert!(trial.carry(&sent) == sent);
    let report = trial.lab.report().unwrap();
    assert!(report.emulator.wires.is_empty(), "{report:?}");
    assert!(report.to_string().ends_with("nothing is emulated"));
    if let Some(address) = trial.host("b").addresses.v6.first() {
        let listener = trial.listen("b", IpAddr::V6(*address), 0);
        let target = listener.local_addr().unwrap();
        drop(trial.connect("a", target).unwrap());
    }
}

/// Reordering, duplication and detectable damage cost TCP only time.
#[test]
fn tcp_repairs_detectable_damage() {
    let path = "rtt=2ms,rate=2gbit,reorder=0.005:1ms,duplicate=0.005,corrupt=0.005,jitter=1ms";
    let Some(trial) = Trial::on_path(path) else {
        return;
    };
    let sent = noise(8 << 20);
    assert!(trial.carry(&sent) == sent);
    let c = trial.wire(0).counters;
    assert!(c.held > 0 && c.doubled > 0 && c.corrupted > 0, "{c:?}");
    let errors = trial
        .host("b")
        .namespace()
        .within(tcp_input_errors)
        .unwrap();
    // A flipped bit in the header's length makes some packets invalid, which the kernel
    // does not count; and some are duplicated.
    assert!(errors > c.corrupted / 2, "{errors} of {}", c.corrupted);
    assert!(errors <= c.corrupted + c.doubled);
}

/// Returns `InErrs` of this thread's network namespace.
fn tcp_input_errors() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "InErrs").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

/// One bit differs per segment with corrected checksum. All of them reach the
/// application, except in segments without data.
#[test]
fn unseen_damage_reaches_the_application() {
    let Some(trial) = Trial::on_path("rtt=1ms,corrupt-unseen=0.01") else {
        return;
    };
    let sent = noise(8 << 20);
    let received = trial.carry(&sent);
    assert_eq!(received.len(), sent.len());
    let pairs = received.iter().zip(&sent);
    let bits: u64 = pairs.map(|(a, b)| u64::from((a ^ b).count_ones())).sum();
    let c = trial.wire(0).counters;
    // SYN, ACK and FIN have no data. In an unnecessary retransmission, the damage is in a
    // copy that the receiver discards.
    assert!(bits <= c.corrupted_unseen, "{bits} of {c:?}");
    assert!(
        bits + 5 >= c.corrupted_unseen && bits > 20,
        "{bits} of {c:?}"
    );
    let errors = trial
        .host("b")
        .namespace()
        .within(tcp_input_errors)
        .unwrap();
    assert_eq!(errors, 0);
}

#[test]
fn every_address_of_every_host_is_reachable() {
    let Some(trial) = Trial::start(Scenario {
        hosts: "2x1x1".parse().unwrap(),
        addresses: 3,
        path: "rtt=1ms,rate=1gbit".parse().unwrap(),
        ..Scenario::default()
    }) else {
        return;
    };
    for (from, to) in [("a1", "b1"), ("a2", "c1"), ("b1", "a2"), ("a1", "a2")] {
        for address in trial.host(to).addresses.all() {
            let listener = trial.listen(to, address, 0);
            let stream = trial.connect(from, listener.local_addr().unwrap()).unwrap();
            let (_, peer) = listener.accept().unwrap();
            assert_eq!(stream.local_addr().unwrap(), peer);
            assert!(trial.host(from).addresses.all().contains(&peer.ip()));
        }
    }
}

#[test]
fn blocked_ports_reset_or_drop_connections() {
    let Some(trial) = Trial::start(Scenario {
        blocks: vec![
            parse_block("b:5000:reset").unwrap(),
            parse_block("a:new").unwrap(),
        ],
        ..Scenario::default()
    }) else {
        return;
    };
    let address = trial.host("b").address();
    let _closed = trial.listen("b", address, 5000);
    let refused = trial.connect("a", (address, 5000).into()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let open = trial.listen("b", address, 5001);
    assert!(trial.connect("a", open.local_addr().unwrap()).is_ok());
    let inside = trial.listen("a", trial.host("a").address(), 5000);
    let target = inside.local_addr().unwrap();
    let silent = trial
        .host("b")
        .namespace()
        .within(|| TcpStream::connect_timeout(&target, Duration::from_millis(100)).unwrap_err());
    assert_eq!(silent.unwrap().kind(), ErrorKind::TimedOut);
    assert_eq!(trial.wire(0).blocked, 1);
    assert!(trial.wire(1).blocked >= 1);
}

#[test]
fn hosts_behind_nat_share_an_address() {
    let Some(trial) = Trial::start(Scenario {
        hosts: "2x1".parse().unwrap(),
        nat: Some(0),
        path: "rtt=1ms,rate=1gbit".parse().unwrap(),
        ..Scenario::default()
    }) else {
        return;
    };
    let listener = trial.listen("b", trial.host("b").address(), 0);
    let target = listener.local_addr().unwrap();
    for host in ["a1", "a2"] {
        let mut stream = trial.connect(host, target).unwrap();
        let (mut accepted, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip().to_string(), "198.18.10.254");
        assert_ne!(stream.local_addr().unwrap().ip(), peer.ip());
        let sent = noise(1 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| stream.write_all(&sent).unwrap());
            let mut received = vec![0; sent.len()];
            accepted.read_exact(&mut received).unwrap();
            assert!(received == sent);
        });
    }
}

#[test]
fn a_running_path_can_be_changed_and_cut() {
    let Some(mut trial) = Trial::on_path("rtt=1ms,rate=1gbit") else {
        return;
    };
    let sent = noise(1 << 20);
    assert!(trial.carry(&sent) == sent);
    assert_eq!(trial.wire(0).counters.lost, 0);
    trial.lab.set("loss=0.05,rtt=2ms").unwrap();
    assert!(trial.lab.set("rtt=2ms,jitter=9s").is_err());
    assert!(trial.lab.scenario().path.to_string().contains("rtt=2ms"));
    assert!(trial.carry(&sent) == sent);
    assert!(trial.wire(0).counters.lost > 0);
    trial.lab.set("loss=0").unwrap();
    // On a busy host, a cut can end before the data begin.
    longhaul_testing::await_that(|| {
        trial.lab.cut(Duration::from_millis(300)).unwrap();
        assert!(trial.carry(&sent) == sent);
        trial.wire(0).counters.cut > 0
    });
}

#[test]
fn hosts_have_the_configured_parameters() {
    let Some(trial) = Trial::start(Scenario {
        congestion: "cubic".to_owned(),
        sysctls: vec!["b:net.ipv4.tcp_sack=0".parse().unwrap()],
        path: "rtt=100ms,rate=10gbit".parse().unwrap(),
        ..Scenario::default()
    }) else {
        return;
    };
    let read = |host: &str, name: &str| {
        let read = || longhaul_lab::netns::sysctl(name).unwrap();
        trial.host(host).namespace().within(read).unwrap()
    };
    assert_eq!(read("a", "net.ipv4.tcp_congestion_control"), "cubic");
    assert_eq!(read("a", "net.ipv4.tcp_sack"), "1");
    assert_eq!(read("b", "net.ipv4.tcp_sack"), "0");
    // The window is 2 BDP of 125 MB. The kernel needs twice that in memory.
    assert!(read("a", "net.ipv4.tcp_wmem").ends_with("500000000"));
    let refused = Scenario {
        congestion: "none-such".to_owned(),
        ..Scenario::default()
    };
    let state = StateDirectory::open().unwrap();
    assert!(Lab::start(refused, &state).is_err());
}
