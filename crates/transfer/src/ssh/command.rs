//! Builds the command line of the user's `ssh` and the command that it runs on the remote host.

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
use crate::stop::Stop;

/// The release that both ends must have.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Directory on the remote host that keeps installed releases, in shell syntax.
pub const CACHE: &str = "${XDG_CACHE_HOME:-$HOME/.cache}/longhaul";

/// Alternative directories for a release, for a cache on a full file system or one mounted
/// `noexec`. They are shell words, belong to this user and contain the user ID `$u`. `/-` replaces
/// an unset variable.
pub const OTHER_PLACES: &str = "\"${SCRATCH:-/-}/.longhaul-$u\" \"${WORK:-/-}/.longhaul-$u\" \
    \"/var/tmp/longhaul-$u\" \"${XDG_RUNTIME_DIR:-/-}/longhaul\" \"/tmp/longhaul-$u\"";

/// Shell function `own`: succeeds if directory `$1` is accessible to this user only and its parent
/// does not let other users replace it. Expects the user ID in `$u`.
pub const IS_OWN: &str = "own() { [ -h \"$1\" ] && return 1; [ -O \"$1\" ] || return 1; \
    case \"$(stat -c %a \"$1\")\" in 700|2700) ;; *) return 1;; esac; \
    case \"$(stat -c %u:%A \"${1%/*}\")\" in \
    0:d????-??-?*|\"$u\":d????-??-?*|0:d????????[tT]*|\"$u\":d????????[tT]*) return 0;; esac; \
    return 1; };";

/// Shell function `runs`: succeeds if file `$1` is this release and can be executed. A truncated
/// binary, for example after a full disk, has the right name but is killed by a signal.
const RUNS: &str = concat!(
    "runs() { [ -x \"$1\" ] && [ \"$(\"$1\" --version 2>/dev/null </dev/null)\" = \"longhaul ",
    env!("CARGO_PKG_VERSION"),
    "\" ]; };"
);

/// Options of every ssh command, as in `scp`: no terminal, and no settings of the user's
/// configuration that are meant for interactive shells or for other connections.
const OPTIONS: [&str; 6] = [
    "-T",
    "-x",
    "-oPermitLocalCommand=no",
    "-oClearAllForwardings=yes",
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
];

/// Maximum time for ssh to read its configuration, which may run commands (`Match exec`).
const CONFIGURED_WITHIN: Duration = Duration::from_secs(10);

/// Task of the remote process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The other end of a session with this process.
    Session,
    /// Runs a job and starts its transfer.
    Drive,
    /// The other end of a job.
    Meet,
    /// Adds a channel to the session that listens under this name.
    Join(String),
    /// Attaches to this job.
    Attach(String),
    /// Lists the jobs.
    Jobs,
}

/// Settings passed to the remote process at its start.
#[derive(Clone, Debug)]
pub struct FarSide {
    /// Task of the process.
    pub role: Role,
    /// Path of the remote binary. `None` selects the installed release, or else the one in PATH.
    pub program: Option<String>,
    /// Memory for blocks in bytes.
    pub memory: u64,
    /// Time for which the session outlives its last connection.
    pub linger: Duration,
    /// Age at which leftovers expire; `None` means never.
    pub expiry: Option<Duration>,
    /// Ports on which the process may listen.
    pub ports: Ports,
    /// If true, a different release in the remote PATH is ignored, because this release will be
    /// installed.
    pub replaces: bool,
}

/// Everything needed to start the remote process.
#[derive(Clone, Debug)]
pub struct Start {
    /// Command of the user's ssh with its options.
    pub words: Vec<OsString>,
    /// `[user@]host`.
    pub destination: String,
    /// Settings of the remote process.
    pub side: FarSide,
    /// Decides whether several ssh processes share one login.
    pub sharing: Arc<Sharing>,
}

/// Returns the output of `ssh -G`: the settings for a destination, one per line. Starts a process.
/// Options in the user's command take precedence over `options`.
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

/// Returns the host and port that the user's ssh would connect to. Starts a process.
pub fn server_of(arguments: &SshSettings, destination: &str) -> Option<HostPort> {
    let words = arguments.words().ok()?;
    let text = configured(&words, &[], destination)?;
    let port = setting(&text, "port ")?.parse().ok()?;
    Some(HostPort::new(host_name_in(&text)?, port))
}

impl Start {
    /// Returns the host name from ssh's configuration. The first call starts a process.
    pub fn host_name(&self) -> Option<String> {
        let text = self.sharing.configuration(&self.words, &self.destination)?;
        host_name_in(text).map(str::to_owned)
    }

    /// Returns the command line that starts a session and lets ssh ask for a password.
    pub fn first(&self) -> Vec<OsString> {
        self.first_by(Login::Asking)
    }

    /// Returns the same command line for the given kind of login.
    pub fn first_by(&self, login: Login) -> Vec<OsString> {
        self.script_by(&remote_command(&self.side), login)
    }

    /// Returns the command line for one more channel. Its ssh never asks for a password.
    pub fn further(&self, channel: &str, through: Through) -> Vec<OsString> {
        let join = format!("--join {channel}");
        let remote = far_command(self.side.program.as_deref(), &join, false);
        let (words, destination) = (&self.words, &self.destination);
        let options = self.sharing.further_options(words, destination, through);
        command_line(words, options, destination, &remote)
    }

    /// Returns the possible routes for a further channel, best first.
    pub fn ways(&self) -> Vec<Through> {
        self.sharing.ways(&self.words, &self.destination)
    }

    /// Returns the command line that runs a script and lets ssh ask for a password.
    pub fn script(&self, script: &str) -> Vec<OsString> {
        self.script_by(script, Login::Asking)
    }

    /// Returns the same command line for the given kind of login.
    pub fn script_by(&self, script: &str, login: Login) -> Vec<OsString> {
        let (words, destination) = (&self.words, &self.destination);
        let options = self.sharing.options(words, destination, login);
        command_line(words, options, destination, script)
    }

    /// Records that an ssh process has logged in, or has joined an existing master.
    pub fn note_login(&self, process: &SshProcess) {
        let (words, destination) = (&self.words, &self.destination);
        self.sharing.note_refusal(destination, &process.said());
        self.sharing
            .logged_in(words, destination, process.has_asked());
    }

    /// True if the host is reached through a master that another process started.
    pub fn is_joined(&self) -> bool {
        self.sharing.process().is_some()
    }

    /// Stops using the existing master, which does not serve, and reports the reason.
    pub fn shun_master(&self, why: &str) {
        self.sharing.shun(&self.destination, why);
    }

    /// Returns the name of the user's ssh, for messages.
    pub fn program(&self) -> String {
        let first = self.words.first();
        first.map_or("ssh".into(), |word| word.to_string_lossy().into_owned())
    }
}

/// Returns the settings that start the remote process of an endpoint.
///
/// # Errors
///
/// See [`SshSettings::words`].
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
        words: arguments.ssh.words()?,
        destination: remote.destination.clone(),
        side,
        sharing: Arc::new(Sharing::new(&arguments.ssh)),
    })
}

/// Returns all words of the local command.
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

/// Returns the command for the remote login shell. It works in every common shell: all but the
/// first words are inside single quotes, and it contains no `!`.
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
    // A message of a different release would come too late to replace it over this channel.
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

/// Returns the host name from the output of `ssh -G`.
fn host_name_in(configuration: &str) -> Option<&str> {
    setting(configuration, "hostname ")
}

fn setting<'a>(configuration: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = configuration.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Exit;

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
    fn the_host_name_comes_from_the_configuration_of_ssh() {
        let text = "user alice\nhostname dtn7.example.org\nport 22\n";
        assert_eq!(host_name_in(text), Some("dtn7.example.org"));
        assert_eq!(host_name_in("user alice\n"), None);
    }

    #[test]
    fn the_destination_is_not_parsed_as_an_option() {
        let line = command_line(&["ssh".into()], vec!["-v".into()], "u@h", "x");
        assert_eq!(line[line.len() - 4..], ["-v", "--", "u@h", "x"]);
    }

    #[test]
    fn every_shell_accepts_the_command() {
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
            let settings = SshSettings {
                ssh: Some(text.to_owned()),
                remote_longhaul: None,
                ..SshSettings::default()
            };
            settings.words()
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

    /// Returns the output of the remote shell with `home` as its home directory.
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
    fn a_missing_installation_is_reported() {
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
