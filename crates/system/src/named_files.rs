//! Opens files that are not data of a copy, by names that another user may have prepared.
//!
//! - [`kept`], [`kept_directory`]: files that longhaul itself keeps, such as its history. Each must
//!   be a regular file. A FIFO in its place would block the process for ever.
//! - [`to_read`], [`to_write`], [`to_change`]: files that the command line names, such as
//!   `--exclude-from` and `--log-file`. They may lie in a directory in which others can create
//!   links. The kernel's `fs.protected_symlinks` protects such directories only if they are sticky.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, fstat, fstatfs,
    openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

/// Maximum number of links in one path, the same as the kernel's limit.
const MOST_LINKS: usize = 40;

/// Maximum number of lookups of an entry that changes between lookup and opening.
const TRIES: usize = 16;

/// Opens a file that longhaul keeps. Any other kind than a regular file is an error.
///
/// # Errors
///
/// The errors of the system, and a file that is not regular.
pub fn kept(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Special files such as `/dev/fd/63` and `/dev/null`, which a user names on purpose.
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return options.open(path);
    }
    // Checked before opening, because opening a device can have side effects.
    match path.metadata() {
        Ok(found) if found.is_file() => {}
        Ok(found) => return Err(not_regular(found.file_type())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The file may have been replaced since. `NONBLOCK` prevents blocking, and the kind is checked
    // again.
    let file = options
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    if found.is_file() {
        Ok(file)
    } else {
        Err(not_regular(found.file_type()))
    }
}

/// Opens a file that longhaul keeps, for reading.
///
/// # Errors
///
/// The errors of [`kept`].
pub fn kept_to_read(path: &Path) -> io::Result<File> {
    kept(OpenOptions::new().read(true), path)
}

/// Opens a directory. Any other kind of file is an error.
///
/// # Errors
///
/// The errors of the system.
pub fn kept_directory(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn not_regular(kind: std::fs::FileType) -> io::Error {
    let kind = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let text = format!("it is {kind} instead of a regular file: move it away");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Opens a file that the command line names, for reading. A link in the path is followed if it
/// belongs to this user, to root, or to the owner of the directory that contains it.
///
/// # Errors
///
/// The errors of the system, and a link of another user.
pub fn to_read(path: &Path) -> io::Result<File> {
    Walk::new(OFlags::RDONLY, path).open(path)
}

/// Treatment of the existing content of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// The content stays, and new data is appended.
    Stays,
    /// The content is removed.
    Goes,
}

/// Opens a file that the command line names, for writing. A missing file is created. A link in the
/// path is followed only if it belongs to this user or root. In a directory that all users may
/// write, another user's file is rejected.
///
/// # Errors
///
/// The errors of the system, and a link or file of another user.
pub fn to_write(path: &Path, older: Older) -> io::Result<File> {
    let appends = match older {
        Older::Stays => OFlags::APPEND,
        Older::Goes => OFlags::empty(),
    };
    let file = Walk::new(OFlags::WRONLY | appends, path).open(path)?;
    if older == Older::Goes && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file that the command line names, for reading and for appending, or for writing
/// `anywhere` in it. Follows links and creates the file as [`to_write`] does.
///
/// # Errors
///
/// The errors of [`to_write`].
pub fn to_change(path: &Path, anywhere: bool) -> io::Result<File> {
    let appends = if anywhere {
        OFlags::empty()
    } else {
        OFlags::APPEND
    };
    Walk::new(OFlags::RDWR | appends, path).open(path)
}

/// A path lookup that follows links one by one and checks each.
struct Walk {
    flags: OFlags,
    /// Names that remain to be looked up, in reverse order.
    names: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn new(flags: OFlags, path: &Path) -> Walk {
        let mut walk = Walk {
            flags: flags | OFlags::CLOEXEC | OFlags::NOCTTY,
            names: Vec::new(),
            links: 0,
        };
        walk.push(path);
        walk
    }

    fn push(&mut self, path: &Path) {
        let names = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
        let first = self.names.len();
        self.names.extend(names);
        self.names[first..].reverse();
    }

    fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    }

    fn open(mut self, path: &Path) -> io::Result<File> {
        let mut directory = start(path)?;
        while let Some(name) = self.names.pop() {
            let is_last = self.names.is_empty();
            for _ in 0..TRIES {
                match self.step(&directory, &name, is_last)? {
                    Step::Into(next) => {
                        directory = next;
                        break;
                    }
                    Step::Along(target) => {
                        if target.is_absolute() {
                            directory = start(&target)?;
                        }
                        self.push(&target);
                        break;
                    }
                    Step::Opened(file) => return Ok(file),
                    Step::Again => {}
                }
            }
        }
        // The path names a directory.
        Err(Errno::ISDIR.into())
    }

    fn step(&mut self, directory: &OwnedFd, name: &OsStr, is_last: bool) -> io::Result<Step> {
        let found = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if is_last && self.writes() => {
                let flags = self.flags | OFlags::CREATE | OFlags::EXCL;
                return match openat(directory, name, flags, Mode::from_raw_mode(0o666)) {
                    Ok(file) => Ok(Step::Opened(file.into())),
                    Err(Errno::EXIST) => Ok(Step::Again),
                    Err(error) => Err(error.into()),
                };
            }
            found => found?,
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => self.link(directory, name, is_last),
            _ if is_last => self.last(directory, name, &found),
            _ => enter(directory, name).map(Step::Into),
        }
    }

    fn link(&mut self, directory: &OwnedFd, name: &OsStr, is_last: bool) -> io::Result<Step> {
        if fstatfs(directory)?.f_type == PROC_SUPER_MAGIC {
            // The target of such a link has no path. It may be a pipe of this process, for example.
            let flags = if is_last {
                self.flags
            } else {
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
            };
            let opened = openat(directory, name, flags, Mode::empty())?;
            return Ok(if is_last {
                Step::Opened(opened.into())
            } else {
                Step::Into(opened)
            });
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = openat(directory, name, flags, Mode::empty())?;
        let found = fstat(&link)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok(Step::Again);
        }
        let owns_directory = || fstat(directory).is_ok_and(|above| above.st_uid == found.st_uid);
        if !is_own(&found) && (self.writes() || !owns_directory()) {
            let text = format!(
                "{:?} is a link of another user (number {}): name the file that is meant",
                name, found.st_uid
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let target = readlinkat(&link, "", Vec::new())?.into_bytes();
        Ok(Step::Along(PathBuf::from(OsString::from_vec(target))))
    }

    /// Opens the last entry of the path.
    fn last(&self, directory: &OwnedFd, name: &OsStr, found: &Stat) -> io::Result<Step> {
        if self.writes() && !is_own(found) {
            let above = fstat(directory)?;
            let anybody_writes = Mode::from_raw_mode(above.st_mode).contains(Mode::WOTH);
            if anybody_writes && above.st_uid != found.st_uid {
                let text = format!(
                    "it belongs to another user (number {}), in a directory that everybody may \
                     write: name another file",
                    found.st_uid
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
        }
        let opened = match openat(
            directory,
            name,
            self.flags | OFlags::NOFOLLOW,
            Mode::empty(),
        ) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(Step::Again),
            opened => opened?,
        };
        let now = fstat(&opened)?;
        // The name may belong to another file by now.
        if (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino) {
            Ok(Step::Opened(opened.into()))
        } else {
            Ok(Step::Again)
        }
    }
}

enum Step {
    /// A directory in which the lookup continues.
    Into(OwnedFd),
    /// Target of a link that may be followed.
    Along(PathBuf),
    /// The file at the end of the path.
    Opened(File),
    /// The entry has changed; look it up again.
    Again,
}

fn is_own(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == rustix::process::geteuid().as_raw()
}

/// Opens the directory in which the lookup of a path begins.
fn start(path: &Path) -> io::Result<OwnedFd> {
    let place = if path.is_absolute() { "/" } else { "." };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, place, flags, Mode::empty())?)
}

/// Opens a directory, and fails for a symbolic link.
fn enter(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The trailing dot makes the kernel mount an automount point.
    let inside = [name.as_bytes(), b"/."].concat();
    let links = ResolveFlags::NO_SYMLINKS;
    match openat2(directory, inside, flags, Mode::empty(), links) {
        // Linux before 5.6, or a filter of system calls, does not allow `openat2`.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = flags | OFlags::NOFOLLOW;
            Ok(openat(directory, name, flags, Mode::empty())?)
        }
        entered => Ok(entered?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    fn text_of(file: io::Result<File>) -> io::Result<String> {
        let mut text = String::new();
        file?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn own_links_are_followed_on_the_whole_way() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/f"), "text").unwrap();
        symlink("a/../a/b", path("down")).unwrap();
        symlink(path("down/f"), path("link")).unwrap();
        symlink("link", path("further")).unwrap();
        assert_eq!(text_of(to_read(&path("further"))).unwrap(), "text");
        assert_eq!(text_of(to_read(&path("./down/../b/f"))).unwrap(), "text");
        to_write(&path("further"), Older::Stays)
            .unwrap()
            .write_all(b"+")
            .unwrap();
        assert_eq!(fs::read_to_string(path("a/b/f")).unwrap(), "text+");
        to_write(&path("down/f"), Older::Goes)
            .unwrap()
            .write_all(b"new")
            .unwrap();
        assert_eq!(fs::read_to_string(path("a/b/f")).unwrap(), "new");
        // Writing through a link to a missing file creates the file.
        symlink("made", path("leads")).unwrap();
        to_write(&path("leads"), Older::Goes)
            .unwrap()
            .write_all(b"x")
            .unwrap();
        assert_eq!(fs::read_to_string(path("made")).unwrap(), "x");
        symlink("loop", path("loop")).unwrap();
        assert!(to_read(&path("loop")).is_err());
        assert!(
            to_read(&path("a"))
                .and_then(|file| text_of(Ok(file)))
                .is_err()
        );
        assert!(to_write(&path("a"), Older::Goes).is_err());
        assert!(to_read(&path("none")).is_err() && to_read(&path("none/f")).is_err());
    }

    #[test]
    fn descriptors_by_name_are_opened() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let name = format!("/dev/fd/{number}");
        assert_eq!(text_of(to_read(Path::new(&name))).unwrap(), "text");
        to_write(Path::new("/dev/null"), Older::Goes).unwrap();
    }

    #[test]
    fn links_of_other_users_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return longhaul_testing::skip("only root makes links of other users");
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("mine"), "text").unwrap();
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/f"), "text").unwrap();
        for (link, to) in [("link", "mine"), ("down", "d"), ("fresh", "new")] {
            symlink(to, path(link)).unwrap();
            lchown(path(link), Some(65_000), None).unwrap();
        }
        for name in ["link", "down/f"] {
            let text = text_of(to_read(&path(name))).unwrap_err().to_string();
            assert!(text.contains("of another user (number 65000)"), "{text}");
        }
        for name in ["link", "down/f", "down/new", "fresh"] {
            assert!(to_change(&path(name), true).is_err(), "{name}");
            assert!(to_write(&path(name), Older::Goes).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(path("mine")).unwrap(), "text");
        assert!(!path("new").exists());
        // The owner of a directory controls its entries: its links are followed for reading, but
        // not for writing.
        lchown(place.path(), Some(65_000), None).unwrap();
        assert_eq!(text_of(to_read(&path("link"))).unwrap(), "text");
        assert!(to_write(&path("link"), Older::Stays).is_err());
        // In a directory that all users may write, another user may have prepared the file.
        lchown(place.path(), Some(0), None).unwrap();
        lchown(path("mine"), Some(65_000), None).unwrap();
        to_write(&path("mine"), Older::Stays).unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(to_write(&path("mine"), Older::Stays).is_err());
    }

    #[test]
    fn a_fifo_in_place_of_a_kept_file_does_not_block() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(CWD, &fifo, mode).unwrap();
        let mut writing = OpenOptions::new();
        writing.write(true).create(true).truncate(true);
        for opened in [kept_to_read(&fifo), kept(&mut writing, &fifo)] {
            let text = opened.unwrap_err().to_string();
            assert!(text.contains("a FIFO instead of a regular file"), "{text}");
        }
        assert!(kept_directory(&fifo).is_err());
        kept_directory(place.path()).unwrap();
        kept(&mut writing, &place.path().join("new")).unwrap();
    }
}
