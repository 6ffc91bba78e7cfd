//! Which step failed, when the storage did: for the claim of a partial file and
//! for its owner.

use std::io;

use super::entry::UnfitError;
use super::writer::AppendError;

/// The storage failed at one step.
#[derive(Debug, thiserror::Error)]
#[error("while {doing}: {source}")]
pub struct StepError {
    /// What was tried.
    pub doing: &'static str,
    /// How it failed.
    pub source: io::Error,
}

/// Names what was tried.
pub(super) fn doing(doing: &'static str) -> impl FnOnce(io::Error) -> StepError {
    move |source| StepError { doing, source }
}

/// As [`doing`], for records that were appended.
pub(super) fn appending<E>(what: &'static str) -> impl FnOnce(AppendError) -> E
where
    E: From<UnfitError> + From<StepError>,
{
    move |error| match error {
        AppendError::Unfit(error) => error.into(),
        AppendError::Io(error) => doing(what)(error).into(),
    }
}
