//! Formats the lines at the end of a transfer.

use std::time::Duration;

use crate::client::observer::{Limit, Outcome};
use crate::client::steering::Steered;
use crate::codecs;
use crate::manifest::hexadecimal;
use crate::planning::foresight::Explained;
use crate::planning::limiting::{
    FULL, USED_UP, all_layers, busiest, part_used, wire_bytes, without_holes,
};
use longhaul_engine::flows::LayerUse;
use longhaul_engine::send::stream::WholeStream;
use longhaul_engine::session::{Ending, PathUse, Progress};
use longhaul_model::control::Bound;
use longhaul_model::limit::Limit as Limiting;
use longhaul_proto::filter::LeftOut;
use longhaul_proto::handshake::Operation;
use longhaul_proto::message::Flows;
use longhaul_units::{BitRate, ByteCount, counted};

use crate::rate_limit::BandwidthLimit;

/// Minimum duration of a copy for a report of its limit. Shorter copies are dominated by their
/// start.
const EXPLAINED_FROM: Duration = Duration::from_secs(1);

/// Settings of a summary.
#[derive(Clone, Copy)]
struct Asked {
    /// Operation that was performed.
    operation: Operation,
    /// Rate limit of the transfer.
    limit: Limit,
    /// If true, includes layers, wire and decisions.
    detailed: bool,
    /// Last limit of the streams.
    bound: Option<Bound>,
}

/// Formats the outcome of a transfer; `detailed` adds layers, wire and decisions.
pub fn of_outcome(outcome: &Outcome<'_>, detailed: bool) -> Vec<String> {
    let asked = Asked {
        operation: outcome.operation,
        limit: outcome.limit,
        detailed,
        bound: outcome.steered.bound,
    };
    let [briefly, fully] = outcome.described.clone();
    let described = if detailed { fully } else { briefly };
    let mut lines = lines(&outcome.progress, outcome.ending, asked, described);
    lines.extend(stream_lines(outcome.steered, detailed));
    let explained = outcome.explained.as_ref();
    lines.extend(explained.map(Explained::lines).unwrap_or_default());
    if let Some(WholeStream { bytes, digest }) = outcome.pipe {
        let digest = hexadecimal(&digest);
        lines.push(format!(
            "the stream: {bytes} bytes, BLAKE3 {digest} (as b3sum prints it there)"
        ));
    }
    let what = match outcome.operation {
        Operation::Copy => "data",
        Operation::Verify => "checksums",
        Operation::DryRun => "names",
    };
    lines.extend(
        outcome
            .route
            .map_or_else(Vec::new, |route| route.lines(what)),
    );
    lines
}

/// Maximum number of decisions to show; the last ones were in effect until the end.
const SHOWN_DECISIONS: usize = 5;

/// Formats the number of streams, its reasons, and advice.
fn stream_lines(steered: &Steered, detailed: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let shown = if detailed { SHOWN_DECISIONS } else { 0 };
    let first = steered.decisions.len().saturating_sub(shown);
    for (at, decision) in &steered.decisions[first..] {
        let congestion = decision.congestion.as_ref();
        lines.push(format!(
            "after {:.1} s: {}{}: {}",
            at.as_secs_f64(),
            counted(decision.streams, "stream"),
            congestion.map_or(String::new(), |name| format!(" with {name}")),
            decision.reason
        ));
    }
    let first = steered.layers.len().saturating_sub(shown);
    for (at, flows) in &steered.layers[first..] {
        let seconds = at.as_secs_f64();
        lines.push(format!("after {seconds:.1} s: {}", flows_of_layers(flows)));
    }
    if let Some((asked, used)) = &steered.refused_congestion {
        lines.push(format!(
            "congestion control: {used}, because the sending host refused {asked}: load its module \
             there (`modprobe tcp_{asked}`) and add it to net.ipv4.tcp_allowed_congestion_control"
        ));
    }
    if let Some(advice) = &steered.advice {
        lines.push(advice.to_string());
    }
    lines
}

/// Formats the numbers of flows of the layers.
fn flows_of_layers(flows: &Flows) -> String {
    let named = [
        (flows.readers, "reader"),
        (flows.compressors, "compressor"),
        (flows.streams, "stream"),
        (flows.decompressors, "decompressor"),
        (flows.writers, "writer"),
        (flows.committers, "committer"),
    ];
    let parts = named.into_iter();
    let parts = parts.filter_map(|(flows, what)| Some(counted(flows?, what)));
    parts.collect::<Vec<_>>().join(", ")
}

fn lines(progress: &Progress, ending: &Ending, asked: Asked, described: String) -> Vec<String> {
    let Asked {
        operation,
        detailed,
        ..
    } = asked;
    if operation == Operation::DryRun {
        return planned_lines(progress, ending);
    }
    let complete = ending.totals.is_some();
    let mut lines = first_lines(progress, operation, complete);
    // In a comparison, `first_lines` includes the skipped entries.
    if progress.skipped_entries > 0 && operation != Operation::Verify {
        let (entries, bytes) = (progress.skipped_entries, ByteCount(progress.skipped_bytes));
        let entries = counted(entries, "file or link");
        lines.push(format!("already there: {entries}, {bytes}"));
    }
    lines.extend(failed_lines(progress, operation));
    lines.extend(left_out_line(progress.left_out));
    lines.extend(deleted_line(progress, "deleted at the destination"));
    if let Some(totals) = ending.totals.filter(|totals| totals.digests_read > 0) {
        let (files, bytes) = (totals.digests_read, ByteCount(totals.digest_bytes_read));
        lines.push(format!(
            "compared by content, as they were there already: {}, {bytes}",
            counted(files, "file")
        ));
    }
    if let Some(totals) = ending.totals.filter(|totals| totals.differed > 0) {
        lines.push(format!(
            "were there with the same size and other contents, and were copied: {}",
            counted(totals.differed, "file")
        ));
    }
    if progress.fixed_entries > 0 && operation == Operation::Copy {
        lines.push(format!(
            "owner, mode, time or attributes corrected, without data: {}",
            progress.fixed_entries
        ));
    }
    if let Some(totals) = ending.totals.filter(|totals| totals.expired > 0) {
        let count = totals.expired;
        lines.push(format!(
            "expired leftovers of killed copies removed: {count}"
        ));
    }
    // A comparison sends only checksums.
    let heard = complete || operation == Operation::Verify;
    if detailed || is_notable(progress) {
        lines.push(wire_line(progress, heard));
    }
    let saved = asked.limit.saved_seconds(progress, heard);
    lines.extend(codecs::report::lines(progress, detailed, saved));
    lines.extend(path_lines(&progress.paths));
    lines.push(described);
    if detailed {
        lines.push(format!("layers: {}", layers_line(progress)));
    }
    lines.extend(bound_lines(progress, heard, asked));
    lines
}

/// True if the user should know of an event on the wire, or of compression.
fn is_notable(progress: &Progress) -> bool {
    let compressed = progress.compression.0 > 0;
    compressed || progress.again_blocks > 0 || progress.lost_streams > 0
}

/// Formats the limit of the transfer: the requested rate, or else the full layer.
fn bound_lines(progress: &Progress, heard: bool, asked: Asked) -> Vec<String> {
    let Asked {
        limit, detailed, ..
    } = asked;
    let mut lines = Vec::new();
    // If the rate changed during the transfer, the used share of the last one is unknown.
    let steady = limit.rate.filter(|_| !limit.changed);
    let used = steady.map(|rate| (rate, part_used(progress, heard, rate)));
    if let Some((rate, used)) = used {
        lines.push(limit_line(rate, used));
    }
    if limit.changed {
        let last = limit
            .rate
            .map_or("none".to_owned(), |rate| rate.to_string());
        lines.push(format!(
            "--bwlimit was changed while it ran; the last was {last}"
        ));
    }
    let layers: Vec<LayerUse> = all_layers(progress).copied().collect();
    let bound = used.is_some_and(|(_, used)| used >= USED_UP);
    if let Some(layer) = busiest(&layers).filter(|_| !bound) {
        let percent = 100.0 * layer.utilisation;
        let full = layer.utilisation >= FULL;
        let limited = if full {
            "limited by"
        } else {
            "no layer was full, the busiest"
        };
        if detailed || full && progress.elapsed >= EXPLAINED_FROM {
            let named = Limiting::of_layer(layer.layer, asked.bound).filter(|_| full);
            lines.push(match named.filter(|it| it.name() != layer.layer) {
                Some(limit) => format!(
                    "{limited}: {limit} ({} busy {percent:.0} % of the time)",
                    layer.layer
                ),
                None => format!(
                    "{limited}: {} (busy {percent:.0} % of the time)",
                    layer.layer
                ),
            });
        }
    }
    lines
}

/// Formats the amount of data at the destination and the rate. For an incomplete copy, files
/// without a final name count too, as in the progress line.
fn first_lines(progress: &Progress, operation: Operation, complete: bool) -> Vec<String> {
    let resumed = progress.account.resumed_bytes;
    let (verb, whole) = match (operation, complete) {
        (Operation::Verify, true) => ("the same", progress.done_bytes),
        (_, true) => ("copied", progress.done_bytes),
        (_, false) => ("so far", progress.settled_bytes + resumed),
    };
    let durable = match (operation, complete) {
        (Operation::Copy, false) => " durable",
        _ => "",
    };
    let seconds = progress.elapsed.as_secs_f64();
    let arrived = whole.saturating_sub(resumed);
    let now = without_holes(arrived, progress);
    let goodput = BitRate::from_transfer(ByteCount(now), progress.elapsed);
    let rate = ByteCount((now as f64 / seconds.max(1e-9)) as u64);
    let whole = ByteCount(whole);
    let waits = progress.files == 0 && progress.failed_entries == 0;
    let mut lines = vec![match (operation, complete, waits) {
        (Operation::Copy, false, true) => format!(
            "so far: {whole} moved and durable in {seconds:.1} s ({rate}/s, {goodput}); no file \
             is complete yet"
        ),
        _ => format!(
            "{verb}: {}, {whole}{durable} in {seconds:.1} s ({rate}/s, {goodput})",
            counted(progress.files, "file"),
        ),
    }];
    if resumed > 0 {
        lines.push(format!(
            "durable before, by an earlier attempt: {}, which is in no rate",
            ByteCount(resumed)
        ));
    }
    if now < arrived {
        lines.push(format!(
            "holes, which are in no rate: {}",
            ByteCount(arrived - now)
        ));
    }
    lines
}

/// Formats the failures. In a comparison, a difference counts separately from a failure to compare.
fn failed_lines(progress: &Progress, operation: Operation) -> Vec<String> {
    let (failed, differing) = (progress.failed_entries, progress.differing_entries);
    let counts = match operation {
        Operation::Verify => [
            (differing, "differ"),
            (failed.saturating_sub(differing), "could not be compared"),
        ],
        Operation::Copy | Operation::DryRun => [(failed, "failed"), (0, "")],
    };
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    counts
        .map(|(count, what)| format!("{what}: {count}"))
        .collect()
}

fn limit_line(limit: BandwidthLimit, used: f64) -> String {
    let percent = 100.0 * used;
    if used >= USED_UP {
        format!("limited by: --bwlimit {limit} ({percent:.0} % of it used)")
    } else {
        format!("--bwlimit {limit} was not the limit ({percent:.0} % of it used)")
    }
}

/// Formats the entries that a copy would copy, by kind.
fn would_copy(progress: &Progress) -> String {
    let (new, changed) = (progress.new_entries, progress.changed_entries);
    if new + changed == 0 {
        return "would copy: nothing".to_owned();
    }
    let (files, directories) = (progress.planned_files, progress.planned_directories);
    let others = (new + changed).saturating_sub(files + directories);
    let kinds = [
        (files, "file", "files"),
        (others, "link or device", "links or devices"),
        (directories, "directory", "directories"),
    ];
    let kinds = kinds.iter().filter(|(count, ..)| *count > 0);
    let kinds: Vec<String> = kinds
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    format!(
        "would copy: {}, {} ({new} new, {changed} changed)",
        kinds.join(", "),
        ByteCount(progress.planned_bytes)
    )
}

/// Formats the actions of a dry run. Existing directories are not counted.
fn planned_lines(progress: &Progress, ending: &Ending) -> Vec<String> {
    let so_far = if ending.totals.is_some() {
        ""
    } else {
        ", so far"
    };
    let mut lines = vec![
        would_copy(progress) + so_far,
        format!(
            "already there: {}, {}",
            counted(progress.skipped_entries, "file or link"),
            ByteCount(progress.skipped_bytes)
        ),
    ];
    if progress.fixed_entries > 0 {
        let count = progress.fixed_entries;
        lines.push(format!(
            "would get another owner, mode, time or attributes, without data: {count}"
        ));
    }
    if progress.failed_entries > 0 {
        lines.push(format!("would fail: {}", progress.failed_entries));
    }
    lines.extend(left_out_line(progress.left_out));
    lines.extend(deleted_line(
        progress,
        "would be deleted at the destination",
    ));
    lines.push("dry run: nothing was moved; -v names what would be copied".to_owned());
    lines
}

/// Formats the counts of excluded entries; `None` without such entries.
fn left_out_line(left_out: LeftOut) -> Option<String> {
    let LeftOut {
        rules,
        size,
        time,
        depth,
        file_systems,
        specials,
        newer,
        missing,
        existing,
    } = left_out;
    let parts = [
        (rules, "by filters"),
        (size, "by size"),
        (time, "by time"),
        (depth, "directories' contents by depth"),
        (file_systems, "mount points' contents"),
        (specials, "devices, sockets or FIFOs"),
        (newer, "newer at the destination"),
        (missing, "not at the destination"),
        (existing, "at the destination already"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
}

/// Formats the count of deleted entries; `None` without such entries.
fn deleted_line(progress: &Progress, what: &str) -> Option<String> {
    let (count, bytes) = (progress.deleted_entries, ByteCount(progress.deleted_bytes));
    (count > 0).then(|| format!("{what}: {}, {bytes}", counted(count, "name")))
}

fn wire_line(progress: &Progress, complete: bool) -> String {
    let mut line = format!(
        "on the wire: {}, {} segments sent again",
        ByteCount(wire_bytes(progress, complete)),
        progress.retransmitted
    );
    let (from, to) = progress.compression;
    if from > 0 && to > 0 {
        line += &format!(", compressed {:.2} times", from as f64 / to as f64);
    }
    if progress.again_blocks > 0 {
        line += &format!(
            ", {} arrived wrong and came again",
            counted(progress.again_blocks, "block")
        );
    }
    if progress.lost_streams > 0 {
        let lost = counted(progress.lost_streams, "stream");
        line += &format!(", {lost} lost and replaced");
    }
    line
}

/// Formats the traffic of each path, if there are several.
fn path_lines(paths: &[PathUse]) -> Vec<String> {
    let line = |path: &PathUse| {
        format!(
            "path {} - {}: {}, {} sent, {} received, round trip {:.1} ms",
            path.local,
            path.peer,
            counted(path.streams, "stream"),
            path.acknowledged,
            path.received,
            path.rtt.as_secs_f64() * 1e3
        )
    };
    match paths {
        [] | [_] => Vec::new(),
        paths => paths.iter().map(line).collect(),
    }
}

fn layers_line(progress: &Progress) -> String {
    let shown: Vec<String> = all_layers(progress)
        .map(|layer| {
            format!(
                "{} {}x {:.0} %",
                layer.layer,
                layer.flows,
                100.0 * layer.utilisation
            )
        })
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_entries_have_a_separate_line() {
        assert_eq!(left_out_line(LeftOut::default()), None);
        let left_out = LeftOut {
            rules: 3,
            size: 1,
            specials: 2,
            ..LeftOut::default()
        };
        let expected = "left out: 3 by filters, 1 by size, 2 devices, sockets or FIFOs";
        assert_eq!(left_out_line(left_out).as_deref(), Some(expected));
    }

    #[test]
    fn holes_are_in_no_rate() {
        let progress = Progress {
            elapsed: std::time::Duration::from_secs(2),
            done_bytes: 10_000_000_000,
            hole_bytes: 9_998_000_000,
            files: 1,
            ..Progress::default()
        };
        let lines = first_lines(&progress, Operation::Copy, true);
        let expected = "copied: 1 file, 10.0 GB in 2.0 s (1.00 MB/s";
        assert!(lines[0].starts_with(expected), "{lines:?}");
        assert_eq!(lines[1], "holes, which are in no rate: 10.0 GB");
    }

    #[test]
    fn resumed_bytes_are_in_no_rate() {
        let mut progress = Progress {
            elapsed: std::time::Duration::from_secs(2),
            done_bytes: 3_000_000,
            settled_bytes: 2_000_000,
            files: 1,
            ..Progress::default()
        };
        progress.account.resumed_bytes = 1_000_000;
        let lines = first_lines(&progress, Operation::Copy, true);
        assert!(
            lines[0].starts_with("copied: 1 file, 3.00 MB in 2.0 s (1.00 MB/s"),
            "{lines:?}"
        );
        assert!(lines[1].contains("earlier attempt: 1.00 MB"), "{lines:?}");
        (progress.files, progress.done_bytes) = (0, 0);
        let lines = first_lines(&progress, Operation::Copy, false);
        let expected = "so far: 3.00 MB moved and durable in 2.0 s (1.00 MB/s";
        assert!(lines[0].starts_with(expected), "{lines:?}");
        assert!(lines[0].ends_with("no file is complete yet"), "{lines:?}");
        progress.files = 1;
        let lines = first_lines(&progress, Operation::Copy, false);
        let expected = "so far: 1 file, 3.00 MB durable in 2.0 s (1.00 MB/s";
        assert!(lines[0].starts_with(expected), "{lines:?}");
    }

    #[test]
    fn a_comparison_has_differences_and_a_copy_failures() {
        let progress = Progress {
            failed_entries: 3,
            differing_entries: 2,
            ..Progress::default()
        };
        let lines = failed_lines(&progress, Operation::Verify);
        assert_eq!(lines, ["differ: 2", "could not be compared: 1"]);
        assert_eq!(failed_lines(&progress, Operation::Copy), ["failed: 3"]);
        assert!(failed_lines(&Progress::default(), Operation::Verify).is_empty());
    }

    #[test]
    fn a_dry_run_counts_entries_by_kind() {
        let mut progress = Progress {
            new_entries: 4,
            changed_entries: 1,
            planned_files: 2,
            planned_directories: 1,
            planned_bytes: 3_000,
            ..Progress::default()
        };
        assert_eq!(
            would_copy(&progress),
            "would copy: 2 files, 2 links or devices, 1 directory, 3.00 kB (4 new, 1 changed)"
        );
        progress.new_entries = 0;
        progress.changed_entries = 0;
        assert_eq!(would_copy(&progress), "would copy: nothing");
    }

    #[test]
    fn a_small_copy_has_a_short_summary_and_details_on_request() {
        let layer = LayerUse {
            layer: "write",
            flows: 2,
            busy: 0,
            utilisation: 0.95,
        };
        let mut progress = Progress {
            elapsed: Duration::from_millis(100),
            done_bytes: 2,
            files: 1,
            layers: vec![layer],
            ..Progress::default()
        };
        let ending = Ending {
            farewell: longhaul_proto::message::Farewell::Complete,
            totals: Some(longhaul_proto::message::Totals::default()),
            notices: Vec::new(),
        };
        let said = |progress: &Progress, detailed| {
            let asked = Asked {
                operation: Operation::Copy,
                limit: Limit::default(),
                detailed,
                bound: None,
            };
            lines(progress, &ending, asked, "verified; encrypted".to_owned())
        };
        let brief = said(&progress, false);
        assert!(brief[0].starts_with("copied: 1 file, 2 B"), "{brief:?}");
        assert_eq!(brief[1..], ["verified; encrypted"]);
        let detailed = said(&progress, true).join("\n");
        for part in ["on the wire", "layers: write 2x 95 %", "limited by: write"] {
            assert!(detailed.contains(part), "{detailed}");
        }
        // For a longer copy the summary names the limit.
        progress.elapsed = Duration::from_secs(20);
        assert_eq!(
            said(&progress, false)[2..],
            ["limited by: write (busy 95 % of the time)"]
        );
        progress.again_blocks = 1;
        assert!(said(&progress, false)[1].contains("1 block arrived wrong"));
    }

    #[test]
    fn decisions_are_details_and_advice_is_not() {
        let steered = Steered {
            refused_congestion: Some(("bbr".into(), "cubic".into())),
            ..Steered::default()
        };
        let lines = stream_lines(&steered, false);
        assert!(
            lines[0].starts_with("congestion control: cubic"),
            "{lines:?}"
        );
        let flows = Flows {
            readers: Some(2),
            writers: Some(1),
            ..Flows::default()
        };
        let steered = Steered {
            layers: vec![(Duration::from_millis(5250), flows)],
            ..Steered::default()
        };
        assert!(stream_lines(&steered, false).is_empty());
        let lines = stream_lines(&steered, true);
        assert_eq!(lines, ["after 5.2 s: 2 readers, 1 writer"]);
    }

    #[test]
    fn a_rate_is_the_limit_if_it_is_used_up() {
        let limit: BandwidthLimit = "1MB/s".parse().unwrap();
        let used = limit_line(limit, 0.97);
        assert_eq!(used, "limited by: --bwlimit 1.00 MB/s (97 % of it used)");
        let idle = limit_line(limit, 0.5);
        assert_eq!(
            idle,
            "--bwlimit 1.00 MB/s was not the limit (50 % of it used)"
        );
    }
}
