//! Tests of the round trips from the start to the first byte and from the last byte to success.
//! There are no idle round trips in between.

use std::time::Duration;

use longhaul_proto::frame::{self, FrameKind};
use longhaul_proto::handshake::{
    Answer, Capability, Hello, PROTOCOL_VERSION, Purpose, Request, RequestPath, Role, Secret,
    SessionId, Welcome,
};
use longhaul_proto::options::TransferOptions;
use longhaul_units::Moment;

use super::network::{End, Link};
use super::scenario::{Scenario, milliseconds};
use super::source::Source;
use super::streams::decode;
use super::world::World;

const LATENCIES: [Duration; 3] = [milliseconds(1), milliseconds(20), milliseconds(100)];

/// Returns links so fast that only latency takes time.
fn links(latency: Duration, count: usize) -> Vec<Link> {
    let buffer = 1 << 20;
    vec![
        Link {
            rate: 1e12,
            latency,
            buffer,
            stalls: None
        };
        count
    ]
}

fn tree(files: u64, size: u64) -> Source {
    let mut source = Source::default();
    let directory = source.add(None, super::source::NodeKind::Directory);
    (0..files).for_each(|_| source.add_file(Some(directory), size));
    source
}

fn run(scenario: Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world.check();
    world
}

fn round_trips(from: Moment, to: Moment, latency: Duration) -> f64 {
    (to - from).as_secs_f64() / (2 * latency).as_secs_f64()
}

/// Runs the exchange that opens a session. It gives a sender all that it needs to begin.
fn open(dialer: End, empty: bool) -> Welcome {
    let role = match dialer {
        End::Sender => Role::Sender,
        End::Receiver => Role::Receiver,
    };
    let paths = vec![RequestPath::Path(b"/d".to_vec())];
    let request = Request {
        destination_empty: empty,
        anywhere: Some([3; 32].into()),
        ..Request::new(role, paths, TransferOptions::default())
    };
    assert!(request.is_valid());
    let hello = Hello {
        version: PROTOCOL_VERSION,
        software: "simulation".into(),
        capabilities: Capability::ALL.to_vec(),
        purpose: Purpose::Open(Box::new(request.clone())),
    };
    let bytes = frame::encode(FrameKind::Handshake, &hello, 0).unwrap();
    let heard: Hello = decode(&bytes);
    assert_eq!(heard.purpose, Purpose::Open(Box::new(request)));
    let welcome = Welcome {
        software: "simulation".into(),
        capabilities: heard.capabilities,
        session: SessionId([3; 16]),
        secret: Secret([4; 32]),
        epoch: 1,
        destination_empty: empty,
        clear: false,
        maximum_streams: 256,
        linger_seconds: 60,
        single_file: false,
        large_files: 64,
        host: None,
        congestion: None,
    };
    let bytes = frame::encode(FrameKind::Handshake, &Answer::Welcome(welcome), 0).unwrap();
    let Answer::Welcome(welcome) = decode(&bytes) else {
        panic!("no welcome")
    };
    assert_eq!(welcome.capabilities, Capability::ALL);
    welcome
}

#[test]
fn the_first_byte_leaves_within_three_round_trips() {
    for latency in LATENCIES {
        for dialer in [End::Sender, End::Receiver] {
            for empty in [true, false] {
                let welcome = open(dialer, empty);
                let mut scenario = Scenario::plain(tree(10, 100), links(latency, 4), 4096);
                scenario.warm = false;
                scenario.dialer = dialer;
                scenario.sender.asks = !welcome.destination_empty;
                let world = run(scenario);
                let first = round_trips(Moment(0), world.checks.first_sent.unwrap(), latency);
                // A sender that dials asks together with its request. A sender that is dialed first
                // receives the request and asks then.
                let allowed = match (dialer, empty) {
                    (End::Sender, _) => 3.0,
                    (End::Receiver, true) => 2.5,
                    (End::Receiver, false) => 3.5,
                };
                println!("{dialer:?} dials, empty {empty}, {latency:?}: {first:.2}");
                assert!(
                    first <= allowed + 0.01,
                    "{dialer:?}, empty {empty}: {first}"
                );
            }
        }
    }
}

#[test]
fn success_is_known_within_a_round_trip_of_the_last_byte() {
    let store = milliseconds(30);
    for latency in LATENCIES {
        for (files, size) in [(10, 100), (1, 40 * 4096)] {
            let mut scenario = Scenario::plain(tree(files, size), links(latency, 4), 4096);
            scenario.store = (store, store);
            scenario.receiver.checkpoint_span = Duration::from_secs(5);
            let world = run(scenario);
            let checks = &world.checks;
            // Each step is done and then reported: checkpoint, commit, directory, end. A pack is
            // written and reported once.
            let storage = store * if size > 4096 { 6 } else { 5 };
            let since_left = round_trips(checks.last_sent + storage, world.now, latency);
            let since_arrival = round_trips(checks.last_arrival + storage, world.now, latency);
            println!("{latency:?}, {files} files: {since_left:.2} {since_arrival:.2}");
            assert!(since_left <= 1.01, "{since_left} since it left");
            assert!(since_arrival <= 0.51, "{since_arrival} since it arrived");
        }
    }
}

#[test]
fn data_flow_while_answers_are_awaited() {
    for latency in [milliseconds(5), milliseconds(50)] {
        let mut link = links(latency, 1)[0];
        link.rate = 2e6;
        link.buffer = 64 << 10;
        let mut scenario = Scenario::plain(tree(20_000, 200), vec![link], 16 << 10);
        scenario.sender.asks = true;
        let world = run(scenario);
        // Only the middle part counts, without the start and the end.
        let wire = &world.checks.wire;
        let (begin, end) = (wire[wire.len() / 10].0, wire[wire.len() * 9 / 10].0);
        let middle = wire.iter().filter(|sent| sent.0 >= begin && sent.0 < end);
        let bytes: u64 = middle.map(|sent| sent.1).sum();
        let used = bytes as f64 / (end - begin).as_secs_f64() / link.rate;
        println!("{latency:?}: {used:.3} of the link");
        assert!(
            (0.9..1.05).contains(&used),
            "{latency:?}: {used} of the link"
        );
    }
}

#[test]
fn flows_are_halved_and_doubled_in_mid_transfer() {
    for (readers, streams, writers) in [(2, 2, 2), (8, 8, 8), (1, 8, 2)] {
        for steerer in [End::Sender, End::Receiver] {
            for dialer in [End::Sender, End::Receiver] {
                let mut link = links(milliseconds(5), 1)[0];
                link.rate = 1e6;
                link.buffer = 8192;
                let mut scenario = Scenario::plain(tree(300, 3000), vec![link; 4], 4096);
                scenario.read = (milliseconds(1), milliseconds(2));
                scenario.write = scenario.read;
                (scenario.steerer, scenario.dialer) = (steerer, dialer);
                let fault = super::scenario::Fault::SetFlows(readers, streams, writers);
                scenario.faults = vec![(Moment(50_000_000), fault)];
                let world = run(scenario);
                assert_eq!(world.want, streams as usize);
                assert_eq!(world.live().len(), streams as usize);
                assert_eq!(world.sending.readers, Some(readers as usize));
                assert_eq!(world.receiving.writers, Some(writers as usize));
            }
        }
    }
}
