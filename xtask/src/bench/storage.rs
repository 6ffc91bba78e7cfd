//! Measures a file system. fio moves blocks with waiting threads (`psync`) and with `io_uring`;
//! threads with the mover's own buffers do the same (`longhaul`). Small files are made durable in
//! different ways, by [`local_writer`](super::local_writer). The results decide which of these the
//! mover uses.
//!
//! [`places`] are the file systems, made in a separate mount namespace, so that no mount remains
//! after any end; [`table`] is the record.

mod places;
mod table;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::LONGEST;
use super::samples::{Sample, Samples};
use crate::demo::janitor::Janitor;
use crate::workspace;
use places::{Place, Places};

/// Rounds that count, after the one that does not: few, because each takes
/// minutes.
const ROUNDS: usize = 3;

/// Bytes of the file that is read or written. They exceed a disk's own buffer by far, and fit into
/// memory.
const FILE_BYTES: u64 = 512 << 20;

/// Small files of one repetition, and bytes of each.
const SMALL_FILES: u64 = 3000;
const SMALL_BYTES: u64 = 4000;

/// An access to a file, with fio's options for it.
struct Access {
    name: &'static str,
    options: &'static [&'static str],
    /// The same for the example `pieces`.
    pieces: [&'static str; 3],
    /// False where only memory is beneath the file system.
    needs_disk: bool,
    /// Block sizes in KiB on the file system of the disk itself; other file systems have
    /// [`USUAL_BLOCK`].
    blocks: &'static [u64],
}

/// KiB: the mover's blocks.
const USUAL_BLOCK: u64 = 1024;

const ACCESSES: [Access; 5] = [
    Access {
        name: "read, direct",
        options: &["--rw=read", "--direct=1", "--filename=large"],
        pieces: ["read", "direct", "large"],
        needs_disk: true,
        blocks: &[256, 1024, 4096],
    },
    Access {
        name: "read, not cached",
        options: &["--rw=read", "--invalidate=1", "--filename=large"],
        pieces: ["read", "dropped", "large"],
        needs_disk: true,
        blocks: &[USUAL_BLOCK],
    },
    Access {
        name: "read, cached",
        options: &["--rw=read", "--invalidate=0", "--filename=cached"],
        pieces: ["read", "buffered", "cached"],
        needs_disk: false,
        blocks: &[USUAL_BLOCK],
    },
    Access {
        name: "write, direct",
        options: &["--rw=write", "--direct=1", "--filename=written"],
        pieces: ["write", "direct", "written"],
        needs_disk: true,
        blocks: &[256, 1024, 4096],
    },
    Access {
        name: "write, buffered",
        options: &["--rw=write", "--filename=written"],
        pieces: ["write", "buffered", "written"],
        needs_disk: false,
        blocks: &[USUAL_BLOCK],
    },
];

/// A method of moving blocks, with its number of blocks in flight.
#[derive(Clone, Copy)]
struct Mover {
    engine: &'static str,
    depth: u64,
}

const PSYNC: &str = "psync";
const URING: &str = "io_uring";
const OURS: &str = "longhaul";

const MOVERS: [Mover; 6] = [
    Mover {
        engine: PSYNC,
        depth: 4,
    },
    Mover {
        engine: URING,
        depth: 4,
    },
    Mover {
        engine: PSYNC,
        depth: 16,
    },
    Mover {
        engine: URING,
        depth: 16,
    },
    Mover {
        engine: OURS,
        depth: 4,
    },
    Mover {
        engine: OURS,
        depth: 16,
    },
];

/// A run of fio that moves no data. Its CPU time is subtracted from the others.
const IDLE: &str = "idle";

/// The outer half: a mount namespace where that is allowed, then the record.
///
/// # Errors
///
/// If a step fails, or time is up.
pub fn run(again: bool) -> Result<(), String> {
    super::build(&["-p", "longhaul-engine", "--example", "pieces"])?;
    let target = workspace::target_directory()?;
    let directory = target.join(format!("bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let janitor = Janitor::start(&directory)?;
    let kept = target.join("bench-storage.jsonl");
    let about = super::about()?;
    if again {
        Samples::open(&kept, &about, true)?;
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = if places::may_mount() {
        Command::new("unshare")
    } else {
        Command::new("env")
    };
    if places::may_mount() {
        command.args(["--mount", "--propagation", "private", "--"]);
    }
    command.arg(own).args(["bench", "storage-inside"]);
    let done = janitor.run(command.arg(&directory).arg(&kept));
    janitor.finish()?;
    done?;
    let samples = Samples::open(&kept, &about, false)?;
    table::write(&workspace::root().join("bench/runs"), &about, &samples)?;
    samples.forget()
}

/// The inner half: measures.
///
/// # Errors
///
/// If a step fails, or time is up.
pub fn run_inside(directory: &Path, kept: &Path) -> Result<(), String> {
    let mut samples = Samples::open(kept, &super::about()?, false)?;
    let places = Places::prepare(directory)?;
    if measure(&places, directory, &mut samples)? {
        Ok(())
    } else {
        Err("time is up: the same command resumes".to_owned())
    }
}

/// False where time was up.
fn measure(places: &Places, directory: &Path, samples: &mut Samples) -> Result<bool, String> {
    let began = Instant::now();
    for round in 0..=ROUNDS {
        let mut works: Vec<(String, Work<'_>)> = vec![(IDLE.to_owned(), Work::Idle)];
        for place in places.all() {
            works.extend(works_of(place));
        }
        for (name, work) in works {
            if samples.count(&name) > round {
                continue;
            }
            if began.elapsed() > LONGEST {
                return Ok(false);
            }
            let sample = work.measure(directory, samples.count(&name))?;
            println!("bench: round {round}: {name:44} {sample}");
            samples.add(&name, sample)?;
        }
    }
    Ok(true)
}

/// One repetition of a measurement.
enum Work<'a> {
    Idle,
    Blocks(&'a Place, &'static Access, u64, Mover),
    Small(&'a Place, &'static str),
}

fn works_of(place: &Place) -> Vec<(String, Work<'_>)> {
    let mut works = Vec::new();
    for (access, block) in blocks_of(place.name()) {
        for mover in MOVERS {
            let name = name_of(place.name(), access, block, mover);
            works.push((name, Work::Blocks(place, access, block, mover)));
        }
    }
    for (_, how) in super::local_writer::ALL {
        works.push((small_name(place.name(), how), Work::Small(place, how)));
    }
    works
}

/// Returns the accesses to measure in a place, with their block sizes.
fn blocks_of(place: &str) -> Vec<(&'static Access, u64)> {
    let accesses = ACCESSES.iter().filter(|access| match place {
        places::MEMORY => !access.needs_disk,
        // The file system beneath does what there is to do.
        places::OVERLAY => false,
        _ => true,
    });
    let all = accesses.flat_map(|access| access.blocks.iter().map(move |&block| (access, block)));
    all.filter(|&(_, block)| place == places::HERE || block == USUAL_BLOCK)
        .collect()
}

fn name_of(place: &str, access: &Access, block: u64, mover: Mover) -> String {
    let Mover { engine, depth } = mover;
    format!("{place}: {} {block} KiB: {engine} {depth}", access.name)
}

fn small_name(place: &str, how: &str) -> String {
    format!("{place}: small: {how}")
}

impl Work<'_> {
    fn measure(&self, directory: &Path, repetition: usize) -> Result<Sample, String> {
        match self {
            Work::Idle => {
                let options = ["--rw=read", "--size=4k", "--bs=4k", "--filename=idle"];
                let (value, cpu) = fio(directory, &options.map(str::to_owned))?;
                sample_of(&value, cpu)
            }
            Work::Blocks(place, access, block, mover) if mover.engine == OURS => {
                ours(place.path(), access, *block, mover.depth)
            }
            Work::Blocks(place, access, block, mover) => {
                let (value, cpu) = fio(place.path(), &options_of(access, *block, *mover))?;
                sample_of(&value, cpu)
            }
            Work::Small(place, how) => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let sizes = [SMALL_FILES, SMALL_BYTES, SMALL_BYTES].map(|n| n.to_string());
                let mut command = Command::new(own);
                command.args(["bench", "local-writer", how]);
                // No files are removed before the end, see `local_writer`.
                command.arg(place.path().join(format!("small-{how}-{repetition}")));
                let line = workspace::output_of(command.args(sizes))?;
                let value =
                    serde_json::from_str(&line).map_err(|error| format!("\"{line}\": {error}"))?;
                Sample::parse(&value)
            }
        }
    }
}

/// Threads take blocks in turns, as a ring does, so that both have the same
/// blocks under way at a time.
fn options_of(access: &Access, block: u64, mover: Mover) -> Vec<String> {
    let Mover { engine, depth } = mover;
    let mut options: Vec<String> = access.options.iter().map(|o| (*o).to_owned()).collect();
    options.push(format!("--ioengine={engine}"));
    options.push(format!("--bs={block}k"));
    options.push(format!("--size={FILE_BYTES}"));
    if access.name.starts_with("write") {
        // As in the mover, space is reserved before, and the data are durable at the end.
        options.extend(["--fallocate=keep", "--end_fsync=1", "--unlink=1"].map(str::to_owned));
    }
    if engine == URING {
        options.push(format!("--iodepth={depth}"));
        // These options allow the ring its full gain: memory and files that are registered in the
        // kernel.
        options.extend(["--fixedbufs", "--registerfiles"].map(str::to_owned));
    } else {
        let direction = if access.name.starts_with("write") {
            "write"
        } else {
            "read"
        };
        options.push(format!("--rw={direction}:{}k", (depth - 1) * block));
        options.push(format!("--numjobs={depth}"));
        options.push(format!("--offset_increment={block}k"));
        options.push(format!("--io_size={}", FILE_BYTES / depth));
    }
    options
}

/// Runs the example, which is built next to this program.
fn ours(directory: &Path, access: &Access, block: u64, depth: u64) -> Result<Sample, String> {
    let program = workspace::target_directory()?.join("release/examples/pieces");
    let numbers = [block << 10, depth].map(|number| number.to_string());
    let mut command = Command::new(program);
    command
        .arg("blocks")
        .arg(directory)
        .arg(FILE_BYTES.to_string());
    let line = workspace::output_of(command.args(access.pieces).args(numbers))?;
    let value = serde_json::from_str(&line).map_err(|error| format!("\"{line}\": {error}"))?;
    Sample::parse(&value)
}

/// Runs fio. Returns its output and its CPU seconds.
fn fio(directory: &Path, options: &[String]) -> Result<(Value, f64), String> {
    let mut command = Command::new("fio");
    command
        .current_dir(directory)
        .args(["--name=storage", "--thread", "--group_reporting"])
        .args(["--output-format=json", "--output=report"])
        .args(options);
    let before = cpu_of_children();
    workspace::output_of(&mut command)?;
    let cpu = cpu_of_children() - before;
    let path = directory.join("report");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let value = serde_json::from_str(&text).map_err(|error| format!("fio's report: {error}"))?;
    Ok((value, cpu))
}

fn sample_of(report: &Value, cpu: f64) -> Result<Sample, String> {
    let job = &report["jobs"][0];
    let number = |key: &str| {
        let sum = job["read"][key].as_f64().zip(job["write"][key].as_f64());
        sum.map(|(read, write)| read + write)
            .ok_or_else(|| format!("fio's report has no number \"{key}\""))
    };
    Ok(Sample {
        bytes: number("io_bytes")?,
        // fio reports less than a millisecond as 0.
        wall: (number("runtime")? / 1e3).max(1e-3),
        cpu,
    })
}

/// Seconds, of those that ended and were waited for. `/proc` has hundredths only.
#[expect(unsafe_code, reason = "std has no getrusage")]
fn cpu_of_children() -> f64 {
    // SAFETY: all zeroes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole `rusage` of ours.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_rings_cover_the_same_blocks() {
        for mover in MOVERS {
            let options = options_of(&ACCESSES[0], 1024, mover);
            let value = |name: &str| {
                let found = options
                    .iter()
                    .filter_map(|o| o.strip_prefix(name))
                    .next_back();
                found.unwrap_or_default().to_owned()
            };
            assert_eq!(value("--size="), FILE_BYTES.to_string());
            if mover.engine == PSYNC {
                let each: u64 = value("--io_size=").parse().unwrap();
                assert_eq!(each * mover.depth, FILE_BYTES);
                assert_eq!(
                    value("--rw="),
                    format!("read:{}k", (mover.depth - 1) * 1024)
                );
            }
        }
    }

    #[test]
    fn memory_is_not_measured_with_direct_access() {
        let names = |place| {
            blocks_of(place)
                .iter()
                .map(|w| w.0.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(places::MEMORY), ["read, cached", "write, buffered"]);
        assert!(names(places::OVERLAY).is_empty());
        assert_eq!(blocks_of(places::HERE).len(), 9);
        assert_eq!(blocks_of("XFS").len(), 5);
    }

    #[test]
    fn a_report_of_fio_is_a_sample() {
        let report: Value = serde_json::from_str(
            r#"{"jobs": [{"read": {"io_bytes": 1000, "runtime": 250},
                          "write": {"io_bytes": 0, "runtime": 0}}]}"#,
        )
        .unwrap();
        let sample = sample_of(&report, 0.5).unwrap();
        assert_eq!((sample.bytes, sample.wall, sample.cpu), (1000.0, 0.25, 0.5));
        assert!(sample_of(&Value::Null, 0.5).is_err());
    }
}
