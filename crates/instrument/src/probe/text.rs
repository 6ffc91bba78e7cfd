//! Formats a probe's result as text.

use std::fmt::Write;

use longhaul_measure::sources::Direction;
use longhaul_model::advice::WINDOW_MARGIN;
use longhaul_units::{BitRate, ByteCount};

use super::result::{PathResult, Probe, Way, busiest};
use super::trial::{EndFacts, Trial};

/// Formats all results.
pub fn text(probe: &Probe) -> String {
    let mut text = String::new();
    for path in &probe.paths {
        path_text(&mut text, probe, path);
    }
    for (file, run) in &probe.external {
        // Some tools report neither version nor congestion control.
        let tool = [run.tool.as_str(), &run.version].join(" ");
        let _ = write!(
            text,
            "{file} ({}){}: {} in {:.1} s, {} streams",
            tool.trim_end(),
            match (run.direction, run.bidirectional) {
                (Some(Direction::From), false) => ", from the far end",
                (Some(Direction::From), true) => ", from the far end in both directions at once",
                (_, true) => ", to the far end in both directions at once",
                (_, false) => "",
            },
            run.throughput,
            run.wall.as_secs_f64(),
            run.streams
        );
        if !run.congestion_control.is_empty() {
            let _ = write!(text, ", {}", run.congestion_control);
        }
        if let Some(count) = run.retransmitted_segments {
            let _ = write!(text, ", {count} segments retransmitted");
        }
        text.push('\n');
        for doubt in &run.doubts {
            let _ = writeln!(text, "  doubt: {doubt}: {}", doubt.advice());
        }
    }
    text
}

fn path_text(text: &mut String, probe: &Probe, path: &PathResult) {
    let name = probe.endpoint.as_deref().unwrap_or_default();
    let from = path.local.map_or(String::new(), |ip| format!(" from {ip}"));
    let _ = match probe.software.as_str() {
        // The probe opened no session.
        "" => writeln!(text, "{name}: {}{from}", path.address),
        software => writeln!(text, "{name}: {}{from} ({software})", path.address),
    };
    if let Some(failure) = &path.failure {
        let _ = writeln!(text, "  not measured: {failure}\n");
        return;
    }
    if let Some(trips) = path.distribution() {
        let _ = writeln!(
            text,
            "  round trip   {:.2} ms least, {:.2} median, {:.2} at 95 of 100, {:.2} greatest \
             ({} connections)",
            trips.least * 1e3,
            trips.median * 1e3,
            trips.high * 1e3,
            trips.greatest * 1e3,
            path.round_trips.len()
        );
    }
    let option = |has: bool, name: &str| format!("{}{name}", if has { "" } else { "no " });
    let _ = writeln!(
        text,
        "  segments     {} bytes, path MTU {}; {}, {}, {}",
        path.segment,
        path.path_mtu,
        option(path.options.timestamps, "time stamps"),
        option(path.options.selective, "selective acknowledgements"),
        option(path.options.scaling, "window scaling")
    );
    if let Some(clock) = path.clock {
        let _ = writeln!(
            text,
            "  clock        the daemon's is {:.1} ms {} (known to {:.1} ms)",
            clock.ahead.abs() * 1e3,
            if clock.ahead < 0.0 { "behind" } else { "ahead" },
            clock.uncertainty * 1e3
        );
    }
    if let Some((here, there)) = ends(path) {
        let _ = writeln!(text, "  here         {}", end_text(here));
        let _ = writeln!(text, "  daemon       {}", end_text(there));
    }
    for way in &path.ways {
        way_text(text, probe, path, way);
    }
    text.push('\n');
}

/// Returns the facts about this host and the daemon's host, from the first direction.
pub fn ends(path: &PathResult) -> Option<(&EndFacts, &EndFacts)> {
    let way = path.ways.first()?;
    Some(match way.direction {
        Direction::To => (&way.sender, &way.receiver),
        Direction::From => (&way.receiver, &way.sender),
    })
}

fn end_text(end: &EndFacts) -> String {
    let bytes =
        |value: Option<u64>| value.map_or("unknown".to_owned(), |b| ByteCount(b).to_string());
    format!(
        "{} (has {}); tcp_wmem to {}, tcp_rmem to {}; {} cores",
        end.congestion,
        end.congestions.join(", "),
        bytes(end.send_buffer),
        bytes(end.receive_buffer),
        end.cores
    )
}

fn rate(bytes_per_second: f64) -> String {
    BitRate::new(bytes_per_second * 8.0).map_or_else(String::new, |rate| rate.to_string())
}

/// Formats a fraction of segments as a percentage; `-` if it is unknown.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.4}%", share * 100.0))
}

fn way_text(text: &mut String, probe: &Probe, path: &PathResult, way: &Way) {
    let _ = writeln!(
        text,
        "  {} the daemon, memory to memory, {}:",
        way.direction.name(),
        probe.protection
    );
    let _ = writeln!(
        text,
        "    {:>7} {:>14} {:>14} {:>11} {:>9} {:>10} {:>6}",
        "streams", "settled", "with the ramp", "retransmits", "lost", "round trip", "CPU"
    );
    for streams in way.counts() {
        let _ = writeln!(
            text,
            "    {streams:>7} {:>14} {:>14} {:>11} {:>9} {:>7.1} ms {:>5.0}%",
            rate(way.median(streams, |trial| trial.settled)),
            rate(way.median(streams, |trial| trial.bytes_per_second)),
            percent(Some(way.median(streams, Trial::retransmission_rate))),
            percent(way.median_if_any(streams, Trial::loss_rate)),
            way.median(streams, |trial| trial.rtt.as_secs_f64()) * 1e3,
            way.median(streams, busiest) * 100.0,
        );
    }
    if let Some((streams, bytes_per_second)) = way.best() {
        let _ = writeln!(
            text,
            "    The path carries at least {}, which {streams} stream{}.",
            rate(bytes_per_second),
            if streams == 1 { " reaches" } else { "s reach" }
        );
    }
    let advice = path.advice(way);
    if advice.is_empty() {
        let _ = writeln!(
            text,
            "    No limit was found: the window of one stream is at least {WINDOW_MARGIN} times \
             the bytes in flight."
        );
    }
    for advice in advice {
        let _ = writeln!(text, "    - {}", advice.text);
    }
    for doubt in way.doubts(path) {
        let _ = writeln!(text, "    doubt: {doubt}: {}", doubt.advice());
    }
}
