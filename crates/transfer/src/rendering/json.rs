//! Renders the events of a transfer as JSON objects, which `cp --json` prints on one line each.
//! Each has `schema` and `event`. FORMAT.md lists the events and their fields. The meaning of a
//! field never changes within a schema.

use std::time::Duration;

use longhaul_engine::flows::LayerUse;
use longhaul_engine::send::stream::WholeStream;
use longhaul_engine::session::{Event, PathUse, Progress};
use longhaul_model::control::Decision;
use longhaul_model::limit::Limit;
use longhaul_proto::criteria::Held;
use longhaul_proto::digest::Checksum;
use longhaul_proto::filter::LeftOut;
use longhaul_proto::listing::{ListedEntry, ListedKind};
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Change, Flows};
use longhaul_units::rfc3339;
use serde_json::{Value, json};

use super::notices;
use crate::between_hosts::job_protocol::{Listed as ListedJob, State};
use crate::client::observer::{Again, Outcome};
use crate::manifest::hexadecimal;
use crate::planning::foresight::Foreseen;
use crate::rate_limit::BandwidthLimit;
use crate::running::RunningHere;
use crate::{codecs, entry_log};

/// Version of the events.
const SCHEMA: u32 = 1;

/// A path as in JSON: a string, or its bytes.
pub fn name_of(path: &TreePath) -> Value {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(path) => json!(path),
        // Bytes that are no UTF-8 cannot be a JSON string.
        Err(_) => json!({ "bytes": path.as_bytes() }),
    }
}

fn digest_of(digest: Option<&Checksum>) -> Value {
    match digest {
        Some(Checksum::Blake3(digest)) => json!(hexadecimal(digest)),
        _ => Value::Null,
    }
}

/// Returns the event of a stream of data that was copied completely.
pub fn stream(whole: &WholeStream) -> Value {
    json!({
        "schema": SCHEMA, "event": "committed", "path": "-", "size": whole.bytes,
        "file": true, "blake3": hexadecimal(&whole.digest),
    })
}

/// A try failed, and is followed by another one.
pub fn again(again: &Again<'_>) -> Value {
    json!({
        "schema": SCHEMA, "event": "again", "try": again.failed, "tries": again.tries,
        "exit": again.exit.code(), "text": again.text, "pause_seconds": again.pause.as_secs_f64(),
    })
}

/// A copy that runs on this host and is no job.
pub fn running(of: &RunningHere) -> Value {
    match of {
        RunningHere::Copy(copy) => json!({
            "schema": SCHEMA, "event": "running", "process": copy.process, "from": copy.from,
            "to": copy.to, "bwlimit_bytes_per_second": copy.bwlimit_bytes_per_second,
        }),
        RunningHere::Job(job) => json!({
            "schema": SCHEMA, "event": "running", "job": job.name, "from": job.from, "to": job.to,
            "bwlimit_bytes_per_second": job.bwlimit_bytes_per_second,
        }),
    }
}

/// Returns the event of an entry. A comparison commits no entry: `Committed` means that the entry
/// is the same at both ends.
pub fn event(of: &Event, compares: bool) -> Value {
    let mut value = event_of_copy(of);
    if compares && matches!(of, Event::Committed { .. }) {
        value["event"] = json!("compared");
    }
    value
}

/// Returns the event of an entry whose data are at the destination.
fn with_data(
    event: &str,
    path: &TreePath,
    size: u64,
    file: bool,
    digest: Option<&Checksum>,
) -> Value {
    json!({
        "schema": SCHEMA, "event": event, "path": name_of(path), "size": size, "file": file,
        "blake3": digest_of(digest),
    })
}

fn event_of_copy(event: &Event) -> Value {
    match event {
        Event::Committed {
            path,
            size,
            file,
            digest,
        } => with_data("committed", path, *size, *file, digest.as_ref()),
        Event::Skipped {
            path,
            size,
            file,
            digest,
        } => with_data("skipped", path, *size, *file, digest.as_ref()),
        Event::Mended {
            path,
            size,
            file,
            digest,
            ..
        } => with_data("attributes", path, *size, *file, digest.as_ref()),
        Event::Left { .. }
        | Event::Omitted { .. }
        | Event::Deleted { .. }
        | Event::Undeleted { .. } => kept(event),
        Event::Planned {
            path,
            size,
            file,
            change,
            ..
        } => json!({
            "schema": SCHEMA, "event": "planned", "path": name_of(path), "size": size,
            "file": file, "change": match change {
                Change::New => "new",
                Change::Changed => "changed",
                Change::Attributes => "attributes",
            },
        }),
        Event::Failed { path, failure } => json!({
            "schema": SCHEMA, "event": "failed", "path": path.as_ref().map(name_of),
            "kind": format!("{:?}", failure.kind), "text": failure.text,
        }),
        Event::Resumed {
            path,
            size,
            durable,
        } => json!({
            "schema": SCHEMA, "event": "resumed", "path": name_of(path), "size": size,
            "durable": durable,
        }),
        Event::Durable {
            path,
            size,
            durable,
        } => json!({
            "schema": SCHEMA, "event": "durable", "path": name_of(path), "size": size,
            "durable": durable,
        }),
        Event::Damaged {
            path,
            piece,
            entries,
        } => json!({
            "schema": SCHEMA, "event": "damaged", "path": name_of(path), "entries": entries,
            "offset": piece.map(|(offset, _)| offset), "length": piece.map(|(_, length)| length),
        }),
        Event::StreamDamaged { stream, error } => json!({
            "schema": SCHEMA, "event": "stream_damaged", "stream": stream, "text": error,
        }),
    }
}

/// Returns the event of a name at the destination that was not copied.
fn kept(event: &Event) -> Value {
    match event {
        Event::Left {
            path,
            size,
            file,
            held,
        } => json!({
            "schema": SCHEMA, "event": "left", "path": name_of(path), "size": size,
            "file": file, "reason": match held {
                Held::Newer => "newer",
                Held::Missing => "missing",
                Held::Exists => "exists",
            },
        }),
        Event::Deleted {
            path,
            size,
            directory,
            planned,
        } => json!({
            "schema": SCHEMA, "event": "deleted", "path": name_of(path), "size": size,
            "directory": directory, "planned": planned,
        }),
        Event::Omitted { path, reason, rule } => json!({
            "schema": SCHEMA, "event": "omitted", "path": name_of(path),
            "reason": entry_log::omitted(*reason), "rule": rule,
        }),
        Event::Undeleted { failure } => json!({
            "schema": SCHEMA, "event": "undeleted", "kind": format!("{:?}", failure.kind),
            "text": failure.text,
        }),
        _ => Value::Null,
    }
}

fn layers(list: &[LayerUse]) -> Value {
    list.iter()
        .map(|layer| {
            json!({
                "layer": layer.layer, "flows": layer.flows, "utilisation": layer.utilisation,
            })
        })
        .collect()
}

fn path(path: &PathUse) -> Value {
    json!({
        "local": path.local,
        "peer": path.peer,
        "streams": path.streams,
        "sent_bytes": path.acknowledged.0,
        "received_bytes": path.received.0,
        "retransmitted_segments": path.retransmitted,
        "rtt_seconds": path.rtt.as_secs_f64(),
        "minimum_rtt_seconds": path.minimum_rtt.map(|rtt| rtt.as_secs_f64()),
        "window_bytes": path.window.0,
    })
}

fn left_out(left_out: LeftOut) -> Value {
    json!({
        "rules": left_out.rules, "size": left_out.size, "time": left_out.time,
        "depth": left_out.depth, "file_systems": left_out.file_systems,
        "specials": left_out.specials, "newer": left_out.newer, "missing": left_out.missing,
        "existing": left_out.existing,
    })
}

fn fields(progress: &Progress) -> Value {
    json!({
        "schema": SCHEMA,
        "seconds": progress.elapsed.as_secs_f64(),
        "entries": progress.done_entries,
        "files": progress.files,
        "bytes": progress.done_bytes,
        "skipped_entries": progress.skipped_entries,
        "skipped_bytes": progress.skipped_bytes,
        "new_entries": progress.new_entries,
        "changed_entries": progress.changed_entries,
        "planned_bytes": progress.planned_bytes,
        "failed_entries": progress.failed_entries,
        "deleted_entries": progress.deleted_entries,
        "deleted_bytes": progress.deleted_bytes,
        "left_out": left_out(progress.left_out),
        "known_entries": progress.walked_entries,
        "known_bytes": progress.walked_bytes,
        "walk_ended": progress.walk_ended,
        "read_bytes": progress.read_bytes,
        "hole_bytes": progress.hole_bytes,
        "uncopied_bytes": progress.uncopied_bytes,
        "discarded_bytes": progress.account.discarded_bytes,
        "moved_bytes": progress.account.moved_bytes,
        "arrived_bytes": progress.account.arrived_bytes,
        "moved_again_bytes": progress.account.moved_again_bytes,
        "moved_files": progress.account.moved_files,
        "durable_bytes": progress.account.durable_bytes,
        "resumed_bytes": progress.account.resumed_bytes,
        "wire_bytes": progress.wire_bytes,
        "block_bytes": progress.block_bytes,
        "streams": progress.streams,
        "lost_streams": progress.lost_streams,
        "corrupt_blocks": progress.again_blocks,
        "retransmitted_segments": progress.retransmitted,
        "compression": [progress.compression.0, progress.compression.1],
        "codecs": codecs::report::value(progress, None),
        "paths": progress.paths.iter().map(path).collect::<Vec<Value>>(),
        "layers": layers(&progress.layers),
        "peer_layers": layers(&progress.peer_layers),
    })
}

/// Returns the event of the progress.
pub fn progress(progress: &Progress) -> Value {
    let mut value = fields(progress);
    value["event"] = json!("progress");
    let silence = progress.silence.map(|silence| silence.span.as_secs_f64());
    value["silent_seconds"] = json!(silence);
    value
}

fn decision((at, decision): &(Duration, Decision)) -> Value {
    json!({
        "seconds": at.as_secs_f64(),
        "streams": decision.streams,
        "congestion": decision.congestion.as_ref().map(ToString::to_string),
        "pace_bytes_per_second": decision.pace,
        "reason": decision.reason.to_string(),
    })
}

fn layer_decision((at, flows): &(Duration, Flows)) -> Value {
    json!({
        "seconds": at.as_secs_f64(), "readers": flows.readers, "compressors": flows.compressors,
        "streams": flows.streams, "decompressors": flows.decompressors, "writers": flows.writers,
        "committers": flows.committers,
    })
}

/// Returns the event of the forecast.
pub fn plan(foreseen: &Foreseen) -> Value {
    let mut value = foreseen.to_json();
    value["schema"] = json!(SCHEMA);
    value["event"] = json!("plan");
    value
}

/// Returns the event of the end.
pub fn summary(outcome: &Outcome<'_>) -> Value {
    let Outcome {
        progress,
        ending,
        steered,
        route,
        limit,
        ..
    } = outcome;
    let mut value = fields(progress);
    value["event"] = json!("summary");
    value["ending"] = json!(format!("{:?}", ending.farewell));
    value["complete"] = json!(ending.totals.is_some());
    value["decisions"] = steered.decisions.iter().map(decision).collect();
    value["layer_decisions"] = steered.layers.iter().map(layer_decision).collect();
    value["advice"] = json!(steered.advice.map(|advice| advice.to_string()));
    let limit = limit.rate.map(BandwidthLimit::bytes_per_second);
    value["limit"] = json!(outcome.limited_by().map(Limit::name));
    let saved = outcome.limit.saved_seconds(progress, outcome.is_heard());
    value["codecs"]["saved_seconds"] = json!(saved);
    if let Some(explained) = &outcome.explained {
        value["plan"] = explained.to_json();
    }
    value["bwlimit_bytes_per_second"] = json!(limit);
    if let Some(route) = route {
        value["route"] = json!(route.name());
        value["between"] = json!(route.between.as_ref().map(|between| {
            let (from, to) = between.flow();
            let (dialer, dialled) = route.dialled().unzip();
            json!({ "from": from, "to": to, "dialer": dialer, "dialled": dialled })
        }));
    }
    let totals = ending.totals.unwrap_or_default();
    value["digests_read"] = json!(totals.digests_read);
    value["contents_differed"] = json!(totals.differed);
    value["fixed_entries"] = json!(progress.fixed_entries);
    value["expired_leftovers"] = json!(totals.expired);
    value["digest_bytes_read"] = json!(totals.digest_bytes_read);
    value["notices"] = ending.notices.iter().map(notices::value).collect();
    value
}

/// An entry of a listing.
pub fn listed(entry: &ListedEntry) -> Value {
    let details = entry.details.as_ref();
    let target = details.and_then(|details| details.target.as_ref());
    json!({
        "schema": SCHEMA,
        "path": name_of(&entry.path),
        "kind": match entry.kind {
            ListedKind::File => "file",
            ListedKind::Directory => "directory",
            ListedKind::Symlink => "link",
            ListedKind::Special => "special",
        },
        "mode": details.map(|details| format!("{:04o}", details.mode)),
        "size": details.map(|details| details.size),
        "modified": details.map(|details| rfc3339(details.modified.seconds)),
        "modified_nanoseconds": details.map(|details| details.modified.nanoseconds),
        "target": target.map(|target| text_or_bytes(target)),
    })
}

fn text_or_bytes(bytes: &[u8]) -> Value {
    match (std::str::from_utf8(bytes), TreePath::new(bytes)) {
        (_, Ok(path)) => name_of(&path),
        (Ok(text), _) => json!(text),
        _ => json!({ "bytes": bytes }),
    }
}

/// A job, as the host that was asked lists it.
pub fn job(host: &str, job: &ListedJob) -> Value {
    let (state, code) = match job.state {
        State::Running => ("running", None),
        State::Ended(code) => ("ended", Some(code)),
        State::Lost => ("killed", None),
        State::Elsewhere => ("elsewhere", None),
    };
    json!({
        "schema": SCHEMA, "job": job.name, "host": host, "runs_on": job.host, "state": state,
        "exit": code, "began": job.began_at(), "command": job.command(),
        "from": job.from, "to": job.to, "done_bytes": job.done_bytes,
        "bwlimit_bytes_per_second": job.bwlimit_bytes_per_second,
    })
}
