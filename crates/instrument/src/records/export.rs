//! Records as a table.

use std::path::PathBuf;

use longhaul_measure::export::Table;
use longhaul_measure::record::{Fault, Seen};
use longhaul_transfer::stop::{Exit, Stop};

use super::each_record;

/// A table is made in memory, and a Parquet page of one column has at most 2 GiB.
const MOST_RECORDS: usize = 1_000_000;

/// All records of these files as one table; a run that comes twice is a fault.
///
/// # Errors
///
/// As [`each_record`], and where there are more than a million records.
pub fn table(paths: &[PathBuf], skip_faults: bool) -> Result<Table, Stop> {
    let mut table = Table::default();
    let mut seen = Seen::default();
    let too_many = format!("more than {MOST_RECORDS} records: export them in parts");
    let mut is_whole = true;
    each_record(paths, skip_faults, |file, record| {
        if table.rows() == MOST_RECORDS {
            is_whole = false;
            return Err(Fault::Malformed(too_many.clone()));
        }
        // An average over the table would count it twice.
        seen.add(file, &record)?;
        table
            .add(&record)
            .map_err(|error| Fault::Malformed(error.to_string()))
    })?;
    if !is_whole {
        // Not even where faults are skipped: a part would pass for the whole.
        return Err(Stop::new(Exit::Usage, too_many));
    }
    Ok(table)
}
