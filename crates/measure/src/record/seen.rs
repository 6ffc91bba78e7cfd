//! Detects runs that were read before, so that a run is not counted twice.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Fault, RunRecord};

/// The runs that were read, from any number of files.
///
/// Identities are unique within a file. Sweeps with the same name in different files use the same
/// identities for different runs. The start and the outcome distinguish such runs from a run that
/// was read twice.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    file: usize,
    in_file: HashSet<String>,
    /// Digest of each run. The probability that two of a million runs have the same digest is about
    /// 1 in 30 million. One of the two would then be rejected.
    runs: HashSet<u64>,
}

impl Seen {
    /// Adds a run of a file. All runs of a file must be added before those of the next file.
    ///
    /// # Errors
    ///
    /// If the run was added before.
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

/// Returns a digest of the fields that distinguish runs with the same identity.
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
