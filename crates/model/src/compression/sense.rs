//! Estimates the resources of a transfer from observations: the rates of path and source, and the
//! cores available to codecs at both ends.
//!
//! A path shows its rate only while it is full. A path that is not full could carry an unknown
//! amount more. So its estimated rate is increased, which reduces compression, until the path is
//! full again. If the path was full for some time, its rate is known: codecs then leave room on it,
//! and each probe for a higher rate sends uncompressed blocks, which take many times as long on a
//! slow path. In this case the estimate grows slowly at first, then faster. A higher observed rate
//! is accepted at once.

use super::plan::Resources;

/// Weight of a new sample of the path's rate.
const RATE_WEIGHT: f64 = 0.3;

/// Weight of a new sample of the path being full.
const FULL_WEIGHT: f64 = 0.4;

/// Share of recent samples with a full path above which the path counts as full.
const FULL: f64 = 0.5;

/// Growth factor of the path's estimated rate for the first sample, of ten per second, in which the
/// path is not full. It is squared for each further sample, up to the maximum. An increase of the
/// rate by ten is accepted after about half a second.
const GROWTH: f64 = 1.1;
const MOST_GROWTH: f64 = 2.0;

/// Growth of the estimate of a path whose rate was known t seconds ago: the factor is
/// exp(KNOWN_GROWTH t²), which is 2 after 8 seconds and 10 after 15.
const KNOWN_GROWTH: f64 = 0.01;

/// Growth factor of the path's estimated rate for a sample in which the receiver had no room. Such
/// a sample has no information about the path.
const UNSEEN_GROWTH: f64 = 1.02;

/// A path's rate is known after the path was full for this time in seconds, if its last rate was at
/// most `GROWING` times the mean rate during this time.
const KNOWN_SECONDS: f64 = 0.45;
const GROWING: f64 = 1.5;

/// Ratio of a path's observed rate to its known rate above which the path has become faster.
const FASTER: f64 = 1.1;

/// Limits of the ratio of a path's estimated rate to a sample of a full path. An estimate outside
/// the limits is corrected at once. Within them it is smoothed, because acknowledgements come in
/// bursts.
const MOST_ABOVE: f64 = 1.25;
const LEAST_BELOW: f64 = 0.5;

/// Share of all cores that is kept idle for others, because the work without codecs is uneven and
/// needs the idle time. If fewer cores are idle, other work needs them, and codecs yield the
/// difference with each sample.
const RESERVED_SHARE: f64 = 0.1;

/// Minimum number of cores for codecs on a host without idle cores, if the path is slower than
/// `SLOW` bytes per second. Any process gets this much on a busy host, and it suffices for the
/// blocks of such a path.
const LEAST_CORES: f64 = 0.25;
const SLOW: f64 = 2.5e7;

/// On such a path, codecs yield cores with this time constant in seconds, and not faster. The work
/// that keeps the cores busy is mostly this copy itself, which reads and writes many times the
/// path's rate.
const GIVES_WAY_SECONDS: f64 = 5.0;

/// Cores assumed at the other end until it reports.
const UNTOLD_CORES: f64 = 0.5;

/// Weight of a new sample of the cores.
const CORES_WEIGHT: f64 = 0.3;

/// A receiver is slow if it recently had no room for more than `SLOW_SHARE` of the time, until this
/// falls below `QUICK_SHARE`. Any receiver pauses briefly, and a receiver that is a tenth slower
/// than the path has no room for a tenth of the time. While the receiver has room, a full path
/// still shows its rate.
const SLOW_SHARE: f64 = 0.1;
const QUICK_SHARE: f64 = 0.05;

/// Time constant in seconds of the receiver's lack of room.
const ROOM_SECONDS: f64 = 2.0;

/// Time in seconds with room at the receiver and a full path after which the lack of room is reset.
const QUICK_SECONDS: f64 = 1.0;

/// Minimum time in seconds for a sample of the source's rate, because blocks come in bursts.
const SUPPLY_SECONDS: f64 = 0.5;

/// Maximum rate of a path in bytes per second. Codecs cannot gain on a faster path.
const FASTEST: f64 = 1e11;

/// Minimum time between two samples, in seconds.
const LEAST_SPAN: f64 = 0.02;

/// A path is steady after [`STEADY_LOOKS`] consecutive samples whose rate was at most this multiple
/// of the estimate. While windows grow, each sample has a higher rate.
const STEADY: f64 = 1.25;
const STEADY_LOOKS: u32 = 5;

/// Maximum number of cores, and of CPU seconds. No host has more.
const MOST_CORES: f64 = 1e5;
const MOST_SECONDS: f64 = 1e12;

/// A sample of the cores at one end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Time of the sample at this end, in seconds since its start. An end may report less often
    /// than samples are taken.
    pub at: f64,
    /// Number of cores that the process may use.
    pub all: f64,
    /// Number of these cores that were recently idle.
    pub idle: f64,
    /// Number of cores that codecs can use at once, limited by their flows and by buffers for
    /// blocks.
    pub usable: f64,
    /// CPU seconds that codecs have used so far.
    pub codec_seconds: f64,
}

/// A sample of a transfer, taken by the sender. Counters start at the beginning of the transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Time in seconds.
    pub at: f64,
    /// Number of bytes that the path has accepted.
    pub carried: f64,
    /// Number of source bytes that were read.
    pub supplied: f64,
    /// True if more data are waiting than the path accepts.
    pub is_full: bool,
    /// True if the receiver had room for blocks throughout the time since the last sample.
    pub had_room: bool,
    /// Rate in bytes per second that the windows allow, which is known before a new path has
    /// carried data. 0 if unknown.
    pub window_rate: f64,
    /// Maximum permitted rate of the transfer in bytes per second. Infinite without a limit.
    pub most_rate: f64,
    /// True if blocks are waiting for a codec or being compressed.
    pub waits_for_codec: bool,
    /// Cores of this end.
    pub sender: Cores,
    /// Cores of the other end, if it has reported.
    pub receiver: Option<Cores>,
}

/// The estimate of the cores available to codecs at one end.
#[derive(Clone, Copy, Debug)]
struct Free {
    cores: Option<f64>,
    at: f64,
    codec_seconds: f64,
}

/// Rates of the path in bytes per second since the last sample, and since the one before. Both are
/// needed because acknowledgements come in bursts and a higher rate is accepted at once.
#[derive(Clone, Copy, Debug)]
struct Rates {
    last: f64,
    of_two: f64,
}

/// Clamps a number to 0 to `most`. Converts NaN to 0.
fn bounded(value: f64, most: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, most)
    }
}

impl Free {
    const UNKNOWN: Free = Free {
        cores: None,
        at: 0.0,
        codec_seconds: 0.0,
    };

    /// Updates the estimate: the cores that codecs use plus the idle cores, minus those kept for
    /// others. Ignores a sample that was already seen.
    fn handle_look(&mut self, cores: Cores, is_slow: bool) -> f64 {
        let span = bounded(cores.at, MOST_SECONDS) - self.at;
        if span < LEAST_SPAN {
            return self.cores.unwrap_or(UNTOLD_CORES);
        }
        let all = bounded(cores.all, MOST_CORES);
        let codec_seconds = bounded(cores.codec_seconds, MOST_SECONDS);
        let used = (codec_seconds - self.codec_seconds).max(0.0) / span;
        (self.at, self.codec_seconds) = (self.at + span, codec_seconds);
        let idle = bounded(cores.idle, all) - RESERVED_SHARE * all;
        let least = if is_slow {
            LEAST_CORES.max(used * (-span / GIVES_WAY_SECONDS).exp())
        } else {
            0.0
        };
        let most = all.min(bounded(cores.usable, MOST_CORES));
        let now = (used + idle).max(least).min(most);
        let before = self.cores.unwrap_or(now);
        let smooth = before + CORES_WEIGHT * (now - before);
        self.cores = Some(smooth);
        smooth
    }
}

/// Estimates the resources of a transfer from samples.
#[derive(Clone, Debug)]
pub struct Sense {
    last: Option<Look>,
    /// Time of the sample before the last, and the bytes that the path had accepted then.
    before: (f64, f64),
    /// Estimated rate of the path in bytes per second. 0 if unknown.
    wire_rate: f64,
    /// Estimated rate of the source in bytes per second. Infinite if the source is not the
    /// bottleneck.
    supply_rate: f64,
    /// Bytes and seconds since only the source has been the bottleneck.
    supplied: (f64, f64),
    /// Share of recent samples with a full path.
    full: f64,
    /// Share of the recent time that the receiver had no room. `is_receiver_slow` is true if it
    /// counts as slow.
    without_room: f64,
    is_receiver_slow: bool,
    /// Time in seconds for which the path has been full and the receiver had room.
    full_seconds: f64,
    /// Next growth factor of the path's rate.
    growth: f64,
    /// Time when the path became full, and the bytes carried until then. `None` while it is not
    /// full.
    filled: Option<(f64, f64)>,
    /// Time when the path's rate was last known, and the rate.
    known: Option<(f64, f64)>,
    /// Number of consecutive samples with a steady rate.
    steady_looks: u32,
    sender: Free,
    receiver: Free,
}

impl Default for Sense {
    fn default() -> Sense {
        Sense {
            last: None,
            before: (0.0, 0.0),
            wire_rate: 0.0,
            supply_rate: f64::INFINITY,
            supplied: (0.0, 0.0),
            full: 0.0,
            without_room: 0.0,
            is_receiver_slow: false,
            full_seconds: 0.0,
            growth: GROWTH,
            filled: None,
            known: None,
            steady_looks: 0,
            sender: Free::UNKNOWN,
            receiver: Free::UNKNOWN,
        }
    }
}

impl Sense {
    /// Adds a sample; the caller takes about ten per second. Returns the resources of the transfer,
    /// or `None` if the sample is too close to the last. The path's rate is 0 while it is unknown.
    pub fn handle_look(&mut self, look: Look) -> Option<Resources> {
        let at = bounded(look.at, MOST_SECONDS);
        let span = match self.last {
            Some(last) => at - last.at,
            None => at.max(LEAST_SPAN),
        };
        if span < LEAST_SPAN {
            return None;
        }
        let look = Look {
            at,
            carried: bounded(look.carried, f64::MAX),
            supplied: bounded(look.supplied, f64::MAX),
            window_rate: bounded(look.window_rate, FASTEST),
            ..look
        };
        let (carried, supplied) = self
            .last
            .map_or((0.0, 0.0), |last| (last.carried, last.supplied));
        let rates = Rates {
            last: (look.carried - carried).max(0.0) / span,
            of_two: (look.carried - self.before.1).max(0.0) / (at - self.before.0).max(span),
        };
        self.before = (at - span, carried);
        let is_slow = self.wire_rate < SLOW;
        let sender_cores = self.sender.handle_look(look.sender, is_slow);
        let receiver_cores = match look.receiver {
            Some(cores) => self.receiver.handle_look(cores, is_slow),
            None => UNTOLD_CORES,
        };
        self.last = Some(look);
        let look = Look {
            is_full: look.is_full && look.had_room,
            ..look
        };
        let holds_up = self.is_receiver_slow(span, &look);
        let share = if look.is_full { 1.0 } else { 0.0 };
        self.full += FULL_WEIGHT * (share - self.full);
        let is_full = self.full >= FULL;
        self.see_path(rates, is_full, &look);
        // With a limit on the rate, the path has no room above the limit.
        if look.most_rate > 0.0 {
            self.wire_rate = self.wire_rate.min(look.most_rate);
        }
        let supplied = (look.supplied - supplied).max(0.0);
        // With a slow receiver, the source supplies as much as the receiver accepts.
        let others_hold_up = !holds_up && (is_full || look.is_full || look.waits_for_codec);
        self.see_supply(supplied, span, others_hold_up);
        Some(Resources {
            wire_rate: self.wire_rate,
            supply_rate: self.supply_rate,
            sender_cores,
            receiver_cores,
            is_unsteady: self.steady_looks < STEADY_LOOKS,
        })
    }

    /// Updates and returns true if the receiver reports that it is slower than the path.
    fn is_receiver_slow(&mut self, span: f64, look: &Look) -> bool {
        let lacked = if look.had_room { 0.0 } else { 1.0 };
        let weight = 1.0 - (-span / ROOM_SECONDS).exp();
        self.without_room += weight * (lacked - self.without_room);
        self.full_seconds = if look.is_full {
            self.full_seconds + span
        } else {
            0.0
        };
        if self.full_seconds >= QUICK_SECONDS {
            self.without_room = 0.0;
        }
        let bound = if self.is_receiver_slow {
            QUICK_SHARE
        } else {
            SLOW_SHARE
        };
        self.is_receiver_slow = self.without_room > bound;
        self.is_receiver_slow
    }

    fn see_path(&mut self, rates: Rates, is_full: bool, look: &Look) {
        // With a limit on the rate, a token bucket releases data in bursts.
        let is_steady = rates.of_two <= STEADY * self.wire_rate || self.wire_rate >= look.most_rate;
        self.steady_looks = if is_steady { self.steady_looks + 1 } else { 0 };
        let rate = rates.last.max(rates.of_two).min(FASTEST);
        if self.wire_rate <= 0.0 {
            // Uses the rate that the windows allow, or the rate that was carried while the path was
            // full.
            self.wire_rate = if is_full && rate > 0.0 {
                rate.max(look.window_rate)
            } else {
                look.window_rate
            };
            return;
        }
        if !is_full {
            self.filled = None;
            self.see_room(rates, look);
            return;
        }
        self.growth = GROWTH;
        if look.is_full && rate > 0.0 {
            let near = self.wire_rate.clamp(rate * LEAST_BELOW, rate * MOST_ABOVE);
            self.wire_rate = near + RATE_WEIGHT * (rate - near);
            let (began, carried) = *self.filled.get_or_insert((look.at, look.carried));
            let span = look.at - began;
            let average = (look.carried - carried) / span.max(LEAST_SPAN);
            if span >= KNOWN_SECONDS && rates.of_two <= GROWING * average {
                self.known = Some((look.at, self.wire_rate.max(average)));
            }
        } else {
            self.wire_rate = self.wire_rate.max(rate);
        }
    }

    /// Increases the estimate of a path that is not full and could carry more.
    fn see_room(&mut self, rates: Rates, look: &Look) {
        let carried = rates.of_two;
        self.known = self.known.filter(|(_, known)| carried <= FASTER * known);
        let grown = if let Some((at, known)) = self.known {
            let ago = look.at - at;
            (known * (KNOWN_GROWTH * ago * ago).exp()).max(self.wire_rate)
        } else if !look.had_room {
            self.wire_rate * UNSEEN_GROWTH
        } else {
            let growth = self.growth;
            self.growth = (growth * growth).min(MOST_GROWTH);
            // The windows may allow more than the path has carried.
            (self.wire_rate.max(rates.last) * growth).max(look.window_rate)
        };
        self.wire_rate = grown.max(carried).min(FASTEST);
    }

    fn see_supply(&mut self, bytes: f64, span: f64, others_hold_up: bool) {
        if others_hold_up {
            // The source could supply an unknown amount more.
            self.supplied = (0.0, 0.0);
            self.supply_rate = if self.supply_rate > FASTEST {
                f64::INFINITY
            } else {
                self.supply_rate.max(bytes / span) * 2.0
            };
            return;
        }
        let (before, waited) = self.supplied;
        let (bytes, waited) = (before + bytes, waited + span);
        self.supplied = (bytes, waited);
        if waited < SUPPLY_SECONDS || bytes <= 0.0 {
            return;
        }
        let rate = bytes / waited;
        let near = self.supply_rate.min(rate * 2.0);
        self.supply_rate = near + RATE_WEIGHT * (rate - near);
        // Reduces the weight of older samples.
        let kept = SUPPLY_SECONDS / waited;
        self.supplied = (bytes * kept, SUPPLY_SECONDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Cores = Cores {
        at: 0.0,
        all: 2.0,
        idle: 2.0,
        usable: 2.0,
        codec_seconds: 0.0,
    };

    /// Adds samples every tenth of a second of a path with this rate, full or not.
    fn after(sense: &mut Sense, seconds: f64, rate: f64, is_full: bool) -> Resources {
        let (began, carried) = sense
            .last
            .map_or((0.0, 0.0), |last| (last.at, last.carried));
        let mut found = Resources::default();
        for look in 1..=(seconds * 10.0) as u32 {
            let passed = f64::from(look) * 0.1;
            let idle = Cores {
                at: began + passed,
                ..IDLE
            };
            let look = Look {
                at: began + passed,
                carried: carried + passed * rate,
                supplied: carried + passed * rate,
                is_full,
                had_room: true,
                window_rate: 0.0,
                most_rate: f64::INFINITY,
                waits_for_codec: false,
                sender: idle,
                receiver: Some(idle),
            };
            found = sense.handle_look(look).unwrap();
        }
        found
    }

    #[test]
    fn the_estimate_is_the_rate_of_a_full_path_and_grows_otherwise() {
        let mut sense = Sense::default();
        let full = after(&mut sense, 3.0, 1e8, true);
        assert!((full.wire_rate / 1e8 - 1.0).abs() < 0.05, "{full:?}");
        assert!(full.supply_rate.is_infinite());
        let room = after(&mut sense, 12.0, 5e7, false);
        assert!(room.wire_rate > 3e8, "{room:?}");
        assert!((room.supply_rate / 5e7 - 1.0).abs() < 0.05, "{room:?}");
        let full = after(&mut sense, 2.0, 1e8, true);
        assert!((full.wire_rate / 1e8 - 1.0).abs() < 0.1, "{full:?}");
        assert!(full.supply_rate > 1e9);
    }

    #[test]
    fn the_estimate_of_a_briefly_full_path_grows_at_once() {
        let mut sense = Sense::default();
        after(&mut sense, 0.4, 1e8, true);
        let room = after(&mut sense, 2.0, 5e7, false);
        assert!(room.wire_rate > 3e8, "{room:?}");
    }

    #[test]
    fn the_rate_of_a_path_that_was_never_full_is_unknown() {
        let mut sense = Sense::default();
        assert!(after(&mut sense, 3.0, 1e9, false).wire_rate <= 0.0);
    }

    #[test]
    fn the_estimate_does_not_exceed_a_limit_on_the_rate() {
        let mut sense = Sense::default();
        after(&mut sense, 0.5, 3e6, true);
        let mut look = sense.last.unwrap();
        look.most_rate = 3e6;
        look.is_full = false;
        for _ in 0..20 {
            look.at += 0.1;
            let found = sense.handle_look(look).unwrap();
            assert!(found.wire_rate <= 3e6, "{found:?}");
        }
    }

    #[test]
    fn the_last_bytes_of_a_file_do_not_lower_the_estimate() {
        let mut sense = Sense::default();
        after(&mut sense, 2.0, 5e7, false);
        let mut look = sense.last.unwrap();
        look.at += 0.1;
        look.supplied += 100.0;
        let found = sense.handle_look(look).unwrap();
        assert!(found.supply_rate > 3e7, "{found:?}");
    }

    #[test]
    fn a_receiver_that_often_has_no_room_is_the_bottleneck() {
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let mut look = sense.last.unwrap();
        let mut found = None;
        for step in 0..100 {
            look.at += 0.1;
            // In each second, three samples have no room and then the path is full.
            look.had_room = step % 10 > 2;
            look.is_full = look.had_room;
            if look.had_room {
                look.carried += 1e6;
                look.supplied += 1e6;
            }
            found = sense.handle_look(look);
        }
        let slow = found.unwrap();
        assert!((slow.supply_rate / 7e6 - 1.0).abs() < 0.2, "{slow:?}");
        // A codec cannot gain here.
        assert!(slow.wire_rate > 1.1 * slow.supply_rate, "{slow:?}");
        // The receiver has room again.
        let full = after(&mut sense, 14.0, 1e7, true);
        assert!((full.wire_rate / 1e7 - 1.0).abs() < 0.1, "{full:?}");
        assert!(full.supply_rate > 1e9);
    }

    #[test]
    fn a_receiver_that_pauses_briefly_is_not_slow() {
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let mut look = sense.last.unwrap();
        for _ in 0..5 {
            look.at += 0.1;
            look.had_room = false;
            sense.handle_look(look);
            let found = after(&mut sense, 3.0, 1e7, true);
            assert!((found.wire_rate / 1e7 - 1.0).abs() < 0.3, "{found:?}");
            look = sense.last.unwrap();
        }
    }

    #[test]
    fn windows_give_a_rate_before_data_are_carried() {
        let mut sense = Sense::default();
        let look = Look {
            at: 0.1,
            carried: 0.0,
            supplied: 0.0,
            is_full: false,
            had_room: true,
            window_rate: 3e5,
            most_rate: f64::INFINITY,
            waits_for_codec: false,
            sender: IDLE,
            receiver: None,
        };
        let found = sense.handle_look(look).unwrap();
        assert!((found.wire_rate - 3e5).abs() < 1.0, "{found:?}");
    }

    /// Codecs leave room on a path whose rate is unchanged.
    #[test]
    fn the_estimate_of_a_path_with_a_known_rate_grows_slowly() {
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let soon = after(&mut sense, 5.0, 4e6, false);
        assert!(soon.wire_rate < 1.5e7, "{soon:?}");
        let later = after(&mut sense, 10.0, 4e6, false);
        assert!((5e7..3e8).contains(&later.wire_rate), "{later:?}");
        let full = after(&mut sense, 1.0, 1e7, true);
        assert!((full.wire_rate / 1e7 - 1.0).abs() < 0.3, "{full:?}");
        let known = after(&mut sense, 2.0, 4e6, false);
        assert!(known.wire_rate < 1.5e7, "{known:?}");
    }

    /// A receiver that pauses between any two samples gives no information about the path.
    #[test]
    fn a_slow_receiver_does_not_lower_the_estimate_of_the_path() {
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e8, true);
        let mut look = sense.last.unwrap();
        (look.had_room, look.waits_for_codec) = (false, true);
        let mut found = None;
        for _ in 0..50 {
            look.at += 0.1;
            look.carried += 3e6;
            look.supplied += 6e6;
            found = sense.handle_look(look);
        }
        let slow = found.unwrap();
        assert!((slow.supply_rate / 6e7 - 1.0).abs() < 0.1, "{slow:?}");
        assert!(slow.wire_rate >= 1e8, "{slow:?}");
    }

    /// The source then supplies the path's rate, not the slow receiver's.
    #[test]
    fn the_source_estimate_rises_when_the_path_is_full_again() {
        let mut sense = Sense::default();
        after(&mut sense, 2.0, 1e7, true);
        let mut look = sense.last.unwrap();
        look.had_room = false;
        for _ in 0..20 {
            look.at += 0.1;
            look.carried += 5e5;
            look.supplied += 2e7;
            sense.handle_look(look);
        }
        look.had_room = true;
        for _ in 0..15 {
            look.at += 0.1;
            look.carried += 1e6;
            sense.handle_look(look);
        }
        let full = after(&mut sense, 0.2, 1e7, true);
        assert!(full.supply_rate > 1e8, "{full:?}");
        assert!((full.wire_rate / 1e7 - 1.0).abs() < 0.1, "{full:?}");
    }

    #[test]
    fn a_faster_path_is_detected_within_a_second() {
        // Uncompressed blocks fill the path at once.
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let faster = after(&mut sense, 0.5, 1e8, true);
        assert!((faster.wire_rate / 1e8 - 1.0).abs() < 0.1, "{faster:?}");
        // Codecs let through no more data than before, so the path shows only that it has room.
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let faster = after(&mut sense, 1.0, 1.2e7, false);
        assert!(faster.wire_rate > 1e8, "{faster:?}");
        let full = after(&mut sense, 0.5, 1e8, true);
        assert!((full.wire_rate / 1e8 - 1.0).abs() < 0.25, "{full:?}");
    }

    /// Adds samples for some seconds with these cores. The receiver reports the CPU time of codecs
    /// only every quarter of a second.
    fn with_rare_reports(sense: &mut Sense, seconds: f64, used: f64, idle: f64) -> Resources {
        let mut look = sense.last.unwrap();
        let (began, before) = (look.at, look.receiver.unwrap());
        let mut found = Resources::default();
        for step in 1..=(seconds * 10.0) as u32 {
            let passed = f64::from(step) * 0.1;
            look.at = began + passed;
            let told = (passed / 0.25).floor() * 0.25;
            let cores = |passed: f64| Cores {
                at: before.at + passed,
                all: 2.0,
                idle,
                usable: 2.0,
                codec_seconds: before.codec_seconds + passed * used,
            };
            (look.sender, look.receiver) = (cores(passed), Some(cores(told)));
            found = sense.handle_look(look).unwrap();
        }
        found
    }

    #[test]
    fn codecs_have_the_cores_in_use_and_most_idle_cores() {
        let mut sense = Sense::default();
        let idle = after(&mut sense, 2.0, 1e7, true);
        assert!((idle.sender_cores - 1.8).abs() < 0.01, "{idle:?}");
        let busy = with_rare_reports(&mut sense, 4.0, 1.5, 0.2);
        assert!((busy.sender_cores - 1.5).abs() < 0.02, "{busy:?}");
        assert!((busy.receiver_cores - 1.5).abs() < 0.1, "{busy:?}");
        // Other work needs the cores that codecs use.
        let wanted = with_rare_reports(&mut sense, 4.0, 1.5, 0.0);
        assert!((wanted.sender_cores - 1.47).abs() < 0.02, "{wanted:?}");
        let full = with_rare_reports(&mut sense, 8.0, 0.0, 0.0);
        assert!((full.sender_cores - 0.25).abs() < 0.01, "{full:?}");
        // On a fast path, codecs leave a busy host alone.
        let mut fast = Sense::default();
        after(&mut fast, 2.0, 1e9, true);
        let wanted = with_rare_reports(&mut fast, 4.0, 1.5, 0.0);
        assert!((wanted.sender_cores - 1.3).abs() < 0.02, "{wanted:?}");
        let busy = with_rare_reports(&mut fast, 8.0, 0.0, 0.0);
        assert!(busy.sender_cores < 0.001, "{busy:?}");
    }

    #[test]
    fn flows_and_buffers_limit_the_cores_of_codecs() {
        let mut sense = Sense::default();
        after(&mut sense, 2.0, 1e9, true);
        let mut look = sense.last.unwrap();
        for _ in 0..40 {
            look.at += 0.1;
            look.sender = Cores {
                at: look.at,
                all: 64.0,
                idle: 60.0,
                usable: 8.0,
                codec_seconds: 0.0,
            };
            look.receiver = Some(look.sender);
            sense.handle_look(look);
        }
        look.at += 0.1;
        let found = sense.handle_look(look).unwrap();
        assert!((found.sender_cores - 8.0).abs() < 0.1, "{found:?}");
        assert!((found.receiver_cores - 8.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn a_path_whose_windows_grow_is_not_steady() {
        let mut sense = Sense::default();
        for doubling in 0..6 {
            let rate = 1e6 * f64::from(1_u32 << doubling);
            assert!(after(&mut sense, 0.1, 2.0 * rate, true).is_unsteady);
        }
        assert!(!after(&mut sense, 1.5, 6.4e7, true).is_unsteady);
    }

    #[test]
    fn rare_reports_of_the_receiver_are_divided_by_their_interval() {
        let mut sense = Sense::default();
        after(&mut sense, 2.0, 1e7, true);
        for _ in 0..40 {
            let found = with_rare_reports(&mut sense, 0.5, 0.4, 0.2);
            assert!(found.receiver_cores <= 1.81, "{found:?}");
        }
        let found = with_rare_reports(&mut sense, 1.0, 0.4, 0.2);
        assert!((found.receiver_cores - 0.4).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn invalid_samples_do_not_break_the_estimates() {
        let mut sense = Sense::default();
        let odds = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1.0, 0.0];
        for odd in odds {
            let cores = Cores {
                at: odd,
                usable: odd,
                all: odd,
                idle: odd,
                codec_seconds: odd,
            };
            for at in [1.0, odd, 2.0] {
                let found = sense.handle_look(Look {
                    at,
                    carried: odd,
                    supplied: odd,
                    is_full: true,
                    had_room: odd.is_nan(),
                    window_rate: odd,
                    most_rate: odd,
                    waits_for_codec: true,
                    sender: cores,
                    receiver: Some(cores),
                });
                let Some(found) = found else { continue };
                assert!(found.wire_rate.is_finite(), "{odd}: {found:?}");
                for cores in [found.sender_cores, found.receiver_cores] {
                    assert!((0.0..=1e5).contains(&cores), "{odd}: {found:?}");
                }
            }
        }
    }
}
