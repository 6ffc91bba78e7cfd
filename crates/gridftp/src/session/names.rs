//! Names, times and checksums of files at the server.

use super::Session;
use crate::error::Error;
use crate::protocol::command;
use crate::protocol::facts::{self, Entry, EntryKind, is_too_large, number};
use crate::protocol::features::ChecksumKind;
use crate::protocol::reply::Reply;
use crate::protocol::time::{self, FileTime};

/// Commands that are sent before their replies are read: enough to hide the round trip, and
/// fewer bytes than a socket buffer holds.
const COMMANDS_AHEAD: usize = 32;

/// The same for short commands.
const SHORT_COMMANDS_AHEAD: usize = 256;

/// Length of a short command in bytes.
const SHORT_COMMAND_BYTES: usize = 256;

impl Session {
    /// Makes a directory. Succeeds if it exists.
    ///
    /// # Errors
    ///
    /// If the server rejects the name.
    pub fn make_directory(&mut self, path: &[u8]) -> Result<(), Error> {
        let made = self.control.command("MKD", Some(path));
        match made {
            Err(error @ Error::Refused { .. }) if !error.ends_session() => {
                // Servers have no common code for an existing directory.
                if self.is_directory(path)? {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            made => made.map(|_| ()),
        }
    }

    /// True if a path is a directory. The current directory stays.
    ///
    /// # Errors
    ///
    /// If the session failed.
    pub fn is_directory(&mut self, path: &[u8]) -> Result<bool, Error> {
        if self.features.facts {
            let reply = self.control.ask("MLST", Some(path))?;
            let entry = status_in(&reply, path);
            return Ok(entry.is_some_and(|entry| entry.kind == EntryKind::Directory));
        }
        let before = self.current_directory()?;
        let entered = self.control.ask("CWD", Some(path))?.is_success();
        if entered {
            self.control.command("CWD", Some(&before))?;
        }
        Ok(entered)
    }

    /// Returns the path of the current directory at the server.
    pub(super) fn current_directory(&mut self) -> Result<Vec<u8>, Error> {
        let reply = self.control.command("PWD", None)?;
        quoted(reply.last_line()).ok_or_else(|| {
            Error::Unexpected("the reply to PWD contains no path in quotes".to_owned())
        })
    }

    /// Renames a file. The server decides whether an existing file is replaced; those of Unix
    /// replace it.
    ///
    /// # Errors
    ///
    /// If the server rejects one of the names.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let reply = self.control.ask("RNFR", Some(from))?;
        if !reply.is_intermediate() {
            return Err(Error::refused("RNFR", &reply));
        }
        self.control.command("RNTO", Some(to)).map(|_| ())
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// If the server rejects it.
    pub fn remove_file(&mut self, path: &[u8]) -> Result<(), Error> {
        self.control.command("DELE", Some(path)).map(|_| ())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// If the server rejects it.
    pub fn remove_directory(&mut self, path: &[u8]) -> Result<(), Error> {
        self.control.command("RMD", Some(path)).map(|_| ())
    }

    /// Sets permission bits of a file.
    ///
    /// # Errors
    ///
    /// If the server has no such command, or rejects it.
    pub fn set_mode(&mut self, path: &[u8], mode: u32) -> Result<(), Error> {
        let argument = mode_argument(path, mode);
        self.control.command("SITE", Some(&argument)).map(|_| ())
    }

    /// Returns the checksum of a part of a file in lower-case hexadecimal digits. The server
    /// reads the part. The end is excluded; `None` means the end of the file.
    ///
    /// # Errors
    ///
    /// If the server cannot compute it.
    pub fn checksum(
        &mut self,
        kind: ChecksumKind,
        path: &[u8],
        (start, end): (u64, Option<u64>),
    ) -> Result<String, Error> {
        let argument = checksum_argument(kind, path, (start, end));
        let reply = self.control.command("CKSM", Some(&argument))?;
        checksum_of(kind, &reply)
    }

    /// Sends commands that do not depend on each other, so that they share round trips. Returns
    /// their final replies. A command that FTP cannot express is an error, and none is sent.
    ///
    /// # Errors
    ///
    /// If the session failed.
    pub fn commands(&mut self, commands: &[(&str, Vec<u8>)]) -> Result<Vec<Reply>, Error> {
        for (verb, argument) in commands {
            command::line(verb, Some(argument))?;
        }
        let mut arguments = commands.iter().map(|(_, argument)| argument.len());
        let ahead = if arguments.all(|length| length <= SHORT_COMMAND_BYTES) {
            SHORT_COMMANDS_AHEAD
        } else {
            COMMANDS_AHEAD
        };
        let mut replies = Vec::with_capacity(commands.len());
        for batch in commands.chunks(ahead) {
            for (verb, argument) in batch {
                self.control.send(verb, Some(argument))?;
            }
            for _ in batch {
                replies.push(self.control.final_reply()?);
            }
        }
        Ok(replies)
    }

    /// Returns the entry of one path, without its directory. `None` if the path does not exist
    /// or is of another kind than a file and a directory.
    ///
    /// # Errors
    ///
    /// If the session failed.
    pub fn status(&mut self, path: &[u8]) -> Result<Option<Entry>, Error> {
        if self.features.facts {
            let reply = self.control.ask("MLST", Some(path))?;
            return Ok(status_in(&reply, path));
        }
        let mut entry = Entry::new(last_component(path), EntryKind::File);
        // Some servers give the size of a directory.
        if self.is_directory(path)? {
            entry.kind = EntryKind::Directory;
            return Ok(Some(entry));
        }
        let reply = self.control.ask("SIZE", Some(path))?;
        if !reply.is_success() {
            return Ok(None);
        }
        entry.size = Some(size_of(&reply)?);
        entry.modified = time_of(&self.control.ask("MDTM", Some(path))?).ok();
        Ok(Some(entry))
    }

    /// Asks for sizes and times of files whose listing has none. `directory` is their path.
    /// Many commands share a round trip.
    ///
    /// # Errors
    ///
    /// If the session failed. A file that vanished keeps no size.
    pub fn complete(&mut self, directory: &[u8], entries: &mut [Entry]) -> Result<(), Error> {
        let incomplete: Vec<usize> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.kind == EntryKind::File && entry.modified.is_none())
            .map(|(index, _)| index)
            .collect();
        for batch in incomplete.chunks(COMMANDS_AHEAD / 2) {
            for index in batch {
                let path = join(directory, &entries[*index].name);
                self.control.send("SIZE", Some(&path))?;
                self.control.send("MDTM", Some(&path))?;
            }
            for index in batch {
                let entry = &mut entries[*index];
                entry.size = size_of(&self.control.final_reply()?).ok();
                entry.modified = time_of(&self.control.final_reply()?).ok();
            }
        }
        Ok(())
    }
}

/// Returns the argument of `CKSM` for a part of a file.
pub fn checksum_argument(
    kind: ChecksumKind,
    path: &[u8],
    (start, end): (u64, Option<u64>),
) -> Vec<u8> {
    let name = kind.name();
    let length = end.map_or(-1, |end| i64::try_from(end - start).unwrap_or(-1));
    [format!("{name} {start} {length} ").as_bytes(), path].concat()
}

/// Returns the checksum in a reply to `CKSM`.
///
/// # Errors
///
/// If the server cannot compute it.
pub fn checksum_of(kind: ChecksumKind, reply: &Reply) -> Result<String, Error> {
    if !reply.is_success() {
        return Err(Error::refused("CKSM", reply));
    }
    let text = String::from_utf8_lossy(reply.last_line());
    let digits = text.trim().to_ascii_lowercase();
    let is_valid = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if digits.len() == kind.digits() && is_valid {
        Ok(digits)
    } else {
        let text = reply.text();
        Err(Error::Unexpected(format!("the reply to CKSM is {text}")))
    }
}

/// Returns the argument of `MFMT`, in whole seconds. `None` if the year has not four digits.
pub fn modified_argument(path: &[u8], modified: FileTime) -> Option<Vec<u8>> {
    let text = time::format(modified)?;
    Some([text.as_bytes(), b" ", path].concat())
}

/// Returns the argument of `SITE` that sets permission bits.
pub fn mode_argument(path: &[u8], mode: u32) -> Vec<u8> {
    let mode = mode & 0o7777;
    [format!("CHMOD {mode:04o} ").as_bytes(), path].concat()
}

/// Joins a directory and a name.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if directory.is_empty() || directory.ends_with(b"/") {
        b""
    } else {
        b"/"
    };
    [directory, separator, name].concat()
}

/// Returns the entry in a reply to `MLST`. Its name is the last component of the path.
fn status_in(reply: &Reply, path: &[u8]) -> Option<Entry> {
    let line = reply.lines.get(1).filter(|_| reply.is_success())?;
    facts::parse_status(line, last_component(path))
}

fn last_component(path: &[u8]) -> &[u8] {
    let mut components = path.rsplit(|byte| *byte == b'/');
    let last = components.find(|component| !component.is_empty());
    last.unwrap_or_default()
}

/// Returns the size in a reply to `SIZE`.
///
/// # Errors
///
/// If the server does not tell it.
pub fn size_of(reply: &Reply) -> Result<u64, Error> {
    if !reply.is_success() {
        return Err(Error::refused("SIZE", reply));
    }
    let size = reply.last_line().trim_ascii();
    number(size)
        .filter(|_| !is_too_large(size))
        .ok_or_else(|| Error::Unexpected(format!("the reply to SIZE is {}", reply.text())))
}

fn time_of(reply: &Reply) -> Result<FileTime, Error> {
    if !reply.is_success() {
        return Err(Error::refused("MDTM", reply));
    }
    time::parse(reply.last_line().trim_ascii())
        .ok_or_else(|| Error::Unexpected(format!("the reply to MDTM is {}", reply.text())))
}

/// Returns the path in quotes of a reply to `PWD`. Quotes in it are doubled (RFC 959).
fn quoted(text: &[u8]) -> Option<Vec<u8>> {
    let start = text.iter().position(|byte| *byte == b'"')?;
    let mut path = Vec::new();
    let mut rest = text[start + 1..].iter().peekable();
    while let Some(byte) = rest.next() {
        if *byte == b'"' && rest.next_if_eq(&&b'"').is_none() {
            return Some(path);
        }
        path.push(*byte);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_quotes_are_read() {
        let found = quoted(b"\"/a\"\"b\" is the current directory");
        assert_eq!(found.as_deref(), Some(&b"/a\"b"[..]));
        assert_eq!(quoted(b"/a"), None);
        assert_eq!(quoted(b"\"/a"), None);
    }

    #[test]
    fn names_are_joined_and_taken_apart() {
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"/", b"b"), b"/b");
        assert_eq!(join(b"", b"b"), b"b");
        assert_eq!(last_component(b"/a/b/"), b"b");
        assert_eq!(last_component(b"/"), b"");
    }
}
