//! Handles options and commands of rsync, scp and rclone that longhaul does not have.
//!
//! clap knows each of these options as a hidden argument of `cp`, with or without a
//! value, so that only clap decides which words are values. Some options are accepted
//! without effect. Others are refused with the name of the equivalent in longhaul. If
//! rsync and scp disagree about a letter, the meaning in rsync applies. Other names of
//! existing options are aliases of these. docs/coming-from.md has a table for users.

mod scp_values;
mod tips;

use std::ffi::OsString;

use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

pub use longhaul_transfer::other_tools::commands::refuse as refuse_command;
pub use tips::without_wrong_tips;

use longhaul_transfer::other_tools::options::{self, NEGATIONS, Options, written};
use longhaul_transfer::other_tools::taking::refuse_attached;

/// Adds the options of other tools to `cp`. One of them is `-h`, rsync's human-readable numbers.
pub fn add_options(cp: Command) -> Command {
    let help = Arg::new("help")
        .long("help")
        .action(ArgAction::Help)
        .help("Print all options (a short list: `longhaul cp -h`)");
    let all = options::all().flat_map(|options| {
        let names = options.names.iter();
        names
            .map(|name| argument(name, &options))
            .collect::<Vec<_>>()
    });
    let negations = NEGATIONS.iter().map(|line| negation(line));
    cp.disable_help_flag(true)
        .arg(help)
        .args(all)
        .args(negations)
}

fn argument(name: &'static str, options: &Options) -> Arg {
    let argument = Arg::new(name).hide(true).action(ArgAction::Append);
    let mut letters = name.chars();
    let argument = match (letters.next(), letters.next()) {
        (Some(letter), None) => argument.short(letter),
        _ => argument.long(name),
    };
    let argument = argument.value_parser(OsStringValueParser::new());
    if options.takes_value {
        argument
    } else {
        // With an empty value, clap keeps the position of each occurrence.
        argument.num_args(0).default_missing_value("")
    }
}

/// Returns an option that disables another one.
fn negation(line: &'static str) -> Arg {
    let mut words = line.split(' ');
    let (id, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    Arg::new(name)
        .long(name)
        .aliases(words)
        .hide(true)
        .action(ArgAction::SetTrue)
        .overrides_with(id)
}

/// Makes every option with a value accept the next word as its value even if it looks
/// like an option, as in rsync.
pub fn take_any_value(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let takes = argument.get_action().takes_values() && !argument.is_positional();
        if takes && !argument.is_require_equals_set() && takes_one(&argument) {
            argument.allow_hyphen_values(true)
        } else {
            argument
        }
    });
    command.mut_subcommands(take_any_value)
}

/// True if an option takes exactly one value. Other options are flags or need an equals sign.
fn takes_one(argument: &Arg) -> bool {
    argument
        .get_num_args()
        .is_none_or(|range| range == 1.into())
}

/// Refuses options of `cp` that longhaul does not have, and values of such options that
/// would be read as sources.
///
/// # Errors
///
/// Returns a message with the equivalent in longhaul.
pub fn refuse_options(cp: &ArgMatches) -> Result<(), String> {
    for options in options::all() {
        let given = |name: &&&str| cp.value_source(name) == Some(ValueSource::CommandLine);
        if let (Some(hint), Some(name)) = (options.hint, options.names.iter().find(given)) {
            return Err(format!("longhaul has no {}: {hint}", written(name)));
        }
    }
    scp_values::refuse(cp)
}

/// Applies [`refuse_options`] to an invalid command line. A hint about an option is more
/// useful than the first error of clap.
///
/// # Errors
///
/// Returns a message with the equivalent in longhaul.
pub fn refuse_options_of_line(shown: Command, line: &[OsString]) -> Result<(), String> {
    refuse_attached(line)?;
    let matches = shown.ignore_errors(true).try_get_matches_from(line);
    match matches.as_ref().map(ArgMatches::subcommand) {
        Ok(Some(("cp", cp))) => refuse_options(cp),
        _ => Ok(()),
    }
}

/// Returns the hint about an attached value of scp if there is one, else `hint`.
pub fn better_hint(hint: String, line: &[OsString]) -> String {
    refuse_attached(line).err().unwrap_or(hint)
}

/// Returns an error with this text in clap's format.
pub fn error_of(mut shown: Command, of_cp: bool, text: String) -> clap::Error {
    let cp = shown.find_subcommand("cp").filter(|_| of_cp).cloned();
    let mut command = cp.unwrap_or_else(|| std::mem::take(&mut shown));
    command.error(ErrorKind::UnknownArgument, text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use longhaul_transfer::other_tools::commands;

    use super::super::Arguments;
    use super::*;

    fn refusal(line: &str) -> Option<String> {
        let words = std::iter::once("longhaul").chain(line.split(' '));
        let read = Arguments::read_line(words.map(OsString::from).collect());
        read.err().map(|error| error.to_string())
    }

    #[test]
    fn options_without_effect_are_accepted() {
        for line in [
            "cp -rPW a b",
            "cp -P --partial --info=progress2 a b",
            "cp --info progress2 -rvh a b",
            "cp -ah a b",
            "cp a -h b",
            "cp -rz -e ssh a b",
            "cp -ressh --zl 6 a b",
            "cp -r --delete-during --no-D --no-A --no-i-r a/ b",
            "cp -- -P b",
            "cp -rp ./22 a",
            "cp -p a 22",
            "cp -l a 22",
            "cp a -F b c",
            "cp -rF / /usr b",
            "cp -o a=b/c:d e",
        ] {
            assert_eq!(refusal(line), None, "{line}");
        }
    }

    #[test]
    fn missing_options_are_refused_with_a_hint() {
        for (line, text) in [
            ("cp --append a b", "has no --append: an interrupted"),
            ("cp --inplace a b", "has no --inplace: a file gets its name"),
            ("cp -rvC a b", "has no -C: "),
            ("cp -i key a b", "ssh -i FILE"),
            ("cp -P 2222 a b", "ssh -p PORT"),
            ("cp -rp 2222 a b", "ssh -p PORT"),
            ("cp -P8080 a b:", "ssh -p PORT"),
            ("cp -p22 a b:", "ssh -p PORT"),
            ("cp -oPort=22 a b:", "ssh -o OPTION"),
            ("cp -o Port=22 a b:", "ssh -o OPTION"),
            ("cp -l 800 a b:", "--bwlimit"),
            ("cp -F cfg a b:", "ssh -F FILE"),
            ("cp -c aes128-ctr,3des a b:", "ssh -c CIPHER"),
            ("cp -S /bin/sh a b:", "--ssh PROGRAM"),
            ("cp -J host a b:", "ssh -J HOST"),
            ("cp -X buffer=1 a b:", "scp's -X"),
            ("cp --stats 1m30s a b:", "progress is always shown"),
            ("cp --transfers 4 a b", "number of streams"),
            ("cp --transfers=4 a b", "number of streams"),
            ("cp --list-only", "longhaul ls"),
            ("cp --list-only --unknown a", "longhaul ls"),
            ("cp -e", "value is required"),
        ] {
            let answer = refusal(line).unwrap();
            assert!(answer.contains(text), "{line}: {answer}");
        }
    }

    #[test]
    fn the_table_contains_no_option_of_cp() {
        let shown = Arguments::shown();
        let cp = shown.find_subcommand("cp").unwrap();
        let table: BTreeSet<&str> = options::all().flat_map(|o| o.names).collect();
        let count: usize = options::all().map(|options| options.names.len()).sum();
        assert_eq!(table.len(), count);
        // clap rejects duplicate options in `debug_assert`.
        let known = cp
            .get_arguments()
            .filter(|a| table.contains(a.get_id().as_str()));
        assert_eq!(known.count(), count);
    }

    #[test]
    fn names_are_unique_and_not_commands_of_longhaul() {
        let names: std::collections::BTreeSet<&str> =
            commands::all().map(|(name, _)| name).collect();
        assert!(names.len() > 40 && names.len() == commands::all().count());
        let own = Arguments::shown();
        for name in names {
            assert!(own.find_subcommand(name).is_none(), "{name}");
        }
    }

    #[test]
    fn hidden_commands_are_not_suggested() {
        for word in ["remot", "remotes", "sweep-stop"] {
            let answer = refusal(word).unwrap();
            assert!(!answer.contains("tip"), "{answer}");
        }
    }
}
