//! A sender, a path and a receiver, represented by rates, and data with known ratios and costs.

use longhaul_model::compression::figures::Observed;
use longhaul_model::compression::plan::Resources;
use longhaul_model::compression::{Candidate, Compression, Deal, TRIAL_BYTES};
use longhaul_units::Random;

/// Size of a block in bytes.
pub const BLOCK_BYTES: u64 = 4 << 20;

/// Number of blocks between two samples of the resources. Buffers smooth the load of the layers
/// over this number: the 128 MiB that a sender has for blocks.
const WINDOW: usize = 32;

/// Initial estimates for lz4 and zstd at -5, 1, 3, 6 and 9: CPU nanoseconds per byte, as measured
/// here for text.
pub const CANDIDATES: [(f64, f64); 6] = [
    (1.4, 0.4),
    (1.6, 0.6),
    (1.8, 0.8),
    (3.0, 0.8),
    (7.0, 0.8),
    (14.0, 0.8),
];

/// lz4 and zstd at 1 judge if data are compressible.
const JUDGES: [usize; 2] = [0, 2];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data {
    Random,
    Text,
    Field,
    Sparse,
    /// Data that only entropy coding can compress, such as letters for random bytes.
    Letters,
}

impl Data {
    pub const ALL: [Data; 5] = [
        Data::Random,
        Data::Text,
        Data::Field,
        Data::Sparse,
        Data::Letters,
    ];
    pub const SHRINKING: [Data; 4] = [Data::Text, Data::Field, Data::Sparse, Data::Letters];

    /// Returns the ratios, and the factor by which codecs are faster than estimated.
    fn truth(self) -> ([f64; 6], f64) {
        match self {
            Data::Random => ([1.0; 6], 2.0),
            Data::Text => ([3.7, 3.9, 5.6, 6.1, 7.4, 7.8], 1.0),
            Data::Field => ([1.6, 1.7, 1.94, 2.0, 2.1, 2.15], 2.2),
            Data::Letters => ([1.0, 1.0, 1.33, 1.33, 1.33, 1.33], 1.5),
            Data::Sparse => ([40.0, 60.0, 70.0, 72.0, 75.0, 76.0], 3.0),
        }
    }

    /// Returns for each codec the ratio, and the CPU seconds per byte at both ends.
    pub fn figures(self) -> Vec<(f64, f64, f64)> {
        let each = (0..CANDIDATES.len()).map(|codec| {
            let ratio = self.truth().0[codec];
            (
                ratio,
                self.encode_seconds(codec),
                self.decode_seconds(codec),
            )
        });
        each.collect()
    }

    fn encode_seconds(self, codec: usize) -> f64 {
        CANDIDATES[codec].0 * 1e-9 / self.truth().1
    }

    fn decode_seconds(self, codec: usize) -> f64 {
        CANDIDATES[codec].1 * 1e-9 / self.truth().1
    }
}

/// Time that the layers needed, in seconds.
#[derive(Default)]
struct Loads {
    wire: f64,
    sender: f64,
    receiver: f64,
    supply: f64,
}

impl Loads {
    fn longest(&self) -> f64 {
        let codecs = self.sender.max(self.receiver);
        self.wire.max(codecs).max(self.supply)
    }
}

pub struct World {
    pub compression: Compression,
    resources: Resources,
    random: Random,
    /// Codec for every block, instead of the automatic choice.
    fixed: Option<Option<usize>>,
    /// Bytes and seconds by codec that the receiver has not yet reported.
    decoded: [(f64, f64); CANDIDATES.len()],
    pub encoded_blocks: usize,
    /// Number of uncompressed blocks that were not read into a buffer for a codec.
    pub untouched_blocks: usize,
    pub trial_seconds: f64,
    /// Total time in seconds.
    pub seconds: f64,
}

/// Returns the candidates with their initial estimates.
pub fn candidates() -> Vec<Candidate> {
    let each = CANDIDATES.iter().enumerate();
    let each = each.map(|(place, (encode, decode))| Candidate {
        encode_seconds: encode * 1e-9,
        decode_seconds: decode * 1e-9,
        judges: JUDGES.contains(&place),
    });
    each.collect()
}

impl World {
    pub fn new(resources: Resources, seed: u64) -> World {
        World {
            compression: Compression::new(candidates()),
            resources,
            random: Random::new(seed),
            fixed: None,
            decoded: [(0.0, 0.0); CANDIDATES.len()],
            encoded_blocks: 0,
            untouched_blocks: 0,
            trial_seconds: 0.0,
            seconds: 0.0,
        }
    }

    /// Moves this number of blocks of a mixture, with a part for each kind. Returns the rate in
    /// source bytes per second.
    pub fn run(&mut self, mixture: &[(Data, f64)], blocks: usize) -> f64 {
        self.moved(blocks, |random| {
            let mut drawn = random.fraction();
            for (number, (data, share)) in mixture.iter().enumerate() {
                if drawn < *share {
                    return (number as u32, *data);
                }
                drawn -= share;
            }
            (0, mixture[0].0)
        })
    }

    /// Moves blocks of one kind of data as one part. Returns the rate in source bytes per second.
    pub fn run_as(&mut self, part: u32, data: Data, blocks: usize) -> f64 {
        self.moved(blocks, |_| (part, data))
    }

    fn moved(&mut self, blocks: usize, draw: impl Fn(&mut Random) -> (u32, Data)) -> f64 {
        let mut time = 0.0;
        for _ in 0..blocks / WINDOW {
            self.compression
                .handle_resources(self.seconds + time, self.resources);
            // The receiver reports means over all parts.
            for (codec, told) in self.decoded.iter_mut().enumerate() {
                let (bytes, seconds) = std::mem::take(told);
                if bytes > 0.0 {
                    self.compression.handle_decoded(codec, seconds / bytes);
                }
            }
            let mut loads = Loads::default();
            for _ in 0..WINDOW {
                let (part, data) = draw(&mut self.random);
                self.block(part, data, &mut loads);
            }
            time += loads.longest();
        }
        self.seconds += time;
        (blocks / WINDOW * WINDOW) as f64 * BLOCK_BYTES as f64 / time
    }

    fn block(&mut self, part: u32, data: Data, loads: &mut Loads) {
        let (cores, receiver) = (self.resources.sender_cores, self.resources.receiver_cores);
        let dealt = match self.fixed {
            Some(fixed) => fixed.map_or(Deal::Plain, Deal::Coded),
            None => self.compression.deal(part, BLOCK_BYTES),
        };
        let chosen = match dealt {
            Deal::Plain => {
                self.untouched_blocks += 1;
                None
            }
            Deal::Coded(codec) => Some(codec),
            Deal::Try => {
                while let Some(codec) = self.compression.next_trial(part, BLOCK_BYTES) {
                    // A trial has a slightly lower ratio than a block.
                    let seen = self.observe(data, codec, TRIAL_BYTES, 0.95);
                    self.trial_seconds += seen.seconds;
                    loads.sender += seen.seconds / cores;
                    self.compression.handle_encoded(part, codec, seen, true);
                }
                self.compression.choose(part, BLOCK_BYTES)
            }
        };
        let bytes = BLOCK_BYTES as f64;
        loads.supply += bytes / self.resources.supply_rate;
        let Some(codec) = chosen else {
            loads.wire += bytes / self.resources.wire_rate;
            return;
        };
        self.encoded_blocks += 1;
        let seen = self.observe(data, codec, BLOCK_BYTES, 1.0);
        self.compression.handle_encoded(part, codec, seen, false);
        let decode = data.decode_seconds(codec);
        let told = &mut self.decoded[codec];
        *told = (
            told.0 + BLOCK_BYTES as f64,
            told.1 + decode * BLOCK_BYTES as f64,
        );
        loads.sender += seen.seconds / cores;
        loads.receiver += decode * bytes / receiver;
        loads.wire += seen.encoded as f64 / self.resources.wire_rate;
    }

    /// Returns an observation with a variation of a tenth in ratio and time.
    fn observe(&mut self, data: Data, codec: usize, bytes: u64, of_ratio: f64) -> Observed {
        let mut scatter = || 0.95 + 0.1 * self.random.fraction();
        let ratio = (data.truth().0[codec] * of_ratio * scatter()).max(1.0);
        Observed {
            bytes,
            encoded: if data.truth().0[codec] > 1.0 {
                (bytes as f64 / ratio) as u64
            } else {
                bytes
            },
            seconds: bytes as f64 * data.encode_seconds(codec) * scatter(),
        }
    }

    /// Returns the highest rate with one codec, or no codec, for all blocks.
    pub fn best_fixed(&self, data: Data) -> f64 {
        self.best_fixed_of(&[(data, 1.0)])
    }

    pub fn best_fixed_of(&self, mixture: &[(Data, f64)]) -> f64 {
        let choices = (0..CANDIDATES.len()).map(Some).chain([None]);
        let carried = choices.map(|choice| {
            let mut world = World::new(self.resources, 99);
            world.fixed = Some(choice);
            world.run(mixture, 1000)
        });
        carried.fold(0.0, f64::max)
    }
}
