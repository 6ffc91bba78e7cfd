//! Jobs of a benchmark, the most informative first.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use longhaul_engine::benchmark::codec::Blocks;
use longhaul_engine::benchmark::disk::{Disk, DiskJob};
use longhaul_engine::benchmark::small::{FILE_BYTES, FILES, Small, SmallJob};
use longhaul_engine::benchmark::{Limit, Sample, tls as tls_probe};
use longhaul_proto::block::Codec;
use longhaul_units::ByteCount;
use serde_json::{Value, json};

use super::pace::Effort;
use super::{BenchError, BenchSettings, file_system};

/// Performs one measurement and returns a sample.
type Run = Box<dyn FnMut(&Limit) -> io::Result<Value>>;

/// Returns the work of the next run: first the measured part, then the preparations.
type Efforts = Box<dyn Fn() -> Vec<Effort>>;

/// A job of a benchmark.
pub struct Job {
    /// Name of the job in the profile.
    pub name: String,
    /// Parameters of the job.
    pub about: Value,
    /// Amount of work, from which the duration is predicted.
    pub efforts: Efforts,
    /// Performs one measurement.
    pub run: Run,
}

/// Jobs that share test files. Dropping the section removes the files.
pub struct Section {
    /// Name of the section in the profile.
    pub name: String,
    /// Description of the measured object.
    pub about: Value,
    /// Jobs, the most informative first.
    pub jobs: Vec<Job>,
}

/// Block sizes in bytes, the mover's default first.
const BLOCKS: [usize; 3] = [1 << 20, 256 << 10, 4 << 20];

/// Numbers of threads for large files.
const DISK_FLOWS: [u32; 3] = [4, 1, 16];

/// Numbers of threads for small files.
const SMALL_FLOWS: [u32; 2] = [1, 4];

/// Maximum number of bytes of the user's data for codecs. They are in memory twice.
const CODEC_BYTES: u64 = 64 << 20;

/// Number of bytes that each stream carries.
const TLS_BYTES: u64 = 256 << 20;

/// Codecs of a copy, from the fastest to the one with the smallest output.
const CODECS: [Codec; 8] = [
    Codec::Lz4,
    Codec::Zstd { level: -5 },
    Codec::Zstd { level: 1 },
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 6 },
    Codec::Zstd { level: 9 },
    Codec::Zstd { level: 13 },
    Codec::Zstd { level: 19 },
];

fn sample_json(sample: &Sample) -> Value {
    json!({
        "bytes": sample.bytes,
        "files": sample.files,
        "wall_seconds": sample.wall,
        "cpu_seconds": sample.cpu,
    })
}

fn flows_of(settings: &BenchSettings) -> Vec<u32> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let most = settings.flows.unwrap_or(cores);
    if most == 1 { vec![1] } else { vec![1, most] }
}

fn at_most(flows: &[u32], settings: &BenchSettings) -> Vec<u32> {
    let most = settings.flows.unwrap_or(u32::MAX);
    let mut kept: Vec<u32> = flows
        .iter()
        .copied()
        .filter(|flows| *flows <= most)
        .collect();
    if kept.is_empty() {
        kept.push(most);
    }
    kept
}

/// Creates the jobs for a file system, after a check of the free space.
pub fn disk(
    path: &Path,
    sizes: &[ByteCount],
    settings: &BenchSettings,
) -> Result<Section, BenchError> {
    let named = |error: io::Error| BenchError::Local(format!("{}: {error}", path.display()));
    let path = path.canonicalize().map_err(named)?;
    let largest = BLOCKS.iter().max().copied().unwrap_or(1) as u64;
    let whole = |size: &ByteCount| size.0.max(1).next_multiple_of(largest);
    let sizes: Vec<u64> = sizes.iter().map(whole).collect();
    check_room(&path, &sizes, settings)?;
    let about = file_system::facts(&path);
    let disk = Rc::new(RefCell::new(Disk::open(&path).map_err(named)?));
    let small = Rc::new(RefCell::new(Small::prepare(&path).map_err(named)?));
    let mut jobs = Vec::new();
    for (turn, flows) in at_most(&DISK_FLOWS, settings).into_iter().enumerate() {
        for block in BLOCKS {
            for &file_bytes in &sizes {
                for (write, direct) in [(false, true), (true, true), (false, false), (true, false)]
                {
                    jobs.push(disk_job(
                        &disk,
                        DiskJob {
                            write,
                            direct,
                            block,
                            flows: flows as usize,
                            file_bytes,
                        },
                    ));
                }
            }
        }
        // Small files come early, because they are informative and the budget may be
        // short.
        if turn == 0 {
            for flows in at_most(&SMALL_FLOWS, settings) {
                jobs.extend(small_jobs(&small, flows as usize));
            }
        }
    }
    Ok(Section {
        name: format!("disk {}", path.display()),
        about,
        jobs,
    })
}

/// Checks the free space: all files for reading, the largest file for writing, and small
/// files.
fn check_room(path: &Path, sizes: &[u64], settings: &BenchSettings) -> Result<(), BenchError> {
    let read: u64 = sizes.iter().sum();
    let flows: u64 = SMALL_FLOWS.iter().map(|flows| u64::from(*flows)).sum();
    // Four kinds of jobs in each round; the factor 2 accounts for inodes.
    let small = 4 * flows * FILES * 2 * FILE_BYTES * (u64::from(settings.rounds) + 1);
    let needed = read + sizes.iter().max().copied().unwrap_or(0) + small;
    let status = rustix::fs::statvfs(path)
        .map_err(|error| BenchError::Local(format!("{}: {error}", path.display())))?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if free < needed {
        let text = format!(
            "{}: {} are free and {} are needed: set smaller files with --size, or fewer --rounds",
            path.display(),
            ByteCount(free),
            ByteCount(needed)
        );
        return Err(BenchError::Local(text));
    }
    Ok(())
}

fn disk_job(disk: &Rc<RefCell<Disk>>, job: DiskJob) -> Job {
    let disk = Rc::clone(disk);
    let measured = Rc::clone(&disk);
    let kind = if job.write { "write" } else { "read" };
    let mode = if job.direct { "direct" } else { "buffered" };
    Job {
        name: format!(
            "{kind} {mode}, {} KiB × {} flows, {} MiB",
            job.block >> 10,
            job.flows,
            job.file_bytes >> 20
        ),
        about: json!({
            "kind": kind,
            "direct": job.direct,
            "block_bytes": job.block,
            "flows": job.flows,
            "file_bytes": job.file_bytes,
        }),
        efforts: Box::new(move || {
            let mut efforts = vec![Effort::new(kind, job.file_bytes)];
            if !job.write && !measured.borrow().has(job.file_bytes) {
                efforts.push(Effort::new("write", job.file_bytes));
            }
            efforts
        }),
        run: Box::new(move |limit| {
            let (sample, direct) = disk.borrow_mut().measure(&job, limit)?;
            let mut value = sample_json(&sample);
            value["was_direct"] = json!(direct);
            Ok(value)
        }),
    }
}

fn small_jobs(small: &Rc<RefCell<Small>>, flows: usize) -> Vec<Job> {
    let kinds = [
        ("create", SmallJob::Create),
        ("create, sync each", SmallJob::SyncEach),
        ("create, sync together", SmallJob::SyncTogether),
        ("open and read", SmallJob::Open),
    ];
    let jobs = kinds.map(|(kind, job)| {
        let small = Rc::clone(small);
        Job {
            name: format!("small files: {kind} × {flows} flows"),
            about: json!({ "kind": kind, "flows": flows, "file_bytes": FILE_BYTES }),
            efforts: Box::new(move || vec![Effort::new(kind, FILES * flows as u64)]),
            run: Box::new(move |limit| {
                let sample = small.borrow_mut().measure(job, flows, limit)?;
                Ok(sample_json(&sample))
            }),
        }
    });
    jobs.into()
}

/// Creates the jobs for codecs on the user's files.
pub fn codec(files: &[PathBuf], settings: &BenchSettings) -> Result<Section, BenchError> {
    let blocks =
        Blocks::load(files, CODEC_BYTES).map_err(|error| BenchError::Local(error.to_string()))?;
    let names: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let about = json!({ "files": names, "sampled_bytes": blocks.bytes });
    let blocks = Rc::new(blocks);
    let mut jobs = Vec::new();
    for flows in flows_of(settings) {
        for codec in CODECS {
            // Shuffled as with `--compress CODEC`, and plain as with `--element-size 1`.
            let ways: &[bool] = if blocks.shuffles() {
                &[true, false]
            } else {
                &[false]
            };
            jobs.extend(
                ways.iter()
                    .map(|&shuffled| codec_job(&blocks, (codec, shuffled), flows)),
            );
        }
    }
    Ok(Section {
        name: format!("codec {}", names.join(" ")),
        about,
        jobs,
    })
}

/// Creates the job of one codec. If `shuffled` is true, arrays are shuffled first.
fn codec_job(blocks: &Rc<Blocks>, (codec, shuffled): (Codec, bool), flows: u32) -> Job {
    let (blocks, bytes) = (Rc::clone(blocks), blocks.bytes);
    let run = move |limit: &Limit| {
        let sample = blocks.measure((codec, shuffled), flows as usize, limit)?;
        Ok(json!({
            "bytes": blocks.bytes,
            "encoded_bytes": sample.encoded_bytes,
            "wall_seconds": sample.encode.wall,
            "cpu_seconds": sample.encode.cpu,
            "decode_wall_seconds": sample.decode.wall,
            "decode_cpu_seconds": sample.decode.cpu,
        }))
    };
    let name = if shuffled {
        format!("{codec} shuffled")
    } else {
        codec.to_string()
    };
    let effort = name.clone();
    Job {
        about: json!({ "kind": "codec", "codec": name, "flows": flows }),
        efforts: Box::new(move || vec![Effort::new(&effort, bytes)]),
        name: format!("{name} × {flows} flows"),
        run: Box::new(run),
    }
}

/// Creates the jobs for TLS, and for the same data without encryption.
pub fn tls(settings: &BenchSettings) -> Section {
    let mut jobs = Vec::new();
    for streams in flows_of(settings) {
        for (name, clear) in [("TLS", false), ("clear", true)] {
            let bytes = u64::from(streams) * TLS_BYTES;
            let run = move |limit: &Limit| {
                let sample = tls_probe::measure(streams as usize, TLS_BYTES, clear, limit)?;
                Ok(sample_json(&sample))
            };
            jobs.push(Job {
                name: format!("{name} × {streams} streams"),
                about: json!({ "kind": name, "streams": streams }),
                efforts: Box::new(move || vec![Effort::new(name, bytes)]),
                run: Box::new(run),
            });
        }
    }
    Section {
        name: "tls".to_owned(),
        about: json!({ "over": "loopback: both ends on this host" }),
        jobs,
    }
}
