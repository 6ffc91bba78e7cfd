//! What of a tree is copied: rules as rsync has them, the first one that matches a path decides.
//!
//! - [`wildcard`](self): `*`, `**`, `?` and classes, matched in bounded time
//! - [`pattern`](self): which paths a pattern matches, anchored or not
//! - [`syntax`](self): a rule as it is written
//! - [`lines`](self): the lines of a file of rules
//! - [`Gathered`]: rules of a command line and of its files, in their order
//! - [`Rules`], [`InForce`]: those of a copy, and what holds in a directory of it
//! - [`ListedPath`]: a line of a list of files
//! - [`Selection`]: all that a request asks for, beside the rules by size, time and depth
//!
//! Nothing here is copied from rsync: it is written after its manual, and compared with it by the
//! choices that both make (`tests/filters` of `longhaul`).

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
    FileFacts, LeftOut, MAXIMUM_LIST_BYTES, MAXIMUM_OMITTED, MAXIMUM_RULE_SHOWN,
    MAXIMUM_SELECTION_BYTES, OMITTED_WINDOW, Omitted, PartOfList, Reason, Selection,
    SelectionError,
};
pub use syntax::{Action, End, PerDirectory};

/// Most rules that may hold in one directory: those of the command, and of the per-directory files
/// in it and above it. Each name is compared with all of them.
pub const MAXIMUM_RULES: usize = 16_384;

/// Most bytes of their patterns: each takes sixteen bytes of memory, and a match as many steps as
/// its name has bytes.
pub const MAXIMUM_RULES_BYTES: usize = 256 << 10;

/// Most bytes of a file of rules.
pub const MAXIMUM_FILE_BYTES: usize = 256 << 10;

/// Most kinds of per-directory files: each directory is looked at for each of them.
pub const MAXIMUM_PER_DIRECTORY: usize = 16;

/// Why a rule is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It begins as no rule does.
    #[error(
        "it begins with no rule: write + (include) or - (exclude), a space, and a pattern; or . \
         (merge), : (dir-merge) and a file; or !"
    )]
    Unknown,
    /// No pattern or file follows.
    #[error("it ends before its pattern")]
    Ended,
    /// Something follows where nothing may.
    #[error("nothing may follow !: leave out what stands behind it")]
    Trailing,
    /// A modifier that this rule does not have.
    #[error("the modifier {0:?} does not go with it: leave it out")]
    Modifier(char),
    /// A modifier that is not here.
    #[error("longhaul does not have the modifier {0:?}: {1}")]
    Absent(char, &'static str),
    /// Both the rule and the rule that names its file name ends.
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
    /// A rule for further per-directory files in a per-directory file.
    #[error("a per-directory file names no further per-directory files: use . and a file")]
    Nested,
    /// A pattern longer than [`MAXIMUM_PATTERN_BYTES`].
    #[error("its pattern has more than {MAXIMUM_PATTERN_BYTES} bytes: shorten it")]
    Long,
    /// A NUL byte.
    #[error("its pattern has a NUL byte: no name has one")]
    Nul,
    /// More than [`MAXIMUM_RULES`], or [`MAXIMUM_RULES_BYTES`].
    #[error(
        "with it there are more than {MAXIMUM_RULES} rules, or {kib} KiB of them: say the same \
         with fewer patterns",
        kib = MAXIMUM_RULES_BYTES >> 10
    )]
    TooMany,
    /// More than [`MAXIMUM_PER_DIRECTORY`].
    #[error("with it there are more than {MAXIMUM_PER_DIRECTORY} kinds of per-directory files")]
    TooManyFiles,
    /// More than [`MAXIMUM_FILE_BYTES`].
    #[error("the file has more than {kib} KiB: split it", kib = MAXIMUM_FILE_BYTES >> 10)]
    LargeFile,
}

/// A rule that is none, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter rule \"{rule}\" cannot be used: {cause}")]
pub struct BadRule {
    /// As much of it as a message can show.
    rule: String,
    /// Why.
    #[source]
    pub cause: RuleError,
}

/// Bytes of a rule that a message shows.
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
