//! Arguments of `cp` that select files. Rules keep their order on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use longhaul_proto::filter::{Action, Ends};
use longhaul_transfer::filter_rules::{self, StatedRule};
use longhaul_transfer::point_in_time::PointInTime;
use longhaul_units::ByteCount;

/// Arguments that select files.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterOptions {
    /// Exclude paths that match a pattern, as in rsync: *.o, /build, cache/, a/**/b. The
    /// first rule that matches a path decides; docs/filters.md describes all rules.
    #[arg(long, value_name = "PATTERN", help_heading = HEADING, allow_hyphen_values = true)]
    pub exclude: Vec<OsString>,
    /// Include paths that match a pattern, before any later rule.
    #[arg(long, value_name = "PATTERN", help_heading = HEADING, allow_hyphen_values = true)]
    pub include: Vec<OsString>,
    /// Exclude the patterns in a file, one per line; - is standard input.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub exclude_from: Vec<OsString>,
    /// Include the patterns in a file, one per line; - is standard input.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub include_from: Vec<OsString>,
    /// A rule as in rsync: "- PATTERN", "+ PATTERN", ". FILE", ": NAME" (a file in each
    /// directory), or "!".
    #[arg(short, long, value_name = "RULE", help_heading = HEADING, allow_hyphen_values = true)]
    pub filter: Vec<OsString>,
    /// Read rules from .rsync-filter in each directory. If given twice, do not copy those files.
    #[arg(short = 'F', action = ArgAction::Append, num_args = 0, default_missing_value = "true", help_heading = HEADING)]
    pub rsync_filter: Vec<bool>,
    /// Exclude files by .gitignore in each directory, as git does.
    #[arg(long, help_heading = HEADING)]
    pub gitignore: bool,
    /// Copy only the paths listed in a file, relative to the single source; - is standard
    /// input. Contents of listed directories are copied only with -r, even with -a.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub files_from: Option<OsString>,
    /// Names and rules in files end with NUL instead of a newline.
    #[arg(short = '0', long, help_heading = HEADING)]
    pub from0: bool,
    /// Copy only files of at least this size.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = HEADING)]
    pub min_size: Option<ByteCount>,
    /// Copy only files of at most this size.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = HEADING)]
    pub max_size: Option<ByteCount>,
    /// Copy only files modified after this: an age (12h, 7d) or a date in UTC (2026-01-31).
    #[arg(long, value_name = "WHEN", help_heading = HEADING)]
    pub newer_than: Option<PointInTime>,
    /// Copy only files modified before this.
    #[arg(long, value_name = "WHEN", help_heading = HEADING)]
    pub older_than: Option<PointInTime>,
    /// Maximum depth below a source; 1 means only entries directly in it.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_depth: Option<u32>,
    /// Do not enter other file systems. Their mount points are created as empty directories.
    #[arg(short = 'x', long, help_heading = HEADING)]
    pub one_file_system: bool,
}

const HEADING: &str = "Selection of files";

fn parse_size(text: &str) -> Result<ByteCount, String> {
    ByteCount::parse_or_bytes(text).map_err(|error| error.to_string())
}

/// Arguments that select files, and the order of the rules.
#[derive(Clone, Debug, Default)]
pub struct FilterArguments {
    /// The parsed options.
    pub options: FilterOptions,
    given: Vec<StatedRule>,
}

impl FromArgMatches for FilterArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilterArguments, clap::Error> {
        let options = FilterOptions::from_arg_matches(matches)?;
        let given = in_order(&options, matches);
        Ok(FilterArguments { options, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = FilterArguments::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FilterArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        FilterOptions::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        FilterOptions::augment_args_for_update(command)
    }
}

/// Returns the rules in the order of the command line.
fn in_order(options: &FilterOptions, matches: &ArgMatches) -> Vec<StatedRule> {
    let mut all: Vec<(usize, StatedRule)> = Vec::new();
    let mut add = |id: &str, values: &[OsString], of: fn(Vec<u8>) -> StatedRule| {
        let places = matches.indices_of(id).into_iter().flatten();
        let values = values.iter().map(|value| of(value.as_bytes().to_vec()));
        all.extend(places.zip(values));
    };
    add("filter", &options.filter, StatedRule::Rule);
    let exclude = |pattern| StatedRule::Pattern(Action::Exclude, pattern);
    let include = |pattern| StatedRule::Pattern(Action::Include, pattern);
    add("exclude", &options.exclude, exclude);
    add("include", &options.include, include);
    let exclude_from = |file| StatedRule::From(Action::Exclude, file);
    let include_from = |file| StatedRule::From(Action::Include, file);
    add("exclude_from", &options.exclude_from, exclude_from);
    add("include_from", &options.include_from, include_from);
    let flag = |rule: &str| StatedRule::Rule(rule.as_bytes().to_vec());
    let places = |id: &str| matches.indices_of(id).into_iter().flatten();
    // As in rsync, the second `-F` excludes the files, by a rule at its own place.
    let rules = [": .rsync-filter", "- .rsync-filter"];
    all.extend(places("rsync_filter").zip(rules.map(flag)));
    if options.gitignore {
        all.extend(
            places("gitignore")
                .take(1)
                .map(|place| (place, flag(":g .gitignore"))),
        );
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, given)| given).collect()
}

impl FilterArguments {
    fn ends(&self) -> Ends {
        if self.options.from0 {
            Ends::Zeros
        } else {
            Ends::Lines
        }
    }

    /// Returns the rules, including those in files.
    ///
    /// # Errors
    ///
    /// Returns a message about the first invalid rule or unreadable file.
    pub fn rules(&self) -> Result<Vec<Vec<u8>>, String> {
        filter_rules::gather(&self.given, self.ends())
    }

    /// Returns the lines of the file of `--files-from`; `None` without that option.
    ///
    /// # Errors
    ///
    /// Returns a message if the file cannot be read.
    pub fn files(&self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let file = self.options.files_from.as_ref();
        file.map(|file| filter_rules::listed_files(file, self.ends()))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filters: FilterArguments,
    }

    fn parsed(arguments: &[&str]) -> FilterArguments {
        let line = std::iter::once("cp").chain(arguments.iter().copied());
        Line::try_parse_from(line).unwrap().filters
    }

    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list");
        std::fs::write(&file, "x\n+ y\n").unwrap();
        let from = format!("--exclude-from={}", file.display());
        let filters = parsed(&[
            "--include",
            "a",
            "-f",
            "- b",
            &from,
            "-F",
            "--exclude=c",
            "--gitignore",
            "-f+ d",
            "--include=e",
        ]);
        let rules = filters.rules().unwrap();
        let rules: Vec<_> = rules
            .iter()
            .map(|rule| rule.escape_ascii().to_string())
            .collect();
        let expected = [
            "+ a",
            "- b",
            "- x",
            "+ y",
            ": .rsync-filter",
            "- c",
            ":g .gitignore",
            "+ d",
            "+ e",
        ];
        assert_eq!(rules, expected);
        let twice = parsed(&["-FF"]).rules().unwrap();
        assert_eq!(twice, [b": .rsync-filter", b"- .rsync-filter"]);
        let apart = parsed(&["-F", "--include=a", "-F"]).rules().unwrap();
        let expected = [": .rsync-filter", "+ a", "- .rsync-filter"].map(str::as_bytes);
        assert_eq!(apart, expected);
        let zeros = parsed(&["-0", "-F"]).rules().unwrap();
        assert_eq!(zeros, [b":0 .rsync-filter"]);
    }
}
