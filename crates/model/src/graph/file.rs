//! A graph as a file: TOML for editing by people, and JSON of the same structure. `docs/graph.md`
//! describes it.
//!
//! - `quantity`: numbers with units
//! - `written`: the contents of a file
//! - `convert`: conversion between the contents and a [`Graph`]
//!
//! Errors state the line if it is known, the cause and the remedy.

mod convert;
mod quantity;
mod written;

use std::fmt;

use self::written::GraphFile;
use super::Graph;

/// Maximum size of a file in bytes. No graph is larger.
pub const MOST_BYTES: usize = 4 << 20;

/// The file is not a valid graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphFileError {
    /// Line number, from 1. `None` if the fault is not in a single line.
    pub line: Option<usize>,
    /// Cause and remedy.
    pub text: String,
}

impl fmt::Display for GraphFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for GraphFileError {}

impl Graph {
    /// Parses and checks a graph in TOML, or in JSON if the text begins with a brace.
    ///
    /// # Errors
    ///
    /// The first fault, with its line, cause and remedy.
    pub fn from_text(text: &str) -> Result<Graph, GraphFileError> {
        if text.len() > MOST_BYTES {
            return Err(GraphFileError {
                line: None,
                text: format!(
                    "it has more than {MOST_BYTES} bytes, which no graph has: check the file's name"
                ),
            });
        }
        let file = if text.trim_start().starts_with('{') {
            of_json(text)
        } else {
            of_toml(text)
        }?;
        let located = |fault: convert::Fault| GraphFileError {
            line: fault
                .names
                .iter()
                .find_map(|name| line_of(text, fault.keys, name)),
            text: fault.text,
        };
        let graph = convert::graph(file).map_err(located)?;
        graph
            .check()
            .map_err(|error| located(convert::Fault::of(&error)))?;
        Ok(graph)
    }

    /// Formats the graph as TOML. [`Graph::from_text`] parses it to the same graph.
    ///
    /// # Errors
    ///
    /// If a name or number cannot be represented.
    pub fn to_toml(&self) -> Result<String, GraphFileError> {
        toml::to_string(&convert::file(self)).map_err(|error| unwritten(&error))
    }

    /// Formats the graph as JSON of the same structure.
    ///
    /// # Errors
    ///
    /// If a number cannot be represented.
    pub fn to_json(&self) -> Result<String, GraphFileError> {
        serde_json::to_string_pretty(&convert::file(self)).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &dyn fmt::Display) -> GraphFileError {
    GraphFileError {
        line: None,
        text: format!("this graph cannot be written: {error}"),
    }
}

fn of_toml(text: &str) -> Result<GraphFile, GraphFileError> {
    toml::from_str(text).map_err(|error| GraphFileError {
        line: error.span().map(|span| line_at(text, span.start)),
        text: error.message().replace('\n', " "),
    })
}

fn of_json(text: &str) -> Result<GraphFile, GraphFileError> {
    serde_json::from_str(text).map_err(|error| {
        let whole = error.to_string();
        let end = whole.rfind(" at line ").unwrap_or(whole.len());
        GraphFileError {
            line: (error.line() > 0).then_some(error.line()),
            text: whole[..end].to_owned(),
        }
    })
}

/// Returns the number of the line that contains a byte, from 1.
fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the first line that assigns this name to one of these keys, else the first that contains
/// the name.
fn line_of(text: &str, keys: &[&str], name: &str) -> Option<usize> {
    let quoted = [format!("\"{name}\""), format!("'{name}'")];
    let has_name = |line: &str| quoted.iter().any(|quoted| line.contains(quoted.as_str()));
    let has_key = |line: &str| {
        let key = line.trim_start().trim_start_matches('"');
        keys.iter().any(|wanted| key.starts_with(wanted))
    };
    let with_key = text
        .lines()
        .position(|line| has_key(line) && has_name(line));
    with_key
        .or_else(|| text.lines().position(has_name))
        .map(|line| line + 1)
}
