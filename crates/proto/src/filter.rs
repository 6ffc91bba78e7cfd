//! Filters select the entries of a tree that are copied, with rsync's rules: the first rule that
//! matches a path decides.
//!
//! - [`wildcard`](self): `*`, `**`, `?` and classes, matched in bounded time
//! - [`pattern`](self): patterns, anchored or not, and the paths that they match
//! - [`syntax`](self): the written form of a rule
//! - [`lines`](self): the lines of a file of rules
//! - [`Gathered`]: rules of a command line and of its files, in their order
//! - [`Rules`], [`InForce`]: the rules of a copy, and those in force in a directory
//! - [`ListedPath`]: a line of a list of files
//! - [`Filter`]: the complete selection of a request: rules, sizes, times and depth
//!
//! The implementation follows rsync's manual and copies no code. The decisions of both are compared
//! in `tests/filters` of `longhaul`.

mod gathered;
mod in_force;
mod lines;
mod list;
mod pattern;
mod selection;
mod syntax;
mod wildcard;

pub use gathered::{GatherError, Gathered};
pub use in_force::{InForce, Rules};
pub use lines::Ends;
pub use list::{ListedPath, ListedPathError, merged_path};
pub use pattern::MAXIMUM_PATTERN_BYTES;
pub(crate) use selection::check_bytes;
pub use selection::{
    FileFacts, Filter, LeftOut, MAXIMUM_LIST_BYTES, MAXIMUM_OMITTED, MAXIMUM_RULE_SHOWN,
    MAXIMUM_SELECTION_BYTES, OMITTED_WINDOW, Omitted, PartOfList, Reason, SelectionError,
};
pub use syntax::{Action, End, PerDirectory};

/// Maximum number of rules in force in one directory: those of the command, and of the
/// per-directory files in it and above it. Each name is compared with all of them.
pub const MAXIMUM_RULES: usize = 16_384;

/// Maximum bytes of all patterns. Each byte takes sixteen bytes of memory, and a match takes as
/// many steps per byte as the name has bytes.
pub const MAXIMUM_RULES_BYTES: usize = 256 << 10;

/// Maximum size of a file of rules in bytes.
pub const MAXIMUM_FILE_BYTES: usize = 256 << 10;

/// Maximum number of kinds of per-directory files. Each directory is searched for each of them.
pub const MAXIMUM_PER_DIRECTORY: usize = 16;

/// Reason why a rule is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The beginning is not that of a rule.
    #[error(
        "it begins with no rule: write + (include) or - (exclude), a space, and a pattern; or . \
         (merge), : (dir-merge) and a file; or !"
    )]
    Unknown,
    /// The pattern or file is missing.
    #[error("it ends before its pattern")]
    Ended,
    /// Text follows a rule that takes none.
    #[error("nothing may follow !: leave out what stands behind it")]
    Trailing,
    /// The rule does not have this modifier.
    #[error("the modifier {0:?} does not go with it: leave it out")]
    Modifier(char),
    /// longhaul does not support this modifier of rsync.
    #[error("longhaul does not have the modifier {0:?}: {1}")]
    Absent(char, &'static str),
    /// Ends are named twice: by the rule and by the rule for its file.
    #[error(
        "it says whether it is for the source or the destination, and so does the rule that \
         names its file: leave one of them out"
    )]
    NamedTwice,
    /// The name of a per-directory file has a slash.
    #[error(
        "a per-directory file is looked for in each directory by its name: write it without a slash"
    )]
    Slash,
    /// A per-directory file names another per-directory file.
    #[error("a per-directory file names no further per-directory files: use . and a file")]
    Nested,
    /// The pattern is longer than [`MAXIMUM_PATTERN_BYTES`].
    #[error("its pattern has more than {MAXIMUM_PATTERN_BYTES} bytes: shorten it")]
    Long,
    /// The pattern has a NUL byte.
    #[error("its pattern has a NUL byte: no name has one")]
    Nul,
    /// The rules exceed [`MAXIMUM_RULES`] or [`MAXIMUM_RULES_BYTES`].
    #[error(
        "with it there are more than {MAXIMUM_RULES} rules, or {kib} KiB of them: say the same \
         with fewer patterns",
        kib = MAXIMUM_RULES_BYTES >> 10
    )]
    TooMany,
    /// There are more than [`MAXIMUM_PER_DIRECTORY`] kinds of files.
    #[error("with it there are more than {MAXIMUM_PER_DIRECTORY} kinds of per-directory files")]
    TooManyFiles,
    /// The file is larger than [`MAXIMUM_FILE_BYTES`].
    #[error("the file has more than {kib} KiB: split it", kib = MAXIMUM_FILE_BYTES >> 10)]
    LargeFile,
}

/// An invalid rule and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter rule \"{rule}\" cannot be used: {cause}")]
pub struct BadRule {
    /// Beginning of the rule, as much as a message can show.
    rule: String,
    /// Reason.
    #[source]
    pub cause: RuleError,
}

/// Maximum number of bytes of a rule in a message.
const SHOWN_BYTES: usize = 80;

impl BadRule {
    fn new(rule: &[u8], cause: RuleError) -> BadRule {
        let shown = rule.get(..SHOWN_BYTES).unwrap_or(rule);
        BadRule {
            rule: shown.escape_ascii().to_string(),
            cause,
        }
    }
}
