//! What labs know of each other: a directory with one below it for each lab,
//! and a lock in it that its processes hold for as long as they live.
//!
//! Namespaces, devices and processes of a lab end with it: nothing but these
//! files can outlive one that was killed. A lab whose lock is free is dead; the
//! next start removes its directory, and undoes what it had changed of the
//! machine ([`crate::machine`]).
//!
//! A lab is two processes ([`crate::isolate`]): the one that was called and waits,
//! and the lab's own, which the kernel ends when the first is gone. Each has a
//! lock. While only the second one is held, the lab is dying: the next start
//! waits for that instead of taking it for a living one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The file whose lock says that a lab lives; in it, who that is.
const LOCK: &str = "lock";

/// The file whose lock the process has that was called, and no other.
const OUTER: &str = "outer";

/// A directory that is becoming a lab's begins with this, which no lab's name
/// does.
const UNFINISHED: &str = ".claim-";

/// What a lab has in its directory, beside [`DAEMON`] and [`STORAGE`]. Nothing else is ever
/// removed.
const FILES: [&str; 6] = [LOCK, OUTER, CONTROL, RECORD, HOSTS, RESOLVER];

/// The socket through which a lab is asked.
pub const CONTROL: &str = "control";
/// What a lab is, as JSON.
pub const RECORD: &str = "lab.json";
/// The lab's name servers, as in `/etc/resolv.conf`: none.
pub const RESOLVER: &str = "resolv.conf";
/// State of a daemon that runs in the lab, a directory.
pub const DAEMON: &str = "daemon";
/// Storage of the lab: state and data of file systems that it started.
pub const STORAGE: &str = "storage";
/// Names of the hosts, as in `/etc/hosts`.
pub const HOSTS: &str = "hosts";

/// Why there is no place for a lab.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// Of what.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Somebody else's.
    #[error("{} belongs to another user: remove it, or set XDG_RUNTIME_DIR", .0.display())]
    Foreign(PathBuf),
    /// There is one.
    #[error(
        "a lab \"{0}\" is running: choose another name, or end it with \"longhaul lab down {0}\""
    )]
    Exists(String),
    /// There is none.
    #[error("there is no lab \"{0}\": \"longhaul lab status\" lists those that run")]
    Missing(String),
    /// It could be a path.
    #[error("\"{0}\" cannot be a lab's name: write letters, digits, - and _, at most 32")]
    Name(String),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |error| StateError::Io { path, error }
}

/// Where all labs of this user have their directories.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

/// A lab's own directory and its locks. Removed when this is dropped, unless
/// it is for another process.
#[derive(Debug)]
pub struct Claim {
    name: String,
    path: PathBuf,
    /// Held until the last process with this descriptor is gone.
    _lock: File,
    /// Not in the lab's own process.
    outer: Option<File>,
    parent: StateDirectory,
    is_ours: bool,
}

/// Whether a lab is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Living,
    /// Who was called is gone; the kernel is ending the rest.
    Dying,
    Dead,
}

impl StateDirectory {
    /// `/run/longhaul-lab` for root, else below `XDG_RUNTIME_DIR` or the
    /// temporary directory. Made where it is missing.
    ///
    /// # Errors
    ///
    /// Where it cannot be made or is somebody else's.
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

    /// At a place of one's own.
    ///
    /// # Errors
    ///
    /// Where it cannot be made or is somebody else's.
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

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a lab's directory and takes its lock.
    ///
    /// # Errors
    ///
    /// Where a lab of that name lives, or the file system refuses.
    pub fn claim(&self, name: &str) -> Result<Claim, StateError> {
        check_name(name)?;
        let _alone = self.alone()?;
        let path = self.path.join(name);
        if path.exists() && !self.remove_dead(&path)? {
            return Err(StateError::Exists(name.to_owned()));
        }
        // Whole under its name or not there: who looks finds it locked.
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

    /// Removes the directories of labs that died; gives their names. Waits for
    /// those that are dying.
    ///
    /// # Errors
    ///
    /// Where the file system refuses.
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

    /// Labs that live.
    ///
    /// # Errors
    ///
    /// Where the file system refuses.
    pub fn living(&self) -> Result<Vec<String>, StateError> {
        let names = self.names()?;
        let lives = |name: &String| matches!(life(&self.path.join(name)), Ok(Life::Living));
        Ok(names.into_iter().filter(lives).collect())
    }

    /// The directory of a lab that lives.
    ///
    /// # Errors
    ///
    /// Where there is no such.
    pub fn find(&self, name: &str) -> Result<PathBuf, StateError> {
        check_name(name)?;
        let path = self.path.join(name);
        match life(&path) {
            Ok(Life::Living) => Ok(path),
            _ => Err(StateError::Missing(name.to_owned())),
        }
    }

    /// Waits until a lab is gone.
    ///
    /// # Errors
    ///
    /// Where its lock cannot be waited for.
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

    /// Held while directories come and go.
    fn alone(&self) -> Result<File, StateError> {
        let path = self.path.join(LOCK);
        let lock = open_lock(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(&path)(error.into()))?;
        Ok(lock)
    }

    /// What a start that was killed left; nobody is making one while the caller
    /// is alone.
    fn unfinished(&self) -> Result<Vec<PathBuf>, StateError> {
        let entries = fs::read_dir(&self.path).map_err(at(&self.path))?;
        let unfinished = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with(UNFINISHED)
        });
        Ok(unfinished.map(|entry| entry.path()).collect())
    }

    /// Removes a lab's directory where it is dead or dying, and only what labs
    /// have in theirs.
    fn remove_dead(&self, path: &Path) -> Result<bool, StateError> {
        match life(path).map_err(at(path))? {
            Life::Living => return Ok(false),
            // Not long: it is being killed.
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
        // Killed while its directory was removed.
        Err(error) if is_missing(&error) && path.is_dir() => return Ok(Life::Dead),
        Err(error) => return Err(error),
        Ok(false) => {}
    }
    match is_free(OUTER) {
        Ok(true) => Ok(Life::Dying),
        Ok(false) => Ok(Life::Living),
        // It is being removed by its own process.
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

/// A new file, locked by this process.
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

/// Removes a tree that is on one file system; what is mounted in it is left,
/// and then an error.
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

/// Not truncated: who opens it may not get its lock.
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
    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file of the lab.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// From here on the directory is not removed by this value, but by the one
    /// of a process that is forked from this one: there [`Claim::take`] follows.
    pub fn hand_over(mut self) -> Claim {
        self.is_ours = false;
        self
    }

    /// In the lab's own process: the directory is removed with this value, and
    /// who was called is the only one to have its lock.
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
            // What stays is removed by the next start.
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
        // As a killed one leaves it.
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

    /// The lab's own process has its lock and is being killed: no living lab, and
    /// what it has is removed once it is dead.
    #[test]
    fn a_dying_lab_is_waited_for() {
        let state = state("dying");
        let mut dying = state.claim("one").unwrap().hand_over();
        let path = dying.file("");
        dying.outer = None;
        assert_eq!(life(&path).unwrap(), Life::Dying);
        assert!(state.living().unwrap().is_empty());
        assert!(state.find("one").is_err());
        // A directory that never became one.
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
    fn what_is_no_labs_is_not_removed() {
        let state = state("foreign");
        let path = state.path.join("precious");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data"), "x").unwrap();
        assert!(state.sweep().is_err());
        assert!(path.join("data").exists());
        fs::remove_dir_all(&state.path).unwrap();
    }

    #[test]
    fn names_are_no_paths() {
        for name in ["", "..", "a/b", "a b", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
