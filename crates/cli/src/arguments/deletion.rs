//! Arguments of `cp` for deletion and backups.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use longhaul_proto::backup::Backup;
use longhaul_proto::deletion::Deletion;

const HEADING: &str = "Deletion and backups";

/// Arguments for deletion and backups, as in rsync.
#[derive(Clone, Debug, Args)]
pub struct DeletionArguments {
    /// After the copy, delete entries at the destination that the source does not have.
    /// After any failure at either end, no entry is deleted. Entries excluded by filters
    /// are kept. Check the effect with -n first.
    #[arg(
        long,
        aliases = ["del", "delete-after", "delete-before", "delete-delay", "delete-during"],
        help_heading = HEADING
    )]
    pub delete: bool,
    /// Like --delete, and also delete entries excluded by filters, unless a rule protects them (P).
    #[arg(long, help_heading = HEADING)]
    pub delete_excluded: bool,
    /// Remove each source file once it is durable at the destination, if it has not
    /// changed since it was read. Directories remain. Files that already existed at the
    /// destination are compared by content first.
    #[arg(long = "move", alias = "remove-source-files", help_heading = HEADING)]
    pub move_away: bool,
    /// Delete no entry at all if more than N would be deleted.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_delete: Option<u64>,
    /// Keep entries that are replaced or deleted at the destination, with ~ appended to the name.
    #[arg(short, long, help_heading = HEADING)]
    pub backup: bool,
    /// Keep replaced or deleted entries in this directory, by their paths. A relative DIR
    /// is relative to the destination.
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    pub backup_dir: Option<OsString>,
    /// Text appended to the names of kept entries [default: ~, and empty with
    /// --backup-dir]
    #[arg(long, value_name = "TEXT", help_heading = HEADING, allow_hyphen_values = true)]
    pub suffix: Option<OsString>,
}

impl DeletionArguments {
    /// Returns the deletion of a specification; `None` if no entry is deleted.
    pub fn deletion(&self) -> Option<Deletion> {
        (self.delete || self.delete_excluded).then_some(Deletion {
            excluded: self.delete_excluded,
            maximum: self.max_delete,
            ..Deletion::default()
        })
    }

    /// Returns the backups of a specification, if there are any.
    pub fn backup(&self) -> Option<Backup> {
        let written = |text: &OsString| text.as_bytes().into();
        (self.backup || self.backup_dir.is_some()).then(|| Backup {
            directory: self.backup_dir.as_ref().map(written),
            suffix: self.suffix.as_ref().map(written),
        })
    }
}
