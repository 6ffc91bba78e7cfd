//! Measures codecs on the user's own data: compressed size and speed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_proto::block::Codec;
use longhaul_proto::shuffle::{ElementSize, Shuffle};
use longhaul_system::queue::lock;

use super::{Limit, Sample, in_threads, timed};
use crate::codec::sample::{Nature, SAMPLE_BYTES, nature_of};
use crate::codec::{Decoder, Encoder, bound};
use crate::send::automatic::shuffle_before;
use crate::send::kinds::middle_of;

/// Bytes of a block, as in a copy.
const BLOCK_BYTES: u64 = 1 << 20;

/// Blocks in memory.
#[derive(Debug)]
pub struct Blocks {
    blocks: Vec<Vec<u8>>,
    /// Total number of bytes.
    pub bytes: u64,
}

/// Number of a block, the block, and the buffer for its output.
type Turn<'a> = (usize, &'a [u8], &'a Mutex<Vec<u8>>);

/// Result of one repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecSample {
    /// Number of bytes after encoding.
    pub encoded_bytes: u64,
    /// Measurement of encoding.
    pub encode: Sample,
    /// Measurement of decoding; its bytes are those after decoding.
    pub decode: Sample,
}

impl Blocks {
    /// Loads blocks spread evenly over files, at most `most` bytes together, so that samples
    /// represent a large dataset.
    ///
    /// # Errors
    ///
    /// Errors of reading a file, with its name; fails if there are no data.
    pub fn load(files: &[PathBuf], most: u64) -> io::Result<Blocks> {
        let mut all = Vec::new();
        let mut total = 0;
        for path in files {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let status = std::fs::metadata(path).map_err(named)?;
            if !status.is_file() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{} is no file: name files", path.display()),
                ));
            }
            total += status.len();
            all.push((path, status.len()));
        }
        let step = total.div_ceil(most.max(1)).max(1) * BLOCK_BYTES;
        let mut blocks = Blocks {
            blocks: Vec::new(),
            bytes: 0,
        };
        for (path, length) in all {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let mut file = File::open(path).map_err(named)?;
            let mut at = 0;
            while at < length && blocks.bytes < most {
                file.seek(SeekFrom::Start(at)).map_err(named)?;
                let mut block = Vec::new();
                let mut part = (&mut file).take(BLOCK_BYTES);
                part.read_to_end(&mut block).map_err(named)?;
                blocks.bytes += block.len() as u64;
                blocks.blocks.push(block);
                at += step;
            }
        }
        match blocks.bytes {
            0 => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the files are empty: name files with data",
            )),
            _ => Ok(blocks),
        }
    }

    /// True if a copy would shuffle any of the blocks before a codec.
    pub fn shuffles(&self) -> bool {
        self.blocks.iter().any(|block| element_of(block).is_some())
    }

    /// Encodes and decodes all blocks once, in this many threads. If `shuffled`, arrays of numbers
    /// are shuffled first.
    ///
    /// # Errors
    ///
    /// Fails if a codec has no memory or does not restore its input, or if the limit is exceeded.
    pub fn measure(
        &self,
        (codec, shuffled): (Codec, bool),
        flows: usize,
        limit: &Limit,
    ) -> io::Result<CodecSample> {
        let shuffles: Vec<Option<Shuffle>> = self
            .blocks
            .iter()
            .map(|block| element_of(block).filter(|_| shuffled))
            .map(|element| element.map(|element| shuffle_before(codec, element)))
            .collect();
        let encoded: Vec<Mutex<Vec<u8>>> = self
            .blocks
            .iter()
            // Touch the buffers before the clock starts.
            .map(|block| Mutex::new(vec![1; bound(codec, block.len())]))
            .collect();
        let indices = || AtomicUsize::new(0);
        let next = indices();
        let encode = timed(|| {
            in_threads(flows, |_| {
                let mut encoder = Encoder::new()?;
                // A shuffle works in place, so it needs a copy.
                let mut copy = vec![1; BLOCK_BYTES as usize];
                while let Some((at, block, room)) = self.next(&encoded, &next, limit)? {
                    let mut room = lock(room);
                    let length = match shuffles[at] {
                        Some(with) => {
                            let copy = &mut copy[..block.len()];
                            copy.copy_from_slice(block);
                            encoder.encode_shuffled(codec, with, copy, &mut room)?
                        }
                        None => encoder.encode(codec, block, &mut room)?,
                    };
                    room.truncate(length);
                }
                Ok(())
            })?;
            Ok((self.bytes, 0))
        })?;
        let next = indices();
        let decode = timed(|| {
            in_threads(flows, |_| {
                let mut decoder = Decoder::new()?;
                let mut back = vec![1; BLOCK_BYTES as usize];
                while let Some((at, block, room)) = self.next(&encoded, &next, limit)? {
                    let back = &mut back[..block.len()];
                    decoder.decode_shuffled(codec, shuffles[at], &lock(room), back)?;
                    // Compare one byte only: the tests of the codecs cover the rest.
                    if back.last() != block.last() {
                        return Err(io::Error::other("what was decoded differs"));
                    }
                }
                Ok(())
            })?;
            Ok((self.bytes, 0))
        })?;
        Ok(CodecSample {
            encoded_bytes: encoded.iter().map(|room| lock(room).len() as u64).sum(),
            encode,
            decode,
        })
    }

    fn next<'a>(
        &'a self,
        rooms: &'a [Mutex<Vec<u8>>],
        next: &AtomicUsize,
        limit: &Limit,
    ) -> io::Result<Option<Turn<'a>>> {
        limit.go_on()?;
        let index = next.fetch_add(1, Ordering::Relaxed);
        let found = self.blocks.get(index).zip(rooms.get(index));
        Ok(found.map(|(block, room)| (index, block.as_slice(), room)))
    }
}

/// Returns the element size of a block that is an array of numbers, by a sample as in a copy.
fn element_of(block: &[u8]) -> Option<ElementSize> {
    match nature_of(&block[middle_of(block.len(), SAMPLE_BYTES)]) {
        Nature::Numbers(element) => Some(element),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::tests::{endless, over};
    use super::*;

    #[test]
    fn repetitive_data_compress_with_any_number_of_threads() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("text");
        std::fs::write(&file, b"all the same ".repeat(300_000)).unwrap();
        let blocks = Blocks::load(&[file], 64 << 20).unwrap();
        assert_eq!(blocks.bytes, 3_900_000);
        for codec in [Codec::Zstd { level: 1 }, Codec::Lz4] {
            for flows in [1, 3] {
                let sample = blocks
                    .measure((codec, false), flows, &endless(&AtomicBool::new(false)))
                    .unwrap();
                assert!(sample.encoded_bytes < blocks.bytes / 20, "{sample:?}");
                assert_eq!(sample.decode.bytes, blocks.bytes);
            }
        }
        assert!(
            blocks
                .measure((Codec::Lz4, false), 1, &endless(&AtomicBool::new(true)))
                .is_err()
        );
        let late = blocks.measure((Codec::Lz4, false), 1, &over(&AtomicBool::new(false)));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn arrays_compress_better_after_a_shuffle() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("field");
        let mut random = longhaul_units::Random::new(4);
        let value = |at: u32, noise: f64| 300.0 + 20.0 * (f64::from(at) / 700.0).sin() + noise;
        let values = (0..300_000).flat_map(|at| value(at, random.fraction()).to_le_bytes());
        std::fs::write(&file, values.collect::<Vec<u8>>()).unwrap();
        let blocks = Blocks::load(&[file], 64 << 20).unwrap();
        assert!(blocks.shuffles());
        for codec in [Codec::Zstd { level: 1 }, Codec::Lz4] {
            let [plain, shuffled] = [false, true].map(|shuffled| {
                let stop = AtomicBool::new(false);
                let measured = blocks.measure((codec, shuffled), 2, &endless(&stop));
                measured.unwrap().encoded_bytes
            });
            assert!(
                shuffled * 10 < plain * 9,
                "{codec:?}: {shuffled} of {plain}"
            );
        }
    }

    #[test]
    fn large_files_are_sampled_evenly_and_empty_ones_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("large");
        let mut data = vec![1; 8 << 20];
        data[7 << 20..].fill(2);
        std::fs::write(&file, data).unwrap();
        let blocks = Blocks::load(&[file], 4 << 20).unwrap();
        assert_eq!(blocks.blocks.len(), 4);
        let empty = directory.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        assert!(Blocks::load(&[empty], 1 << 20).is_err());
        let error = Blocks::load(&[directory.path().into()], 1 << 20).unwrap_err();
        assert!(error.to_string().contains("is no file"), "{error}");
    }
}
