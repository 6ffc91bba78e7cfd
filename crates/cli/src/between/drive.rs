//! `longhaul remote --drive`: runs a copy with another host for somebody who
//! introduces the two and may then go.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Parser;
use longhaul_engine::net::identity::Identity;
use longhaul_engine::net::relay;

use super::follower;
use super::job::{self, Job};
use super::met::Introduction;
use super::speech::{self, Begin, Channel, Listed, Order, State, Told};
use crate::arguments::{
    Arguments, Command, CopyArguments, Ports, RemoteArguments, VerifyArguments,
};
use crate::commands::{cp, verify};
use crate::messages::{Exit, Stop, finish};
use crate::remote::{detach, introduce, listen_for_channels, unbuffered_input};
use crate::report::Report;

/// How long what was said last may take to leave.
const LAST_WORDS: Duration = Duration::from_secs(10);

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Runs a job to its end.
///
/// # Errors
///
/// Where it could not be begun.
pub fn run(arguments: &RemoteArguments) -> Result<Exit, Stop> {
    let identity = Identity::ephemeral().map_err(local)?;
    // Without a port the other host has to have one.
    let listener = match arguments.ports == Ports::default() {
        true => arguments.ports.listen().ok(),
        false => Some(arguments.ports.listen().map_err(local)?),
    };
    let channels = listen_for_channels();
    let name = channels.as_ref().map(|(name, _)| name.clone());
    let other = introduce(&identity, listener.as_ref(), name)?;
    let heard = speech::hear(unbuffered_input().map_err(local)?).map_err(local)?;
    let Some(Order::Begin(begin)) = heard else {
        return Err(local("nobody said what is to be copied"));
    };
    let asked = parse(&begin)?;
    let introduction = Introduction {
        identity,
        name: begin.host.clone(),
        other,
        reach: begin.reach,
        listener,
        channels: channels.map(|(_, listener)| listener),
    };
    let (job, control) = Job::create(&begin.from, &begin.to).map_err(|error| {
        let text = "a copy that shall go on by itself keeps a record in ~/.local/state/longhaul \
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
    let exit = match speech::say(&channel, &Told::Named(job.name().to_owned())) {
        Ok(()) => {
            // Without a thread he hears that his channel ends, and attaches.
            let _ = follower::start(&job, channel);
            finish(work(&job, asked, introduction))
        }
        Err(_) => Exit::Interrupted,
    };
    end(&job, kept, exit);
    outward.drain(LAST_WORDS);
    Ok(Exit::Done)
}

/// What a job does.
enum Work {
    Copy(Box<CopyArguments>),
    Verify(Box<VerifyArguments>),
}

/// What the words ask for.
fn parse(begin: &Begin) -> Result<Work, Stop> {
    let words = begin.words.iter();
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    let line = std::iter::once(OsString::from("longhaul")).chain(words);
    match Arguments::try_parse_from(line).map_err(local)?.command {
        Command::Cp(arguments) => Ok(Work::Copy(Box::new(arguments))),
        Command::Verify(arguments) => Ok(Work::Verify(Box::new(arguments))),
        _ => Err(local("this is no copy")),
    }
}

fn work(job: &Arc<Job>, work: Work, introduction: Introduction) -> Result<Exit, Stop> {
    let report = match &work {
        Work::Copy(arguments) => Report::new(arguments.json, arguments.quiet, None)?
            .naming(arguments.verbose)
            .bound_to(arguments.bwlimit),
        Work::Verify(arguments) => Report::new(arguments.json, arguments.quiet, None)?,
    };
    let outlet: Arc<Job> = Arc::clone(job);
    report.tell_progress(outlet);
    job.cancel_by(report.interrupter());
    let mut task = match work {
        Work::Copy(arguments) => cp::task(*arguments)?,
        Work::Verify(arguments) => verify::task(&arguments)?,
    };
    task.introduction = Some(introduction);
    task.run(&report)
}

/// From now on what this process says on one of its outputs is kept.
fn keep(job: &Arc<Job>, channel: Channel) -> io::Result<JoinHandle<()>> {
    let (pipe, into) = io::pipe()?;
    match channel {
        Channel::Output => rustix::stdio::dup2_stdout(&into)?,
        Channel::Errors => rustix::stdio::dup2_stderr(&into)?,
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
        Err(listed) => speech::say(&channel, &gone(name, listed)),
    };
    drop(channel);
    outward.drain(LAST_WORDS);
    told.map_err(local)?;
    Ok(Exit::Done)
}

/// Why there is nothing to follow.
fn gone(name: &str, listed: Option<Listed>) -> Told {
    match listed {
        Some(listed) => Told::Listed(listed),
        None => Told::Failed(format!("there is no job {name} of this user")),
    }
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
        speech::say(&mut output, &Told::Listed(listed)).map_err(local)?;
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
                speech::shown(&listed.host)
            ),
        ),
        State::Lost | State::Running | State::Ended(_) => Stop::new(
            Exit::Connection,
            format!(
                "the job {name} was killed, or its host was: the same command goes on where it \
                 ended"
            ),
        ),
    }
}

/// Waits for the end of a channel.
pub fn wait_for_end(mut channel: &UnixStream) {
    let mut buffer = [0; 4096];
    while let Ok(1..) = channel.read(&mut buffer) {}
}
