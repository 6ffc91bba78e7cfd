//! Controls how often a receiving thread takes data from the kernel: rarely, and much at once.

use std::io;
use std::time::{Duration, Instant};

use super::stream::Wire;

/// Minimum threshold in bytes that is worth a system call.
const SHORTEST_SLEEP: usize = 4 << 10;

/// Fraction (as divisor) of the round trip beyond its minimum that a receiver may add to it, and
/// the minimum and maximum of that pause.
const GATHERED_PART: u32 = 4;
const SHORTEST_GATHERING: Duration = Duration::from_millis(1);
const LONGEST_GATHERING: Duration = Duration::from_millis(20);

/// Interval between looks at the round trip, and the fraction (as divisor) by which the pause
/// shrinks each time without a queue. It halves in one second.
const GATHERING_LOOKS: Duration = Duration::from_millis(25);
const GATHERED_FADES: u32 = 64;

/// Computes the number of bytes that a receiving thread waits for: a large part of those that are
/// known to come. Otherwise, at 1 Gbit/s over sixteen streams, a thread wakes for every few
/// kilobytes, which costs more than decrypting and hashing them.
pub(super) struct Sleeper {
    /// Number of bytes known to come and not yet returned.
    expected: usize,
    /// Maximum number of bytes to wait for.
    longest: usize,
    /// Threshold last set on the socket.
    told: usize,
    gathering: Gathering,
    /// True if the last receive took all available data.
    drained: bool,
}

/// Controls the time that a receiver leaves data in the kernel before it takes all of it at once.
///
/// A kernel acknowledges every second segment, or when a receiver takes data. On a slow return path
/// (1 Gbit/s one way and 10 Mbit/s the other), acknowledgements queue, and limit the rate of the
/// data. A receiver that takes data less often sends fewer of them. A round trip above its minimum
/// indicates a queue in either direction, and a small delay by the receiver then costs almost
/// nothing. (A route that becomes longer during the stream is mistaken for a queue permanently. A
/// minimum that expires would not help, because the queue of a slow return path lasts as long as
/// the copy.) Large amounts are not delayed: they arrive in packets of many segments, and are
/// cheaper to process while they are in the processor's cache.
#[derive(Debug, Default)]
struct Gathering {
    looked: Option<Instant>,
    least: Option<Duration>,
    pause: Duration,
    /// Bytes received since the last look, and bytes per second before it.
    came: usize,
    rate: f64,
}

impl Gathering {
    /// Samples the receiver's estimate of the round trip, at most once per interval.
    fn look(&mut self, wire: &Wire) {
        let now = Instant::now();
        let since = self.looked.map(|at| now - at);
        if since.is_some_and(|since| since < GATHERING_LOOKS) {
            return;
        }
        self.looked = Some(now);
        let came = std::mem::take(&mut self.came);
        if came == 0 {
            // Without received data there is no estimate.
            return;
        }
        self.rate = since.map_or(0.0, |since| came as f64 / since.as_secs_f64());
        if let Some(rtt) = wire.receive_round_trip() {
            self.learn(rtt);
        }
    }

    /// Raises the pause at once if a queue is seen, and lowers it slowly without one, because the
    /// queue would soon return.
    fn learn(&mut self, rtt: Duration) {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let kept = self.pause - self.pause / GATHERED_FADES;
        self.pause = kept.max(((rtt - least) / GATHERED_PART).min(LONGEST_GATHERING));
    }

    /// Returns the current pause, limited so that at most `most` bytes arrive in it.
    fn pause(&self, most: usize) -> Option<Duration> {
        // Infinite if no data arrived.
        let until = Duration::try_from_secs_f64(most as f64 / self.rate);
        let pause = until.map_or(self.pause, |until| until.min(self.pause));
        (pause >= SHORTEST_GATHERING).then_some(pause)
    }
}

impl Sleeper {
    /// Creates a sleeper that expects no data.
    pub(super) fn new() -> Sleeper {
        Sleeper {
            expected: 0,
            longest: 0,
            told: 1,
            gathering: Gathering::default(),
            drained: false,
        }
    }

    /// Implements [`StreamReader::anticipate`].
    pub(super) fn anticipate(&mut self, wire: &Wire, bytes: usize) {
        self.expected = bytes;
        // Smaller amounts are never waited for, for any buffer size.
        if bytes >= SHORTEST_SLEEP {
            self.longest = wire.longest_sleep();
        }
    }

    /// Receives at least one byte, unless the peer has ended. `held` is the number of bytes
    /// received earlier and not yet returned.
    ///
    /// # Errors
    ///
    /// The error of the socket.
    pub(super) fn receive(
        &mut self,
        wire: &Wire,
        buffer: &mut [u8],
        held: usize,
    ) -> io::Result<usize> {
        let more = self.expected.saturating_sub(held);
        // Applies between blocks too: data read there is also acknowledged.
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
        // A blocking receive takes the available bytes, and then waits for the full threshold
        // again, which may exceed the bytes that still come.
        loop {
            wire.sleep()?;
            if let Some(count) = wire.receive_now(buffer)? {
                self.gathering.came += count;
                return Ok(count);
            }
        }
    }

    /// Records that this many bytes were returned.
    pub(super) fn note(&mut self, count: usize) {
        self.expected = self.expected.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_reads_less_often_while_there_is_a_queue() {
        let ms = Duration::from_millis;
        let mut gathering = Gathering::default();
        let mut after = |rtt: u64| {
            gathering.learn(ms(rtt));
            gathering.pause(1 << 17)
        };
        // The first value is the minimum, and then lower ones are. A small increase is not a queue.
        assert_eq!([120, 92, 95].map(&mut after), [None; 3]);
        assert_eq!([100, 104].map(&mut after), [Some(ms(2)), Some(ms(3))]);
        assert_eq!(after(400), Some(LONGEST_GATHERING));
        let fading: Vec<_> = (0..200).map_while(|_| after(92)).collect();
        assert!(fading.is_sorted_by(|before, next| before > next));
        // A look every 25 ms halves the pause in one second, and ends it in five.
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
