//! Two daemons with their users, and a client that can send protocol messages that `longhaul` would
//! not send.

// Each group of tests is a separate crate and uses a part of this module.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_engine::session::opening::{self, OpenError};
use longhaul_net::relay;
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tls::{TlsClient, TlsOptions};
use longhaul_net::trust::ServerTrust;
use longhaul_proto::handshake::{ControlRequest, Credential, Task};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::{limit, longhaul, run};
use crate::support::{Daemon, procfs, tree};
use longhaul_transfer::between_hosts::job_protocol::{
    self, Begin, Follow, JobEvent, Order, Reach, Shown, ShownProgress,
};

/// Lets a daemon connect to others on this host.
pub const DIAL: &str = "--allow-dial=127.0.0.1";

/// Two daemons, and a user with tokens for both.
pub struct Site {
    pub one: Daemon,
    pub two: Daemon,
    pub user: TempDir,
    place: TempDir,
}

impl Site {
    pub fn new(one: &[&str], two: &[&str]) -> Site {
        let (place, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let start = |name: &str, flags: &[&str]| {
            let root = place.path().join(name);
            std::fs::create_dir(&root).unwrap();
            Daemon::with(&root, flags)
        };
        let (one, two) = (start("one", one), start("two", two));
        let tokens: Vec<String> = [&one, &two]
            .iter()
            .map(|daemon| std::fs::read_to_string(daemon.token_file.as_ref().unwrap()).unwrap())
            .collect();
        let file = user.path().join("tokens");
        std::fs::write(&file, tokens.concat()).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let site = Site {
            one,
            two,
            user,
            place,
        };
        site.know([&site.one, &site.two].map(|daemon| daemon.fingerprint.clone()));
        site
    }

    /// The user knows the daemons by these keys.
    pub fn know(&self, keys: [String; 2]) {
        let addresses = [self.one.address, self.two.address];
        let lines = addresses.iter().zip(keys);
        let lines = lines.map(|(address, key)| format!("{address} {key}\n"));
        let file = self.user.path().join("known_hosts");
        std::fs::write(file, lines.collect::<String>()).unwrap();
    }

    pub fn root(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = longhaul();
        command
            .arg(subcommand)
            .env("LONGHAUL_CONFIG_DIR", self.user.path())
            .env("XDG_STATE_HOME", self.user.path().join("state"));
        command
    }

    /// A copy from the first to the second.
    pub fn copy(&self, arguments: &[&str], from: &str, to: &str) -> Command {
        let mut command = self.command("cp");
        command
            .args(arguments)
            .arg(self.one.url(from))
            .arg(self.two.url(to));
        command
    }

    pub fn jobs(&self, daemon: &Daemon) -> Vec<Value> {
        let mut command = self.command("jobs");
        command.arg("--json").arg(daemon.url(""));
        run(&mut command).expect(0).events()
    }
}

/// Processes of jobs that a daemon runs.
pub fn jobs_of(daemon: &Daemon) -> Vec<Pid> {
    let of = format!("--confined {}", daemon.state().join("jobs").display());
    let is_job = |pid: &i32| procfs::command_of(*pid).contains(&of);
    let pids = procfs::processes().into_iter().filter(is_job);
    pids.filter_map(Pid::from_raw).collect()
}

pub fn kill_jobs(daemon: &Daemon) {
    for pid in jobs_of(daemon) {
        // The process may have ended in the meantime.
        let _ = kill_process(pid, Signal::KILL);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        kill_jobs(&self.one);
        kill_jobs(&self.two);
    }
}

/// A daemon with two principals, who may both read and write the same directory.
pub struct Shared {
    pub daemon: Daemon,
    /// Their tokens.
    pub tokens: [String; 2],
    pub place: TempDir,
}

pub const PRINCIPALS: [&str; 2] = ["alice", "bob"];

impl Shared {
    pub fn new() -> Shared {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let mut principals = String::new();
        let tokens = PRINCIPALS.map(|name| {
            let mut command = longhaul();
            command.args(["token", "--principal", name]);
            let made = String::from_utf8(run(&mut command).expect(0).output).unwrap();
            principals += &made[made.find("[[principal]]").unwrap()..];
            principals += &format!(
                "[[principal.root]]\nat = \"/\"\npath = \"{}\"\nrights = [\"read\", \"write\", \
                 \"measure\"]\n",
                root.display()
            );
            let mut words = made.split_whitespace();
            words
                .find(|word| word.starts_with("lht_"))
                .unwrap()
                .to_owned()
        });
        let file = place.path().join("principals.toml");
        std::fs::write(&file, principals).unwrap();
        let arguments = vec!["--principals".into(), file.into(), DIAL.into()];
        Shared {
            daemon: Daemon::of(arguments, |command| command),
            tokens,
            place,
        }
    }

    /// Returns a command of one principal, who may also use the second daemon of a site.
    pub fn command(&self, principal: usize, site: &Site, subcommand: &str) -> Command {
        let home = self.place.path().join(PRINCIPALS[principal]);
        std::fs::create_dir_all(&home).unwrap();
        let (address, own) = (self.daemon.address, &self.tokens[principal]);
        let tokens = format!("{address} {} {own}\n", PRINCIPALS[principal]);
        let other = std::fs::read_to_string(site.two.token_file.as_ref().unwrap()).unwrap();
        let known = [&self.daemon, &site.two]
            .map(|daemon| format!("{} {}\n", daemon.address, daemon.fingerprint));
        tree::write(&home.join("tokens"), (tokens + &other).as_bytes());
        std::fs::set_permissions(home.join("tokens"), PermissionsExt::from_mode(0o600)).unwrap();
        tree::write(&home.join("known_hosts"), known.concat().as_bytes());
        let mut command = longhaul();
        command
            .arg(subcommand)
            .env("LONGHAUL_CONFIG_DIR", &home)
            .env("XDG_STATE_HOME", home.join("state"));
        command
    }

    pub fn jobs(&self, principal: usize, site: &Site) -> Vec<Value> {
        let mut command = self.command(principal, site, "jobs");
        command.arg("--json").arg(self.daemon.url(""));
        run(&mut command).expect(0).events()
    }

    /// Asks as one of them for a process that runs a job.
    pub fn drive(&self, principal: usize) -> Result<Driven, OpenError> {
        Driven::new(&self.daemon, PRINCIPALS[principal], &self.tokens[principal])
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        kill_jobs(&self.daemon);
    }
}

/// The channel to a process that waits for a job. Tests use it to send protocol messages that
/// `longhaul` would not send.
pub struct Driven(pub UnixStream);

impl Driven {
    pub fn new(daemon: &Daemon, principal: &str, token: &str) -> Result<Driven, OpenError> {
        control_request(daemon, (principal, token), Task::Drive).map(Driven)
    }

    /// Requests a job that makes no connection. Returns its channel and the name under which other
    /// channels join it.
    pub fn through(
        daemon: &Daemon,
        principal: &str,
        token: &str,
    ) -> Result<(Driven, String), OpenError> {
        let mut driven = Driven(control_request(
            daemon,
            (principal, token),
            Task::DriveThrough,
        )?);
        let greeting = driven.greeting();
        let name = greeting.split_once("channel=").expect("channels").1;
        let name = name.split_whitespace().next().unwrap().to_owned();
        Ok((driven, name))
    }

    /// Reads the greeting of the process.
    fn greeting(&mut self) -> String {
        let mut said = String::new();
        while !(said.contains("longhaul-remote/1") && said.ends_with('\n')) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            said.push(char::from(byte[0]));
        }
        said
    }

    /// Begins a job with this specification, and returns the answer.
    pub fn begin(mut self, key: &str, spec: &str) -> JobEvent {
        self.ask(key, spec, Reach::Daemon);
        self.greeting();
        self.answer()
    }

    /// Sends the request to begin a job.
    pub fn ask(&mut self, key: &str, spec: &str, reach: Reach) {
        let release = env!("CARGO_PKG_VERSION");
        let line = format!("longhaul-client/1 software={release} protocol=1 key={key}\n");
        self.0.write_all(line.as_bytes()).unwrap();
        let begin = Begin {
            spec: spec.to_owned(),
            from: "from".to_owned(),
            to: "to".to_owned(),
            reach,
            host: "host".to_owned(),
            manifest: None,
            shown: Shown::default(),
            compares: false,
            report: None,
            log: None,
        };
        job_protocol::send(&self.0, &Order::Begin(begin)).unwrap();
    }

    /// Reads the name of the job, and returns its last event.
    pub fn end(self) -> JobEvent {
        let told = job_protocol::receive(&self.0).unwrap();
        assert!(matches!(told, Some(JobEvent::Named(_))), "{told:?}");
        let follow = Follow {
            output: 0,
            errors: 0,
            progress: ShownProgress::None,
            manifest: false,
            alive_seconds: 0,
        };
        job_protocol::send(&self.0, &Order::Follow(follow)).unwrap();
        loop {
            match job_protocol::receive(&self.0).unwrap().expect("an end") {
                JobEvent::Output(..) | JobEvent::Running => {}
                told => return told,
            }
        }
    }

    /// Returns the answer to the request.
    pub fn answer(mut self) -> JobEvent {
        let told = job_protocol::receive(&self.0).unwrap().expect("an answer");
        // After its end, the process has written its messages to the log.
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        told
    }
}

/// The specification of a copy, with a field of its connection.
pub fn spec(from: &str, to: &str, connection: (&str, serde_json::Value)) -> String {
    let (field, value) = connection;
    let value = serde_json::json!({
        "version": 1, "sources": [from], "destination": to, "connection": { field: value },
    });
    value.to_string()
}

/// Returns a specification without special options.
pub fn plain_spec(from: &str, to: &str) -> String {
    spec(from, to, ("nice", false.into()))
}

/// The channel of a control request.
pub fn control_request(
    daemon: &Daemon,
    (principal, token): (&str, &str),
    what: Task,
) -> Result<UnixStream, OpenError> {
    let trust = ServerTrust::Fingerprint(daemon.fingerprint.parse().unwrap());
    let tls = TlsClient::new(trust, None, TlsOptions::default());
    let host = HostPort::from(daemon.address);
    let socket = tcp::connect(&host, limit(), &TcpOptions::default()).unwrap();
    let mut stream = tls.handshake(socket, &host).unwrap();
    let control_request = ControlRequest {
        credential: Some(Credential {
            principal: principal.to_owned(),
            token: Some(token.to_owned()),
        }),
        what,
    };
    opening::control_request(&mut stream, control_request, limit())?;
    let (near, far) = UnixStream::pair().unwrap();
    relay::carry_stream(stream, far, ()).unwrap();
    Ok(near)
}

pub fn sample(at: &Path) {
    tree::mixed_tree(at, 60, 6 << 20);
    tree::hard_tree(&at.join("hard"));
}
