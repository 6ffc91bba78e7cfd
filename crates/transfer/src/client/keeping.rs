//! What an end of this host keeps of an entry beyond data, mode and time.

use longhaul_engine::recv::keeper::{Keeper, May};
use longhaul_engine::recv::keeping::SetIds;
use longhaul_proto::keeping::Keeping;

use super::run::Task;
use crate::endpoint::Endpoint;
use crate::stop::{Exit, Stop};

impl Task {
    /// What of an entry is kept, at an end that `fakes` or not; `None`: what always is.
    pub(super) fn keeping(&self, fakes: bool) -> Result<Option<Keeping>, Stop> {
        let keeping = self.spec.keep.keeping_of(fakes);
        keeping.map_err(|error| Stop::because(Exit::Usage, error))
    }

    /// What a receiving end here does about that.
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

    /// When set-user-ID and set-group-ID bits are kept at a destination here. A daemon's word
    /// for who owns its files is not taken.
    pub(super) fn set_ids(&self) -> SetIds {
        match self.sources.first() {
            _ if self.spec.selection.keep_set_ids => SetIds::Keep,
            Some(Endpoint::Daemon(_)) => SetIds::Drop,
            _ => SetIds::SameOwner,
        }
    }
}
