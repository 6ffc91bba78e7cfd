//! Estimates the time of a copy without its codec, from the utilisation of its layers.

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::Progress;

use super::limiting::{all_layers, part_used, wire_bytes};
use crate::codecs::report::{coded_bytes, destination_seconds};
use crate::rate_limit::BandwidthLimit;

/// A difference below this many seconds, or below this share of the time, is not reported.
const LEAST_SECONDS: f64 = 0.5;
const LEAST_SHARE: f64 = 0.02;

/// Returns the seconds that the codec saved; negative if the copy was slower with it. `None` if the
/// difference is small, or no codec was used.
///
/// The busiest layer limits a copy. Without a codec, the compressors have no work, and the streams
/// carry the saved bytes too. The layer that would then be busiest determines the time. Streams
/// that waited for the compressors can carry more than they did, because sockets buffer small
/// amounts of data. A negative number is therefore a bound.
pub fn saved_seconds(
    progress: &Progress,
    complete: bool,
    limit: Option<BandwidthLimit>,
) -> Option<f64> {
    let (bytes, encoded) = coded_bytes(progress);
    if bytes == 0 {
        return None;
    }
    let sent = wire_bytes(progress, complete).max(1) as f64;
    let more = (sent + bytes as f64 - encoded as f64).max(0.0) / sent;
    let limited = limit.map_or(0.0, |limit| part_used(progress, complete, limit));
    let (mut with, mut without) = (limited, limited * more);
    for layer in all_layers(progress) {
        with = with.max(layer.utilisation);
        without = without.max(layer.utilisation * remains(layer, more, progress));
    }
    if with <= 0.0 {
        return None;
    }
    let elapsed = progress.elapsed.as_secs_f64();
    let seconds = elapsed * (without / with - 1.0);
    let least = LEAST_SECONDS.max(LEAST_SHARE * elapsed);
    (seconds.abs() > least).then_some(seconds)
}

/// Returns a layer's work without the codec, as a multiple of its work with it. `more` is the
/// factor by which the bytes on the streams would grow.
fn remains(layer: &LayerUse, more: f64, progress: &Progress) -> f64 {
    match layer.layer {
        "compress" => 0.0,
        // The rest of its work is verification.
        "decompress" => {
            let seconds = layer.busy as f64 * 1e-9;
            (1.0 - destination_seconds(progress) / seconds.max(1e-9)).clamp(0.0, 1.0)
        }
        "wire" | "open" => more,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_proto::block::Codec;
    use longhaul_proto::coding::CodecUse;

    use super::*;

    fn coded(nanoseconds: u64) -> CodecUse {
        CodecUse {
            kind: None,
            codec: Codec::Zstd { level: 3 },
            shuffled: false,
            bytes: 800_000_000,
            encoded: 200_000_000,
            nanoseconds,
        }
    }

    /// Returns a copy of ten seconds in which 200 MB on the wire became 800 MB, with these
    /// utilisations.
    fn copied(layers: &[(&'static str, f64)]) -> Progress {
        let layer = |(layer, utilisation): &(&'static str, f64)| LayerUse {
            layer,
            flows: 1,
            busy: (utilisation * 10e9) as u64,
            utilisation: *utilisation,
        };
        Progress {
            elapsed: Duration::from_secs(10),
            wire_bytes: 200_000_000,
            layers: layers.iter().map(layer).collect(),
            source_codecs: vec![coded(2_000_000_000)],
            destination_codecs: vec![coded(2_000_000_000)],
            ..Progress::default()
        }
    }

    fn saved(layers: &[(&'static str, f64)]) -> Option<f64> {
        let seconds = saved_seconds(&copied(layers), true, None);
        seconds.map(|seconds| (seconds * 10.0).round() / 10.0)
    }

    #[test]
    fn a_full_path_would_have_carried_the_saved_bytes_at_its_rate() {
        let saves = saved(&[("compress", 0.3), ("wire", 0.9), ("write", 0.2)]);
        assert_eq!(saves, Some(30.0));
    }

    #[test]
    fn a_codec_that_is_the_limit_saves_no_time() {
        // The path would be busy for 0.8 s of the 10 s.
        let layers = [("read", 0.01), ("compress", 1.0), ("wire", 0.02)];
        assert_eq!(saved(&layers), Some(-9.2));
        // In this case the disk is the limit.
        let layers = [("compress", 1.0), ("wire", 0.02), ("write", 0.5)];
        assert_eq!(saved(&layers), Some(-5.0));
        // 2 s of the decompressors' 10 s are the codec's work.
        let layers = [("compress", 0.1), ("decompress", 1.0)];
        assert_eq!(saved(&layers), Some(-2.0));
    }

    #[test]
    fn a_layer_that_is_full_either_way_hides_the_codec() {
        assert_eq!(
            saved(&[("compress", 0.5), ("commit", 1.0), ("wire", 0.2)]),
            None
        );
        assert_eq!(saved(&[]), None);
        let plain = Progress {
            source_codecs: Vec::new(),
            ..copied(&[("wire", 1.0)])
        };
        assert_eq!(saved_seconds(&plain, true, None), None);
    }

    #[test]
    fn a_rate_limit_bounds_the_estimate() {
        // 200 MB in 10 s are all of 20 MB/s, and 800 MB need 40 s.
        let limit = "20MB/s".parse().ok();
        let seconds = saved_seconds(&copied(&[("compress", 0.4)]), true, limit);
        assert_eq!(seconds.map(f64::round), Some(30.0));
    }
}
