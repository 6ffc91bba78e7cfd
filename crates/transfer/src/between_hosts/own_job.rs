//! Runs a copy as a job of this host. It continues when the command that began it, and its
//! terminal, have ended.
//!
//! The command itself does everything that may need input from the user: it logs in, installs and
//! confirms keys. The job cannot ask the user: it reuses the kept login, or logs in with a key.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use longhaul_net::candidates::login_ends_processes;

use super::hosts::far_side;
use super::job_protocol::Reach;
use super::sides::JobRequest;
use super::starting::{begin_job, begin_of};
use super::watch::Left;
use crate::client::connection::Daemon;
use crate::console::say;
use crate::endpoint::{Endpoint, HostAccess, SshRemote};
use crate::own_binary::{self, OWN_BINARY};
use crate::settings::{ConnectionSettings, SshSettings};
use crate::spec::TransferSpec;
use crate::ssh::command::Role;
use crate::ssh::greeting::{Line, REMOTE};
use crate::ssh::master;
use crate::ssh::process::{Login, SshProcess, await_greeting};
use crate::ssh::remote_end::RemoteEnd;
use crate::stop::{Exit, Stop};

/// Name of this host in lists and messages. The space in it prevents confusion with an ssh host.
pub const HERE: &str = "this host";

/// Returns a job's name in the form that `attach` and `cancel` accept.
pub fn job_of(host: &str, name: &str) -> String {
    if host == HERE {
        name.to_owned()
    } else {
        format!("{host}:{name}")
    }
}

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Begins the job, and shows it or, with `detach`, leaves it once it runs.
///
/// # Errors
///
/// Fails if a job does not support an option, or if it cannot be started.
pub fn run(asked: &JobRequest<'_>) -> Result<Exit, Stop> {
    let spec = spec_of(asked.spec)?;
    if let Err(stop) = try_login(asked, &spec) {
        let has_retries = spec.limits.retries.is_some_and(|tries| tries > 1);
        if !(has_retries && stop.may_pass()) {
            return Err(stop);
        }
        say(&format!("{}; the job tries again (--retries)", stop.text));
    }
    if login_ends_processes() {
        say(
            "this host ends what a login started when the login ends (KillUserProcesses), and the \
             job with it; `loginctl enable-linger` changes that",
        );
    }
    let begin = begin_of(asked, &spec, Reach::Direct, HERE)?;
    begin_job(&start().map_err(local)?, HERE, asked, &begin).map(Left::exit)
}

/// Connects to the other end once, so that all questions to the user come before the job begins:
/// for passwords, and for the keys of hosts and daemons.
fn try_login(asked: &JobRequest<'_>, spec: &TransferSpec) -> Result<(), Stop> {
    let mut ends = spec.sources.iter().chain([&spec.destination]);
    match ends.find_map(Endpoint::access) {
        Some(HostAccess::Login(remote)) => log_in(remote, asked.connection(), &spec.connection.ssh),
        Some(HostAccess::Daemon(remote)) => {
            let daemon = Daemon::new(remote, asked.connection());
            // An error in the settings for the daemon is permanent.
            daemon.map_err(Stop::that_stays)?.first_stream().map(drop)
        }
        None => Ok(()),
    }
}

/// Returns the specification of the job, which cannot ask the user.
fn spec_of(asked: &TransferSpec) -> Result<TransferSpec, Stop> {
    let mut spec = TransferSpec::clone(asked);
    let mut ends = asked.sources.iter().chain([&asked.destination]);
    if ends.any(|end| end.promises().standard_stream) {
        let text = "--detach: - is the standard input or output of this command, which ends: name a \
                    file, or leave --detach out and let the shell run it (nohup)";
        return Err(Stop::new(Exit::Usage, text));
    }
    let ssh = &mut spec.connection.ssh;
    ssh.persist = master::kept(ssh.persist);
    ssh.asks_nobody = true;
    ssh.install_remote = false;
    Ok(spec)
}

/// Logs in with questions to the user, then once more without.
fn log_in(
    remote: &SshRemote,
    connection: &ConnectionSettings,
    of_job: &SshSettings,
) -> Result<(), Stop> {
    let host = &remote.destination;
    let far = |ssh: &SshSettings| {
        RemoteEnd::in_role(host, (ssh, connection.timeout), far_side(ssh, Role::Jobs))
    };
    let (process, channel, _) = far(&connection.ssh)?.arrive()?;
    drop(channel);
    drop(process);
    let again = far(of_job)?.arrive_silently();
    again.map(drop).ok_or_else(|| {
        let text = format!(
            "{host} asks something at each login, which a job cannot answer: have the login kept \
             (--ssh-persist TIME, or ControlMaster and ControlPersist of ssh), use a key from an \
             agent, or leave --detach out"
        );
        Stop::new(Exit::Authentication, text)
    })
}

/// Starts the process of a job and returns the channel to it. The process begins its own session.
fn start() -> std::io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    let output = far.try_clone()?;
    own_binary::command()
        .args(["remote", "--own-job"])
        .stdin(Stdio::from(OwnedFd::from(far)))
        .stdout(Stdio::from(OwnedFd::from(output)))
        .spawn()?;
    Ok(near)
}

/// Opens a channel for the jobs of this host. It ends with its process.
///
/// # Errors
///
/// Fails if this program cannot be started.
pub(super) fn channel(
    role: &Role,
    connection: &ConnectionSettings,
) -> Result<(UnixStream, SshProcess), Stop> {
    let mut line = vec![OWN_BINARY.into(), "remote".into()];
    match role {
        Role::Attach(name) => line.extend(["--attach".into(), name.into()]),
        _ => line.push("--jobs".into()),
    }
    let (process, channel) = SshProcess::start(&line, Login::Silent).map_err(local)?;
    match await_greeting(process.hear(&channel, connection.timeout), REMOTE) {
        Ok(Line::Greeting(_)) => Ok((channel, process)),
        _ => Err(local(format!(
            "the jobs of this host cannot be asked for: {}",
            process.said().trim_end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::settings::Persist;

    fn copy(source: &str, destination: &str) -> TransferSpec {
        let parse = |text: &str| Endpoint::parse(OsStr::new(text)).unwrap();
        TransferSpec::copy(vec![parse(source)], parse(destination))
    }

    #[test]
    fn a_job_asks_no_questions_and_keeps_the_settings() {
        let mut asked = copy("a", "host:b");
        asked.connection.ssh.install_remote = true;
        asked.connection.ssh.persist = Some(Persist::of_seconds(60));
        let spec = spec_of(&asked).unwrap();
        assert!(spec.connection.ssh.asks_nobody && !spec.connection.ssh.install_remote);
        assert_eq!(spec.connection.ssh.persist, asked.connection.ssh.persist);
        assert_eq!(spec.sources, asked.sources);
        for (source, destination) in [("-", "host:b"), ("host:a", "-")] {
            let refused = spec_of(&copy(source, destination)).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
        }
    }

    #[test]
    fn a_job_of_this_host_is_found_by_its_name() {
        assert_eq!(job_of(HERE, "0a1b2c3d"), "0a1b2c3d");
        assert_eq!(job_of("dtn7", "0a1b2c3d"), "dtn7:0a1b2c3d");
    }
}
