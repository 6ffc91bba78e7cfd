//! The record: a table for people, and the same numbers for programs.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::super::local_writer;
use super::super::record::{About, Spread};
use super::super::samples::{Sample, Samples};
use super::{IDLE, MOVERS, Mover, OURS, PSYNC, SMALL_BYTES, SMALL_FILES, URING, places};

/// Writes `DATE-storage.md` and `DATE-storage.json`.
///
/// # Errors
///
/// If they cannot be written.
pub fn write(directory: &Path, about: &About, samples: &Samples) -> Result<(), String> {
    let mut text = format!(
        "# Threads beside io_uring, and ways to make small files durable\n\n\
         {}, commit {}, {}, Linux {}. Made by `cargo xtask bench storage`: interleaved, the \
         first round thrown away; median (least–greatest) of {} rounds. `here` is {}; XFS and \
         btrfs lie on loop devices over it with direct I/O; overlayfs lies over it.\n\n",
        about.date,
        about.commit,
        about.machine,
        about.kernel,
        super::ROUNDS,
        here(),
    );
    text += &blocks_table(samples);
    text += &small_table(samples);
    print!("{text}");
    let save = |end: &str, text: &str| {
        let path = directory.join(format!("{}-storage.{end}", about.date));
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    save("md", &text)?;
    let value = json!({ "version": 1, "date": about.date, "commit": about.commit,
        "machine": about.machine, "kernel": about.kernel, "here": here(),
        "works": all_works(samples) });
    save("json", &format!("{value:#}\n"))
}

/// The file system of the build.
fn here() -> String {
    let mut command = std::process::Command::new("findmnt");
    command.args([
        "--noheadings",
        "--output",
        "FSTYPE,OPTIONS",
        "--target",
        ".",
    ]);
    let text = crate::workspace::output_of(&mut command).unwrap_or_else(|_| "unknown".to_owned());
    text.split_whitespace().collect::<Vec<_>>().join(", ")
}

/// Returns the samples of one mover, without the cost of fio itself.
fn moved(samples: &Samples, name: &str) -> Vec<Sample> {
    let idle = samples.of(IDLE).into_iter().map(|sample| sample.cpu);
    let idle = Spread::of(idle.collect()).map_or(0.0, Spread::median);
    let list = samples.of(name).into_iter();
    list.map(|sample| Sample {
        cpu: (sample.cpu - idle).max(0.0),
        ..sample
    })
    .collect()
}

fn blocks_table(samples: &Samples) -> String {
    let mut text = String::from(
        "## Blocks\n\n\
         512 MiB, `4` and `16` blocks under way. `threads` and `ring` are fio's: threads that \
         wait, and one io_uring with registered buffers and files; CPU is fio's process with the \
         kernel's workers for it, less what fio costs that moves nothing. `longhaul` is threads \
         that wait, with the mover's buffers. Writes end with a sync. Ratios are round by round, \
         of the faster depth each.\n\n\
         | where | what | KiB | threads 4 | ring 4 | threads 16 | ring 16 | longhaul 4 \
         | longhaul 16 | ring/threads, GB/s | longhaul/ring, GB/s | longhaul/ring, CPU \
         |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for place in places::names() {
        for (access, block) in super::blocks_of(place) {
            let of = |mover: Mover| {
                let name = super::name_of(place, access, block, mover);
                match mover.engine {
                    OURS => samples.of(&name),
                    _ => moved(samples, &name),
                }
            };
            let cells: Vec<String> = MOVERS.iter().map(|&mover| cell(&of(mover))).collect();
            let [ring, threads, ours] = [URING, PSYNC, OURS].map(|engine| fastest(engine, &of));
            let _ = writeln!(
                text,
                "| {place} | {} | {block} | {} | {} | {} | {} |",
                access.name,
                cells.join(" | "),
                ratio(&ring, &threads, Sample::rate),
                ratio(&ours, &ring, Sample::rate),
                ratio(&ours, &ring, Sample::cost),
            );
        }
    }
    text + "\nA cell is GB/s; CPU s/GB.\n\n"
}

fn cell(list: &[Sample]) -> String {
    let rate = Spread::of(list.iter().map(|sample| sample.rate()).collect());
    let cost = Spread::of(list.iter().map(|sample| sample.cost()).collect());
    match rate.zip(cost) {
        Some((rate, cost)) => format!("{}; {:.3}", rate.text(2), cost.median()),
        None => "–".to_owned(),
    }
}

/// The samples of the depth with the greater median rate.
fn fastest(engine: &str, of: &impl Fn(Mover) -> Vec<Sample>) -> Vec<Sample> {
    let median = |list: &Vec<Sample>| {
        let rates = list.iter().map(|sample| sample.rate()).collect();
        Spread::of(rates).map_or(0.0, Spread::median)
    };
    let movers = MOVERS.into_iter().filter(|mover| mover.engine == engine);
    let lists = movers.map(of);
    lists
        .max_by(|one, other| median(one).total_cmp(&median(other)))
        .unwrap_or_default()
}

fn ratio(ring: &[Sample], threads: &[Sample], value: impl Fn(Sample) -> f64) -> String {
    let pairs = ring.iter().zip(threads);
    let ratios = pairs.map(|(ring, threads)| value(*ring) / value(*threads));
    Spread::of(ratios.collect()).map_or("–".to_owned(), |spread| spread.text(2))
}

fn small_table(samples: &Samples) -> String {
    let hows = local_writer::ALL.map(|(_, name)| name);
    let mut text = format!(
        "## Small files\n\n\
         {SMALL_FILES} files of {SMALL_BYTES} bytes by one thread, files/s; CPU µs a file. `never` \
         made durable; `each` as it is written; `batches` of a thousand, writeback begun at once; \
         `late`, the same without beginning; `filesystem`, begun at once and one `syncfs` for a \
         thousand.\n\n| where | {} |\n|---|{}\n",
        hows.join(" | "),
        "---|".repeat(hows.len())
    );
    for place in places::names() {
        let cells = hows.map(|how| small_cell(&samples.of(&super::small_name(place, how))));
        let _ = writeln!(text, "| {place} | {} |", cells.join(" | "));
    }
    text
}

fn small_cell(list: &[Sample]) -> String {
    let files = SMALL_FILES as f64;
    let rate = Spread::of(list.iter().map(|sample| files / sample.wall).collect());
    let cost = Spread::of(list.iter().map(|sample| sample.cpu / files * 1e6).collect());
    match rate.zip(cost) {
        Some((rate, cost)) => format!("{}; {:.0}", rate.text(0), cost.median()),
        None => "–".to_owned(),
    }
}

fn all_works(samples: &Samples) -> Vec<Value> {
    let mut works = Vec::new();
    let mut add = |name: String| {
        let list = samples.of(&name);
        let of = |value: fn(&Sample) -> f64| list.iter().map(value).collect::<Vec<_>>();
        works.push(json!({ "name": name, "bytes": of(|s| s.bytes),
            "wall_seconds": of(|s| s.wall), "cpu_seconds": of(|s| s.cpu) }));
    };
    add(IDLE.to_owned());
    for place in places::names() {
        for (access, block) in super::blocks_of(place) {
            for mover in MOVERS {
                add(super::name_of(place, access, block, mover));
            }
        }
        for (_, how) in local_writer::ALL {
            add(super::small_name(place, how));
        }
    }
    works
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wall: f64) -> Sample {
        Sample {
            bytes: 1e9,
            wall,
            cpu: 0.1,
        }
    }

    #[test]
    fn the_faster_depth_is_compared() {
        let of = |mover: Mover| match mover.depth {
            4 => vec![sample(2.0), sample(2.0), sample(2.0)],
            _ => vec![sample(1.0), sample(1.0), sample(8.0)],
        };
        let list = fastest(URING, &of);
        assert_eq!(list.len(), 3);
        assert_eq!(list[0].wall, 1.0);
        let same = ratio(&list, &list, Sample::rate);
        assert_eq!(same, "1.00 (1.00–1.00)");
        assert_eq!(ratio(&[], &list, Sample::rate), "–");
    }
}
