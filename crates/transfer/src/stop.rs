//! Why an operation ended early, and what that means for an exit code.

use std::process::ExitCode;

/// Exit codes; documented in the README and in `longhaul --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is done.
    Done,
    /// The command line makes no sense.
    Usage,
    /// Some files failed; the others are done.
    Partial,
    /// The other end could not be reached, or was lost.
    Connection,
    /// One end did not accept the other.
    Authentication,
    /// Data differ, or arrive corrupted again and again.
    Integrity,
    /// This end, or its disk, cannot.
    Local,
    /// A newer run of the same transfer took over.
    Superseded,
    /// The time that it was given is over.
    TimeOver,
    /// A signal ended it.
    Interrupted,
}

impl Exit {
    /// The number.
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
            // 128 + SIGINT, as shells have it.
            Exit::Interrupted => 130,
        }
    }

    /// What a number means; another end that ended otherwise was lost.
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
            Exit::Interrupted,
        ];
        let found = all.into_iter().find(|exit| exit.code() == code);
        found.unwrap_or(Exit::Connection)
    }

    /// What the code means that another end gave with a failure; none: it was
    /// lost.
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

/// Why a command ended early.
#[derive(Debug)]
pub struct Stop {
    /// What the exit code says.
    pub exit: Exit,
    /// The thing, the cause and the remedy.
    pub text: String,
    /// Another try would end the same way.
    pub stays: bool,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Stop {}

impl Stop {
    /// A stop.
    pub fn new(exit: Exit, text: impl Into<String>) -> Stop {
        Stop {
            exit,
            text: text.into(),
            stays: false,
        }
    }

    /// The same for a reason that does not pass, such as another release.
    #[must_use]
    pub fn that_stays(self) -> Stop {
        Stop {
            stays: true,
            ..self
        }
    }

    /// Whether another try may end better: a path may appear, and a host, space or memory become
    /// available. Other reasons stay until somebody changes the command or the host.
    pub fn may_pass(&self) -> bool {
        !self.stays && matches!(self.exit, Exit::Connection | Exit::Local)
    }

    /// A stop because of an error.
    pub fn because(exit: Exit, error: impl std::fmt::Display) -> Stop {
        Stop::new(exit, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_counts_as_done() {
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
