//! Lists this user's running copies on this host that are not jobs, and reads or changes their rate
//! limits. Each copy listens at a socket that only its user can reach (FORMAT.md, "Running
//! copies").
//!
//! The socket is `copies/PID@HOST` in the directory of the kept logins. Several hosts may share
//! that directory, and each one uses only its own names.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_net::gate;
use longhaul_system::named_files::kept_directory;
use serde::{Deserialize, Serialize};

use crate::between_hosts;
use crate::between_hosts::follower::is_own;
use crate::between_hosts::job_protocol::{
    Follow, JobEvent, Listed, MAXIMUM_NAME_BYTES, Order, ShownProgress, receive, send,
};
use crate::client::observer::Control;
use crate::client::owner::host_name;
use crate::console::one_line;
use crate::rate_limit::{BandwidthLimit, ChangedLimit};
use crate::ssh::control_directory;
use crate::state::make_private;
use crate::stop::{Exit, Stop};

/// Time limit for each end to send its message.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Maximum number of directory entries to read.
const MOST_NAMES: usize = 10_000;

/// A copy's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCopy {
    /// Process ID of the copy.
    pub process: u32,
    /// The source as the user named it.
    pub from: String,
    /// Destination as the user named it.
    pub to: String,
    /// Rate limit of the copy in bytes per second; `None`: no limit.
    pub bwlimit_bytes_per_second: Option<u64>,
}

/// An entry of the list of `limit` for this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunningHere {
    /// A copy that is not a job.
    Copy(RunningCopy),
    /// A job.
    Job(Listed),
}

impl RunningHere {
    /// Formats the entry on one line. Line breaks in names are escaped.
    pub fn line(&self) -> String {
        let (name, rate, from, to) = match self {
            RunningHere::Copy(copy) => {
                let rate = copy.bwlimit_bytes_per_second;
                (copy.process.to_string(), rate, &copy.from, &copy.to)
            }
            RunningHere::Job(job) => {
                let rate = job.bwlimit_bytes_per_second;
                (job.name.clone(), rate, &job.from, &job.to)
            }
        };
        let rate = rate.and_then(|rate| BandwidthLimit::try_from(rate).ok());
        let rate = ChangedLimit(rate);
        one_line(&format!("{name}  {rate}  {from} -> {to}"), usize::MAX)
    }
}

/// Lists the copies and jobs of this user that run on this host.
///
/// # Errors
///
/// Fails if they cannot be listed.
pub fn everything() -> Result<Vec<RunningHere>, Stop> {
    let copies = list()?.into_iter().map(RunningHere::Copy);
    Ok(copies.chain(jobs()?.map(RunningHere::Job)).collect())
}

/// Returns one of the running jobs.
///
/// # Errors
///
/// Fails if no job of that name runs on this host.
pub fn job(name: &str) -> Result<RunningHere, Stop> {
    let found = jobs()?.find(|job| job.name == name);
    found.map(RunningHere::Job).ok_or_else(|| {
        let text = format!(
            "{name}: no such job runs on this host; to limit a job of another one, name a rate, or \
             none"
        );
        Stop::new(Exit::Usage, text)
    })
}

fn jobs() -> Result<impl Iterator<Item = Listed>, Stop> {
    let jobs = between_hosts::job::running().map_err(|error| {
        let text = format!("the jobs of this host cannot be listed: {error}");
        Stop::new(Exit::Local, text)
    })?;
    Ok(jobs.into_iter())
}

/// The socket of this process's copy. Dropping it removes the socket.
#[derive(Debug)]
pub struct Offer {
    socket: PathBuf,
    inode: u64,
}

impl Drop for Offer {
    fn drop(&mut self) {
        let found = self.socket.symlink_metadata();
        // A process in another PID namespace may have the same number and name.
        if found.is_ok_and(|found| found.ino() == self.inode) {
            // A socket that remains is later recognised as stale.
            let _ = fs::remove_file(&self.socket);
        }
    }
}

/// Lets this user's commands change the rate of a copy. If the socket or its thread cannot be
/// created, the copy runs without them, and its rate cannot be changed.
pub fn offer(control: &Control, [from, to]: [&str; 2]) -> Option<Offer> {
    offer_in(&directory().ok()?, control, [from, to])
}

fn offer_in(directory: &Path, control: &Control, [from, to]: [&str; 2]) -> Option<Offer> {
    remove_stale(directory);
    let process = std::process::id();
    let name = name_of(process);
    // The socket gets its name only once it listens, because a socket that does not listen is taken
    // for one of a killed copy.
    let new = format!("{name}.new");
    let _ = fs::remove_file(directory.join(&new));
    let listener = at_socket(directory, &new, UnixListener::bind).ok()?;
    let socket = directory.join(&name);
    fs::rename(directory.join(&new), &socket).ok()?;
    let inode = socket.symlink_metadata().ok()?.ino();
    let offer = Offer { socket, inode };
    let (from, to) = (cut(from), cut(to));
    let control = control.clone();
    let thread = std::thread::Builder::new().name("limit".into());
    let serve = move || {
        for socket in listener.incoming().filter_map(gate::or_pause) {
            if !is_own(&socket) {
                continue;
            }
            let told = || RunningCopy {
                process,
                from: from.clone(),
                to: to.clone(),
                bwlimit_bytes_per_second: control.limit().rate.map(u64::from),
            };
            // A command that does not receive the answer asks again.
            let _ = answer(&socket, &control, told);
        }
    };
    thread.spawn(serve).ok()?;
    Some(offer)
}

fn answer(
    socket: &UnixStream,
    control: &Control,
    told: impl Fn() -> RunningCopy,
) -> io::Result<()> {
    socket.set_read_timeout(Some(ANSWERS_WITHIN))?;
    socket.set_write_timeout(Some(ANSWERS_WITHIN))?;
    match receive::<Order>(socket)? {
        // An invalid rate is ignored; the answer has the current one.
        Some(Order::Limit(rate)) => {
            if let Ok(rate) = BandwidthLimit::of_bytes_per_second(rate) {
                control.bind(rate);
            }
        }
        Some(Order::Follow(_)) => {}
        Some(Order::Begin(_) | Order::Cancel | Order::Allow(_) | Order::Describe) | None => {
            return Ok(());
        }
    }
    let text = serde_json::to_string(&told()).map_err(io::Error::other)?;
    send(socket, &JobEvent::Progress(text))
}

/// Lists the copies that run on this host, by process ID.
///
/// # Errors
///
/// Fails if the directory of the sockets cannot be used.
pub fn list() -> Result<Vec<RunningCopy>, Stop> {
    let directory = directory()?;
    let mut found = Vec::new();
    for (process, _) in names(&directory) {
        // A copy that has just ended does not answer.
        found.extend(ask_at(&directory, process, &question()).ok());
    }
    found.sort_by_key(|copy| copy.process);
    Ok(found)
}

/// Sets another rate limit for a copy, or removes it, and returns the copy's new state.
///
/// # Errors
///
/// Fails if this user has no such copy on this host.
pub fn limit(process: u32, rate: Option<BandwidthLimit>) -> Result<RunningCopy, Stop> {
    one(process, &Order::Limit(rate.map_or(0, u64::from)))
}

/// Returns the state of a copy.
///
/// # Errors
///
/// The same as [`limit`].
pub fn ask(process: u32) -> Result<RunningCopy, Stop> {
    one(process, &question())
}

fn one(process: u32, order: &Order) -> Result<RunningCopy, Stop> {
    ask_at(&directory()?, process, order).map_err(|error| {
        let text = format!(
            "{process}: no copy of yours with this process number can be asked on this host \
             ({error}): `longhaul limit` lists those that can"
        );
        Stop::new(Exit::Usage, text)
    })
}

/// Returns a message that changes nothing.
fn question() -> Order {
    Order::Follow(Follow {
        output: 0,
        errors: 0,
        progress: ShownProgress::Json,
        manifest: false,
        alive_seconds: 0,
    })
}

fn ask_at(directory: &Path, process: u32, order: &Order) -> io::Result<RunningCopy> {
    let socket = at_socket(directory, &name_of(process), UnixStream::connect)?;
    if !is_own(&socket) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    socket.set_read_timeout(Some(ANSWERS_WITHIN))?;
    socket.set_write_timeout(Some(ANSWERS_WITHIN))?;
    let sent = send(&socket, order);
    match receive(&socket)? {
        Some(JobEvent::Progress(text)) => Ok(serde_json::from_str(&text)?),
        _ => Err(sent.err().unwrap_or(io::ErrorKind::InvalidData.into())),
    }
}

/// Removes the sockets of killed copies of this host.
fn remove_stale(directory: &Path) {
    for (_, name) in names(directory) {
        let answers = at_socket(directory, &name, UnixStream::connect);
        // Check the socket, not /proc, because a process in another PID namespace is not in /proc.
        if answers.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // Another process may have removed it.
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

/// Returns the copies of this host, by the names of their sockets.
fn names(directory: &Path) -> Vec<(u32, String)> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = names.take(MOST_NAMES).filter_map(|name| {
        let name = name.file_name().into_string().ok()?;
        let process = name.split_once('@')?.0.parse().ok()?;
        (name == name_of(process)).then_some((process, name))
    });
    names.collect()
}

fn name_of(process: u32) -> String {
    format!("{process}@{}", host_name().replace('/', "-"))
}

/// Returns the directory of the sockets, which only this user can access.
fn directory() -> Result<PathBuf, Stop> {
    let local = |text: String| Stop::new(Exit::Local, text);
    let directory = control_directory::of_this_user().map_err(local)?;
    let directory = directory.join("copies");
    let made = make_private(&directory);
    made.map_err(|error| local(format!("{}: {error}", directory.display())))?;
    Ok(directory)
}

/// Uses a socket whose directory's path may be longer than a socket's path may be.
fn at_socket<T>(
    directory: &Path,
    name: &str,
    use_at: impl FnOnce(PathBuf) -> io::Result<T>,
) -> io::Result<T> {
    let opened = kept_directory(directory)?;
    use_at(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()).into())
}

/// Truncates a name so that both names fit into a message.
fn cut(name: &str) -> String {
    let end = name.floor_char_boundary(MAXIMUM_NAME_BYTES / 2);
    name[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_answers_and_changes_its_rate_at_its_socket() {
        let place = tempfile::tempdir().unwrap();
        let control = Control::default();
        let own = std::process::id();
        // One socket of a killed copy, and one of another host.
        let [killed, others] = [name_of(u32::MAX), "7@elsewhere".to_owned()];
        for name in [&killed, &others] {
            drop(at_socket(place.path(), name, UnixListener::bind).unwrap());
        }
        // A socket of a process that listens in another PID namespace.
        let elsewhere = name_of(u32::MAX - 1);
        let listens = at_socket(place.path(), &elsewhere, UnixListener::bind).unwrap();
        let offer = offer_in(place.path(), &control, ["a", &"ü".repeat(5000)]).unwrap();
        assert!(!place.path().join(&killed).exists() && place.path().join(&others).exists());
        assert!(place.path().join(&elsewhere).exists());
        drop(listens);
        fs::remove_file(place.path().join(&elsewhere)).unwrap();
        let unbound = ask_at(place.path(), own, &question()).unwrap();
        assert_eq!(unbound.bwlimit_bytes_per_second, None);
        assert_eq!(unbound.from, "a");
        let shown = RunningHere::Copy(unbound).line();
        assert!(shown.contains("  none  "), "{shown}");
        let bound = ask_at(place.path(), own, &Order::Limit(5000)).unwrap();
        assert_eq!(bound.bwlimit_bytes_per_second, Some(5000));
        assert_eq!(control.limit().rate.map(u64::from), Some(5000));
        assert!(control.limit().changed);
        // An order that is neither a rate nor a question must not end the copy.
        assert!(ask_at(place.path(), own, &Order::Cancel).is_err());
        assert!(!control.was_cancelled());
        let unbound = ask_at(place.path(), own, &Order::Limit(0)).unwrap();
        assert_eq!(unbound.bwlimit_bytes_per_second, None);
        drop(offer);
        assert!(ask_at(place.path(), own, &question()).is_err());
        assert_eq!(names(place.path()), []);
    }

    #[test]
    fn a_silent_client_is_not_waited_for() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(near);
        let told = || -> RunningCopy { unreachable!() };
        answer(&far, &Control::default(), told).unwrap();
    }
}
