//! Tests that every option with a value accepts any value, including values that look like options
//! or like letters of options. The options are taken from clap's definition of each command.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::builder::OsStringValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::Arguments;

/// Values that look like options or contain letters that are options.
const VALUES: &[&[u8]] = &[
    b"-s",
    b"-e",
    b"-Pz",
    b"-avz",
    b"-h",
    b"--delete",
    b"--rsh=x",
    b"--help",
    b"--",
    b"-",
    b"- *.s",
    b"- scratch/",
    b"P S W s y h e z",
    b"-\xff",
];

/// Commands with the words that lead to them. Every value is accepted unchanged.
type Commands = Vec<(Vec<String>, Command)>;

fn commands() -> Commands {
    fn walk(command: &Command, way: &[String], all: &mut Commands) {
        all.push((way.to_vec(), command.clone()));
        for below in command.get_subcommands() {
            let way = [way, &[below.get_name().to_owned()]].concat();
            walk(below, &way, all);
        }
    }
    let mut all = Vec::new();
    walk(&Arguments::shown(), &["longhaul".to_owned()], &mut all);
    all
}

fn takes_value(argument: &Arg) -> bool {
    let takes = argument.get_action().takes_values() && !argument.is_positional();
    takes
        && argument
            .get_num_args()
            .is_none_or(|range| range == 1.into())
}

/// Returns the command with lenient parsing: missing required arguments are ignored.
fn lenient(command: &Command) -> Command {
    let any = |argument: Arg| {
        if takes_value(&argument) {
            argument.value_parser(OsStringValueParser::new())
        } else {
            argument
        }
    };
    let command = command.clone().no_binary_name(true).ignore_errors(true);
    command.mut_args(any)
}

fn read(lenient: &mut Command, words: &[OsString]) -> ArgMatches {
    lenient.try_get_matches_from_mut(words).unwrap()
}

/// Returns the arguments given on a line, with their values.
fn given(command: &Command, matches: &ArgMatches) -> Vec<(String, Vec<OsString>)> {
    let ids = command.get_arguments().map(|argument| argument.get_id());
    let ids = ids.filter(|id| {
        let source = matches.try_contains_id(id.as_str()).is_ok();
        source && matches.value_source(id.as_str()) == Some(ValueSource::CommandLine)
    });
    ids.map(|id| {
        let values = matches.get_raw(id.as_str()).into_iter().flatten();
        (id.to_string(), values.map(OsString::from).collect())
    })
    .collect()
}

/// Returns all ways to write an option with a value.
fn forms(argument: &Arg, value: &[u8]) -> Vec<Vec<OsString>> {
    let word = |parts: &[&[u8]]| OsString::from_vec(parts.concat());
    let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
    let longs = longs
        .into_iter()
        .chain(argument.get_all_aliases().unwrap_or_default());
    let mut forms = Vec::new();
    for long in longs {
        forms.push(vec![word(&[b"--", long.as_bytes(), b"=", value])]);
        forms.push(vec![word(&[b"--", long.as_bytes()]), word(&[value])]);
    }
    let shorts = argument.get_short().into_iter();
    for short in shorts.chain(argument.get_all_short_aliases().unwrap_or_default()) {
        let short = short.to_string();
        forms.push(vec![word(&[b"-", short.as_bytes(), value])]);
        forms.push(vec![word(&[b"-", short.as_bytes()]), word(&[value])]);
    }
    forms
}

#[test]
fn every_option_with_a_value_takes_any_value() {
    let mut counted = 0;
    for (way, command) in commands() {
        let mut reader = lenient(&command);
        for argument in command
            .get_arguments()
            .filter(|argument| takes_value(argument))
        {
            // Options of other commands are tried with fewer values, because there are many.
            let few = !["cp", "verify"].contains(&command.get_name());
            for value in &VALUES[..if few { 4 } else { VALUES.len() }] {
                for form in forms(argument, value) {
                    let id = argument.get_id().to_string();
                    let expected = vec![(id, vec![OsString::from_vec(value.to_vec())])];
                    let found = given(&command, &read(&mut reader, &form));
                    assert_eq!(found, expected, "{way:?} {form:?}");
                    counted += 1;
                }
            }
        }
    }
    assert!(counted > 2000, "{counted}");
}

#[test]
fn a_shared_option_is_parsed_equally_by_all_commands() {
    let all = commands();
    let of = |name: &str| {
        let way = ["longhaul".to_owned(), name.to_owned()];
        &all.iter().find(|(found, _)| *found == way).unwrap().1
    };
    let (cp, verify) = (of("cp"), of("verify"));
    let mut readers = [lenient(verify), lenient(cp)];
    let mut shared = 0;
    for argument in verify
        .get_arguments()
        .filter(|argument| takes_value(argument))
    {
        let long = argument.get_long().unwrap();
        let same = |other: &&Arg| other.get_long() == Some(long);
        let Some(other) = cp.get_arguments().find(same) else {
            panic!("cp has no --{long}");
        };
        for value in VALUES {
            assert_eq!(forms(argument, value), forms(other, value), "--{long}");
            for form in forms(argument, value) {
                let one = given(verify, &read(&mut readers[0], &form));
                let two = given(cp, &read(&mut readers[1], &form));
                assert_eq!(one, two, "{form:?}");
            }
        }
        shared += 1;
    }
    assert!(shared > 20, "{shared}");
}

#[test]
fn values_reach_the_command_unchanged() {
    let line = [
        "longhaul",
        "cp",
        "-r",
        "--filter",
        "- scratch/",
        "--suffix",
        "-s",
        "a",
        "b",
    ];
    let read = Arguments::read_line(line.iter().map(OsString::from).collect()).unwrap();
    let super::Command::Cp(copy) = read.command else {
        panic!("{read:?}");
    };
    assert_eq!(copy.filters.options.filter, ["- scratch/"]);
    assert_eq!(copy.deletion.suffix.unwrap().as_bytes(), b"-s");
    assert_eq!(copy.paths, ["a", "b"]);
}
