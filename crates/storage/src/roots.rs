//! Opens the paths that users name, either without limits or confined beneath a principal's root.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;

use super::Directory;
use super::beneath::{FILLING_MODE, make_beneath, open_beneath};
use super::following::{FollowingDirectory, Reach};
use super::posix::PosixDirectory;
use longhaul_system::refusals::or_without;

/// Opens the directories that users name.
pub trait OpenRoot: Send + Sync {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// The errors of `open`.
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>>;

    /// Opens a directory in which links are followed. Links in its path are followed too.
    ///
    /// # Errors
    ///
    /// The errors of `open`, or a [`LinkError`](super::following::LinkError).
    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>>;

    /// Creates a directory with its parents, and opens it. A new one has [`FILLING_MODE`] until its
    /// content is complete.
    ///
    /// # Errors
    ///
    /// The errors of `mkdir`.
    fn make_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>>;
}

/// Opens any path of this host and follows links in it.
#[derive(Clone, Copy, Debug)]
pub struct Anywhere;

impl OpenRoot for Anywhere {
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        PosixDirectory::open_root(path)
    }

    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let inner = self.open_root(path)?;
        let path = std::path::absolute(path)?.into_os_string();
        let path = path.into_encoded_bytes();
        let following = FollowingDirectory::new(inner, Reach::Anywhere, path);
        Ok(Arc::new(following))
    }

    fn make_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        // The names of the directory and of its parents must be durable before its content can be.
        let above = path.ancestors().skip(1);
        let missing: Vec<&Path> = above.take_while(|above| !above.exists()).collect();
        let kept = missing.last().map_or(path.parent(), |first| first.parent());
        if let Some(above) = missing.first() {
            std::fs::create_dir_all(above)?;
        }
        let made = std::fs::DirBuilder::new().mode(FILLING_MODE).create(path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // Another process may have created it. A file of another kind cannot be opened below.
            _ => {}
        }
        for changed in missing.into_iter().chain(kept) {
            let changed = if changed.as_os_str().is_empty() {
                Path::new(".")
            } else {
                changed
            };
            let synced = std::fs::File::open(changed).and_then(|above| above.sync_all());
            // A sync of the new directory is refused in the same way, which is reported then.
            or_without(synced)?;
        }
        PosixDirectory::open_root(path)
    }
}

/// Opens paths beneath a root. Links below it are not followed.
pub struct Confined(pub Arc<dyn Directory>);

impl Confined {
    /// Returns the checked path; `None` for the root itself.
    fn prove(path: &Path) -> io::Result<Option<TreePath>> {
        let bytes = path.as_os_str().as_bytes();
        let start = bytes
            .iter()
            .position(|&byte| byte != b'/')
            .unwrap_or(bytes.len());
        let end = bytes
            .iter()
            .rposition(|&byte| byte != b'/')
            .map_or(0, |last| last + 1);
        match bytes.get(start..end) {
            None | Some(b"" | b".") => Ok(None),
            Some(path) => TreePath::new(path)
                .map(Some)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error)),
        }
    }
}

impl OpenRoot for Confined {
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        match Confined::prove(path)? {
            None => Ok(Arc::clone(&self.0)),
            Some(path) => open_beneath(&*self.0, &path),
        }
    }

    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let reach = Reach::Beneath(Arc::clone(&self.0));
        let root = FollowingDirectory::new(Arc::clone(&self.0), reach, Vec::new());
        let root: Arc<dyn Directory> = Arc::new(root);
        let Some(path) = Confined::prove(path)? else {
            return Ok(root);
        };
        path.names()
            .try_fold(root, |directory, name| directory.open_directory(name))
    }

    fn make_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        match Confined::prove(path)? {
            None => Ok(Arc::clone(&self.0)),
            Some(path) => make_beneath(&self.0, &path),
        }
    }
}

/// Splits a path into its directory (`.` if it has no slash) and its last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b".", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_confined_path_cannot_leave_its_root() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("inside")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        let confined = Confined(PosixDirectory::open_root(root.path()).unwrap());
        for path in ["", ".", "/", "inside", "/inside/"] {
            assert!(confined.open_root(Path::new(path)).is_ok(), "{path}");
        }
        for path in ["..", "inside/..", "link", "link/x", "inside/../.."] {
            assert!(confined.open_root(Path::new(path)).is_err(), "{path}");
            assert!(confined.make_root(Path::new(path)).is_err(), "{path}");
        }
        assert!(confined.make_root(Path::new("a/b")).is_ok());
        assert!(root.path().join("a/b").is_dir());
        assert!(
            confined
                .open_root(Path::new(OsStr::from_bytes(b"a\0b")))
                .is_err()
        );
    }

    #[test]
    fn paths_are_split_like_dirname_and_basename() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"/c"), (&b"/"[..], &b"c"[..]));
        assert_eq!(split(b"c"), (&b"."[..], &b"c"[..]));
    }
}
