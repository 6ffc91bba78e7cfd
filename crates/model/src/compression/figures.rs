//! What a codec makes of one part of the data, as it was seen so far.

/// Bytes after which what was seen counts half: data of one kind differ from file to file, and
/// a host's speed changes with what else it does.
const MEMORY_BYTES: f64 = 6.4e7;

/// The weight of a new observation of the decompressing end, which tells means of many blocks.
const DECODED_WEIGHT: f64 = 0.3;

/// The most that seconds of a core for a byte, and bytes before over bytes after, are taken for: a
/// peer may tell anything, and the plan's numbers must stay near each other.
const MOST_SECONDS: f64 = 1e-4;
const MOST_RATIO: f64 = 1e4;

/// What became of some data at the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Bytes before.
    pub bytes: u64,
    /// Bytes after; as many as before where it got no smaller.
    pub encoded: u64,
    /// Seconds of a core that it took.
    pub seconds: f64,
}

/// Sums that forget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    bytes: f64,
    encoded: f64,
    seconds: f64,
    /// Seconds of a core for a byte of the source, at the sender.
    pub encode_seconds: f64,
    /// The same at the receiver.
    pub decode_seconds: f64,
}

impl Figures {
    /// No figures yet, except the guess of what the receiver takes.
    pub fn new(decode_seconds: f64) -> Figures {
        Figures {
            bytes: 0.0,
            encoded: 0.0,
            seconds: 0.0,
            encode_seconds: 0.0,
            decode_seconds,
        }
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.bytes <= 0.0
    }

    /// Adds what a trial saw. A codec is tried where it was not used for long: what was seen of it
    /// before counts no more than the trial.
    pub fn add_trial(&mut self, observed: Observed) {
        self.keep(observed.bytes as f64);
        self.add_encoded(observed);
    }

    /// What was seen so far counts for next to nothing from now on.
    pub fn forget(&mut self) {
        self.keep(1.0);
    }

    /// What was seen counts as this many bytes at most.
    fn keep(&mut self, bytes: f64) {
        if self.bytes > bytes {
            let kept = bytes / self.bytes;
            (self.encoded, self.seconds) = (self.encoded * kept, self.seconds * kept);
            self.bytes = bytes;
        }
    }

    /// Adds what was seen.
    pub fn add_encoded(&mut self, observed: Observed) {
        let bytes = observed.bytes as f64;
        if bytes <= 0.0 || !observed.seconds.is_finite() {
            return;
        }
        let kept = 0.5_f64.powf(bytes / MEMORY_BYTES);
        self.bytes = self.bytes * kept + bytes;
        self.encoded = self.encoded * kept + observed.encoded as f64;
        self.seconds = self.seconds * kept + observed.seconds.max(0.0);
        self.encode_seconds = (self.seconds / self.bytes).min(MOST_SECONDS);
    }

    /// Adds what the receiver tells.
    pub fn add_decoded(&mut self, seconds: f64) {
        if !seconds.is_nan() {
            let seconds = seconds.clamp(0.0, MOST_SECONDS);
            self.decode_seconds += DECODED_WEIGHT * (seconds - self.decode_seconds);
        }
    }

    /// Bytes before over bytes after, at least 1; 1 where nothing was seen.
    pub fn ratio(&self) -> f64 {
        if self.encoded > 0.0 {
            (self.bytes / self.encoded).clamp(1.0, MOST_RATIO)
        } else {
            1.0
        }
    }
}
