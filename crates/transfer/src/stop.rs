//! Defines the reason why an operation ended early, and its exit code.

use std::process::ExitCode;

/// Exit codes; documented in the README and in `longhaul --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done,
    /// The command line is invalid.
    Usage,
    /// Some files failed; the others succeeded.
    Partial,
    /// The other end could not be reached, or the connection was lost.
    Connection,
    /// One end rejected the identity or the rights of the other.
    Authentication,
    /// Data differ, or repeatedly arrive corrupted.
    Integrity,
    /// This end or its disk failed.
    Local,
    /// A newer run of the same transfer took over.
    Superseded,
    /// The time limit was reached.
    TimeOver,
    /// A plan was computed, but a much better one may exist.
    NotProven,
    /// A signal ended the command.
    Interrupted,
}

impl Exit {
    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Usage => 1,
            Exit::Partial => 2,
            Exit::Connection => 3,
            Exit::Authentication => 4,
            Exit::Integrity => 5,
            Exit::Local => 6,
            Exit::Superseded => 7,
            Exit::TimeOver => 8,
            Exit::NotProven => 9,
            // 128 + SIGINT, as in shells.
            Exit::Interrupted => 130,
        }
    }

    /// Returns the exit of a code. For an unknown code, the connection counts as lost.
    pub fn of_code(code: u8) -> Exit {
        let all = [
            Exit::Done,
            Exit::Usage,
            Exit::Partial,
            Exit::Connection,
            Exit::Authentication,
            Exit::Integrity,
            Exit::Local,
            Exit::Superseded,
            Exit::TimeOver,
            Exit::NotProven,
            Exit::Interrupted,
        ];
        let found = all.into_iter().find(|exit| exit.code() == code);
        found.unwrap_or(Exit::Connection)
    }

    /// Returns the exit for a failure that another end reported. Without a code, the connection
    /// counts as lost.
    pub fn of_failure(code: Option<u8>) -> Exit {
        match code.map(Exit::of_code) {
            None | Some(Exit::Done) => Exit::Connection,
            Some(exit) => exit,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The reason why a command ended early.
#[derive(Debug)]
pub struct Stop {
    /// Exit code of the command.
    pub exit: Exit,
    /// Message for the user: the subject, the cause and the remedy.
    pub text: String,
    /// True if another attempt would fail in the same way.
    pub stays: bool,
    /// True if the other end restarts and asked to be tried again.
    pub restarts: bool,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Stop {}

impl Stop {
    /// Creates a stop.
    pub fn new(exit: Exit, text: impl Into<String>) -> Stop {
        Stop {
            exit,
            text: text.into(),
            stays: false,
            restarts: false,
        }
    }

    /// Marks the stop as permanent, such as for a different release.
    #[must_use]
    pub fn that_stays(self) -> Stop {
        Stop {
            stays: true,
            ..self
        }
    }

    /// Marks the stop as the restart of the other end.
    #[must_use]
    pub fn that_restarts(self) -> Stop {
        Stop {
            restarts: true,
            ..self
        }
    }

    /// True if another attempt may succeed: a path may appear, and a host, space or memory may
    /// become available. Other reasons remain until the command or the host is changed.
    pub fn may_pass(&self) -> bool {
        !self.stays && matches!(self.exit, Exit::Connection | Exit::Local)
    }

    /// Creates a stop from an error.
    pub fn because(exit: Exit, error: impl std::fmt::Display) -> Stop {
        Stop::new(exit, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_never_reported_as_done() {
        for (code, exit) in [
            (None, Exit::Connection),
            (Some(0), Exit::Connection),
            (Some(1), Exit::Usage),
            (Some(4), Exit::Authentication),
            (Some(99), Exit::Connection),
        ] {
            assert_eq!(Exit::of_failure(code), exit, "{code:?}");
        }
    }
}
