//! `longhaul records`: exports, imports and compresses records of runs.

use longhaul_instrument::records::{self, ImportRequest, compress_file, table, write};
use longhaul_measure::analysis::milliseconds;
use longhaul_measure::compressed::compressed_name;
use longhaul_measure::import::{Given, Imported};
use longhaul_units::counted;

use crate::arguments::{
    CompressArguments, ExportArguments, ExportFormat, ImportArguments, RecordsCommand,
};
use crate::messages::{Exit, Stop, escaped_json, finish, print_line, write_output};

/// Maximum number of paths of an import that are printed.
const MOST_PATHS: usize = 20;

/// Runs `longhaul records`.
pub fn run(command: &RecordsCommand) -> Exit {
    finish(match command {
        RecordsCommand::Export(arguments) => export(arguments),
        RecordsCommand::Compress(arguments) => compress(arguments),
        RecordsCommand::Import(arguments) => import(arguments),
    })
}

fn export(arguments: &ExportArguments) -> Result<Exit, Stop> {
    let format = arguments.format.or_else(|| of_name(arguments));
    let format = format.ok_or_else(|| {
        let name = arguments.output.display();
        Stop::new(
            Exit::Usage,
            format!("the name {name} has no known format: use .csv or .parquet, or add --format"),
        )
    })?;
    let table = table(&arguments.records, arguments.skip_faults)?;
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

/// Compresses the files. If one fails, earlier ones remain compressed.
fn compress(arguments: &CompressArguments) -> Result<Exit, Stop> {
    for path in &arguments.files {
        let (before, after) = compress_file(path, arguments.remove)
            .map_err(|error| Stop::new(Exit::Local, format!("{}: {error}", path.display())))?;
        print_line!(
            "{}: {before} bytes, {after} compressed",
            compressed_name(path).display()
        );
    }
    Ok(Exit::Done)
}

fn import(arguments: &ImportArguments) -> Result<Exit, Stop> {
    records::check_output(&arguments.output, arguments.replace)?;
    let imported = records::gather(&ImportRequest {
        files: &arguments.files,
        skip_faults: arguments.skip_faults,
        given: Given {
            rtt: arguments.rtt,
            capacity: arguments.capacity,
            path: arguments.path.clone(),
            time: arguments.time,
        },
    })?;
    records::tell_failures(&imported);
    match records::write_records(&arguments.output, &imported)? {
        Some(text) => write_output(&escaped_json(&String::from_utf8_lossy(&text))),
        None => print_imported(arguments, &imported),
    }
    Ok(records::exit_of(&imported, arguments.skip_faults))
}

fn print_imported(arguments: &ImportArguments, imported: &Imported) {
    print_line!(
        "{}: {} of {}",
        arguments.output.display(),
        counted(imported.records.len() as u64, "run"),
        counted(imported.paths.len() as u64, "path")
    );
    for ((name, rtt), path) in imported.paths.iter().take(MOST_PATHS) {
        let name = if name.is_empty() { "unnamed" } else { name };
        let least = milliseconds(*rtt);
        let rtt = if path.greatest > *rtt {
            format!(
                "{least} ms, the least of {least} to {}",
                milliseconds(path.greatest)
            )
        } else {
            format!("{least} ms")
        };
        print_line!(
            "  {name}: {}, round trip {rtt}",
            counted(path.runs as u64, "run")
        );
    }
    let more = imported.paths.len().saturating_sub(MOST_PATHS);
    if more > 0 {
        print_line!("  and {} more", counted(more as u64, "path"));
    }
}
