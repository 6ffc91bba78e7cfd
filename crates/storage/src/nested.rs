//! The nested directories of a walk. Only the deepest are kept open. Otherwise the limit of open
//! files would limit the depth of a tree.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;
use longhaul_system::descriptors;
use rustix::io::Errno;

use super::Directory;
use super::beneath::open_beneath;

/// Divisor of the permitted open files for one walk, and the minimum and maximum number of
/// directories kept open.
const OPEN_PART: usize = 16;
const LEAST_OPEN: usize = 2;
const MOST_OPEN: usize = 1024;

/// The directories, from the top down.
pub struct Nested {
    levels: Vec<Level>,
    most: usize,
}

struct Level {
    name: Box<[u8]>,
    /// The open directory; `None` if it was closed and must be opened again.
    directory: Option<Arc<dyn Directory>>,
    /// Device and inode of a closed directory.
    place: Option<(u64, u64)>,
}

impl Default for Nested {
    fn default() -> Nested {
        Nested::keeping(descriptors::share(OPEN_PART, MOST_OPEN).max(LEAST_OPEN))
    }
}

impl Nested {
    /// Keeps this many directories open below the top.
    fn keeping(most: usize) -> Nested {
        Nested {
            levels: Vec::new(),
            most,
        }
    }

    /// Adds a directory that the walk enters. `name` is its name in the previous one.
    pub fn push(&mut self, directory: Arc<dyn Directory>, name: &[u8]) {
        self.levels.push(Level {
            name: name.into(),
            directory: Some(directory),
            place: None,
        });
        // The top stays open, because the others are opened again beneath it.
        let above = self.levels.len().checked_sub(self.most + 1);
        if let Some(level) = above
            .filter(|at| *at > 0)
            .and_then(|at| self.levels.get_mut(at))
        {
            level.close();
        }
    }

    /// Removes the last directory, which the walk leaves.
    pub fn pop(&mut self) {
        self.levels.pop();
    }

    /// Returns the last directory.
    ///
    /// # Errors
    ///
    /// If it was closed, the errors of `open`; `NotFound` if another directory has its name now.
    pub fn last(&mut self) -> io::Result<Arc<dyn Directory>> {
        let last = self.levels.last().ok_or(io::ErrorKind::NotFound)?;
        if let Some(directory) = &last.directory {
            return Ok(Arc::clone(directory));
        }
        let directory = self.find_again()?;
        let last = self.levels.last_mut().ok_or(io::ErrorKind::NotFound)?;
        if last.place != Some(place_of(&*directory)?) {
            return Err(Errno::NOENT.into());
        }
        last.directory = Some(Arc::clone(&directory));
        Ok(directory)
    }

    fn find_again(&self) -> io::Result<Arc<dyn Directory>> {
        let (top, below) = self.levels.split_first().ok_or(io::ErrorKind::NotFound)?;
        let top = top.directory.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let names: Vec<&[u8]> = below.iter().map(|level| &*level.name).collect();
        let path = TreePath::new(&names.join(&b'/')).map_err(io::Error::other)?;
        open_beneath(&**top, &path)
    }

    /// True if one of the directories has this device and inode.
    ///
    /// # Errors
    ///
    /// The errors of `fstat`.
    pub fn contains(&self, place: (u64, u64)) -> io::Result<bool> {
        for level in &self.levels {
            let known = match (&level.place, &level.directory) {
                (Some(known), _) => *known,
                (None, Some(directory)) => place_of(&**directory)?,
                (None, None) => continue,
            };
            if known == place {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Level {
    fn close(&mut self) {
        // A directory stays open if it cannot be identified again.
        if let Some(Ok(place)) = self.directory.as_deref().map(place_of) {
            self.place = Some(place);
            self.directory = None;
        }
    }
}

/// Returns device and inode of a directory, which identify it independently of its path.
pub fn place_of(directory: &dyn Directory) -> io::Result<(u64, u64)> {
    let status = directory.status()?;
    Ok((status.device, status.inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::PosixDirectory;

    fn deep(depth: usize) -> (tempfile::TempDir, Nested) {
        let place = tempfile::tempdir().unwrap();
        let mut nested = Nested::keeping(2);
        let mut directory = PosixDirectory::open_root(place.path()).unwrap();
        nested.push(Arc::clone(&directory), b"");
        for level in 0..depth {
            let name = level.to_string();
            directory.make_directory(name.as_bytes(), 0o755).unwrap();
            directory = directory.open_directory(name.as_bytes()).unwrap();
            nested.push(Arc::clone(&directory), name.as_bytes());
        }
        (place, nested)
    }

    #[test]
    fn closed_directories_are_opened_again() {
        let (_place, mut nested) = deep(9);
        let open = nested.levels.iter().filter(|l| l.directory.is_some());
        assert_eq!(open.count(), 3, "the top and the lowest two");
        for level in (0..10).rev() {
            let directory = nested.last().unwrap();
            let below = level.to_string();
            assert_eq!(directory.status_of(below.as_bytes()).is_ok(), level < 9);
            assert!(nested.contains(place_of(&*directory).unwrap()).unwrap());
            nested.pop();
            assert!(!nested.contains(place_of(&*directory).unwrap()).unwrap());
        }
    }

    #[test]
    fn a_directory_that_replaced_another_one_is_not_accepted() {
        let (place, mut nested) = deep(5);
        std::fs::rename(place.path().join("0/1"), place.path().join("old")).unwrap();
        std::fs::create_dir(place.path().join("0/1")).unwrap();
        (0..3).for_each(|_| nested.pop());
        let error = nested.last().err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
