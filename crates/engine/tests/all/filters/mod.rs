//! Compares filters with rsync's: random rules and trees must give the same selection.
//!
//! `LONGHAUL_FILTERS` is the number of lists of rules; `LONGHAUL_SEED` is the seed of the first
//! one. A failure prints its seed.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod copied;
mod rules;
mod tree;

use std::collections::BTreeSet;
use std::process::Command;

use longhaul_proto::filter::{Action, Filter, Gathered, InForce, Rules, merged_path};
use longhaul_proto::manifest::TreePath;

use crate::support::{Random, times};
use rules::Given;
use tree::Tree;

/// Number of lists of rules for one tree.
const LISTS_OF_A_TREE: u64 = 10;

/// One of this many lists is also tested by a copy.
const COPIED: u64 = 10;

/// Returns the paths that rsync would copy; directories end with a slash.
fn by_rsync(tree: &Tree, given: &[Given], contents: bool) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut command = Command::new("rsync");
    command.args(["-r", "--dry-run", "--out-format=%n"]);
    command.args(given.iter().map(Given::argument));
    let slash = if contents { "/" } else { "" };
    command.arg(format!("{}{slash}", tree.root().display()));
    command.arg(tree.beside("nowhere/"));
    command.current_dir(tree.beside("."));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty() && *line != b"./")
            .filter(|line| !line.starts_with(b"created directory"))
            .map(<[u8]>::to_vec)
            .collect())
    } else {
        Err(said)
    }
}

/// Returns the paths that longhaul's rules select.
fn by_rules(tree: &Tree, given: &[Given], contents: bool) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut gathered = Gathered::default();
    for given in given {
        let mut read = |name: &[u8]| std::fs::read(tree.beside(std::str::from_utf8(name).unwrap()));
        given.gather(&mut gathered, &mut read)?;
    }
    let rules = Rules::parse(&gathered.rules()).map_err(|error| error.to_string())?;
    let mut selected = BTreeSet::new();
    let top: &[u8] = if contents { b"" } else { b"t" };
    let force = InForce::default();
    if !contents {
        if force.decide(&rules, top, true) == Some(Action::Exclude) {
            return Ok(selected);
        }
        selected.insert(b"t/".to_vec());
    }
    select((tree, &rules), (&force, top, b""), &mut selected)?;
    Ok(selected)
}

fn select(
    (tree, rules): (&Tree, &Rules),
    (above, path, inner): (&InForce, &[u8], &[u8]),
    selected: &mut BTreeSet<Vec<u8>>,
) -> Result<(), String> {
    // The tree's name, if the copy includes it.
    let top = path.strip_suffix(inner).unwrap_or(path);
    let top = top.strip_suffix(b"/").unwrap_or(top);
    let mut read = |name: &[u8]| {
        let path = merged_path(TreePath::new(path).ok().as_ref(), name);
        let path = path.ok_or("it leads out")?;
        let within = path.as_bytes().strip_prefix(top).ok_or("it is beside")?;
        let within = match (top, within) {
            (b"", within) => within,
            (_, within) => within.strip_prefix(b"/").ok_or("it is beside")?,
        };
        tree.text(b"", within).ok_or("it is missing")
    };
    let files = rules.per_directory().iter();
    let files = files.map(|file| {
        let text = tree.text(inner, &file.name)?;
        Some(Gathered::per_directory(file, text, &mut read))
    });
    let files: Result<Vec<_>, _> = files.map(Option::transpose).collect();
    let files = files.map_err(|error| error.to_string())?;
    let force = above
        .enter(rules, path, &files)
        .map_err(|error| error.to_string())?;
    for (name, is_directory) in tree.children(inner) {
        let path = tree::joined(path, &name);
        let verdict = force.decide(rules, &path, is_directory);
        if verdict == Some(Action::Exclude) {
            continue;
        }
        if is_directory {
            selected.insert([&path[..], b"/"].concat());
            let inner = tree::joined(inner, &name);
            select((tree, rules), (&force, &path, &inner), selected)?;
        } else {
            selected.insert(path);
        }
    }
    Ok(())
}

/// Returns the paths of a copy of the tree, by the walk itself.
fn by_copy(tree: &Tree, given: &[Given], contents: bool) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut gathered = Gathered::default();
    for given in given {
        let mut read = |name: &[u8]| std::fs::read(tree.beside(std::str::from_utf8(name).unwrap()));
        given.gather(&mut gathered, &mut read)?;
    }
    let rules = gathered.rules().into_iter().map(Into::into).collect();
    let selection = Filter {
        rules,
        ..Filter::default()
    };
    selection.parse().map_err(|error| error.to_string())?;
    let copied = copied::copy(&tree.root(), &selection, contents);
    if copied.failed.is_empty() {
        Ok(copied.names)
    } else {
        // rsync refuses the same rules.
        Err(format!("{:?}", copied.failed))
    }
}

fn shown(paths: &BTreeSet<Vec<u8>>) -> Vec<String> {
    let paths = paths.iter();
    paths.map(|path| path.escape_ascii().to_string()).collect()
}

// Promise 63.
#[test]
fn random_rules_select_the_same_files_as_rsync() {
    if Command::new("rsync").arg("--version").output().is_err() {
        longhaul_testing::skip("there is no rsync: install the package rsync");
        return;
    }
    let first = times("LONGHAUL_SEED", 0);
    let lists = times("LONGHAUL_FILTERS", 300);
    let (mut left_out, mut tree) = (0, None);
    for seed in first..first + lists {
        if tree.is_none() || seed % LISTS_OF_A_TREE == 0 {
            tree = Some(Tree::new(&mut Random::new(seed - seed % LISTS_OF_A_TREE)));
        }
        let tree = tree.as_ref().unwrap();
        let mut chance = Random::new(seed.wrapping_mul(0x0051_7cc1_b727_220a) + 1);
        let given = rules::random(tree, &mut chance);
        let contents = chance.below(2) == 0;
        let here = by_rules(tree, &given, contents);
        let there = by_rsync(tree, &given, contents);
        let told = || {
            format!(
                "LONGHAUL_SEED={seed} (contents: {contents})\nrules {given:#?}\ntree {}",
                tree.shown()
            )
        };
        match (here, there) {
            (Ok(here), Ok(there)) => {
                assert_eq!(shown(&here), shown(&there), "{}", told());
                if seed % COPIED == 0 {
                    let copied = by_copy(tree, &given, contents).unwrap();
                    assert_eq!(shown(&copied), shown(&there), "{}", told());
                }
                left_out += usize::from(here.len() < tree.count());
            }
            (Err(_), Err(_)) => (),
            (here, there) => panic!("here {here:?}\nthere {there:?}\n{}", told()),
        }
    }
    println!("{lists} lists of rules from seed {first}: {left_out} left something out");
    // Most lists must have an effect.
    assert!(lists < 100 || left_out * 3 > lists as usize);
}
