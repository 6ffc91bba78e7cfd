//! What `cp` deletes.

use clap::Args;
use longhaul_transfer::spec::Deletion;

const HEADING: &str = "What is deleted";

/// The options, as rsync has them.
#[derive(Clone, Debug, Args)]
pub struct DeletionArguments {
    /// Delete at the destination what the source does not have, after everything is copied. Any
    /// failure, at either end, and nothing is deleted. What filters leave out stays. See first
    /// with -n.
    #[arg(long, help_heading = HEADING)]
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
}

impl DeletionArguments {
    /// As a specification has them; `None` if nothing is deleted.
    pub fn deletion(&self) -> Option<Deletion> {
        (self.delete || self.delete_excluded).then_some(Deletion {
            excluded: self.delete_excluded,
            maximum: self.max_delete,
        })
    }
}
