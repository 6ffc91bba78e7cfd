//! The command line of the user's `ssh`, and what it runs on the far side.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::master::{Sharing, Through};
use super::process::{Login, SshProcess, output_within};
use longhaul_engine::session::TransferSettings;
use longhaul_net::tcp::HostPort;

use crate::endpoint::SshRemote;
use crate::ports::Ports;
use crate::settings::{ConnectionSettings, SshSettings};
use crate::stop::{Exit, Stop};

/// The release that both ends must have.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Where the far side keeps this release, for a shell.
pub const CACHE: &str = "${XDG_CACHE_HOME:-$HOME/.cache}/longhaul";

/// Where else it may be, if nothing runs in the cache or there is no room: directories that are
/// this user's, `$u` by number, as words of a shell. `/-` stands for what is not set.
pub const OTHER_PLACES: &str = "\"${SCRATCH:-/-}/.longhaul-$u\" \"${WORK:-/-}/.longhaul-$u\" \
    \"/var/tmp/longhaul-$u\" \"${XDG_RUNTIME_DIR:-/-}/longhaul\" \"/tmp/longhaul-$u\"";

/// For a shell: whether such a directory is this user's alone, and nobody else can put another
/// one in its place. `u` is the user.
pub const IS_OWN: &str = "own() { [ -h \"$1\" ] && return 1; [ -O \"$1\" ] || return 1; \
    case \"$(stat -c %a \"$1\")\" in 700|2700) ;; *) return 1;; esac; \
    case \"$(stat -c %u:%A \"${1%/*}\")\" in \
    0:d????-??-?*|\"$u\":d????-??-?*|0:d????????[tT]*|\"$u\":d????????[tT]*) return 0;; esac; \
    return 1; };";

/// For a shell: whether a file is this release and runs. A binary that was truncated, for example
/// by a full disk, has the right name and ends with a signal.
const RUNS: &str = concat!(
    "runs() { [ -x \"$1\" ] && [ \"$(\"$1\" --version 2>/dev/null </dev/null)\" = \"longhaul ",
    env!("CARGO_PKG_VERSION"),
    "\" ]; };"
);

/// Never a terminal, nor anything of the user's configuration that is meant for a shell or for
/// other connections: as in `scp`.
const OPTIONS: [&str; 6] = [
    "-T",
    "-x",
    "-oPermitLocalCommand=no",
    "-oClearAllForwardings=yes",
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
];

/// How long ssh may take to read its configuration, which may run commands
/// (`Match exec`).
const CONFIGURED_WITHIN: Duration = Duration::from_secs(10);

/// What the far side is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The other end of a session with this one.
    Session,
    /// A job.
    Drive,
    /// The other end of a job.
    Meet,
    /// One more channel to the session that listens under this name.
    Join(String),
    /// The channel of this job.
    Attach(String),
    /// The list of jobs.
    Jobs,
}

/// What the far side should know when it starts.
#[derive(Clone, Debug)]
pub struct FarSide {
    /// What it is for.
    pub role: Role,
    /// The binary there; none: the cache's, else the one in PATH.
    pub program: Option<String>,
    /// Memory for blocks.
    pub memory: u64,
    /// How long the session outlives its last connection.
    pub linger: Duration,
    /// When leftovers expire.
    pub expiry: Option<Duration>,
    /// Where it may listen.
    pub ports: Ports,
    /// Another release in its PATH counts as none, since this one is put there.
    pub replaces: bool,
}

/// How the far side is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The user's ssh with its own options.
    pub words: Vec<OsString>,
    /// `[user@]host`.
    pub destination: String,
    /// What is started there.
    pub side: FarSide,
    /// Whether a login serves several ssh processes.
    pub sharing: Arc<Sharing>,
}

/// What the user's ssh would do with a destination, a setting a line; this starts a process.
/// The user's own options count more than these.
pub(super) fn configured(
    words: &[OsString],
    options: &[&str],
    destination: &str,
) -> Option<String> {
    let (program, rest) = words.split_first()?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .arg("-G")
        .args(options)
        .args(["--", destination])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = output_within(&mut command, CONFIGURED_WITHIN).ok()?;
    Some(String::from_utf8_lossy(&output).into_owned())
}

/// Where the user's ssh would connect to; this starts a process.
pub fn server_of(arguments: &SshSettings, destination: &str) -> Option<HostPort> {
    let words = ssh_words(arguments).ok()?;
    let text = configured(&words, &[], destination)?;
    let port = setting(&text, "port ")?.parse().ok()?;
    Some(HostPort::new(host_name_in(&text)?, port))
}

impl Start {
    /// The host as in ssh's configuration; the first time this starts a process.
    pub fn host_name(&self) -> Option<String> {
        let text = self.sharing.configuration(&self.words, &self.destination)?;
        host_name_in(text).map(str::to_owned)
    }

    /// The command line that begins a session.
    pub fn first(&self) -> Vec<OsString> {
        self.first_by(Login::Asking)
    }

    /// The same; whether anybody may be asked is said.
    pub fn first_by(&self, login: Login) -> Vec<OsString> {
        self.script_by(&remote_command(&self.side), login)
    }

    /// The command line for one more channel, which asks nobody.
    pub fn further(&self, channel: &str, through: Through) -> Vec<OsString> {
        let join = format!("--join {channel}");
        let remote = far_command(self.side.program.as_deref(), &join, false);
        let (words, destination) = (&self.words, &self.destination);
        let options = self.sharing.further_options(words, destination, through);
        command_line(words, options, destination, &remote)
    }

    /// The ways of such a channel, the better one first.
    pub fn ways(&self) -> Vec<Through> {
        self.sharing.ways(&self.words, &self.destination)
    }

    /// The command line that runs a script; somebody may be asked.
    pub fn script(&self, script: &str) -> Vec<OsString> {
        self.script_by(script, Login::Asking)
    }

    /// The same; whether anybody may be asked is said.
    pub fn script_by(&self, script: &str, login: Login) -> Vec<OsString> {
        let (words, destination) = (&self.words, &self.destination);
        let options = self.sharing.options(words, destination, login);
        command_line(words, options, destination, script)
    }

    /// An ssh has logged in, or has found somebody who was.
    pub fn note_login(&self, process: &SshProcess) {
        let (words, destination) = (&self.words, &self.destination);
        self.sharing.note_refusal(destination, &process.said());
        self.sharing
            .logged_in(words, destination, process.has_asked());
    }

    /// Whether it is reached through a master that was there before.
    pub fn is_joined(&self) -> bool {
        self.sharing.process().is_some()
    }

    /// The master that was there does not serve, for this reason.
    pub fn shun_master(&self, why: &str) {
        self.sharing.shun(&self.destination, why);
    }

    /// The name of the user's ssh, for messages.
    pub fn program(&self) -> String {
        let first = self.words.first();
        first.map_or("ssh".into(), |word| word.to_string_lossy().into_owned())
    }
}

/// How the far side of an endpoint is started.
///
/// # Errors
///
/// As [`ssh_words`].
pub fn start_of(
    remote: &SshRemote,
    arguments: &ConnectionSettings,
    settings: &TransferSettings,
) -> Result<Start, Stop> {
    let side = FarSide {
        role: Role::Session,
        program: arguments.ssh.remote_longhaul.clone(),
        memory: settings.budget.0,
        linger: arguments.timeout,
        expiry: settings.expiry,
        ports: arguments.ssh.ports.unwrap_or_default(),
        replaces: arguments.ssh.install_remote,
    };
    Ok(Start {
        words: ssh_words(&arguments.ssh)?,
        destination: remote.destination.clone(),
        side,
        sharing: Arc::new(Sharing::new(&arguments.ssh)),
    })
}

/// The words that start the user's ssh, quoted as a shell has them.
///
/// # Errors
///
/// Where the words make no sense.
pub fn ssh_words(arguments: &SshSettings) -> Result<Vec<OsString>, Stop> {
    let asked = arguments.ssh.clone();
    let text = asked.or_else(|| std::env::var("LONGHAUL_SSH").ok());
    let text = text.unwrap_or_else(|| "ssh".to_owned());
    let words = shlex::split(&text).ok_or_else(|| {
        let text = format!("--ssh, or LONGHAUL_SSH: a quote in {text} has no other: close it");
        Stop::new(Exit::Usage, text)
    })?;
    if words.is_empty() {
        Err(Stop::new(
            Exit::Usage,
            "--ssh, or LONGHAUL_SSH, is empty: name the command, as \"ssh -p 2222\"",
        ))
    } else {
        Ok(words.into_iter().map(OsString::from).collect())
    }
}

/// Everything that is started on this side.
fn command_line(
    words: &[OsString],
    options: Vec<OsString>,
    destination: &str,
    remote: &str,
) -> Vec<OsString> {
    let mut line = words.to_vec();
    line.extend(OPTIONS.iter().map(OsString::from));
    line.extend(options);
    line.extend(["--", destination, remote].map(OsString::from));
    line
}

/// The command that the far side's login shell is given, whichever shell that
/// is: everything but one word is within single quotes, and there is no `!`.
fn remote_command(far: &FarSide) -> String {
    let expiry = match far.expiry {
        Some(age) => format!("{}s", age.as_secs()),
        None => "never".to_owned(),
    };
    let terms = || {
        format!(
            "--memory {}B --linger {}s --expire-leftovers {expiry} --ports {}",
            far.memory,
            far.linger.as_secs().max(1),
            far.ports,
        )
    };
    let arguments = match &far.role {
        Role::Session => terms(),
        Role::Drive => format!("{} --drive", terms()),
        Role::Meet => format!("{} --meet", terms()),
        Role::Join(channel) => format!("--join {channel}"),
        Role::Attach(job) => format!("--attach {job}"),
        Role::Jobs => "--jobs".to_owned(),
    };
    far_command(far.program.as_deref(), &arguments, far.replaces)
}

fn far_command(program: Option<&str>, arguments: &str, replaces: bool) -> String {
    let arguments = format!("remote {arguments}");
    if let Some(program) = program {
        let (home, program) = match program.strip_prefix("~/") {
            Some(below) => ("~/", below),
            None => ("", program),
        };
        return format!("exec {home}{} {arguments}", quoted(program));
    }
    // What another release says would come too late to replace it over this channel.
    let is_same = if replaces {
        " && runs \"$(command -v longhaul)\""
    } else {
        ""
    };
    format!(
        "exec sh -c 'a=\"{arguments}\"; c=\"{CACHE}/longhaul-{RELEASE}\"; \
         PATH=\"$PATH:$HOME/.local/bin:$HOME/bin\"; {RUNS} \
         if runs \"$c\"; then exec \"$c\" $a; fi; u=$(id -u); {IS_OWN} \
         for d in {OTHER_PLACES}; do c=\"$d/longhaul-{RELEASE}\"; \
         [ -O \"$c\" ] && own \"$d\" && runs \"$c\" && exec \"$c\" $a; done; \
         if command -v longhaul >/dev/null 2>&1{is_same}; then exec longhaul $a; fi; \
         echo; echo \"longhaul-absent/1 $(uname -sm)\"; read -r s && eval \"$s\"'"
    )
}

/// What `ssh -G` says.
fn host_name_in(configuration: &str) -> Option<&str> {
    setting(configuration, "hostname ")
}

fn setting<'a>(configuration: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = configuration.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far() -> FarSide {
        FarSide {
            role: Role::Session,
            program: None,
            memory: 1 << 20,
            linger: Duration::from_secs(60),
            expiry: None,
            ports: Ports::default(),
            replaces: false,
        }
    }

    #[test]
    fn the_host_is_where_ssh_finds_it() {
        let text = "user alice\nhostname dtn7.example.org\nport 22\n";
        assert_eq!(host_name_in(text), Some("dtn7.example.org"));
        assert_eq!(host_name_in("user alice\n"), None);
    }

    #[test]
    fn the_destination_is_no_option() {
        let line = command_line(&["ssh".into()], vec!["-v".into()], "u@h", "x");
        assert_eq!(line[line.len() - 4..], ["-v", "--", "u@h", "x"]);
    }

    #[test]
    fn every_shell_can_read_it() {
        let command = remote_command(&far());
        assert_eq!(command.matches('\'').count(), 2);
        assert!(!command.contains(['!', '\n']));
        let named = FarSide {
            program: Some("/opt/it's/longhaul".into()),
            ..far()
        };
        let command = remote_command(&named);
        assert!(
            command.starts_with("exec '/opt/it'\\''s/longhaul' remote "),
            "{command}"
        );
        let at_home = FarSide {
            program: Some("~/my bin/longhaul".into()),
            ..far()
        };
        let command = remote_command(&at_home);
        assert!(
            command.starts_with("exec ~/'my bin/longhaul' remote "),
            "{command}"
        );
    }

    #[test]
    fn the_command_is_quoted_as_in_a_shell() {
        let words = |text: &str| {
            ssh_words(&SshSettings {
                ssh: Some(text.to_owned()),
                remote_longhaul: None,
                ..SshSettings::default()
            })
        };
        let proxy = "ssh -i 'my key' -o \"ProxyCommand ssh jump -W %h:%p\"";
        let expected = [
            "ssh",
            "-i",
            "my key",
            "-o",
            "ProxyCommand ssh jump -W %h:%p",
        ];
        assert_eq!(words(proxy).unwrap(), expected.map(OsString::from));
        for bad in ["", "  ", "ssh -i 'key"] {
            assert_eq!(words(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }

    /// What the far side's shell prints with this home.
    fn answer(home: &std::path::Path, side: &FarSide) -> String {
        let output = std::process::Command::new("sh")
            .args(["-c", &remote_command(side)])
            .env_clear()
            .env("HOME", home)
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn where_nothing_is_installed_that_is_said() {
        let home = tempfile::tempdir().unwrap();
        let text = answer(home.path(), &far());
        assert!(text.starts_with("\nlonghaul-absent/1 Linux "), "{text}");
    }

    #[test]
    fn a_binary_that_does_not_run_counts_as_absent() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let whole = std::fs::read("/bin/sh").unwrap();
        let replacing = FarSide {
            replaces: true,
            ..far()
        };
        for (place, side) in [
            (".cache/longhaul", far()),
            (".cache/longhaul", replacing.clone()),
            (".local/bin", replacing),
        ] {
            let directory = home.path().join(place);
            std::fs::create_dir_all(&directory).unwrap();
            let name = match place {
                ".local/bin" => "longhaul".to_owned(),
                _ => format!("longhaul-{RELEASE}"),
            };
            let file = directory.join(name);
            for bytes in [&whole[..whole.len() / 2], &whole[..64], b""] {
                std::fs::write(&file, bytes).unwrap();
                std::fs::set_permissions(&file, PermissionsExt::from_mode(0o700)).unwrap();
                let text = answer(home.path(), &side);
                assert!(text.starts_with("\nlonghaul-absent/1 Linux "), "{text}");
            }
            let script = format!("#!/bin/sh\necho longhaul {RELEASE}\n");
            std::fs::write(&file, script).unwrap();
            let text = answer(home.path(), &side);
            assert_eq!(text, format!("longhaul {RELEASE}\n"));
            std::fs::remove_file(&file).unwrap();
        }
    }
}
