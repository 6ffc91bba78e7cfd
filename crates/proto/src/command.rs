//! Commands that a peer requests and that run at the other end for each file.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Maximum length of a command's text in bytes.
pub const MAXIMUM_COMMAND_BYTES: usize = 4096;

/// Maximum number of commands that run at the same time.
pub const MAXIMUM_JOBS: u32 = 64;

/// Maximum run time of one command in milliseconds: a week.
pub const LONGEST_MILLISECONDS: u64 = 7 * 24 * 3600 * 1000;

/// A command that runs for each file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileCommand {
    /// Command for a shell, 1 to [`MAXIMUM_COMMAND_BYTES`] bytes without NUL. At a daemon, the name
    /// of one of its configured commands.
    #[n(0)]
    pub command: ByteVec,
    /// Number of commands that may run at the same time, 1 to [`MAXIMUM_JOBS`].
    #[n(1)]
    pub jobs: u32,
    /// Maximum run time of one command in milliseconds, 1 to [`LONGEST_MILLISECONDS`].
    #[n(2)]
    pub milliseconds: u64,
}

impl FileCommand {
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
