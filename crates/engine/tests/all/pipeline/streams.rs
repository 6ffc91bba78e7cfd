//! One stream of data over connections that die, and a rate that changes during the transfer.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::recv::landing::Destination;
use longhaul_engine::recv::stream::FileStream;
use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_engine::send::stream::StreamSource;
use longhaul_engine::session::{Event, TransferSettings, Watch};
use longhaul_net::clear::local_pair;
use longhaul_net::{StreamReader, StreamWriter};
use longhaul_proto::message::Farewell;
use longhaul_storage::DataMode;
use longhaul_storage::forgetting::ForgettingStorage;
use longhaul_storage::measuring::{ZERO_NAME, sink, zero_source};

use crate::support::ends::{Ends, OnlyRoot, arrival, settings, watch};

/// Length of the data; pieces of a 64th of it are held in memory, 16 at a time.
const BYTES: usize = 4 << 20;

// Promise 52.
#[test]
fn a_stream_of_data_outlives_its_connections() {
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 % 251) as u8).collect();
    let input = Box::new(Cursor::new(data.clone()));
    let source = StreamSource::new(input, BYTES / 64, BYTES / 4, 0o640);
    let to = ForgettingStorage::new();
    let stream = FileStream::open(&OnlyRoot(to.root()), b"whole", 1).unwrap();
    let kept = Arc::clone(&source);
    let letting_go: Watch = Arc::new(move |event| match event {
        Event::Committed { path, .. } => kept.let_go(&path),
        other => panic!("{other:?}"),
    });
    let settings = TransferSettings {
        asks: false,
        ..settings()
    };
    let ends = Ends::start_watched(
        settings,
        Sources::new(vec![source.source("-")]),
        Destination::stream(Arc::new(stream), arrival()),
        (letting_go, Arc::default()),
        watch(),
    );
    // Each connection carries a part, and is lost.
    let mut over = false;
    for number in 0..5_u32 {
        let enough = u64::from(number + 1) * BYTES as u64 / 8;
        let Some(connection) = ends.join_killable(number) else {
            break;
        };
        while !over && ends.receiver.measurements().progress().disk_bytes < enough {
            over = ends.sender.wait_for(Duration::from_micros(100));
        }
        connection.shutdown();
    }
    assert!(!over, "it was done too soon to lose anything");
    assert!(ends.join(5, false));
    assert!(ends.finish("a stream").is_complete());
    let file = to.root().open_file(b"whole", DataMode::Buffered).unwrap();
    let mut found = vec![0; BYTES + 1];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), BYTES);
    assert!(found[..BYTES] == data[..]);
    assert_eq!(file.status().unwrap().mode, 0o640);
    assert_eq!(source.whole().map(|whole| whole.bytes), Some(BYTES as u64));
}

/// Sends zeros to a destination that discards them.
fn nothing_to_nowhere(bytes: u64, settings: TransferSettings) -> Ends {
    let what = What::File {
        name: ZERO_NAME.into(),
        landing: ZERO_NAME.into(),
    };
    let zeros = Source::new(zero_source(bytes).into(), what, "zero:".to_owned());
    let there = Destination::sink(sink(), arrival());
    Ends::start(settings, Sources::new(vec![zeros]), there)
}

#[test]
fn the_receiver_can_change_the_rate() {
    // At this rate the transfer would take ten hours.
    let settings = TransferSettings {
        limit: Some(1000),
        ..settings()
    };
    let ends = nothing_to_nowhere(36 << 20, settings);
    ends.join(0, false);
    ends.join(1, false);
    ends.receiver.regulator().limit(Some(1 << 30));
    assert!(ends.finish("a rate").is_complete());
}

#[test]
fn durable_data_of_an_unfinished_file_are_not_outstanding() {
    const SIZE: u64 = 36 << 20;
    // At this rate the transfer would take ten seconds; it is observed in the middle.
    let settings = TransferSettings {
        limit: Some(4 << 20),
        ..settings()
    };
    let ends = nothing_to_nowhere(SIZE, settings);
    ends.join(0, false);
    ends.join(1, false);
    let (settled, remaining) = loop {
        assert!(!ends.sender.wait_for(Duration::from_millis(1)), "too fast");
        let settled = ends.sender.measurements().progress().settled_bytes;
        // The remaining bytes are unknown before the walk is complete.
        match ends.sender.measurements().observe().remaining {
            Some(remaining) if settled > 0 => break (settled, remaining),
            _ => {}
        }
    };
    assert!(remaining <= SIZE - settled, "{remaining} after {settled}");
    ends.sender.regulator().limit(None);
    assert!(ends.finish("what remains").is_complete());
}

/// The receiver's end of its streams never reaches the sender.
#[test]
fn a_sender_exits_before_the_other_end_closes() {
    let ends = nothing_to_nowhere(3 << 20, settings());
    let ((left, mut near), (far, right)) = (local_pair().unwrap(), local_pair().unwrap());
    let (mut back, mut there) = (far.reader, far.writer);
    let forth = std::thread::spawn(move || {
        forward(&mut *near.reader, &mut *there);
        far.handle.shutdown();
    });
    let back = std::thread::spawn(move || {
        forward(&mut *back, &mut *near.writer);
        near.writer
    });
    assert!(ends.join_by(left, right, 0, false));
    assert_eq!(ends.sender.wait_to_exit().farewell, Farewell::Complete);
    assert_eq!(ends.receiver.wait().farewell, Farewell::Complete);
    forth.join().unwrap();
    // Only a sender that stopped waiting would have closed its stream.
    let mut kept_open = back.join().unwrap();
    kept_open.write_all(&[b"more"]).unwrap();
}

fn forward(from: &mut dyn StreamReader, to: &mut dyn StreamWriter) {
    let mut room = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut room) {
        if to.write_all(&[&room[..read]]).is_err() {
            return;
        }
    }
}
