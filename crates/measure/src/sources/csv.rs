//! Reads tables of runs: a line of column names, then one line for each run.
//!
//! Columns are identified by name, with or without a unit at the end: `rtt_ms`, `Throughput
//! (Mbit/s)`, or the names that `records export` writes. If a quantity's column has no unit, each
//! cell needs one.

use std::io::BufRead;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, microseconds_of, parse_span, rfc3339};

use super::{
    Direction, ExternalRun, LONGEST_ERROR, SourceError, read_bounded, shortened, whole, word,
};
use crate::record::Measures;

/// Maximum number of columns of a table.
const MOST_COLUMNS: usize = 1024;

/// Maximum number of runs in a table.
const MOST_RUNS: usize = 1_000_000;

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    /// Round-trip time. The number is the unit in seconds; `None` if each cell has its own unit.
    Rtt(Option<f64>),
    LeastRtt(Option<f64>),
    Wall(Option<f64>),
    /// Throughput. The number is the unit in bits per second; `None` if each cell has its own unit.
    Rate(Option<f64>),
    Bytes,
    Started,
    Streams,
    Retransmits,
    Source,
    Destination,
    Direction,
    Congestion,
    Method,
    Version,
    Measures,
    Error,
    Id,
}

/// Names of columns without a unit suffix.
const WORDS: &[(&[&str], Column)] = &[
    (
        &[
            "started",
            "start",
            "start_time",
            "timestamp",
            "time",
            "date",
            "run.started",
        ],
        Column::Started,
    ),
    (&["streams", "parallel", "knobs.streams"], Column::Streams),
    (
        &[
            "retransmits",
            "retransmitted_segments",
            "outcome.retransmitted_segments",
        ],
        Column::Retransmits,
    ),
    (&["source", "src", "source.name"], Column::Source),
    (
        &["destination", "dest", "dst", "destination.name"],
        Column::Destination,
    ),
    (&["direction", "knobs.direction"], Column::Direction),
    (
        &[
            "congestion",
            "congestion_control",
            "path.congestion_control",
        ],
        Column::Congestion,
    ),
    (&["method", "tool", "method.name"], Column::Method),
    (&["version", "method.version"], Column::Version),
    (&["measures"], Column::Measures),
    (&["error", "outcome.error"], Column::Error),
    (&["id", "run.id"], Column::Id),
    (&["bytes", "outcome.bytes"], Column::Bytes),
    (
        &["seconds", "outcome.wall_seconds"],
        Column::Wall(Some(1.0)),
    ),
    (
        &["bits_per_second", "outcome.goodput_bits_per_second"],
        Column::Rate(Some(1.0)),
    ),
    (&["path.rtt_seconds"], Column::LeastRtt(Some(1.0))),
];

/// Creates the column of a quantity, given its unit.
type OfUnit = fn(Option<f64>) -> Column;

/// Names of quantities, which can have a unit suffix.
const QUANTITIES: &[(&str, OfUnit)] = &[
    ("min_rtt", Column::LeastRtt),
    ("mean_rtt", Column::Rtt),
    ("rtt", Column::Rtt),
    ("wall", Column::Wall),
    ("duration", Column::Wall),
    ("throughput", Column::Rate),
    ("goodput", Column::Rate),
    ("bandwidth", Column::Rate),
    ("rate", Column::Rate),
];

const SPANS: &[(&str, f64)] = &[
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("sec", 1.0),
    ("seconds", 1.0),
    ("min", 60.0),
];

const RATES: &[(&str, f64)] = &[
    ("bit_s", 1.0),
    ("bps", 1.0),
    ("bits_per_second", 1.0),
    ("kbit_s", 1e3),
    ("kbps", 1e3),
    ("mbit_s", 1e6),
    ("mbps", 1e6),
    ("gbit_s", 1e9),
    ("gbps", 1e9),
];

/// Reads a table of runs.
///
/// # Errors
///
/// If the table cannot be read, is too large, or has invalid columns or cells.
pub fn read_csv(input: impl BufRead) -> Result<Vec<ExternalRun>, SourceError> {
    let bytes = read_bounded(input)?;
    let text = String::from_utf8(bytes).map_err(|_| not_a_table("it is not UTF-8 text"))?;
    runs(text.trim_start_matches('\u{feff}'))
}

fn not_a_table(cause: impl Into<String>) -> SourceError {
    SourceError::Unknown(format!("this table cannot be used: {}", cause.into()))
}

/// Parses a table.
pub(super) fn runs(text: &str) -> Result<Vec<ExternalRun>, SourceError> {
    let first = text.lines().next().unwrap_or_default();
    let mut rows = Rows {
        text,
        line: 0,
        between: separator(first),
    };
    let names = rows
        .next()
        .transpose()?
        .map_or_else(Vec::new, |(_, names)| names);
    if names.len() > MOST_COLUMNS {
        return Err(not_a_table(format!(
            "it has more than {MOST_COLUMNS} columns"
        )));
    }
    let columns: Vec<Option<Column>> = names.iter().map(|name| column(name)).collect();
    check(&columns, first)?;
    let mut runs = Vec::new();
    for row in rows {
        let (line, cells) = row?;
        if cells.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        if runs.len() == MOST_RUNS {
            return Err(not_a_table(format!("it has more than {MOST_RUNS} runs")));
        }
        if cells.len() != columns.len() {
            return Err(not_a_table(format!(
                "line {line} has {} cells, and the first line {}",
                cells.len(),
                columns.len()
            )));
        }
        let mut run = ExternalRun::default();
        let mut rate = None;
        for ((cell, column), name) in cells.iter().zip(&columns).zip(&names) {
            let cell = cell.trim();
            let (Some(column), false) = (column, cell.is_empty()) else {
                continue;
            };
            let told = column.read(cell, &mut run, &mut rate);
            told.map_err(|cause| {
                let name = word(name);
                not_a_table(format!("line {line}, column {name}: {cause}"))
            })?;
        }
        let run = finish(run, rate).map_err(|cause| not_a_table(format!("line {line}: {cause}")));
        runs.push(run?);
    }
    if runs.is_empty() {
        Err(not_a_table("it has no line below its column names"))
    } else {
        Ok(runs)
    }
}

/// Returns the separator that occurs most often in the line of column names.
fn separator(first: &str) -> char {
    let count = |between: char| first.matches(between).count();
    let most = [',', ';', '\t']
        .into_iter()
        .rev()
        .max_by_key(|between| count(*between));
    most.unwrap_or(',')
}

/// Checks that the columns include a throughput, or both bytes and a duration.
fn check(columns: &[Option<Column>], first: &str) -> Result<(), SourceError> {
    let has = |is: fn(&Column) -> bool| columns.iter().flatten().any(is);
    let rate = has(|column| matches!(column, Column::Rate(_)));
    let bytes = has(|column| matches!(column, Column::Bytes));
    let wall = has(|column| matches!(column, Column::Wall(_)));
    if rate || (bytes && wall) {
        return Ok(());
    }
    let shown = shortened(first, LONGEST_ERROR);
    Err(not_a_table(format!(
        "its first line has neither a column throughput_mbps (or _gbps, _bps) nor both bytes and \
        seconds: {shown}"
    )))
}

/// Returns the meaning of a column's name, or `None` if it is unknown.
fn column(name: &str) -> Option<Column> {
    let mut plain = String::new();
    for c in name.trim().to_lowercase().chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '.' => plain.push(c),
            _ if plain.ends_with('_') => {}
            _ => plain.push('_'),
        }
    }
    let plain = plain.trim_matches('_');
    let known = WORDS.iter().find(|(names, _)| names.contains(&plain));
    if let Some((_, column)) = known {
        return Some(*column);
    }
    let (rest, kind) = QUANTITIES
        .iter()
        .find_map(|(base, kind)| Some((plain.strip_prefix(base)?, kind)))?;
    if rest.is_empty() {
        return Some(kind(None));
    }
    let units = match kind(None) {
        Column::Rate(_) => RATES,
        _ => SPANS,
    };
    let unit = rest.strip_prefix('_')?;
    let found = units.iter().find(|(name, _)| *name == unit);
    found.map(|(_, factor)| kind(Some(*factor)))
}

impl Column {
    /// Parses a cell and stores its value in the run.
    fn read(
        self,
        cell: &str,
        run: &mut ExternalRun,
        rate: &mut Option<BitRate>,
    ) -> Result<(), String> {
        match self {
            Column::Rtt(unit) => run.rtt = span(cell, unit)?,
            Column::LeastRtt(unit) => run.least_rtt = span(cell, unit)?,
            Column::Wall(unit) => run.wall = span(cell, unit)?.unwrap_or_default(),
            Column::Rate(unit) => *rate = Some(bit_rate(cell, unit)?),
            Column::Bytes => run.moved = ByteCount(count(cell)?),
            Column::Started => run.started = moment(cell)?,
            Column::Streams => run.streams = count(cell)?,
            Column::Retransmits => run.retransmitted_segments = Some(count(cell)?),
            Column::Source => run.near.name = word(cell),
            Column::Destination => run.far.name = word(cell),
            Column::Direction => run.direction = Some(direction(cell)?),
            Column::Congestion => run.congestion_control = word(cell),
            Column::Method => run.tool = word(cell),
            Column::Version => run.version = word(cell),
            Column::Measures => run.measures = Some(measures(cell)?),
            Column::Error => run.error = shortened(cell, LONGEST_ERROR),
            Column::Id => run.id = word(cell),
        }
        Ok(())
    }
}

/// Computes the third of bytes, time and rate if the other two are known.
fn finish(mut run: ExternalRun, rate: Option<BitRate>) -> Result<ExternalRun, String> {
    let has_bytes = run.moved.0 > 0;
    match (rate, has_bytes, run.wall.is_zero()) {
        (Some(rate), false, false) => {
            let bytes = rate.bits_per_second() / 8.0 * run.wall.as_secs_f64();
            run.moved = ByteCount(whole(bytes).ok_or("its number of bytes is too large")?);
        }
        (Some(rate), true, true) if rate.bits_per_second() > 0.0 => {
            let seconds = run.moved.0 as f64 * 8.0 / rate.bits_per_second();
            run.wall = Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?;
        }
        _ => {}
    }
    let computed = BitRate::from_transfer(run.moved, run.wall);
    run.throughput = rate.unwrap_or(computed);
    if run.tool.is_empty() {
        run.tool = "unknown".to_owned();
    }
    if run.direction == Some(Direction::From) {
        // The source of a table is the sender. For this direction, the sender is the host that did
        // not start the run.
        std::mem::swap(&mut run.near, &mut run.far);
    }
    let lacks = run.error.is_empty() && run.throughput.bits_per_second() <= 0.0;
    if lacks {
        Err("it has neither a throughput greater than zero nor an error".to_owned())
    } else {
        Ok(run)
    }
}

fn number(cell: &str) -> Result<f64, String> {
    let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
    let number = number.filter(|number| *number >= 0.0);
    number.ok_or_else(|| format!("\"{}\" is not a number of 0 or more", word(cell)))
}

fn count(cell: &str) -> Result<u64, String> {
    whole(number(cell)?).ok_or_else(|| format!("\"{}\" is too large", word(cell)))
}

fn span(cell: &str, unit: Option<f64>) -> Result<Option<Duration>, String> {
    let span = match unit {
        Some(factor) => {
            let seconds = number(cell)? * factor;
            Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?
        }
        None => parse_span(cell).map_err(|error| {
            format!("{error}; or name the unit in the column's name, as rtt_ms")
        })?,
    };
    Ok((!span.is_zero()).then_some(span))
}

fn bit_rate(cell: &str, unit: Option<f64>) -> Result<BitRate, String> {
    let beyond = || format!("\"{}\" is not a rate", word(cell));
    match unit {
        Some(factor) => BitRate::new(number(cell)? * factor).ok_or_else(beyond),
        None if number(cell).is_ok_and(|number| number > 0.0) => Err(format!(
            "\"{0}\" has no unit: write {0}Mbit/s, or name the unit in the column's name, as \
             throughput_mbps",
            word(cell)
        )),
        None => cell.parse().map_err(|error| format!("{error}")),
    }
}

/// Parses a time in RFC 3339 format or in seconds since 1970.
fn moment(cell: &str) -> Result<String, String> {
    let seconds = match microseconds_of(cell) {
        Some(microseconds) => Some(microseconds.div_euclid(1_000_000)),
        None => count(cell).ok().map(u64::cast_signed),
    };
    // Numbers beyond the year 9999 are not seconds. They are probably milliseconds.
    let seconds = seconds.filter(|seconds| *seconds < 253_402_300_800);
    seconds.map(rfc3339).ok_or_else(|| {
        let cell = word(cell);
        format!("\"{cell}\" is not a time: write 2026-11-03T10:11:12Z, or seconds since 1970")
    })
}

fn direction(cell: &str) -> Result<Direction, String> {
    match cell.to_ascii_lowercase().as_str() {
        "to" | "forward" => Ok(Direction::To),
        "from" | "reverse" => Ok(Direction::From),
        _ => Err(format!(
            "\"{}\" is not a direction: write to or from",
            word(cell)
        )),
    }
}

fn measures(cell: &str) -> Result<Measures, String> {
    match cell {
        "memory" => Ok(Measures::Memory),
        "transfer" => Ok(Measures::Transfer),
        "storage" => Ok(Measures::Storage),
        _ => Err(format!(
            "\"{}\" is not memory, transfer or storage",
            word(cell)
        )),
    }
}

/// The rows of a table (RFC 4180), each with the number of its first line.
struct Rows<'a> {
    text: &'a str,
    line: usize,
    between: char,
}

impl Iterator for Rows<'_> {
    type Item = Result<(usize, Vec<String>), SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.text.is_empty() {
            return None;
        }
        self.line += 1;
        let line = self.line;
        let mut cells = Vec::new();
        loop {
            let cell = match self.text.strip_prefix('"') {
                Some(rest) => self.quoted(rest),
                None => Ok(self.bare()),
            };
            match cell {
                Ok(cell) => cells.push(cell),
                Err(error) => {
                    self.text = "";
                    return Some(Err(error));
                }
            }
            if cells.len() > MOST_COLUMNS {
                self.text = "";
                let text = format!("line {line} has more than {MOST_COLUMNS} cells");
                return Some(Err(not_a_table(text)));
            }
            match self.text.strip_prefix(self.between) {
                Some(rest) => self.text = rest,
                None => break,
            }
        }
        let rest = self.text.strip_prefix('\r').unwrap_or(self.text);
        self.text = rest.strip_prefix('\n').unwrap_or(rest);
        Some(Ok((line, cells)))
    }
}

impl Rows<'_> {
    fn bare(&mut self) -> String {
        let ends = |c: char| c == self.between || c == '\n' || c == '\r';
        let (cell, rest) = self
            .text
            .split_at(self.text.find(ends).unwrap_or(self.text.len()));
        self.text = rest;
        cell.to_owned()
    }
}

impl<'a> Rows<'a> {
    /// Parses a quoted cell after its opening quote. Two quotes stand for one.
    fn quoted(&mut self, mut rest: &'a str) -> Result<String, SourceError> {
        let mut cell = String::new();
        loop {
            let Some((before, after)) = rest.split_once('"') else {
                let line = self.line;
                return Err(not_a_table(format!(
                    "line {line} has a quote without an end"
                )));
            };
            cell.push_str(before);
            self.line += before.matches('\n').count();
            match after.strip_prefix('"') {
                Some(after) => {
                    cell.push('"');
                    rest = after;
                }
                None => {
                    self.text = after;
                    // Ignores text between the closing quote and the separator.
                    self.bare();
                    return Ok(cell);
                }
            }
        }
    }
}
