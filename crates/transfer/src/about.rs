//! What a log says first and last of a transfer: what is done, and from where to where.

use longhaul_engine::session::Progress;
use longhaul_proto::handshake::Operation;
use longhaul_proto::message::Farewell;

/// What is written down.
#[derive(Clone, Debug)]
pub struct About {
    /// What is done.
    pub operation: Operation,
    /// From where and to where, as the command names them.
    pub ends: [String; 2],
    /// What is there unchanged has lines in the log, too.
    pub unchanged: bool,
}

impl About {
    /// An operation between these ends.
    pub fn new(operation: Operation, ends: [String; 2], unchanged: bool) -> About {
        About {
            operation,
            ends,
            unchanged,
        }
    }

    /// Whether it compares and copies nothing.
    pub fn compares(&self) -> bool {
        self.operation == Operation::Verify
    }

    /// The first line of a log.
    pub fn beginning(&self) -> String {
        let [from, to] = &self.ends;
        match self.operation {
            Operation::Copy => format!("begun: {from} to {to}"),
            Operation::DryRun => format!("begun: {from} to {to} (dry run)"),
            Operation::Verify => format!("begun: {from} compared with {to}"),
        }
    }

    /// Its last line.
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
