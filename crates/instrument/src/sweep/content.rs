//! What files hold: bytes that neither compress nor repeat, or what resembles scientific data,
//! always the same for a file's number.
//!
//! Fields resemble those of paper 004 (FLASH's `temp`, `pres` and `velx`; section 5): arrays of
//! 8-byte floats that zstd at level 1 makes about 70, 4.5 and 2.5 times smaller in chunks of 1 MiB,
//! after their bytes were shuffled by elements of 8. A test holds the generators to these ratios.

use longhaul_measure::random::Random;
use serde::{Deserialize, Serialize};

/// What the files of a dataset hold.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Bytes that neither compress nor repeat.
    #[default]
    Random,
    /// A field that is the same nearly everywhere: about 70 times smaller.
    Temp,
    /// A smooth field of limited precision: about 4.5 times.
    Pres,
    /// A field with much noise: about 2.5 times.
    Velx,
    /// Reads of a sequencer with their qualities, as text.
    Fastq,
    /// Program text.
    Source,
    /// Blocks of gzip as in BAM files: compressed already.
    Bam,
    /// Records as JSON.
    Json,
    /// A file of each of the others in turn.
    Mixture,
}

/// What a mixture has, in turn.
const MIXED: [Content; 8] = [
    Content::Random,
    Content::Temp,
    Content::Fastq,
    Content::Bam,
    Content::Pres,
    Content::Source,
    Content::Velx,
    Content::Json,
];

/// Values of a field that are made at once.
const CELLS: usize = 4096;

/// Of a field that is the same nearly everywhere, one run of [`CELLS`] in this many is not.
const STRUCTURED_ONE_IN: u64 = 26;

impl Content {
    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Content::Random => "random",
            Content::Temp => "temp",
            Content::Pres => "pres",
            Content::Velx => "velx",
            Content::Fastq => "fastq",
            Content::Source => "source",
            Content::Bam => "bam",
            Content::Json => "json",
            Content::Mixture => "mixture",
        }
    }
}

/// One file's bytes, from its front.
#[derive(Debug)]
pub struct Bytes {
    content: Content,
    random: Random,
    /// Runs, records or lines that were made.
    made: u64,
    /// What was made and not taken.
    left: Vec<u8>,
}

impl Bytes {
    /// Of a file, by its number.
    pub fn new(content: Content, number: u64) -> Bytes {
        let content = match content {
            Content::Mixture => MIXED[(number % MIXED.len() as u64) as usize],
            content => content,
        };
        let mut bytes = Bytes {
            content,
            random: Random::new(number),
            made: 0,
            left: Vec::new(),
        };
        if content == Content::Json {
            bytes.left.extend(b"[\n");
        }
        bytes
    }

    /// Fills a block with what comes next.
    pub fn fill(&mut self, block: &mut [u8]) {
        if self.content == Content::Random {
            for word in block.chunks_mut(8) {
                word.copy_from_slice(&self.random.bits().to_le_bytes()[..word.len()]);
            }
            return;
        }
        while self.left.len() < block.len() {
            self.make();
        }
        let rest = self.left.split_off(block.len());
        block.copy_from_slice(&self.left);
        self.left = rest;
    }

    fn make(&mut self) {
        match self.content {
            Content::Temp => self.make_nearly_even(),
            Content::Pres => self.make_field(1e5, 36, 8),
            Content::Velx => self.make_field(40.0, 16, 24),
            Content::Fastq => self.make_read(),
            Content::Source => self.make_line(),
            Content::Bam => self.make_packed(),
            Content::Json => self.make_record(),
            Content::Random | Content::Mixture => {
                let word = self.random.bits();
                self.left.extend(word.to_le_bytes());
            }
        }
        self.made += 1;
    }

    /// A wave with `noisy` random bits above the `even` lowest ones, which are 0.
    fn make_field(&mut self, scale: f64, even: u32, noisy: u32) {
        let mask = (1_u64 << noisy) - 1;
        for cell in 0..CELLS as u64 {
            let at = (self.made * CELLS as u64 + cell) as f64;
            let smooth = scale * (1.5 + 0.4 * (at / 9000.0).sin());
            let kept = smooth.to_bits() >> (even + noisy) << (even + noisy);
            let noise = (self.random.bits() & mask) << even;
            self.left.extend((kept | noise).to_le_bytes());
        }
    }

    fn make_nearly_even(&mut self) {
        if self.made % STRUCTURED_ONE_IN == STRUCTURED_ONE_IN / 2 {
            self.make_field(3e7, 24, 19);
            return;
        }
        let ambient = 2.5e5_f64.to_le_bytes();
        (0..CELLS).for_each(|_| self.left.extend(ambient));
    }

    /// A read of 150 bases: its name, bases, qualities that follow one another.
    fn make_read(&mut self) {
        let (tile, x) = (1101 + self.made / 40_000, self.random.below(30_000));
        let y = 1000 + self.made / 12 % 36_000;
        let name = format!("@A00123:45:HXXYYDSXX:1:{tile}:{x}:{y} 1:N:0:ACGTACGT\n");
        self.left.extend(name.as_bytes());
        for _ in 0..150 {
            let base = b"ACGT"[self.random.below(4)];
            self.left.push(base);
        }
        self.left.extend(b"\n+\n");
        let mut quality = 36_usize;
        for place in 0..150 {
            if self.random.below(4) == 0 {
                let (down, up) = (self.random.below(5 + place / 20), self.random.below(6));
                quality = (quality + up).saturating_sub(down).clamp(2, 40);
            }
            self.left.push(33 + quality as u8);
        }
        self.left.push(b'\n');
    }

    /// A statement, of names that are the rarer the later they stand in their list.
    fn make_line(&mut self) {
        const WORDS: [&str; 24] = [
            "result", "block", "stream", "offset", "length", "count", "buffer", "index", "entry",
            "session", "payload", "window", "header", "checksum", "path", "limit", "capacity",
            "reader", "writer", "encoder", "decoder", "journal", "ledger", "digest",
        ];
        let word = |random: &mut Random| {
            let most = 1 + random.below(WORDS.len());
            WORDS[random.below(most)]
        };
        let random = &mut self.random;
        let (one, two, three) = (word(random), word(random), word(random));
        let most = 1 << (1 + random.below(12));
        let number = random.below(most);
        let depth = "    ".repeat(1 + random.below(3));
        let line = match random.below(9) {
            0 => format!(
                "{depth}if {one}.{two} > {number} {{\n{depth}    return {three};\n{depth}}}\n"
            ),
            1 => format!(
                "{depth}for {one} in 0..{two}.len() {{\n{depth}    {three}[{one}] = {number};\n{depth}}}\n"
            ),
            2 => format!("{depth}// The {one} of a {two} is at most {number} {three}s.\n"),
            3 => format!("\nfn {one}_of_{two}_{number}({three}: &mut {two}) -> usize {{\n"),
            4 => "}\n".to_owned(),
            5 => format!("{depth}let {one} = {two}.{three}({number})?;\n"),
            6 => format!("{depth}assert_eq!({one}.{two}(), {number}, \"{three}\");\n"),
            _ => format!("{depth}{one}.{two}_{three} += {number};\n"),
        };
        self.left.extend(line.as_bytes());
    }

    /// One block as in BGZF (SAM specification, 4.1), with random bytes in it.
    fn make_packed(&mut self) {
        let length = 12_000 + self.random.below(8000);
        let head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0";
        self.left.extend(head);
        let size = (head.len() + 2 + length + 8 - 1) as u16;
        self.left.extend(size.to_le_bytes());
        for _ in 0..length.div_ceil(8) {
            let word = self.random.bits();
            self.left.extend(word.to_le_bytes());
        }
        // What was packed had 65,280 bytes; the checksum before that is as random as the rest.
        self.left.extend(65_280_u32.to_le_bytes());
    }

    fn make_record(&mut self) {
        let random = &mut self.random;
        let states = ["queued", "running", "done", "failed"];
        let (state, size) = (states[random.below(4)], random.below(1 << 30));
        let (hour, second) = (random.below(24), random.below(3600));
        let record = format!(
            "  {{\"id\": {}, \"path\": \"/scratch/run{}/part-{:05}.h5\", \"state\": \"{state}\", \
             \"bytes\": {size}, \"begun\": \"2026-03-14T{hour:02}:{:02}:{:02}Z\", \"checksum\": \
             \"{:016x}\"}},\n",
            self.made,
            random.below(40),
            random.below(100_000),
            second / 60,
            second % 60,
            random.bits()
        );
        self.left.extend(record.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_engine::codec::{Encoder, bound};
    use longhaul_proto::block::Codec;
    use longhaul_proto::shuffle::{Arrangement, ElementSize, Shuffle};

    const CHUNK: usize = 1 << 20;

    /// How many times smaller zstd at level 1 makes eight chunks, after a shuffle where there is
    /// one.
    fn ratio(content: Content, shuffle: Option<Shuffle>) -> f64 {
        let (mut bytes, mut encoder) = (Bytes::new(content, 7), Encoder::new().unwrap());
        let (mut chunk, codec) = (vec![0; CHUNK], Codec::Zstd { level: 1 });
        let mut room = vec![0; bound(codec, CHUNK)];
        let mut encoded = 0;
        for _ in 0..8 {
            bytes.fill(&mut chunk);
            encoded += match shuffle {
                Some(with) => encoder.encode_shuffled(codec, with, &mut chunk, &mut room),
                None => encoder.encode(codec, &chunk, &mut room),
            }
            .unwrap();
        }
        8.0 * CHUNK as f64 / encoded as f64
    }

    #[test]
    fn fields_get_as_much_smaller_as_those_of_the_paper() {
        let with = Some(Shuffle {
            arrangement: Arrangement::Bytes,
            element: ElementSize::Eight,
        });
        for (content, stated) in [
            (Content::Temp, 70.0),
            (Content::Pres, 4.5),
            (Content::Velx, 2.5),
        ] {
            let found = ratio(content, with);
            assert!(
                (found / stated - 1.0).abs() < 0.15,
                "{content:?}: {found:.2} instead of {stated}"
            );
        }
    }

    #[test]
    fn the_others_get_smaller_as_their_like_do() {
        for (content, least, most) in [
            (Content::Random, 0.99, 1.01),
            (Content::Bam, 0.99, 1.03),
            (Content::Fastq, 1.8, 3.5),
            (Content::Source, 3.0, 8.0),
            (Content::Json, 2.5, 6.0),
        ] {
            let found = ratio(content, None);
            assert!((least..most).contains(&found), "{content:?}: {found:.2}");
        }
    }

    #[test]
    fn a_file_is_the_same_however_it_is_cut_and_another_is_not() {
        for content in MIXED {
            let made = |number: u64, step: usize| {
                let (mut bytes, mut all) = (Bytes::new(content, number), vec![0; 800_000]);
                all.chunks_mut(step).for_each(|part| bytes.fill(part));
                all
            };
            assert!(made(3, 800_000) == made(3, 1600), "{content:?}");
            assert!(made(3, 800_000) != made(4, 800_000), "{content:?}");
        }
        let mut mixed = Bytes::new(Content::Mixture, 2);
        let (mut one, mut other) = ([0; 64], [0; 64]);
        mixed.fill(&mut one);
        Bytes::new(Content::Fastq, 2).fill(&mut other);
        assert_eq!(one, other);
    }
}
