//! Lines that the server sends, as replies.
//!
//! A reply is one line `226 text`, or several lines from `226-text` to `226 text`. A code from
//! 100 to 199 announces a further reply to the same command.

use std::collections::VecDeque;

/// Maximum length of a line in bytes. It holds the longest path and its facts.
pub const MAXIMUM_LINE_BYTES: usize = 32 * 1024;

/// Maximum size of a collected reply in bytes. Listings are not collected.
pub const MAXIMUM_REPLY_BYTES: usize = 256 * 1024;

/// Reasons to reject bytes of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line is longer than [`MAXIMUM_LINE_BYTES`].
    #[error("a line of the server has more than {MAXIMUM_LINE_BYTES} bytes")]
    LongLine,
    /// A reply is longer than [`MAXIMUM_REPLY_BYTES`].
    #[error("a reply of the server has more than {MAXIMUM_REPLY_BYTES} bytes")]
    LongReply,
    /// The server sends replies faster than commands ask for them.
    #[error("the server sent many replies without commands")]
    Flood,
    /// The line does not begin with a code.
    #[error("the server does not speak FTP: \"{0}\"")]
    NoCode(String),
}

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Code of the reply, from 100 to 599.
    pub code: u16,
    /// Lines of the reply without their codes. The last one is the text beside the final code.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// True if a further reply to the same command follows.
    pub fn is_preliminary(&self) -> bool {
        self.code < 200
    }

    /// True if the command succeeded.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// True if the server expects a further command.
    pub fn is_intermediate(&self) -> bool {
        (300..400).contains(&self.code)
    }

    /// Returns the last line.
    pub fn last_line(&self) -> &[u8] {
        self.lines.last().map_or(&[], Vec::as_slice)
    }

    /// Returns the text of all lines for messages to users, without control characters.
    pub fn text(&self) -> String {
        let lines: Vec<String> = self.lines.iter().map(|line| printable(line)).collect();
        let mut words: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
        // The server of Globus ends each long reply with this line.
        words.retain(|line| !line.is_empty() && !matches!(*line, "End" | "End."));
        words.join("; ")
    }
}

/// Decodes bytes of the server for a message, and replaces control characters by `?`.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A part of a reply, in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// First line of a reply that has several lines.
    First {
        /// Code of the reply.
        code: u16,
        /// Text after the code.
        text: Vec<u8>,
    },
    /// A line between the first and the last one, as sent.
    Line(Vec<u8>),
    /// Last line of a reply, which may be its only one.
    Last {
        /// Code of the reply.
        code: u16,
        /// Text after the code.
        text: Vec<u8>,
    },
}

/// Splits bytes of the server into parts of replies.
///
/// Call [`ReplyReader::push`] with the bytes that arrived, then [`ReplyReader::next_event`] or
/// [`ReplyReader::next_reply`] until it returns `None`.
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// Bytes that do not yet form a line. Their number is bounded by the caller's reads, and by
    /// [`MAXIMUM_LINE_BYTES`] for the last line.
    bytes: VecDeque<u8>,
    /// Number of leading bytes known to contain no line end.
    scanned: usize,
    /// Code of the reply whose last line has not arrived.
    open: Option<u16>,
    /// Lines of that reply so far, for [`ReplyReader::next_reply`].
    collected: Vec<Vec<u8>>,
    /// Number of bytes in `collected`.
    collected_bytes: usize,
}

impl ReplyReader {
    /// Adds bytes of the server.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Returns the number of bytes that were added and not yet taken as parts of replies.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the next part of a reply if its line is complete.
    ///
    /// # Errors
    ///
    /// If the bytes are not replies.
    pub fn next_event(&mut self) -> Result<Option<Event>, ReplyError> {
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        let coded = code_of(&line);
        if let Some(open) = self.open {
            return Ok(Some(match coded {
                Some((code, b' ', text)) if code == open => {
                    self.open = None;
                    Event::Last { code, text }
                }
                _ => Event::Line(line),
            }));
        }
        match coded {
            Some((code, b'-', text)) => {
                self.open = Some(code);
                Ok(Some(Event::First { code, text }))
            }
            Some((code, _, text)) => Ok(Some(Event::Last { code, text })),
            None => {
                let shown = &line[..line.len().min(80)];
                Err(ReplyError::NoCode(printable(shown)))
            }
        }
    }

    /// Returns the next reply if all its lines have arrived.
    ///
    /// # Errors
    ///
    /// If the bytes are not replies, or if a reply is too long.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, ReplyError> {
        while let Some(event) = self.next_event()? {
            let (line, end) = match event {
                Event::First { text, .. } => (text, None),
                Event::Line(line) => (without_code(line, self.open), None),
                Event::Last { code, text } => (text, Some(code)),
            };
            self.collected_bytes += line.len() + 1;
            if self.collected_bytes > MAXIMUM_REPLY_BYTES {
                return Err(ReplyError::LongReply);
            }
            self.collected.push(line);
            if let Some(code) = end {
                self.collected_bytes = 0;
                let lines = std::mem::take(&mut self.collected);
                return Ok(Some(Reply { code, lines }));
            }
        }
        Ok(None)
    }

    /// Takes one line from the bytes, without its end.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, ReplyError> {
        let rest = self.bytes.iter().skip(self.scanned);
        let Some(distance) = rest.into_iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.bytes.len();
            if self.scanned > MAXIMUM_LINE_BYTES {
                return Err(ReplyError::LongLine);
            }
            return Ok(None);
        };
        let length = self.scanned + distance;
        self.scanned = 0;
        if length > MAXIMUM_LINE_BYTES {
            return Err(ReplyError::LongLine);
        }
        let mut line: Vec<u8> = self.bytes.drain(..=length).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }
}

/// Splits a line into code, separator and text.
fn code_of(line: &[u8]) -> Option<(u16, u8, Vec<u8>)> {
    let digits = line.get(..3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    if !(100..600).contains(&code) {
        return None;
    }
    match line.get(3) {
        None => Some((code, b' ', Vec::new())),
        Some(separator @ (b' ' | b'-')) => Some((code, *separator, line[4..].to_vec())),
        Some(_) => None,
    }
}

/// Removes the code that some servers repeat in front of each line.
fn without_code(line: Vec<u8>, open: Option<u16>) -> Vec<u8> {
    match code_of(&line) {
        Some((code, b'-', text)) if Some(code) == open => text,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(bytes: &[u8], step: usize) -> Vec<Reply> {
        let mut reader = ReplyReader::default();
        let mut found = Vec::new();
        for part in bytes.chunks(step) {
            reader.push(part);
            while let Some(reply) = reader.next_reply().unwrap() {
                found.push(reply);
            }
        }
        found
    }

    #[test]
    fn replies_are_found_however_their_bytes_arrive() {
        let bytes = b"220 ready\r\n211-Features:\r\n EPSV\r\n211 End\r\n\
            550-GlobusError: v=1\r\n550-Reason: x\r\n550 End.\r\n200\r\n";
        for step in 1..bytes.len() {
            let found = replies(bytes, step);
            let codes: Vec<u16> = found.iter().map(|reply| reply.code).collect();
            assert_eq!(codes, [220, 211, 550, 200], "{step}");
            assert_eq!(
                found[1].lines,
                [&b"Features:"[..], b" EPSV", b"End"].map(<[u8]>::to_vec)
            );
            assert_eq!(found[2].text(), "GlobusError: v=1; Reason: x");
        }
    }

    #[test]
    fn another_code_does_not_end_a_reply() {
        let found = replies(b"250-a\r\n226 b\r\n250-c\r\n2500 d\r\n250 e\r\n", 7);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].lines.len(), 5);
    }

    #[test]
    fn text_for_users_has_no_control_characters() {
        let found = replies(b"550 a\x1b[31mb\r\n", 100);
        assert_eq!(found[0].text(), "a?[31mb");
    }

    #[test]
    fn other_protocols_and_endless_lines_are_refused() {
        for bytes in ["SSH-2.0-x\n", "99 x\n", "600 x\n", "220_x\n"] {
            let mut reader = ReplyReader::default();
            reader.push(bytes.as_bytes());
            assert!(matches!(reader.next_reply(), Err(ReplyError::NoCode(_))));
        }
        let mut reader = ReplyReader::default();
        reader.push(&vec![b'2'; MAXIMUM_LINE_BYTES + 1]);
        assert_eq!(reader.next_event(), Err(ReplyError::LongLine));
        let mut reader = ReplyReader::default();
        reader.push(b"211-x\r\n");
        let line = [b'y'; 1000];
        let ends = (0..1000).any(|_| {
            reader.push(&line);
            reader.push(b"\n");
            reader.next_reply() == Err(ReplyError::LongReply)
        });
        assert!(ends);
    }
}
