//! `longhaul remote --drive`: runs a copy with another host for somebody who
//! introduces the two and may then go.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use longhaul_engine::net::identity::Identity;
use longhaul_engine::net::principals::Principal;
use longhaul_engine::net::relay;

use super::channels;
use super::confined::Confined;
use super::follower;
use super::job::{self, Job};
use super::job_protocol::{self, Begin, Channel, JobEvent, Listed, Order, Reach, State};
use super::met::Introduction;
use super::words::with_unit;
use crate::arguments::{
    Arguments, BandwidthLimit, Command, CopyArguments, Ports, RemoteArguments, VerifyArguments,
};
use crate::commands::here::Here;
use crate::commands::{cp, verify};
use crate::messages::{Exit, Stop, finish, say};
use crate::remote::{detach, introduce, introduce_by_key, listen_for_channels, unbuffered_input};
use crate::report::Report;

/// How long what was said last may take to leave.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long whoever has a daemon run a job may take to introduce the other one,
/// where he vouches first, and to say what is to be copied.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Runs a job to its end.
///
/// # Errors
///
/// Where it could not be begun.
pub fn run(arguments: &RemoteArguments) -> Result<Exit, Stop> {
    let confined = Confined::read(arguments)?;
    let identity = Identity::ephemeral().map_err(local)?;
    // Without a port the other host has to have one; a daemon has.
    let listener = match arguments.ports == Ports::default() {
        _ if confined.is_some() => None,
        true => arguments.ports.listen().ok(),
        false => Some(arguments.ports.listen().map_err(local)?),
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
    let begun = parse(&begin).and_then(|work| match &confined {
        None => Ok((work, None)),
        Some(confined) => work.confined_to(confined, begin.reach),
    });
    // Whoever has no ssh that shows what is said here hears it so.
    let begun = begun.inspect_err(|stop| {
        let mut output = io::stdout().lock();
        let failed = JobEvent::failed(&stop.text, Some(stop.exit.code()));
        let said = job_protocol::send(&mut output, &failed);
        let _ = said.and_then(|()| output.flush());
    });
    let (asked, address) = match (begun, &confined) {
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
    let principal = confined.map(|confined| confined.principal());
    carry_out(&begin, (asked, principal), introduction)
}

/// What is to be done.
fn begin_of(input: impl Read) -> Result<Begin, Stop> {
    match job_protocol::receive(input).map_err(local)? {
        Some(Order::Begin(begin)) => Ok(begin),
        _ => Err(local("nobody said what is to be copied")),
    }
}

/// Standard input of a job at a daemon until it begins: whoever asked for it
/// has to say all that within a time, and else gives his place back.
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

    /// What comes from now on may take as long as it will.
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

/// Runs it as a job of this user's, or of a principal's.
fn carry_out(
    begin: &Begin,
    (asked, principal): (Work, Option<Arc<Principal>>),
    introduction: Introduction,
) -> Result<Exit, Stop> {
    let (job, control) = Job::create(begin).map_err(|error| {
        let text = "a copy that continues by itself keeps a record in ~/.local/state/longhaul \
                    of the host that runs it";
        local(format!("{text}: {error}"))
    })?;
    follower::accept(&job, control).map_err(local)?;
    let (input, output) = detach().map_err(local)?;
    let (channel, outward) = relay::join(input, output).map_err(local)?;
    let kept = [
        keep(&job, Channel::Output).map_err(local)?,
        keep(&job, Channel::Errors).map_err(local)?,
    ];
    // Whoever has gone before he knew its name does not want it.
    let exit = match job_protocol::send(&channel, &JobEvent::Named(job.name().to_owned())) {
        Ok(()) => {
            // Without a thread he hears that his channel ends, and attaches.
            let _ = follower::start(&job, channel);
            let named = begin.manifest.clone();
            finish(work(&job, (asked, principal), (introduction, named)))
        }
        Err(_) => Exit::Interrupted,
    };
    if begin.manifest.is_some() {
        job.conclude_manifest(matches!(exit, Exit::Done | Exit::Partial));
    }
    end(&job, kept, exit);
    outward.drain(LAST_WORDS);
    Ok(Exit::Done)
}

/// What a job does.
enum Work {
    Copy(Box<CopyArguments>),
    Verify(Box<VerifyArguments>),
}

impl Work {
    /// The same as a principal may have it, and where its other end is.
    fn confined_to(
        self,
        confined: &Confined,
        reach: Reach,
    ) -> Result<(Work, Option<SocketAddr>), Stop> {
        let (work, paths) = match self {
            Work::Copy(arguments) => {
                let arguments = confined.copy(*arguments)?;
                let paths = arguments.paths.clone();
                (Work::Copy(Box::new(arguments)), paths)
            }
            Work::Verify(arguments) => {
                let arguments = confined.verify(*arguments)?;
                let paths = vec![arguments.left.clone(), arguments.right.clone()];
                (Work::Verify(Box::new(arguments)), paths)
            }
        };
        Ok((work, confined.other_end(&paths, reach)?))
    }
}

/// What the words ask for.
fn parse(begin: &Begin) -> Result<Work, Stop> {
    let words = begin.words.iter();
    let words = words.map(|word| OsString::from_vec(with_unit(word)));
    let line = std::iter::once(OsString::from("longhaul")).chain(words);
    let usage = |error: &dyn std::fmt::Display| Stop::because(Exit::Usage, error);
    let parsed = Arguments::try_parse_from(line).map_err(|error| usage(&error))?;
    match parsed.command {
        Command::Cp(arguments) => Ok(Work::Copy(Box::new(arguments))),
        Command::Verify(arguments) => Ok(Work::Verify(Box::new(arguments))),
        _ => Err(usage(&"this is no copy")),
    }
}

fn work(
    job: &Arc<Job>,
    (mut work, principal): (Work, Option<Arc<Principal>>),
    (introduction, manifest): (Introduction, Option<String>),
) -> Result<Exit, Stop> {
    let manifest = manifest.map(|named| (job.manifest(), named));
    if let (Work::Copy(arguments), Some((file, _))) = (&mut work, &manifest) {
        arguments.manifest = Some(file.clone());
    }
    let report = match &work {
        Work::Copy(arguments) => Report::new(arguments.json, arguments.quiet, manifest)?
            .naming(arguments.verbose)
            .detailed(arguments.verbose)
            .bound_to(arguments.bwlimit),
        Work::Verify(arguments) => {
            Report::new(arguments.json, arguments.quiet, None)?.detailed(arguments.verbose)
        }
    };
    let outlet: Arc<Job> = Arc::clone(job);
    report.tell_progress(outlet);
    job.cancel_by(report.interrupter());
    let limiter = report.limiter();
    job.limit_by(
        move |rate| match BandwidthLimit::of_bytes_per_second(rate) {
            Ok(limit) => limiter(limit),
            // Less than any user may ask for.
            Err(_) => say("a rate that makes no sense was not taken"),
        },
    );
    let here = principal.map_or(Here::Anywhere, Here::Beneath);
    let mut task = match work {
        Work::Copy(arguments) => cp::task(*arguments)?,
        Work::Verify(arguments) => verify::task(&arguments, here.clone())?,
    };
    task.introduction = Some(introduction);
    task.here = here;
    task.run(&report)
}

/// From now on what this process says on one of its outputs is kept.
fn keep(job: &Arc<Job>, channel: Channel) -> io::Result<JoinHandle<()>> {
    let (pipe, into) = io::pipe()?;
    match channel {
        Channel::Output => rustix::stdio::dup2_stdout(&into)?,
        Channel::Errors => rustix::stdio::dup2_stderr(&into)?,
        // These are files from the beginning.
        Channel::Manifest | Channel::RawManifest => {}
    }
    let job = Arc::clone(job);
    let thread = std::thread::Builder::new().name("output".into());
    thread.spawn(move || job.keep_output(channel, pipe))
}

/// All that was said is kept, then how it ended, then those who follow hear it.
fn end(job: &Arc<Job>, kept: [JoinHandle<()>; 2], exit: Exit) {
    // Where it is written there is nobody to read it.
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
    job.wait_for_followers();
}

/// `longhaul remote --attach`: carries what is said to and by a job.
///
/// # Errors
///
/// Where the standard streams cannot be used.
pub fn attach(name: &str) -> Result<Exit, Stop> {
    crate::remote::greet_plainly()?;
    let (input, output) = detach().map_err(local)?;
    if let Ok(socket) = job::connect(name) {
        relay::carry_between(input, output, socket).map_err(local)?;
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

/// Why there is nothing to follow.
fn gone(listed: Option<Listed>) -> JobEvent {
    listed.map_or(JobEvent::Absent, JobEvent::Listed)
}

/// `longhaul remote --jobs`: tells the jobs of this user.
///
/// # Errors
///
/// Where they cannot be listed.
pub fn jobs() -> Result<Exit, Stop> {
    crate::remote::greet_plainly()?;
    let mut output = io::stdout().lock();
    for listed in job::list().map_err(local)? {
        job_protocol::send(&mut output, &JobEvent::Listed(listed)).map_err(local)?;
    }
    output.flush().map_err(local)?;
    Ok(Exit::Done)
}

/// What became of a job that is not there to be followed, for people.
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
    fn who_says_nothing_in_time_is_not_waited_for() {
        let (near, far) = UnixStream::pair().unwrap();
        let hasty = |until| Hasty {
            input: near.try_clone().unwrap(),
            until,
        };
        let mut buffer = [0; 2];
        let mut late = hasty(Instant::now());
        // Not even where he goes on byte by byte.
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
