//! Opens the small files of a pack, which mostly lie in one directory.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::{Entry, EntryId, TreePath};
use longhaul_storage::{DataMode, Directory, StoredFile};

use super::SendSide;
use super::source::{Located, Sources};

/// The directory of the last file, which usually contains the next one too.
#[derive(Default)]
pub(super) struct Parents {
    last: Option<(EntryId, Option<TreePath>, Arc<dyn Directory>)>,
}

impl Parents {
    pub fn open(&mut self, side: &SendSide, entry: &Entry) -> io::Result<Arc<dyn StoredFile>> {
        if let Some(output) = side.outputs.get(entry.id) {
            return Ok(output);
        }
        let (parent, name) = self.parent_of(&side.sources, entry)?;
        side.opens
            .time(|| parent.open_file(&name, DataMode::Buffered))
    }

    pub fn open_whole(
        &mut self,
        side: &SendSide,
        entry: &Entry,
    ) -> io::Result<Arc<dyn StoredFile>> {
        let (parent, name) = self.parent_of(&side.sources, entry)?;
        parent.open_whole(&name)
    }

    pub fn parent_of(&mut self, sources: &Sources, entry: &Entry) -> io::Result<Located> {
        if let (Some((id, path, directory)), Some(parent)) = (&self.last, entry.parent)
            && *id == parent
            && *path == entry.path.parent()
        {
            return Ok((Arc::clone(directory), entry.path.name().into()));
        }
        let (directory, name) = sources.open_parent(entry.id, &entry.path)?;
        if let Some(parent) = entry.parent {
            self.last = Some((parent, entry.path.parent(), Arc::clone(&directory)));
        }
        Ok((directory, name))
    }
}
