//! Stacks in which each stream has one thread for all of its work.

use std::time::Duration;

use longhaul_engine::session::TransferSettings;
use longhaul_proto::block::Codec;
use longhaul_proto::digest::Integrity;
use longhaul_proto::message::Flows;
use longhaul_proto::options::Stack;

use super::{assert_same, busy_tree, start};
use crate::support::ends::{key, settings};
use crate::support::{Random, times};

fn paired(seed: u64) -> TransferSettings {
    TransferSettings {
        stack: Stack::Paired,
        codec: [Codec::Plain, Codec::Zstd { level: 1 }, Codec::Lz4][seed as usize % 3],
        integrity: [Integrity::Digest, Integrity::Checksum][seed as usize % 2],
        ..settings()
    }
}

#[test]
fn stream_threads_start_and_end_with_their_streams() {
    for seed in 0..times("LONGHAUL_PIPELINES", 3) {
        let content = busy_tree(seed + 300);
        let (ends, to) = start(paired(seed), &content);
        let mut chance = Random::new(seed);
        let (mut next, mut live) = (0, Vec::new());
        loop {
            while live.len() < 1 + chance.below(4) as usize && !ends.sender.is_over() {
                live.extend(ends.join_killable(next));
                next += 1;
            }
            let pause = Duration::from_millis(chance.below(12));
            if next > 100 || ends.sender.wait_for(pause) {
                break;
            }
            let killed = chance.below(live.len() as u64) as usize;
            live.swap_remove(killed).shutdown();
        }
        let ended = ends.finish(&format!("seed {seed}, {next} streams"));
        assert!(ended.is_complete(), "seed {seed}: {:?}", ended.sent.failed);
        assert_same(&to, &content, &format!("seed {seed}"));
    }
}

#[test]
fn more_streams_than_buffers_wait_for_each_other() {
    for seed in 0..3 {
        let content = busy_tree(seed + 400);
        let (ends, to) = start(paired(seed), &content);
        // With a codec, half of the 32 buffers are available.
        for number in 0..40 {
            ends.join(number, false);
        }
        let ended = ends.finish(&format!("seed {seed}"));
        assert!(ended.is_complete(), "seed {seed}: {:?}", ended.sent.failed);
        assert_same(&to, &content, &format!("seed {seed}"));
    }
}

#[test]
fn blocks_in_clear_find_their_checksums() {
    for seed in 0..3 {
        let content = busy_tree(seed + 500);
        let settings = TransferSettings {
            clear: key(),
            ..paired(seed)
        };
        let (ends, to) = start(settings, &content);
        ends.join(0, false);
        ends.join(1, true);
        ends.join(2, true);
        let ended = ends.finish(&format!("seed {seed}"));
        assert!(ended.is_complete(), "seed {seed}: {:?}", ended.sent.failed);
        assert_same(&to, &content, &format!("seed {seed}"));
    }
}

/// Requests for flows in layers have no effect, because the streams do the work.
#[test]
fn the_paired_stack_has_no_flows_except_the_streams() {
    let content = busy_tree(600);
    let (ends, to) = start(paired(1), &content);
    let flows = Flows {
        readers: Some(3),
        compressors: Some(3),
        streams: None,
        decompressors: Some(3),
        writers: Some(3),
        committers: Some(3),
    };
    ends.sender.regulator().set_flows(flows);
    ends.sender.regulator().steer(flows);
    ends.join(0, false);
    ends.join(1, false);
    let both = [ends.sender.clone(), ends.receiver.clone()];
    assert!(ends.finish("paired").is_complete());
    assert_same(&to, &content, "paired");
    for (end, layer) in both.iter().zip(["read", "write"]) {
        let layers = end.measurements().progress().layers;
        let layer = layers.iter().find(|found| found.layer == layer);
        let layer = layer.unwrap_or_else(|| panic!("{layers:?}"));
        // The number of flows is the number of streams.
        assert!(layer.flows == 2 && layer.busy > 0, "{layers:?}");
    }
}
