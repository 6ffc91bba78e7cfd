//! Stores a user's jobs in the state directory and delivers their output to followers. Only the
//! user can read the directory:
//!
//! ```text
//! jobs/NAME/record    the job's description
//!           output    the output so far on standard output
//!           errors    the output so far on standard error
//!           manifest  the digests, once the copy has ended; also manifest.raw
//!           control   the socket for followers, while the job runs
//!           outcome   the exit code
//! ```

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_net::token::fill_random;
use longhaul_system::named_files::{kept, kept_directory, kept_to_read};

use super::job_protocol::{
    self, Begin, Channel, Follow, JobEvent, Listed, MAXIMUM_OUTPUT_BYTES, Order, ShownProgress,
    State, is_name,
};
use super::viewer::Outlet;
use crate::state::{keep, make_private, state_directory};

// tidy: long file because it is the life of one job.

/// Maximum size of each stored output, in bytes: events of a million files.
const MAXIMUM_KEPT_BYTES: u64 = 256 << 20;

/// Message that replaces further output on standard error.
const NO_MORE: &[u8] = b"longhaul: output from here on is not kept\n";

/// Maximum number of ended jobs that are stored.
const MAXIMUM_ENDED: usize = 100;

/// Maximum total size of ended jobs, in bytes.
const MAXIMUM_ENDED_BYTES: u64 = 1 << 30;

/// Time for which an ended job is stored: the same as for leftovers of its copy.
const KEPT_FOR: Duration = longhaul_engine::session::LEFTOVERS_EXPIRE;

/// Maximum number of names to try for a new job.
const TRIES: usize = 16;

/// A job that runs on this host or has ended on it.
pub struct Job {
    place: PathBuf,
    name: String,
    happened: Mutex<Happened>,
    changed: Condvar,
    cancel: OnceLock<Box<dyn Fn() + Send + Sync>>,
    limit: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
    /// Returns the current rate limit of the copy, in bytes per second.
    rate: OnceLock<Box<dyn Fn() -> Option<u64> + Send + Sync>>,
    /// Rate limit that was requested last, possibly before the copy could be limited.
    wanted: Mutex<Option<u64>>,
    /// True if the job was cancelled, possibly before the copy could be stopped.
    cancelled: AtomicBool,
}

/// Current state of a job, as followers receive it.
#[derive(Debug, Default)]
struct Happened {
    /// Number of bytes in each output file.
    said: [u64; CHANNELS.len()],
    running: bool,
    done_bytes: Option<u64>,
    line: Newest,
    event: Newest,
    /// If true, the summary follows, and no further progress is sent.
    over: bool,
    ended: Option<u8>,
    followers: usize,
}

/// The newest of a series of texts, and their number.
#[derive(Clone, Debug, Default)]
struct Newest {
    count: u64,
    text: String,
}

impl Newest {
    fn set(&mut self, text: String) {
        self.count += 1;
        self.text = text;
    }
}

/// Position of one follower in the job's output.
#[derive(Debug)]
pub struct Seen {
    said: [u64; CHANNELS.len()],
    shown: ShownProgress,
    running: bool,
    progress: u64,
    ended: bool,
    /// After this time without a message, the follower receives [`JobEvent::Alive`].
    alive_every: Option<Duration>,
    /// Set by another thread when the follower has disconnected.
    pub gone: Arc<AtomicBool>,
}

impl Seen {
    /// Creates the position of a follower that already has part of the output.
    pub fn new(follow: Follow, gone: Arc<AtomicBool>) -> Seen {
        // A follower that does not want the manifest counts as having all of it.
        let manifest = if follow.manifest { 0 } else { u64::MAX };
        Seen {
            said: [follow.output, follow.errors, manifest, manifest],
            shown: follow.progress,
            running: false,
            progress: 0,
            ended: false,
            alive_every: match follow.alive_seconds {
                0 => None,
                seconds => Some(Duration::from_secs(seconds.into())),
            },
            gone,
        }
    }
}

fn jobs_directory() -> io::Result<PathBuf> {
    Ok(state_directory()?.join("jobs"))
}

/// Calls `use_at` with a short path of the control socket in a directory. The directory's path may
/// have any length, although the system limits a socket's path to 107 bytes.
///
/// # Errors
///
/// Fails if there is no such directory, or with the error of `use_at`.
pub fn at_socket<T>(
    directory: &Path,
    use_at: impl FnOnce(PathBuf) -> io::Result<T>,
) -> io::Result<T> {
    let opened = kept_directory(directory)?;
    let short = format!("/proc/self/fd/{}/control", opened.as_raw_fd());
    use_at(PathBuf::from(short))
}

/// Connects to a job that runs on this host.
///
/// # Errors
///
/// Fails if no such job runs.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    if !is_name(name) {
        return Err(io::ErrorKind::NotFound.into());
    }
    connect_at(&jobs_directory()?.join(name))
}

fn connect_at(place: &Path) -> io::Result<UnixStream> {
    at_socket(place, UnixStream::connect)
}

fn record_of(place: &Path) -> Option<Listed> {
    match job_protocol::receive(kept_to_read(&place.join("record")).ok()?) {
        Ok(Some(JobEvent::Listed(listed))) => Some(listed),
        _ => None,
    }
}

fn outcome_of(place: &Path) -> Option<u8> {
    match job_protocol::receive(kept_to_read(&place.join("outcome")).ok()?) {
        Ok(Some(JobEvent::Ended(code))) => Some(code),
        _ => None,
    }
}

/// Maximum time that a running job may take to describe itself.
const DESCRIBES_WITHIN: Duration = Duration::from_secs(2);

/// Asks a running job to describe itself; `None` if it is busy.
fn description(socket: &UnixStream) -> Option<Listed> {
    socket.set_read_timeout(Some(DESCRIBES_WITHIN)).ok()?;
    socket.set_write_timeout(Some(DESCRIBES_WITHIN)).ok()?;
    job_protocol::send(socket, &Order::Describe).ok()?;
    match job_protocol::receive(socket) {
        Ok(Some(JobEvent::Listed(listed))) => Some(listed),
        _ => None,
    }
}

/// Returns the current description of one job.
fn listed_at(place: &Path) -> Option<Listed> {
    let mut listed = record_of(place)?;
    // Connect before the outcome is read, because the job may end between the two.
    let running = connect_at(place);
    let runs = running.is_ok();
    let described = running.ok().and_then(|socket| description(&socket));
    if let Some(described) = described.filter(|described| described.name == listed.name) {
        listed = described;
    } else if let Some(ended) = record_of(place) {
        // A job that has just ended has added its bytes to the record.
        listed = ended;
    }
    listed.state = match outcome_of(place) {
        Some(code) => State::Ended(code),
        None if runs => State::Running,
        None if listed.host == crate::client::owner::host_name() => State::Lost,
        None => State::Elsewhere,
    };
    Some(listed)
}

/// Lists all stored jobs of this user, the oldest first.
///
/// # Errors
///
/// Fails if the directory cannot be listed.
pub fn list() -> io::Result<Vec<Listed>> {
    let directory = jobs_directory()?;
    let names = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names = names.flatten().map(|name| name.file_name());
    let names = names.filter(|name| name.to_str().is_some_and(is_name));
    let mut listed: Vec<Listed> = names
        .filter_map(|name| listed_at(&directory.join(name)))
        .collect();
    listed.sort_by_key(|job| job.began);
    Ok(listed)
}

/// Removes ended jobs that are old, or too many, or too large.
fn prune() -> io::Result<()> {
    let directory = jobs_directory()?;
    let ended = list()?.into_iter();
    let ended = ended.filter(|job| matches!(job.state, State::Ended(_) | State::Lost));
    let ended = ended.map(|job| {
        let place = directory.join(&job.name);
        let bytes = said_at(&place).iter().sum();
        (place, job.began, bytes)
    });
    let ended: Vec<(PathBuf, u64, u64)> = ended.collect();
    for place in surplus(&ended, seconds_now()) {
        fs::remove_dir_all(place)?;
    }
    Ok(())
}

/// Returns the ended jobs to remove. Each entry of `ended`, the oldest first, is a directory, the
/// time when the job began (seconds since 1970) and its size in bytes.
fn surplus(ended: &[(PathBuf, u64, u64)], now: u64) -> Vec<&Path> {
    let oldest = now.saturating_sub(KEPT_FOR.as_secs());
    let (mut count, mut held) = (0, 0);
    let newest = ended.iter().rev();
    let gone = newest.filter(|(_, began, bytes)| {
        count += 1;
        held += bytes;
        count > MAXIMUM_ENDED || held > MAXIMUM_ENDED_BYTES || *began < oldest
    });
    gone.map(|(place, _, _)| place.as_path()).collect()
}

/// Returns the sizes of a job's output files, in bytes.
fn said_at(place: &Path) -> [u64; CHANNELS.len()] {
    CHANNELS.map(|channel| {
        let kept = fs::metadata(place.join(file_of(channel)));
        kept.map_or(0, |kept| kept.len())
    })
}

/// Returns the seconds since 1970, or 0 if the clock is set to an earlier time.
pub fn seconds_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

const CHANNELS: [Channel; 4] = [
    Channel::Output,
    Channel::Errors,
    Channel::Manifest,
    Channel::RawManifest,
];

/// Channels that a job writes to while it runs.
const OUTPUTS: [Channel; 2] = [Channel::Output, Channel::Errors];

fn index_of(channel: Channel) -> usize {
    match channel {
        Channel::Output => 0,
        Channel::Errors => 1,
        Channel::Manifest => 2,
        Channel::RawManifest => 3,
    }
}

fn file_of(channel: Channel) -> &'static str {
    match channel {
        Channel::Output => "output",
        Channel::Errors => "errors",
        Channel::Manifest => "manifest",
        Channel::RawManifest => "manifest.raw",
    }
}

impl Job {
    /// Creates a job of this process and the listener for its followers.
    ///
    /// # Errors
    ///
    /// Fails if the state directory cannot be written.
    pub fn create(begin: &Begin) -> io::Result<(Arc<Job>, UnixListener)> {
        make_private(&jobs_directory()?)?;
        // A job that cannot be removed does no harm.
        let _ = prune();
        let (name, place) = new_place()?;
        for channel in OUTPUTS {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.open(place.join(file_of(channel)))?;
        }
        let listener = at_socket(&place, UnixListener::bind)?;
        let listed = Listed {
            name: name.clone(),
            host: crate::client::owner::host_name(),
            from: begin.from.clone(),
            to: begin.to.clone(),
            began: seconds_now(),
            state: State::Running,
            compares: begin.compares,
            done_bytes: None,
            bwlimit_bytes_per_second: None,
        };
        keep_record(&place, listed)?;
        Ok((Arc::new(Job::at(place, name)), listener))
    }

    fn at(place: PathBuf, name: String) -> Job {
        Job {
            place,
            name,
            happened: Mutex::default(),
            changed: Condvar::new(),
            cancel: OnceLock::new(),
            limit: OnceLock::new(),
            rate: OnceLock::new(),
            wanted: Mutex::default(),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Reads an ended job from its files.
    ///
    /// # Errors
    ///
    /// Returns the job's description if it has not ended here, or `None` if there is no such job.
    pub fn ended(name: &str) -> Result<Arc<Job>, Option<Box<Listed>>> {
        let directory = jobs_directory().map_err(|_| None)?;
        if !is_name(name) {
            return Err(None);
        }
        let place = directory.join(name);
        let listed = listed_at(&place);
        let Some(State::Ended(code)) = listed.as_ref().map(|listed| listed.state) else {
            return Err(listed.map(Box::new));
        };
        let job = Job::at(place, name.to_owned());
        let said = said_at(&job.place);
        let mut happened = job.lock();
        happened.said = said;
        happened.ended = Some(code);
        drop(happened);
        Ok(Arc::new(job))
    }

    /// Returns the job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> MutexGuard<'_, Happened> {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, happened: MutexGuard<'a, Happened>) -> MutexGuard<'a, Happened> {
        let waited = self.changed.wait(happened);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the output from a pipe to the channel's file, until the pipe ends.
    pub fn keep_output(&self, channel: Channel, mut pipe: impl Read) {
        let path = self.place.join(file_of(channel));
        let mut file = kept(OpenOptions::new().append(true), &path).ok();
        let mut buffer = vec![0; MAXIMUM_OUTPUT_BYTES];
        // The pipe is read to its end even if the file cannot be written: the copy must not block
        // on it.
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let Some(open) = &mut file else {
                continue;
            };
            let full = self.lock().said[index_of(channel)] >= MAXIMUM_KEPT_BYTES;
            let bytes: &[u8] = match (full, channel) {
                (false, _) => &buffer[..count],
                (true, Channel::Errors) => NO_MORE,
                (true, _) => b"",
            };
            let written = open.write_all(bytes).is_ok();
            if written {
                self.lock().said[index_of(channel)] += bytes.len() as u64;
                self.changed.notify_all();
            }
            if full || !written {
                file = None;
            }
        }
    }

    /// Returns the path of the job's manifest.
    pub fn manifest(&self) -> PathBuf {
        self.place.join(file_of(Channel::Manifest))
    }

    /// Makes a whole manifest available to followers, or removes an incomplete one.
    pub fn conclude_manifest(&self, whole: bool) {
        for channel in [Channel::Manifest, Channel::RawManifest] {
            let file = self.place.join(file_of(channel));
            if whole {
                let bytes = fs::metadata(file).map_or(0, |kept| kept.len());
                self.lock().said[index_of(channel)] = bytes;
            } else {
                // The job started without these files.
                drop(fs::remove_file(file));
            }
        }
        self.changed.notify_all();
    }

    /// Waits for the next event that a follower has not received, and returns it. `None` if no
    /// event will follow or the follower has disconnected.
    pub fn next(&self, seen: &mut Seen) -> Option<JobEvent> {
        let until = seen.alive_every.map(|every| Instant::now() + every);
        let mut happened = self.lock();
        loop {
            if seen.ended || seen.gone.load(Ordering::Relaxed) {
                return None;
            }
            let behind = |channel: &Channel| {
                let at = index_of(*channel);
                seen.said[at] < happened.said[at]
            };
            if let Some(channel) = CHANNELS.into_iter().find(behind) {
                drop(happened);
                return self.read(channel, seen);
            }
            if happened.running && !std::mem::replace(&mut seen.running, true) {
                return Some(JobEvent::Running);
            }
            if let Some(code) = happened.ended {
                seen.ended = true;
                return Some(JobEvent::Ended(code));
            }
            let newest = match seen.shown {
                _ if happened.over => None,
                ShownProgress::None => None,
                ShownProgress::Line => Some(&happened.line),
                ShownProgress::Json => Some(&happened.event),
            };
            if let Some(newest) = newest.filter(|newest| newest.count > seen.progress) {
                seen.progress = newest.count;
                return Some(JobEvent::Progress(newest.text.clone()));
            }
            happened = match until {
                None => self.wait(happened),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Some(JobEvent::Alive);
                    }
                    let waited = self.changed.wait_timeout(happened, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Reads the next part of an output, and advances the follower's position.
    fn read(&self, channel: Channel, seen: &mut Seen) -> Option<JobEvent> {
        let at = seen.said[index_of(channel)];
        let mut bytes = vec![0; MAXIMUM_OUTPUT_BYTES];
        let file = kept_to_read(&self.place.join(file_of(channel))).ok()?;
        let count = file
            .read_at(&mut bytes, at)
            .ok()
            .filter(|count| *count > 0)?;
        bytes.truncate(count);
        seen.said[index_of(channel)] += count as u64;
        Some(JobEvent::Output(channel, at, bytes))
    }

    /// Wakes all waiting followers so that they check their state again.
    pub fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Sets the function that ends the copy.
    pub fn cancel_by(&self, cancel: impl Fn() + Send + Sync + 'static) {
        // The function is set once per job.
        let _ = self.cancel.set(Box::new(cancel));
        if self.cancelled.load(Ordering::SeqCst) {
            self.cancel();
        }
    }

    /// Sets the function that limits the copy's rate.
    pub fn limit_by(&self, limit: impl Fn(u64) + Send + Sync + 'static) {
        // The function is set once per job.
        let _ = self.limit.set(Box::new(limit));
        self.bind(self.wanted().as_ref());
    }

    /// Sets the function that returns the copy's current rate limit, in bytes per second.
    pub fn rate_by(&self, rate: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        // The function is set once per job.
        let _ = self.rate.set(Box::new(rate));
    }

    /// Returns the current description of a running job. `None` if its record cannot be read.
    pub fn describe(&self) -> Option<Listed> {
        let listed = record_of(&self.place)?;
        Some(Listed {
            done_bytes: self.lock().done_bytes,
            bwlimit_bytes_per_second: self.rate.get().and_then(|rate| rate()),
            ..listed
        })
    }

    fn wanted(&self) -> MutexGuard<'_, Option<u64>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the job to this many bytes per second, from now on or once it runs; 0: no limit.
    pub fn limit(&self, bytes_per_second: u64) {
        let mut wanted = self.wanted();
        *wanted = Some(bytes_per_second);
        // The lock is held so that of two concurrent requests the later one's rate applies.
        self.bind(wanted.as_ref());
    }

    fn bind(&self, wanted: Option<&u64>) {
        if let (Some(limit), Some(rate)) = (self.limit.get(), wanted) {
            limit(*rate);
        }
    }

    /// Ends the job if it runs.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some(cancel) = self.cancel.get() {
            cancel();
        }
    }

    /// Records the exit code of the job and informs the followers.
    pub fn end(&self, code: u8) {
        let described = self.describe().map(|listed| Listed {
            bwlimit_bytes_per_second: None,
            ..listed
        });
        if let Some(listed) = described {
            // If this fails, only the list lacks the bytes.
            let _ = keep_record(&self.place, listed);
        }
        let kept = job_protocol::frame_of(&JobEvent::Ended(code))
            .and_then(|outcome| keep(&self.place.join("outcome"), &outcome));
        // If this fails, the job counts as killed, and the same command resumes the copy.
        drop(kept);
        self.lock().ended = Some(code);
        self.changed.notify_all();
    }

    /// Adds a follower; returns false if there are `most` already.
    pub fn enter(&self, most: usize) -> bool {
        let mut happened = self.lock();
        let fits = happened.followers < most;
        happened.followers += usize::from(fits);
        fits
    }

    /// Removes a follower.
    pub fn leave(&self) {
        self.lock().followers -= 1;
        self.changed.notify_all();
    }

    /// Waits until all followers have left. A follower leaves after the end, or when its connection
    /// fails.
    pub fn wait_for_followers(&self) {
        let mut happened = self.lock();
        while happened.followers > 0 {
            happened = self.wait(happened);
        }
    }
}

fn keep_record(place: &Path, listed: Listed) -> io::Result<()> {
    let frame = job_protocol::frame_of(&JobEvent::Listed(listed))?;
    keep(&place.join("record"), &frame)
}

/// Lists the jobs of this user that run on this host.
///
/// # Errors
///
/// The same as [`list`].
pub fn running() -> io::Result<Vec<Listed>> {
    let jobs = list()?.into_iter();
    Ok(jobs.filter(|job| job.state == State::Running).collect())
}

/// Returns the record of a job of this host that was killed; `None` if it still runs or has an
/// outcome.
pub fn killed(name: &str) -> Option<Listed> {
    let directory = jobs_directory().ok().filter(|_| is_name(name))?;
    listed_at(&directory.join(name)).filter(|job| job.state == State::Lost)
}

/// Creates the directory of a new job, and returns its unused name and the directory.
fn new_place() -> io::Result<(String, PathBuf)> {
    let directory = jobs_directory()?;
    let mut tries = 0;
    loop {
        let mut random = [0; 4];
        fill_random(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = job_protocol::name_of(random);
        let place = directory.join(&name);
        tries += 1;
        match DirBuilder::new().mode(0o700).create(&place) {
            Ok(()) => return Ok((name, place)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

impl Outlet for Job {
    fn begun(&self) {
        self.lock().running = true;
        self.changed.notify_all();
    }

    fn line(&self, line: String) {
        self.lock().line.set(line);
        self.changed.notify_all();
    }

    fn event(&self, event: String) {
        self.lock().event.set(event);
        self.changed.notify_all();
    }

    fn done_bytes(&self, bytes: u64) {
        self.lock().done_bytes = Some(bytes);
    }

    fn over(&self) {
        self.lock().over = true;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a job whose state is kept in this directory.
    pub(in super::super) fn job(place: &Path) -> Job {
        for channel in OUTPUTS {
            fs::File::create(place.join(file_of(channel))).unwrap();
        }
        Job::at(place.to_owned(), "00000000".into())
    }

    const FOLLOW: Follow = Follow {
        output: 0,
        errors: 0,
        progress: ShownProgress::None,
        manifest: true,
        alive_seconds: 0,
    };

    fn seen(shown: ShownProgress) -> Seen {
        let follow = Follow {
            progress: shown,
            ..FOLLOW
        };
        Seen::new(follow, Arc::default())
    }

    #[test]
    fn a_late_client_receives_all_output() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path());
        let long = vec![b'x'; MAXIMUM_OUTPUT_BYTES + 1];
        job.keep_output(Channel::Output, long.as_slice());
        job.begun();
        job.line("half".into());
        job.keep_output(Channel::Errors, &b"why"[..]);
        let mut late = seen(ShownProgress::Line);
        let mut output = Vec::new();
        for at in [0, MAXIMUM_OUTPUT_BYTES as u64] {
            let Some(JobEvent::Output(Channel::Output, said_at, bytes)) = job.next(&mut late)
            else {
                panic!("no output");
            };
            assert_eq!(said_at, at);
            output.extend(bytes);
        }
        assert_eq!(output, long);
        let why = JobEvent::Output(Channel::Errors, 0, b"why".to_vec());
        assert_eq!(job.next(&mut late), Some(why));
        assert_eq!(job.next(&mut late), Some(JobEvent::Running));
        assert_eq!(job.next(&mut late), Some(JobEvent::Progress("half".into())));
        job.line("more".into());
        job.over();
        job.end(3);
        assert_eq!(job.next(&mut late), Some(JobEvent::Ended(3)));
        assert_eq!(job.next(&mut late), None);
        assert_eq!(outcome_of(place.path()), Some(3));
    }

    #[test]
    fn a_running_job_describes_itself_and_an_ended_one_is_read() {
        let place = tempfile::tempdir().unwrap();
        let job = Arc::new(job(place.path()));
        let listed = Listed {
            name: "00000000".into(),
            host: crate::client::owner::host_name(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state: State::Running,
            compares: false,
            done_bytes: None,
            bwlimit_bytes_per_second: None,
        };
        keep_record(place.path(), listed.clone()).unwrap();
        assert_eq!(listed_at(place.path()).unwrap().state, State::Lost);
        let listener = at_socket(place.path(), UnixListener::bind).unwrap();
        let _door = super::super::follower::Door::open(&job, listener).unwrap();
        job.rate_by(|| Some(5000));
        job.done_bytes(9);
        let now = listed_at(place.path()).unwrap();
        assert_eq!(
            (now.state, now.done_bytes, now.bwlimit_bytes_per_second),
            (State::Running, Some(9), Some(5000))
        );
        job.done_bytes(12);
        job.end(0);
        fs::remove_file(place.path().join("control")).unwrap();
        let ended = Listed {
            state: State::Ended(0),
            done_bytes: Some(12),
            ..listed
        };
        assert_eq!(listed_at(place.path()), Some(ended));
    }

    #[test]
    fn a_manifest_is_sent_once_it_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path());
        fs::write(job.manifest(), "digest  name\n").unwrap();
        job.conclude_manifest(true);
        job.end(0);
        let told = JobEvent::Output(Channel::Manifest, 0, b"digest  name\n".to_vec());
        assert_eq!(job.next(&mut seen(ShownProgress::None)), Some(told));
        let mut other = Seen::new(
            Follow {
                manifest: false,
                ..FOLLOW
            },
            Arc::default(),
        );
        assert_eq!(job.next(&mut other), Some(JobEvent::Ended(0)));
        job.conclude_manifest(false);
        assert!(!job.manifest().exists());
    }

    #[test]
    fn a_job_cancelled_before_it_starts_does_not_run() {
        let place = tempfile::tempdir().unwrap();
        let (job, count) = (job(place.path()), Arc::new(Mutex::new(0)));
        job.cancel();
        let counted = Arc::clone(&count);
        job.cancel_by(move || *counted.lock().unwrap() += 1);
        assert_eq!(*count.lock().unwrap(), 1);
    }

    #[test]
    fn a_rate_set_before_the_start_applies_then() {
        let place = tempfile::tempdir().unwrap();
        let (job, rates) = (job(place.path()), Arc::new(Mutex::new(Vec::new())));
        job.limit(5000);
        job.limit(7000);
        let kept = Arc::clone(&rates);
        job.limit_by(move |rate| kept.lock().unwrap().push(rate));
        assert_eq!(*rates.lock().unwrap(), [7000]);
        job.limit(0);
        assert_eq!(*rates.lock().unwrap(), [7000, 0]);
    }

    #[test]
    fn the_newest_jobs_are_kept_and_not_more_than_fit() {
        let now = 100 * KEPT_FOR.as_secs();
        let of = |began, bytes| (PathBuf::from(format!("{began}")), began, bytes);
        let many: Vec<_> = (0..=MAXIMUM_ENDED as u64)
            .map(|at| of(now + at, 1))
            .collect();
        assert_eq!(surplus(&many, now), [many[0].0.as_path()]);
        let large = [of(now, 1), of(now + 1, MAXIMUM_ENDED_BYTES), of(now + 2, 1)];
        assert_eq!(surplus(&large, now), [&large[1].0, &large[0].0]);
        let old = [of(now - KEPT_FOR.as_secs() - 1, 0), of(now, 0)];
        assert_eq!(surplus(&old, now), [&old[0].0]);
    }

    #[test]
    fn a_client_receives_signs_of_life_on_request() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path());
        let follow = Follow {
            alive_seconds: 1,
            ..FOLLOW
        };
        let mut waits = Seen::new(follow, Arc::default());
        assert_eq!(job.next(&mut waits), Some(JobEvent::Alive));
        job.end(0);
        assert_eq!(job.next(&mut waits), Some(JobEvent::Ended(0)));
    }

    #[test]
    fn a_disconnected_client_is_sent_no_events() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path());
        let mut gone = seen(ShownProgress::None);
        gone.gone.store(true, Ordering::Relaxed);
        assert_eq!(job.next(&mut gone), None);
        assert!(job.enter(1) && !job.enter(1));
        job.leave();
        job.wait_for_followers();
    }
}
