//! Which names of the destination filters protect.

use std::io;

use longhaul_proto::deletion::Deletion;
use longhaul_proto::filter::{Action, End, InForce, PerDirectory, Rules, SelectionError};
use longhaul_proto::manifest::TreePath;
use minicbor::bytes::ByteVec;

use crate::send::select::text_of;
use crate::storage::Directory;

/// The rules, as the receiving end reads them.
#[derive(Default)]
pub(super) struct Protection {
    rules: Rules,
    end: Option<End>,
    /// Directories on other file systems than the anchor stay as they are.
    pub one_file_system: bool,
    /// Nothing is copied: files of rules are those that a copy would bring.
    foresees: bool,
}

impl Protection {
    /// # Errors
    ///
    /// The first rule that is none.
    pub(super) fn new(asked: &Deletion, foresees: bool) -> Result<Protection, SelectionError> {
        Ok(Protection {
            rules: asked.parse()?,
            end: Some(match asked.excluded {
                true => End::ReceivingOnly,
                false => End::Receiving,
            }),
            one_file_system: asked.one_file_system,
            foresees,
        })
    }

    /// Whether what holds depends on the directory.
    pub(super) fn is_local(&self) -> bool {
        !self.rules.per_directory().is_empty()
    }

    /// What holds in a directory, which has this path, in one where `above` holds. Of one that the
    /// source has, `told` are its files of rules there.
    ///
    /// # Errors
    ///
    /// Where its files of rules cannot be used.
    pub(super) fn enter(
        &self,
        above: &InForce,
        (directory, told): (&dyn Directory, &[Option<ByteVec>]),
        path: Option<&TreePath>,
    ) -> io::Result<InForce> {
        if !self.is_local() {
            return Ok(InForce::default());
        }
        let files = self.rules.per_directory().iter().enumerate();
        let files = files.map(|(number, file)| {
            let told = told.get(number).and_then(Option::as_ref);
            self.text(directory, file, told.map(|text| &***text))
        });
        let files = files.collect::<io::Result<Vec<_>>>()?;
        let path = path.map_or(&b""[..], TreePath::as_bytes);
        let entered = above.enter(&self.rules, path, &files);
        entered.map_err(|error| io::Error::other(error.to_string()))
    }

    /// The rules of a file as they are there after the copy. Of one that is not copied, those of
    /// the source hold before what is there.
    fn text(
        &self,
        directory: &dyn Directory,
        file: &PerDirectory,
        told: Option<&[u8]>,
    ) -> io::Result<Option<Vec<u8>>> {
        match told {
            Some(told) if file.excludes_itself => {
                let there = text_of(directory, &file.name)?;
                let all = there.map(|there| [told, b"\n", &there].concat());
                Ok(Some(all.unwrap_or_else(|| told.to_vec())))
            }
            Some(told) if self.foresees => Ok(Some(told.to_vec())),
            _ => text_of(directory, &file.name),
        }
    }

    /// Whether a name stays that the source lacks.
    pub(super) fn protects(&self, force: &InForce, path: &TreePath, is_directory: bool) -> bool {
        let decide = |end| force.decide_at(end, &self.rules, path.as_bytes(), is_directory);
        self.end
            .is_some_and(|end| decide(end) == Some(Action::Exclude))
    }
}
