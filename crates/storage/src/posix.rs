//! Storage on the file systems of this host, through handles of the kernel.

mod file;
mod inode;
mod journal;
mod names;
mod promise;
mod status;

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::manifest::Timestamp;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use self::file::PosixFile;
use self::inode::PosixInode;
use self::names::PosixNames;
use self::status::{file_type, permission_bits, status_from, times_of};
use super::attributes::Inode;
use super::content::{Bounds, Content, Devices, measured};
use super::inodes;
use super::mounts;
use super::resolution::{self, Resolution, check_name};
use super::{Creation, DataMode, Directory, FileKind, NameList, Special, Status, StoredFile};

/// A directory on this host.
pub struct PosixDirectory {
    descriptor: OwnedFd,
    resolution: Resolution,
    /// Devices of this directory and of all directories opened beneath it.
    devices: Arc<Devices>,
    /// True while files can be read without a change of their access time, which only a file's
    /// owner may request. Cleared by the first refusal, to avoid further failing calls.
    spares_access_time: AtomicBool,
}

/// Flags for opening files. `NONBLOCK` prevents blocking on a FIFO in place of the file.
const FILE_FLAGS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

#[cfg(target_os = "linux")]
const SPARE_ACCESS_TIME: OFlags = OFlags::NOATIME;
#[cfg(not(target_os = "linux"))]
const SPARE_ACCESS_TIME: OFlags = OFlags::empty();

/// Mode of staged files, which other users must not access before they are complete.
const NEW_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl PosixDirectory {
    /// Opens a root that the user named. Only the path of a root may contain symbolic links.
    ///
    /// # Errors
    ///
    /// The errors of `open` with `O_DIRECTORY`.
    pub fn open_root(path: &Path) -> io::Result<Arc<dyn Directory>> {
        PosixDirectory::open_root_with(path, Resolution::available())
    }

    /// Opens a root with a given method of resolving paths beneath it, for tests.
    ///
    /// # Errors
    ///
    /// The errors of `open` with `O_DIRECTORY`.
    pub(crate) fn open_root_with(
        path: &Path,
        resolution: Resolution,
    ) -> io::Result<Arc<dyn Directory>> {
        let flags = DIRECTORY_FLAGS.difference(OFlags::NOFOLLOW);
        let open = || rustix::fs::openat(CWD, path, flags, Mode::empty());
        let descriptor = retry_on_intr(open)?;
        Ok(Arc::new(PosixDirectory::new(descriptor, resolution)))
    }

    /// Gives the owner access to a staged file. It may have its final mode before its final name,
    /// and that mode may exclude the owner.
    fn allow_writing(&self, name: &[u8]) -> io::Result<()> {
        let (file, _) = regular(self.open(name, FILE_FLAGS | OFlags::RDONLY))?;
        if file::has_other_names(file.as_fd())? {
            return Err(Errno::MLINK.into());
        }
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        rustix::fs::fchmod(&file, mode | Mode::RUSR | Mode::WUSR)?;
        Ok(())
    }

    /// Opens a directory for access to its entries by name, which needs fewer permissions than
    /// listing. Links in the path are followed.
    ///
    /// # Errors
    ///
    /// The errors of `open` with `O_PATH`.
    pub(super) fn open_unlisted(path: &Path) -> io::Result<Arc<dyn Directory>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(CWD, path, flags, Mode::empty());
        let descriptor = retry_on_intr(open)?;
        let resolution = Resolution::available();
        Ok(Arc::new(PosixDirectory::new(descriptor, resolution)))
    }

    fn new(descriptor: OwnedFd, resolution: Resolution) -> PosixDirectory {
        PosixDirectory {
            descriptor,
            resolution,
            devices: Arc::default(),
            spares_access_time: AtomicBool::new(true),
        }
    }

    /// Opens a directory at a checked path in one call; `None` if the kernel does not support it.
    pub(super) fn open_path(&self, path: &[u8]) -> Option<io::Result<Arc<dyn Directory>>> {
        (self.resolution == Resolution::Kernel).then(|| self.open_checked_directory(path))
    }

    fn open_checked_directory(&self, path: &[u8]) -> io::Result<Arc<dyn Directory>> {
        let descriptor = self.open(path, DIRECTORY_FLAGS)?;
        Ok(Arc::new(PosixDirectory {
            devices: Arc::clone(&self.devices),
            ..PosixDirectory::new(descriptor, self.resolution)
        }))
    }

    fn open(&self, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // `openat2` fails if a mode is given without CREATE.
        let mode = if flags.contains(OFlags::CREATE) {
            NEW_FILE_MODE
        } else {
            Mode::empty()
        };
        resolution::open(self.descriptor.as_fd(), name, flags, mode, self.resolution)
    }

    fn open_for_reading(&self, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | FILE_FLAGS | OFlags::RDONLY;
        if self.spares_access_time.load(Ordering::Relaxed) {
            match self.open(name, flags | SPARE_ACCESS_TIME) {
                Err(Errno::PERM) => self.spares_access_time.store(false, Ordering::Relaxed),
                opened => return opened,
            }
        }
        self.open(name, flags)
    }

    fn stat(&self, name: &[u8]) -> io::Result<Status> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = retry_on_intr(|| rustix::fs::statat(&self.descriptor, name, flags))?;
        Ok(status_from(&stat))
    }

    fn or_no_inodes<T>(&self, made: io::Result<T>) -> io::Result<T> {
        inodes::or_no_inodes(self.descriptor.as_fd(), made)
    }

    fn remove(&self, name: &[u8], flags: AtFlags) -> io::Result<()> {
        check_name(name)?;
        retry_on_intr(|| rustix::fs::unlinkat(&self.descriptor, name, flags))?;
        Ok(())
    }
}

impl Directory for PosixDirectory {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        check_name(name)?;
        self.open_checked_directory(name)
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()> {
        check_name(name)?;
        let mode = permission_bits(mode)?;
        let made = retry_on_intr(|| rustix::fs::mkdirat(&self.descriptor, name, mode));
        self.or_no_inodes(made.map_err(io::Error::from))
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        check_name(name)?;
        let (descriptor, status) = regular(self.open_for_reading(name, OFlags::empty()))?;
        let same = || Ok(&descriptor);
        if self.devices.hides_content(&status, same)? {
            let content = Content::read(descriptor.as_fd(), status, Bounds::USUAL)?;
            if content.len() > 0 {
                return Ok(Arc::new(content));
            }
        }
        let reopen = |flags| self.open_for_reading(name, flags);
        let opened = (descriptor, status.device);
        Ok(Arc::new(PosixFile::new(opened, mode, reopen)))
    }

    fn open_whole(&self, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
        check_name(name)?;
        let (descriptor, status) = regular(self.open_for_reading(name, OFlags::empty()))?;
        let content = Content::read(descriptor.as_fd(), status, Bounds::USUAL)?;
        Ok(Arc::new(content))
    }

    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        check_name(name)?;
        let status = self.stat(name)?;
        let open = || regular(self.open_for_reading(name, OFlags::empty()));
        let hides = self
            .devices
            .hides_content(&status, || open().map(|opened| opened.0))?;
        if !hides {
            return Ok(status);
        }
        let (descriptor, status) = open()?;
        measured(descriptor.as_fd(), status, Bounds::USUAL)
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        check_name(name)?;
        let creation = match creation {
            Creation::New => OFlags::CREATE | OFlags::EXCL,
            Creation::Existing => OFlags::empty(),
            Creation::Either => OFlags::CREATE,
        };
        let flags = OFlags::RDWR | FILE_FLAGS;
        let mut opened = regular(self.open(name, flags | creation));
        if opened
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            && self.allow_writing(name).is_ok()
        {
            opened = regular(self.open(name, flags | creation));
        }
        let (descriptor, status) = self.or_no_inodes(opened)?;
        let opened = (descriptor, status.device);
        let reopen = |further| self.open(name, flags | further);
        Ok(Arc::new(PosixFile::new(opened, mode, reopen)))
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        check_name(name)?;
        let made = retry_on_intr(|| rustix::fs::symlinkat(target, &self.descriptor, name));
        self.or_no_inodes(made.map_err(io::Error::from))
    }

    fn make_special(&self, name: &[u8], special: Special) -> io::Result<()> {
        check_name(name)?;
        let (major, minor) = special.device;
        let device = rustix::fs::makedev(major, minor);
        let kind = file_type(special.kind);
        let make = || rustix::fs::mknodat(&self.descriptor, name, kind, NEW_FILE_MODE, device);
        self.or_no_inodes(retry_on_intr(make).map_err(io::Error::from))
    }

    fn link(&self, name: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        check_name(name)?;
        check_name(to)?;
        let target = target.as_any().downcast_ref::<PosixDirectory>();
        let target = target.ok_or(io::ErrorKind::InvalidInput)?;
        let (old, new) = (&self.descriptor, &target.descriptor);
        retry_on_intr(|| rustix::fs::linkat(old, name, new, to, AtFlags::empty()))?;
        Ok(())
    }

    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        Some(Box::new(PosixInode::Open(self.descriptor.as_fd())))
    }

    fn inode_of(&self, name: &[u8]) -> Option<Box<dyn Inode + '_>> {
        check_name(name).ok()?;
        Some(Box::new(PosixInode::named(self.descriptor.as_fd(), name)))
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        check_name(name)?;
        let read = || rustix::fs::readlinkat(&self.descriptor, name, Vec::new());
        Ok(retry_on_intr(read)?.into_bytes().into())
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        let target = target.as_any().downcast_ref::<PosixDirectory>();
        let target = target.ok_or(io::ErrorKind::InvalidInput)?;
        let rename = || rustix::fs::renameat(&self.descriptor, from, &target.descriptor, to);
        retry_on_intr(rename)?;
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn rename_new(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        use rustix::fs::{RenameFlags, renameat_with};
        check_name(from)?;
        check_name(to)?;
        let target = target.as_any().downcast_ref::<PosixDirectory>();
        let target = target.ok_or(io::ErrorKind::InvalidInput)?;
        let (old, new) = (&self.descriptor, &target.descriptor);
        match retry_on_intr(|| renameat_with(old, from, new, to, RenameFlags::NOREPLACE)) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            renamed => Ok(renamed?),
        }
    }

    #[cfg(target_os = "linux")]
    fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        use rustix::fs::{RenameFlags, renameat_with};
        check_name(one)?;
        check_name(other)?;
        let here = &self.descriptor;
        match retry_on_intr(|| renameat_with(here, one, here, other, RenameFlags::EXCHANGE)) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            exchanged => Ok(exchanged?),
        }
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.remove(name, AtFlags::empty())
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.remove(name, AtFlags::REMOVEDIR)
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        check_name(name)?;
        self.stat(name)
    }

    fn status(&self) -> io::Result<Status> {
        file::status(self.descriptor.as_fd())
    }

    fn mount(&self) -> Option<u64> {
        mounts::mount_of(self.descriptor.as_fd())
    }

    fn open_descriptor(&self, name: &[u8]) -> io::Result<OwnedFd> {
        check_name(name)?;
        Ok(regular(self.open_for_reading(name, OFlags::empty()))?.0)
    }

    fn location(&self) -> Option<PathBuf> {
        let descriptor = self.descriptor.as_fd().as_raw_fd();
        std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        check_name(name)?;
        let times = times_of(modified)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        retry_on_intr(|| rustix::fs::utimensat(&self.descriptor, name, &times, flags))?;
        Ok(())
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        file::set_mode(self.descriptor.as_fd(), mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        file::set_modified(self.descriptor.as_fd(), modified)
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        Ok(Box::new(PosixNames::open(self.descriptor.as_fd())?))
    }

    fn sync(&self) -> io::Result<()> {
        file::sync_all(self.descriptor.as_fd())
    }

    #[cfg(target_os = "linux")]
    fn sync_file_system(&self) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::syncfs(&self.descriptor))?;
        Ok(())
    }

    fn syncs_inodes(&self) -> bool {
        !journal::is_missing(self.descriptor.as_fd())
    }

    fn uuid(&self) -> Option<super::origin::Uuid> {
        super::origin::uuid(self.descriptor.as_fd())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the opened file and its status. Fails if it is not a regular file.
fn regular(opened: rustix::io::Result<OwnedFd>) -> io::Result<(OwnedFd, Status)> {
    let refusal = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let descriptor = match opened {
        Ok(descriptor) => descriptor,
        // A socket, or a device without a driver.
        Err(Errno::NXIO) => return Err(refusal()),
        Err(error) => return Err(error.into()),
    };
    let status = file::status(descriptor.as_fd())?;
    match status.kind {
        FileKind::File => Ok((descriptor, status)),
        _ => Err(refusal()),
    }
}

#[cfg(test)]
mod tests;
