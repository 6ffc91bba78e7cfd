//! `longhaul records`: records of runs for other programs, and from other instruments.

mod compress;
mod import;

use longhaul_measure::export::Table;
use longhaul_measure::record::{Fault, Seen};

use super::profile::{each_record, write};
use crate::arguments::{ExportArguments, ExportFormat, RecordsCommand};
use crate::messages::{Exit, Stop, finish, print_line};

/// A table is made in memory, and a Parquet page of one column has at most 2 GiB.
const MOST_RECORDS: usize = 1_000_000;

/// Runs it.
pub fn run(command: &RecordsCommand) -> Exit {
    match command {
        RecordsCommand::Export(arguments) => finish(export(arguments)),
        RecordsCommand::Compress(arguments) => finish(compress::run(arguments)),
        RecordsCommand::Import(arguments) => finish(import::import(arguments)),
    }
}

fn export(arguments: &ExportArguments) -> Result<Exit, Stop> {
    let format = arguments.format.or_else(|| of_name(arguments));
    let format = format.ok_or_else(|| {
        let name = arguments.output.display();
        Stop::new(
            Exit::Usage,
            format!("{name} says no format: call it .csv or .parquet, or add --format"),
        )
    })?;
    let mut table = Table::default();
    let mut seen = Seen::default();
    let too_many = format!("more than {MOST_RECORDS} records: export them in parts");
    let mut is_whole = true;
    each_record(&arguments.records, arguments.skip_faults, |file, record| {
        if table.rows() == MOST_RECORDS {
            is_whole = false;
            return Err(Fault::Malformed(too_many.clone()));
        }
        // Whoever averages the table would count it twice.
        seen.add(file, &record)?;
        table
            .add(&record)
            .map_err(|error| Fault::Malformed(error.to_string()))
    })?;
    if !is_whole {
        // Not even where faults are skipped: a part would pass for the whole.
        return Err(Stop::new(Exit::Usage, too_many));
    }
    match format {
        ExportFormat::Csv => write(&arguments.output, table.to_csv().as_bytes())?,
        ExportFormat::Parquet => write(&arguments.output, &table.to_parquet())?,
    }
    print_line!(
        "{}: {} records, {} columns",
        arguments.output.display(),
        table.rows(),
        table.columns().count()
    );
    Ok(Exit::Done)
}

fn of_name(arguments: &ExportArguments) -> Option<ExportFormat> {
    match arguments.output.extension()?.to_str()? {
        "csv" => Some(ExportFormat::Csv),
        "parquet" => Some(ExportFormat::Parquet),
        _ => None,
    }
}
