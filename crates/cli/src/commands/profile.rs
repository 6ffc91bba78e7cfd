//! `longhaul profile` and `longhaul report`: analyse records of runs.

use std::fs;

use longhaul_instrument::records::{each_record, local, sampled_runs, write};
use longhaul_measure::analysis::{self, Analysis, analyse};
use longhaul_measure::doubt::Doubt;
use longhaul_measure::report::{self, Heading};
use longhaul_measure::runs::Runs;
use longhaul_measure::stats::Resampling;

use crate::arguments::{AnalysisArguments, ProfileArguments, ReportArguments};
use crate::messages::{Exit, Stop, finish, print_json, print_line, write_output};

/// Runs `longhaul profile`.
pub fn profile(arguments: &ProfileArguments) -> Exit {
    finish(print_profile(arguments))
}

fn print_profile(arguments: &ProfileArguments) -> Result<Exit, Stop> {
    let (_, analysis) = read(&arguments.analysis)?;
    if arguments.json {
        print_json(&analysis::to_json(&analysis));
    } else {
        write_output(&analysis::to_text(&analysis));
    }
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
        let found = sampled_runs(&runs, &analysis.labels, records, path)?;
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
