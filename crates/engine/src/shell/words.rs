//! Messages of commands: limits of the bytes that are kept and shown.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_units::ByteCount;

use super::{Hear, Ran, wait_for};

/// Maximum bytes of a command's messages that are kept: the last ones.
pub(super) const KEPT_BYTES: usize = 4096;

/// Maximum bytes of the last line that are shown.
const SHOWN_BYTES: usize = 400;

/// Maximum bytes that are shown for all related commands together.
const SHOWN_IN_ALL: usize = 64 << 10;

/// Bytes that are read at once.
const READ_BYTES: usize = 4096;

/// Capacity of a pipe in bytes.
const PIPE_BYTES: usize = 64 << 10;

/// Remaining bytes that may be shown for related commands.
pub struct Words {
    left: AtomicUsize,
}

impl Default for Words {
    fn default() -> Words {
        Words {
            left: AtomicUsize::new(SHOWN_IN_ALL),
        }
    }
}

impl Words {
    /// Describes a failure with the last message; `None` if the command succeeded. Omitted text is
    /// indicated.
    pub fn fault(&self, ran: &Ran) -> Option<String> {
        let how = ran.how()?;
        let Some(line) = ran.last_line() else {
            return Some(how);
        };
        let shown = &line[..line.floor_char_boundary(SHOWN_BYTES)];
        let take = |left: usize| left.checked_sub(shown.len());
        let order = Ordering::Relaxed;
        if self.left.fetch_update(order, order, take).is_err() {
            let most = ByteCount(SHOWN_IN_ALL as u64);
            return Some(format!(
                "{how} (what it said is cut: {most} of others' words were shown)"
            ));
        }
        let all = ran.wrote <= ran.said.len() as u64
            && shown.len() == line.len()
            && String::from_utf8_lossy(&ran.said).trim() == line;
        Some(if all {
            format!("{how}: {shown}")
        } else {
            format!("{how}: {shown} (cut: it wrote {})", ByteCount(ran.wrote))
        })
    }
}

impl Ran {
    /// Returns the last line that is not empty.
    fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.said);
        let mut lines = text.lines().map(str::trim);
        lines.rfind(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Messages of a command.
pub(super) struct Said {
    /// Pipe of the messages; `None` at its end.
    pub reader: Option<PipeReader>,
    /// Last bytes of the messages.
    pub last: Vec<u8>,
    /// Number of all bytes.
    pub count: u64,
}

impl Said {
    /// Creates an empty record that reads from this pipe.
    pub fn new(reader: PipeReader) -> Said {
        Said {
            reader: Some(reader),
            last: Vec::new(),
            count: 0,
        }
    }

    /// Waits for a message, or for the end of the process; false if there was no message.
    pub fn read_once(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> bool {
        let spoken = self.reader.as_ref().map(AsFd::as_fd);
        wait_for([spoken, ending, None], longest) && self.read()
    }

    /// Reads the available bytes; false at the end.
    fn read(&mut self) -> bool {
        let mut room = [0; READ_BYTES];
        let read = self.reader.as_mut().map(|reader| reader.read(&mut room));
        match read {
            Some(Ok(count)) if count > 0 => {
                self.count += count as u64;
                self.last.extend_from_slice(&room[..count]);
                let beyond = self.last.len().saturating_sub(KEPT_BYTES);
                self.last.drain(..beyond);
                true
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => true,
            _ => {
                self.reader = None;
                false
            }
        }
    }

    /// Reads the messages before the end, at most the capacity of a pipe: a process that left the
    /// group may continue to write.
    pub fn read_rest(&mut self) {
        for _ in 0..PIPE_BYTES / READ_BYTES {
            if !self.read_once(None, Duration::ZERO) {
                break;
            }
        }
    }
}

impl Hear for Said {
    fn hear(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<()> {
        self.read_once(ending, longest);
        Ok(())
    }
}
