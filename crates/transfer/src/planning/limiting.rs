//! The layer that held a transfer up, by how busy the layers were.

use std::time::Duration;

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::{LAYERS, Progress, burst_bytes};
use longhaul_model::control::Bound;
use longhaul_model::limit::Limit;

use crate::rate_limit::BandwidthLimit;

/// A layer that works this part of its time holds the others up.
pub const FULL: f64 = 0.8;

/// One that works for less than this part of its time held nothing up.
const IDLE: f64 = 0.05;

/// The layer that limits the transfer: the last full one on a byte's way, for
/// a full layer makes those before it wait; else the busiest.
pub fn busiest(layers: &[LayerUse]) -> Option<&LayerUse> {
    let order = |layer: &LayerUse| LAYERS.iter().position(|name| *name == layer.layer);
    let full = layers
        .iter()
        .filter(|layer| layer.utilisation >= FULL)
        .max_by_key(|layer| order(layer));
    let most = || {
        layers
            .iter()
            .max_by(|a, b| a.utilisation.total_cmp(&b.utilisation))
    };
    full.or_else(most).filter(|layer| layer.utilisation > IDLE)
}

/// How busy the layers of both ends were between two moments.
pub fn use_between(first: &Progress, now: &Progress) -> Vec<LayerUse> {
    let own = now.elapsed.saturating_sub(first.elapsed);
    let peer = now.peer_elapsed.saturating_sub(first.peer_elapsed);
    between(&first.layers, &now.layers, own)
        .chain(between(&first.peer_layers, &now.peer_layers, peer))
        .collect()
}

/// Of the layers of one end.
fn between<'a>(
    first: &'a [LayerUse],
    now: &'a [LayerUse],
    passed: Duration,
) -> impl Iterator<Item = LayerUse> + 'a {
    now.iter().map(move |layer| {
        let before = first.iter().find(|before| before.layer == layer.layer);
        let busy = layer.busy.saturating_sub(before.map_or(0, |b| b.busy)) as f64;
        let time = passed.as_nanos() as f64 * layer.flows.max(1) as f64;
        match before {
            Some(_) if time > 0.0 => LayerUse {
                utilisation: (busy / time).min(1.0),
                ..*layer
            },
            _ => *layer,
        }
    })
}

/// The layers of both ends.
pub fn all_layers(progress: &Progress) -> impl Iterator<Item = &LayerUse> {
    progress.layers.iter().chain(&progress.peer_layers)
}

/// The layer that limited a transfer, if one was full.
pub fn full_layer(layers: &[LayerUse], bound: Option<Bound>) -> Option<Limit> {
    let full = busiest(layers).filter(|layer| layer.utilisation >= FULL)?;
    Limit::of_layer(full.layer, bound)
}

/// From this part of a rate on it was the rate that limited: the first and the
/// last moments of a copy move nothing.
pub const USED_UP: f64 = 0.9;

/// Bytes that went over the wire, of either end. Of a copy that is not `complete` some
/// lay in buffers and never left: those of blocks that the other end had not told
/// of are left out.
pub fn wire_bytes(progress: &Progress, complete: bool) -> u64 {
    let account = &progress.account;
    let unheard = if complete {
        0
    } else {
        account.moved_bytes.saturating_sub(account.arrived_bytes)
    };
    let (from, to) = progress.compression;
    let coded = if from > 0 && to > 0 {
        (unheard as f64 * (to as f64 / from as f64)) as u64
    } else {
        unheard
    };
    progress.wire_bytes.saturating_sub(coded)
}

/// The part of what the rate allowed that went over the wire, of either end, 0 to 1. The rate
/// allows a burst beyond rate times span, and does not count messages.
pub fn part_used(progress: &Progress, complete: bool, limit: BandwidthLimit) -> f64 {
    let rate = limit.bytes_per_second();
    let allowed = rate as f64 * progress.elapsed.as_secs_f64() + burst_bytes(rate) as f64;
    let used = wire_bytes(progress, complete).saturating_sub(progress.message_bytes);
    (used as f64 / allowed).min(1.0)
}

/// Bytes of files that moved in this session, of `bytes` that arrived in it. A hole moves as a note
/// of a few bytes, so holes are left out.
pub fn without_holes(bytes: u64, progress: &Progress) -> u64 {
    bytes.saturating_sub(progress.hole_bytes)
}

/// Whether a rate that was asked for, and never changed, was used up.
pub fn is_at_rate(progress: &Progress, complete: bool, rate: Option<BandwidthLimit>) -> bool {
    rate.is_some_and(|rate| part_used(progress, complete, rate) >= USED_UP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lay_in_buffers_was_never_on_the_wire() {
        let mut progress = Progress {
            elapsed: std::time::Duration::from_secs(10),
            wire_bytes: 20_000_000,
            settled_bytes: 5_000_000,
            ..Progress::default()
        };
        progress.account.moved_bytes = 19_000_000;
        progress.account.arrived_bytes = 7_000_000;
        let limit: BandwidthLimit = "2MB/s".parse().unwrap();
        progress.message_bytes = 2_000_000;
        let allowed = 20_100_000.0;
        assert_eq!(part_used(&progress, true, limit), 18e6 / allowed);
        assert_eq!(part_used(&progress, false, limit), 6e6 / allowed);
        assert_eq!(wire_bytes(&progress, false), 8_000_000);
        progress.compression = (20_000_000, 10_000_000);
        assert_eq!(wire_bytes(&progress, false), 14_000_000);
    }

    /// All data fit into the burst of the least rate.
    #[test]
    fn no_more_than_all_of_a_rate_is_used() {
        let limit: BandwidthLimit = "1kB/s".parse().unwrap();
        let mut progress = Progress {
            elapsed: std::time::Duration::from_millis(100),
            wire_bytes: 2_600,
            message_bytes: 2_100,
            ..Progress::default()
        };
        assert_eq!(part_used(&progress, true, limit), 500.0 / 1124.0);
        progress.wire_bytes = 9_000;
        assert_eq!(part_used(&progress, true, limit), 1.0);
    }

    #[test]
    fn the_last_full_layer_holds_the_others_up() {
        let used = |name, utilisation| LayerUse {
            utilisation,
            layer: name,
            flows: 1,
            busy: 0,
        };
        let layers = [used("read", 0.9), used("write", 0.9), used("commit", 0.5)];
        assert_eq!(busiest(&layers).map(|layer| layer.layer), Some("write"));
        assert_eq!(busiest(&[]), None);
    }
}
