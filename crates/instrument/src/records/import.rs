//! Imports results of other instruments as records.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use longhaul_measure::compressed::{compress, is_compressed, lines};
use longhaul_measure::import::{Found, Given, Imported, Left, MARK, import as made};
use longhaul_measure::record::{Ended, OnFault, RecordError, read_records};
use longhaul_measure::sources::{SourceError, read_any};

use longhaul_transfer::console::{one_line, say};
use longhaul_transfer::stop::{Exit, Stop};

use super::{LONGEST_FAULT, open, write};

/// Results to import, and facts that they lack.
#[derive(Clone, Debug)]
pub struct ImportRequest<'a> {
    /// Files of results; `-` means standard input.
    pub files: &'a [PathBuf],
    /// If true, unusable files and runs are reported and skipped. If false, they are an
    /// error.
    pub skip_faults: bool,
    /// Facts that the files may not contain.
    pub given: Given,
}

/// Reads all results. Unusable ones are reported on the console and returned in `left`.
///
/// # Errors
///
/// Returns an error if a file cannot be read, a result is unusable and not skipped, or
/// there are no runs.
pub fn gather(request: &ImportRequest<'_>) -> Result<Imported, Stop> {
    let (mut found, mut left) = (Vec::new(), Vec::new());
    for path in request.files {
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
                is_unpaired: false,
            }),
        }
    }
    let mut imported = made(found, &request.given);
    left.append(&mut imported.left);
    for fault in &left {
        let why = one_line(&fault.why, LONGEST_FAULT);
        say(&format!("{}: {why}", fault.file));
    }
    let faults = left.iter().filter(|left| !left.is_unpaired).count();
    if faults > 0 && !request.skip_faults {
        let faults = match faults {
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        let text = format!(
            "nothing is imported because of the {faults} above: correct the files, or skip faulty \
             files and runs with --skip-faults"
        );
        return Err(Stop::new(Exit::Local, text));
    }
    if imported.records.is_empty() {
        let text = if left.is_empty() {
            "there are no runs in these files"
        } else {
            "nothing is imported: no run is usable"
        };
        return Err(Stop::new(Exit::Local, text));
    }
    imported.left = left;
    Ok(imported)
}

/// Returns the exit code of an import: partial if runs are missing from its records and
/// `skip_faults` is false.
pub fn exit_of(imported: &Imported, skip_faults: bool) -> Exit {
    if imported.left.is_empty() || skip_faults {
        Exit::Done
    } else {
        Exit::Partial
    }
}

/// Checks that the output file is missing or empty. With `replaces`, it may have been written by an
/// import. Records of a sweep or a probe are never replaced.
///
/// # Errors
///
/// Returns an error if the file has other content.
pub fn check_output(path: &Path, replaces: bool) -> Result<(), Stop> {
    let Ok(file) = File::open(path) else {
        // The file is missing or unreadable. If it cannot be written later, that error is
        // reported.
        return Ok(());
    };
    if path.as_os_str() == "-" || !file.metadata().is_ok_and(|status| status.is_file()) {
        return Ok(());
    }
    let is_empty = file.metadata().is_ok_and(|status| status.len() == 0);
    if !replaces && !is_empty {
        let text = format!(
            "{}: the file exists: name another file with -o (profile and report accept several), \
             or replace the records of an earlier import with --replace",
            path.display()
        );
        return Err(Stop::new(Exit::Usage, text));
    }
    let mut is_imported = true;
    let faults = lines(BufReader::new(file)).ok().and_then(|input| {
        let faults = read_records(input, OnFault::Skip, |record| {
            is_imported &= record.run.id.starts_with(MARK);
            Ok(())
        });
        faults.ok()
    });
    if faults.is_some_and(|faults| faults.count == 0) && is_imported {
        Ok(())
    } else {
        let text = format!(
            "{}: it was not written by an import: name another file with -o; profile and report \
             accept several files",
            path.display()
        );
        Err(Stop::new(Exit::Usage, text))
    }
}

/// Reports failed runs on the console. They are recorded but do not count in any figure.
pub fn tell_failures(imported: &Imported) {
    let records = imported.records.iter();
    for (file, record) in records.filter(|(_, record)| record.outcome.ended == Ended::Failed) {
        let error = one_line(&record.outcome.error, LONGEST_FAULT);
        say(&format!(
            "{file}: {} failed: {error}; recorded as a failed run",
            record.method.name
        ));
    }
}

/// Writes the records. If `output` is `-`, returns their text for standard output.
///
/// # Errors
///
/// Returns an error if the file cannot be written.
pub fn write_records(output: &Path, imported: &Imported) -> Result<Option<Vec<u8>>, Stop> {
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
        return Ok(Some(text));
    }
    if is_compressed(output) {
        let mut packed = Vec::new();
        compress(&text[..], &mut packed).map_err(|error| local(&error))?;
        text = packed;
    }
    write(output, &text)?;
    Ok(None)
}
