//! `longhaul profile` and `longhaul report`: what records of runs say.

mod over_time;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use longhaul_measure::analysis::{self, Analysis, analyse};
use longhaul_measure::compressed::lines;
use longhaul_measure::doubt::Doubt;
use longhaul_measure::record::{Fault, OnFault, RunRecord, read_records};
use longhaul_measure::report::{self, Heading};
use longhaul_measure::runs::Runs;
use longhaul_measure::stats::Resampling;

use crate::arguments::{AnalysisArguments, ProfileArguments, ReportArguments};
use crate::messages::{Exit, Stop, finish, one_line, print_line, say, write_output};

/// Runs `longhaul profile`.
pub fn profile(arguments: &ProfileArguments) -> Exit {
    finish(print_profile(arguments))
}

fn print_profile(arguments: &ProfileArguments) -> Result<Exit, Stop> {
    let (_, analysis) = read(&arguments.analysis)?;
    let text = match arguments.json {
        true => format!("{}\n", analysis::to_json(&analysis)),
        false => analysis::to_text(&analysis),
    };
    write_output(text.as_bytes());
    Ok(Exit::Done)
}

/// Runs `longhaul report`.
pub fn report(arguments: &ReportArguments) -> Exit {
    finish(write_report(arguments))
}

fn write_report(arguments: &ReportArguments) -> Result<Exit, Stop> {
    let (runs, analysis) = read(&arguments.analysis)?;
    let mut plots = report::figures(&runs, &analysis);
    let mut sampled = Vec::new();
    for path in &arguments.samples {
        let records = &arguments.analysis.records;
        let found = over_time::sampled_runs(&runs, &analysis.labels, records, path)?;
        sampled.extend(found);
    }
    for (run, number) in sampled.iter().zip(1..) {
        plots.extend(report::run_over_time(run, number));
    }
    let sources = arguments.analysis.records.iter();
    let heading = Heading {
        title: arguments.title.clone(),
        sources: vec![
            format!("longhaul {}", env!("CARGO_PKG_VERSION")),
            sources
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        ],
        scope: runs.scope().facts(),
    };
    let page = report::page(&heading, &analysis, &plots);
    write(&arguments.output, page.as_bytes())?;
    if let Some(directory) = &arguments.svg {
        fs::create_dir_all(directory).map_err(|error| local(directory, &error))?;
        for plot in &plots {
            write(
                &directory.join(format!("{}.svg", plot.name)),
                plot.svg.as_bytes(),
            )?;
        }
    }
    print_line!(
        "{}: {} runs, {} figures, {} doubts",
        arguments.output.display(),
        analysis.runs,
        plots.len(),
        analysis.doubts.len()
    );
    Ok(Exit::Done)
}

fn local(path: &Path, error: &io::Error) -> Stop {
    Stop::new(Exit::Local, format!("{}: {error}", path.display()))
}

/// Writes a file whole.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Stop> {
    fs::write(path, bytes).map_err(|error| local(path, &error))
}

/// Opens a file to read, compressed with zstd or not; - is standard input.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, Stop> {
    if path.as_os_str() == "-" {
        return lines(BufReader::new(io::stdin())).map_err(|error| local(path, &error));
    }
    if path.is_dir() {
        let text = format!(
            "{0}: it is a directory: name the files in it, as {0}/*",
            path.display()
        );
        return Err(Stop::new(Exit::Local, text));
    }
    let file = File::open(path).map_err(|error| local(path, &error))?;
    lines(BufReader::with_capacity(1 << 20, file)).map_err(|error| local(path, &error))
}

/// Most bytes shown of what is wrong with lines, parts of which may be theirs.
pub const LONGEST_FAULT: usize = 1000;

/// Reads files of records, with the place of each among them; gives how many lines were
/// skipped, which it names.
pub fn each_record(
    paths: &[PathBuf],
    skip_faults: bool,
    mut add: impl FnMut(usize, RunRecord) -> Result<(), Fault>,
) -> Result<u64, Stop> {
    let on_fault = match skip_faults {
        true => OnFault::Skip,
        false => OnFault::Refuse,
    };
    let mut skipped = 0;
    for (file, path) in paths.iter().enumerate() {
        let faults = read_records(open(path)?, on_fault, |record| add(file, record));
        let faults = faults.map_err(|fault| {
            let remedy = "fix it, or skip such lines with --skip-faults";
            Stop::new(
                Exit::Local,
                format!(
                    "{}: {}; {remedy}",
                    path.display(),
                    one_line(&fault.to_string(), LONGEST_FAULT)
                ),
            )
        })?;
        for kind in &faults.kinds {
            let kind = one_line(&kind.to_string(), LONGEST_FAULT);
            say(&format!("{}: {kind}: skipped", path.display()));
        }
        if faults.unnamed > 0 {
            say(&format!(
                "{}: {} more lines skipped, too scattered to name them all: fix the lines that \
                 are named first",
                path.display(),
                faults.unnamed
            ));
        }
        skipped += faults.count;
    }
    Ok(skipped)
}

fn read(arguments: &AnalysisArguments) -> Result<(Runs, Analysis), Stop> {
    let mut runs = Runs::default();
    let skipped = each_record(&arguments.records, arguments.skip_faults, |file, record| {
        runs.add_of(file, record)
    })?;
    if runs.runs().is_empty() {
        return Err(Stop::new(Exit::Local, "there are no runs in these records"));
    }
    let resampling = Resampling {
        draws: arguments.draws,
        seed: arguments.seed,
        ..Resampling::default()
    };
    let analysis = analyse(&runs, &resampling);
    let mut analysis = analysis.map_err(|error| Stop::because(Exit::Local, error))?;
    if skipped > 0 {
        analysis.doubt_first("the records", Doubt::SkippedRecords { skipped });
    }
    Ok((runs, analysis))
}
