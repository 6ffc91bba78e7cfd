//! Listings of directories.

use std::io::Read;

use super::Session;
use crate::error::Error;
use crate::protocol::facts::{self, Entry, Line};
use crate::protocol::reply::{Event, MAXIMUM_LINE_BYTES, Reply, printable};
use crate::protocol::unix_listing;

/// A result of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// An entry of the directory.
    Entry(Entry),
    /// A line that is no entry, for example because a name contains a line break. The text is
    /// for messages. The listing does not have all entries then.
    Unreadable(String),
}

/// Format of a listing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Facts,
    Unix,
}

/// Takes lines apart and passes on entries.
struct Lines<'a> {
    format: Format,
    found: &'a mut dyn FnMut(Listed) -> Result<(), Error>,
    /// The last entry. It is passed on when the next line shows that its name has ended.
    last: Option<Entry>,
    lines: u64,
    announced: Option<u64>,
}

impl Lines<'_> {
    fn add(&mut self, line: &[u8]) -> Result<(), Error> {
        self.lines += 1;
        let parsed = match self.format {
            Format::Facts => facts::parse(line),
            Format::Unix => unix_listing::parse(line),
        };
        match parsed {
            Some(line) => {
                self.pass_on()?;
                match line {
                    Line::Entry(entry) => self.last = Some(entry),
                    Line::Itself { count } => self.announced = count,
                    Line::Parent | Line::Total => {}
                }
                Ok(())
            }
            None => {
                // The name of the last entry may contain the line break before this line.
                let before = self.last.take().map(|entry| entry.name);
                let mut text = before.map_or_else(String::new, |name| printable(&name) + "?");
                text.push_str(&printable(&line[..line.len().min(200)]));
                (self.found)(Listed::Unreadable(text))
            }
        }
    }

    fn pass_on(&mut self) -> Result<(), Error> {
        match self.last.take() {
            Some(entry) => (self.found)(Listed::Entry(entry)),
            None => Ok(()),
        }
    }

    /// Ends the listing, and compares its length with the number that the server announced.
    fn end(mut self) -> Result<(), Error> {
        self.pass_on()?;
        let announced = self.announced.filter(|count| *count != self.lines);
        match announced {
            None => Ok(()),
            Some(count) => {
                let text = format!("{} of {count} lines arrived", self.lines);
                (self.found)(Listed::Unreadable(text))
            }
        }
    }
}

impl Session {
    /// Lists a directory in the order of the server. The entries of a server without facts have
    /// no times: use [`Session::complete`].
    ///
    /// # Errors
    ///
    /// If the directory cannot be listed, or the error of `found`. After an error of `found`,
    /// the session must be dropped.
    pub fn list(
        &mut self,
        directory: &[u8],
        found: &mut dyn FnMut(Listed) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let format = if self.features.facts {
            Format::Facts
        } else {
            Format::Unix
        };
        let mut lines = Lines {
            format,
            found,
            last: None,
            lines: 0,
            announced: None,
        };
        if self.features.control_listing {
            self.list_on_control(directory, &mut lines)?;
        } else if format == Format::Facts {
            self.list_on_data("MLSD", directory, &mut lines)?;
        } else {
            self.list_unix(directory, &mut lines)?;
        }
        lines.end()
    }

    fn list_on_control(&mut self, directory: &[u8], lines: &mut Lines<'_>) -> Result<(), Error> {
        self.control.send("MLSC", Some(directory))?;
        let mut texts = Vec::new();
        let mut is_listing = false;
        loop {
            match self.control.event()? {
                Event::First { code, text } => {
                    is_listing = (200..300).contains(&code);
                    texts.push(text);
                }
                Event::Line(line) if is_listing => lines.add(&line)?,
                Event::Line(line) => {
                    // The first lines of an error describe it.
                    if texts.len() < 8 {
                        texts.push(line);
                    }
                }
                Event::Last { code, .. } if code < 200 => {}
                Event::Last { code, text } => {
                    texts.push(text);
                    let reply = Reply { code, lines: texts };
                    if reply.is_success() {
                        return Ok(());
                    }
                    return Err(Error::refused("MLSC", &reply));
                }
            }
        }
    }

    /// Lists with `LIST`. The directory is entered first: many servers split the argument at
    /// spaces, and list a directory that does not exist as if it were empty. The option `-a` adds
    /// names that begin with a dot.
    fn list_unix(&mut self, directory: &[u8], lines: &mut Lines<'_>) -> Result<(), Error> {
        let before = self.current_directory()?;
        self.control.command("CWD", Some(directory))?;
        let listed = self.list_on_data("LIST", b"-a", lines);
        if listed.as_ref().is_err_and(Error::ends_session) {
            return listed;
        }
        self.control.command("CWD", Some(&before))?;
        listed
    }

    fn list_on_data(
        &mut self,
        verb: &str,
        directory: &[u8],
        lines: &mut Lines<'_>,
    ) -> Result<(), Error> {
        let mut stream = self.start_stream(verb, directory, 0)?;
        let mut bytes = vec![0; MAXIMUM_LINE_BYTES];
        let mut filled = 0;
        loop {
            let read = stream.read(&mut bytes[filled..]);
            let count = read.map_err(|error| Error::io(format!("read {verb}"), error))?;
            filled += count;
            let mut start = 0;
            while let Some(length) = bytes[start..filled].iter().position(|byte| *byte == b'\n') {
                let line = &bytes[start..start + length];
                lines.add(line.strip_suffix(b"\r").unwrap_or(line))?;
                start += length + 1;
            }
            bytes.copy_within(start..filled, 0);
            filled -= start;
            if count == 0 {
                break;
            }
            if filled == bytes.len() {
                let text = format!("a line of {verb} has more than {filled} bytes");
                return Err(Error::Unexpected(text));
            }
        }
        drop(stream);
        if filled > 0 {
            lines.add(&bytes[..filled])?;
        }
        self.control.finished(verb).map(drop)
    }
}
