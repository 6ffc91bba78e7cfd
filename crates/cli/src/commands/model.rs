//! `longhaul model`: capacities from measurements, and predictions beside outcomes.

use std::io::Read;
use std::path::Path;

use longhaul_instrument::records::{each_record, open, write};
use longhaul_model::check::{Checked, Known, check, figure, summary};
use longhaul_model::host::HostModel;
use longhaul_model::records::{Gathered, RecordFits};
use serde_json::{Value, json};

use crate::arguments::{CheckArguments, FitArguments, ModelCommand};
use crate::messages::{Exit, Stop, finish, print_line};

/// More bytes than any host profile has: another file was named.
const MOST_PROFILE_BYTES: u64 = 64 << 20;

/// Runs it.
pub fn run(command: &ModelCommand) -> Exit {
    match command {
        ModelCommand::Fit(arguments) => finish(fit(arguments)),
        ModelCommand::Check(arguments) => finish(check_records(arguments)),
    }
}

/// A host's model, from its profile; of several disks the one that holds `path`.
pub fn host_model(file: &Path, path: Option<&Path>) -> Result<HostModel, Stop> {
    let named = |text: String| Stop::new(Exit::Usage, format!("{}: {text}", file.display()));
    let mut text = String::new();
    let read = open(file)?
        .take(MOST_PROFILE_BYTES)
        .read_to_string(&mut text);
    read.map_err(|error| Stop::new(Exit::Local, format!("{}: {error}", file.display())))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    let path = path.map(|path| path.to_string_lossy());
    HostModel::of_profile(&value, path.as_deref()).map_err(named)
}

/// Whether a file has records, by its name.
fn has_records(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("jsonl" | "ndjson" | "zst"))
}

/// Fits what the layers of copies took, from records.
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
    match arguments.json {
        true => print_line!("{document:#}"),
        false => print_line!("{}", fits.text().trim_end()),
    }
    Ok(Exit::Done)
}

/// Reads what [`fit_records`] wrote.
fn record_fits(file: &Path) -> Result<RecordFits, Stop> {
    let mut text = String::new();
    let read = open(file)?
        .take(MOST_PROFILE_BYTES)
        .read_to_string(&mut text);
    let named = |exit, text: String| Stop::new(exit, format!("{}: {text}", file.display()));
    read.map_err(|error| named(Exit::Local, error.to_string()))?;
    RecordFits::of_text(&text).map_err(|error| named(Exit::Usage, error))
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
        print_line!("{document:#}");
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
    let mut runs: Vec<Checked> = Vec::new();
    each_record(&arguments.records, arguments.skip_faults, |_, record| {
        runs.extend(check(&record, &known));
        Ok(())
    })?;
    if let Some(path) = &arguments.plot {
        write(path, figure(&runs).svg.as_bytes())?;
    }
    if arguments.json {
        for run in &runs {
            print_line!("{}", run.to_json());
        }
    } else {
        print_line!("{}", summary(&runs).trim_end());
    }
    Ok(Exit::Done)
}
