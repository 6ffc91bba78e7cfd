//! Exports records as a table.

use std::path::PathBuf;

use longhaul_measure::export::Table;
use longhaul_measure::record::{Fault, Seen};
use longhaul_transfer::stop::{Exit, Stop};

use super::each_record;

/// Maximum number of records: a table is in memory, and a Parquet page of one column has
/// at most 2 GiB.
const MOST_RECORDS: usize = 1_000_000;

/// Returns all records of the files as one table. A run that appears twice is an error.
///
/// # Errors
///
/// Returns the errors of [`each_record`], and an error for more than a million records.
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
        // A duplicate would count twice in averages over the table.
        seen.add(file, &record)?;
        table
            .add(&record)
            .map_err(|error| Fault::Malformed(error.to_string()))
    })?;
    if !is_whole {
        // Applies even if faults are skipped: an incomplete table would look complete.
        return Err(Stop::new(Exit::Usage, too_many));
    }
    Ok(table)
}
