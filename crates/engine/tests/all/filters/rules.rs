//! Random rules.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use longhaul_proto::filter::{Action, Ends, Gathered};

use super::tree::{FILES, MERGED, NAMES, Tree};
use crate::support::Random;

/// A rule of the command line.
#[derive(Clone, Debug)]
pub enum Given {
    Filter(String),
    Pattern(Action, String),
    /// A file beside the tree, by its number.
    From(Action, u64),
}

type Read<'a> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>, std::io::Error>;

impl Given {
    /// Returns the argument for both programs.
    pub fn argument(&self) -> OsString {
        let text = match self {
            Given::Filter(rule) => format!("--filter={rule}"),
            Given::Pattern(Action::Include, pattern) => format!("--include={pattern}"),
            Given::Pattern(Action::Exclude, pattern) => format!("--exclude={pattern}"),
            Given::From(Action::Include, file) => format!("--include-from=merged{file}"),
            Given::From(Action::Exclude, file) => format!("--exclude-from=merged{file}"),
        };
        OsString::from_vec(text.into_bytes())
    }

    pub fn gather(&self, gathered: &mut Gathered, read: Read<'_>) -> Result<(), String> {
        let ends = Ends::Lines;
        let found = match self {
            Given::Filter(rule) => gathered.filter(rule.as_bytes(), ends, read),
            Given::Pattern(action, pattern) => {
                let added = gathered.pattern(*action, pattern.as_bytes());
                return added.map_err(|error| error.to_string());
            }
            Given::From(action, file) => {
                gathered.file(*action, format!("merged{file}").as_bytes(), ends, read)
            }
        };
        found.map_err(|error| error.to_string())
    }
}

fn one_of<'a>(chance: &mut Random, all: &[&'a str]) -> &'a str {
    all[chance.below(all.len() as u64) as usize]
}

/// Returns a pattern of valid pieces in random order.
fn pattern(chance: &mut Random) -> String {
    const PIECES: [&str; 22] = [
        "*",
        "*",
        "**",
        "?",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-c]",
        "[[:alpha:]]",
        "[]]",
        "/",
        "/",
        "/",
        "/**/",
        "***",
        "\\",
        "\\*",
        "[",
        "]",
        "-",
        ".",
        "[a/b]",
    ];
    let mut text = String::new();
    if chance.below(5) == 0 {
        text.push('/');
    }
    for _ in 0..1 + chance.below(4) {
        match chance.below(3) {
            0 => text.push_str(one_of(chance, &PIECES)),
            _ => text.push_str(one_of(chance, &NAMES)),
        }
        if chance.below(4) == 0 {
            text.push('/');
        }
    }
    match chance.below(8) {
        0 => text.push('/'),
        1 => text.push_str("/***"),
        2 => text.push_str("/**"),
        _ => (),
    }
    text
}

/// Returns a pattern that probably matches a name of the tree.
fn likely(chance: &mut Random) -> String {
    let name = one_of(chance, &NAMES);
    match chance.below(6) {
        0 => name.to_owned(),
        1 => format!("{name}/"),
        2 => format!("{name}/*"),
        3 => format!("/{name}"),
        4 => format!("*{}", one_of(chance, &[".o", "b", "a", "*"])),
        _ => format!("{name}/**"),
    }
}

fn any(chance: &mut Random) -> String {
    match chance.below(2) {
        0 => likely(chance),
        _ => pattern(chance),
    }
}

/// Returns a rule that matches paths.
fn matching(chance: &mut Random) -> String {
    let prefix = one_of(
        chance,
        &[
            "- ",
            "- ",
            "- ",
            "+ ",
            "+ ",
            "-! ",
            "+! ",
            "-_",
            "exclude ",
            "include,s_",
            "H ",
            "show ",
            "-,p ",
            "-sr ",
            "-s ",
            "+r ",
        ],
    );
    format!("{prefix}{}", any(chance))
}

/// Returns a rule that names a file, which usually exists.
fn merging(chance: &mut Random) -> String {
    let rule = one_of(chance, &[". ", ". ", ".- ", ".+ ", ".s ", ".w "]);
    let place = one_of(chance, &["./", "./", "./", "./../", ""]);
    format!("{rule}{place}{MERGED}")
}

/// Returns the text of a per-directory file, which is read as rules (0) or as patterns (1), or of a
/// file that it names (2).
pub fn random_file(number: usize, chance: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..chance.below(4) {
        let line = match (number, chance.below(12)) {
            (_, 0) => "# nothing".to_owned(),
            (0 | 2, 1) => "!".to_owned(),
            (0, 2..=3) => merging(chance),
            (2, 2) => any(chance),
            (0 | 2, _) => matching(chance),
            (_, _) => any(chance),
        };
        text.push_str(&line);
        text.push_str(one_of(chance, &["\n", "\n", "\n\n", "\r\n"]));
    }
    text.into_bytes()
}

/// Returns the rules of a command line.
pub fn random(_: &Tree, chance: &mut Random) -> Vec<Given> {
    let rule = |chance: &mut Random| match chance.below(20) {
        0 => {
            let modifiers = one_of(
                chance,
                &["", "n", "e", "ne", "p", "s", "r", "sr", "sn", "w"],
            );
            Given::Filter(format!(":{modifiers} {}", FILES[0]))
        }
        1 => {
            let modifiers = one_of(
                chance,
                &["-", "+", "n-", "+e", "C", "-w", "+w", "-s", "sC", "n-r"],
            );
            Given::Filter(format!("dir-merge,{modifiers} {}", FILES[1]))
        }
        2 => {
            let modifiers = one_of(chance, &["", "", "s", "r", "sr", "w"]);
            Given::Filter(format!(".{modifiers} merged0"))
        }
        3 => {
            let modifiers = one_of(chance, &["-", "+", "-w", "C", "+s", "-r"]);
            Given::Filter(format!("merge,{modifiers} merged1"))
        }
        4 => Given::From(Action::Exclude, 1),
        5 => Given::From(Action::Include, 1),
        6 if chance.below(3) == 0 => Given::Filter("!".to_owned()),
        6..=9 => Given::Pattern(Action::Exclude, any(chance)),
        10..=11 => Given::Pattern(Action::Include, any(chance)),
        _ => Given::Filter(matching(chance)),
    };
    (0..1 + chance.below(6)).map(|_| rule(chance)).collect()
}
