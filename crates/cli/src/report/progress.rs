//! The progress line, and its JSON twin.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::{LAYERS, Progress, Transfer};
use longhaul_units::ByteCount;

use super::{Outlet, json};
use crate::messages::progress_line;

/// How often the line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// How often an event is printed.
const PRINT_EVERY: Duration = Duration::from_secs(1);

/// The rate, and how busy the layers are, is taken over so many drawings.
const RECENT_DRAWINGS: usize = 12;

/// Draws or prints until the transfer is over.
pub fn follow(transfer: &Transfer, is_json: bool, terminal: bool) {
    let every = if is_json { PRINT_EVERY } else { DRAW_EVERY };
    let mut seen: VecDeque<Progress> = VecDeque::new();
    while !transfer.wait_for(every) {
        let progress = transfer.progress();
        if is_json {
            json::progress(&progress);
        } else if terminal {
            if seen.len() >= RECENT_DRAWINGS {
                seen.pop_front();
            }
            let first = seen.front().unwrap_or(&progress);
            progress_line(&line(first, &progress));
            seen.push_back(progress);
        }
    }
}

/// Progress lines between two events for others.
const LINES_AN_EVENT: u32 = 4;

/// Tells others until the transfer is over.
pub fn tell(transfer: &Transfer, outlet: &dyn Outlet) {
    let mut seen: VecDeque<Progress> = VecDeque::new();
    let mut drawings = 0;
    while !transfer.wait_for(DRAW_EVERY) {
        let progress = transfer.progress();
        drawings += 1;
        if drawings % LINES_AN_EVENT == 0 {
            outlet.event(json::progress_event(&progress).to_string());
        }
        if seen.len() >= RECENT_DRAWINGS {
            seen.pop_front();
        }
        outlet.line(line(seen.front().unwrap_or(&progress), &progress));
        seen.push_back(progress);
    }
}

/// Bytes that went through, of files done or under way.
fn moved(progress: &Progress) -> u64 {
    progress.disk_bytes.max(progress.done_bytes)
}

/// Bytes per second between two moments.
fn rate(first: &Progress, now: &Progress) -> f64 {
    let passed = now.elapsed.saturating_sub(first.elapsed).as_secs_f64();
    let bytes = moved(now).saturating_sub(moved(first));
    if passed > 0.0 {
        bytes as f64 / passed
    } else {
        0.0
    }
}

/// `first` is some moments ago.
fn line(first: &Progress, now: &Progress) -> String {
    let rate = rate(first, now);
    let gone = moved(now) + now.skipped_bytes;
    let done = gone.min(now.walked_bytes.max(now.done_bytes + now.skipped_bytes));
    let known = now.walked_bytes.max(done);
    let more = if now.walk_ended { "" } else { "+" };
    let entries = now.done_entries + now.skipped_entries + now.failed_entries;
    let mut parts = vec![
        format!("{} of {}{more}", ByteCount(done), ByteCount(known)),
        format!("{}/s", ByteCount(rate as u64)),
    ];
    if now.walk_ended && rate > 1.0 {
        let left = known.saturating_sub(done) as f64;
        parts.push(format!("{} left", shown_span(left / rate)));
    }
    let known_entries = now.walked_entries.max(entries);
    parts.push(format!("{entries} of {known_entries}{more} entries"));
    if now.failed_entries > 0 {
        parts.push(format!("{} failed", now.failed_entries));
    }
    match now.streams {
        0 => parts.push("no connection, dialing".to_owned()),
        streams => parts.push(format!("{streams} streams")),
    }
    if let Some(layer) = busiest(&recent(first, now)).filter(|_| now.streams > 0) {
        let percent = 100.0 * layer.utilisation;
        let most = if layer.utilisation >= FULL {
            "limited by"
        } else {
            "busiest"
        };
        parts.push(format!("{most} {} ({percent:.0} %)", layer.layer));
    }
    parts.join(" | ")
}

/// How busy the layers of both ends were between two moments.
fn recent(first: &Progress, now: &Progress) -> Vec<LayerUse> {
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

/// A layer that works this part of its time holds the others up.
pub const FULL: f64 = 0.8;

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
    full.or_else(most).filter(|layer| layer.utilisation > 0.05)
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

    fn layer(layer: &'static str, flows: usize, busy: u64) -> LayerUse {
        LayerUse {
            layer,
            flows,
            busy,
            utilisation: 0.5,
        }
    }

    fn progress(seconds: u64, bytes: u64, read: u64, write: u64) -> Progress {
        Progress {
            elapsed: Duration::from_secs(seconds),
            peer_elapsed: Duration::from_secs(seconds),
            walked_entries: 10,
            walked_bytes: 9_000_000,
            done_entries: 2,
            disk_bytes: bytes,
            streams: 4,
            layers: vec![layer("read", 2, read * 1_000_000_000)],
            peer_layers: vec![layer("write", 1, write * 1_000_000_000)],
            ..Progress::default()
        }
    }

    #[test]
    fn spans_are_readable() {
        assert_eq!(shown_span(7.4), "7 s");
        assert_eq!(shown_span(75.0), "1:15 min");
        assert_eq!(shown_span(7500.0), "2:05 h");
    }

    #[test]
    fn the_line_tells_of_the_last_moments() {
        // At first writing was all there was to do, now it is reading.
        let first = progress(10, 1_000_000, 1, 10);
        let mut now = progress(12, 3_000_000, 5, 10);
        let expected = "3.00 MB of 9.00 MB+ | 1.00 MB/s | 2 of 10+ entries | 4 streams | \
                        limited by read (100 %)";
        assert_eq!(line(&first, &now), expected);
        now.walk_ended = true;
        now.failed_entries = 1;
        now.streams = 0;
        let expected = "3.00 MB of 9.00 MB | 1.00 MB/s | 6 s left | 3 of 10 entries | 1 failed | \
                        no connection, dialing";
        assert_eq!(line(&first, &now), expected);
    }

    #[test]
    fn a_layer_that_is_not_full_limits_nothing() {
        let first = progress(10, 1_000_000, 1, 1);
        let now = progress(12, 3_000_000, 2, 1);
        let line = line(&first, &now);
        assert!(line.ends_with("4 streams | busiest read (25 %)"), "{line}");
    }

    #[test]
    fn the_last_full_layer_holds_the_others_up() {
        let full = |name| LayerUse {
            utilisation: 0.9,
            ..layer(name, 1, 0)
        };
        let layers = [full("read"), full("write"), layer("commit", 1, 0)];
        assert_eq!(busiest(&layers).map(|layer| layer.layer), Some("write"));
        assert_eq!(busiest(&[]), None);
    }
}
