//! Reports the product files that each option touches ([`crate::tidy::option_files`]).

use std::fmt::Write;

use super::list;
use crate::tidy::Tree;
use crate::tidy::option_files::{Counted, files_of, usual};

/// Returns the number of files of the usual options and of those that are given.
pub fn report(tree: &Tree, given: &[Counted], names_shown: bool) -> String {
    let mut text = "\nproduct files that an option touches\n".to_owned();
    for option in usual().iter().chain(given) {
        let files = files_of(tree, option);
        let words = option.words.join(", ");
        let _ = writeln!(text, "  {:<16} {:>3}  {words}", option.name, files.len());
        if names_shown {
            text += &list(&files);
        }
    }
    text
}
