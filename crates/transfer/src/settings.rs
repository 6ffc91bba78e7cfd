//! Defines the settings for connecting to hosts and authenticating them, as plain values.
//! Credentials are referenced by file and never included.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_net::identity::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::ports::Ports;
use crate::stop::{Exit, Stop};

/// Default for [`ConnectionSettings::timeout`].
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings for connecting to hosts and authenticating them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionSettings {
    /// Fingerprint of the daemon's key. No other key is accepted.
    #[serde(with = "crate::text", skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// If true, accepts the key of an unknown daemon and stores it.
    pub accept_new: bool,
    /// Certificate authorities (PEM) that are trusted to certify daemons' host names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// File of tokens; `None`: `tokens` in the configuration directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// This client's certificate (PEM), instead of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Encryption of file data in transit.
    pub data_security: DataSecurity,
    /// Congestion control of the sending end, by its kernel's name; `None`: chosen automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// If true, yields to other traffic.
    pub nice: bool,
    /// Local addresses to connect from, used in turn.
    pub bind: Vec<IpAddr>,
    /// If true, opens connections with Multipath TCP.
    pub mptcp: bool,
    /// Socket buffer size of this end in bytes; `None`: tuned by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u64>,
    /// Time limit for a host's first answer, and for later silence.
    #[serde(with = "crate::milliseconds")]
    pub timeout: Duration,
    /// Settings for hosts that are reached over SSH.
    pub ssh: SshSettings,
    /// Settings for object stores.
    #[serde(skip_serializing_if = "S3Settings::is_usual")]
    pub s3: S3Settings,
}

impl ConnectionSettings {
    /// Returns the settings without credentials and settings of SSH, for a job whose client has
    /// introduced the two ends. All fields are listed, so that a new one cannot be forgotten.
    pub(crate) fn introduced(self) -> ConnectionSettings {
        let ConnectionSettings {
            fingerprint: _,
            accept_new: _,
            authority: _,
            token_file: _,
            certificate: _,
            key: _,
            data_security,
            congestion,
            nice,
            bind,
            mptcp,
            buffer,
            timeout,
            ssh: _,
            s3: _,
        } = self;
        ConnectionSettings {
            data_security,
            congestion,
            nice,
            bind,
            mptcp,
            buffer,
            timeout,
            ..ConnectionSettings::default()
        }
    }
}

impl Default for ConnectionSettings {
    fn default() -> ConnectionSettings {
        ConnectionSettings {
            fingerprint: None,
            accept_new: false,
            authority: None,
            token_file: None,
            certificate: None,
            key: None,
            data_security: DataSecurity::Tls,
            congestion: None,
            nice: false,
            bind: Vec::new(),
            mptcp: false,
            buffer: None,
            timeout: USUAL_TIMEOUT,
            ssh: SshSettings::default(),
            s3: S3Settings::default(),
        }
    }
}

/// Encryption of blocks in transit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataSecurity {
    /// Encrypts and authenticates all data.
    #[default]
    Tls,
    /// Sends file data and their names in clear; authentication, control and digests in TLS.
    Clear,
}

/// Settings for buckets. They contain no credentials, which come from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Settings {
    /// URL of the store; `None`: Amazon's, if the environment names no other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region of the bucket; `None`: from the environment or the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// If true, requests are not signed.
    pub anonymous: bool,
    /// If true, the user agrees to pay for the requests.
    pub requester_pays: bool,
}

impl S3Settings {
    /// True if no setting differs from the default.
    pub fn is_usual(&self) -> bool {
        *self == S3Settings::default()
    }
}

/// Settings for reaching the remote end of `[user@]host:path`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SshSettings {
    /// The ssh command with its options, quoted as in a shell; `None`: `LONGHAUL_SSH`, or else
    /// `ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Path of the remote longhaul binary; `None`: the one in its cache, or else in its PATH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_longhaul: Option<String>,
    /// If true, installs this release in the remote cache if it is missing.
    pub install_remote: bool,
    /// Ports for direct connections, at either end; `None`: any port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
    /// Time for which a login is kept for later commands; `None`: some time on a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<Persist>,
    /// If true, the user cannot be asked for a password, a code or a key, and a login that needs
    /// one fails.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asks_nobody: bool,
}

impl SshSettings {
    /// Splits the user's ssh command (`--ssh` or `LONGHAUL_SSH`) into words by the quoting rules of
    /// a shell.
    ///
    /// # Errors
    ///
    /// The command is empty or has an unclosed quote.
    pub fn words(&self) -> Result<Vec<OsString>, Stop> {
        let asked = self.ssh.clone();
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
}

/// Time for which a login is kept after its last use, in whole seconds; 0: not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct Persist(u32);

impl TryFrom<u32> for Persist {
    type Error = String;

    fn try_from(seconds: u32) -> Result<Persist, String> {
        let kept = Persist::of_seconds(seconds);
        let too_long = || "a login is kept for 7d at most".to_owned();
        (kept.0 == seconds).then_some(kept).ok_or_else(too_long)
    }
}

impl Persist {
    /// Maximum time in seconds. A longer need calls for a service with its own login.
    const MAXIMUM_SECONDS: u32 = 7 * 24 * 60 * 60;

    /// Creates a time of 0 to a week in seconds; longer ones are capped.
    pub const fn of_seconds(seconds: u32) -> Persist {
        if seconds > Persist::MAXIMUM_SECONDS {
            Persist(Persist::MAXIMUM_SECONDS)
        } else {
            Persist(seconds)
        }
    }

    /// True if logins are not kept.
    pub fn is_off(self) -> bool {
        self.0 == 0
    }

    /// Returns the option for ssh.
    pub fn option(self) -> std::ffi::OsString {
        format!("-oControlPersist={}", self.0).into()
    }

    /// Formats the time for people.
    pub fn shown(self) -> String {
        match self.0 % 60 {
            0 => format!("{} min", self.0 / 60),
            _ => format!("{} s", self.0),
        }
    }
}

impl std::str::FromStr for Persist {
    type Err = String;

    fn from_str(text: &str) -> Result<Persist, String> {
        if text == "off" {
            return Ok(Persist(0));
        }
        let span = longhaul_units::parse_span(text);
        let span = span.map_err(|error| format!("{error}, or \"off\""))?;
        if span > Duration::from_secs(Persist::MAXIMUM_SECONDS.into()) {
            Err("a login is kept for 7d at most".to_owned())
        } else {
            // A part of a second is rounded up, because 0 means "off".
            Ok(Persist::of_seconds(span.as_secs_f64().ceil() as u32))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_for_a_time_or_not_kept() {
        let read = |text: &str| text.parse::<Persist>();
        assert_eq!(read("10min").unwrap().option(), "-oControlPersist=600");
        assert_eq!(read("0.5s").unwrap().shown(), "1 s");
        assert!(read("off").unwrap().is_off() && read("0").unwrap().is_off());
        assert!(serde_json::from_str::<Persist>("604801").is_err());
        for bad in ["10", "never", "8d", ""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
