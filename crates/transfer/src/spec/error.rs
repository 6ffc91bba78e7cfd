//! What is wrong with a specification.

use crate::endpoint::Endpoint;

/// A field that is out of its range, or does not fit the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It was written by another release.
    #[error("version: {0} is not {version}, which this release reads", version = super::VERSION)]
    Version(u32),
    /// There is nothing to copy.
    #[error("sources: there is none")]
    NoSource,
    /// A comparison has two sides.
    #[error("sources: a comparison has one")]
    OneSource,
    /// A number is out of its range.
    #[error("{field}: {text}")]
    Range {
        /// The field.
        field: &'static str,
        /// What it may be.
        text: &'static str,
    },
    /// Some sources are on this host and some are not.
    #[error("sources: some are here and some at another host: copy them with two commands")]
    Mixed,
    /// The sources are at several hosts.
    #[error("sources: they are at different hosts: copy them with one command each")]
    DifferentHosts,
    /// Two sources have one name at the destination.
    #[error("sources: {0}")]
    SameName(String),
    /// Nothing can be read from there.
    #[error("sources: null: is a destination; a source of zeros is zero:SIZE")]
    NullSource,
    /// Nothing can be written there.
    #[error("destination: zero: is a source; a destination without a disk is null:")]
    ZeroDestination,
    /// A dry run writes nothing that could be read back or have a digest.
    #[error("verification: a dry run reads nothing back and tells no digests")]
    DryRun,
    /// Without digests there are none to tell or to compare.
    #[error("verification.integrity: read_back and digests need \"digest\"")]
    DigestsNeeded,
    /// With paired stacks no layer has a number of threads.
    #[error("flows.stack: \"paired\" has one thread for each stream: fix no other flows")]
    Paired,
    /// A pipe is one source.
    #[error("sources: - is one pipe of data: with it there is one source")]
    PipeAlone,
    /// A pipe is read or written once.
    #[error("verification: - is read or written once: nothing is read back or known before")]
    PipeOnce,
    /// A reader that stops would stop the streams.
    #[error("flows.stack: with \"paired\" a pipe that nobody reads would stop the streams")]
    PipePaired,
    /// A pipe has nothing that could be compared.
    #[error("sources: - is a pipe: what is compared are files and trees that are there")]
    PipeCompared,
    /// A comparison is of all that there is.
    #[error("criteria: a comparison looks at every file, whatever its size and time are")]
    Compared,
    /// There is nothing to be judged by.
    #[error("criteria: - and null: have no size and time to be compared by")]
    PipeJudged,
    /// Nothing can be moved.
    #[error("move_away: {0}")]
    Move(&'static str),
    /// It cannot be tried again.
    #[error("limits.retries: {0}")]
    Retries(&'static str),
    /// Nothing can be deleted.
    #[error("deletion: {0}")]
    Deletion(&'static str),
    /// Nothing can be kept of what is replaced.
    #[error("backup: {0}")]
    Backup(&'static str),
    /// No command can run for each file.
    #[error("on_commit: {0}")]
    OnCommit(&'static str),
    /// Files cannot go through a command.
    #[error("filter_command: {0}")]
    FilterCommand(&'static str),
    /// Over SSH data are encrypted.
    #[error("connection.data_security: over SSH data are always encrypted")]
    ClearOverSsh,
    /// Several ways to know the daemon.
    #[error("connection: of fingerprint, accept_new and authority give one")]
    Trust,
    /// Half of a certificate.
    #[error("connection: certificate and key go together")]
    Certificate,
    /// A filter cannot be used.
    #[error("filter: {0}")]
    Filter(String),
    /// What is to be kept makes no sense.
    #[error("keep: {0}")]
    Keep(String),
    /// A list of files is of one source.
    #[error("filter.files: they lie beneath one source: name one")]
    FilesOfOne,
    /// The streams of `mptcp` do not yield.
    #[error("connection: of nice and mptcp give one")]
    NicePaths,
}

impl SpecError {
    /// One endpoint where no data may come from or go to.
    pub(super) fn of_source(source: &Endpoint) -> Option<SpecError> {
        (*source == Endpoint::Null).then_some(SpecError::NullSource)
    }
}
