//! Records from a file, line by line, with every fault named.

use std::io::{self, BufRead};

use serde::Deserialize;

use super::{LONGEST_LINE, RunRecord, SCHEMA, Skipped};

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is longer than any record.
    #[error("is longer than a record's {LONGEST_LINE} bytes")]
    TooLong,
    /// The file ends within it: its writer was stopped.
    #[error("ends in the middle: the run that wrote it was stopped")]
    Truncated,
    /// It is no record.
    #[error("is no record: {0}")]
    Malformed(String),
    /// It is a record of another schema.
    #[error(
        "is of schema {0}, and this longhaul reads {SCHEMA}: read it with the one that wrote it"
    )]
    Schema(u64),
    /// Its fields contradict each other.
    #[error("makes no sense: {0}")]
    Nonsense(String),
    /// The same run was read before.
    #[error("repeats run {0}: give each record once")]
    Repeated(String),
    /// The file cannot be read on.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// A fault and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {fault}")]
pub struct LineFault {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// Nothing is read.
    Refuse,
    /// The line is left out, and named.
    Skip,
}

/// Reads records one by one; memory is one line's, whatever the file is.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    is_over: bool,
}

impl<R: BufRead> Records<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Records<R> {
        Records {
            input,
            line: 0,
            buffer: Vec::with_capacity(LONGEST_LINE + 1),
            is_over: false,
        }
    }

    /// The number of the line read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads a line into the buffer; whether it was whole, or `None` at the end.
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

/// Reads up to the next line feed, keeping nothing.
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

/// Only what says how the rest is to be read.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u64,
}

/// Reads one line.
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
            // Its own line count is always 1.
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

/// Gives every record to `take`, which may refuse one; what was left out.
///
/// # Errors
///
/// With [`OnFault::Refuse`] the first fault, always one of reading itself.
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
