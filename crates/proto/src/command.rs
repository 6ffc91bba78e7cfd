//! Commands that a peer requests and that run at the other end for each file.

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::byte_string::ByteString;

/// Maximum length of a command's text in bytes.
pub const MAXIMUM_COMMAND_BYTES: usize = 4096;

/// Maximum number of commands that run at the same time.
pub const MAXIMUM_JOBS: u32 = 64;

/// Maximum run time of one command in milliseconds: a week.
pub const LONGEST_MILLISECONDS: u64 = 7 * 24 * 3600 * 1000;

/// Default for [`FileCommand::jobs`].
pub const USUAL_JOBS: u32 = 4;

/// Default for [`FileCommand::milliseconds`]: ten minutes.
pub const USUAL_COMMAND_SPAN: u64 = 600_000;

/// A command that runs for each file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields)]
pub struct FileCommand {
    /// Command for a shell, 1 to [`MAXIMUM_COMMAND_BYTES`] bytes without NUL. At a daemon, the name
    /// of one of its configured commands.
    #[n(0)]
    pub command: ByteString,
    /// Number of commands that may run at the same time, 1 to [`MAXIMUM_JOBS`].
    #[n(1)]
    #[serde(default = "usual_jobs")]
    pub jobs: u32,
    /// Maximum run time of one command in milliseconds, 1 to [`LONGEST_MILLISECONDS`].
    #[n(2)]
    #[serde(default = "usual_span")]
    pub milliseconds: u64,
}

fn usual_jobs() -> u32 {
    USUAL_JOBS
}

fn usual_span() -> u64 {
    USUAL_COMMAND_SPAN
}

impl FileCommand {
    /// Creates a command with a number of parallel runs and a time limit for each.
    pub fn new(command: &[u8], jobs: u32, within: Duration) -> FileCommand {
        FileCommand {
            command: command.into(),
            jobs,
            milliseconds: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// True if every value is within its range.
    pub fn is_valid(&self) -> bool {
        is_command(&self.command)
            && (1..=MAXIMUM_JOBS).contains(&self.jobs)
            && (1..=LONGEST_MILLISECONDS).contains(&self.milliseconds)
    }
}

/// True if the text can be a command's text.
pub fn is_command(text: &[u8]) -> bool {
    (1..=MAXIMUM_COMMAND_BYTES).contains(&text.len()) && !text.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_bounded_and_decoded_as_encoded() {
        for (command, jobs, milliseconds, valid) in [
            (&b"true"[..], 1, 1, true),
            (b"catalogue \xff", MAXIMUM_JOBS, LONGEST_MILLISECONDS, true),
            (b"", 1, 1, false),
            (b"a\0", 1, 1, false),
            (&[b'x'; 4097], 1, 1, false),
            (b"true", 0, 1, false),
            (b"true", MAXIMUM_JOBS + 1, 1, false),
            (b"true", 1, 0, false),
            (b"true", 1, LONGEST_MILLISECONDS + 1, false),
        ] {
            let command = FileCommand {
                command: command.to_vec().into(),
                jobs,
                milliseconds,
            };
            assert_eq!(command.is_valid(), valid, "{command:?}");
            let bytes = minicbor::to_vec(&command).unwrap();
            assert_eq!(minicbor::decode::<FileCommand>(&bytes).unwrap(), command);
        }
    }
}
