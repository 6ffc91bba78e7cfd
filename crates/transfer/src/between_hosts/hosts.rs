//! Lists the jobs of hosts, and opens a channel to a job.

use std::io::Read;
use std::os::unix::net::UnixStream;

use longhaul_proto::handshake::Task;

use super::daemons;
use super::job_protocol::{self, JobEvent, Listed, is_name};
use super::own_job::{self, HERE};
use super::started;
use super::watch::Watched;
use crate::client::connection::Daemon;
use crate::endpoint::{Endpoint, HostAccess, Remote, names_daemon};
use crate::ports::Ports;
use crate::settings::{ConnectionSettings, SshSettings};
use crate::ssh::command::{FarSide, Role};
use crate::ssh::process::SshProcess;
use crate::ssh::remote_end::RemoteEnd;
use crate::stop::{Exit, Stop};

/// Maximum number of jobs of one host, far above the number that a host stores.
const MAXIMUM_LISTED: usize = 4096;

/// Returns the settings of the process that serves jobs at a host. It has no session.
pub(super) fn far_side(ssh: &SshSettings, role: Role) -> FarSide {
    FarSide {
        role,
        program: ssh.remote_longhaul.clone(),
        memory: 0,
        linger: std::time::Duration::ZERO,
        expiry: None,
        ports: Ports::default(),
        replaces: ssh.install_remote,
    }
}

/// A host that runs jobs.
enum Host {
    /// This host.
    Here,
    /// A host that ssh reaches.
    Ssh,
    Daemon(Box<Remote>),
}

/// Checks the syntax of a host.
///
/// # Errors
///
/// Returns a description of the syntax.
pub fn check_host(host: &str) -> Result<(), Stop> {
    host_of(host).map(drop)
}

fn host_of(host: &str) -> Result<Host, Stop> {
    if host == HERE {
        return Ok(Host::Here);
    }
    if names_daemon(host) {
        let parsed = Endpoint::parse(host.as_ref());
        let parsed = parsed.map_err(|error| Stop::because(Exit::Usage, error))?;
        if let Some(HostAccess::Daemon(remote)) = parsed.access() {
            return Ok(Host::Daemon(Box::new(remote.clone())));
        }
    }
    let bracketed = match host.rsplit_once('@') {
        Some((user, host)) if host.contains(':') => format!("{user}@[{host}]:"),
        None if host.contains(':') => format!("[{host}]:"),
        _ => format!("{host}:"),
    };
    let parsed = Endpoint::parse(bracketed.as_ref()).ok();
    match parsed.as_ref().and_then(Endpoint::access) {
        Some(HostAccess::Login(_)) => Ok(Host::Ssh),
        _ => Err(Stop::new(
            Exit::Usage,
            format!("{host}: write a host as ssh takes it, [USER@]HOST, or longhaul://HOST[:PORT]"),
        )),
    }
}

/// Opens a channel for the jobs of a host. Over SSH it ends with its process.
fn channel_to(
    host: &str,
    role: Role,
    connection: &ConnectionSettings,
) -> Result<(UnixStream, Option<SshProcess>), Stop> {
    match host_of(host)? {
        Host::Here => {
            let (channel, process) = own_job::channel(&role, connection)?;
            Ok((channel, Some(process)))
        }
        Host::Ssh => {
            let ssh = &connection.ssh;
            let side = far_side(ssh, role);
            let far = RemoteEnd::in_role(host, (ssh, connection.timeout), side)?;
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

/// Opens a channel to a job, which is a name from `longhaul jobs` or HOST:JOB. Over SSH it ends
/// with its process.
///
/// # Errors
///
/// Fails if the job is unknown here or its host cannot be reached.
pub fn reach(
    job: &str,
    connection: &ConnectionSettings,
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

/// Lists the jobs of this user on a host.
///
/// # Errors
///
/// Fails if the host cannot be reached or sends another message.
pub fn ask(host: &str, connection: &ConnectionSettings) -> Result<Vec<Listed>, Stop> {
    let (channel, _process) = channel_to(host, Role::Jobs, connection)?;
    let limited = channel.set_read_timeout(Some(daemons::GREETS_WITHIN));
    limited.map_err(|error| Stop::because(Exit::Local, error))?;
    listed(&channel).map_err(|why| {
        let text = format!("{host}: its jobs cannot be listed: {why}");
        Stop::new(Exit::Connection, text)
    })
}

/// Reads the jobs that a host reports, to the end of the channel.
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

#[cfg(test)]
mod tests {
    use super::super::job_protocol::State;
    use super::*;

    #[test]
    fn the_list_of_jobs_of_a_host_is_bounded() {
        let job = Listed {
            name: "0a1b2c3d".into(),
            host: "dtn7".into(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state: State::Running,
            compares: false,
            done_bytes: None,
            bwlimit_bytes_per_second: None,
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
