//! Sharing of one login by several commands. A *master* is an ssh process that keeps a connection
//! open. Other ssh processes use it through its control socket instead of logging in.
//!
//! If the user's ssh has a master, or creates one because of its configuration, that one is used.
//! Otherwise longhaul may ask ssh to create one. Its socket is in a directory that only this user
//! can access, because a process that listens on the socket receives all data sent through it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::command::configured;
use super::control_directory;
use super::process::{Login, errors_within};
use crate::console::{can_ask, say};
use crate::settings::{Persist, SshSettings};

/// Time for which a login is kept if the user did not set one and a terminal is available.
const USUAL: Persist = Persist::of_seconds(600);

/// Returns how long a login is kept. Without a setting, it is kept only if a terminal is available.
pub fn kept(asked: Option<Persist>) -> Option<Persist> {
    asked.or_else(|| can_ask().then_some(USUAL))
}

/// Maximum time for a master on this host to answer. ssh first reads its configuration, which may
/// run commands.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// Keepalive settings of a kept connection: a dead connection is closed within a minute.
const ALIVE_OPTIONS: [&str; 2] = ["-oServerAliveInterval=15", "-oServerAliveCountMax=3"];

/// Options that disable questions and show only errors.
const SILENT: [&str; 2] = ["-oBatchMode=yes", "-oLogLevel=ERROR"];

/// Options that neither use nor create a master. Unlike `-oControlPath`, `-S` applies at any
/// position.
const ALONE: [&str; 2] = ["-oControlMaster=no", "-Snone"];

/// Option that prevents a login. It has no effect if the user's command already sets a proxy.
const GUARD: &str = "-oProxyCommand=false";

/// Message of ssh if sshd accepts no more sessions on a connection.
pub const NO_MORE_SESSIONS: &str = "Session open refused by peer";

/// Start of ssh's message if a master exists but does not serve.
const MASTER_FAILED: &str = "mux_client_";

/// Route of a further channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Through the existing master, without a login as an alternative.
    Master,
    /// Through a new login.
    Itself,
}

/// Holder of the shared connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Master {
    /// No master; each ssh logs in.
    Nobody,
    /// Master at a socket that is set by the user's configuration.
    Users {
        /// Path of the socket as printed by `ssh -G`.
        socket: String,
        /// Its process ID if it was already running.
        process: Option<u32>,
        /// Time to keep it, if the configuration does not keep it.
        stays: Option<Persist>,
    },
    /// Master that longhaul creates.
    Own {
        /// Path of the socket in the private directory.
        socket: PathBuf,
        /// Its process ID if it was already running.
        process: Option<u32>,
        /// Time to keep it.
        stays: Persist,
        /// True if the configuration sets no keepalive, so that longhaul sets one.
        watched: bool,
    },
}

/// Decides how the ssh processes of one host share a connection.
#[derive(Debug)]
pub struct Sharing {
    persist: Option<Persist>,
    /// If true, a login that would ask a question fails instead.
    asks_nobody: bool,
    configuration: OnceLock<Option<String>>,
    master: OnceLock<Master>,
    /// True once the master failed to serve.
    shunned: AtomicBool,
    /// Cached result of `is_guarded`: true if [`GUARD`] works with the user's command.
    guarded: OnceLock<bool>,
}

/// Result of a check of a master.
enum Answer {
    Lives(u32),
    Absent,
    Silent,
}

impl Sharing {
    /// Creates the state from the user's settings.
    pub fn new(ssh: &SshSettings) -> Sharing {
        Sharing {
            persist: ssh.persist,
            asks_nobody: ssh.asks_nobody,
            configuration: OnceLock::new(),
            master: OnceLock::new(),
            shunned: AtomicBool::new(false),
            guarded: OnceLock::new(),
        }
    }

    /// Returns the output of `ssh -G` for the destination. The first call starts a process.
    pub fn configuration(&self, words: &[OsString], destination: &str) -> Option<&str> {
        let found = self
            .configuration
            .get_or_init(|| configured(words, &[], destination));
        found.as_deref()
    }

    /// Returns the options for one more ssh process. The first call starts processes.
    pub fn options(&self, words: &[OsString], destination: &str, login: Login) -> Vec<OsString> {
        let mut options = match login {
            Login::Silent => plain(&SILENT),
            _ if self.asks_nobody => plain(&SILENT[..1]),
            Login::Asking | Login::AskingAside => Vec::new(),
        };
        match self.master(words, destination) {
            _ if self.is_shunned() => options.extend(plain(&ALONE)),
            Master::Nobody if login == Login::Silent => options.extend(plain(&ALONE)),
            Master::Nobody => {}
            Master::Users { stays, .. } => {
                options.extend(stays.map(|stays| stays.option()));
            }
            Master::Own {
                socket,
                stays,
                watched,
                ..
            } => {
                options.push("-oControlMaster=auto".into());
                options.push(control_path(socket.as_os_str()));
                options.push(stays.option());
                if *watched {
                    options.extend(plain(&ALIVE_OPTIONS));
                }
            }
        }
        options
    }

    /// Returns the options for a further channel.
    pub fn further_options(
        &self,
        words: &[OsString],
        destination: &str,
        through: Through,
    ) -> Vec<OsString> {
        let mut options = plain(&SILENT);
        let socket = match (through, self.master(words, destination)) {
            (Through::Itself, _) | (_, Master::Nobody) => {
                options.extend(plain(&ALONE));
                return options;
            }
            (_, Master::Users { socket, .. }) => OsStr::new(socket),
            (_, Master::Own { socket, .. }) => socket.as_os_str(),
        };
        options.push("-oControlMaster=no".into());
        options.push(control_path(socket));
        // If the master does not serve, the command fails instead of logging in.
        options.push(GUARD.into());
        options
    }

    /// Returns the routes for a further channel, best first. Starts a process if a master exists.
    pub fn ways(&self, words: &[OsString], destination: &str) -> Vec<Through> {
        let master = self.master(words, destination);
        if self.is_shunned() || *master == Master::Nobody {
            return vec![Through::Itself];
        }
        let is_guarded = self.guarded.get_or_init(|| is_guarded(words, destination));
        match master {
            _ if !is_guarded => vec![Through::Itself],
            // Separate connections carry more data, if their logins need no question.
            Master::Own { socket, .. } if !asks_mark(socket).exists() => {
                vec![Through::Itself, Through::Master]
            }
            // A login would ask a question and fail.
            Master::Own { .. } => vec![Through::Master],
            Master::Nobody | Master::Users { .. } => vec![Through::Master, Through::Itself],
        }
    }

    /// True if a connection is shared. Then it is unknown whether a login asks a question.
    pub fn has_master(&self) -> bool {
        *self.known() != Master::Nobody
    }

    fn master(&self, words: &[OsString], destination: &str) -> &Master {
        let find = || {
            let configuration = self.configuration(words, destination);
            configuration.map_or(Master::Nobody, |configuration| {
                let known = Known {
                    words,
                    destination,
                    configuration,
                };
                let found = known.find(self.persist);
                found.unwrap_or_else(|why| {
                    say(&why);
                    self.shunned.store(true, Ordering::Relaxed);
                    Master::Nobody
                })
            })
        };
        self.master.get_or_init(find)
    }

    fn known(&self) -> &Master {
        self.master.get().unwrap_or(&Master::Nobody)
    }

    /// Returns the process ID of a master that was already running and has not failed.
    pub fn process(&self) -> Option<u32> {
        match self.known() {
            Master::Nobody => None,
            Master::Users { process, .. } | Master::Own { process, .. } => *process,
        }
        .filter(|_| !self.is_shunned())
    }

    fn is_shunned(&self) -> bool {
        self.shunned.load(Ordering::Relaxed)
    }

    /// Stops using the master after it failed, and reports the reason. Does not end it, since other
    /// commands may use it.
    pub fn shun(&self, destination: &str, why: &str) {
        self.shunned.store(true, Ordering::Relaxed);
        say(&format!(
            "the kept login to {destination} does not serve ({why}): ssh logs in anew"
        ));
    }

    /// Checks ssh's output for a login that happened although a master was running. If so, reports
    /// it and stops using the master.
    pub fn note_refusal(&self, destination: &str, said: &str) {
        if self.process().is_none() || !said.contains(MASTER_FAILED) {
            return;
        }
        let why = if said.contains(NO_MORE_SESSIONS) {
            "takes no more sessions (MaxSessions in the host's sshd_config, or other commands \
             hold them)"
        } else {
            "did not serve; what ssh said is above"
        };
        say(&format!(
            "the kept login to {destination} {why}: ssh logged in anew"
        ));
        self.shunned.store(true, Ordering::Relaxed);
    }

    /// Records the first login and reports that it is kept. `asked` is true if ssh may have asked a
    /// question.
    pub fn logged_in(&self, words: &[OsString], destination: &str, asked: bool) {
        let Master::Own {
            socket,
            process: None,
            stays,
            ..
        } = self.known()
        else {
            return;
        };
        if self.is_shunned() || !socket.exists() {
            return;
        }
        if asked || answers_by_program() {
            // If the mark cannot be written, further channels first try a login.
            let _ = std::fs::write(asks_mark(socket), "");
        }
        let ssh = words.first().map(|word| word.to_string_lossy());
        say(&format!(
            "this login to {destination} is kept for {} after its last use (--ssh-persist); \
             `{} -O exit -S {} {destination}` ends it",
            stays.shown(),
            ssh.as_deref().unwrap_or("ssh"),
            socket.display()
        ));
    }

    /// Records that a further login would need an answer from the user.
    pub fn needs_somebody(&self) {
        if let Master::Own { socket, .. } = self.known() {
            // If the mark cannot be written, the next command tries a login again.
            let _ = std::fs::write(asks_mark(socket), "");
        }
    }
}

/// True if a program answers ssh's questions. Its answers may come too fast to be detected.
fn answers_by_program() -> bool {
    std::env::var_os("SSH_ASKPASS_REQUIRE").is_some_and(|how| how != "never")
}

/// Returns the path of a mark beside the socket, which says that a login asks questions.
fn asks_mark(socket: &Path) -> PathBuf {
    socket.with_extension("asks")
}

/// True if ssh would use [`GUARD`].
fn is_guarded(words: &[OsString], destination: &str) -> bool {
    let configuration = configured(words, &[GUARD], destination);
    let mut lines = configuration.iter().flat_map(|text| text.lines());
    lines.any(|line| line == "proxycommand false")
}

fn plain(options: &[&str]) -> Vec<OsString> {
    options.iter().map(OsString::from).collect()
}

/// Returns the option that names a socket. Doubles each `%`, which ssh expands.
fn control_path(socket: &OsStr) -> OsString {
    let mut bytes = b"-S".to_vec();
    for byte in socket.as_bytes() {
        bytes.push(*byte);
        if *byte == b'%' {
            bytes.push(b'%');
        }
    }
    OsStr::from_bytes(&bytes).to_owned()
}

/// A destination and its ssh configuration.
struct Known<'a> {
    words: &'a [OsString],
    destination: &'a str,
    configuration: &'a str,
}

impl Known<'_> {
    fn setting(&self, name: &str) -> Option<&str> {
        let mut lines = self.configuration.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    }

    /// Finds or chooses the holder of the shared connection.
    ///
    /// # Errors
    ///
    /// A message for the user that says why an existing master cannot be used.
    fn find(&self, persist: Option<Persist>) -> Result<Master, String> {
        let asked = kept(persist);
        let keeps = asked.filter(|asked| !asked.is_off());
        let socket = self.setting("controlpath");
        if let Some(socket) = socket.filter(|socket| *socket != "none") {
            let makes = self.setting("controlmaster");
            let makes = makes.is_some_and(|makes| makes != "false" && makes != "no");
            let ends = self.setting("controlpersist") == Some("no");
            let users = |process| Master::Users {
                socket: socket.to_owned(),
                process,
                stays: keeps.filter(|_| makes && ends),
            };
            match self.ask(OsStr::new(socket)) {
                Answer::Lives(process) => return Ok(users(Some(process))),
                Answer::Silent => {
                    return Err(format!(
                        "ssh's master for {} ({socket}) does not answer: ssh logs in without it; \
                         `ssh -O exit` ends it",
                        self.destination
                    ));
                }
                Answer::Absent if makes => return Ok(users(None)),
                Answer::Absent => {}
            }
        }
        let directory = match asked {
            Some(_) => control_directory::of_this_user(),
            None => return Ok(Master::Nobody),
        };
        let socket = directory.and_then(|directory| {
            control_directory::socket_in(
                &directory,
                self.words,
                self.destination,
                self.configuration,
            )
        });
        match (socket, keeps) {
            (Ok(socket), None) => {
                if socket.exists() {
                    stop(self.words, self.destination, &socket);
                    let host = self.destination;
                    say(&format!(
                        "the kept login to {host} is ended (--ssh-persist off)"
                    ));
                }
                Ok(Master::Nobody)
            }
            (Ok(socket), Some(stays)) => self.own(socket, stays),
            (Err(_), None) => Ok(Master::Nobody),
            (Err(why), Some(_)) => {
                say(&format!("no login is kept: {why}"));
                Ok(Master::Nobody)
            }
        }
    }

    fn own(&self, socket: PathBuf, stays: Persist) -> Result<Master, String> {
        let host = self.destination;
        let process = match UnixStream::connect(&socket) {
            Ok(_) => match self.ask(socket.as_os_str()) {
                Answer::Lives(process) => Some(process),
                Answer::Absent | Answer::Silent => {
                    return Err(format!(
                        "the kept login to {host} does not answer: ssh logs in without it"
                    ));
                }
            },
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    // ssh replaces the stale socket with a new one.
                    say(&format!(
                        "the kept login to {host} has ended: ssh logs in anew"
                    ));
                }
                None
            }
        };
        if process.is_none() {
            if let Err(why) = control_directory::try_socket(&socket) {
                say(&format!("no login is kept: {why}"));
                return Ok(Master::Nobody);
            }
            // Remove the mark of an earlier login.
            let _ = std::fs::remove_file(asks_mark(&socket));
        }
        Ok(Master::Own {
            socket,
            process,
            stays,
            watched: self.setting("serveraliveinterval") == Some("0"),
        })
    }

    /// Checks whether a master answers.
    fn ask(&self, socket: &OsStr) -> Answer {
        let Some(mut command) = control(self.words, self.destination, socket, "check") else {
            return Answer::Absent;
        };
        match errors_within(&mut command, ANSWERS_WITHIN) {
            Ok(said) => {
                process_in(&String::from_utf8_lossy(&said)).map_or(Answer::Absent, Answer::Lives)
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Answer::Silent,
            Err(_) => Answer::Absent,
        }
    }
}

/// Returns the process ID in a message such as `Master running (pid=4711)`.
fn process_in(said: &str) -> Option<u32> {
    let (_, rest) = said.split_once("(pid=")?;
    rest.split_once(')')?.0.parse().ok()
}

/// Returns the `ssh -O` command that sends a request to a master.
fn control(words: &[OsString], destination: &str, socket: &OsStr, what: &str) -> Option<Command> {
    let (program, rest) = words.split_first()?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .args(["-O", what])
        .arg(control_path(socket))
        .args(["--", destination])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Some(command)
}

/// Asks a master of longhaul's to accept no more sessions. It ends with its last session.
fn stop(words: &[OsString], destination: &str, socket: &Path) {
    if let Some(mut command) = control(words, destination, socket.as_os_str(), "stop") {
        // A master that does not answer ends after its own time limit.
        let _ = errors_within(&mut command, ANSWERS_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(configuration: &str, persist: Option<Persist>) -> Master {
        // `true` ignores its arguments and reports no master.
        let words = ["true".into()];
        let known = Known {
            words: &words,
            destination: "host",
            configuration,
        };
        known.find(persist).unwrap()
    }

    fn sharing(master: Master) -> Sharing {
        let sharing = Sharing::new(&SshSettings::default());
        sharing.master.set(master).unwrap();
        sharing
    }

    #[test]
    fn a_master_of_the_users_configuration_is_used_and_stays_by_default() {
        let makes = "controlmaster auto\ncontrolpath /c\ncontrolpersist no\n";
        let Master::Users { socket, stays, .. } = found(makes, Some(USUAL)) else {
            panic!("not the user's");
        };
        assert_eq!((socket.as_str(), stays), ("/c", Some(USUAL)));
        let Master::Users { stays, .. } = found(makes, None) else {
            panic!("not the user's");
        };
        assert_eq!(stays, None);
        let stays_already = "controlmaster true\ncontrolpath /c\ncontrolpersist 20\n";
        let Master::Users { stays, .. } = found(stays_already, Some(USUAL)) else {
            panic!("not the user's");
        };
        assert_eq!(stays, None);
    }

    #[test]
    fn without_a_terminal_no_login_is_kept() {
        for configuration in [
            "controlmaster false\n",
            "controlpath none\n",
            "controlpath /c\n",
        ] {
            assert_eq!(found(configuration, None), Master::Nobody);
        }
    }

    #[test]
    fn further_channels_through_a_master_do_not_log_in() {
        let words = ["ssh".into()];
        let own = sharing(Master::Own {
            socket: "/run/a%b".into(),
            process: None,
            stays: USUAL,
            watched: true,
        });
        let options = own.further_options(&words, "host", Through::Master);
        for wanted in [
            "-oBatchMode=yes",
            "-oControlMaster=no",
            "-S/run/a%%b",
            "-oProxyCommand=false",
        ] {
            assert!(options.contains(&wanted.into()), "{wanted}: {options:?}");
        }
        let itself = own.further_options(&words, "host", Through::Itself);
        assert!(itself.contains(&"-Snone".into()));
        let first = own.options(&words, "host", Login::Asking);
        assert!(first.contains(&"-oControlPersist=600".into()), "{first:?}");
        assert!(!first.contains(&"-oBatchMode=yes".into()));
        own.shun("host", "why");
        let first = own.options(&words, "host", Login::Asking);
        assert_eq!(first, plain(&ALONE));
        assert_eq!(own.ways(&words, "host"), [Through::Itself]);
    }

    #[test]
    fn options_that_override_the_guard_are_detected() {
        let guarded = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            is_guarded(&words, "host")
        };
        if configured(&["ssh".into()], &[], "host").is_none() {
            longhaul_testing::skip("there is no ssh (Debian: openssh-client)");
            return;
        }
        assert!(guarded(&["ssh", "-Fnone"]));
        assert!(!guarded(&["ssh", "-Fnone", "-J", "jump"]));
        assert!(!guarded(&["ssh", "-Fnone", "-oProxyCommand=nc %h %p"]));
    }

    #[test]
    fn without_a_shared_connection_no_options_are_added() {
        let words = ["ssh".into()];
        let alone = sharing(Master::Nobody);
        assert!(alone.options(&words, "host", Login::Asking).is_empty());
        let silent = alone.options(&words, "host", Login::Silent);
        assert!(silent.contains(&"-Snone".into()));
    }

    #[test]
    fn a_masters_process_is_read() {
        assert_eq!(process_in("Master running (pid=4711)\r\n"), Some(4711));
        for other in [
            "Control socket connect(/c): No such file or directory",
            "(pid=x)",
            "(pid=1",
        ] {
            assert_eq!(process_in(other), None, "{other}");
        }
    }
}
