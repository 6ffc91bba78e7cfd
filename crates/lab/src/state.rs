//! Registry of labs: a directory that contains one directory per lab. Each contains lock
//! files that the lab's processes hold while they live.
//!
//! Namespaces, devices and processes of a lab end with it. Only these files outlive a lab
//! that was killed. A lab whose lock is free is dead. The next start removes its
//! directory and undoes its changes to the machine ([`crate::machine`]).
//!
//! A lab consists of two processes ([`crate::isolate`]): the calling one, which waits,
//! and the inner one, which the kernel kills when the first has ended. Each has a lock.
//! If only the inner lock is held, the lab is dying: the next start waits for its end and
//! does not take it for a living lab.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// File whose lock both processes hold. It contains the process id of the calling
/// process.
const LOCK: &str = "lock";

/// File whose lock only the calling process holds.
const OUTER: &str = "outer";

/// Prefix of a directory that is being created. Lab names cannot begin with it.
const UNFINISHED: &str = ".claim-";

/// Files in a lab's directory, beside [`DAEMON`] and [`STORAGE`]. Other files are never
/// removed.
const FILES: [&str; 6] = [LOCK, OUTER, CONTROL, RECORD, HOSTS, RESOLVER];

/// Name of the control socket.
pub const CONTROL: &str = "control";
/// Name of the lab's record, in JSON.
pub const RECORD: &str = "lab.json";
/// Name of the file that replaces `/etc/resolv.conf`; it is empty.
pub const RESOLVER: &str = "resolv.conf";
/// Name of the state directory of a daemon that runs in the lab.
pub const DAEMON: &str = "daemon";
/// Name of the storage directory: state and data of file systems that the lab started.
pub const STORAGE: &str = "storage";
/// Name of the file that replaces `/etc/hosts`.
pub const HOSTS: &str = "hosts";

/// Reasons why a lab has no directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file system operation failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The directory of labs belongs to another user.
    #[error("{} belongs to another user: remove it, or set XDG_RUNTIME_DIR", .0.display())]
    Foreign(PathBuf),
    /// A lab of this name is running.
    #[error(
        "a lab \"{0}\" is running: choose another name, or end it with \"longhaul lab down {0}\""
    )]
    Exists(String),
    /// No lab of this name is running.
    #[error("there is no lab \"{0}\": \"longhaul lab status\" lists running labs")]
    Missing(String),
    /// The name is invalid.
    #[error("\"{0}\" is not a valid lab name: use letters, digits, - and _, at most 32")]
    Name(String),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |error| StateError::Io { path, error }
}

/// Directory that contains the directories of all labs of this user.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

/// Directory and locks of one lab. Dropping the value removes the directory, unless it
/// was handed over to another process.
#[derive(Debug)]
pub struct Claim {
    name: String,
    path: PathBuf,
    /// Lock held until the last process with this descriptor ends.
    _lock: File,
    /// Lock of the calling process; `None` in the lab's own process.
    outer: Option<File>,
    parent: StateDirectory,
    is_ours: bool,
}

/// State of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Living,
    /// The calling process has ended and the kernel is killing the other processes.
    Dying,
    Dead,
}

impl StateDirectory {
    /// Opens `/run/longhaul-lab` for root, else a directory below `XDG_RUNTIME_DIR` or
    /// the temporary directory. Creates it if it is missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created or belongs to another user.
    pub fn open() -> Result<StateDirectory, StateError> {
        let user = rustix::process::geteuid();
        let path = if user.is_root() {
            PathBuf::from("/run/longhaul-lab")
        } else if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
            PathBuf::from(runtime).join("longhaul-lab")
        } else {
            std::env::temp_dir().join(format!("longhaul-lab-{}", user.as_raw()))
        };
        StateDirectory::at(path)
    }

    /// Opens the directory at the given path. Creates it if it is missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created or belongs to another user.
    pub fn at(path: PathBuf) -> Result<StateDirectory, StateError> {
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(at(&path)(error));
            }
            _ => {}
        }
        let found = fs::symlink_metadata(&path).map_err(at(&path))?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(StateError::Foreign(path));
        }
        Ok(StateDirectory { path })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a lab's directory and takes its locks.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid or in use, or a file cannot be created.
    pub fn claim(&self, name: &str) -> Result<Claim, StateError> {
        check_name(name)?;
        let _alone = self.alone()?;
        let path = self.path.join(name);
        if path.exists() && !self.remove_dead(&path)? {
            return Err(StateError::Exists(name.to_owned()));
        }
        // Renamed when complete, so that other processes see the directory only with its
        // locks held.
        let owner = std::process::id();
        let unfinished = self.path.join(format!("{UNFINISHED}{owner}"));
        fs::create_dir(&unfinished).map_err(at(&unfinished))?;
        let take = |file| {
            let path = unfinished.join(file);
            take_lock(&path).map_err(at(&path))
        };
        let (mut lock, outer) = (take(LOCK)?, take(OUTER)?);
        let written = lock.write_all(format!("{owner}\n").as_bytes());
        written.map_err(at(&unfinished))?;
        fs::rename(&unfinished, &path).map_err(at(&path))?;
        Ok(Claim {
            name: name.to_owned(),
            path,
            _lock: lock,
            outer: Some(outer),
            parent: self.clone(),
            is_ours: true,
        })
    }

    /// Removes the directories of dead labs and returns their names. Waits for dying
    /// labs.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or removed.
    pub fn sweep(&self) -> Result<Vec<String>, StateError> {
        let _alone = self.alone()?;
        for path in self.unfinished()? {
            remove_directory(&path).map_err(at(&path))?;
        }
        let mut removed = Vec::new();
        for name in self.names()? {
            if self.remove_dead(&self.path.join(&name))? {
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// Returns the names of living labs.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be read.
    pub fn living(&self) -> Result<Vec<String>, StateError> {
        let names = self.names()?;
        let lives = |name: &String| matches!(life(&self.path.join(name)), Ok(Life::Living));
        Ok(names.into_iter().filter(lives).collect())
    }

    /// Returns the directory of a living lab.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid or no such lab is running.
    pub fn find(&self, name: &str) -> Result<PathBuf, StateError> {
        check_name(name)?;
        let path = self.path.join(name);
        match life(&path) {
            Ok(Life::Living) => Ok(path),
            _ => Err(StateError::Missing(name.to_owned())),
        }
    }

    /// Waits until a lab has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock file cannot be opened or locked.
    pub fn await_end(&self, name: &str) -> Result<(), StateError> {
        let path = self.path.join(name).join(LOCK);
        await_lock(&path).map_err(at(&path))
    }

    fn names(&self) -> Result<Vec<String>, StateError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(at(&self.path))? {
            let entry = entry.map_err(at(&self.path))?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().into_string().ok();
            names.extend(name.filter(|name| is_directory && check_name(name).is_ok()));
        }
        names.sort();
        Ok(names)
    }

    /// Takes the lock of the registry, which is held while directories are created or
    /// removed.
    fn alone(&self) -> Result<File, StateError> {
        let path = self.path.join(LOCK);
        let lock = open_lock(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        Ok(lock)
    }

    /// Returns incomplete directories of starts that were killed. The caller holds the
    /// registry's lock, so no other process is creating one.
    fn unfinished(&self) -> Result<Vec<PathBuf>, StateError> {
        let entries = fs::read_dir(&self.path).map_err(at(&self.path))?;
        let unfinished = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with(UNFINISHED)
        });
        Ok(unfinished.map(|entry| entry.path()).collect())
    }

    /// Removes the directory of a dead or dying lab; true if it was removed. Removes only
    /// the files that labs create.
    fn remove_dead(&self, path: &Path) -> Result<bool, StateError> {
        match life(path).map_err(at(path))? {
            Life::Living => return Ok(false),
            // The wait is short: the lab is being killed.
            Life::Dying => await_lock(&path.join(LOCK)).map_err(at(path))?,
            Life::Dead => {}
        }
        remove_directory(path).map_err(at(path))?;
        Ok(true)
    }
}

fn life(path: &Path) -> io::Result<Life> {
    let is_free = |file: &str| {
        let lock = OpenOptions::new().read(true).open(path.join(file))?;
        Ok(flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
    };
    match is_free(LOCK) {
        Ok(true) => return Ok(Life::Dead),
        // The process that removed the directory was killed.
        Err(error) if is_missing(&error) && path.is_dir() => return Ok(Life::Dead),
        Err(error) => return Err(error),
        Ok(false) => {}
    }
    match is_free(OUTER) {
        Ok(true) => Ok(Life::Dying),
        Ok(false) => Ok(Life::Living),
        // The lab's own process is removing the directory.
        Err(error) if is_missing(&error) => Ok(Life::Living),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Waits until the holder releases the lock.
fn await_lock(path: &Path) -> io::Result<()> {
    let lock = match OpenOptions::new().read(true).open(path) {
        Err(error) if is_missing(&error) => return Ok(()),
        opened => opened?,
    };
    Ok(flock(&lock, FlockOperation::LockShared)?)
}

/// Creates a file and locks it.
fn take_lock(path: &Path) -> io::Result<File> {
    let lock = open_lock(path)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

fn remove_directory(path: &Path) -> io::Result<()> {
    for file in FILES {
        match fs::remove_file(path.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match fs::remove_dir_all(path.join(DAEMON)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let device = path.symlink_metadata()?.dev();
    remove_tree(&path.join(STORAGE), device)?;
    fs::remove_dir(path)
}

/// Removes a tree on one file system. A mount point in it is kept and causes an error.
fn remove_tree(path: &Path, device: u64) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.is_dir() {
        return fs::remove_file(path);
    }
    if found.dev() != device {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    for entry in fs::read_dir(path)? {
        remove_tree(&entry?.path(), device)?;
    }
    fs::remove_dir(path)
}

/// Opens a lock file without truncating it, because the caller may not get the lock.
fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn check_name(name: &str) -> Result<(), StateError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        return Err(StateError::Name(name.to_owned()));
    }
    Ok(())
}

impl Claim {
    /// Returns the name of the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a file in the lab's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a forked process responsible for removing the directory. That process calls
    /// [`Claim::take`].
    pub fn hand_over(mut self) -> Claim {
        self.is_ours = false;
        self
    }

    /// Makes this value responsible for removing the directory again, in the lab's own
    /// process. Releases the outer lock here, so that only the calling process holds it.
    pub fn take(mut self) -> Claim {
        self.is_ours = true;
        self.outer = None;
        self
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_ours {
            let _alone = self.parent.alone();
            // Remaining files are removed by the next start.
            let _ = remove_directory(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str) -> StateDirectory {
        let name = format!("longhaul-lab-test-{name}-{}", std::process::id());
        StateDirectory::at(std::env::temp_dir().join(name)).unwrap()
    }

    #[test]
    fn a_living_lab_is_left_and_a_dead_one_removed() {
        let state = state("sweep");
        let living = state.claim("one").unwrap();
        assert!(matches!(state.claim("one"), Err(StateError::Exists(_))));
        // Leaves the directory as a killed lab does.
        let dead = state.claim("two").unwrap();
        fs::write(dead.file(RECORD), "{}").unwrap();
        let path = dead.file(RECORD);
        drop(dead.hand_over());
        assert!(path.exists());
        assert_eq!(state.living().unwrap(), ["one"]);
        assert_eq!(state.sweep().unwrap(), ["two"]);
        assert!(!path.exists());
        state.claim("two").unwrap();
        let kept = living.file("");
        drop(living);
        assert!(!kept.exists());
        fs::remove_dir_all(&state.path).unwrap();
    }

    /// Only the inner lock is held: the lab does not count as living, and its directory
    /// is removed once it is dead.
    #[test]
    fn sweep_waits_for_a_dying_lab() {
        let state = state("dying");
        let mut dying = state.claim("one").unwrap().hand_over();
        let path = dying.file("");
        dying.outer = None;
        assert_eq!(life(&path).unwrap(), Life::Dying);
        assert!(state.living().unwrap().is_empty());
        assert!(state.find("one").is_err());
        // An incomplete directory.
        let unfinished = state.path.join(format!("{UNFINISHED}1"));
        fs::create_dir(&unfinished).unwrap();
        std::thread::scope(|scope| {
            let sweep = scope.spawn(|| state.sweep().unwrap());
            drop(dying);
            assert_eq!(sweep.join().unwrap(), ["one"]);
        });
        assert!(!path.exists() && !unfinished.exists());
        fs::remove_dir_all(&state.path).unwrap();
    }

    #[test]
    fn foreign_files_are_not_removed() {
        let state = state("foreign");
        let path = state.path.join("precious");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data"), "x").unwrap();
        assert!(state.sweep().is_err());
        assert!(path.join("data").exists());
        fs::remove_dir_all(&state.path).unwrap();
    }

    #[test]
    fn names_that_could_be_paths_are_rejected() {
        for name in ["", "..", "a/b", "a b", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
