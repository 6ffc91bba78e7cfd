//! Files of records: reading, compression, export as tables, and import of other
//! instruments' results.

mod compress;
mod export;
mod import;
mod over_time;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use longhaul_measure::compressed::lines;
use longhaul_measure::record::{Ended, Fault, OnFault, RunRecord, read_records};
use longhaul_system::named_files::{Older, to_write};
use longhaul_transfer::console::{one_line, say};
use longhaul_transfer::stop::{Exit, Stop};

pub use compress::compress_file;
pub use export::table;
pub use import::{ImportRequest, check_output, exit_of, gather, tell_failures, write_records};
pub use over_time::sampled_runs;

/// Returns a stop for a file that cannot be read or written.
pub fn local(path: &Path, error: &io::Error) -> Stop {
    Stop::new(Exit::Local, format!("{}: {error}", path.display()))
}

/// Writes a complete file.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Stop> {
    let written = to_write(path, Older::Goes).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| local(path, &error))
}

/// Opens a file for reading, compressed with zstd or not. `-` means standard input.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be opened or is a directory.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, Stop> {
    if path.as_os_str() == "-" {
        return lines(BufReader::new(io::stdin())).map_err(|error| local(path, &error));
    }
    if path.is_dir() {
        let text = format!(
            "{0}: it is a directory: name the files in it, for example {0}/*",
            path.display()
        );
        return Err(Stop::new(Exit::Local, text));
    }
    let file = File::open(path).map_err(|error| local(path, &error))?;
    lines(BufReader::with_capacity(1 << 20, file)).map_err(|error| local(path, &error))
}

/// Maximum length in bytes of an error about a line, which may quote the line.
const LONGEST_FAULT: usize = 1000;

/// Reads records from files and passes each to `add` with the index of its file. Returns
/// the number of skipped lines, which are reported on the console.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or a line is invalid and `skip_faults` is
/// false.
pub fn each_record(
    paths: &[PathBuf],
    skip_faults: bool,
    mut add: impl FnMut(usize, RunRecord) -> Result<(), Fault>,
) -> Result<u64, Stop> {
    let on_fault = if skip_faults {
        OnFault::Skip
    } else {
        OnFault::Refuse
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
                "{}: {} more lines skipped, too many kinds of faults to list: fix the listed lines \
                 first",
                path.display(),
                faults.unnamed
            ));
        }
        skipped += faults.count;
    }
    Ok(skipped)
}

/// Returns the last record of a successful run in a file. It describes the path best,
/// because the path may have changed.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be read or has no such record.
pub fn last_done(file: &Path) -> Result<RunRecord, Stop> {
    let mut last = None;
    each_record(&[file.to_owned()], false, |_, record| {
        if record.outcome.ended == Ended::Done {
            last = Some(record);
        }
        Ok(())
    })?;
    last.ok_or_else(|| {
        let name = file.display();
        Stop::new(
            Exit::Usage,
            format!("{name}: it has no record of a successful run"),
        )
    })
}
