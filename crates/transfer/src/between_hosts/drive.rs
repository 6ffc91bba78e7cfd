//! Runs a copy with another host as a job. The client that introduces the two hosts may disconnect
//! afterwards.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_net::identity::Identity;
use longhaul_net::relay;

use super::channels;
use super::confined::Confined;
use super::follower::{self, Door};
use super::introduced_peer::Introduction;
use super::job::{self, Job};
use super::job_protocol::{self, Begin, Channel, JobEvent, Listed, Order, State};
use super::viewer::{JobOutput, Outlet, Rendering};
use crate::about::About;
use crate::client::local_paths::Here;
use crate::client::observer::Control;
use crate::client::run::{self, Place};
use crate::console::say;
use crate::rate_limit::BandwidthLimit;
use crate::remote_process::RemoteProcessSettings;
use crate::remote_process::{
    detach, introduce, introduce_by_key, listen_for_channels, unbuffered_input,
};
use crate::spec::{TransferSpec, ValidSpec};
use crate::stop::{Exit, Stop};

/// Time limit for delivering the last messages.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Time limit for a client of a daemon to vouch for the job, introduce the other daemon, and send
/// the specification.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Runs a job to its end.
///
/// # Errors
///
/// Fails if the job cannot be started.
pub fn run(arguments: &RemoteProcessSettings, rendering: &Rendering) -> Result<Exit, Stop> {
    let confined = Confined::read(arguments)?;
    let identity = Identity::ephemeral().map_err(local)?;
    // If no port is free, the other host must have one. A daemon always has one.
    let listener = match confined {
        Some(_) => None,
        None => arguments.ports.listen_if_free().map_err(local)?,
    };
    let channels = match (&confined, &arguments.channels) {
        (None, _) => listen_for_channels(),
        (Some(_), Some(place)) => Some(channels::listen(place).map_err(local)?),
        (Some(_), None) => None,
    };
    let name = channels.as_ref().map(|(name, _)| name.clone());
    let (other, begin) = match &confined {
        None => {
            let other = introduce(&identity, listener.as_ref(), name)?;
            (other, begin_of(unbuffered_input().map_err(local)?)?)
        }
        Some(_) => {
            let mut input = Hasty::of_input().map_err(local)?;
            let other = introduce_by_key(&identity, name, &mut input)?;
            let begin = begin_of(&mut input)?;
            input.no_more().map_err(local)?;
            (other, begin)
        }
    };
    let begun = spec_for_others(&begin).and_then(|spec| match &confined {
        None => Ok((spec, None)),
        Some(confined) => confined.confine(spec, begin.reach),
    });
    // A client of a daemon cannot see standard error, so the failure is sent as an event.
    let begun = begun.inspect_err(report_failure);
    let (spec, address) = match (begun, &confined) {
        (Err(stop), Some(confined)) => {
            // Standard error is the daemon's log.
            confined.log(&format!("a job was refused: {}", stop.text));
            return Ok(stop.exit);
        }
        (begun, _) => begun?,
    };
    let introduction = Introduction {
        identity,
        name: begin.host.clone(),
        other,
        reach: begin.reach,
        listener,
        channels: channels.map(|(_, listener)| listener),
        address,
    };
    let here = match confined {
        None => Here::Anywhere,
        Some(confined) => {
            let audit = confined.begin_audit(&spec).inspect_err(report_failure)?;
            Here::Beneath(confined.principal(), audit)
        }
    };
    let place = Place {
        here,
        introduction: Some(introduction),
        remembers: true,
    };
    carry_out(&begin, (spec, place), rendering)
}

/// Runs a job between this host and another one, for the command that started this process.
///
/// # Errors
///
/// Fails if the job cannot be started.
pub fn run_own(rendering: &Rendering) -> Result<Exit, Stop> {
    let begin = begin_of(unbuffered_input().map_err(local)?)?;
    let spec = spec_of(&begin)?;
    let place = Place {
        remembers: true,
        ..Place::default()
    };
    carry_out(&begin, (spec, place), rendering)
}

/// Reports as an event why a job cannot begin.
fn report_failure(stop: &Stop) {
    let mut output = io::stdout().lock();
    let failed = JobEvent::failed(&stop.text, Some(stop.exit.code()));
    let said = job_protocol::send(&mut output, &failed);
    let _ = said.and_then(|()| output.flush());
}

/// Reads the order to begin a job.
fn begin_of(input: impl Read) -> Result<Begin, Stop> {
    match job_protocol::receive(input).map_err(local)? {
        Some(Order::Begin(begin)) => Ok(begin),
        _ => Err(local("the specification of the copy is missing")),
    }
}

/// Standard input of a job at a daemon until it begins. The client must send everything within a
/// time limit, or the job ends.
struct Hasty {
    input: UnixStream,
    until: Instant,
}

impl Hasty {
    fn of_input() -> io::Result<Hasty> {
        Ok(Hasty {
            input: UnixStream::from(OwnedFd::from(unbuffered_input()?)),
            until: Instant::now() + BEGINS_WITHIN,
        })
    }

    /// Removes the time limit from further reads.
    fn no_more(self) -> io::Result<()> {
        self.input.set_read_timeout(None)
    }
}

impl Read for Hasty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.input.set_read_timeout(Some(left))?;
        self.input.read(buffer)
    }
}

/// Reports that a job's record cannot be written; without it the job could not be found again.
fn unrecorded(error: &io::Error) -> Stop {
    local(format!(
        "a copy that continues by itself keeps a record in ~/.local/state/longhaul of the host that \
         runs it: {error}"
    ))
}

/// Reports why a job cannot begin to the command that waits for its name, on standard output. That
/// command shows the text, and ends with the exit code.
fn refuse(stop: Stop) -> Result<Exit, Stop> {
    let failed = JobEvent::Failed(stop.text.clone(), Some(stop.exit.code()));
    let mut output = io::stdout().lock();
    let told = job_protocol::send(&mut output, &failed).and_then(|()| output.flush());
    match told {
        Ok(()) => Ok(stop.exit),
        // The command has disconnected: the log keeps the reason.
        Err(_) => Err(stop),
    }
}

/// Runs the copy as a job of this user or of a principal.
fn carry_out(
    begin: &Begin,
    (spec, place): (ValidSpec, Place),
    rendering: &Rendering,
) -> Result<Exit, Stop> {
    let (job, control) = match Job::create(begin) {
        Ok(created) => created,
        Err(error) => return refuse(unrecorded(&error)),
    };
    let door = Door::open(&job, control).map_err(local)?;
    let (input, output) = detach().map_err(local)?;
    let (channel, outward) = relay::join(input, output).map_err(local)?;
    let kept = [
        keep(&job, Channel::Output).map_err(local)?,
        keep(&job, Channel::Errors).map_err(local)?,
    ];
    // A client that disconnects before it knows the job's name cannot find the job again.
    let exit = match job_protocol::send(&channel, &JobEvent::Named(job.name().to_owned())) {
        Ok(()) => {
            // Without a thread the follower's channel closes, and the client attaches again.
            let _ = follower::start(&job, channel);
            match work(&job, begin, (spec, place), rendering) {
                Ok(exit) => exit,
                Err(stop) => {
                    say(&stop.text);
                    stop.exit
                }
            }
        }
        Err(_) => Exit::Interrupted,
    };
    if begin.manifest.is_some() {
        job.conclude_manifest(matches!(exit, Exit::Done | Exit::Partial));
    }
    end(&job, kept, exit, door);
    outward.drain(LAST_WORDS);
    Ok(Exit::Done)
}

/// Returns the specification from a client at another host, which may name no files here except
/// those of the copy.
fn spec_for_others(begin: &Begin) -> Result<ValidSpec, Stop> {
    if begin.report.is_some() || begin.log.is_some() {
        Err(Stop::new(
            Exit::Usage,
            "a job of another host writes no report and no log",
        ))
    } else {
        spec_of(begin)
    }
}

/// Parses and validates the specification of a job.
fn spec_of(begin: &Begin) -> Result<ValidSpec, Stop> {
    let spec: TransferSpec = serde_json::from_str(&begin.spec).map_err(|error| {
        Stop::because(Exit::Usage, format!("no specification of a copy: {error}"))
    })?;
    spec.validate()
        .map_err(|error| Stop::because(Exit::Usage, error))
}

fn as_path(name: &[u8]) -> PathBuf {
    OsStr::from_bytes(name).into()
}

fn work(
    job: &Arc<Job>,
    begin: &Begin,
    (spec, place): (ValidSpec, Place),
    rendering: &Rendering,
) -> Result<Exit, Stop> {
    let control = Control::default();
    let outlet: Arc<dyn Outlet> = job.clone();
    let manifest = begin.manifest.clone();
    let observer = rendering(JobOutput {
        shown: begin.shown,
        about: About::new(
            spec.options.operation,
            [begin.from.clone(), begin.to.clone()],
            begin.shown.verbose,
        ),
        manifest: manifest.map(|named| (job.manifest(), named)),
        accounts: [&begin.report, &begin.log].map(|file| file.as_deref().map(|name| as_path(name))),
        outlet,
        control: control.clone(),
    })?;
    let cancelling = control.clone();
    job.cancel_by(move || {
        cancelling.cancel();
    });
    let limiting = control.clone();
    job.limit_by(
        move |rate| match BandwidthLimit::of_bytes_per_second(rate) {
            Ok(limit) => limiting.bind(limit),
            // The rate is lower than any valid limit.
            Err(_) => say("a rate that makes no sense was not taken"),
        },
    );
    let limited = control.clone();
    job.rate_by(move || limited.limit().rate.map(BandwidthLimit::bytes_per_second));
    run::run(spec, place, &control, &observer)
}

/// Redirects one of this process's outputs to the job's file.
fn keep(job: &Arc<Job>, channel: Channel) -> io::Result<JoinHandle<()>> {
    let (pipe, into) = io::pipe()?;
    match channel {
        Channel::Output => rustix::stdio::dup2_stdout(&into)?,
        Channel::Errors => rustix::stdio::dup2_stderr(&into)?,
        // The job writes these files directly.
        Channel::Manifest | Channel::RawManifest => {}
    }
    let job = Arc::clone(job);
    let thread = std::thread::Builder::new().name("output".into());
    thread.spawn(move || job.keep_output(channel, pipe))
}

/// Stores the remaining output, records the exit code, and waits until all followers have left.
fn end(job: &Arc<Job>, kept: [JoinHandle<()>; 2], exit: Exit, door: Door) {
    // A failed write to standard output could be reported to no one.
    let _ = io::stdout().flush();
    let nothing = std::fs::File::options().write(true).open("/dev/null");
    let closed = nothing.and_then(|nothing| {
        rustix::stdio::dup2_stdout(&nothing)?;
        Ok(rustix::stdio::dup2_stderr(&nothing)?)
    });
    if closed.is_ok() {
        for thread in kept {
            let _ = thread.join();
        }
    }
    job.end(exit.code());
    door.close();
    job.wait_for_followers();
}

/// Carries messages between a client and a job.
///
/// # Errors
///
/// Fails if the standard streams cannot be used.
pub fn attach(name: &str) -> Result<Exit, Stop> {
    crate::remote_process::greet_plainly()?;
    let (input, output) = detach().map_err(local)?;
    if let Ok(socket) = job::connect(name) {
        let mut last = std::fs::File::from(output.try_clone().map_err(local)?);
        relay::carry_between(input, output, socket).map_err(local)?;
        if let Some(killed) = job::killed(name) {
            // A job that ends in order has reported its end.
            job_protocol::send(&mut last, &JobEvent::Listed(killed)).map_err(local)?;
        }
        return Ok(Exit::Done);
    }
    let (channel, outward) = relay::join(input, output).map_err(local)?;
    let told = match Job::ended(name) {
        Ok(job) => follower::serve(&job, &channel),
        Err(listed) => job_protocol::send(&channel, &gone(listed)),
    };
    drop(channel);
    outward.drain(LAST_WORDS);
    told.map_err(local)?;
    Ok(Exit::Done)
}

/// Returns the answer for a job that cannot be followed.
fn gone(listed: Option<Box<Listed>>) -> JobEvent {
    listed.map_or(JobEvent::Absent, |listed| JobEvent::Listed(*listed))
}

/// Lists the jobs of this user.
///
/// # Errors
///
/// Fails if the jobs cannot be listed.
pub fn jobs() -> Result<Exit, Stop> {
    crate::remote_process::greet_plainly()?;
    let mut output = io::stdout().lock();
    for listed in job::list().map_err(local)? {
        job_protocol::send(&mut output, &JobEvent::Listed(listed)).map_err(local)?;
    }
    output.flush().map_err(local)?;
    Ok(Exit::Done)
}

/// Explains to the user why a job cannot be followed.
pub fn why_gone(listed: &Listed) -> Stop {
    let name = &listed.name;
    match listed.state {
        State::Elsewhere => Stop::new(
            Exit::Connection,
            format!(
                "the job {name} runs on {}, which shares its home with the host that was asked: \
                 attach there",
                listed.host
            ),
        ),
        State::Lost | State::Running | State::Ended(_) => Stop::new(
            Exit::Connection,
            format!(
                "the job {name} was killed, or its host was: the same command resumes \
                 it"
            ),
        ),
    }
}

/// Waits for the end of a channel.
pub fn wait_for_end(mut channel: &UnixStream) {
    let mut buffer = [0; 4096];
    while let Ok(1..) = channel.read(&mut buffer) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_silent_beyond_its_time_is_given_up() {
        let (near, far) = UnixStream::pair().unwrap();
        let hasty = |until| Hasty {
            input: near.try_clone().unwrap(),
            until,
        };
        let mut buffer = [0; 2];
        let mut late = hasty(Instant::now());
        // The time limit holds even if the client sends single bytes.
        (&far).write_all(b"ab").unwrap();
        let error = late.read(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut early = hasty(Instant::now() + BEGINS_WITHIN);
        early.read_exact(&mut buffer).unwrap();
        assert!(near.read_timeout().unwrap().is_some());
        early.no_more().unwrap();
        assert_eq!(near.read_timeout().unwrap(), None);
    }
}
