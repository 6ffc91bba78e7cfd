//! Defines the error of an invalid specification.

use crate::endpoint::Unresolved;

/// A field that is out of its range or contradicts another field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The specification has the version of another release.
    #[error("version: {0} is not {version}, which this release reads", version = super::VERSION)]
    Version(u32),
    /// The specification has no source.
    #[error("sources: there is none")]
    NoSource,
    /// A comparison has more than one source.
    #[error("sources: a comparison has one")]
    OneSource,
    /// A number is out of its range.
    #[error("{field}: {text}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Description of the valid range.
        text: &'static str,
    },
    /// Some sources are on this host and some are not.
    #[error("sources: some are here and some at another host: copy them with two commands")]
    Mixed,
    /// The sources are at several hosts.
    #[error("sources: they are at different hosts: copy them with one command each")]
    DifferentHosts,
    /// Two sources have the same name at the destination.
    #[error("sources: {0}")]
    SameName(String),
    /// A source is `null:`, which cannot be read.
    #[error("sources: null: is a destination; a source of zeros is zero:SIZE")]
    NullSource,
    /// The destination is `zero:`, which cannot be written.
    #[error("destination: zero: is a source; a destination without a disk is null:")]
    ZeroDestination,
    /// A dry run asks to read data back or to report digests, but writes no data.
    #[error("verification: a dry run reads nothing back and tells no digests")]
    DryRun,
    /// An option needs digests, but `integrity` is not `Digest`.
    #[error("verification.integrity: read_back and digests need \"digest\"")]
    DigestsNeeded,
    /// A thread count of a layer is given together with the paired stack.
    #[error("flows.stack: \"paired\" has one thread for each stream: fix no other flows")]
    Paired,
    /// Standard input is combined with another source.
    #[error("sources: - is one pipe of data: with it there is one source")]
    PipeAlone,
    /// An option would read or write a pipe twice.
    #[error("verification: - is read or written once: nothing is read back or known before")]
    PipeOnce,
    /// Standard output is the destination of a paired stack, so a slow reader would block the
    /// streams.
    #[error("flows.stack: with \"paired\" a pipe that nobody reads would stop the streams")]
    PipePaired,
    /// A comparison names a pipe.
    #[error("sources: - is a pipe: what is compared are files and trees that are there")]
    PipeCompared,
    /// A comparison has criteria, but it always compares every file.
    #[error("criteria: a comparison looks at every file, whatever its size and time are")]
    Compared,
    /// Criteria are given for `-` or `null:`, which have no size and time.
    #[error("criteria: - and null: have no size and time to be compared by")]
    PipeJudged,
    /// `assembly` contradicts another field or is out of its range.
    #[error("assembly: {0}")]
    Assembly(&'static str),
    /// `move_away` contradicts another field.
    #[error("move_away: {0}")]
    Move(&'static str),
    /// `limits.retries` contradicts another field or is 0.
    #[error("limits.retries: {0}")]
    Retries(&'static str),
    /// `deletion` contradicts another field.
    #[error("deletion: {0}")]
    Deletion(&'static str),
    /// `backup` contradicts another field or is out of its range.
    #[error("backup: {0}")]
    Backup(&'static str),
    /// `on_commit` contradicts another field or is out of its range.
    #[error("on_commit: {0}")]
    OnCommit(&'static str),
    /// `filter_command` contradicts another field or is out of its range.
    #[error("filter_command: {0}")]
    FilterCommand(&'static str),
    /// Clear data are requested over SSH, which always encrypts.
    #[error("connection.data_security: over SSH data are always encrypted")]
    ClearOverSsh,
    /// More than one way to authenticate the daemon is given.
    #[error("connection: of fingerprint, accept_new and authority give one")]
    Trust,
    /// A certificate is given without its key, or a key without its certificate.
    #[error("connection: certificate and key go together")]
    Certificate,
    /// The destination is a server that only sends files.
    #[error("destination: a server of HTTP or S3 can only be a source")]
    OnlySource,
    /// A filter is invalid or too long.
    #[error("filter: {0}")]
    Filter(String),
    /// The attributes to preserve are contradictory or invalid.
    #[error("keep: {0}")]
    Keep(String),
    /// A list of files is combined with several sources.
    #[error("filter.files: they lie beneath one source: name one")]
    FilesOfOne,
    /// `nice` is combined with `mptcp`, whose streams cannot yield.
    #[error("connection: of nice and mptcp give one")]
    NicePaths,
}

impl From<Unresolved> for SpecError {
    fn from(error: Unresolved) -> SpecError {
        match error {
            Unresolved::NoSource => SpecError::NoSource,
            Unresolved::Mixed => SpecError::Mixed,
            Unresolved::DifferentHosts => SpecError::DifferentHosts,
            Unresolved::NotSource => SpecError::NullSource,
            Unresolved::NotDestination => SpecError::ZeroDestination,
            Unresolved::OnlySource => SpecError::OnlySource,
        }
    }
}
