//! Recognises values of options of scp and rclone that would be read as sources.
//!
//! Some letters take a value in scp but not in rsync, whose meaning applies here. The value would
//! be copied as a source. Such a line is refused if the first path looks like a value.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::parser::ValueSource;
use longhaul_transfer::other_tools::taking::{PORT, TAKING};

/// Refuses a first path that looks like a value of another tool's option.
///
/// # Errors
///
/// Returns a message with the equivalent in longhaul.
pub fn refuse(matches: &ArgMatches) -> Result<(), String> {
    let paths = matches.try_get_many::<OsString>("paths");
    let paths: Vec<&OsString> = paths.ok().flatten().into_iter().flatten().collect();
    let at = matches.indices_of("paths").and_then(|mut all| all.next());
    let (Some(first), Some(at)) = (paths.first(), at) else {
        return refuse_digits(matches);
    };
    for taking in TAKING {
        let given = matches.value_source(taking.id) == Some(ValueSource::CommandLine);
        let before = matches.index_of(taking.id) == at.checked_sub(1);
        if given && before && (taking.is_value)(first, paths.len() - 1) {
            return Err(format!(
                "{} {}: {}. To copy a file of that name, name it before the option",
                taking.flag,
                first.display(),
                taking.hint
            ));
        }
    }
    refuse_digits(matches)
}

/// Refuses `-P8080`, whose digits would be read as the options -8 and -0.
fn refuse_digits(matches: &ArgMatches) -> Result<(), String> {
    let digits: Vec<usize> = matches.indices_of("8").into_iter().flatten().collect();
    let letters = [("P", "-P"), ("perms", "-p"), ("links", "-l")];
    for (id, flag) in letters {
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        // An option of this table counts twice: for its name and for its empty value.
        let next = matches.index_of(id).map(|at| at + 2);
        if given && next.is_some_and(|next| digits.contains(&next)) {
            return Err(format!("{flag}8: {PORT}"));
        }
    }
    Ok(())
}
