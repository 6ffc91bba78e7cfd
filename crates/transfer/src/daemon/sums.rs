//! Sums over the sessions of each principal.

use std::collections::BTreeMap;

/// Maximum number of principals with sums of their own.
const MOST_PRINCIPALS: usize = 10_000;

/// Name under which further principals are counted. It cannot be a principal's name.
const OTHERS: &str = "others/";

/// Kinds of ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// Everything was done.
    Complete,
    /// The client cancelled it.
    Cancelled,
    /// A newer session of the same transfer took over.
    Superseded,
    /// The connection was lost, or an end stopped.
    Broken,
    /// The destination failed.
    Storage,
}

impl Ended {
    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Complete => "complete",
            Ended::Cancelled => "cancelled",
            Ended::Superseded => "superseded",
            Ended::Broken => "broken",
            Ended::Storage => "storage",
        }
    }
}

/// Bytes and files in one direction.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Bytes that were sent, or that are durable.
    pub bytes: u64,
    /// Complete files.
    pub files: u64,
}

impl Moved {
    /// Adds a session.
    pub fn add(&mut self, bytes: u64, files: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.files = self.files.saturating_add(files);
    }
}

/// Sums of one principal.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Number of running sessions.
    pub running: u64,
    /// Number of sessions that have ended, by the kind of their end.
    pub ended: BTreeMap<Ended, u64>,
    /// Data that clients read.
    pub sent: Moved,
    /// Data that clients wrote.
    pub received: Moved,
    /// Number of names that clients deleted.
    pub deleted: u64,
    /// Number of entries that failed.
    pub failed: u64,
}

/// Sums of all principals.
#[derive(Clone, Debug, Default)]
pub struct Sums(BTreeMap<String, Sum>);

impl Sums {
    /// Returns the sums of a principal.
    pub fn of(&mut self, principal: &str) -> &mut Sum {
        let is_own = self.0.contains_key(principal) || self.0.len() < MOST_PRINCIPALS;
        let name = if is_own { principal } else { OTHERS };
        self.0.entry(name.to_owned()).or_default()
    }

    /// Returns the principals and their sums, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Sum)> {
        self.0.iter().map(|(name, sum)| (name.as_str(), sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_counted_principals_is_bounded() {
        let mut sums = Sums::default();
        for number in 0..MOST_PRINCIPALS + 5 {
            sums.of(&number.to_string()).running += 1;
        }
        assert_eq!(sums.iter().count(), MOST_PRINCIPALS + 1);
        assert_eq!(sums.of(OTHERS).running, 5);
    }
}
