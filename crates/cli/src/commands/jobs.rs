//! `longhaul jobs`, `attach`, `cancel`: copies between two remote hosts that
//! run without whoever started them.

use std::io::Read;
use std::os::unix::net::UnixStream;

use longhaul_proto::handshake::Task;
use longhaul_units::rfc3339;
use serde_json::{Value, json};

use super::connection::Daemon;
use crate::arguments::{
    AttachArguments, BandwidthLimit, CancelArguments, ConnectionArguments, Expiry, JobsArguments,
    Ports, SshArguments,
};
use crate::between::daemons;
use crate::between::job_protocol::{self, JobEvent, Listed, Order, State, is_name};
use crate::between::started;
use crate::between::watch::{Fetched, Left, Manner, Watched, leave_at_signal};
use crate::endpoint::{Endpoint, Remote};
use crate::messages::{Exit, Stop, finish, harmless, print_line, say};
use crate::ssh::command::{FarSide, Role};
use crate::ssh::far::Far;
use crate::ssh::process::SshProcess;

/// Version of the lines for programs.
const SCHEMA: u32 = 1;

/// The most jobs of one host, far above what one keeps.
const MAXIMUM_LISTED: usize = 4096;

/// Lists jobs.
pub fn jobs(arguments: &JobsArguments) -> Exit {
    finish(list(arguments))
}

/// Follows a job.
pub fn attach(arguments: &AttachArguments) -> Exit {
    let manner = Manner {
        json: arguments.json,
        quiet: arguments.quiet,
        ..Manner::default()
    };
    let followed = reach(&arguments.job, &arguments.connection).and_then(|(found, _process)| {
        let watched = Watched {
            manifest: Fetched::into(arguments.manifest.as_deref())?,
            ..found
        };
        leave_at_signal(&watched);
        if let Some(limit) = arguments.bwlimit {
            let rate = limit.0.map_or(0, BandwidthLimit::bytes_per_second);
            // Where the channel is lost, that is heard and said.
            let _ = job_protocol::send(&watched.channel, &Order::Limit(rate));
        }
        let left = watched.follow(manner);
        let _ = watched.channel.shutdown(std::net::Shutdown::Both);
        left.map(Left::exit)
    });
    finish(followed)
}

/// Ends a job.
pub fn cancel(arguments: &CancelArguments) -> Exit {
    finish(end(arguments))
}

fn end(arguments: &CancelArguments) -> Result<Exit, Stop> {
    let (watched, _process) = reach(&arguments.job, &arguments.connection)?;
    let lost = |error: std::io::Error| {
        let text = format!("{}: the connection was lost: {error}", watched.host);
        Stop::new(Exit::Connection, text)
    };
    job_protocol::send(&watched.channel, &Order::Cancel).map_err(lost)?;
    let left = watched.follow(Manner {
        silent: true,
        ..Manner::default()
    })?;
    let _ = watched.channel.shutdown(std::net::Shutdown::Both);
    let name = &watched.name;
    match left.exit() {
        Exit::Interrupted => say(&format!(
            "{name} is cancelled; the command that began it resumes it"
        )),
        other => say(&format!(
            "{name} had ended already, with exit code {}",
            other.code()
        )),
    }
    Ok(Exit::Done)
}

/// What is started on the host of jobs, which needs nothing of a session.
fn far_side(ssh: &SshArguments, role: Role) -> FarSide {
    FarSide {
        role,
        program: ssh.remote_longhaul.clone(),
        memory: 0,
        linger: std::time::Duration::ZERO,
        expiry: Expiry(None),
        ports: Ports::default(),
    }
}

/// Who runs jobs.
enum Host {
    /// One that ssh may be given.
    Ssh,
    Daemon(Box<Remote>),
}

fn host_of(host: &str) -> Result<Host, Stop> {
    if host.starts_with("longhaul://") {
        let parsed = Endpoint::parse(host.as_ref());
        let parsed = parsed.map_err(|error| Stop::because(Exit::Usage, error))?;
        if let Endpoint::Daemon(remote) = parsed {
            return Ok(Host::Daemon(Box::new(remote)));
        }
    }
    let bracketed = match host.rsplit_once('@') {
        Some((user, host)) if host.contains(':') => format!("{user}@[{host}]:"),
        None if host.contains(':') => format!("[{host}]:"),
        _ => format!("{host}:"),
    };
    match Endpoint::parse(bracketed.as_ref()) {
        Ok(Endpoint::Ssh(_)) => Ok(Host::Ssh),
        _ => Err(Stop::new(
            Exit::Usage,
            format!("{host}: write a host as ssh takes it, [USER@]HOST, or longhaul://HOST[:PORT]"),
        )),
    }
}

/// A channel to what is told of jobs at a host; over SSH it ends with its process.
fn channel_to(
    host: &str,
    role: Role,
    connection: &ConnectionArguments,
) -> Result<(UnixStream, Option<SshProcess>), Stop> {
    match host_of(host)? {
        Host::Ssh => {
            let ssh = &connection.ssh;
            let side = far_side(ssh, role);
            let far = Far::in_role(host, (ssh, connection.timeout), side)?;
            let (process, channel, _) = far.arrive()?;
            Ok((channel, Some(process)))
        }
        Host::Daemon(remote) => {
            let what = match role {
                Role::Attach(name) => Task::Attach(name),
                _ => Task::Jobs,
            };
            let daemon = Daemon::new(&remote, connection)?;
            let channel = daemons::channel(&daemon, host, what)?;
            daemons::greeting_of(&channel, host)?;
            Ok((channel, None))
        }
    }
}

/// A channel to a job.
fn reach(
    job: &str,
    connection: &ConnectionArguments,
) -> Result<(Watched, Option<SshProcess>), Stop> {
    let (host, name) = match job.rsplit_once(':') {
        Some((host, name)) if is_name(name) => (host.to_owned(), name),
        _ if is_name(job) => {
            let known = started::find(job).ok_or_else(|| {
                let text = format!(
                    "no job {job} was started from here: `longhaul jobs HOST` lists those of a \
                     host, and HOST:{job} names one there; of a daemon, `longhaul jobs \
                     longhaul://HOST:PORT` and longhaul://HOST:PORT:{job}"
                );
                Stop::new(Exit::Usage, text)
            })?;
            (known.host, job)
        }
        _ => {
            let text = format!("{job}: a job has eight digits, as `longhaul jobs` lists them");
            return Err(Stop::new(Exit::Usage, text));
        }
    };
    let role = Role::Attach(name.to_owned());
    let (channel, process) = channel_to(&host, role, connection)?;
    let watched = Watched {
        channel,
        name: name.to_owned(),
        host,
        manifest: None,
    };
    Ok((watched, process))
}

fn list(arguments: &JobsArguments) -> Result<Exit, Stop> {
    let hosts = match arguments.hosts.as_slice() {
        [] => hosts_of(&started::list()),
        hosts => hosts.to_vec(),
    };
    for host in &hosts {
        host_of(host)?;
    }
    let (mut exit, mut lines) = (Exit::Done, Vec::new());
    for host in hosts {
        match ask(&host, &arguments.connection) {
            Ok(jobs) => lines.extend(jobs.into_iter().map(|job| (host.clone(), job))),
            Err(stop) => {
                say(&stop.text);
                exit = stop.exit;
            }
        }
    }
    match arguments.json {
        true => lines
            .iter()
            .for_each(|(host, job)| print_line!("{}", event(host, job))),
        false => print(&lines, exit),
    }
    Ok(exit)
}

fn hosts_of(jobs: &[Listed]) -> Vec<String> {
    let mut hosts: Vec<String> = jobs.iter().map(|job| job.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The jobs of this user on a host.
fn ask(host: &str, connection: &ConnectionArguments) -> Result<Vec<Listed>, Stop> {
    let (channel, _process) = channel_to(host, Role::Jobs, connection)?;
    let limited = channel.set_read_timeout(Some(daemons::GREETS_WITHIN));
    limited.map_err(|error| Stop::because(Exit::Local, error))?;
    listed(&channel).map_err(|why| {
        let text = format!("{host}: its jobs cannot be listed: {why}");
        Stop::new(Exit::Connection, text)
    })
}

/// Jobs that a host tells of, to the end of the channel.
fn listed(mut channel: impl Read) -> Result<Vec<Listed>, String> {
    let mut jobs = Vec::new();
    loop {
        match job_protocol::receive(&mut channel) {
            Ok(Some(JobEvent::Listed(_))) if jobs.len() >= MAXIMUM_LISTED => {
                return Err(format!("it lists more than {MAXIMUM_LISTED}"));
            }
            Ok(Some(JobEvent::Listed(job))) => jobs.push(job),
            Ok(None) => return Ok(jobs),
            Ok(Some(_)) => return Err("it says something else".to_owned()),
            Err(error) => return Err(daemons::silence(&error)),
        }
    }
}

fn state_of(job: &Listed) -> String {
    match job.state {
        State::Running => "running".to_owned(),
        State::Ended(0) => "done".to_owned(),
        State::Ended(code) if code == Exit::Interrupted.code() => "cancelled".to_owned(),
        State::Ended(code) => format!("exit {code}"),
        State::Lost => "killed".to_owned(),
        State::Elsewhere => format!("on {}", harmless(&job.host)),
    }
}

/// In UTC; no later than the year 9999, whatever the other end says.
fn began(job: &Listed) -> String {
    const LAST: u64 = 253_402_300_799;
    rfc3339(job.began.min(LAST).cast_signed())
}

fn command_of(job: &Listed) -> &'static str {
    match job.compares {
        true => "verify",
        false => "cp",
    }
}

fn event(host: &str, job: &Listed) -> Value {
    let (state, code) = match job.state {
        State::Running => ("running", None),
        State::Ended(code) => ("ended", Some(code)),
        State::Lost => ("killed", None),
        State::Elsewhere => ("elsewhere", None),
    };
    json!({
        "schema": SCHEMA, "job": job.name, "host": host, "runs_on": job.host, "state": state,
        "exit": code, "began": began(job), "command": command_of(job),
        "from": job.from, "to": job.to,
    })
}

fn print(lines: &[(String, Listed)], exit: Exit) {
    if let Some(text) = nothing(lines, exit) {
        say(text);
    }
    for line in table(lines) {
        print_line!("{line}");
    }
}

/// What to say where no job is listed. Of a host that did not answer nobody knows whether it has
/// any; why it did not was said.
fn nothing(lines: &[(String, Listed)], exit: Exit) -> Option<&'static str> {
    (lines.is_empty() && exit == Exit::Done).then_some("no jobs")
}

/// A line for each job, in columns.
fn table(lines: &[(String, Listed)]) -> Vec<String> {
    let cells = |(host, job): &(String, Listed)| {
        [
            job.name.clone(),
            state_of(job),
            began(job),
            harmless(host),
            command_of(job).to_owned(),
        ]
    };
    let rows: Vec<[String; 5]> = lines.iter().map(cells).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3, 4].map(width);
    let line = |(row, (_, job)): (&[String; 5], &(String, Listed))| {
        let columns = row.iter().zip(widths);
        let columns = columns.map(|(cell, width)| format!("{cell:<width$}  "));
        let columns: String = columns.collect();
        format!("{columns}{} -> {}", harmless(&job.from), harmless(&job.to))
    };
    rows.iter().zip(lines).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_did_not_answer_may_have_jobs() {
        assert_eq!(nothing(&[], Exit::Done), Some("no jobs"));
        assert_eq!(nothing(&[], Exit::Connection), None);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let job = |state, compares| Listed {
            name: "0a1b2c3d".into(),
            host: "a-node-with-a-long-name".into(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state,
            compares,
        };
        let lines = table(&[
            ("dtn7".to_owned(), job(State::Running, true)),
            (
                "user@dtn.example.org".to_owned(),
                job(State::Elsewhere, false),
            ),
            ("d".to_owned(), job(State::Ended(0), false)),
        ]);
        for text in ["1970-01-01", "  a -> b"] {
            let at: Vec<Option<usize>> = lines.iter().map(|line| line.find(text)).collect();
            assert!(
                at[0].is_some() && at.iter().all(|place| *place == at[0]),
                "{lines:#?}"
            );
        }
    }

    #[test]
    fn no_host_tells_of_jobs_without_end() {
        let job = Listed {
            name: "0a1b2c3d".into(),
            host: "dtn7".into(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state: State::Running,
            compares: false,
        };
        let frame = job_protocol::frame_of(&JobEvent::Listed(job)).unwrap();
        let most = frame.repeat(MAXIMUM_LISTED);
        assert_eq!(listed(most.as_slice()).unwrap().len(), MAXIMUM_LISTED);
        let endless = std::io::Read::chain(most.as_slice(), frame.as_slice());
        assert!(listed(endless).unwrap_err().contains("more than 4096"));
        let other = job_protocol::frame_of(&JobEvent::Running).unwrap();
        assert!(listed(other.as_slice()).is_err());
    }
}
