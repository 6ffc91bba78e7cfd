//! A daemon on this host, with a root and a state directory.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::process::{Finished, Running, longhaul, run};

pub struct Daemon {
    running: Option<Running>,
    state: TempDir,
    arguments: Vec<OsString>,
    pub address: SocketAddr,
    pub fingerprint: String,
    pub token_file: Option<PathBuf>,
}

impl Daemon {
    /// Serves a root for reading and writing.
    pub fn start(root: &Path) -> Daemon {
        Daemon::with(root, &["--write"])
    }

    /// Serves a root with these flags.
    pub fn with(root: &Path, flags: &[&str]) -> Daemon {
        let mut arguments: Vec<OsString> = vec!["--root".into(), root.into()];
        arguments.extend(flags.iter().map(Into::into));
        Daemon::of(arguments, |command| command)
    }

    /// Serves with these arguments, through a command that `wrap` makes.
    pub fn of(arguments: Vec<OsString>, wrap: impl Fn(Command) -> Command) -> Daemon {
        Daemon::new("127.0.0.1:0".parse().unwrap(), arguments, wrap)
    }

    /// Serves with these arguments at this address, through a command that
    /// `wrap` makes.
    pub fn new(
        address: SocketAddr,
        arguments: Vec<OsString>,
        wrap: impl Fn(Command) -> Command,
    ) -> Daemon {
        let state = tempfile::tempdir().unwrap();
        let mut daemon = Daemon {
            running: None,
            state,
            arguments,
            address,
            fingerprint: String::new(),
            token_file: None,
        };
        daemon.start_again_with(wrap);
        daemon
    }

    /// Serves at this address, with a new key.
    pub fn at(address: SocketAddr, arguments: Vec<OsString>) -> Daemon {
        Daemon::new(address, arguments, |command| command)
    }

    /// Starts it again, at the address and with the key it had.
    pub fn start_again(&mut self) {
        self.start_again_with(|command| command);
    }

    fn start_again_with(&mut self, wrap: impl Fn(Command) -> Command) {
        let mut command = longhaul();
        command
            .args(["serve", "--print-ready", "--listen"])
            .arg(self.address.to_string())
            .arg("--state")
            .arg(self.state.path())
            .args(&self.arguments);
        let running = Running::start(&mut wrap(command));
        let Some(line) = running.line() else {
            panic!("the daemon did not start: {:?}", running.wait());
        };
        let ready: Value = serde_json::from_str(&line).unwrap();
        self.address = ready["listening"].as_str().unwrap().parse().unwrap();
        self.fingerprint = ready["fingerprint"].as_str().unwrap().to_owned();
        self.token_file = ready["token_file"].as_str().map(PathBuf::from);
        self.running = Some(running);
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Finished {
        self.running.take().unwrap().wait()
    }

    /// Waits for its end, before it is started again.
    #[allow(dead_code)]
    pub fn end(&mut self) -> Finished {
        self.running.take().unwrap().wait()
    }

    /// Kills it.
    pub fn kill(&mut self) -> Finished {
        self.running.take().unwrap().kill()
    }

    /// Returns the state directory of the daemon.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// The URL of a path beneath its root.
    pub fn url(&self, path: impl AsRef<std::ffi::OsStr>) -> OsString {
        url(self.address, path)
    }

    /// `longhaul` with a subcommand and what is needed to reach this daemon.
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = longhaul();
        command
            .args([subcommand, "--fingerprint", &self.fingerprint])
            .arg("--token-file")
            .arg(self.token_file.as_ref().unwrap());
        command
    }

    /// The tokens file's line for another address.
    pub fn tokens_for(&self, address: SocketAddr) -> PathBuf {
        use std::os::unix::fs::OpenOptionsExt;
        let text = std::fs::read_to_string(self.token_file.as_ref().unwrap()).unwrap();
        let rest = text.split_once(' ').unwrap().1;
        let file = self.state.path().join(format!("tokens-{}", address.port()));
        let mut options = std::fs::OpenOptions::new();
        let mut opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&file)
            .unwrap();
        std::io::Write::write_all(&mut opened, format!("{address} {rest}").as_bytes()).unwrap();
        file
    }
}

/// A URL.
pub fn url(address: SocketAddr, path: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut url = format!("longhaul://{address}/").into_bytes();
    url.extend_from_slice(path.as_ref().as_bytes());
    OsString::from_vec(url)
}

/// Starts a daemon with one principal who has these roots. Returns the daemon and the principal's
/// tokens file.
pub fn with_roots(place: &Path, roots: &str) -> (Daemon, PathBuf) {
    let made = run(longhaul().args(["token", "--principal", "one"])).expect(0);
    let made = String::from_utf8(made.output).unwrap();
    let principals = &made[made.find("[[principal]]").unwrap()..];
    let file = place.join("principals.toml");
    fs::write(&file, format!("{principals}\n{roots}")).unwrap();
    let daemon = Daemon::of(vec!["--principals".into(), file.into()], |command| command);
    let line = made.lines().find(|line| line.starts_with("HOST:4960"));
    let line = line.unwrap();
    let line = line.replace("HOST:4960", &daemon.address.to_string());
    let tokens = place.join("tokens");
    fs::write(&tokens, line).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    (daemon, tokens)
}
