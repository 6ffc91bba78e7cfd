//! Which runs were read, so that none counts twice.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Fault, RunRecord};

/// Runs that were read, of any number of files.
///
/// Within a file an identity is one run's. Sweeps of one name with several files use the same
/// identities for other runs. The start and the outcome distinguish these from a run that was
/// given twice.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    file: usize,
    in_file: HashSet<String>,
    /// A digest of each run; that two of a million are alike by chance is a matter of 1 in
    /// 30 million, and refuses one of them.
    runs: HashSet<u64>,
}

impl Seen {
    /// Notes a run of a file; files come one after the other, by any numbers.
    ///
    /// # Errors
    ///
    /// Where it was read before.
    pub fn add(&mut self, file: usize, record: &RunRecord) -> Result<(), Fault> {
        if file != self.file {
            self.file = file;
            self.in_file.clear();
        }
        let id = &record.run.id;
        let is_new = !self.in_file.contains(id) && self.runs.insert(digest(record));
        if is_new && self.in_file.insert(id.clone()) {
            Ok(())
        } else {
            Err(Fault::Repeated(id.clone()))
        }
    }
}

/// Of what no two runs of one identity share.
fn digest(record: &RunRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    let (run, path, outcome) = (&record.run, &record.path, &record.outcome);
    (
        &run.id,
        &run.started,
        &record.method.name,
        &record.dataset.name,
    )
        .hash(&mut hasher);
    (path.rtt, path.capacity.bits_per_second().to_bits()).hash(&mut hasher);
    (outcome.moved.0, outcome.wall, &outcome.error).hash(&mut hasher);
    hasher.finish()
}
