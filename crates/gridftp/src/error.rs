//! Errors of a session.

use std::io;

use crate::protocol::block::BlockError;
use crate::protocol::command::CommandError;
use crate::protocol::ranges::RangesError;
use crate::protocol::reply::{Reply, ReplyError};

/// Reply code: the server ends the session and closes the connection, for example because it was
/// idle. It may follow any command.
pub(crate) const SESSION_ENDS: u16 = 421;

/// Reasons for the failure of an operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered a command with an error. The session can continue.
    #[error("the server rejected {command}: {code} {text}")]
    Refused {
        /// Name of the command.
        command: String,
        /// Code of the reply, from 300 to 599.
        code: u16,
        /// Text of the reply.
        text: String,
    },
    /// The command cannot be expressed in FTP. It was not sent.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A system call failed.
    #[error("{action}: {source}")]
    Io {
        /// The action that failed, such as "connect to HOST".
        action: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The server sent no data for the time that the options allow.
    #[error("the server sent no data for {seconds} seconds")]
    Silent {
        /// Time without data in seconds.
        seconds: u64,
    },
    /// The server closed the control connection.
    #[error("the server closed the control connection")]
    Closed,
    /// The replies of the server cannot be parsed.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// The frames of a data connection cannot be parsed.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The data arrived in too many pieces.
    #[error(transparent)]
    Ranges(#[from] RangesError),
    /// A reply or a listing has an unexpected form.
    #[error("{0}")]
    Unexpected(String),
    /// The server lacks an ability.
    #[error("the server cannot {0}")]
    Unsupported(&'static str),
    /// The server did not open a data connection to this host.
    #[error(
        "the server opened no data connection to this host within {seconds} seconds; stream mode \
         works behind a firewall"
    )]
    NoDataConnection {
        /// Time without a connection in seconds.
        seconds: u64,
    },
    /// A transfer ended successfully, but bytes are missing or were added.
    #[error("the server transferred {transferred} of {size} bytes; the file may have changed")]
    Incomplete {
        /// Number of bytes of the file at this end.
        transferred: u64,
        /// Expected number of bytes.
        size: u64,
    },
    /// The local file failed.
    #[error("local file: {0}")]
    Local(#[source] io::Error),
    /// TLS is required, and the server does not offer it. No user and no password was sent.
    #[error("the server offers no TLS, so that passwords and data would be sent in clear text")]
    ClearText,
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(String),
}

impl Error {
    /// Describes a reply that is an error.
    pub(crate) fn refused(command: &str, reply: &Reply) -> Error {
        Error::Refused {
            command: command.to_owned(),
            code: reply.code,
            text: reply.text(),
        }
    }

    /// Describes an error of the system.
    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> Error {
        Error::Io {
            action: action.into(),
            source,
        }
    }

    /// True if the session cannot continue after this error. Open a new one.
    pub fn ends_session(&self) -> bool {
        match self {
            Error::Refused { code, .. } => *code == SESSION_ENDS,
            Error::Command(_) | Error::Unsupported(_) => false,
            _ => true,
        }
    }

    /// True if the connection was lost. The operation may succeed in another session.
    pub fn is_lost_connection(&self) -> bool {
        match self {
            Error::Closed | Error::Io { .. } | Error::Silent { .. } => true,
            Error::Refused { code, .. } => *code == SESSION_ENDS,
            _ => false,
        }
    }

    /// True if the server said that the path does not exist. Many servers use one code for all
    /// errors of files, so that a false result has no meaning.
    pub fn means_absent(&self) -> bool {
        match self {
            Error::Refused { text, .. } => {
                text.contains("PATH_NOT_FOUND") || text.contains("No such file or directory")
            }
            _ => false,
        }
    }
}
