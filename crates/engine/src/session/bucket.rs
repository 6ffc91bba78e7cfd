//! A token bucket: computes how many bytes may be sent at a rate, and when more may be. It has no
//! clock and no threads: time is an argument.

use std::time::Duration;

use longhaul_units::Moment;

/// Unused tokens are kept for one second divided by this. That is long enough for threads that wake
/// late, and little for the path.
const KEPT_PARTS_OF_A_SECOND: u64 = 20;

/// The maximum write is the rate per second divided by this, so that streams take turns and data
/// are spread evenly.
const WRITES_A_SECOND: u64 = 100;

/// Minimum of kept tokens and of a write, in bytes. Less would be more framing than data.
const LEAST_BYTES: u64 = 1 << 10;

/// Maximum write in bytes; larger writes save nothing.
const LARGEST_WRITE_BYTES: u64 = 64 << 10;

/// Nanoseconds in a second. Tokens are counted in bytes times this, so that no rounding is needed.
const SECOND: u128 = 1_000_000_000;

/// Returns the number of bytes that a rate in bytes per second allows beyond rate times span, in
/// any span of time.
pub fn burst_bytes(rate: u64) -> u64 {
    (rate / KEPT_PARTS_OF_A_SECOND).max(LEAST_BYTES)
}

/// A bucket that fills at a rate. In any span of time it allows at most rate times span plus
/// [`TokenBucket::kept_bytes`].
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Rate in bytes per second; `None` if unlimited.
    rate: Option<u64>,
    /// Tokens at time `at`: bytes times [`SECOND`].
    tokens: u128,
    at: Moment,
}

impl TokenBucket {
    /// Creates a full bucket. `rate` is in bytes per second; 0 counts as 1; `None` is unlimited.
    pub fn new(rate: Option<u64>, now: Moment) -> TokenBucket {
        let mut bucket = TokenBucket {
            rate: rate.map(|rate| rate.max(1)),
            tokens: 0,
            at: now,
        };
        bucket.tokens = bucket.most();
        bucket
    }

    /// Returns the rate in bytes per second; `None` if unlimited.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Returns the bytes beyond rate times span that may be sent in any span: a twentieth of a
    /// second's worth, at least 1 KiB. 0 if unlimited.
    pub fn kept_bytes(&self) -> u64 {
        self.rate.map_or(0, burst_bytes)
    }

    /// Returns the maximum number of bytes to take at once; `None` if unlimited.
    pub fn write_bytes(&self) -> Option<usize> {
        let bytes = |rate: u64| (rate / WRITES_A_SECOND).clamp(LEAST_BYTES, LARGEST_WRITE_BYTES);
        self.rate.map(|rate| bytes(rate) as usize)
    }

    /// Changes the rate from now on.
    pub fn set_rate(&mut self, rate: Option<u64>, now: Moment) {
        self.fill(now);
        self.rate = rate.map(|rate| rate.max(1));
        self.tokens = self.tokens.min(self.most());
    }

    /// Takes tokens for `bytes`: returns `None` if they may be sent now, otherwise the time to
    /// wait, and takes no tokens. More than [`TokenBucket::kept_bytes`] is never allowed at once.
    pub fn take(&mut self, bytes: usize, now: Moment) -> Option<Duration> {
        let rate = u128::from(self.rate?);
        self.fill(now);
        let needed = bytes as u128 * SECOND;
        match self.tokens.checked_sub(needed) {
            Some(left) => {
                self.tokens = left;
                None
            }
            None => {
                let nanoseconds = (needed - self.tokens).div_ceil(rate);
                let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
                Some(Duration::from_nanos(nanoseconds))
            }
        }
    }

    fn most(&self) -> u128 {
        u128::from(self.kept_bytes()) * SECOND
    }

    fn fill(&mut self, now: Moment) {
        let passed = (now - self.at).as_nanos();
        self.at = self.at.max(now);
        let came = passed * u128::from(self.rate.unwrap_or(0));
        self.tokens = self.tokens.saturating_add(came).min(self.most());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends without a pause until `end`, in writes of the recommended size; returns the times and
    /// bytes of the writes.
    fn send(bucket: &mut TokenBucket, from: Moment, end: Moment) -> Vec<(Moment, usize)> {
        let (mut now, mut sent) = (from, Vec::new());
        let write = bucket.write_bytes().unwrap();
        while now < end {
            match bucket.take(write, now) {
                Some(wait) => {
                    assert!(!wait.is_zero(), "a wait passes");
                    now = now + wait;
                }
                None => sent.push((now, write)),
            }
        }
        sent
    }

    fn bytes_between(sent: &[(Moment, usize)], from: Moment, to: Moment) -> u64 {
        let within = sent.iter().filter(|(at, _)| (from..=to).contains(at));
        within.map(|(_, bytes)| *bytes as u64).sum()
    }

    fn seconds(seconds: f64) -> Moment {
        Moment((seconds * 1e9) as u64)
    }

    #[test]
    fn every_rate_is_kept_and_reached() {
        for rate in [1000, 64 << 10, 10_000_000, 1_250_000_000, 100_000_000_000] {
            let mut bucket = TokenBucket::new(Some(rate), Moment(0));
            let sent = send(&mut bucket, Moment(0), seconds(10.0));
            let total = bytes_between(&sent, Moment(0), seconds(10.0));
            let kept = bucket.kept_bytes();
            assert!(total <= 10 * rate + kept, "{rate}: {total}");
            let write = bucket.write_bytes().unwrap() as u64;
            assert!(total + write >= 10 * rate, "{rate}: {total}");
        }
    }

    #[test]
    fn no_span_exceeds_its_share_and_the_kept_bytes() {
        let rate = 1_000_000;
        let mut bucket = TokenBucket::new(Some(rate), Moment(0));
        let mut sent = send(&mut bucket, Moment(0), seconds(1.0));
        // An hour's pause adds no more than the kept bytes.
        sent.extend(send(&mut bucket, seconds(3600.0), seconds(3601.0)));
        for from in [0.0, 0.37, 0.9, 3599.0, 3600.0, 3600.4] {
            for span in [0.0, 0.001, 0.02, 0.3, 1.0] {
                let bytes = bytes_between(&sent, seconds(from), seconds(from + span));
                let most = (rate as f64 * span) as u64 + bucket.kept_bytes();
                assert!(bytes <= most, "{from} {span}: {bytes} of {most}");
            }
        }
        assert_eq!(bucket.kept_bytes(), 50_000);
    }

    #[test]
    fn a_rate_can_change_during_a_copy() {
        let mut bucket = TokenBucket::new(Some(1_000_000), Moment(0));
        let fast = send(&mut bucket, Moment(0), seconds(2.0));
        bucket.set_rate(Some(100_000), seconds(2.0));
        let slow = send(&mut bucket, seconds(2.0), seconds(4.0));
        let bytes = |sent: &[(Moment, usize)]| bytes_between(sent, Moment(0), Moment(u64::MAX));
        assert!((2_000_000..=2_050_000).contains(&bytes(&fast)));
        assert!(
            (198_000..=205_000).contains(&bytes(&slow)),
            "{}",
            bytes(&slow)
        );
        bucket.set_rate(None, seconds(4.0));
        assert_eq!(bucket.take(usize::MAX, seconds(4.0)), None);
        assert_eq!((bucket.write_bytes(), bucket.kept_bytes()), (None, 0));
        // Bytes sent without a limit cost no tokens later, and the bucket starts empty.
        bucket.set_rate(Some(1000), seconds(5.0));
        assert!(bucket.take(1, seconds(5.0)).is_some());
    }

    #[test]
    fn a_clock_that_steps_back_adds_no_tokens() {
        let mut bucket = TokenBucket::new(Some(1000), seconds(5.0));
        assert_eq!(bucket.take(1024, seconds(5.0)), None);
        assert!(bucket.take(1, seconds(1.0)).is_some());
        assert_eq!(bucket.take(1, seconds(1.0)), bucket.take(1, seconds(5.0)));
    }
}
