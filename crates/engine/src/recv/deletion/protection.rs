//! Which names of the destination filters protect.

use std::io;

use longhaul_proto::deletion::Deletion;
use longhaul_proto::filter::{Action, End, InForce, Rules, SelectionError};
use longhaul_proto::manifest::TreePath;

use crate::send::select::text_of;
use crate::storage::Directory;

/// The rules, as the receiving end reads them.
#[derive(Default)]
pub(super) struct Protection {
    rules: Rules,
    end: Option<End>,
    /// Directories on other file systems than the anchor stay as they are.
    pub one_file_system: bool,
}

impl Protection {
    /// # Errors
    ///
    /// The first rule that is none.
    pub(super) fn new(asked: &Deletion) -> Result<Protection, SelectionError> {
        Ok(Protection {
            rules: asked.parse()?,
            end: Some(match asked.excluded {
                true => End::ReceivingOnly,
                false => End::Receiving,
            }),
            one_file_system: asked.one_file_system,
        })
    }

    /// Whether what holds depends on the directory.
    pub(super) fn is_local(&self) -> bool {
        !self.rules.per_directory().is_empty()
    }

    /// What holds in a directory, which has this path, in one where `above` holds.
    ///
    /// # Errors
    ///
    /// Where its files of rules cannot be used.
    pub(super) fn enter(
        &self,
        above: &InForce,
        directory: &dyn Directory,
        path: Option<&TreePath>,
    ) -> io::Result<InForce> {
        if !self.is_local() {
            return Ok(InForce::default());
        }
        let files = self.rules.per_directory().iter();
        let files = files.map(|file| text_of(directory, &file.name));
        let files = files.collect::<io::Result<Vec<_>>>()?;
        let path = path.map_or(&b""[..], TreePath::as_bytes);
        let entered = above.enter(&self.rules, path, &files);
        entered.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Whether a name stays that the source lacks.
    pub(super) fn protects(&self, force: &InForce, path: &TreePath, is_directory: bool) -> bool {
        let decide = |end| force.decide_at(end, &self.rules, path.as_bytes(), is_directory);
        self.end
            .is_some_and(|end| decide(end) == Some(Action::Exclude))
    }
}
