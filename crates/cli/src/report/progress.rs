//! The progress line, and its JSON twin.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::{Progress, Silence};
use longhaul_transfer::client::observer::Running;
use longhaul_transfer::planning::limiting::{FULL, busiest};
use longhaul_transfer::third_party::viewer::Outlet;
use longhaul_units::ByteCount;

use super::json;
use crate::messages::progress_line;

/// How often the line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// How often an event is printed.
const PRINT_EVERY: Duration = Duration::from_secs(1);

/// How busy the layers are is taken over this many drawings.
const RECENT_DRAWINGS: usize = 12;

/// The rate is taken over this span: what is durable of large files grows in
/// steps of about a second.
const RATE_SPAN: Duration = Duration::from_secs(5);

/// What was seen of a transfer in the last moments.
#[derive(Default)]
struct Recent {
    seen: VecDeque<Progress>,
    steps: Steps,
}

impl Recent {
    /// The line of now.
    fn line(&mut self, now: Progress) -> String {
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

/// When a count grew that grows in steps, and what it was then.
struct Steps(VecDeque<(Duration, u64)>);

impl Default for Steps {
    /// A session begins with nothing.
    fn default() -> Steps {
        Steps(VecDeque::from([(Duration::ZERO, 0)]))
    }
}

impl Steps {
    /// The count at a moment, no earlier than the last one.
    fn note(&mut self, at: Duration, count: u64) {
        match self.0.back() {
            Some(&(_, last)) if last == count => return,
            // A source changed: what was durable of it is void.
            Some(&(_, last)) if last > count => self.0.clear(),
            _ => {}
        }
        self.0.push_back((at, count));
        while self.0.len() > 2 && at.saturating_sub(self.0[0].0) > RATE_SPAN {
            self.0.pop_front();
        }
    }

    /// Per second, from step to step; less where the next one is overdue.
    fn rate(&self, now: Duration) -> f64 {
        let (Some(&first), Some(&last)) = (self.0.front(), self.0.back()) else {
            return 0.0;
        };
        let steps = u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX);
        let Some(usual) = last.0.saturating_sub(first.0).checked_div(steps) else {
            return 0.0;
        };
        let until = last.0.max(now.saturating_sub(usual));
        let passed = until.saturating_sub(first.0).as_secs_f64();
        match passed > 0.0 {
            true => last.1.saturating_sub(first.1) as f64 / passed,
            false => 0.0,
        }
    }
}

/// Draws or prints until the transfer is over.
pub fn follow(transfer: &Running, is_json: bool, terminal: bool) {
    let every = if is_json { PRINT_EVERY } else { DRAW_EVERY };
    let mut recent = Recent::default();
    while !transfer.wait_for(every) {
        let progress = transfer.progress();
        if is_json {
            json::progress(&progress);
        } else if terminal {
            progress_line(&recent.line(progress));
        }
    }
}

/// Progress lines between two events for others.
const LINES_AN_EVENT: u32 = 4;

/// Tells others until the transfer is over.
pub fn tell(transfer: &Running, outlet: &dyn Outlet) {
    let mut recent = Recent::default();
    let mut drawings = 0;
    while !transfer.wait_for(DRAW_EVERY) {
        let progress = transfer.progress();
        drawings += 1;
        if drawings % LINES_AN_EVENT == 0 {
            outlet.event(json::progress_event(&progress).to_string());
        }
        outlet.line(recent.line(progress));
    }
}

/// Bytes of files that are at the destination, durable, as far as this end knows:
/// those of earlier attempts, and those that were there unchanged, too. What was
/// read or sent may lie in buffers.
fn arrived(progress: &Progress) -> u64 {
    progress.settled_bytes + progress.account.resumed_bytes + progress.skipped_bytes
}

/// At a rate in bytes per second; `first` is some moments ago.
fn line(rate: f64, first: &Progress, now: &Progress) -> String {
    let whole = now.done_bytes + now.skipped_bytes;
    let done = arrived(now).min(now.walked_bytes.max(whole));
    let known = now.walked_bytes.max(done);
    let more = if now.walk_ended { "" } else { "+" };
    let entries = now.done_entries + now.skipped_entries + now.failed_entries;
    let mut parts = vec![format!("{} of {}{more}", ByteCount(done), ByteCount(known))];
    match now.silence {
        Some(silence) => parts.push(shown_silence(silence)),
        None => parts.push(format!("{}/s", ByteCount(rate as u64))),
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
        streams => parts.push(format!("{streams} streams")),
    }
    let flows = now.streams > 0 && now.silence.is_none();
    if let Some(layer) = busiest(&recent(first, now)).filter(|_| flows) {
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

/// Instead of a rate, where nothing comes from the other end.
fn shown_silence(silence: Silence) -> String {
    let does = match silence.reconnecting {
        true => "reconnecting",
        false => "waiting",
    };
    format!("no data for {} s, {does}", silence.span.as_secs())
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
            // Far ahead, in buffers.
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
    fn what_is_durable_counts_and_what_was_there_is_no_rate() {
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
    fn a_rate_is_taken_from_step_to_step() {
        let seconds = Duration::from_secs_f64;
        let mut steps = Steps::default();
        assert_eq!(steps.rate(seconds(1.0)), 0.0);
        let mut soon = Steps::default();
        soon.note(seconds(0.5), 1_000_000);
        assert_eq!(soon.rate(seconds(0.5)), 2e6);
        for quarter in 0..41 {
            // 8 MB more at each whole second.
            let at = f64::from(quarter) / 4.0;
            steps.note(seconds(at), 8_000_000 * (quarter / 4) as u64);
            if quarter >= 4 {
                assert_eq!(steps.rate(seconds(at)), 8e6, "after {at} s");
            }
        }
        // Nothing for five seconds more than usual: half of it.
        assert_eq!(steps.rate(seconds(16.0)), 4e6);
        // A source changed, and began anew.
        steps.note(seconds(17.0), 1_000_000);
        steps.note(seconds(18.0), 2_000_000);
        assert_eq!(steps.rate(seconds(18.0)), 1e6);
    }

    #[test]
    fn a_layer_that_is_not_full_limits_nothing() {
        let first = progress(10, 1_000_000, 1, 1);
        let now = progress(12, 3_000_000, 2, 1);
        let line = line(1e6, &first, &now);
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
