//! Tests the tables of `docs/quantities.md`: the examples are parsed as stated, the
//! options are those of the commands, and bare numbers are refused as stated.

use clap::CommandFactory;
use longhaul_lab::scenario::{PathSettings, ScenarioError};
use longhaul_units::{BitRate, ByteCount, parse_share, parse_span};

use super::*;

const PAGE: &str = include_str!("../../../../docs/quantities.md");

/// Returns the cells of each row of a section's table, without backquotes.
fn rows(section: &str) -> Vec<Vec<String>> {
    let after = PAGE.split(&format!("## {section}\n")).nth(1).unwrap();
    let within = after.split("\n## ").next().unwrap();
    let lines = within.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        let inner = line.trim_matches('|').split('|');
        inner.map(|cell| cell.trim().replace('`', "")).collect()
    };
    lines.map(cells).collect()
}

/// Returns the parsed value of a text in the notation of the page, or the error.
fn read(quantity: &str, text: &str) -> Result<String, String> {
    match quantity {
        "time" => parse_span(text)
            .map(|span| format!("{} s", span.as_secs_f64()))
            .map_err(|error| error.to_string()),
        "size" => text
            .parse::<ByteCount>()
            .map(|bytes| format!("{} B", bytes.0))
            .map_err(|error| error.to_string()),
        "rate" => text
            .parse::<BitRate>()
            .map(|rate| format!("{} bit/s", rate.bits_per_second()))
            .map_err(|error| error.to_string()),
        "share" => parse_share(text)
            .map(|share| share.to_string())
            .map_err(|error| error.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn the_examples_of_quantities_are_parsed_as_stated() {
    let examples = rows("Examples");
    assert!(examples.len() > 20);
    for row in examples {
        let [quantity, text, expected] = &row[..] else {
            panic!("{row:?}");
        };
        match (read(quantity, text), expected.strip_prefix("refused: ")) {
            (Ok(found), None) => assert_eq!(found, *expected, "{text}"),
            (Err(error), Some(why)) => assert!(error.contains(why), "{text}: {error}"),
            (found, _) => panic!("{text}: {found:?}, not {expected}"),
        }
    }
}

/// Returns each option that takes a quantity, with its command and the name of its value.
fn options() -> Vec<(Vec<String>, String, String)> {
    fn walk(command: &clap::Command, way: &[String], all: &mut Vec<(Vec<String>, String, String)>) {
        for argument in command.get_arguments().filter(|a| a.get_long().is_some()) {
            let names = argument.get_value_names().unwrap_or_default();
            let name = names.iter().map(ToString::to_string).collect::<String>();
            let long = argument.get_long().unwrap_or_default().to_owned();
            all.push((way.to_vec(), long, name));
        }
        for below in command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
        {
            walk(below, &[way, &[below.get_name().to_owned()]].concat(), all);
        }
    }
    let mut all = Vec::new();
    walk(&Arguments::command(), &[], &mut all);
    all
}

/// Returns the quantity of a value's name in the help; `None` if it is not a quantity or
/// is a count.
fn quantity_of(value_name: &str, option: &str) -> Option<&'static str> {
    Some(match value_name {
        "TIME" => "time",
        "SIZE" | "SIZE,SIZE..." | "QUEUE" | "WINDOW" | "BYTES" => "size",
        "RATE" => "rate",
        "SHARE" | "LOSS" => "share",
        "SHARE:TIME" => "share:time",
        "ON/OFF" => "time/time",
        _ if ["timeout", "linger", "memory"].contains(&option) => panic!("{option}: {value_name}"),
        _ => return None,
    })
}

/// True if an option accepts a value. Other requirements of its command are ignored.
fn takes(way: &[String], option: &str, value: &str) -> bool {
    use clap::error::ErrorKind;
    // Settings of a lab's path are parsed later.
    match PathSettings::default().apply_one(option, value) {
        Err(ScenarioError::UnknownKey(_)) => {}
        read => return read.is_ok(),
    }
    let line = std::iter::once("longhaul".to_owned()).chain(way.iter().cloned());
    let line = line.chain([format!("--{option}={value}")]);
    let parsed = Arguments::command().try_get_matches_from(line);
    !matches!(parsed, Err(error) if error.kind() == ErrorKind::ValueValidation)
}

#[test]
fn the_page_lists_all_options_with_quantities() {
    let page = rows("Options");
    let all = options();
    for (way, option, value_name) in &all {
        let Some(quantity) = quantity_of(value_name, option) else {
            continue;
        };
        let row = page.iter().find(|row| row[0] == format!("--{option}"));
        let row = row.unwrap_or_else(|| panic!("--{option} of {way:?} is not on the page"));
        assert!(row[1].starts_with(quantity), "{row:?} is {quantity}");
        let bare = match quantity {
            // A valid size of a block or packet; the numbers of other quantities are arbitrary.
            "size" => vec!["65536"],
            "share:time" => vec!["1e-3:7", "7:7ms"],
            "time/time" => vec!["7/7", "7s/7"],
            _ => vec!["7"],
        };
        for text in bare {
            // The maximum MTU is below 64 KiB.
            let text = if option == "mtu" { "1500" } else { text };
            let taken = takes(way, option, text);
            assert_eq!(taken, row[2] != "refused", "{way:?} --{option} {text}");
        }
        let fit = match quantity {
            "size" if option == "mtu" => "1500",
            "size" => "64KiB",
            // A day at most.
            "time" if option == "modify-window" => "7h",
            "time" => "7d",
            "rate" => "8Mbit/s",
            "share" => "7%",
            "share:time" => "7%:7ms",
            _ => "7s/7s",
        };
        assert!(takes(way, option, fit), "{way:?} --{option} {fit}");
    }
    for row in &page {
        let known = |(_, option, _): &(_, String, _)| row[0] == format!("--{option}");
        assert!(all.iter().any(known), "no command has {}", row[0]);
    }
}

/// Values that are no quantity, or too great, negative or beyond the range of a float.
const HOSTILE: &[&str] = &[
    "",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "-1",
    "-5s",
    "1e308",
    "1e400",
    "1000000000000000000000000000000",
    "1000000000000000000000000000000s",
    "1e300GiB",
    "1e300Gbit/s",
    "-1Mbit/s",
    "-1B",
    "18446744073709551616",
    "0x10",
    "1_000",
    "off",
];

/// Pairs of an option and a hostile value that it takes on purpose.
const TAKEN: &[(&str, &str)] = &[("bwlimit", "off"), ("ssh-persist", "off")];

/// Each option that takes a number refuses other text. The message names the option, the cause and
/// a remedy.
#[test]
fn every_quantity_option_refuses_text_without_a_number() {
    const NUMBERS: &[&str] = &[
        "N",
        "TIME",
        "SIZE",
        "RATE",
        "SHARE",
        "LOSS",
        "QUEUE",
        "WINDOW",
        "BYTES",
        "ON/OFF",
        "SHARE:TIME",
        "FIRST-LAST",
    ];
    let all = options();
    let all = all
        .iter()
        .filter(|(_, _, name)| NUMBERS.contains(&name.as_str()));
    let (mut seen, mut faults) = (0, Vec::new());
    let shown = Arguments::shown();
    for (way, option, _) in all {
        let below =
            |command: &clap::Command, name: &String| command.find_subcommand(name).unwrap().clone();
        let command = way
            .iter()
            .fold(shown.clone(), |command, name| below(&command, name));
        for value in HOSTILE {
            seen += 1;
            let is_taken = TAKEN.contains(&(option.as_str(), value));
            // The path of a lab is read later.
            match PathSettings::default().apply_one(option, value) {
                Err(ScenarioError::UnknownKey(_)) => {}
                Ok(()) if !is_taken => {
                    faults.push(format!("{way:?} --{option} {value:?} is taken"))
                }
                _ => continue,
            }
            let line = [String::new(), format!("--{option}={value}")];
            let error = match command.clone().try_get_matches_from(line) {
                Err(error) if error.kind() == clap::error::ErrorKind::ValueValidation => {
                    other_tools::without_wrong_tips(error).to_string()
                }
                _ if is_taken => continue,
                _ => {
                    faults.push(format!("{way:?} --{option} {value:?} is taken"));
                    continue;
                }
            };
            let remedies = ["write ", "leave ", " has ", " is not in ", " are a "];
            if !error.contains(&format!("--{option}"))
                || !remedies.iter().any(|remedy| error.contains(remedy))
            {
                faults.push(format!("{way:?} --{option} {value:?}: {error}"));
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// As in rsync and rclone, or with what to write instead.
#[test]
fn values_for_no_limit_of_other_tools_are_accepted_or_explained() {
    let of = |option: &str| {
        let line = ["longhaul", "cp", option, "a", "b"];
        Arguments::read_line(line.map(Into::into).to_vec()).map_err(|error| error.to_string())
    };
    let year = Duration::from_secs(365 * 86_400);
    for option in ["--timeout=0", "--timeout=0s", "--contimeout=0"] {
        let Ok(Arguments {
            command: Command::Cp(copy),
            ..
        }) = of(option)
        else {
            panic!("{option}");
        };
        assert_eq!(copy.connection.timeout, Some(year), "{option}");
    }
    for (option, remedy) in [
        ("--modify-window=-1", "times are compared to the nanosecond"),
        ("--modify-window=2d", "write a day (24h) or less"),
        ("--max-delete=-1", "leave --max-delete out"),
        ("--max-depth=-1", "leave --max-depth out"),
        ("--max-size=off", "leave --max-size out"),
        ("--min-size=-1", "leave --min-size out"),
        ("--timeout=-1", "write --timeout 0 for no timeout"),
        ("--bwlimit=-1", "write --bwlimit none"),
        ("--retries=0", "leave --retries out for one try"),
        ("--stop-after=0", "leave --stop-after out"),
        ("--max-errors=1e3", "write a whole number"),
        ("--expire-leftovers=off", "write --expire-leftovers never"),
    ] {
        let error = of(option).err().unwrap_or_default();
        assert!(error.contains(remedy), "{option}: {error}");
    }
}

#[test]
fn options_of_rsync_accept_bare_numbers() {
    let cp = |option: &str| {
        let line = ["longhaul", "cp", option, "a", "b"];
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Cp(copy) => *copy,
            other => panic!("{other:?}"),
        }
    };
    let timeout = cp("--timeout=90").connection.timeout;
    assert_eq!(timeout, Some(Duration::from_secs(90)));
    for (text, bytes) in [
        ("1000", Some(1_024_000)),
        ("1m", Some(1 << 20)),
        ("0", None),
    ] {
        let limit = cp(&format!("--bwlimit={text}")).bwlimit.unwrap().0;
        assert_eq!(limit.map(BandwidthLimit::bytes_per_second), bytes, "{text}");
    }
    assert_eq!(cp("--block-size=65536").layers.block_size, Some(65_536));
}
