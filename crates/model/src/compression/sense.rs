//! What a transfer has, found from what is seen of it: the path's rate, the source's, and the
//! cores that codecs can have at both ends.
//!
//! A path shows its rate only while it is full. While it is not, it could carry more than it does,
//! by how much is unknown: its rate is then taken for more and more, so that less is compressed,
//! until it is full again. Of a path that was full for a while the rate is known: codecs leave it
//! room, and each look for more sends blocks as they are, which take a slow path many times as
//! long. It is taken for more slowly at first, and sooner and sooner. What it carries is believed
//! at once.

use super::plan::Resources;

/// The weight of a new look at the path's rate.
const RATE_WEIGHT: f64 = 0.3;

/// The weight of a new look at whether the path is full.
const FULL_WEIGHT: f64 = 0.4;

/// The path is full if it was in this share of the last looks.
const FULL: f64 = 0.5;

/// What a path's rate grows by with the first look, of ten in a second, at which the path is not
/// full; with each further one it grows by the square, up to the most: a path that became ten times
/// as fast is believed to be so after about half a second.
const GROWTH: f64 = 1.1;
const MOST_GROWTH: f64 = 2.0;

/// A path whose rate was known t seconds ago is taken for exp(KNOWN_GROWTH t²) times as fast as
/// it was: twice after 8 seconds, ten times after 15.
const KNOWN_GROWTH: f64 = 0.01;

/// What the path's rate grows by with a look at which the receiver had no room: it tells nothing of
/// the path.
const UNSEEN_GROWTH: f64 = 1.02;

/// A path's rate is known once it was full for so long, in seconds, and carried no more in the end
/// than this multiple of what it carried in all of that time.
const KNOWN_SECONDS: f64 = 0.45;
const GROWING: f64 = 1.5;

/// One that carries more than this multiple of its rate without being full has become faster.
const FASTER: f64 = 1.1;

/// A path's rate falls at once to this multiple of what is seen of a full path, and rises at once
/// to that part of it: what is acknowledged comes in lumps.
const MOST_ABOVE: f64 = 1.25;
const LEAST_BELOW: f64 = 0.5;

/// Cores that idle are left to others up to this share of all: the way without codecs takes its
/// turns unevenly, and what idles between them is not free. Where fewer idle, somebody else wants
/// them, and codecs give way by what is missing, look by look.
const RESERVED_SHARE: f64 = 0.1;

/// Cores that codecs may have where none idles, on a path that is as slow as that, in bytes per
/// second: any process gets as much of a busy host, and it is enough for the blocks of such a path.
const LEAST_CORES: f64 = 0.25;
const SLOW: f64 = 2.5e7;

/// On such a path codecs give way by one part in e in this time, in seconds, and no sooner: what
/// keeps the cores busy is most often this copy itself, which reads and writes many times what the
/// path carries.
const GIVES_WAY_SECONDS: f64 = 5.0;

/// Of the other end's cores before it told.
const UNTOLD_CORES: f64 = 0.5;

/// The weight of a new look at the cores.
const CORES_WEIGHT: f64 = 0.3;

/// A receiver holds the transfer up if it had no room for more than this share of the time, lately,
/// until that is less than the second. Any receiver stands still for a moment, and one that is a
/// tenth slower than the path has no room for a tenth of the time. While it has room, a full path
/// shows its rate nevertheless.
const SLOW_SHARE: f64 = 0.1;
const QUICK_SHARE: f64 = 0.05;

/// How long the receiver's lack of room counts, in seconds.
const ROOM_SECONDS: f64 = 2.0;

/// After this time, in which it had room throughout and the path was full, that is forgotten.
const QUICK_SECONDS: f64 = 1.0;

/// Looks at the source tell its rate over at least this many seconds: it gives blocks, in lumps.
const SUPPLY_SECONDS: f64 = 0.5;

/// A faster path, in bytes per second, is none that a codec could gain on.
const FASTEST: f64 = 1e11;

/// Looks closer to each other tell nothing, in seconds.
const LEAST_SPAN: f64 = 0.02;

/// A path is steady after [`STEADY_LOOKS`] looks in succession at which it carried no more than
/// this multiple of what it was believed to: as its windows grow, it carries more with each look.
const STEADY: f64 = 1.25;
const STEADY_LOOKS: u32 = 5;

/// More cores, and more seconds of them, than any host has.
const MOST_CORES: f64 = 1e5;
const MOST_SECONDS: f64 = 1e12;

/// What is seen of an end's cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// When that end looked, in seconds since it began: it may tell more rarely than is looked.
    pub at: f64,
    /// Cores that the process may use.
    pub all: f64,
    /// Of these, cores that idled lately.
    pub idle: f64,
    /// Cores that codecs can use at once, by their flows and the buffers for blocks.
    pub usable: f64,
    /// Seconds of a core that codecs took so far.
    pub codec_seconds: f64,
}

/// A look at a transfer, from the end that sends. Counts are since the transfer began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// When, in seconds.
    pub at: f64,
    /// Bytes that the path took.
    pub carried: f64,
    /// Bytes of the source that were read.
    pub supplied: f64,
    /// More waits for the path than it takes.
    pub is_full: bool,
    /// The receiver had room for blocks all the time since the last look.
    pub had_room: bool,
    /// Bytes per second that windows allow, which a new path shows before it carried anything; 0
    /// where it is not known.
    pub window_rate: f64,
    /// Bytes per second that the transfer may have at most; infinite without a bound.
    pub most_rate: f64,
    /// Blocks wait for a codec, or are with one.
    pub waits_for_codec: bool,
    /// This end.
    pub sender: Cores,
    /// The other end, where it told.
    pub receiver: Option<Cores>,
}

/// An end's cores over time.
#[derive(Clone, Copy, Debug)]
struct Free {
    cores: Option<f64>,
    at: f64,
    codec_seconds: f64,
}

/// Bytes per second that the path carried since the last look, and since the one before: what is
/// acknowledged comes in lumps, and more is believed at once.
#[derive(Clone, Copy, Debug)]
struct Rates {
    last: f64,
    of_two: f64,
}

/// A number within bounds; what is none is 0.
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

    /// Those that codecs use, and those that idle, less what is left to others. A look that was
    /// seen before tells nothing.
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

/// Finds what a transfer has, look by look.
#[derive(Clone, Debug)]
pub struct Sense {
    last: Option<Look>,
    /// When the look before that was, and what the path had taken then.
    before: (f64, f64),
    /// Bytes per second; 0 before it is known.
    wire_rate: f64,
    /// Bytes per second; infinite where the source is not what holds the transfer up.
    supply_rate: f64,
    /// Bytes and seconds since the source alone has held the transfer up.
    supplied: (f64, f64),
    /// The share of looks with a full path, lately.
    full: f64,
    /// The share of time that the receiver had no room, lately, and whether it is taken for slow.
    without_room: f64,
    is_receiver_slow: bool,
    /// Seconds for which the path has been full, and the receiver had room.
    full_seconds: f64,
    /// What the path's rate grows by next.
    growth: f64,
    /// When the path became full, and what it had carried then, as long as it is full.
    filled: Option<(f64, f64)>,
    /// When the path's rate was known last, and the rate.
    known: Option<(f64, f64)>,
    /// Looks in succession at which the path carried about what it was believed to.
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
    /// Takes a look, about ten times a second; gives what the transfer has, where this one tells
    /// something. The path's rate is 0 as long as it is not known.
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
        // A bound is a path that has no more room than that.
        if look.most_rate > 0.0 {
            self.wire_rate = self.wire_rate.min(look.most_rate);
        }
        let supplied = (look.supplied - supplied).max(0.0);
        // What a slow receiver takes is all that the source has to supply.
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

    /// Whether the receiver is slower than the path, by its own word.
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
        // A bucket lets go in lumps what a bound allows.
        let is_steady = rates.of_two <= STEADY * self.wire_rate || self.wire_rate >= look.most_rate;
        self.steady_looks = if is_steady { self.steady_looks + 1 } else { 0 };
        let rate = rates.last.max(rates.of_two).min(FASTEST);
        if self.wire_rate <= 0.0 {
            // The first looks: what a new path may carry, or carried while it was full.
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

    /// A path that is not full could carry more.
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
            // Windows may have room for more than it ever carried.
            (self.wire_rate.max(rates.last) * growth).max(look.window_rate)
        };
        self.wire_rate = grown.max(carried).min(FASTEST);
    }

    fn see_supply(&mut self, bytes: f64, span: f64, others_hold_up: bool) {
        if others_hold_up {
            // It could give more, nobody knows how much.
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
        // What was long ago counts less.
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

    /// A look each tenth of a second at a path that carries this and is full or not.
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
    fn a_full_path_shows_its_rate_and_one_with_room_is_taken_for_faster() {
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
    fn a_path_that_was_full_for_a_moment_is_taken_for_faster_at_once() {
        let mut sense = Sense::default();
        after(&mut sense, 0.4, 1e8, true);
        let room = after(&mut sense, 2.0, 5e7, false);
        assert!(room.wire_rate > 3e8, "{room:?}");
    }

    #[test]
    fn nothing_is_known_of_a_path_that_was_never_full() {
        let mut sense = Sense::default();
        assert!(after(&mut sense, 3.0, 1e9, false).wire_rate <= 0.0);
    }

    #[test]
    fn a_bound_of_the_rate_has_no_more_room() {
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
    fn the_last_bytes_of_a_file_are_not_its_rate() {
        let mut sense = Sense::default();
        after(&mut sense, 2.0, 5e7, false);
        let mut look = sense.last.unwrap();
        look.at += 0.1;
        look.supplied += 100.0;
        let found = sense.handle_look(look).unwrap();
        assert!(found.supply_rate > 3e7, "{found:?}");
    }

    #[test]
    fn a_receiver_without_room_now_and_then_is_what_holds_up() {
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let mut look = sense.last.unwrap();
        let mut found = None;
        for step in 0..100 {
            look.at += 0.1;
            // Each second it has none for three looks, and then the path is full.
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
        // A codec gains nothing.
        assert!(slow.wire_rate > 1.1 * slow.supply_rate, "{slow:?}");
        // It has room again.
        let full = after(&mut sense, 14.0, 1e7, true);
        assert!((full.wire_rate / 1e7 - 1.0).abs() < 0.1, "{full:?}");
        assert!(full.supply_rate > 1e9);
    }

    #[test]
    fn a_receiver_that_stands_still_for_a_moment_is_not_slow() {
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
    fn windows_tell_before_anything_was_carried() {
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

    /// Codecs leave a path room that has not changed.
    #[test]
    fn a_path_that_was_full_is_not_taken_for_a_faster_one_at_once() {
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

    /// A receiver that stands still between any two looks tells nothing of the path.
    #[test]
    fn a_receiver_that_is_slow_all_the_time_makes_no_path_slow() {
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

    /// What is read then is what the path takes, and not what a slow receiver does.
    #[test]
    fn a_path_that_is_full_again_has_a_source_that_gives_more() {
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
    fn a_path_that_becomes_faster_is_believed_within_a_second() {
        // Blocks that are not compressed fill it at once.
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let faster = after(&mut sense, 0.5, 1e8, true);
        assert!((faster.wire_rate / 1e8 - 1.0).abs() < 0.1, "{faster:?}");
        // Codecs let no more through than before, so that it shows only that it has room.
        let mut sense = Sense::default();
        after(&mut sense, 3.0, 1e7, true);
        let faster = after(&mut sense, 1.0, 1.2e7, false);
        assert!(faster.wire_rate > 1e8, "{faster:?}");
        let full = after(&mut sense, 0.5, 1e8, true);
        assert!((full.wire_rate / 1e8 - 1.0).abs() < 0.25, "{full:?}");
    }

    /// Looks for some seconds with these cores, where the receiver tells only each quarter of a
    /// second what its codecs took.
    fn told_rarely(sense: &mut Sense, seconds: f64, used: f64, idle: f64) -> Resources {
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
    fn codecs_have_what_they_use_and_most_of_what_idles() {
        let mut sense = Sense::default();
        let idle = after(&mut sense, 2.0, 1e7, true);
        assert!((idle.sender_cores - 1.8).abs() < 0.01, "{idle:?}");
        let busy = told_rarely(&mut sense, 4.0, 1.5, 0.2);
        assert!((busy.sender_cores - 1.5).abs() < 0.02, "{busy:?}");
        assert!((busy.receiver_cores - 1.5).abs() < 0.1, "{busy:?}");
        // Others want the cores that codecs have.
        let wanted = told_rarely(&mut sense, 4.0, 1.5, 0.0);
        assert!((wanted.sender_cores - 1.47).abs() < 0.02, "{wanted:?}");
        let full = told_rarely(&mut sense, 8.0, 0.0, 0.0);
        assert!((full.sender_cores - 0.25).abs() < 0.01, "{full:?}");
        // A fast path leaves a busy host alone.
        let mut fast = Sense::default();
        after(&mut fast, 2.0, 1e9, true);
        let wanted = told_rarely(&mut fast, 4.0, 1.5, 0.0);
        assert!((wanted.sender_cores - 1.3).abs() < 0.02, "{wanted:?}");
        let busy = told_rarely(&mut fast, 8.0, 0.0, 0.0);
        assert!(busy.sender_cores < 0.001, "{busy:?}");
    }

    #[test]
    fn codecs_have_no_more_cores_than_flows_and_buffers() {
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
    fn what_the_receiver_tells_rarely_is_divided_by_the_time_that_it_covers() {
        let mut sense = Sense::default();
        after(&mut sense, 2.0, 1e7, true);
        for _ in 0..40 {
            let found = told_rarely(&mut sense, 0.5, 0.4, 0.2);
            assert!(found.receiver_cores <= 1.81, "{found:?}");
        }
        let found = told_rarely(&mut sense, 1.0, 0.4, 0.2);
        assert!((found.receiver_cores - 0.4).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn nonsense_breaks_nothing() {
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
