//! Reads records from a file line by line and reports each fault.

use std::io::{self, BufRead};

use serde::Deserialize;

use super::{LONGEST_LINE, RunRecord, SCHEMA, Skipped};

/// Reasons why a line is not a valid record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line is longer than a record may be.
    #[error("is longer than a record's {LONGEST_LINE} bytes")]
    TooLong,
    /// The file ends within the line because its writer was stopped.
    #[error("is incomplete: the run that wrote it was stopped")]
    Truncated,
    /// The line is not a record.
    #[error("is not a record: {0}")]
    Malformed(String),
    /// The record has another schema version.
    #[error(
        "has schema version {0}, but this longhaul reads version {SCHEMA}: use the longhaul \
        that wrote it"
    )]
    Schema(u64),
    /// Fields of the record contradict each other.
    #[error("is inconsistent: {0}")]
    Nonsense(String),
    /// The run was read before.
    #[error("repeats run {0}: give each record once")]
    Repeated(String),
    /// The rest of the file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// A fault and its line number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {fault}")]
pub struct LineFault {
    /// Line number, from 1.
    pub line: u64,
    /// Reason why the line is not a valid record.
    pub fault: Fault,
}

/// The action on a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// Reading fails.
    Refuse,
    /// The line is skipped and reported.
    Skip,
}

/// Reads records one by one. Holds one line in memory, for any size of file.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    is_over: bool,
}

impl<R: BufRead> Records<R> {
    /// Creates a reader of `input`.
    pub fn new(input: R) -> Records<R> {
        Records {
            input,
            line: 0,
            buffer: Vec::with_capacity(LONGEST_LINE + 1),
            is_over: false,
        }
    }

    /// Returns the number of the last line read, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads a line into the buffer. Returns true if the line was complete, and `None` at the end.
    fn next_line(&mut self) -> io::Result<Option<Result<bool, Fault>>> {
        self.buffer.clear();
        let limit = LONGEST_LINE as u64 + 1;
        let read = io::Read::take(&mut self.input, limit).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            return Ok(Some(Ok(true)));
        }
        if (read as u64) < limit {
            return Ok(Some(Ok(false)));
        }
        skip_line(&mut self.input)?;
        Ok(Some(Err(Fault::TooLong)))
    }
}

/// Discards input up to and including the next line feed.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let available = input.fill_buf()?;
        let feed = available.iter().position(|byte| *byte == b'\n');
        let length = feed.map_or(available.len(), |at| at + 1);
        input.consume(length);
        if feed.is_some() || length == 0 {
            return Ok(());
        }
    }
}

/// The schema version of a line, which determines how to read the rest.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u64,
}

/// Parses one line.
fn parse(line: &[u8], is_whole: bool) -> Result<RunRecord, Fault> {
    match serde_json::from_slice::<RunRecord>(line) {
        Ok(record) if record.schema == SCHEMA => match record.check() {
            Ok(()) => Ok(record),
            Err(error) => Err(Fault::Nonsense(error.to_string())),
        },
        Ok(record) => Err(Fault::Schema(u64::from(record.schema))),
        Err(error) => Err(match serde_json::from_slice::<SchemaOnly>(line) {
            Ok(other) if other.schema != u64::from(SCHEMA) => Fault::Schema(other.schema),
            _ if error.is_eof() && !is_whole => Fault::Truncated,
            // The parser sees a single line, so its line number is always 1.
            _ => Fault::Malformed(error.to_string().replace("line 1 column", "column")),
        }),
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<RunRecord, LineFault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let read = match self.next_line() {
                Ok(None) => break,
                Ok(Some(read)) => read,
                Err(error) => {
                    self.is_over = true;
                    Err(Fault::Unreadable(error.to_string()))
                }
            };
            if read.is_ok() && self.buffer.trim_ascii().is_empty() {
                continue;
            }
            let line = self.line;
            let record = read.and_then(|is_whole| parse(&self.buffer, is_whole));
            return Some(record.map_err(|fault| LineFault { line, fault }));
        }
        None
    }
}

/// Calls `take` for every record. `take` may reject a record with a fault. Returns the skipped
/// lines.
///
/// # Errors
///
/// The first fault with [`OnFault::Refuse`]. A fault of reading itself in any case.
pub fn read_records(
    input: impl BufRead,
    on_fault: OnFault,
    mut take: impl FnMut(RunRecord) -> Result<(), Fault>,
) -> Result<Skipped, LineFault> {
    let mut skipped = Skipped::default();
    let mut records = Records::new(input);
    while let Some(record) = records.next() {
        let line = records.line();
        let taken =
            record.and_then(|record| take(record).map_err(|fault| LineFault { line, fault }));
        match taken {
            Ok(()) => {}
            Err(fault) if matches!(fault.fault, Fault::Unreadable(_)) => return Err(fault),
            Err(fault) if on_fault == OnFault::Refuse => return Err(fault),
            Err(fault) => skipped.add(fault),
        }
    }
    Ok(skipped)
}
