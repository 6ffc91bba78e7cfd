//! Records of what other instruments measured.

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

/// Which results become records, and what is known of them beside.
#[derive(Clone, Debug)]
pub struct ImportRequest<'a> {
    /// Files of results; - is standard input.
    pub files: &'a [PathBuf],
    /// Skips files and runs that cannot be used, and names them, instead of refusing all.
    pub skip_faults: bool,
    /// What files may not say themselves.
    pub given: Given,
}

/// Reads all results. Names on the console what cannot be used; it is in `left`, too.
///
/// # Errors
///
/// Where a file cannot be read, a fault is not to be skipped, or there are no runs.
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
            "nothing is imported, because of the {faults} above: fix it, or skip such files and \
             runs with --skip-faults"
        );
        return Err(Stop::new(Exit::Local, text));
    }
    if imported.records.is_empty() {
        let text = if left.is_empty() {
            "there are no runs in these files"
        } else {
            "nothing is imported: none of the runs can be used"
        };
        return Err(Stop::new(Exit::Local, text));
    }
    imported.left = left;
    Ok(imported)
}

/// The exit code of an import: partial if some runs are not among its records, unless that was
/// asked for.
pub fn exit_of(imported: &Imported, skip_faults: bool) -> Exit {
    if imported.left.is_empty() || skip_faults {
        Exit::Done
    } else {
        Exit::Partial
    }
}

/// A sweep's or a probe's records are made once: an import does not replace them.
///
/// # Errors
///
/// Where the file has something else than what an import wrote.
pub fn check_output(path: &Path) -> Result<(), Stop> {
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
    if faults.is_some_and(|faults| faults.count == 0) && is_imported {
        Ok(())
    } else {
        let text = format!(
            "{}: it has something else than what an import wrote: name another file with -o; \
             profile and report take several",
            path.display()
        );
        Err(Stop::new(Exit::Usage, text))
    }
}

/// Names failed runs on the console: each is a record too, in no figure.
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

/// Writes the records; gives their text instead where `output` is -, standard output.
///
/// # Errors
///
/// Where the file cannot be written.
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
