//! A source directory in which links are replaced by their targets (`--copy-links`), with a limit
//! on the targets.
//!
//! Each link is resolved name by name, from handles that were opened without following links. A
//! race can therefore not lead outside the limit.

use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;

use super::attributes::Inode;
use super::beneath::open_beneath;
use super::posix::PosixDirectory;
use super::refusing::refuse_changes;
use super::{DataMode, Directory, FileKind, NameList, Status, StoredFile};

/// Maximum number of links in one path, as in Linux (`MAXSYMLINKS`).
const MAXIMUM_LINKS: usize = 40;

/// Reasons why a link is not followed; contained in an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The target does not exist.
    #[error("the link leads to {0}, where nothing is")]
    Dangling(String),
    /// The target is outside the permitted tree.
    #[error("the link leads to {0}, outside of what the daemon serves")]
    Outside(String),
    /// The link leads to itself through other links.
    #[error("the link leads through more than {MAXIMUM_LINKS} others")]
    Endless,
    /// The target is a directory that contains the link.
    #[error("the link leads to a directory that it lies in")]
    Cycle,
}

impl From<LinkError> for io::Error {
    fn from(error: LinkError) -> io::Error {
        io::Error::other(error)
    }
}

impl LinkError {
    /// Returns the `LinkError` inside an error.
    pub fn within(error: &io::Error) -> Option<&LinkError> {
        error.get_ref()?.downcast_ref()
    }
}

/// Limit on the targets of links.
#[derive(Clone)]
pub enum Reach {
    /// Any path that the user may read.
    Anywhere,
    /// Paths beneath this root. An absolute target is outside.
    Beneath(Arc<dyn Directory>),
}

/// A directory whose links are followed.
pub struct FollowingDirectory {
    inner: Arc<dyn Directory>,
    reach: Reach,
    /// Path of the directory: absolute, or beneath the root of `reach` (empty for the root). A path
    /// beneath the root contains no links.
    path: Vec<u8>,
}

/// Target of a name after links were followed.
enum Resolved {
    Directory(FollowingDirectory),
    Other(Arc<dyn Directory>, Box<[u8]>),
}

impl FollowingDirectory {
    /// Wraps a directory that was opened at `path`: an absolute path, or one beneath the root of
    /// `reach` that contains no links.
    pub fn new(inner: Arc<dyn Directory>, reach: Reach, path: Vec<u8>) -> FollowingDirectory {
        FollowingDirectory { inner, reach, path }
    }

    fn is_link(&self, name: &[u8]) -> bool {
        let status = self.inner.status_of(name);
        status.is_ok_and(|status| status.kind == FileKind::Symlink)
    }

    fn below(&self, inner: Arc<dyn Directory>, name: &[u8]) -> FollowingDirectory {
        FollowingDirectory {
            inner,
            reach: self.reach.clone(),
            path: join(&self.path, name),
        }
    }

    /// Resolves a link.
    fn resolve(&self, name: &[u8]) -> io::Result<Resolved> {
        let resolved = match &self.reach {
            Reach::Anywhere => self.resolve_anywhere(name),
            Reach::Beneath(root) => self.resolve_beneath(root, name),
        };
        resolved.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LinkError::Dangling(self.shown_target(name)).into(),
            _ if error.raw_os_error() == Some(libc::ELOOP) => LinkError::Endless.into(),
            _ => error,
        })
    }

    fn shown_target(&self, name: &[u8]) -> String {
        let target = self.inner.read_symlink(name).unwrap_or_default();
        String::from_utf8_lossy(&target).into_owned()
    }

    /// Resolves a link with the kernel's rules, without a limit.
    fn resolve_anywhere(&self, name: &[u8]) -> io::Result<Resolved> {
        let whole = join(&self.path, name);
        let real = std::fs::canonicalize(Path::new(OsStr::from_bytes(&whole)))?;
        if real.is_dir() {
            let inner = PosixDirectory::open_root(&real)?;
            let path = real.into_os_string().into_encoded_bytes();
            let reach = Reach::Anywhere;
            return Ok(Resolved::Directory(FollowingDirectory {
                inner,
                reach,
                path,
            }));
        }
        let name = real.file_name().ok_or(io::ErrorKind::NotFound)?;
        let parent = real.parent().ok_or(io::ErrorKind::NotFound)?;
        // The user may lack permission to list this directory.
        let parent = PosixDirectory::open_unlisted(parent)?;
        Ok(Resolved::Other(parent, name.as_bytes().into()))
    }

    fn resolve_beneath(&self, root: &Arc<dyn Directory>, link: &[u8]) -> io::Result<Resolved> {
        let mut here = FollowingDirectory::new(
            Arc::clone(&self.inner),
            self.reach.clone(),
            self.path.clone(),
        );
        // Names that remain to be resolved, in reverse order.
        let mut names: Vec<Box<[u8]>> = vec![link.into()];
        let mut links = 0;
        while let Some(name) = names.pop() {
            match &*name {
                b"" | b"." => continue,
                b".." => {
                    here = here.parent(root, || LinkError::Outside(self.shown_target(link)))?;
                    continue;
                }
                _ => {}
            }
            match here.inner.status_of(&name)?.kind {
                FileKind::Symlink => {
                    links += 1;
                    let target = here.inner.read_symlink(&name)?;
                    if links > MAXIMUM_LINKS {
                        return Err(LinkError::Endless.into());
                    }
                    if target.starts_with(b"/") {
                        let shown = String::from_utf8_lossy(&target).into_owned();
                        return Err(LinkError::Outside(shown).into());
                    }
                    let parts = target.split(|&byte| byte == b'/').rev();
                    names.extend(parts.map(Box::from));
                }
                FileKind::Directory => here = here.below(here.inner.open_directory(&name)?, &name),
                _ if names.is_empty() => return Ok(Resolved::Other(here.inner, name)),
                _ => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        Ok(Resolved::Directory(here))
    }

    /// Opens the parent directory from the root again, because the kernel's `..` may lead outside
    /// the root if the directory was moved.
    fn parent(
        &self,
        root: &Arc<dyn Directory>,
        outside: impl FnOnce() -> LinkError,
    ) -> io::Result<FollowingDirectory> {
        if self.path.is_empty() {
            return Err(outside().into());
        }
        let end = self.path.iter().rposition(|&byte| byte == b'/');
        let path = &self.path[..end.unwrap_or(0)];
        let inner = match path {
            b"" => Arc::clone(root),
            _ => {
                let path = TreePath::new(path).map_err(io::Error::other)?;
                open_beneath(&**root, &path)?
            }
        };
        let path = path.to_vec();
        let reach = self.reach.clone();
        Ok(FollowingDirectory { inner, reach, path })
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path {
        b"" => name.to_vec(),
        _ if path.ends_with(b"/") => [path, name].concat(),
        _ => [path, b"/", name].concat(),
    }
}

impl Directory for FollowingDirectory {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        match self.inner.open_directory(name) {
            Ok(inner) => Ok(Arc::new(self.below(inner, name))),
            Err(_) if self.is_link(name) => match self.resolve(name)? {
                Resolved::Directory(directory) => Ok(Arc::new(directory)),
                Resolved::Other(..) => Err(io::ErrorKind::NotADirectory.into()),
            },
            Err(error) => Err(error),
        }
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        match self.inner.open_file(name, mode) {
            Err(_) if self.is_link(name) => match self.resolve(name)? {
                Resolved::Other(parent, name) => parent.open_file(&name, mode),
                Resolved::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
            },
            other => other,
        }
    }

    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        self.inner.inode()
    }

    /// Returns the inode of an entry; `None` for a link, whose target is not examined here.
    fn inode_of(&self, name: &[u8]) -> Option<Box<dyn Inode + '_>> {
        if self.is_link(name) {
            None
        } else {
            self.inner.inode_of(name)
        }
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        let status = self.inner.status_of(name)?;
        if status.kind != FileKind::Symlink {
            return Ok(status);
        }
        match self.resolve(name)? {
            Resolved::Directory(directory) => directory.inner.status(),
            Resolved::Other(parent, name) => parent.status_of(&name),
        }
    }

    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        let status = self.inner.content_status_of(name)?;
        if status.kind != FileKind::Symlink {
            return Ok(status);
        }
        match self.resolve(name)? {
            Resolved::Directory(directory) => directory.inner.status(),
            Resolved::Other(parent, name) => parent.content_status_of(&name),
        }
    }

    fn open_whole(&self, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
        match self.inner.open_whole(name) {
            Err(_) if self.is_link(name) => match self.resolve(name)? {
                Resolved::Other(parent, name) => parent.open_whole(&name),
                Resolved::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
            },
            other => other,
        }
    }

    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        self.inner.list()
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        self.inner.read_symlink(name)
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn uuid(&self) -> Option<super::origin::Uuid> {
        self.inner.uuid()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    refuse_changes!(io::ErrorKind::ReadOnlyFilesystem);
}

#[cfg(test)]
mod tests;
