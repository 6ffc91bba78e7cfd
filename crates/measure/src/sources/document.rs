//! Detects the instrument that wrote a result, and reads the result.

use std::io::BufRead;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{
    ExternalRun, LONGEST_ERROR, SourceError, csv, iperf3, pscheduler, read_bounded, shortened,
};

/// Keys at the top level of the instruments' results.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Top {
    event: Option<IgnoredAny>,
    start: Option<IgnoredAny>,
    intervals: Option<IgnoredAny>,
    end: Option<IgnoredAny>,
    succeeded: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    // True if the key is present, even if its value is null.
    #[serde(deserialize_with = "present")]
    result_merged: bool,
    test: Option<IgnoredAny>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// Reads the results of any supported instrument: iperf3, pScheduler or a table.
///
/// # Errors
///
/// If the file cannot be read, is too large, or is not a usable result.
pub fn read_any(input: impl BufRead) -> Result<Vec<ExternalRun>, SourceError> {
    let bytes = read_bounded(input)?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let begin: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .take(2)
        .collect();
    match begin.first() {
        None => {
            let text = "it is empty: the instrument was killed before it wrote its result";
            Err(SourceError::Unknown(text.to_owned()))
        }
        // Only pScheduler writes results as an array.
        Some(b'[') if begin.ends_with(b"{") => pscheduler::runs(text),
        Some(b'{') => of_json(text),
        Some(_) => of_text(text),
    }
}

fn of_json(text: &[u8]) -> Result<Vec<ExternalRun>, SourceError> {
    let mut documents = serde_json::Deserializer::from_slice(text).into_iter::<Top>();
    let top = match documents.next() {
        Some(Ok(top)) => top,
        // The file is truncated.
        Some(Err(error)) if error.is_eof() => {
            let text = "it is incomplete: the instrument was killed while writing";
            return Err(SourceError::Unknown(text.to_owned()));
        }
        Some(Err(error)) => {
            return Err(SourceError::Unknown(format!(
                "it is not valid JSON: {error}"
            )));
        }
        None => Top::default(),
    };
    let is_of_pscheduler =
        top.succeeded.is_some() || top.result.is_some() || top.result_merged || top.test.is_some();
    let is_of_iperf3 =
        top.event.is_some() || top.start.is_some() || top.intervals.is_some() || top.end.is_some();
    match (is_of_iperf3, is_of_pscheduler) {
        (_, true) => pscheduler::runs(text),
        (true, false) => iperf3::runs(text),
        (false, false) => Err(SourceError::Unknown(
            "it is JSON, but neither iperf3's (--json) nor a throughput test of pScheduler".into(),
        )),
    }
}

fn of_text(text: &[u8]) -> Result<Vec<ExternalRun>, SourceError> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(SourceError::Unknown("it is not UTF-8 text".to_owned()));
    };
    let said = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("iperf3: "));
    if let Some(said) = said {
        let cause = said
            .trim_start_matches("iperf3: ")
            .trim_start_matches("error - ");
        let cause = shortened(cause, LONGEST_ERROR);
        let tool = "iperf3".to_owned();
        return Err(SourceError::Failed { tool, cause });
    }
    let first = text.lines().next().unwrap_or_default();
    let begins = [
        "Connecting to host",
        "-----",
        "Server listening",
        "Accepted connection",
    ];
    if begins.iter().any(|begin| first.starts_with(begin)) {
        let text = "it is iperf3's text output: run iperf3 with --json";
        return Err(SourceError::Unknown(text.to_owned()));
    }
    csv::runs(text)
}
