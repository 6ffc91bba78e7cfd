//! Formats a probe's result as JSON (FORMAT.md, "Probes").

use longhaul_measure::host::HostDescription;
use serde_json::{Value, json};

use super::result::{PathResult, Probe, Way};
use super::text::ends;
use super::trial::{EndFacts, Trial};

/// Version of the JSON object.
const SCHEMA: u32 = 1;

/// Returns the JSON object.
pub fn json(probe: &Probe) -> Value {
    json!({
        "schema": SCHEMA,
        "kind": "probe",
        "endpoint": probe.endpoint,
        "software": probe.software,
        "security": probe.protection,
        "started": probe.started,
        "paths": probe.paths.iter().map(|path| path_json(probe, path)).collect::<Vec<_>>(),
        "external": probe.external.iter().map(|(file, run)| json!({
            "file": file,
            "tool": run.tool,
            "version": run.version,
            "direction": run.direction.map(|direction| direction.name()),
            "bidirectional": run.bidirectional,
            "bytes": run.moved.0,
            "wall_seconds": run.wall.as_secs_f64(),
            "bits_per_second": run.throughput.bits_per_second(),
            "streams": run.streams,
            "retransmitted_segments": run.retransmitted_segments,
            "rtt_seconds": run.rtt.map(|rtt| rtt.as_secs_f64()),
            "congestion_control": run.congestion_control,
            "doubts": run.doubts,
        })).collect::<Vec<_>>(),
    })
}

fn path_json(probe: &Probe, path: &PathResult) -> Value {
    let trips = path.distribution();
    json!({
        "address": path.address.to_string(),
        "local": path.local.map(|ip| ip.to_string()),
        "failure": path.failure,
        "rtt_seconds": trips.map(|trips| json!({
            "least": trips.least,
            "median": trips.median,
            "quantile_95": trips.high,
            "greatest": trips.greatest,
            "all": path.round_trips,
        })),
        "segment_bytes": path.segment,
        "path_mtu_bytes": path.path_mtu,
        "timestamps": path.options.timestamps,
        "selective_acknowledgements": path.options.selective,
        "window_scaling": path.options.scaling,
        "clock": path.clock.map(|clock| json!({
            "ahead_seconds": clock.ahead,
            "uncertainty_seconds": clock.uncertainty,
        })),
        "here": ends(path).map(|ends| end_json(ends.0, Some(&probe.host))),
        "daemon": ends(path).map(|ends| end_json(ends.1, path.host.as_ref())),
        "directions": path.ways.iter().map(|way| way_json(path, way)).collect::<Vec<_>>(),
    })
}

fn end_json(end: &EndFacts, host: Option<&HostDescription>) -> Value {
    json!({
        "congestion_control": end.congestion,
        "congestion_controls": end.congestions,
        "tcp_wmem_bytes": end.send_buffer,
        "tcp_rmem_bytes": end.receive_buffer,
        "cores": end.cores,
        "host": host,
    })
}

fn way_json(path: &PathResult, way: &Way) -> Value {
    let best = way.best();
    let advice = path.advice(way).into_iter().map(|advice| {
        let remedies = advice.remedies.iter().map(|remedy| {
            json!({
                "host": remedy.host,
                "sysctl": remedy.sysctl,
                "value": remedy.value,
                "one_stream_bits_per_second": remedy.one_stream.map(|bytes| bytes * 8.0),
            })
        });
        json!({
            "topic": advice.topic,
            "text": advice.text,
            "remedies": remedies.collect::<Vec<_>>(),
        })
    });
    let by_streams = way.counts().into_iter().map(|streams| {
        json!({
            "streams": streams,
            "trials": way.of(streams).count(),
            "settled_bits_per_second": way.median(streams, |trial| trial.settled) * 8.0,
            "bits_per_second": way.median(streams, |trial| trial.bytes_per_second) * 8.0,
            "retransmission_rate": way.median(streams, Trial::retransmission_rate),
            "loss_rate": way.median_if_any(streams, Trial::loss_rate),
        })
    });
    json!({
        "direction": way.direction.name(),
        "by_streams": by_streams.collect::<Vec<_>>(),
        "capacity_at_least_bits_per_second": best.map(|best| best.1 * 8.0),
        "streams": best.map(|best| best.0),
        "trials": way.trials.iter().map(trial_json).collect::<Vec<_>>(),
        "advice": advice.collect::<Vec<_>>(),
        "doubts": way.doubts(path),
    })
}

fn trial_json(trial: &Trial) -> Value {
    json!({
        "streams": trial.streams,
        "most_streams": trial.most_streams,
        "bytes": trial.bytes,
        "wall_seconds": trial.wall.as_secs_f64(),
        "bits_per_second": trial.bytes_per_second * 8.0,
        "settled_bits_per_second": trial.settled * 8.0,
        "segment_bytes": trial.segment,
        "segments": trial.segments,
        "sent_segments": trial.sent,
        "retransmitted_segments": trial.retransmitted,
        "retransmitted_bytes": trial.retransmitted_bytes,
        "duplicate_segments": trial.duplicates,
        "lost_segments": trial.lost,
        "lost_segments_at_end": trial.lost_at_end,
        "retransmission_rate": trial.retransmission_rate(),
        "loss_rate": trial.loss_rate(),
        "rtt_seconds": trial.rtt.as_secs_f64(),
        "window_limited": trial.window_limited,
        "buffer_limited": trial.buffer_limited,
        "sender_busy": trial.processors[0],
        "receiver_busy": trial.processors[1],
    })
}
