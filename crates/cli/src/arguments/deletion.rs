//! What `cp` deletes, and what it keeps of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use longhaul_transfer::spec::{Backup, Deletion};

const HEADING: &str = "What is deleted";

/// The options, as rsync has them.
#[derive(Clone, Debug, Args)]
pub struct DeletionArguments {
    /// Delete at the destination what the source does not have, after everything is copied. Any
    /// failure, at either end, and nothing is deleted. What filters leave out stays. See first
    /// with -n.
    #[arg(
        long,
        aliases = ["del", "delete-after", "delete-before", "delete-delay", "delete-during"],
        help_heading = HEADING
    )]
    pub delete: bool,
    /// With --delete, also what filters leave out, unless a rule protects it (P).
    #[arg(long, help_heading = HEADING)]
    pub delete_excluded: bool,
    /// Remove each source file once it is durable at the destination and unchanged since it was
    /// read. Directories stay. What was there already is compared by contents first.
    #[arg(long = "move", alias = "remove-source-files", help_heading = HEADING)]
    pub move_away: bool,
    /// Delete nothing at all if it would be more names than this.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_delete: Option<u64>,
    /// Keep what is replaced or deleted at the destination under another name: with a ~ at its end.
    #[arg(short, long, help_heading = HEADING)]
    pub backup: bool,
    /// Keep it in this directory, by its path; one that is not absolute is relative to the
    /// destination.
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    pub backup_dir: Option<OsString>,
    /// What its name gets at its end [default: ~, and nothing with --backup-dir]
    #[arg(long, value_name = "TEXT", help_heading = HEADING, allow_hyphen_values = true)]
    pub suffix: Option<OsString>,
}

impl DeletionArguments {
    /// As a specification has them; `None` if nothing is deleted.
    pub fn deletion(&self) -> Option<Deletion> {
        (self.delete || self.delete_excluded).then_some(Deletion {
            excluded: self.delete_excluded,
            maximum: self.max_delete,
        })
    }

    /// The same of what is kept; `None` if nothing is.
    pub fn backup(&self) -> Option<Backup> {
        let written = |text: &OsString| text.as_bytes().to_vec().into();
        (self.backup || self.backup_dir.is_some()).then(|| Backup {
            directory: self.backup_dir.as_ref().map(written),
            suffix: self.suffix.as_ref().map(written),
        })
    }
}
