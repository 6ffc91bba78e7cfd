//! `longhaul model`: fits capacities to measurements, and compares predictions with
//! results.

use std::path::Path;

use longhaul_instrument::model_files::{host_model, record_fits};
use longhaul_instrument::records::{each_record, write};
use longhaul_model::check::{Checks, Known, figure, summary};
use longhaul_model::host::HostModel;
use longhaul_model::records::Gathered;
use serde_json::{Value, json};

use crate::arguments::{CheckArguments, FitArguments, ModelCommand};
use crate::messages::{Exit, Stop, finish, print_json, print_line};

/// Runs `longhaul model`.
pub fn run(command: &ModelCommand) -> Exit {
    match command {
        ModelCommand::Fit(arguments) => finish(fit(arguments)),
        ModelCommand::Check(arguments) => finish(check_records(arguments)),
    }
}

/// True if a file contains records, judging by its name.
fn has_records(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("jsonl" | "ndjson" | "zst"))
}

/// Fits the costs of the layers of copies to records.
fn fit_records(arguments: &FitArguments) -> Result<Exit, Stop> {
    let mut gathered = Gathered::default();
    each_record(&arguments.profiles, false, |_, record| {
        gathered.add(&record);
        Ok(())
    })?;
    let fits = gathered.fits();
    let document = fits.to_json();
    if let Some(path) = &arguments.output {
        write(path, format!("{document:#}\n").as_bytes())?;
    }
    if arguments.json {
        print_json(&format!("{document:#}"));
    } else {
        print_line!("{}", fits.text().trim_end());
    }
    Ok(Exit::Done)
}

fn fit(arguments: &FitArguments) -> Result<Exit, Stop> {
    if arguments.profiles.iter().all(|file| has_records(file)) {
        return fit_records(arguments);
    }
    let mut models = Vec::new();
    for file in &arguments.profiles {
        models.push(host_model(file, None)?);
    }
    let values: Value = models.iter().map(HostModel::to_json).collect();
    let document = json!({ "schema": 1, "kind": "host models", "hosts": values });
    if let Some(path) = &arguments.output {
        write(path, format!("{document:#}\n").as_bytes())?;
    }
    if arguments.json {
        print_json(&format!("{document:#}"));
    } else {
        for model in &models {
            print_line!("{}", model.text().trim_end());
        }
    }
    Ok(Exit::Done)
}

fn check_records(arguments: &CheckArguments) -> Result<Exit, Stop> {
    let model = |file: &Option<std::path::PathBuf>| match file {
        Some(file) => host_model(file, None).map(Some),
        None => Ok(None),
    };
    let known = Known {
        source: model(&arguments.source_profile)?,
        destination: model(&arguments.destination_profile)?,
        fits: arguments.fits.as_deref().map(record_fits).transpose()?,
    };
    let mut checks = Checks::default();
    each_record(&arguments.records, arguments.skip_faults, |file, record| {
        let run = checks.add(&arguments.records[file], &record, &known);
        if arguments.json {
            print_line!("{run}");
        }
        Ok(())
    })?;
    if let Some(path) = &arguments.plot {
        write(path, figure(&checks.runs).svg.as_bytes())?;
    }
    if !arguments.json {
        print_line!("{}", summary(&checks).trim_end());
    }
    Ok(Exit::Done)
}
