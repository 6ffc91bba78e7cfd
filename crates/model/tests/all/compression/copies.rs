//! Whole copies by a virtual clock: none is slower than it is without codecs.

use super::flow::{Came, Copy, End};
use super::world::Data;

/// Both ways to run a copy, and that the choice is not slower than nothing, but for some percent.
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

/// A host with many cores has few flows and buffers for codecs: a plan that believes in all cores
/// takes codecs that fill neither the path nor the cores.
#[test]
fn many_cores_behind_few_flows_are_not_planned_with() {
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

/// What a receiver writes, or makes durable, is less than what the path carries: the path is full
/// in lumps, and codecs gain nothing.
#[test]
fn a_receiver_slower_than_the_path_gets_next_to_nothing_compressed() {
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

/// A path's windows double with each round trip: what is dealt while they are small waits while
/// they are large.
#[test]
fn a_short_copy_over_a_path_whose_windows_grow_is_not_held_up() {
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

/// A kind of data that begins has none of the bytes so far: what it gains is its own, and its
/// first blocks are compressed.
#[test]
fn a_kind_that_begins_is_compressed_from_its_first_block() {
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
fn what_gains_is_compressed_on_each_path_and_what_does_not_is_left() {
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

/// A path with room for all, and a source or receiver that others hold up.
#[test]
fn a_busy_host_is_left_alone_on_a_fast_path() {
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
