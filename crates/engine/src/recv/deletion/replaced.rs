//! Plans the deletion of directories that entries of another kind replace.

use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};

use super::super::Receiving;
use super::plan::{Look, Merge, Plan};

impl Plan {
    /// Handles named sources that are not directories: their names are in the anchor, which is not
    /// compared.
    pub(super) fn replace_in_anchor(&mut self, receiving: &Receiving<'_>) {
        if self.compares_anchor {
            return;
        }
        for path in receiving.side.replacements.in_anchor() {
            self.note_top(Some(&path));
            if let Some(mut merge) = self.open(receiving, None, &[]) {
                self.judge_replaced(receiving, &mut merge, path.name());
            }
        }
    }

    /// Plans the deletion of a directory's content if the source's entry of this name replaces it.
    pub(super) fn judge_replaced(
        &mut self,
        receiving: &Receiving<'_>,
        merge: &mut Merge,
        name: &[u8],
    ) {
        let path = TreePath::beneath(merge.place.path.as_ref(), name);
        let Ok(path) = path else { return };
        if !receiving.side.replacements.awaits(&path) {
            return;
        }
        let group = self.group_of(merge);
        let before = self.count;
        match self.look(receiving, &merge.place, name) {
            Look::Directory(path, status) => {
                self.expand(receiving, group, (path, status), (&merge.place, true));
            }
            Look::Stays(path, failure) => receiving.side.replacements.fail(&path, failure),
            Look::Kept => {
                let text =
                    format!("{path}: there is a directory of that name, and filters protect it");
                let failure = Failure::new(FailureKind::Conflict, text);
                receiving.side.replacements.fail(&path, failure);
            }
            Look::Gone | Look::File(..) => {
                let text = format!("{path}: is something else by now: run it again");
                let failure = Failure::new(FailureKind::Changing, text);
                receiving.side.replacements.fail(&path, failure);
            }
        }
        merge.count += self.count - before;
    }
}

/// Returns the failure for an empty source: perhaps a file system is not mounted there.
pub(super) fn empty_source(path: Option<&TreePath>) -> Failure {
    let name = path.map_or(String::new(), |path| format!(" {path}"));
    let text = format!(
        "the source directory{name} is empty, so nothing was deleted at the destination: if that \
         is meant, remove what is there yourself"
    );
    Failure::new(FailureKind::Other, text)
}
