//! Filters the tips that clap adds to errors of the command line.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use longhaul_transfer::other_tools::numbers;

/// Removes misleading tips from an error. clap suggests hidden commands, options with a
/// vaguely similar name, and passing an unknown option as a value.
pub fn without_wrong_tips(mut error: clap::Error) -> clap::Error {
    error.remove(ContextKind::Suggested);
    error.remove(ContextKind::SuggestedSubcommand);
    let text = |value: Option<&ContextValue>| match value {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let given = text(error.get(ContextKind::InvalidArg));
    let tip = text(error.get(ContextKind::SuggestedArg));
    if let (Some(given), Some(tip)) = (given, tip)
        && !is_slip(&given, &tip)
    {
        error.remove(ContextKind::SuggestedArg);
    }
    if error.kind() == ErrorKind::ValueValidation
        && let Some(remedy) = remedy(&error)
    {
        let tip = StyledStr::from(remedy);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// Returns what to write instead of a value of an option, if the error itself does not say it.
fn remedy(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (given, value) = (
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    );
    let name = given.split([' ', '=']).next()?;
    numbers::remedy(name, value, &std::error::Error::source(error)?.to_string())
}

/// True if two names differ in one letter, or in the order of two adjacent letters.
fn is_slip(one: &str, other: &str) -> bool {
    let name = |text: &str| -> Vec<char> {
        let end = text.find([' ', '=']).unwrap_or(text.len());
        text[..end].chars().collect()
    };
    let (one, other) = (name(one), name(other));
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    let tail = |list: &[char], from: usize| list.get(from..).map(<[char]>::to_vec);
    let swapped = one.len() > 1 && other.len() > 1 && one[0] == other[1] && one[1] == other[0];
    tail(one, 1) == tail(other, 0)
        || tail(one, 0) == tail(other, 1)
        || tail(one, 1) == tail(other, 1)
        || swapped && tail(one, 2) == tail(other, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_typing_errors_get_a_tip() {
        assert!(is_slip("--exlude", "--exclude") && is_slip("--recursiv", "--recursive"));
        assert!(is_slip("--udpate", "--update") && is_slip("--verifi", "--verify"));
        assert!(!is_slip("--checksum-choice", "--checkpoint") && !is_slip("--modern", "--mode"));
    }
}
