//! One login for several commands. A *master* is an ssh process that holds a connection open;
//! others reach it through its control socket, and log in no more.
//!
//! If the user's ssh has one, or makes one by its configuration, that one serves. Otherwise
//! longhaul may have ssh keep one, with its socket in a directory of this user alone: a process
//! that listens on such a socket gets what passes through it.

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

/// How long a login is kept on a terminal where nobody says.
const USUAL: Persist = Persist::of_seconds(600);

/// How long a login is kept, where the user asked so or nobody said and a terminal is there.
pub fn kept(asked: Option<Persist>) -> Option<Persist> {
    asked.or_else(|| can_ask().then_some(USUAL))
}

/// How long a master may take to say that it is there. It is on this host; ssh reads its
/// configuration first, which may run commands.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// How often a connection that is kept is asked whether it lives, and how many times it may not
/// answer: a dead one is left within a minute.
const ALIVE_OPTIONS: [&str; 2] = ["-oServerAliveInterval=15", "-oServerAliveCountMax=3"];

/// Asks nobody, and shows only what went wrong.
const SILENT: [&str; 2] = ["-oBatchMode=yes", "-oLogLevel=ERROR"];

/// Goes through no master, and makes none. Unlike `-oControlPath`, `-S` counts wherever it stands.
const ALONE: [&str; 2] = ["-oControlMaster=no", "-Snone"];

/// Has ssh log in nowhere. It only counts if the user's own words have no such option.
const GUARD: &str = "-oProxyCommand=false";

/// What ssh says where sshd lets no more sessions into a connection.
pub const NO_MORE_SESSIONS: &str = "Session open refused by peer";

/// What ssh says where another process has the connection, and does not serve.
const MASTER_FAILED: &str = "mux_client_";

/// Through whom a further channel goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// The master, or nobody.
    Master,
    /// A login of its own.
    Itself,
}

/// Who holds the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Master {
    /// Nobody: each ssh logs in.
    Nobody,
    /// A master as in the user's configuration, at this socket.
    Users {
        /// As `ssh -G` says.
        socket: String,
        /// Its process, if it was there before.
        process: Option<u32>,
        /// The configuration does not say that it stays: it stays so long.
        stays: Option<Persist>,
    },
    /// One of longhaul's.
    Own {
        /// In the private directory.
        socket: PathBuf,
        /// Its process, if it was there before.
        process: Option<u32>,
        /// How long it stays.
        stays: Persist,
        /// The configuration leaves it open whether a dead connection is noticed.
        watched: bool,
    },
}

/// How the ssh processes that reach one host share a connection.
#[derive(Debug)]
pub struct Sharing {
    persist: Option<Persist>,
    /// Whatever would ask fails instead.
    asks_nobody: bool,
    configuration: OnceLock<Option<String>>,
    master: OnceLock<Master>,
    /// The master does not serve.
    shunned: AtomicBool,
    /// A further channel logs in nowhere.
    guarded: OnceLock<bool>,
}

/// What became of a question to a master.
enum Answer {
    Lives(u32),
    Absent,
    Silent,
}

impl Sharing {
    /// As the user asked for it.
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

    /// What ssh would do with the destination; the first time this starts a process.
    pub fn configuration(&self, words: &[OsString], destination: &str) -> Option<&str> {
        let found = self
            .configuration
            .get_or_init(|| configured(words, &[], destination));
        found.as_deref()
    }

    /// The options of one more ssh to the destination; the first time this starts processes.
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

    /// The options of a further channel.
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
        // Where the master does not serve, nobody logs in instead.
        options.push(GUARD.into());
        options
    }

    /// The ways of a further channel, the better one first; where a master is there, this starts
    /// a process.
    pub fn ways(&self, words: &[OsString], destination: &str) -> Vec<Through> {
        let master = self.master(words, destination);
        if self.is_shunned() || *master == Master::Nobody {
            return vec![Through::Itself];
        }
        let is_guarded = self.guarded.get_or_init(|| is_guarded(words, destination));
        match master {
            _ if !is_guarded => vec![Through::Itself],
            // Each with a connection of its own carries more, if that needs nobody.
            Master::Own { socket, .. } if !asks_mark(socket).exists() => {
                vec![Through::Itself, Through::Master]
            }
            // To log in by itself would fail.
            Master::Own { .. } => vec![Through::Master],
            Master::Nobody | Master::Users { .. } => vec![Through::Master, Through::Itself],
        }
    }

    /// Whether a connection is shared, so that nobody knows whether a login asks something.
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

    /// The process of the master that was there before this one came.
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

    /// No master is used any more, since the one that was there did not serve. It is not ended:
    /// other commands may use it.
    pub fn shun(&self, destination: &str, why: &str) {
        self.shunned.store(true, Ordering::Relaxed);
        say(&format!(
            "the kept login to {destination} does not serve ({why}): ssh logs in anew"
        ));
    }

    /// What ssh said while it logged in may be that it did so although a master was there.
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

    /// The first ssh has logged in: says so if the login is kept from now on. `asked`: somebody
    /// may have been asked for something.
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
            // Without it, further channels first log in by themselves.
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

    /// A further login needed somebody.
    pub fn needs_somebody(&self) {
        if let Master::Own { socket, .. } = self.known() {
            // Where it cannot be kept, the next command tries once more.
            let _ = std::fs::write(asks_mark(socket), "");
        }
    }
}

/// Whether a program answers what ssh asks: it may do so too fast to be seen.
fn answers_by_program() -> bool {
    std::env::var_os("SSH_ASKPASS_REQUIRE").is_some_and(|how| how != "never")
}

/// Next to the socket, if a login asks somebody something.
fn asks_mark(socket: &Path) -> PathBuf {
    socket.with_extension("asks")
}

/// Whether ssh would take [`GUARD`].
fn is_guarded(words: &[OsString], destination: &str) -> bool {
    let configuration = configured(words, &[GUARD], destination);
    let mut lines = configuration.iter().flat_map(|text| text.lines());
    lines.any(|line| line == "proxycommand false")
}

fn plain(options: &[&str]) -> Vec<OsString> {
    options.iter().map(OsString::from).collect()
}

/// The option that names a socket; ssh expands `%` and, at the beginning, `~`.
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

/// What is known of a destination.
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

    /// Who holds the connection, or will.
    ///
    /// # Errors
    ///
    /// Why one that is there is of no use, for people.
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
                    // ssh puts its own in its place.
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
            // Of an earlier login.
            let _ = std::fs::remove_file(asks_mark(&socket));
        }
        Ok(Master::Own {
            socket,
            process,
            stays,
            watched: self.setting("serveraliveinterval") == Some("0"),
        })
    }

    /// Asks a master whether it is there.
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

/// `Master running (pid=4711)`.
fn process_in(said: &str) -> Option<u32> {
    let (_, rest) = said.split_once("(pid=")?;
    rest.split_once(')')?.0.parse().ok()
}

/// Tells a master something.
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

/// Has a master of longhaul's take nobody any more. It ends with what goes through it.
fn stop(words: &[OsString], destination: &str, socket: &Path) {
    if let Some(mut command) = control(words, destination, socket.as_os_str(), "stop") {
        // One that does not hear it is left to its time.
        let _ = errors_within(&mut command, ANSWERS_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(configuration: &str, persist: Option<Persist>) -> Master {
        // A program that knows no master.
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
    fn a_master_that_ssh_makes_is_used_and_stays_if_nothing_else_is_said() {
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
    fn without_a_terminal_nothing_is_kept() {
        for configuration in [
            "controlmaster false\n",
            "controlpath none\n",
            "controlpath /c\n",
        ] {
            assert_eq!(found(configuration, None), Master::Nobody);
        }
    }

    #[test]
    fn further_channels_through_a_master_log_in_nowhere() {
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
    fn words_that_count_more_than_the_guard_are_noticed() {
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
    fn nothing_changes_where_nothing_is_shared() {
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
