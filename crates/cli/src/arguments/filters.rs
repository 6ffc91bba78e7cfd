//! What of its sources `cp` copies: filters in the order in which they stand on the command line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{ArgAction, ArgMatches, Args, FromArgMatches};
use longhaul_proto::filter::{Action, Ends, Gathered, MAXIMUM_FILE_BYTES};
use longhaul_transfer::point_in_time::PointInTime;
use longhaul_units::ByteCount;

/// Most bytes of a list of files: its names are kept in memory.
const MAXIMUM_LIST_BYTES: usize = 64 << 20;

/// The options.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterOptions {
    /// Leave out what matches, as rsync does: *.o, /build, cache/, a/**/b. The first rule that
    /// matches a path decides; docs/filters.md has all of it.
    #[arg(long, value_name = "PATTERN", help_heading = HEADING, allow_hyphen_values = true)]
    pub exclude: Vec<OsString>,
    /// Copy what matches, whatever later rules say.
    #[arg(long, value_name = "PATTERN", help_heading = HEADING, allow_hyphen_values = true)]
    pub include: Vec<OsString>,
    /// Leave out what the patterns in a file match, one on each line; - is standard input.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub exclude_from: Vec<OsString>,
    /// Copy what the patterns in a file match.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub include_from: Vec<OsString>,
    /// A rule as in rsync: "- PATTERN", "+ PATTERN", ". FILE", ": NAME" (a file in each
    /// directory), "!".
    #[arg(short, long, value_name = "RULE", help_heading = HEADING, allow_hyphen_values = true)]
    pub filter: Vec<OsString>,
    /// Read rules from .rsync-filter in each directory; twice: do not copy those files.
    #[arg(short = 'F', action = ArgAction::Count, help_heading = HEADING)]
    pub rsync_filter: u8,
    /// Leave out what .gitignore says in each directory, as git does.
    #[arg(long, help_heading = HEADING)]
    pub gitignore: bool,
    /// Copy only what a file lists, by paths beneath the one source; - is standard input.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub files_from: Option<OsString>,
    /// Names and rules in files end with a NUL.
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
    /// Go no deeper below a source: 1 is what is directly in it.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_depth: Option<u32>,
    /// Do not enter other file systems; their mount points are made empty.
    #[arg(short = 'x', long, help_heading = HEADING)]
    pub one_file_system: bool,
}

const HEADING: &str = "What is copied";

fn parse_size(text: &str) -> Result<ByteCount, String> {
    ByteCount::parse_or_bytes(text).map_err(|error| error.to_string())
}

/// The options, and the order of those where it matters.
#[derive(Clone, Debug, Default)]
pub struct FilterArguments {
    /// As they were given.
    pub options: FilterOptions,
    given: Vec<Given>,
}

/// A rule of the command line.
#[derive(Clone, Debug)]
enum Given {
    Rule(Vec<u8>),
    Pattern(Action, Vec<u8>),
    From(Action, Vec<u8>),
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

/// The rules, as they stand on the command line.
fn in_order(options: &FilterOptions, matches: &ArgMatches) -> Vec<Given> {
    let mut all: Vec<(usize, Given)> = Vec::new();
    let mut add = |id: &str, values: &[OsString], of: fn(Vec<u8>) -> Given| {
        let places = matches.indices_of(id).into_iter().flatten();
        let values = values.iter().map(|value| of(value.as_bytes().to_vec()));
        all.extend(places.zip(values));
    };
    add("filter", &options.filter, Given::Rule);
    let exclude = |pattern| Given::Pattern(Action::Exclude, pattern);
    let include = |pattern| Given::Pattern(Action::Include, pattern);
    add("exclude", &options.exclude, exclude);
    add("include", &options.include, include);
    let exclude_from = |file| Given::From(Action::Exclude, file);
    let include_from = |file| Given::From(Action::Include, file);
    add("exclude_from", &options.exclude_from, exclude_from);
    add("include_from", &options.include_from, include_from);
    let flag = |id: &str, rule: &str| {
        let place = matches.index_of(id).unwrap_or(usize::MAX);
        (place, Given::Rule(rule.as_bytes().to_vec()))
    };
    match options.rsync_filter {
        0 => (),
        1 => all.push(flag("rsync_filter", ": .rsync-filter")),
        _ => all.push(flag("rsync_filter", ":e .rsync-filter")),
    }
    if options.gitignore {
        all.push(flag("gitignore", ":g .gitignore"));
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, given)| given).collect()
}

impl FilterArguments {
    fn ends(&self) -> Ends {
        match self.options.from0 {
            true => Ends::Zeros,
            false => Ends::Lines,
        }
    }

    /// The rules, with those of the files that they name.
    ///
    /// # Errors
    ///
    /// The first that is none, or a file that cannot be read, in words.
    pub fn rules(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut gathered = Gathered::default();
        let mut read = |name: &[u8]| read_bounded(name, MAXIMUM_FILE_BYTES);
        for given in &self.given {
            match given {
                Given::Rule(rule) => gathered
                    .filter(rule, self.ends(), &mut read)
                    .map_err(|error| error.to_string())?,
                Given::Pattern(action, pattern) => gathered
                    .pattern(*action, pattern)
                    .map_err(|error| error.to_string())?,
                Given::From(action, file) => gathered
                    .file(*action, file, self.ends(), &mut read)
                    .map_err(|error| error.to_string())?,
            }
        }
        Ok(gathered.rules())
    }

    /// The paths of `--files-from`, beneath the source; `None` if all is meant.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, in words.
    pub fn files(&self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let Some(file) = &self.options.files_from else {
            return Ok(None);
        };
        let text = read_bounded(file.as_bytes(), MAXIMUM_LIST_BYTES)
            .map_err(|error| format!("cannot read the list {}: {error}", file.display()))?;
        let ends = self.ends();
        let ends_line = |byte: &u8| match ends {
            Ends::Zeros => *byte == 0,
            Ends::Lines => matches!(byte, b'\n' | b'\r'),
        };
        let mut files = Vec::new();
        for line in text.split(ends_line) {
            let is_comment = ends == Ends::Lines && matches!(line, [b'#' | b';', ..]);
            if line.is_empty() || is_comment {
                continue;
            }
            match beneath(line) {
                path if path.is_empty() => return Ok(None),
                path => files.push(path),
            }
        }
        Ok(Some(files))
    }
}

/// A path as rsync reads one of a list: beneath the source, without empty names and dots.
fn beneath(line: &[u8]) -> Vec<u8> {
    let names = line.split(|byte| *byte == b'/');
    let names = names.filter(|name| !matches!(name, [] | [b'.']));
    names.collect::<Vec<_>>().join(&b'/')
}

/// A file, or standard input for `-`.
fn read_bounded(name: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = most as u64 + 1;
    match name {
        b"-" => io::stdin().lock().take(limit).read_to_end(&mut text)?,
        name => {
            let file = File::open(Path::new(OsStr::from_bytes(name)))?;
            file.take(limit).read_to_end(&mut text)?
        }
    };
    match text.len() > most {
        true => Err(io::Error::other(format!(
            "it has more than {} KiB: split it",
            most >> 10
        ))),
        false => Ok(text),
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
        assert_eq!(twice, [b":e .rsync-filter"]);
    }

    #[test]
    fn lists_are_read_as_rsync_reads_them() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list");
        let list = format!("--files-from={}", file.display());
        std::fs::write(&file, "# c\n/a//b/\n\n./c\r\n").unwrap();
        let files = parsed(&[&list]).files().unwrap().unwrap();
        assert_eq!(files, [&b"a/b"[..], b"c"]);
        std::fs::write(&file, "#a\nb\0c\0").unwrap();
        let files = parsed(&["-0", &list]).files().unwrap().unwrap();
        assert_eq!(files, [&b"#a\nb"[..], b"c"]);
        std::fs::write(&file, "a\n.\n").unwrap();
        assert_eq!(parsed(&[&list]).files().unwrap(), None);
        let error = parsed(&["--files-from=/nonexistent"]).files().unwrap_err();
        assert!(error.starts_with("cannot read the list"), "{error}");
    }
}
