//! The layer that held a transfer up, by how busy the layers were.

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::LAYERS;

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
