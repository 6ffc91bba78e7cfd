//! Parses options whose value is one of a few names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A name on the command line, its help, and its value.
pub type Choice<T> = (&'static str, &'static str, T);

/// Returns a parser for these names.
pub fn one_of<T>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let names = choices.iter();
    let names = names.map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(move |text| {
        let chosen = choices.iter().find(|(name, _, _)| *name == text);
        chosen.map(|chosen| chosen.2.clone()).ok_or("unknown name")
    })
}
