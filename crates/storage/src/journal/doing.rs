//! Errors that name the step at which the storage failed, for the claim of a partial file and for
//! its owner.

use std::io;

use super::entry::UnfitError;
use super::writer::AppendError;

/// Failure of the storage at one step.
#[derive(Debug, thiserror::Error)]
#[error("while {doing}: {source}")]
pub struct StepError {
    /// The step.
    pub doing: &'static str,
    /// Error of the storage.
    pub source: io::Error,
}

/// Adds the step to an error.
pub(super) fn doing(doing: &'static str) -> impl FnOnce(io::Error) -> StepError {
    move |source| StepError { doing, source }
}

/// Adds the step to an error, as [`doing`] does, for appended records.
pub(super) fn appending<E>(what: &'static str) -> impl FnOnce(AppendError) -> E
where
    E: From<UnfitError> + From<StepError>,
{
    move |error| match error {
        AppendError::Unfit(error) => error.into(),
        AppendError::Io(error) => doing(what)(error).into(),
    }
}
