//! Whole copies with a virtual clock. No copy may be slower than without codecs.

use super::flow::{Came, Copy, End};
use super::world::Data;

/// Runs a copy with and without codecs. Checks that it is at most a few percent slower with codecs.
fn both(name: &str, copy: &Copy) -> (Came, Came) {
    let (chosen, plain) = (copy.run(true), copy.run(false));
    println!("{name}: {chosen:?}, without {plain:?}");
    assert!(
        chosen.seconds <= plain.seconds / 0.98 + 0.01,
        "{name}: {chosen:?}, without {plain:?}"
    );
    (chosen, plain)
}

const LARGE: End = End {
    cores: 64.0,
    others: 1.0,
    flows: 8,
};

/// A host with many cores has few flows and buffers for codecs. A plan that counted all cores would
/// choose codecs that use neither the whole path nor all cores.
#[test]
fn a_plan_counts_only_cores_that_flows_can_use() {
    for (data, flows) in [(Data::Text, 8), (Data::Field, 8), (Data::Text, 2)] {
        let end = End { flows, ..LARGE };
        let copy = Copy {
            data: vec![(data, 3000)],
            block_bytes: (4 << 20) as f64,
            buffers: 16,
            path: |_| 1.25e9,
            is_long: false,
            sender: end,
            receiver: end,
            ..Copy::default()
        };
        both(&format!("{data:?} with {flows} flows"), &copy);
    }
}

/// The receiver writes, or makes durable, less than the path carries. The path is then full in
/// bursts, and codecs gain nothing.
#[test]
fn with_a_slow_receiver_almost_no_blocks_are_compressed() {
    for written in [0.3, 0.6, 0.85] {
        let copy = Copy {
            data: vec![(Data::Text, 4000)],
            written: written * 117.7e6,
            is_long: false,
            ..Copy::default()
        };
        let (chosen, _) = both(&format!("{written} written"), &copy);
        assert!(chosen.coded < 1000, "{written}: {chosen:?}");
    }
}

/// A path's windows double with each round trip. Blocks that are assigned while the windows are
/// small wait until they are large.
#[test]
fn growing_windows_do_not_delay_a_short_copy() {
    for blocks in [4, 16, 64, 256, 1024] {
        for data in [Data::Text, Data::Field, Data::Letters] {
            let copy = Copy {
                data: vec![(data, blocks)],
                block_bytes: (4 << 20) as f64,
                buffers: 16,
                path: |at| (3e5 * (at / 0.05).min(40.0).exp2()).min(1.2e9),
                ..Copy::default()
            };
            both(&format!("{blocks} of {data:?}"), &copy);
        }
    }
}

/// A kind of data that appears for the first time has no share of the bytes so far. Its first
/// blocks must still be compressed.
#[test]
fn a_new_kind_of_data_is_compressed_from_its_first_block() {
    let copy = Copy {
        data: vec![(Data::Random, 3), (Data::Text, 12)],
        path: |_| 3e6,
        ..Copy::default()
    };
    let (chosen, plain) = both("text after noise", &copy);
    assert_eq!((chosen.coded, chosen.first_coded), (12, Some(0)));
    assert!(chosen.seconds < 0.5 * plain.seconds);
}

#[test]
fn only_data_that_gain_are_compressed_on_each_path() {
    for path in [|_| 11.8e6, |_| 117.7e6, |_| 588e6] as [fn(f64) -> f64; 3] {
        let copy = |data| Copy {
            data: vec![(data, 2000)],
            path,
            ..Copy::default()
        };
        let (chosen, plain) = both("text", &copy(Data::Text));
        let most = if path(0.0) > 2e8 { 0.95 } else { 0.4 };
        assert!(chosen.seconds < most * plain.seconds);
        let (chosen, _) = both("random", &copy(Data::Random));
        assert_eq!(chosen.coded, 0);
    }
}

/// The path has enough room, and other work slows down the source or the receiver.
#[test]
fn codecs_use_no_cores_of_a_busy_host_on_a_fast_path() {
    let end = End {
        cores: 2.0,
        others: 2.0,
        flows: 2,
    };
    let copy = Copy {
        data: vec![(Data::Text, 4000)],
        path: |_| 1.2e9,
        is_long: false,
        sender: end,
        receiver: end,
        ..Copy::default()
    };
    let (chosen, _) = both("busy", &copy);
    assert!(chosen.coded < 40, "{chosen:?}");
}
