//! Checks the project's habits. Every rule is a module with one function `check`, which computes
//! findings from the tracked files. Its tests pass good and bad samples as text.
//!
//! - [`directions`]: allowed dependencies between crates
//! - [`circles`]: modules of a crate do not import each other in circles
//! - [`methods`]: a type has a bounded number of methods, all in its own module
//! - [`names`]: no module has an empty name
//! - [`lengths`]: functions fit a screen, files are about one thing
//! - [`calls`]: no panics, no sleeping
//! - [`unsafety`]: every `unsafe` has a reason
//! - [`purity`]: crates without I/O and clock have none
//! - [`text`]: whitespace, width of comments, no paths of one machine
//! - [`documents`]: crate docs, the promised documents, links that resolve
//! - [`book`]: the table of contents names every page
//! - [`prose`]: plain words, sentences of a bounded length
//! - [`licences`]: `deny.toml` is true for `Cargo.lock`, as cargo-deny finds
//! - [`sizes`]: no large file, and measurements within a bound
//! - [`test_binaries`]: few test binaries
//! - [`fuzzing`]: every fuzz target is built and has a corpus
//! - [`endpoints`]: the kind of an endpoint is decided in its module
//! - [`option_files`]: an option touches few product files
//! - [`promises`]: a test names every promise of SEMANTICS.md
//! - [`wording`]: no crate gets more unclear comments and test names
//! - [`mod@wire`]: the tables of FORMAT.md agree with the derives of the messages
//!
//! Some rules accept an excuse: a comment `// tidy: reason`.

mod book;
mod calls;
mod circles;
mod directions;
mod documents;
mod endpoints;
mod fuzzing;
mod lengths;
mod licences;
mod methods;
mod names;
pub mod option_files;
mod promises;
mod prose;
mod purity;
mod rust_source;
mod sizes;
mod test_binaries;
mod text;
mod tree;
mod unsafety;
mod wire;
mod wording;

pub use wire::write as write_wire_table;

use std::fmt;

pub use methods::types;
#[cfg(test)]
pub use tree::sample;
pub use tree::{Tree, product_crate};

/// One violation, printed as `path:line: rule: message`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Relative to the repository's root.
    path: String,
    /// Counted from 1.
    line: usize,
    /// The rule's name.
    rule: &'static str,
    /// The fault and the remedy.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

/// All rules that need only the tracked files.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    directions::check,
    circles::check,
    methods::check,
    names::check,
    lengths::check,
    calls::check,
    unsafety::check,
    purity::check,
    text::check,
    documents::check,
    book::check,
    prose::check,
    fuzzing::check,
    sizes::check,
    test_binaries::check,
    endpoints::check,
    option_files::check,
    promises::check,
    wire::check,
    wording::check,
];

/// Checks the repository and prints the findings.
///
/// # Errors
///
/// If there are findings, or the repository cannot be read.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no argument, so no \"{argument}\""));
    }
    let tree = Tree::of_repository()?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|check| check(&tree)).collect();
    findings.extend(licences::check_repository()?);
    findings.sort();
    for note in wording::notes(&tree) {
        println!("tidy: {note}");
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing found", tree.files.len());
        return Ok(());
    }
    Err(format!("{} finding(s)", findings.len()))
}
