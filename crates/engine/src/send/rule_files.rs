//! Reads the per-directory rule files of a source, and the rule files that they name.

use std::io;

use longhaul_proto::filter::{Gathered, MAXIMUM_FILE_BYTES, PerDirectory, merged_path};
use longhaul_proto::manifest::TreePath;
use longhaul_storage::beneath::open_beneath;
use longhaul_storage::following::LinkError;
use longhaul_storage::{DataMode, Directory, FileKind};

use super::select::PlaceError;
use super::source::{Source, What};

/// Returns the rules of a per-directory file of a source, and of the files that it names; `None` if
/// the directory at this path of the copy has no such file.
pub(super) fn rules_at(
    (source, path): (&Source, Option<&TreePath>),
    directory: &dyn Directory,
    file: &PerDirectory,
) -> Result<Option<Vec<u8>>, PlaceError> {
    let text = text_at((source, path), directory, &file.name).map_err(PlaceError::Io)?;
    let Some(text) = text else {
        return Ok(None);
    };
    let mut read = |name: &[u8]| {
        let path = merged_path(path, name).ok_or_else(leads_out)?;
        merged_at(source, &path)
    };
    let gathered = Gathered::per_directory(file, text, &mut read);
    gathered
        .map(Some)
        .map_err(|error| PlaceError::Merged(error.to_string()))
}

/// Reads a file at a path of the copy. It must be within the source.
fn merged_at(source: &Source, path: &TreePath) -> io::Result<Vec<u8>> {
    let above = path.parent();
    let inner = match &above {
        Some(above) => source.inner_path(above).ok_or_else(leads_out)?,
        None if source.what == What::Contents => None,
        None => return Err(leads_out()),
    };
    let mut directory = source.directory.open()?;
    if let Some(inner) = inner {
        directory = open_beneath(&*directory, &inner)?;
    }
    let text = text_at((source, above.as_ref()), &*directory, path.name())?;
    text.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the rules of a per-directory file in the destination's directory at this path, and of
/// the files that it names; `None` if there is no such file.
pub(crate) fn rules_of(
    (anchor, path): (&dyn Directory, Option<&TreePath>),
    directory: &dyn Directory,
    file: &PerDirectory,
) -> io::Result<Option<Vec<u8>>> {
    let Some(text) = text_of(directory, &file.name)? else {
        return Ok(None);
    };
    let mut read = |name: &[u8]| {
        let path = merged_path(path, name).ok_or_else(leads_out)?;
        let text = match path.parent() {
            Some(above) => text_of(&*open_beneath(anchor, &above)?, path.name()),
            None => text_of(anchor, path.name()),
        };
        text?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let gathered = Gathered::per_directory(file, text, &mut read);
    gathered
        .map(Some)
        .map_err(|error| io::Error::other(error.to_string()))
}

fn leads_out() -> io::Error {
    io::Error::other("it is not in the tree that is copied: write ./ and a path in that tree")
}

/// Reads a per-directory file of a source. A link is followed as far as this end may read.
fn text_at(
    (source, path): (&Source, Option<&TreePath>),
    directory: &dyn Directory,
    name: &[u8],
) -> io::Result<Option<Vec<u8>>> {
    let text = text_of(directory, name);
    if text.is_ok() || !is_link(directory, name) {
        return text;
    }
    match source.open_following(path)? {
        Some(following) => text_of(&*following, name),
        None => text,
    }
}

/// True if a name is a link.
pub(crate) fn is_link(directory: &dyn Directory, name: &[u8]) -> bool {
    let status = directory.status_of(name);
    status.is_ok_and(|status| status.kind == FileKind::Symlink)
}

/// Reads a per-directory file, up to one byte more than its maximum size; `None` if there is no
/// such file.
fn text_of(directory: &dyn Directory, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    // No file can have this name.
    if TreePath::new(name).is_err() {
        return Ok(None);
    }
    let file = match directory.open_file(name, DataMode::Buffered) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A directory, device, socket or FIFO.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        // A followed link to a directory, or a dangling one.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(None),
        Err(error) if matches!(LinkError::within(&error), Some(LinkError::Dangling(_))) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let (mut text, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    while text.len() <= MAXIMUM_FILE_BYTES {
        match file.read_at(&mut buffer, text.len() as u64)? {
            0 => break,
            read => text.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(Some(text))
}
