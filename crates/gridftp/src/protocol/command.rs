//! Lines that the client sends.

/// Maximum length of a command line in bytes. A path of Linux has at most 4,096 bytes.
pub const MAXIMUM_COMMAND_BYTES: usize = 8192;

/// Reasons to reject a command before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The argument contains a byte that would end the line.
    #[error("{verb}: the argument contains a line break or a zero byte, which FTP cannot express")]
    LineBreak {
        /// Name of the command.
        verb: String,
    },
    /// The line is longer than [`MAXIMUM_COMMAND_BYTES`].
    #[error("{verb}: the argument has {bytes} bytes; the maximum is {MAXIMUM_COMMAND_BYTES}")]
    TooLong {
        /// Name of the command.
        verb: String,
        /// Length of the argument in bytes.
        bytes: usize,
    },
}

/// Formats a command line with its line end.
///
/// # Errors
///
/// If the argument is too long or contains a line break, so that a file name cannot add
/// commands.
pub fn line(verb: &str, argument: Option<&[u8]>) -> Result<Vec<u8>, CommandError> {
    let argument = argument.unwrap_or_default();
    if argument
        .iter()
        .any(|byte| matches!(byte, b'\r' | b'\n' | 0))
    {
        return Err(CommandError::LineBreak { verb: verb.into() });
    }
    if argument.len() > MAXIMUM_COMMAND_BYTES {
        return Err(CommandError::TooLong {
            verb: verb.into(),
            bytes: argument.len(),
        });
    }
    let mut line = Vec::with_capacity(verb.len() + argument.len() + 3);
    line.extend_from_slice(verb.as_bytes());
    if !argument.is_empty() {
        line.push(b' ');
        line.extend_from_slice(argument);
    }
    line.extend_from_slice(b"\r\n");
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_cannot_add_commands() {
        assert_eq!(line("RETR", Some(b"a b")).unwrap(), b"RETR a b\r\n");
        assert_eq!(line("FEAT", None).unwrap(), b"FEAT\r\n");
        for name in ["a\r\nDELE b", "a\nb", "a\rb", "a\0b"] {
            let refused = line("RETR", Some(name.as_bytes())).unwrap_err();
            assert!(matches!(refused, CommandError::LineBreak { .. }));
        }
        let long = vec![b'a'; MAXIMUM_COMMAND_BYTES + 1];
        assert!(matches!(
            line("RETR", Some(&long)),
            Err(CommandError::TooLong { .. })
        ));
    }
}
