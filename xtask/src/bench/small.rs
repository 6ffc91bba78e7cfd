//! Small files: what a copy makes of them beside what the file system takes
//! from one local writer, file by file durable in different ways.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use super::local_writer::{ALL, Sizes};
use super::record::{About, Spread};
use super::samples::{Sample, Samples};
use super::{LONGEST, ROUNDS, work};
use crate::demo::janitor::Janitor;
use crate::demo::server::Server;
use crate::workspace;

/// Files to copy.
struct Dataset {
    name: &'static str,
    files: u64,
    sizes: Sizes,
}

const DATASETS: [Dataset; 2] = [
    Dataset {
        name: "1 KB",
        files: 100_000,
        sizes: Sizes {
            smallest: 1000,
            largest: 1000,
        },
    },
    Dataset {
        name: "1–200 KB",
        files: 10_000,
        sizes: Sizes {
            smallest: 1000,
            largest: 200_000,
        },
    },
];

/// The writer that copies are measured by.
const MEASURE: &str = "batches";

/// Minimum rate of a copy, as a share of the local writer's.
const BAR: f64 = 0.8;

/// Measures as far as there is time; false where that was up.
///
/// # Errors
///
/// If a step fails.
pub fn measure(
    target: &Path,
    directory: &Path,
    janitor: &Janitor,
    samples: &mut Samples,
) -> Result<bool, String> {
    let began = Instant::now();
    let received = directory.join("received");
    fs::create_dir(&received).map_err(|error| format!("{}: {error}", received.display()))?;
    let binary = target.join("release/longhaul");
    let options = ["--allow-clear"];
    let server = Server::start(&binary, directory, &received, &options, janitor)?;
    for (index, dataset) in DATASETS.iter().enumerate() {
        let source = directory.join(format!("source-{index}"));
        write_files("never", &source, dataset)?;
    }
    for round in 0..=ROUNDS {
        for (index, dataset) in DATASETS.iter().enumerate() {
            for how in ALL.map(|(_, name)| name).into_iter().chain(["copy"]) {
                let name = format!("{}: {how}", dataset.name);
                if samples.count(&name) > round {
                    continue;
                }
                if began.elapsed() > LONGEST {
                    return Ok(false);
                }
                // No files are removed before the end, see `local_writer`.
                let place = format!("{index}-{how}-{round}");
                let sample = match how {
                    "copy" => {
                        let from = format!("source-{index}/");
                        work::copy(
                            &binary,
                            directory,
                            &server,
                            [&from, &place],
                            &[],
                            dataset.bytes(),
                            janitor,
                        )?
                    }
                    how => write_files(how, &received.join(place), dataset)?,
                };
                println!("bench: round {round}: {name:24} {sample}");
                samples.add(&name, sample)?;
            }
        }
    }
    server.stop(janitor)?;
    Ok(true)
}

impl Dataset {
    fn bytes(&self) -> u64 {
        self.sizes.sum(self.files)
    }
}

/// Runs the writer in a separate process, so that its CPU time is measured separately.
fn write_files(how: &str, directory: &Path, dataset: &Dataset) -> Result<Sample, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let Sizes { smallest, largest } = dataset.sizes;
    let numbers = [dataset.files, smallest, largest].map(|number| number.to_string());
    let mut command = Command::new(own);
    command.args(["bench", "local-writer", how]);
    command.arg(directory).args(numbers);
    let line = workspace::output_of(&mut command)?;
    let value = serde_json::from_str(&line).map_err(|error| format!("\"{line}\": {error}"))?;
    Sample::parse(&value)
}

/// Writes `DATE-small.md` and `DATE-small.json`.
///
/// # Errors
///
/// If they cannot be written.
pub fn write(directory: &Path, about: &About, samples: &Samples) -> Result<(), String> {
    let mut text = format!(
        "# Small files\n\n\
         {}, commit {}, {}, Linux {}. Made by `cargo xtask bench small`: interleaved, the \
         first round thrown away; median (least–greatest). Writers have one thread, know the \
         names, walk and stage nothing; a copy goes through a daemon over TLS, and its CPU time \
         is both ends'.\n\n\
         | files | by | files/s | CPU µs a file |\n|---|---|---|---|\n",
        about.date, about.commit, about.machine, about.kernel
    );
    let mut lines = Vec::new();
    let mut ratios = String::new();
    for dataset in &DATASETS {
        let rate = |how: &str| {
            let list = samples.of(&format!("{}: {how}", dataset.name));
            Spread::of(list.iter().map(|s| dataset.files as f64 / s.wall).collect())
        };
        for how in ALL.map(|(_, name)| name).into_iter().chain(["copy"]) {
            let list = samples.of(&format!("{}: {how}", dataset.name));
            let cost = list.iter().map(|s| s.cpu / dataset.files as f64 * 1e6);
            let (Some(rate), Some(cost)) = (rate(how), Spread::of(cost.collect())) else {
                continue;
            };
            let by = if how == "copy" {
                "longhaul cp"
            } else {
                "writer, "
            };
            let how = if how == "copy" { "" } else { how };
            let (rate, cost) = (rate.text(0), cost.text(0));
            let _ = writeln!(
                text,
                "| {} × {} | {by}{how} | {rate} | {cost} |",
                dataset.files, dataset.name
            );
            lines.push(
                json!({ "files": dataset.files, "sizes": dataset.name, "by": how,
                "wall_seconds": list.iter().map(|s| s.wall).collect::<Vec<_>>(),
                "cpu_seconds": list.iter().map(|s| s.cpu).collect::<Vec<_>>() }),
            );
        }
        if let (Some(copy), Some(measure)) = (rate("copy"), rate(MEASURE)) {
            let ratio = copy.median() / measure.median();
            let _ = writeln!(
                ratios,
                "| {} × {} | {ratio:.2} |",
                dataset.files, dataset.name
            );
        }
    }
    let _ = write!(
        text,
        "\nSync: `never`; `each` file as it is written; `batches` of a thousand, writeback begun \
         at once; `late`, the same without beginning; `filesystem`, begun at once and one \
         `syncfs` for a thousand.\n\n\
         | files | copy beside writer, {MEASURE} (bar {BAR}) |\n|---|---|\n{ratios}"
    );
    print!("{text}");
    let save = |end: &str, text: &str| {
        let path = directory.join(format!("{}-small.{end}", about.date));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    save("md", &text)?;
    let value = json!({ "version": 1, "date": about.date, "commit": about.commit,
        "machine": about.machine, "kernel": about.kernel, "bar": BAR, "works": lines });
    save("json", &format!("{value:#}\n"))
}
