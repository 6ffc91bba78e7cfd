//! What a transfer has, found from what is seen of it: the path's rate, the source's, and the
//! cores that codecs can have at both ends.
//!
//! A path shows its rate only while it is full. While it is not, it could carry more than it does,
//! by how much is unknown: its rate is then taken for more and more, so that less is compressed,
//! until it is full again. So a plan that asks the cores for more than they give corrects itself,
//! whatever the reason.

use super::plan::Resources;

/// The weight of a new look at the path's rate.
const RATE_WEIGHT: f64 = 0.3;

/// The weight of a new look at whether the path is full.
const FULL_WEIGHT: f64 = 0.4;

/// The path is full if it was in this share of the last looks.
const FULL: f64 = 0.5;

/// What a path's rate grows by with each look, ten times a second, while the path is not full.
const GROWTH: f64 = 1.1;

/// A path's rate falls at once to this multiple of what is seen of a full path.
const MOST_ABOVE: f64 = 1.25;

/// Cores that idle are left to others up to this share of all: the way without codecs takes its
/// turns unevenly, and what idles between them is not free.
const RESERVED_SHARE: f64 = 0.1;

/// Of all cores codecs may have this share where none idles: as any process gets its share of a
/// busy host. It is enough for the blocks of a slow path.
const LEAST_SHARE: f64 = 0.04;

/// Of the other end's cores before it told.
const UNTOLD_CORES: f64 = 0.5;

/// The weight of a new look at the cores.
const CORES_WEIGHT: f64 = 0.3;

/// A faster path, in bytes per second, is none that a codec could gain on.
const FASTEST: f64 = 1e11;

/// Looks closer to each other tell nothing, in seconds.
const LEAST_SPAN: f64 = 0.02;

/// What is seen of an end's cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Cores that the process may use.
    pub all: f64,
    /// Of these, cores that idled lately; the host's.
    pub idle: f64,
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
    /// Bytes per second that windows allow, which a new path shows before it carried anything; 0
    /// where it is not known.
    pub window_rate: f64,
    /// Blocks wait for a codec.
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
    codec_seconds: f64,
}

impl Free {
    const UNKNOWN: Free = Free {
        cores: None,
        codec_seconds: 0.0,
    };

    /// Those that codecs use, and those that idle, less what is left to others.
    fn handle_look(&mut self, cores: Cores, span: f64) -> f64 {
        let used = (cores.codec_seconds - self.codec_seconds).max(0.0) / span;
        self.codec_seconds = cores.codec_seconds;
        let idle = (cores.idle.min(cores.all) - RESERVED_SHARE * cores.all).max(0.0);
        let all = cores.all.max(0.0);
        let now = (used + idle).max(LEAST_SHARE * all).min(all);
        let before = self.cores.unwrap_or(now);
        let smooth = before + CORES_WEIGHT * (now - before);
        if smooth.is_finite() {
            self.cores = Some(smooth);
        }
        self.cores.unwrap_or(UNTOLD_CORES)
    }
}

/// Finds what a transfer has, look by look.
#[derive(Clone, Debug)]
pub struct Sense {
    last: Option<Look>,
    /// Bytes per second; 0 before it is known.
    wire_rate: f64,
    /// Bytes per second; infinite where the source is not what holds the transfer up.
    supply_rate: f64,
    /// The share of looks with a full path, lately.
    full: f64,
    sender: Free,
    receiver: Free,
}

impl Default for Sense {
    fn default() -> Sense {
        Sense {
            last: None,
            wire_rate: 0.0,
            supply_rate: f64::INFINITY,
            full: 0.0,
            sender: Free::UNKNOWN,
            receiver: Free::UNKNOWN,
        }
    }
}

impl Sense {
    /// Takes a look, about ten times a second; gives what the transfer has, where this one tells
    /// something. The path's rate is 0 as long as it is not known.
    pub fn handle_look(&mut self, look: Look) -> Option<Resources> {
        let span = match self.last {
            Some(last) => look.at - last.at,
            None => look.at.max(LEAST_SPAN),
        };
        if !span.is_finite() || span < LEAST_SPAN {
            return None;
        }
        let (carried, supplied) = self
            .last
            .map_or((0.0, 0.0), |last| (last.carried, last.supplied));
        let sender_cores = self.sender.handle_look(look.sender, span);
        let receiver_cores = match look.receiver {
            Some(cores) => self.receiver.handle_look(cores, span),
            None => UNTOLD_CORES,
        };
        self.last = Some(look);
        let share = if look.is_full { 1.0 } else { 0.0 };
        self.full += FULL_WEIGHT * (share - self.full);
        let is_full = self.full >= FULL;
        self.see_path((look.carried - carried).max(0.0) / span, is_full, &look);
        let supplied = (look.supplied - supplied).max(0.0) / span;
        self.see_supply(supplied, is_full || look.waits_for_codec);
        Some(Resources {
            wire_rate: self.wire_rate,
            supply_rate: self.supply_rate,
            sender_cores,
            receiver_cores,
        })
    }

    fn see_path(&mut self, rate: f64, is_full: bool, look: &Look) {
        if self.wire_rate <= 0.0 {
            // The first looks: what a new path may carry, or carried while it was full.
            self.wire_rate = match is_full && rate > 0.0 {
                true => rate.max(look.window_rate),
                false => look.window_rate.max(0.0),
            };
            return;
        }
        if !is_full {
            let grown = self.wire_rate.max(rate) * GROWTH;
            self.wire_rate = grown.min(FASTEST);
        } else if look.is_full && rate > 0.0 {
            let near = self.wire_rate.min(rate * MOST_ABOVE);
            self.wire_rate = near + RATE_WEIGHT * (rate - near);
        }
    }

    fn see_supply(&mut self, rate: f64, others_hold_up: bool) {
        if others_hold_up {
            // It could give more, nobody knows how much.
            self.supply_rate = match self.supply_rate > FASTEST {
                true => f64::INFINITY,
                false => self.supply_rate.max(rate) * 2.0,
            };
        } else if rate > 0.0 {
            let near = self.supply_rate.min(rate * 2.0);
            self.supply_rate = near + RATE_WEIGHT * (rate - near);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Cores = Cores {
        all: 2.0,
        idle: 2.0,
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
            let look = Look {
                at: began + passed,
                carried: carried + passed * rate,
                supplied: carried + passed * rate,
                is_full,
                window_rate: 0.0,
                waits_for_codec: false,
                sender: IDLE,
                receiver: Some(IDLE),
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
        let room = after(&mut sense, 2.0, 5e7, false);
        assert!(room.wire_rate > 3e8, "{room:?}");
        assert!((room.supply_rate / 5e7 - 1.0).abs() < 0.05, "{room:?}");
        let full = after(&mut sense, 2.0, 1e8, true);
        assert!((full.wire_rate / 1e8 - 1.0).abs() < 0.1, "{full:?}");
        assert!(full.supply_rate > 1e9);
    }

    #[test]
    fn nothing_is_known_of_a_path_that_was_never_full() {
        let mut sense = Sense::default();
        assert!(after(&mut sense, 3.0, 1e9, false).wire_rate <= 0.0);
    }

    #[test]
    fn windows_tell_before_anything_was_carried() {
        let mut sense = Sense::default();
        let look = Look {
            at: 0.1,
            carried: 0.0,
            supplied: 0.0,
            is_full: false,
            window_rate: 3e5,
            waits_for_codec: false,
            sender: IDLE,
            receiver: None,
        };
        let found = sense.handle_look(look).unwrap();
        assert!((found.wire_rate - 3e5).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn codecs_have_what_they_use_and_most_of_what_idles() {
        let mut sense = Sense::default();
        let idle = after(&mut sense, 2.0, 1e7, true);
        assert!((idle.sender_cores - 1.8).abs() < 0.01, "{idle:?}");
        let mut look = sense.last.unwrap();
        for _ in 0..30 {
            look.at += 0.1;
            look.sender.codec_seconds += 0.15;
            look.sender.idle = 0.1;
            sense.handle_look(look);
        }
        look.at += 0.1;
        look.sender.codec_seconds += 0.15;
        let busy = sense.handle_look(look).unwrap();
        assert!((busy.sender_cores - 1.5).abs() < 0.01, "{busy:?}");
        look.sender.idle = 0.0;
        for _ in 0..60 {
            look.at += 0.1;
            sense.handle_look(look);
        }
        look.at += 0.1;
        let full = sense.handle_look(look).unwrap();
        assert!((full.sender_cores - 0.08).abs() < 0.01, "{full:?}");
    }

    #[test]
    fn nonsense_breaks_nothing() {
        let mut sense = Sense::default();
        for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let cores = Cores {
                all: odd,
                idle: odd,
                codec_seconds: odd,
            };
            for at in [1.0, odd, 2.0] {
                sense.handle_look(Look {
                    at,
                    carried: odd,
                    supplied: odd,
                    is_full: true,
                    window_rate: odd,
                    waits_for_codec: true,
                    sender: cores,
                    receiver: Some(cores),
                });
            }
        }
    }
}
