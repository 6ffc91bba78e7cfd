//! Proves that a name that an entry of another kind replaces at once does not belong to the source.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::failure::failure_of;
use longhaul_system::queue::lock;

use super::super::Remover;
use super::super::apart::{For, MOST_TOPS};
use super::super::folders::Folder;

/// Answers of the other end.
#[derive(Default)]
pub(super) struct Proofs(Mutex<BTreeMap<Scope, Result<(), Failure>>>);

/// Directories that one proof covers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// The anchor alone.
    Anchor,
    /// The anchor and all directories of its file system beneath it.
    AnchorMount,
    /// A directory directly in the anchor, and all directories beneath it.
    Top(TreePath),
}

impl Scope {
    fn purpose(&self) -> For {
        match self {
            Scope::Anchor => For::ReplacementIn,
            Scope::AnchorMount => For::ReplacementOnMount,
            Scope::Top(_) => For::Replacement,
        }
    }

    fn path(&self) -> Option<&TreePath> {
        match self {
            Scope::Anchor | Scope::AnchorMount => None,
            Scope::Top(top) => Some(top),
        }
    }
}

impl Remover<'_> {
    /// Returns a failure unless the directory with the name `at` is not a source's directory.
    ///
    /// The proof for the anchor holds for all directories of its file system. If the anchor
    /// contains the source, or a directory is mounted beneath it, each directory directly in the
    /// anchor needs a separate proof. The other end searches all its sources for each proof, so
    /// their number is limited.
    ///
    /// # Errors
    ///
    /// Returns the reason why the directory may be the source's.
    pub(in crate::recv) fn ensure_replaceable(
        &self,
        folder: &Folder,
        at: &TreePath,
    ) -> Result<(), Failure> {
        let ensure = || {
            // Other threads that need a proof wait for this one.
            let mut proofs = lock(&self.side.replacements.proofs.0);
            let top = at.names().next().filter(|_| at.parent().is_some());
            let Some(top) = top.and_then(|name| TreePath::new(name).ok()) else {
                return self.proof_of(&mut proofs, Scope::Anchor);
            };
            let anchor = self.proof_of(&mut proofs, Scope::AnchorMount);
            let mount = folder.directory().mount();
            let is_in_anchor =
                mount.is_some() && mount == self.side.folders.anchor().directory().mount();
            if anchor.is_ok() && is_in_anchor {
                return Ok(());
            }
            self.proof_of(&mut proofs, Scope::Top(top))
        };
        ensure().map_err(|failure| Failure::new(failure.kind, format!("{at}: {}", failure.text)))
    }

    /// Returns the proof for a scope. It asks the other end at most once for each scope.
    fn proof_of(
        &self,
        proofs: &mut BTreeMap<Scope, Result<(), Failure>>,
        scope: Scope,
    ) -> Result<(), Failure> {
        if let Some(known) = proofs.get(&scope) {
            return known.clone();
        }
        if proofs.len() >= MOST_TOPS {
            let text = format!(
                "entries are replaced by other kinds of files in at most {MOST_TOPS} directories \
                 of a copy: run it again"
            );
            return Err(Failure::new(FailureKind::Other, text));
        }
        let path = scope.path();
        let found = match self.side.folders.find_in_copy(path) {
            Ok(folder) => self.ensure_apart(&[Arc::clone(folder.directory())], scope.purpose()),
            Err(error) => {
                let shown = path.map_or(".".to_owned(), TreePath::to_string);
                Err(failure_of("look into the directory", &shown, &error))
            }
        };
        proofs.entry(scope).or_insert(found).clone()
    }
}
