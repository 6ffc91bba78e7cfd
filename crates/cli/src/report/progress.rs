//! The progress line, and its JSON twin.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::{LAYERS, Progress, Transfer};
use longhaul_units::ByteCount;

use super::json;
use crate::messages::progress_line;

/// How often the line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// How often an event is printed.
const PRINT_EVERY: Duration = Duration::from_secs(1);

/// The rate is taken over so many drawings.
const RATE_DRAWINGS: usize = 12;

/// Draws or prints until the transfer is over.
pub fn follow(transfer: &Transfer, is_json: bool, terminal: bool) {
    let every = if is_json { PRINT_EVERY } else { DRAW_EVERY };
    let mut seen: VecDeque<(Duration, u64)> = VecDeque::new();
    while !transfer.wait_for(every) {
        let progress = transfer.progress();
        if is_json {
            json::progress(&progress);
        } else if terminal {
            seen.push_back((progress.elapsed, moved(&progress)));
            if seen.len() > RATE_DRAWINGS {
                seen.pop_front();
            }
            progress_line(&line(&progress, rate(&seen)));
        }
    }
}

/// Bytes that went through, of files done or under way.
fn moved(progress: &Progress) -> u64 {
    progress.disk_bytes.max(progress.done_bytes)
}

fn rate(seen: &VecDeque<(Duration, u64)>) -> f64 {
    match (seen.front(), seen.back()) {
        (Some(first), Some(last)) if last.0 > first.0 => {
            last.1.saturating_sub(first.1) as f64 / (last.0 - first.0).as_secs_f64()
        }
        _ => 0.0,
    }
}

fn line(progress: &Progress, rate: f64) -> String {
    let gone = progress.done_bytes.max(moved(progress)) + progress.skipped_bytes;
    let done = gone.min(progress.walked_bytes.max(progress.done_bytes));
    let known = progress.walked_bytes;
    let more = if progress.walk_ended { "" } else { "+" };
    let left = known.saturating_sub(done);
    let remaining = match progress.walk_ended && rate > 1.0 {
        true => format!(", {} left", shown_span(left as f64 / rate)),
        false => String::new(),
    };
    let entries = progress.done_entries + progress.skipped_entries + progress.failed_entries;
    let bottleneck =
        busiest(progress).map_or(String::new(), |layer| format!(", {} busy", layer.layer));
    format!(
        "{} of {}{more} | {entries} of {}{more} entries | {}/s{remaining} | {} streams{bottleneck}",
        ByteCount(done),
        ByteCount(known),
        progress.walked_entries,
        ByteCount(rate as u64),
        progress.streams,
    )
}

/// A layer that works this part of its time holds the others up.
const FULL: f64 = 0.8;

/// The layer that limits the transfer: the last full one on a byte's way, for
/// a full layer makes those before it wait; else the busiest.
pub fn busiest(progress: &Progress) -> Option<&LayerUse> {
    let order = |layer: &LayerUse| LAYERS.iter().position(|name| *name == layer.layer);
    let layers = || progress.layers.iter().chain(&progress.peer_layers);
    let full = layers()
        .filter(|layer| layer.utilisation >= FULL)
        .max_by_key(|layer| order(layer));
    full.or_else(|| layers().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation)))
        .filter(|layer| layer.utilisation > 0.05)
}

/// A span as people write it.
pub fn shown_span(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_readable() {
        assert_eq!(shown_span(7.4), "7 s");
        assert_eq!(shown_span(75.0), "1:15 min");
        assert_eq!(shown_span(7500.0), "2:05 h");
    }
}
