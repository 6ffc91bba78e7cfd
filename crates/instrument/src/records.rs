//! Files of records: read, packed, made into tables, and made from what others measured.

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

/// Why a file cannot be read or written.
pub fn local(path: &Path, error: &io::Error) -> Stop {
    Stop::new(Exit::Local, format!("{}: {error}", path.display()))
}

/// Writes a file whole.
///
/// # Errors
///
/// Where it cannot be written, by name.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Stop> {
    let written = to_write(path, Older::Goes).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| local(path, &error))
}

/// Opens a file to read, compressed with zstd or not; - is standard input.
///
/// # Errors
///
/// Where it cannot be opened or is a directory, by name.
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
const LONGEST_FAULT: usize = 1000;

/// Reads files of records, with the place of each among them; gives how many lines were
/// skipped, which it names on the console.
///
/// # Errors
///
/// Where a file cannot be read, or a line has a fault and is not to be skipped.
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

/// The last good record of a file: a path may have changed since the others.
///
/// # Errors
///
/// Where the file cannot be read or has no such record, with its name.
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
            format!("{name}: it has no record of a run that ended well"),
        )
    })
}
