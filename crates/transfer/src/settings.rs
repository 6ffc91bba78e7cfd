//! How hosts are reached and known, as plain values. Credentials are named by file,
//! never held.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_net::identity::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::ports::Ports;

/// How long a host may be silent where nobody says.
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

/// How hosts are reached and known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionSettings {
    /// The daemon's key; no other is accepted.
    #[serde(with = "crate::text", skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Accept a daemon that is unknown, and remember its key.
    pub accept_new: bool,
    /// Trust daemons whose certificate for that host leads to these authorities (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// The file of tokens; none: `tokens` in the configuration directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// This client's certificate (PEM), instead of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Whether file data are encrypted on their way.
    pub data_security: DataSecurity,
    /// Congestion control of the sending end, by its kernel's name; none: it is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Yield to other traffic.
    pub nice: bool,
    /// Local addresses to connect from, in turns.
    pub bind: Vec<IpAddr>,
    /// Open connections with Multipath TCP.
    pub mptcp: bool,
    /// Bytes of this end's socket buffers; none: the kernel tunes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u64>,
    /// How long a host may take to answer at first, and may be silent later.
    #[serde(with = "crate::milliseconds")]
    pub timeout: Duration,
    /// How hosts are reached over SSH.
    pub ssh: SshSettings,
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
        }
    }
}

/// Whether blocks are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataSecurity {
    /// Encrypted and authenticated.
    #[default]
    Tls,
    /// File data and their names in clear; authentication, control and digests in TLS.
    Clear,
}

/// How the far side of `[user@]host:path` is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SshSettings {
    /// The ssh command with its options, quoted as in a shell; none: `LONGHAUL_SSH`, else
    /// `ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// The longhaul binary on the far side; none: the one in its cache, else in its PATH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_longhaul: Option<String>,
    /// Put this release into the far side's cache where it has none.
    pub install_remote: bool,
    /// Ports that direct connections may come to, at either end; none: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
    /// How long a login is kept for later commands; none: on a terminal for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<Persist>,
    /// Nobody is there to be asked for a password, a code or a key: what would ask fails.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asks_nobody: bool,
}

/// How long a login is kept after its last use, in whole seconds; 0: not at all.
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
    /// Not longer: what is kept so long is a service, and has one of its own.
    const MAXIMUM_SECONDS: u32 = 7 * 24 * 60 * 60;

    /// From 0 to a week.
    pub const fn of_seconds(seconds: u32) -> Persist {
        if seconds > Persist::MAXIMUM_SECONDS {
            Persist(Persist::MAXIMUM_SECONDS)
        } else {
            Persist(seconds)
        }
    }

    /// Whether nothing is kept.
    pub fn is_off(self) -> bool {
        self.0 == 0
    }

    /// What tells ssh.
    pub fn option(self) -> std::ffi::OsString {
        format!("-oControlPersist={}", self.0).into()
    }

    /// For people.
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
            // A part of a second counts as a second: zero means "off".
            Ok(Persist::of_seconds(span.as_secs_f64().ceil() as u32))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_for_a_time_or_not_at_all() {
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
