//! Samples a dataset: its kinds of data, the amount of each, and the effect of codecs on them. A
//! plan can thus include compression before the copy starts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use longhaul_engine::benchmark::kinds::{Trials, Tried};
use longhaul_engine::codec::recognise::HEAD_BYTES;
use longhaul_model::capacity::{Capacity, FlowCapacity};
use longhaul_model::graph::{Part, PartCodec};
use longhaul_proto::block::Codec;
use longhaul_proto::coding::Kind;

use crate::planning::survey::{Survey, SurveyLimits, survey_each};

/// Size of a sample in bytes, the same as for the trials of a copy.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Size in bytes below which many files share one block, with blocks of the default size.
const SMALL_BYTES: u64 = 1 << 20;

/// Maximum number of files that can be sampled. The first ones represent the others.
const MOST_FILES: usize = 100_000;

/// Minimum compression ratio of a kind of data for a codec to be considered.
const LEAST_RATIO: f64 = 1.03;

/// Minimum share of the samples for a kind of data to be considered.
const LEAST_SHARE: f64 = 0.01;

/// Number of threads up to which a codec's capacity is linear.
const MOST_FLOWS: u32 = 4096;

/// A dataset, divided by kinds of data.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Counts of files and bytes.
    pub survey: Survey,
    /// Parts by kind, the largest kind first. A single part without codecs if no sample could be
    /// read.
    pub parts: Vec<Part>,
}

impl Sampled {
    /// Returns a dataset of which only the size is known.
    pub fn unknown(survey: Survey) -> Sampled {
        let part = Part {
            name: "dataset".to_owned(),
            bytes: survey.bytes.max(1.0),
            files: survey.files.max(1.0),
            codecs: Vec::new(),
        };
        Sampled {
            survey,
            parts: vec![part],
        }
    }
}

/// Sums of the samples of one kind.
#[derive(Default)]
struct Sums {
    samples: usize,
    /// Number of files that the samples represent.
    files: f64,
    bytes: f64,
    /// Results by codec: bytes after it, seconds to encode, seconds to decode.
    tried: Vec<(Codec, f64, f64, f64)>,
}

impl Sums {
    fn add(&mut self, sample: u64, file: u64, tried: &[Tried]) {
        self.samples += 1;
        self.files += 1.0 / file.max(1) as f64;
        self.bytes += sample as f64;
        for one in tried {
            let place = self.tried.iter().position(|sum| sum.0 == one.codec);
            let place = place.unwrap_or_else(|| {
                self.tried.push((one.codec, 0.0, 0.0, 0.0));
                self.tried.len() - 1
            });
            let sum = &mut self.tried[place];
            sum.1 += one.encoded as f64;
            sum.2 += one.encode_seconds;
            sum.3 += one.decode_seconds;
        }
    }

    /// Returns the useful codecs: each slower one has a better ratio.
    fn codecs(&self, uses: impl Fn(Codec) -> bool) -> Vec<PartCodec> {
        let mut codecs: Vec<PartCodec> = Vec::new();
        let mut tried: Vec<_> = self.tried.iter().filter(|sum| uses(sum.0)).collect();
        tried.sort_by(|one, other| one.2.total_cmp(&other.2));
        for (codec, encoded, encode, decode) in tried {
            let ratio = self.bytes / encoded.max(1.0);
            let best = codecs.last().map_or(LEAST_RATIO, |last| 1.01 * last.ratio);
            if ratio >= best {
                let per_byte = |seconds: &f64| (seconds / self.bytes.max(1.0)).max(1e-12);
                codecs.push(PartCodec {
                    name: codec.to_string(),
                    ratio,
                    compress: of_thread(per_byte(encode)),
                    compress_cpu: per_byte(encode),
                    decompress: of_thread(per_byte(decode)),
                    decompress_cpu: per_byte(decode),
                });
            }
        }
        codecs
    }
}

/// Returns the capacity of threads that each take this many seconds per byte.
fn of_thread(seconds: f64) -> Capacity {
    Capacity::Flows(FlowCapacity::Linear {
        alpha: 1.0 / seconds,
        gamma: 0.0,
        most: MOST_FLOWS,
    })
}

/// Surveys the entries below `paths`, and reads `samples` pieces, spread evenly over the bytes.
/// `uses` returns true for codecs that the copy may use.
///
/// # Errors
///
/// The same as [`survey`](crate::planning::survey::survey). Unreadable files are not sampled.
pub fn sample(
    paths: &[PathBuf],
    limits: SurveyLimits,
    samples: usize,
    uses: impl Fn(Codec) -> bool,
) -> io::Result<Sampled> {
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    let survey = survey_each(paths, limits, |path, bytes| {
        if files.len() < MOST_FILES && bytes > 0 {
            files.push((path, bytes));
        }
    })?;
    let kinds = match samples {
        0 => BTreeMap::new(),
        samples => sums(&files, samples).unwrap_or_default(),
    };
    if kinds.is_empty() {
        return Ok(Sampled::unknown(survey));
    }
    let parts = parts(&survey, &kinds, uses);
    Ok(Sampled { survey, parts })
}

/// True if a trial takes at most some milliseconds. Slower codecs pay on few paths.
fn is_quick(codec: Codec) -> bool {
    !matches!(codec, Codec::Zstd { level: 10.. })
}

fn sums(files: &[(PathBuf, u64)], samples: usize) -> io::Result<BTreeMap<Kind, Sums>> {
    let all: u64 = files.iter().map(|file| file.1).fold(0, u64::saturating_add);
    let mut kinds: BTreeMap<Kind, Sums> = BTreeMap::new();
    let mut trials = Trials::new()?;
    let (mut index, mut before) = (0, 0);
    let samples = samples as u64;
    for number in 0..samples {
        // Sample the middle of each of `samples` equal parts of the dataset.
        let at = (u128::from(all) * u128::from(2 * number + 1) / u128::from(2 * samples)) as u64;
        while index < files.len() && at >= before + files[index].1 {
            before += files[index].1;
            index += 1;
        }
        let Some(file) = files.get(index) else { break };
        let read = if file.1 < SMALL_BYTES {
            Some((None, read_small(&files[index..])))
        } else {
            read_piece(file, at - before).ok()
        };
        let Some((head, piece)) = read.filter(|(_, piece)| !piece.is_empty()) else {
            continue;
        };
        let kind = Trials::kind(head.as_deref(), &piece);
        let tried = trials.try_all(kind, &piece, is_quick);
        let sums = kinds.entry(kind).or_default();
        sums.add(piece.len() as u64, file.1, &tried);
    }
    Ok(kinds)
}

/// Reads a piece of a large file, and the file's first bytes.
fn read_piece(file: &(PathBuf, u64), at: u64) -> io::Result<(Option<Vec<u8>>, Vec<u8>)> {
    let from = at.min(file.1.saturating_sub(SAMPLE_BYTES)) / 8 * 8;
    let open = File::open(&file.0)?;
    let read = |at: u64, bytes: usize| {
        let mut room = vec![0; bytes];
        let mut filled = 0;
        while filled < room.len() {
            match open.read_at(&mut room[filled..], at + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        room.truncate(filled);
        Ok::<_, io::Error>(room)
    };
    Ok((
        Some(read(0, HEAD_BYTES)?),
        read(from, SAMPLE_BYTES as usize)?,
    ))
}

/// Reads some small files one after another, as in a block.
fn read_small(files: &[(PathBuf, u64)]) -> Vec<u8> {
    let mut piece = Vec::new();
    for (path, bytes) in files.iter().take_while(|file| file.1 < SMALL_BYTES) {
        if piece.len() as u64 >= SAMPLE_BYTES {
            break;
        }
        let left = SAMPLE_BYTES - piece.len() as u64;
        let mut room = vec![0; (*bytes).min(left) as usize];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut room, 0));
        if read.is_ok() {
            piece.append(&mut room);
        }
    }
    piece
}

/// Converts the dataset into parts of a graph.
fn parts(survey: &Survey, kinds: &BTreeMap<Kind, Sums>, uses: impl Fn(Codec) -> bool) -> Vec<Part> {
    let samples: usize = kinds.values().map(|sums| sums.samples).sum();
    let is_much = |sums: &Sums| sums.samples as f64 >= LEAST_SHARE * samples as f64;
    let kinds: Vec<(&Kind, &Sums)> = kinds.iter().filter(|(_, sums)| is_much(sums)).collect();
    let samples: usize = kinds.iter().map(|(_, sums)| sums.samples).sum();
    let files: f64 = kinds.iter().map(|(_, sums)| sums.files).sum();
    let mut parts: Vec<Part> = kinds
        .iter()
        .map(|(kind, sums)| Part {
            name: kind.name().to_owned(),
            bytes: (survey.bytes * sums.samples as f64 / samples as f64).max(1.0),
            files: (survey.files * sums.files / files).max(1.0),
            codecs: sums.codecs(&uses),
        })
        .collect();
    parts.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;
    use std::time::Duration;

    fn look(path: &std::path::Path, samples: usize) -> Vec<Part> {
        let limits = SurveyLimits {
            time: Duration::from_secs(600),
            ..SurveyLimits::default()
        };
        let found = sample(&[path.to_owned()], limits, samples, |_| true);
        found.unwrap().parts
    }

    #[test]
    fn a_dataset_is_described_by_kinds_and_their_compression() {
        let top = tempfile::tempdir().unwrap();
        let random = &mut Random::new(3);
        std::fs::write(top.path().join("noise"), random.bytes(6 << 20)).unwrap();
        let text: String = (0..120_000)
            .map(|_| {
                format!(
                    "block {} of stream {}\n",
                    random.below(900),
                    random.below(9)
                )
            })
            .collect();
        std::fs::write(top.path().join("text"), &text).unwrap();
        for number in 0..20 {
            let name = top.path().join(format!("small{number}"));
            std::fs::write(name, &text[..5000]).unwrap();
        }
        let parts = look(top.path(), 40);
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names[..2], [Kind::Full.name(), Kind::Text.name()]);
        assert!(parts[0].codecs.is_empty(), "{:?}", parts[0]);
        let codecs = &parts[1].codecs;
        assert!(codecs.iter().any(|codec| codec.ratio > 3.0), "{codecs:?}");
        let grow = codecs.windows(2).all(|two| two[0].ratio < two[1].ratio);
        assert!(grow, "{codecs:?}");
        let all: f64 = parts.iter().map(|part| part.bytes).sum();
        let there = (6 << 20) as f64 + text.len() as f64 + 100_000.0;
        assert!((all / there - 1.0).abs() < 1e-6, "{all} of {there}");
    }

    #[test]
    fn data_without_samples_are_one_part() {
        let top = tempfile::tempdir().unwrap();
        let parts = look(top.path(), 10);
        assert_eq!((parts.len(), parts[0].codecs.len()), (1, 0));
        std::fs::write(top.path().join("text"), b"text ".repeat(1000)).unwrap();
        assert_eq!(look(top.path(), 0)[0].name, "dataset");
    }
}
