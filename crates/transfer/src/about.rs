//! First and last line of a log about a transfer: its operation, source and destination.

use longhaul_engine::session::Progress;
use longhaul_proto::handshake::Operation;
use longhaul_proto::message::Farewell;

/// Description of a transfer for its log.
#[derive(Clone, Debug)]
pub struct About {
    /// Operation that is done.
    pub operation: Operation,
    /// Source and destination, as the command names them.
    pub ends: [String; 2],
    /// If true, unchanged entries are logged too.
    pub unchanged: bool,
}

impl About {
    /// Describes an operation between two endpoints.
    pub fn new(operation: Operation, ends: [String; 2], unchanged: bool) -> About {
        About {
            operation,
            ends,
            unchanged,
        }
    }

    /// True if the operation is a verification.
    pub fn compares(&self) -> bool {
        self.operation == Operation::Verify
    }

    /// Returns the first line of a log.
    pub fn beginning(&self) -> String {
        let [from, to] = &self.ends;
        match self.operation {
            Operation::Copy => format!("begun: {from} to {to}"),
            Operation::DryRun => format!("begun: {from} to {to} (dry run)"),
            Operation::Verify => format!("begun: {from} compared with {to}"),
        }
    }

    /// Returns the last line of a log.
    pub fn end(&self, farewell: &Farewell, progress: &Progress) -> String {
        let (there, failed) = (progress.unchanged_entries(), progress.failed_entries);
        let deleted = progress.deleted_entries;
        let corrected = match progress.fixed_entries {
            0 => String::new(),
            count => format!(", {count} with other attributes"),
        };
        let counts = match self.operation {
            Operation::Copy => format!(
                "{} copied, {there} unchanged{corrected}, {failed} failed, {deleted} deleted",
                progress.done_entries
            ),
            Operation::DryRun => format!(
                "{} would be copied, {there} unchanged{corrected}, {failed} would fail, {deleted} \
                 would be deleted",
                progress.new_entries + progress.changed_entries
            ),
            Operation::Verify => format!(
                "{} the same, {} differ, {} could not be compared",
                progress.done_entries + there,
                progress.differing_entries,
                failed.saturating_sub(progress.differing_entries)
            ),
        };
        format!("ended: {farewell:?}, {counts}")
    }
}
