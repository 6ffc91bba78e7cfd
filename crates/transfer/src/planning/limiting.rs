//! Finds the layer that limited a transfer, by the utilisation of all layers.

use std::time::Duration;

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::{LAYERS, Progress, burst_bytes};
use longhaul_model::control::Bound;
use longhaul_model::limit::Limit;

use crate::rate_limit::BandwidthLimit;

/// Utilisation from which a layer limits the others.
pub const FULL: f64 = 0.8;

/// Utilisation up to which a layer cannot have limited the transfer.
const IDLE: f64 = 0.05;

/// Returns the layer that limits the transfer: the last full one on a byte's way, because a full
/// layer makes those before it wait. If no layer is full: the busiest.
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

/// Computes the utilisation of the layers of both ends between two moments.
pub fn use_between(first: &Progress, now: &Progress) -> Vec<LayerUse> {
    let own = now.elapsed.saturating_sub(first.elapsed);
    let peer = now.peer_elapsed.saturating_sub(first.peer_elapsed);
    between(&first.layers, &now.layers, own)
        .chain(between(&first.peer_layers, &now.peer_layers, peer))
        .collect()
}

/// Computes the utilisation of the layers of one end.
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

/// Returns the layers of both ends.
pub fn all_layers(progress: &Progress) -> impl Iterator<Item = &LayerUse> {
    progress.layers.iter().chain(&progress.peer_layers)
}

/// Returns the layer that limited a transfer, if one was full.
pub fn full_layer(layers: &[LayerUse], bound: Option<Bound>) -> Option<Limit> {
    let full = busiest(layers).filter(|layer| layer.utilisation >= FULL)?;
    Limit::of_layer(full.layer, bound)
}

/// Share of a rate from which the rate was the limit. It is below 1 because the beginning and the
/// end of a copy transfer nothing.
pub const USED_UP: f64 = 0.9;

/// Returns the bytes that either end sent over the wire. If the copy is not `complete`, some bytes
/// remained in buffers. The bytes of blocks that the other end did not acknowledge are therefore
/// excluded.
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

/// Returns the used share of the rate limit for either end, 0 to 1. The limit allows a burst in
/// addition to rate times time, and does not count messages.
pub fn part_used(progress: &Progress, complete: bool, limit: BandwidthLimit) -> f64 {
    let rate = limit.bytes_per_second();
    let allowed = rate as f64 * progress.elapsed.as_secs_f64() + burst_bytes(rate) as f64;
    let used = wire_bytes(progress, complete).saturating_sub(progress.message_bytes);
    (used as f64 / allowed).min(1.0)
}

/// Returns the bytes of files that were transferred, of `bytes` that arrived in this session. A
/// hole is transferred as a message of a few bytes, so holes are excluded.
pub fn without_holes(bytes: u64, progress: &Progress) -> u64 {
    bytes.saturating_sub(progress.hole_bytes)
}

/// True if there was a constant rate limit and it was reached.
pub fn is_at_rate(progress: &Progress, complete: bool, rate: Option<BandwidthLimit>) -> bool {
    rate.is_some_and(|rate| part_used(progress, complete, rate) >= USED_UP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_buffers_do_not_count_as_sent() {
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

    /// Tests a copy whose data fit into the burst of the lowest rate.
    #[test]
    fn the_used_share_of_a_rate_is_at_most_one() {
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
    fn the_last_full_layer_is_the_limit() {
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
