//! Checks the table of docs/coming-from.md. An option with the same meaning does the same as rsync
//! on an awkward tree. An option that is always on changes nothing. An unsupported option is
//! refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{longhaul, run};
use crate::support::tree::{paths, set_modified, sparse_file, write};
use crate::support::ways::content_of;

const TABLE: &str = include_str!("../../../../docs/coming-from.md");

/// Returns the options of the table in groups, with the second column.
fn rows() -> Vec<(Vec<String>, String)> {
    let lines = TABLE
        .lines()
        .skip_while(|line| !line.starts_with("| rsync |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    let quoted = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            (quoted(cells[1]), cells[2].trim().to_owned())
        })
        .collect()
}

fn words(option: &str) -> Vec<&str> {
    option.split(' ').collect()
}

fn source(root: &Path) {
    for (name, text) in [
        ("a.c", "source"),
        ("b.o", "source"),
        ("dir/new", "source"),
        ("dir/older", "source"),
        ("dir/newer", "source"),
        ("dir/same size", "source"),
        ("dir/same", "same"),
        ("deep/er/and/deep/er/file", "x"),
        ("closed/file", "x"),
        ("large.o", "more than four"),
    ] {
        write(&root.join(name), text.as_bytes());
    }
    for name in [&b"not \xff UTF-8"[..], b"new\nline", b" ", b"*?\"'"] {
        write(&root.join("odd").join(OsStr::from_bytes(name)), name);
    }
    symlink("dir", root.join("to a directory")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("/etc/hostname", root.join("absolute")).unwrap();
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    sparse_file(&root.join("sparse"), 1 << 20);
    fs::set_permissions(root.join("a.c"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    for path in paths(root) {
        set_modified(&root.join(path), 1_000_000, 5);
    }
}

fn there(root: &Path) {
    for (name, text, time) in [
        ("b.o", "there!", 1_000_000),
        ("dir/older", "there", 5),
        ("dir/newer", "there", 2_000_000),
        ("dir/same size", "there!", 1_000_001),
        ("dir/same", "same", 1_000_000),
        ("dir/extra", "there", 5),
        ("extra.o", "there", 5),
        ("gone/one", "there", 5),
        ("gone/two.o", "there", 5),
        ("deep/er/too much/x", "there", 5),
    ] {
        write(&root.join(name), text.as_bytes());
        let fraction = if time == 1_000_000 { 5 } else { 0 };
        set_modified(&root.join(name), time, fraction);
    }
    symlink("elsewhere", root.join("dangling")).unwrap();
    set_modified(&root.join("dangling"), 5, 0);
}

type State = BTreeMap<PathBuf, (u32, (i64, i64), Vec<u8>)>;

/// Names with their modes, times and contents. rsync gives directories their times only with
/// `-t`, which both have here.
fn state(root: &Path) -> State {
    let inner = paths(root).into_iter();
    let inner = inner.filter(|path| !path.as_os_str().is_empty());
    inner
        .map(|path| {
            let whole = root.join(&path);
            let status = whole.symlink_metadata().unwrap();
            let time = if status.is_dir() {
                // A deletion in the directory, or an excluded file, may have changed its time.
                (0, 0)
            } else {
                (status.mtime(), status.mtime_nsec())
            };
            (path, (status.mode(), time, content_of(&whole)))
        })
        .collect()
}

struct Places {
    place: tempfile::TempDir,
    number: usize,
}

impl Places {
    fn new() -> Places {
        let place = tempfile::tempdir().unwrap();
        Places { place, number: 0 }
    }

    /// The source, each time anew: some options remove it.
    fn from(&self) -> OsString {
        let from = self.place.path().join("from");
        if from.exists() {
            self.open();
            fs::remove_dir_all(&from).unwrap();
        }
        source(&from);
        from.join("").into()
    }

    /// Makes closed directories removable, which only root could remove otherwise.
    fn open(&self) {
        for path in paths(self.place.path()) {
            if path.ends_with("closed") {
                let closed = self.place.path().join(path);
                let _ = fs::set_permissions(closed, fs::Permissions::from_mode(0o755));
            }
        }
    }

    fn fresh(&mut self) -> PathBuf {
        self.number += 1;
        let to = self.place.path().join(self.number.to_string());
        there(&to);
        to
    }

    fn rsync(&mut self, options: &[&str]) -> State {
        let to = self.fresh();
        let mut command = Command::new("rsync");
        command.arg("-rlpt").args(options).arg(self.from()).arg(&to);
        assert!(command.status().unwrap().success(), "{options:?}");
        state(&to)
    }

    fn longhaul(&mut self, options: &[&str]) -> State {
        let to = self.fresh();
        let mut command = longhaul();
        command.args(["cp", "-r"]).args(options);
        run(command.arg(self.from()).arg(&to)).expect(0);
        state(&to)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.open();
    }
}

#[test]
fn each_row_of_the_rsync_table_is_true() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return longhaul_testing::skip("there is no rsync: install the package rsync");
    }
    let mut places = Places::new();
    let plain = places.longhaul(&[]);
    assert_eq!(plain, places.rsync(&[]));
    let mut counted = 0;
    for (options, meaning) in rows() {
        for option in &options {
            let given = words(option);
            match meaning.as_str() {
                "same" => {
                    assert_eq!(places.longhaul(&given), places.rsync(&given), "{option}");
                }
                "always" => assert_eq!(places.longhaul(&given), plain, "{option}"),
                "no" => {
                    let to = places.fresh();
                    let before = state(&to);
                    let mut command = longhaul();
                    command.args(["cp", "-r"]).args(&given);
                    let refused = run(command.arg(places.from()).arg(&to)).expect(1);
                    let name = given[0].split('=').next().unwrap();
                    refused.says(&[&format!("longhaul has no {name}: ")]);
                    assert_eq!(state(&to), before, "{option}");
                }
                own if own.starts_with('`') => {
                    let own = own.trim_matches('`').to_owned();
                    let own = places.longhaul(&words(&own));
                    assert_eq!(places.longhaul(&given), own, "{option}");
                    assert_eq!(own, plain, "{option}");
                }
                _ => continue,
            }
            counted += 1;
        }
    }
    assert!(counted > 35, "{counted}");
}

#[test]
fn commands_of_other_tools_are_answered_and_every_tip_works() {
    for (line, texts, not) in [
        (
            &["sync", "a", "b"][..],
            &["longhaul cp -r --delete"][..],
            "tip",
        ),
        (&["check", "a", "b"], &["longhaul verify"], "tip"),
        (&["-avz", "a", "b"], &["longhaul cp -avz"], "tip"),
        (
            &["cp", "--checksum-choice=md5", "a", "b"],
            &["--checksum-choice"],
            "checkpoint",
        ),
        (&["cp", "-Y", "a", "b"], &["-Y"], "as a value"),
        (
            &["cp", "--exlude=x", "a", "b"],
            &["--exclude"],
            "as a value",
        ),
        (&["cp", "-P", "2222", "a", "h:"], &["ssh -p PORT"], "tip"),
    ] {
        let answer = run(longhaul().args(line)).expect(1).says(texts);
        assert!(!answer.errors.contains(not), "{}", answer.errors);
    }
}

/// Each name in the first column of `rsync --help`, and whether it takes a value.
fn options_of_rsync() -> Vec<(String, bool)> {
    let help = Command::new("rsync").arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help
        .lines()
        .skip_while(|line| !line.starts_with("--verbose"));
    let columns = options.filter(|line| line.starts_with('-'));
    let columns = columns.map(|line| line.split("  ").next().unwrap_or(line));
    let columns = columns.map(|column| column.replace(" (*)", ""));
    columns
        .flat_map(|column| {
            let takes = column.contains('=');
            let names = column.split(", ").map(str::to_owned).collect::<Vec<_>>();
            let names = names
                .into_iter()
                .map(move |name| (name.split('=').next().unwrap_or_default().to_owned(), takes));
            names.collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_option_of_rsync_is_accepted_or_refused_with_a_hint() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return longhaul_testing::skip("there is no rsync: install the package rsync");
    }
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("a/f"), b"x");
    let mut options = options_of_rsync();
    assert!(options.len() > 150, "{options:?}");
    for (name, takes) in options.clone() {
        let is_letter = name.len() == 2 && !takes;
        if is_letter || matches!(name.as_str(), "--help" | "--version" | "--no-OPTION") {
            continue;
        }
        options.push((name.replacen("--", "--no-", 1), false));
    }
    // Options that `man rsync` gives another name.
    let others = ["--cc", "--zc", "--zl", "--zt"].map(|name| (name.to_owned(), true));
    let mut unanswered = Vec::new();
    let letters = "vcarpbudlLkKHEAXogDtUNOJSWxzCmyhi8n";
    let negated = letters
        .chars()
        .map(|letter| (format!("--no-{letter}"), false));
    for (name, takes) in options.into_iter().chain(others).chain(negated) {
        if name == "--no-OPTION" || name.starts_with("--no-no-") {
            continue;
        }
        let mut command = longhaul();
        command.current_dir(place.path()).args(["cp", "-n", &name]);
        if takes {
            command.arg("7");
        }
        let output = command.args(["a", "b"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A negation that rsync does not have is no option of rsync.
        let is_negation = name.starts_with("--no-");
        let known = !is_negation || negations_of_rsync(&name);
        if known && said.contains("unexpected argument") {
            unanswered.push(name);
        }
    }
    assert!(unanswered.is_empty(), "{unanswered:?}");
}

/// True if rsync has this negated option.
fn negations_of_rsync(name: &str) -> bool {
    let output = Command::new("rsync").args([name, "--version"]).output();
    output.unwrap().status.success()
}

#[test]
fn values_that_look_like_options_protect_as_written() {
    for form in [
        &["--filter", "- scratch/"][..],
        &["--filter=- scratch/"],
        &["-f", "- scratch/"],
        &["-f- scratch/"],
        &["--exclude", "scratch/"],
    ] {
        let place = tempfile::tempdir().unwrap();
        write(&place.path().join("s/f"), b"x");
        write(&place.path().join("d/scratch/x"), b"precious");
        let mut command = longhaul();
        command.current_dir(place.path());
        let line = [&["cp", "-r", "--delete"], form, &["s/", "d"]].concat();
        run(command.args(line)).expect(0);
        assert!(place.path().join("d/scratch/x").exists(), "{form:?}");
        let mut command = longhaul();
        command.current_dir(place.path());
        run(command.args([&["verify"], form, &["s/", "d"]].concat())).expect(0);
    }
}

#[test]
fn the_long_form_of_the_archive_options_equals_the_short_one() {
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("s/f"), b"x");
    fs::set_permissions(place.path().join("s"), fs::Permissions::from_mode(0o700)).unwrap();
    for options in ["-a", "-rlptgoD", "-rltgoDp"] {
        let mut command = longhaul();
        command.current_dir(place.path());
        run(command.args(["cp", options, "s/", options.trim_start_matches('-')])).expect(0);
        let made = place.path().join(options.trim_start_matches('-'));
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
    }
}
