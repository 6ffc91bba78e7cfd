//! `longhaul records import`: records of what other instruments measured.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use longhaul_measure::analysis::milliseconds;
use longhaul_measure::compressed::{compress, is_compressed, lines};
use longhaul_measure::import::{Found, Given, Imported, Left, MARK, import as made};
use longhaul_measure::record::{Ended, OnFault, RecordError, read_records};
use longhaul_measure::sources::{SourceError, read_any};

use crate::arguments::ImportArguments;
use crate::commands::profile::{LONGEST_FAULT, open, write};
use crate::messages::{Exit, Stop, one_line, print_line, say, write_output};

/// The most paths that are printed.
const MOST_PATHS: usize = 20;

/// Runs it.
pub fn import(arguments: &ImportArguments) -> Result<Exit, Stop> {
    check_output(&arguments.output)?;
    let (mut found, mut left) = (Vec::new(), Vec::new());
    for path in &arguments.files {
        let file = path.display().to_string();
        match read_any(open(path)?) {
            Ok(runs) => found.extend(runs.into_iter().map(|run| Found {
                file: file.clone(),
                run,
            })),
            Err(SourceError::Read(error)) => {
                return Err(Stop::new(Exit::Local, format!("{file}: {error}")));
            }
            Err(error) => left.push(Left {
                file,
                why: error.to_string(),
            }),
        }
    }
    let mut imported = made(found, &given(arguments));
    left.append(&mut imported.left);
    for fault in &left {
        let why = one_line(&fault.why, LONGEST_FAULT);
        say(&format!("{}: {why}", fault.file));
    }
    if !left.is_empty() && !arguments.skip_faults {
        let text = format!(
            "nothing is imported, because of the {} above: fix it, or skip such files and runs \
             with --skip-faults",
            counted(left.len(), "fault")
        );
        return Err(Stop::new(Exit::Local, text));
    }
    if imported.records.is_empty() {
        return Err(Stop::new(Exit::Local, "there are no runs in these files"));
    }
    tell_failures(&imported);
    write_records(arguments, &imported)?;
    Ok(Exit::Done)
}

fn given(arguments: &ImportArguments) -> Given {
    Given {
        rtt: arguments.rtt,
        capacity: arguments.capacity,
        path: arguments.path.clone(),
        time: arguments.time,
    }
}

/// A sweep's or a probe's records are made once: an import does not replace them.
fn check_output(path: &Path) -> Result<(), Stop> {
    let Ok(file) = File::open(path) else {
        // It is written later, which says why not.
        return Ok(());
    };
    if path.as_os_str() == "-" || !file.metadata().is_ok_and(|status| status.is_file()) {
        return Ok(());
    }
    let mut is_imported = true;
    let faults = lines(BufReader::new(file)).ok().and_then(|input| {
        let faults = read_records(input, OnFault::Skip, |record| {
            is_imported &= record.run.id.starts_with(MARK);
            Ok(())
        });
        faults.ok()
    });
    match faults.is_some_and(|faults| faults.count == 0) && is_imported {
        true => Ok(()),
        false => {
            let text = format!(
                "{}: it has something else than what an import wrote: name another file with -o; \
                 profile and report take several",
                path.display()
            );
            Err(Stop::new(Exit::Usage, text))
        }
    }
}

/// What failed is a record too, in no figure.
fn tell_failures(imported: &Imported) {
    let records = imported.records.iter();
    for (file, record) in records.filter(|(_, record)| record.outcome.ended == Ended::Failed) {
        let error = one_line(&record.outcome.error, LONGEST_FAULT);
        say(&format!(
            "{file}: {} failed: {error}; recorded as a failed run",
            record.method.name
        ));
    }
}

fn write_records(arguments: &ImportArguments, imported: &Imported) -> Result<(), Stop> {
    let output = &arguments.output;
    let records = imported.records.iter();
    let lines: Result<Vec<String>, RecordError> =
        records.map(|(_, record)| record.to_line()).collect();
    let local = |error: &dyn std::fmt::Display| {
        Stop::new(Exit::Local, format!("{}: {error}", output.display()))
    };
    let lines = lines.map_err(|error| local(&error))?;
    let mut text = Vec::new();
    for line in lines {
        writeln!(text, "{line}").map_err(|error| local(&error))?;
    }
    if output.as_os_str() == "-" {
        write_output(&text);
        return Ok(());
    }
    if is_compressed(output) {
        let mut packed = Vec::new();
        compress(&text[..], &mut packed).map_err(|error| local(&error))?;
        text = packed;
    }
    write(output, &text)?;
    print_line!(
        "{}: {} of {}",
        output.display(),
        counted(imported.records.len(), "run"),
        counted(imported.paths.len(), "path")
    );
    for ((name, rtt), path) in imported.paths.iter().take(MOST_PATHS) {
        let name = if name.is_empty() { "unnamed" } else { name };
        let least = milliseconds(*rtt);
        let rtt = match path.greatest > *rtt {
            true => format!(
                "{least} ms, the least of {least} to {}",
                milliseconds(path.greatest)
            ),
            false => format!("{least} ms"),
        };
        print_line!("  {name}: {}, round trip {rtt}", counted(path.runs, "run"));
    }
    let more = imported.paths.len().saturating_sub(MOST_PATHS);
    if more > 0 {
        print_line!("  and {} more", counted(more, "path"));
    }
    Ok(())
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
