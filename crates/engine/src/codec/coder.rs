//! What a flow of the compression layer keeps from block to block.

use longhaul_proto::manifest::EntryId;

use super::Encoder;
use super::sample::{Nature, SAMPLE_BYTES, nature_of};

/// A compressor's state.
pub(crate) struct Coder {
    pub encoder: Encoder,
    /// What the last sample said, and of which file.
    seen: Option<(EntryId, Nature)>,
    /// Pieces since then.
    age: u32,
}

/// Pieces of a file that are taken for what the one before them was: a sample takes a tenth of
/// what the fastest codec takes for a piece of 1 MiB, and is to take a hundredth of all.
const PIECES_BETWEEN_SAMPLES: u32 = 15;

impl Coder {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Where zstd has no memory.
    pub fn new() -> std::io::Result<Coder> {
        Ok(Coder {
            encoder: Encoder::new()?,
            seen: None,
            age: 0,
        })
    }

    /// What a piece of a file is by a sample from its middle, or by that of a piece shortly before.
    pub fn nature_of(&mut self, file: EntryId, data: &[u8]) -> Nature {
        if let Some((of, nature)) = self.seen
            && of == file
            && self.age < PIECES_BETWEEN_SAMPLES
        {
            self.age += 1;
            return nature;
        }
        // Elements begin at multiples of their size from the beginning of a piece.
        let from = data.len().saturating_sub(SAMPLE_BYTES) / 2 / 8 * 8;
        let sample = &data[from..data.len().min(from + SAMPLE_BYTES)];
        let nature = nature_of(sample);
        (self.seen, self.age) = (Some((file, nature)), 0);
        nature
    }
}
