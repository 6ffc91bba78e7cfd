//! When a receiving thread takes what has come: seldom, and much at once.

use std::io;
use std::time::{Duration, Instant};

use super::stream::Wire;

/// Fewer bytes are not worth telling the kernel.
const SHORTEST_SLEEP: usize = 4 << 10;

/// The part of what the round trip has beyond the least one that a receiver may add to it,
/// the least that is worth it, and the most.
const GATHERED_PART: u32 = 4;
const SHORTEST_GATHERING: Duration = Duration::from_millis(1);
const LONGEST_GATHERING: Duration = Duration::from_millis(20);

/// How often the round trip is looked at, and the part by which gathering shortens each time
/// where it shows no queue: to half in one second.
const GATHERING_LOOKS: Duration = Duration::from_millis(25);
const GATHERED_FADES: u32 = 64;

/// How many bytes a receiving thread sleeps for: many of those that are known to
/// come. At 1 Gbit/s over sixteen streams a thread is else woken for every few
/// kilobytes, which costs more than decrypting and hashing them.
pub(super) struct Sleeper {
    /// Bytes known to come that were not given out.
    expected: usize,
    /// The most that is worth it.
    longest: usize,
    /// What the socket was told.
    told: usize,
    gathering: Gathering,
    /// The last receive left nothing.
    drained: bool,
}

/// How long a receiver leaves what comes to the kernel before it takes all of it at once.
///
/// A kernel acknowledges two segments at a time, or what a receiver takes from it. On a thin way
/// back (1 Gbit/s one way and 10 Mbit/s the other), acknowledgements queue, and their rate limits
/// the way there. A receiver that takes data less often sends fewer of them. A round trip beyond
/// the least one is a queue on either way; a small delay that the receiver adds costs almost
/// nothing. (A route that becomes longer in mid-stream is taken for a queue permanently: the queue
/// of a thin way back stands as long as the copy runs, and a minimum that expires would include
/// it.) Large amounts do not wait: they come in packets of many segments, and are cheaper to take
/// while they are in the processor's cache.
#[derive(Debug, Default)]
struct Gathering {
    looked: Option<Instant>,
    least: Option<Duration>,
    pause: Duration,
    /// Bytes that came since the last look, and in each second before it.
    came: usize,
    rate: f64,
}

impl Gathering {
    /// Looks at the round trip as the receiver sees it, from time to time.
    fn look(&mut self, wire: &Wire) {
        let now = Instant::now();
        let since = self.looked.map(|at| now - at);
        if since.is_some_and(|since| since < GATHERING_LOOKS) {
            return;
        }
        self.looked = Some(now);
        let came = std::mem::take(&mut self.came);
        if came == 0 {
            // Who sends nothing has no round trip.
            return;
        }
        self.rate = since.map_or(0.0, |since| came as f64 / since.as_secs_f64());
        if let Some(rtt) = wire.receive_round_trip() {
            self.learn(rtt);
        }
    }

    /// More is gathered at once where a queue is seen, and less by and by: without one there
    /// would soon be another.
    fn learn(&mut self, rtt: Duration) {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let kept = self.pause - self.pause / GATHERED_FADES;
        self.pause = kept.max(((rtt - least) / GATHERED_PART).min(LONGEST_GATHERING));
    }

    /// How long to wait now, where no more than this many bytes should come meanwhile.
    fn pause(&self, most: usize) -> Option<Duration> {
        // Infinite where nothing came.
        let until = Duration::try_from_secs_f64(most as f64 / self.rate);
        let pause = until.map_or(self.pause, |until| until.min(self.pause));
        (pause >= SHORTEST_GATHERING).then_some(pause)
    }
}

impl Sleeper {
    /// Nothing is expected.
    pub(super) fn new() -> Sleeper {
        Sleeper {
            expected: 0,
            longest: 0,
            told: 1,
            gathering: Gathering::default(),
            drained: false,
        }
    }

    /// As [`StreamReader::anticipate`].
    pub(super) fn anticipate(&mut self, wire: &Wire, bytes: usize) {
        self.expected = bytes;
        // Less is not slept for, whatever the buffer.
        if bytes >= SHORTEST_SLEEP {
            self.longest = wire.longest_sleep();
        }
    }

    /// Receives at least a byte unless the peer has ended; `held` bytes have come
    /// already and were not given out.
    ///
    /// # Errors
    ///
    /// What the socket says.
    pub(super) fn receive(
        &mut self,
        wire: &Wire,
        buffer: &mut [u8],
        held: usize,
    ) -> io::Result<usize> {
        let more = self.expected.saturating_sub(held);
        // Whatever comes next: what is read between two blocks is acknowledged as well.
        let gathers = if self.longest > 0 {
            self.gathering.look(wire);
            self.gathering.pause(self.longest)
        } else {
            None
        };
        let due = more.min(self.longest);
        let due = if due < SHORTEST_SLEEP || gathers.is_some() {
            1
        } else {
            due
        };
        if due != self.told && wire.sleep_for(due) {
            self.told = due;
        }
        if self.told == 1 {
            if let Some(pause) = gathers.filter(|_| self.drained) {
                wire.let_come(pause)?;
            }
            let count = wire.receive(buffer)?;
            self.drained = count < buffer.len();
            self.gathering.came += count;
            return Ok(count);
        }
        // A receive that waits takes what there is, and then waits for as much
        // again as it was to wait for: more than may come.
        loop {
            wire.sleep()?;
            if let Some(count) = wire.receive_now(buffer)? {
                self.gathering.came += count;
                return Ok(count);
            }
        }
    }

    /// This many bytes were given out.
    pub(super) fn note(&mut self, count: usize) {
        self.expected = self.expected.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_queue_is_seen_a_receiver_takes_less_often_and_soon_as_before_without() {
        let ms = Duration::from_millis;
        let mut gathering = Gathering::default();
        let mut after = |rtt: u64| {
            gathering.learn(ms(rtt));
            gathering.pause(1 << 17)
        };
        // What is first seen is the least, and then less; a little more is no queue.
        assert_eq!([120, 92, 95].map(&mut after), [None; 3]);
        assert_eq!([100, 104].map(&mut after), [Some(ms(2)), Some(ms(3))]);
        assert_eq!(after(400), Some(LONGEST_GATHERING));
        let fading: Vec<_> = (0..200).map_while(|_| after(92)).collect();
        assert!(fading.is_sorted_by(|before, next| before > next));
        // A look is every 25 ms: to half in a second, to nothing in five.
        assert!((ms(10)..ms(11)).contains(&fading[40]), "{fading:?}");
        assert!((160..200).contains(&fading.len()), "{fading:?}");
    }

    #[test]
    fn much_does_not_wait() {
        let mut gathering = Gathering::default();
        gathering.learn(Duration::from_millis(100));
        gathering.learn(Duration::from_millis(300));
        let mut at = |rate: f64| {
            gathering.rate = rate;
            gathering.pause(100_000)
        };
        assert_eq!(at(1e6), Some(LONGEST_GATHERING));
        assert_eq!(at(20e6), Some(Duration::from_millis(5)));
        assert_eq!(at(200e6), None);
    }
}
