//! Metadata that an end on this host keeps, beyond data, mode and time.

use longhaul_engine::recv::keeper::{Keeper, May};
use longhaul_engine::recv::keeping::SetIds;

use super::run::Task;
use crate::stop::{Exit, Stop};

impl Task {
    /// Returns the rules by which a receiving end on this host applies metadata.
    pub(super) fn keeper(&self) -> Result<Keeper, Stop> {
        let keeper = Keeper::new(self.spec.options.keep.clone(), May::ANYTHING);
        let keeper = keeper.map_err(|error| Stop::because(Exit::Usage, error))?;
        match keeper.unknown_owner() {
            None => Ok(keeper),
            Some(owner) => {
                let text = format!("there is no {owner} here: name one that is there");
                Err(Stop::new(Exit::Usage, text))
            }
        }
    }

    /// Returns the rule for set-user-ID and set-group-ID bits at a local destination. A daemon's
    /// statement on the owners of its files is not trusted.
    pub(super) fn set_ids(&self) -> SetIds {
        match self.sources.first() {
            _ if self.spec.options.selection.keep_set_ids => SetIds::Keep,
            Some(source) if source.promises().foreign => SetIds::Drop,
            _ => SetIds::SameOwner,
        }
    }
}
