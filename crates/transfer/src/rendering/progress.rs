//! Formats the progress line.

use std::collections::VecDeque;

use longhaul_engine::session::{Progress, Silence};
use longhaul_units::{ByteCount, counted};

use super::step_rate::Steps;
use crate::planning::limiting::{FULL, busiest, use_between};

/// Number of drawings over which the utilisation of the layers is measured.
const RECENT_DRAWINGS: usize = 12;

/// The last observations of a transfer.
#[derive(Debug, Default)]
pub struct Recent {
    seen: VecDeque<Progress>,
    steps: Steps,
}

impl Recent {
    /// Returns the current line. Call it about every quarter of a second.
    pub fn line(&mut self, now: Progress) -> String {
        self.steps.note(now.elapsed, now.settled_bytes);
        if self.seen.len() >= RECENT_DRAWINGS {
            self.seen.pop_front();
        }
        let first = self.seen.front().unwrap_or(&now);
        let line = line(self.steps.rate(now.elapsed), first, &now);
        self.seen.push_back(now);
        line
    }
}

/// Returns the bytes of files that are known to be durable at the destination, including those of
/// earlier attempts and of unchanged files. Bytes that were only read or sent may still be in
/// buffers.
pub fn arrived(progress: &Progress) -> u64 {
    progress.settled_bytes + progress.account.resumed_bytes + progress.skipped_bytes
}

/// Formats the line for a rate in bytes per second; `first` is an earlier observation.
fn line(rate: f64, first: &Progress, now: &Progress) -> String {
    let whole = now.done_bytes + now.skipped_bytes;
    let done = arrived(now).min(now.walked_bytes.max(whole));
    let known = now.walked_bytes.max(done);
    let more = if now.walk_ended { "" } else { "+" };
    let entries = now.done_entries + now.skipped_entries + now.failed_entries;
    let mut parts = vec![format!("{} of {}{more}", ByteCount(done), ByteCount(known))];
    match now.silence {
        Some(silence) => parts.push(shown_silence(silence)),
        None => {
            let moved = rate * part_without_holes(first, now);
            parts.push(format!("{}/s", ByteCount(moved as u64)));
        }
    }
    if now.walk_ended && rate > 1.0 && now.silence.is_none() {
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
        streams => parts.push(counted(streams, "stream")),
    }
    let flows = now.streams > 0 && now.silence.is_none();
    if let Some(layer) = busiest(&use_between(first, now)).filter(|_| flows) {
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

/// Returns the share of the bytes transferred between two moments that was data and not holes.
fn part_without_holes(first: &Progress, now: &Progress) -> f64 {
    let moved = now.account.moved_bytes;
    let moved = moved.saturating_sub(first.account.moved_bytes);
    let holes = now.hole_bytes.saturating_sub(first.hole_bytes).min(moved);
    if moved > 0 {
        (moved - holes) as f64 / moved as f64
    } else {
        1.0
    }
}

/// Returns the text that replaces the rate if no data come from the other end.
fn shown_silence(silence: Silence) -> String {
    let does = if silence.reconnecting {
        "reconnecting"
    } else {
        "waiting"
    };
    format!("no data for {} s, {does}", silence.span.as_secs())
}

/// Formats a time span for people.
fn shown_span(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_engine::flows::LayerUse;

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
            // The disk and the wire are far ahead, in buffers.
            disk_bytes: bytes + 5_000_000,
            wire_bytes: bytes + 4_000_000,
            settled_bytes: bytes,
            streams: 4,
            layers: vec![layer("read", 2, read * 1_000_000_000)],
            peer_layers: vec![layer("write", 1, write * 1_000_000_000)],
            ..Progress::default()
        }
    }

    #[test]
    fn holes_are_in_no_rate() {
        let mut now = progress(4, 8_000_000, 1, 1);
        now.account.moved_bytes = 8_000_000;
        now.hole_bytes = 6_000_000;
        let shown = line(2e6, &Progress::default(), &now);
        assert!(shown.contains("| 500 kB/s"), "{shown}");
    }

    #[test]
    fn spans_are_readable() {
        assert_eq!(shown_span(7.4), "7 s");
        assert_eq!(shown_span(75.0), "1:15 min");
        assert_eq!(shown_span(7500.0), "2:05 h");
    }

    #[test]
    fn the_progress_line_shows_the_recent_rate() {
        // At first the writers were busy, now the readers are.
        let first = progress(10, 1_000_000, 1, 10);
        let mut now = progress(12, 3_000_000, 5, 10);
        let expected = "3.00 MB of 9.00 MB+ | 1.00 MB/s | 2 of 10+ entries | 4 streams | \
                        limited by read (100 %)";
        assert_eq!(line(1e6, &first, &now), expected);
        now.walk_ended = true;
        now.failed_entries = 1;
        now.streams = 0;
        let expected = "3.00 MB of 9.00 MB | 1.00 MB/s | 6 s left | 3 of 10 entries | 1 failed | \
                        no connection, dialing";
        assert_eq!(line(1e6, &first, &now), expected);
    }

    #[test]
    fn a_silent_path_has_no_rate_and_no_time_left() {
        let first = progress(10, 1_000_000, 1, 10);
        let mut now = progress(12, 3_000_000, 5, 10);
        now.walk_ended = true;
        now.silence = Some(Silence {
            span: Duration::from_millis(8400),
            reconnecting: true,
        });
        let expected = "3.00 MB of 9.00 MB | no data for 8 s, reconnecting | 2 of 10 entries | \
                        4 streams";
        assert_eq!(line(1e6, &first, &now), expected);
        now.silence = Some(Silence {
            span: Duration::from_secs(3),
            reconnecting: false,
        });
        let shown = line(1e6, &first, &now);
        assert!(shown.contains("no data for 3 s, waiting"), "{shown}");
    }

    #[test]
    fn durable_bytes_count_and_resumed_ones_add_no_rate() {
        let first = progress(10, 1_000_000, 1, 1);
        let mut now = progress(12, 3_000_000, 2, 1);
        now.account.resumed_bytes = 2_000_000;
        now.skipped_bytes = 500_000;
        let mut recent = Recent::default();
        recent.line(first);
        let shown = recent.line(now);
        assert!(
            shown.starts_with("5.50 MB of 9.00 MB+ | 1.00 MB/s"),
            "{shown}"
        );
    }

    #[test]
    fn a_layer_that_is_not_full_is_not_the_limit() {
        let first = progress(10, 1_000_000, 1, 1);
        let now = progress(12, 3_000_000, 2, 1);
        let line = line(1e6, &first, &now);
        assert!(line.ends_with("4 streams | busiest read (25 %)"), "{line}");
    }
}
