//! Metadata that an end on this host keeps, beyond data, mode and time.

use longhaul_engine::recv::keeper::{Keeper, May};
use longhaul_engine::recv::keeping::SetIds;
use longhaul_proto::keeping::Keeping;

use super::run::Task;
use crate::stop::{Exit, Stop};

impl Task {
    /// Returns the metadata to keep. `fakes` is true if that end keeps it in extended attributes
    /// (`--fake-super`). `None` selects the default.
    pub(super) fn keeping(&self, fakes: bool) -> Result<Option<Keeping>, Stop> {
        let keeping = self.spec.keep.keeping_of(fakes);
        keeping.map_err(|error| Stop::because(Exit::Usage, error))
    }

    /// Returns the rules by which a receiving end on this host applies metadata.
    pub(super) fn keeper(&self) -> Result<Keeper, Stop> {
        let keeping = self.keeping(self.spec.keep.fake_destination)?;
        let keeping = keeping.unwrap_or_default();
        let keeper = Keeper::new(keeping, May::ANYTHING);
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
            _ if self.spec.selection.keep_set_ids => SetIds::Keep,
            Some(source) if source.promises().foreign => SetIds::Drop,
            _ => SetIds::SameOwner,
        }
    }
}
