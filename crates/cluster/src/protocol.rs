//! Messages between the coordinator and a worker: lines of JSON on the worker's standard input and
//! output.

use std::io::{self, BufRead, Read};
use std::net::IpAddr;

use longhaul_net::identity::Fingerprint;
use longhaul_proto::assembly::Assembly;
use longhaul_proto::byte_string::ByteString;
use longhaul_transfer::ports::Ports;
use longhaul_transfer::spec::TransferSpec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::task::Found;

/// Maximum length of an order in bytes. The first one has the user's filters and list of files.
pub const MAXIMUM_ORDER_BYTES: u64 = 256 << 20;

/// Maximum length of a report in bytes.
pub const MAXIMUM_REPORT_BYTES: u64 = 1 << 20;

/// Maximum number of files in one [`Report::Found`].
pub const MOST_FOUND: usize = 1000;

/// Version of this release. Both ends must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Number of a session. The coordinator never uses one twice.
pub type SessionNumber = u64;

/// Message from the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// The transfer. Always the first order.
    Begin(Box<Begin>),
    /// Runs a daemon that serves the root. The worker answers [`Report::Serving`].
    Serve(Serve),
    /// Runs a session.
    Start(Start),
    /// Ends a session. The worker answers [`Report::Ended`].
    Cancel {
        /// Number of the session.
        session: SessionNumber,
    },
}

/// A transfer between clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// Release of the coordinator.
    pub version: String,
    /// Specification of the whole transfer. Its sources and its destination are ignored.
    pub spec: TransferSpec,
    /// Selects the output of sessions.
    pub output: Output,
    /// Number of sessions that run at the same time on all hosts, for limits of the whole transfer.
    pub sessions: u32,
    /// Interval of [`Report::Alive`], in milliseconds.
    pub alive_milliseconds: u64,
}

/// Selects the output of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// If true, events are JSON.
    pub json: bool,
    /// If true, only failures are reported.
    pub quiet: bool,
    /// If true, names of files are reported.
    pub verbose: bool,
}

/// Settings of a destination's daemon. Its rights follow from the specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// Loopback address to listen on; `None`: all addresses.
    pub loopback: Option<IpAddr>,
    /// Ports to listen on; `None`: any.
    pub ports: Option<Ports>,
}

/// The daemon of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Name or address of the host.
    pub address: String,
    /// Port.
    pub port: u16,
    /// Fingerprint of the daemon's key.
    pub fingerprint: String,
    /// Name of the principal.
    pub principal: String,
    /// The principal's token.
    pub token: String,
}

impl Peer {
    /// True if every value is within its bounds and has no character that separates words or parts
    /// of a URL.
    pub fn is_valid(&self) -> bool {
        let is_word = |text: &str| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/@#?%\\".contains(&byte);
            (1..=255).contains(&text.len()) && text.bytes().all(is_plain)
        };
        let token = (1..=512).contains(&self.token.len());
        is_word(&self.address)
            && is_word(&self.principal)
            && self.port > 0
            && token
            && self.token.bytes().all(|byte| byte.is_ascii_graphic())
            && self.fingerprint.parse::<Fingerprint>().is_ok()
    }
}

/// A session of a source's worker with a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Number of the session.
    pub session: SessionNumber,
    /// Operation of the session.
    pub kind: Kind,
    /// Daemon of the destination.
    pub to: Peer,
}

/// Operation of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kind {
    /// Lists the files that a copy would transfer.
    Survey {
        /// If true, files that are newer at the destination are not listed.
        update: bool,
    },
    /// Copies the files of a task.
    Pack {
        /// Name of the task.
        task: String,
        /// Paths beneath the root.
        files: Vec<ByteString>,
        /// If true, files that are newer at the destination stay.
        update: bool,
        /// Role of the session if the only file is copied in parts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        assembly: Option<Assembly>,
    },
    /// Runs the whole transfer, with the user's options.
    Finish {
        /// If true, files that are newer at the destination stay.
        update: bool,
    },
}

/// Message from a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// The worker has started.
    Ready {
        /// Release of the worker.
        version: String,
    },
    /// The worker's daemon accepts connections.
    Serving {
        /// Port.
        port: u16,
        /// Fingerprint of the daemon's key.
        fingerprint: String,
        /// Name of the principal.
        principal: String,
        /// The principal's token.
        token: String,
    },
    /// The worker runs.
    Alive {},
    /// Files of a survey.
    Found {
        /// Number of the session.
        session: SessionNumber,
        /// Files to copy, at most [`MOST_FOUND`].
        files: Vec<Found>,
    },
    /// Bytes for standard output.
    Print {
        /// The bytes.
        bytes: ByteString,
    },
    /// A line for standard error.
    Note {
        /// The line.
        text: String,
    },
    /// A session ended.
    Ended(Ended),
    /// The worker cannot continue.
    Failed {
        /// Exit code.
        exit: u8,
        /// Reason.
        text: String,
    },
}

/// Result of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Number of the session.
    pub session: SessionNumber,
    /// Exit code.
    pub exit: u8,
    /// Reason of an early end.
    pub text: Option<String>,
    /// Number of committed files.
    pub files: u64,
    /// Bytes of the committed files.
    pub bytes: u64,
    /// Number of files that are newer at the destination and stayed.
    pub newer: u64,
}

/// Reads a message. Returns `None` at the end of the input.
///
/// # Errors
///
/// The input cannot be read, or the line is too long or not a valid message.
pub fn read<T: DeserializeOwned>(input: &mut impl BufRead, most: u64) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.take(most).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        let text = "a message is too long, or it was cut";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Returns a message as a line.
///
/// # Errors
///
/// The message cannot be written as JSON.
pub fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer {
            address: "10.0.0.2".into(),
            port: 50000,
            fingerprint: Fingerprint::of_digest([0; 32]).to_string(),
            principal: "user".into(),
            token: "t".into(),
        }
    }

    fn reads(text: &[u8]) -> io::Result<Option<Report>> {
        read(&mut &*text, 100)
    }

    #[test]
    fn messages_are_lines() {
        let order = Order::Start(Start {
            session: 7,
            kind: Kind::Pack {
                task: "a".into(),
                files: vec![b"x\ny"[..].into(), b"\xff"[..].into()],
                update: false,
                assembly: Some(Assembly::Whole),
            },
            to: peer(),
        });
        let written = line(&order).unwrap();
        assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(read::<Order>(&mut &*written, 9999).unwrap(), Some(order));
        let alive = line(&Report::Alive {}).unwrap();
        assert_eq!(reads(&alive).unwrap(), Some(Report::Alive {}));
        assert_eq!(reads(b"").unwrap(), None);
    }

    #[test]
    fn hostile_lines_are_refused() {
        for bad in [
            &b"\n"[..],
            b"{}\n",
            b"{\"report\":\"alive\"",
            b"{\"report\":\"alive\",\"x\":1}\n",
            b"{\"report\":\"other\"}\n",
            b"{\"report\":\"note\",\"text\":\"\xff\"}\n",
            b"{\"report\":\"serving\",\"port\":70000}\n",
            b"[[[[[[[[[[\n",
            &[b'a'; 200],
            &[b' '; 100],
        ] {
            assert!(reads(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_daemon_with_hostile_values_is_refused() {
        assert!(peer().is_valid());
        for change in [
            |peer: &mut Peer| peer.address = "h/../x".into(),
            |peer: &mut Peer| peer.address = "u@h".into(),
            |peer: &mut Peer| peer.address = "h h".into(),
            |peer: &mut Peer| peer.address = String::new(),
            |peer: &mut Peer| peer.address = "h".repeat(256),
            |peer: &mut Peer| peer.principal = "a\nb".into(),
            |peer: &mut Peer| peer.token = "t\nother line".into(),
            |peer: &mut Peer| peer.token = "t".repeat(513),
            |peer: &mut Peer| peer.fingerprint = "x".into(),
            |peer: &mut Peer| peer.port = 0,
        ] {
            let mut bad = peer();
            change(&mut bad);
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
