//! Ratio and CPU time of a codec for one part of the data.

/// Number of bytes after which earlier observations count half. Data of one kind differ between
/// files, and the speed of a host depends on its load.
const MEMORY_BYTES: f64 = 6.4e7;

/// Weight of a new observation from the receiver, which is a mean over many blocks.
const DECODED_WEIGHT: f64 = 0.3;

/// Maximum CPU seconds per byte, and maximum ratio. A peer may send any values, and the plan's
/// numbers must be of similar size.
const MOST_SECONDS: f64 = 1e-4;
const MOST_RATIO: f64 = 1e4;

/// The result of compressing some data at the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Number of bytes before compression.
    pub bytes: u64,
    /// Number of bytes after compression. Equal to `bytes` if the data did not shrink.
    pub encoded: u64,
    /// CPU seconds that the compression took.
    pub seconds: f64,
}

/// Sums with exponential decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    bytes: f64,
    encoded: f64,
    seconds: f64,
    /// CPU seconds per source byte at the sender.
    pub encode_seconds: f64,
    /// CPU seconds per source byte at the receiver.
    pub decode_seconds: f64,
}

impl Figures {
    /// Creates figures without observations, except for an estimate of the receiver's time.
    pub fn new(decode_seconds: f64) -> Figures {
        Figures {
            bytes: 0.0,
            encoded: 0.0,
            seconds: 0.0,
            encode_seconds: 0.0,
            decode_seconds,
        }
    }

    /// True if there are no observations.
    pub fn is_empty(&self) -> bool {
        self.bytes <= 0.0
    }

    /// Adds the result of a trial. A codec is tried if it was not used for long, so earlier
    /// observations are reduced to the weight of the trial.
    pub fn add_trial(&mut self, observed: Observed) {
        self.keep(observed.bytes as f64);
        self.add_encoded(observed);
    }

    /// Reduces the weight of all observations to nearly zero.
    pub fn forget(&mut self) {
        self.keep(1.0);
    }

    /// Reduces the weight of the observations to at most this number of bytes.
    fn keep(&mut self, bytes: f64) {
        if self.bytes > bytes {
            let kept = bytes / self.bytes;
            (self.encoded, self.seconds) = (self.encoded * kept, self.seconds * kept);
            self.bytes = bytes;
        }
    }

    /// Adds the result for a compressed block.
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

    /// Adds an observation of the receiver.
    pub fn add_decoded(&mut self, seconds: f64) {
        if !seconds.is_nan() {
            let seconds = seconds.clamp(0.0, MOST_SECONDS);
            self.decode_seconds += DECODED_WEIGHT * (seconds - self.decode_seconds);
        }
    }

    /// Returns the compression ratio, at least 1. Returns 1 without observations.
    pub fn ratio(&self) -> f64 {
        if self.encoded > 0.0 {
            (self.bytes / self.encoded).clamp(1.0, MOST_RATIO)
        } else {
            1.0
        }
    }
}
