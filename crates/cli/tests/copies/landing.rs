//! The names under which entries arrive depend only on the command line, and a tree arrives
//! unchanged. Each command runs twice, and once more after a kill.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, Running, longhaul, run};
use crate::support::{Daemon, assert_no_leftovers, tree};
use serde_json::Value;
use tempfile::TempDir;

/// The end of the copy that is at a daemon.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Push,
    Pull,
    Local,
}

const WAYS: [Way; 3] = [Way::Push, Way::Pull, Way::Local];

/// `source` and `destination` directories, and a daemon for one of them.
struct Stage {
    directory: TempDir,
    way: Way,
    daemon: Option<Daemon>,
}

impl Stage {
    fn new(way: Way) -> Stage {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("source")).unwrap();
        fs::create_dir(directory.path().join("destination")).unwrap();
        let daemon = match way {
            Way::Push => Some(Daemon::start(&directory.path().join("destination"))),
            Way::Pull => Some(Daemon::start(&directory.path().join("source"))),
            Way::Local => None,
        };
        Stage {
            directory,
            way,
            daemon,
        }
    }

    fn source(&self, path: &str) -> PathBuf {
        self.directory.path().join("source").join(path)
    }

    fn destination(&self, path: &str) -> PathBuf {
        self.directory.path().join("destination").join(path)
    }

    /// `longhaul cp -r SOURCES DESTINATION`, each beneath its directory, at
    /// the daemon or local and relative.
    fn command(&self, sources: &[&str], destination: &str) -> Command {
        let mut command = self.plain_command(sources, destination);
        command.arg("-r");
        command
    }

    /// Returns the command of [`Stage::command`] without `-r`.
    fn plain_command(&self, sources: &[&str], destination: &str) -> Command {
        let mut command = match &self.daemon {
            Some(daemon) => daemon.command("cp"),
            None => {
                let mut command = longhaul();
                command.arg("cp");
                command
            }
        };
        command.current_dir(self.directory.path());
        let at = |way: Way, here: &str, path: &str| -> OsString {
            match &self.daemon {
                Some(daemon) if self.way == way => daemon.url(path),
                _ if path.is_empty() => here.into(),
                _ => format!("{here}/{path}").into(),
            }
        };
        for source in sources {
            command.arg(at(Way::Pull, "source", source));
        }
        command.arg(at(Way::Push, "destination", destination));
        command
    }

    /// Runs the command twice, and checks that the second run changes nothing.
    #[track_caller]
    fn copies_twice(&self, sources: &[&str], destination: &str) {
        self.copies_twice_with(sources, destination, 0);
    }

    /// Does the same as [`Stage::copies_twice`] for a command with this exit code.
    #[track_caller]
    fn copies_twice_with(&self, sources: &[&str], destination: &str, code: i32) {
        let mut command = self.command(sources, destination);
        command.arg("--json");
        run(&mut command).expect(code);
        let before = tree::paths(&self.destination(""));
        let again = run(&mut command).expect(code);
        assert_eq!(before, tree::paths(&self.destination("")), "{:?}", self.way);
        let summary = again.summary();
        assert_eq!(summary["entries"], summary_directories(&again), "{summary}");
        assert_eq!(summary["bytes"], 0);
        assert_no_leftovers(self.directory.path());
    }
}

/// Returns the number of directories that were made. No other entry is changed by the second run.
fn summary_directories(finished: &Finished) -> Value {
    let events = finished.events();
    let committed = events
        .iter()
        .filter(|event| event["event"] == "committed" && event["file"] == false);
    committed.count().into()
}

fn each_way(test: impl Fn(&Stage)) {
    for way in WAYS {
        println!("{way:?}");
        test(&Stage::new(way));
    }
}

#[track_caller]
fn assert_lands(source: PathBuf, landed: PathBuf) {
    let difference = tree::difference(&source, &landed);
    assert_eq!(difference, None, "{}", landed.display());
}

fn small_tree(root: &Path) {
    tree::write(&root.join("a"), b"a");
    tree::write(&root.join("sub/b"), b"bb");
    fs::create_dir(root.join("void")).unwrap();
    tree::set_times(root);
}

// Promise 2.
#[test]
fn a_directory_arrives_in_the_destination_under_its_name() {
    each_way(|stage| {
        small_tree(&stage.source("data"));
        // The result is the same for a missing and an existing destination, with and without a
        // slash.
        for destination in ["new", "new/er/est", "slash/", ""] {
            stage.copies_twice(&["data"], destination);
            let landed = stage.destination(destination).join("data");
            tree::assert_same(&stage.source("data"), &landed);
        }
    });
}

// Promise 2.
#[test]
fn a_slash_means_the_contents_of_the_directory() {
    each_way(|stage| {
        small_tree(&stage.source("data"));
        for (source, destination) in [("data/", "new"), ("data/.", "deep/er"), ("data//", "s/")] {
            stage.copies_twice(&[source], destination);
            let landed = stage.destination(destination);
            for path in ["a", "sub", "sub/b", "void"] {
                assert_lands(stage.source("data").join(path), landed.join(path));
            }
            assert_eq!(tree::paths(&landed).len(), 5);
        }
    });
}

// Promise 3.
#[test]
fn a_file_gets_a_new_name_or_goes_into_a_directory() {
    each_way(|stage| {
        tree::write(&stage.source("one"), b"one");
        tree::set_modified(&stage.source("one"), 1_500_000_000, 123_456_789);
        fs::create_dir(stage.destination("there")).unwrap();
        let long = "n".repeat(255);
        for (destination, lands) in [
            ("name", "name"),
            (&long, &long),
            ("there", "there/one"),
            ("there/", "there/one"),
            ("there/other", "there/other"),
            ("made/", "made/one"),
            ("", "one"),
        ] {
            stage.copies_twice(&["one"], destination);
            assert_lands(stage.source("one"), stage.destination(lands));
        }
    });
}

// Promise 4.
#[test]
fn several_sources_go_into_the_destination() {
    each_way(|stage| {
        small_tree(&stage.source("data"));
        tree::write(&stage.source("one"), b"one");
        tree::write(&stage.source("two"), b"two");
        for destination in ["new", ""] {
            stage.copies_twice(&["one", "data", "two"], destination);
            let landed = stage.destination(destination);
            tree::assert_same(&stage.source("data"), &landed.join("data"));
            for name in ["one", "two"] {
                assert_lands(stage.source(name), landed.join(name));
            }
        }
    });
}

/// Their names are more than the first message of a session may have.
#[test]
fn very_many_named_sources_are_pushed() {
    let stage = Stage::new(Way::Push);
    let names: Vec<String> = (0..1500).map(|number| format!("{number:0>60}")).collect();
    for name in &names {
        tree::write(&stage.source(name), name.as_bytes());
    }
    let sources: Vec<&str> = names.iter().map(String::as_str).collect();
    run(&mut stage.command(&sources, "many")).expect(0);
    for name in &names {
        let landed = fs::read(stage.destination("many").join(name)).unwrap();
        assert_eq!(landed, name.as_bytes());
    }
}

// Promise 4.
#[test]
fn missing_sources_are_named_and_the_others_are_copied() {
    each_way(|stage| {
        small_tree(&stage.source("data"));
        tree::write(&stage.source("one"), b"one");
        for _ in 0..2 {
            let mut command = stage.command(&["no-such", "one", "data"], "new");
            let finished = run(command.arg("--json")).expect(2).says(&["no-such"]);
            assert_eq!(finished.summary()["failed_entries"], 1);
            let events = finished.events();
            let failed = events.iter().filter(|event| event["event"] == "failed");
            let texts: Vec<&str> = failed.filter_map(|event| event["text"].as_str()).collect();
            assert!(
                matches!(texts[..], [text] if text.contains("no-such")),
                "{texts:?}"
            );
            let landed = stage.destination("new");
            tree::assert_same(&stage.source("data"), &landed.join("data"));
            assert_eq!(fs::read(landed.join("one")).unwrap(), b"one");
            assert_eq!(fs::read_dir(landed).unwrap().count(), 2);
        }
        // If no source exists, each is named and no destination is made.
        let none = run(&mut stage.command(&["no-such", "neither"], "none"));
        none.expect(6).says(&["no-such", "neither"]);
        run(&mut stage.command(&["no-such"], "none")).expect(6);
        assert!(!stage.destination("none").exists());
    });
}

// Promise 4.
#[test]
fn wildcards_of_remote_sources_are_expanded_at_the_remote_host() {
    let stage = Stage::new(Way::Pull);
    for file in [
        "one/a.h5",
        "one/b.h5",
        "one/c.txt",
        "two/d.h5",
        "odd[1].h5",
        "odd1.h5",
    ] {
        tree::write(&stage.source(file), file.as_bytes());
    }
    for (pattern, destination, landed) in [
        ("one/*.h5", "several", &["several/a.h5", "several/b.h5"][..]),
        ("[ot]*/[cd].*", "both", &["both/c.txt", "both/d.h5"]),
        // A single match may get a new name, as if its name had been written. A name that exists
        // literally is that file.
        ("t*/*", "named", &["named"]),
        ("odd[1].h5", "very", &["very"]),
        (
            "*/",
            "merged",
            &["merged/a.h5", "merged/b.h5", "merged/c.txt", "merged/d.h5"],
        ),
    ] {
        run(&mut stage.command(&[pattern], destination)).expect(0);
        let mut expected: Vec<PathBuf> = landed.iter().map(PathBuf::from).collect();
        if expected[0].components().count() > 1 {
            expected.insert(0, destination.into());
        }
        let found = tree::paths(&stage.destination(""));
        let found: Vec<&PathBuf> = found
            .iter()
            .filter(|path| path.starts_with(destination))
            .collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{pattern}");
    }
    let very = fs::read(stage.destination("very")).unwrap();
    assert_eq!(very, b"odd[1].h5");
    tree::write(&stage.source("two/a.h5"), b"another");
    let twice = run(&mut stage.command(&["*/a.h5"], ""));
    twice.expect(6).says(&["two sources have the name a.h5"]);
    let none = run(&mut stage.command(&["*.none"], ""));
    none.expect(6).says(&["*.none"]);
    // For a local source, the shell has already expanded wildcards.
    let local = Stage::new(Way::Local);
    tree::write(&local.source("a"), b"a");
    run(&mut local.command(&["*"], "")).expect(6);
}

// Promise 4.
#[test]
fn two_sources_of_one_name_are_refused() {
    each_way(|stage| {
        tree::write(&stage.source("x/one"), b"x");
        tree::write(&stage.source("y/one"), b"yy");
        let finished = run(&mut stage.command(&["x/one", "y/one"], "new"));
        // The order of threads would decide which file is copied.
        assert_ne!(finished.code, Some(0), "{finished:?}");
        assert!(finished.errors.contains("one"), "{finished:?}");
    });
}

// Promise 4.
#[test]
fn the_first_source_s_file_of_several_with_one_name_is_copied() {
    each_way(|stage| {
        for (tree, size) in [("a", 6 << 20), ("b", 9 << 20), ("e", 1)] {
            let source = stage.source(tree);
            tree::write(&source.join("big"), &vec![7; size]);
            tree::write(&source.join("s/x"), tree.as_bytes());
            tree::write(&source.join("s/only").join(tree), tree.as_bytes());
            symlink(tree, source.join("link")).unwrap();
        }
        // A file in one is a directory in the other, both ways.
        tree::write(&stage.source("a/p"), b"a");
        tree::write(&stage.source("b/p/below"), b"b");
        tree::write(&stage.source("a/q/below"), b"a");
        tree::write(&stage.source("b/q"), b"b");
        tree::write(&stage.source("b/alone"), b"b");
        set_mode(stage.source("a/s"), 0o750);

        // The entries of the later sources are failures.
        stage.copies_twice_with(&["a/", "b/", "e/"], "new", 2);
        let landed = |path: &str| stage.destination("new").join(path);
        for path in ["big", "s/x", "link", "p", "q/below", "s/only/a"] {
            assert_lands(stage.source("a").join(path), landed(path));
        }
        for (tree, path) in [("b", "s/only/b"), ("e", "s/only/e"), ("b", "alone")] {
            assert_lands(stage.source(tree).join(path), landed(path));
        }
        assert_eq!(mode_of(landed("s")), 0o750);

        // Named ones are sources as others are.
        stage.copies_twice_with(&["a/s", "b/big", "e/", "b/"], "named", 2);
        for (tree, path) in [("a", "s/x"), ("b", "big"), ("e", "s/only/e"), ("e", "link")] {
            let landed = stage.destination("named").join(path);
            assert_lands(stage.source(tree).join(path), landed);
        }
    });
}

#[test]
fn a_link_to_a_link_to_a_file_is_copied_as_the_file() {
    each_way(|stage| {
        tree::write(&stage.source("real"), b"content");
        symlink("real", stage.source("second")).unwrap();
        symlink("second", stage.source("first")).unwrap();
        symlink("round", stage.source("round")).unwrap();
        run(&mut stage.plain_command(&["first"], "new")).expect(0);
        assert_eq!(fs::read(stage.destination("new")).unwrap(), b"content");
        run(&mut stage.plain_command(&["round"], "none")).expect(6);
        assert!(!stage.destination("none").exists());
    });
}

#[test]
fn the_current_directory_is_a_source_and_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    small_tree(&from);
    fs::create_dir(&to).unwrap();
    let mut command = longhaul();
    command.args(["cp", "-r", ".", "../to"]).current_dir(&from);
    run(&mut command).expect(0);
    assert_eq!(tree::paths(&to).len(), 5);
    let mut command = longhaul();
    command.args(["cp", "-r", "../from", "."]).current_dir(&to);
    run(&mut command).expect(0);
    tree::assert_same(&from, &to.join("from"));

    let daemon = Daemon::start(&from);
    let here = directory.path().join("here");
    fs::create_dir(&here).unwrap();
    for _ in 0..2 {
        let mut command = daemon.command("cp");
        command.arg(daemon.url("sub/b")).arg(".").current_dir(&here);
        run(&mut command).expect(0);
        assert_eq!(fs::read(here.join("b")).unwrap(), b"bb");
    }
}

// Promise 22.
#[test]
fn a_tree_arrives_unchanged() {
    each_way(|stage| {
        tree::hard_tree(&stage.source("data"));
        stage.copies_twice(&["data"], "new");
        tree::assert_same(&stage.source("data"), &stage.destination("new/data"));
    });
}

#[test]
fn a_second_copy_applies_the_changes_of_the_source() {
    each_way(|stage| {
        let data = stage.source("data");
        tree::hard_tree(&data);
        run(&mut stage.command(&["data"], "new")).expect(0);
        // A mode alone, a link's target, a time alone, bytes, a kind.
        fs::set_permissions(data.join("empty file"), PermissionsExt::from_mode(0o640)).unwrap();
        fs::remove_file(data.join("dangling")).unwrap();
        symlink("elsewhere", data.join("dangling")).unwrap();
        tree::set_modified(&data.join("one block"), 1_600_000_000, 1);
        tree::write(&data.join("large"), &[3; 7 << 20]);
        fs::remove_file(data.join("sparse")).unwrap();
        symlink("large", data.join("sparse")).unwrap();
        fs::remove_file(data.join("absolute")).unwrap();
        tree::write(&data.join("absolute"), b"a file now");
        run(&mut stage.command(&["data"], "new")).expect(0);
        tree::assert_same(&data, &stage.destination("new/data"));
        assert_no_leftovers(stage.directory.path());
    });
}

// Promises 1 and 12.
#[test]
fn a_killed_copy_resumes_to_the_same_names() {
    each_way(|stage| {
        tree::mixed_tree(&stage.source("data"), 300, 24 << 20);
        tree::write(&stage.source("one"), &[5; 3 << 20]);
        for (sources, destination, within, lands) in [
            (&["data"][..], "new", "", "new/data"),
            (&["data/"], "filled", "d0", "filled/d0"),
            (&["data", "one"], "several", "", "several/data"),
        ] {
            let mut command = stage.command(sources, destination);
            command.arg("--json");
            let running = Running::start(&mut command);
            running.event(|event| event["event"] == "committed");
            running.kill();
            run(&mut command).expect(0);
            let source = stage.source("data").join(within);
            tree::assert_same(&source, &stage.destination(lands));
            assert_no_leftovers(stage.directory.path());
        }
    });
}

/// The copy was killed before it made another file.
#[test]
fn a_single_partial_file_is_resumed() {
    let place = tempfile::tempdir().unwrap();
    let (source, there) = (place.path().join("source"), place.path().join("there"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("big"), vec![7; 16 << 20]).unwrap();
    fs::write(source.join("small"), b"small").unwrap();
    let copy = || {
        let mut command = longhaul();
        command.args(["cp", "-r"]);
        command.arg(source.join("")).arg(&there);
        command
    };
    cut_short(&mut copy());
    // The copy may or may not have made this file.
    let _ = fs::remove_file(there.join("small"));
    expect_resumed(&mut copy());
    for name in ["big", "small"] {
        let [left, right] = [&source, &there].map(|place| fs::read(place.join(name)).unwrap());
        assert!(left == right, "{name} differs");
    }
    assert_no_leftovers(&there);
}

/// Two sources have a directory of the same name. The partial file of the second source in that
/// directory is resumed after the first source's file is done.
#[test]
fn a_directory_of_two_sources_is_resumed() {
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    tree::write(&at("one/x/small"), b"small");
    tree::write(&at("two/x/big"), &[7; 16 << 20]);
    tree::set_modified(&at("one/x"), 1_400_000_000, 5);
    // The scan reaches the file long after the first source's directory was finished.
    for number in 0..2000 {
        tree::write(&at(&format!("two/before/{number}")), b"");
    }
    let copy = || {
        let mut command = longhaul();
        command.args(["cp", "-r"]);
        command.args([at("one").join(""), at("two").join(""), at("there")]);
        command
    };
    cut_short(&mut copy());
    expect_resumed(&mut copy());
    assert_eq!(fs::read(at("there/x/big")).unwrap(), [7; 16 << 20]);
    assert_no_leftovers(&at("there"));
    let time = |path| fs::metadata(at(path)).unwrap().modified().unwrap();
    assert_eq!(time("there/x"), time("one/x"));
}

/// Kills a copy once a part of its only large file is durable.
fn cut_short(command: &mut Command) {
    command.args(["--bwlimit", "500kB/s", "--json", "--checkpoint", "1MiB"]);
    let running = Running::start(command);
    let durable = running.event(|event| event["event"] == "durable");
    assert!(durable.is_some(), "it ended before it could be killed");
    running.kill();
}

/// Checks that the same copy resumes from the durable data.
fn expect_resumed(command: &mut Command) {
    let summary = run(command.arg("--json")).expect(0).summary();
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn mode_of(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn part_in(directory: &Path) -> Option<PathBuf> {
    let names = fs::read_dir(directory)
        .unwrap()
        .map(|name| name.unwrap().path());
    let is_part = |name: &PathBuf| name.extension().is_some_and(|last| last == "part");
    names.into_iter().find(is_part)
}

/// A user to whom modes apply, and a directory with one that is his to copy into.
struct Nobody {
    place: TempDir,
    binary: PathBuf,
}

impl Nobody {
    /// Returns `None`, with a message, if root or `setpriv` is missing.
    fn new() -> Option<Nobody> {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        set_mode(place.path(), 0o777);
        fs::create_dir(place.path().join("there")).unwrap();
        set_mode(place.path().join("there"), 0o777);
        let binary = crate::support::process::binary_in(place.path());
        let nobody = Nobody { place, binary };
        let mut trial = nobody.command();
        let works = |trial: &mut Command| trial.output().is_ok_and(|it| it.status.success());
        let possible = crate::support::is_root() && works(trial.arg("--version"));
        if !possible {
            longhaul_testing::skip("it takes root and setpriv");
        }
        possible.then_some(nobody)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&self.binary);
        command.env("LONGHAUL_CONFIG_DIR", self.place.path());
        command
    }

    /// Returns a command that copies the source to the destination.
    fn copy(&self, source: &Path) -> Command {
        let mut command = self.command();
        command.args(["cp", "-r"]).arg(source).arg(self.there());
        command
    }

    fn there(&self) -> PathBuf {
        self.place.path().join("there")
    }
}

/// The file has its final mode before it has its name, and its owner can still resume it.
#[test]
fn a_read_only_partial_file_is_resumed() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let (source, there) = (nobody.place.path().join("big"), nobody.there());
    fs::write(&source, vec![7; 16 << 20]).unwrap();
    set_mode(&source, 0o444);
    cut_short(&mut nobody.copy(&source));
    set_mode(part_in(&there).unwrap(), 0o444);
    expect_resumed(&mut nobody.copy(&source));
    assert!(fs::read(there.join("big")).unwrap() == vec![7; 16 << 20]);
    assert_no_leftovers(&there);
}

/// If a source temporarily cannot be read, its data that arrived before stay.
// Promise 13.
#[test]
fn arrived_data_of_a_failed_file_stay() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let (source, there) = (nobody.place.path().join("source"), nobody.there());
    fs::create_dir_all(source.join("below")).unwrap();
    fs::write(source.join("below/big"), vec![7; 16 << 20]).unwrap();
    let copy = || nobody.copy(&source.join(""));
    cut_short(&mut copy());
    // The directory can be listed, but its files cannot be opened.
    set_mode(source.join("below"), 0o444);
    run(&mut copy()).expect(2);
    assert!(part_in(&there.join("below")).is_some());
    set_mode(source.join("below"), 0o755);
    expect_resumed(&mut copy());
    assert_no_leftovers(&there);
}

/// The first source's directory is done, and has its mode, while the second's files
/// go into it.
#[test]
fn sources_merge_in_a_read_only_directory() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let there = nobody.there();
    let mut command = nobody.command();
    command.args(["cp", "-r"]);
    for tree in ["a", "b", "c"] {
        let source = nobody.place.path().join(tree);
        for number in 0..100 {
            tree::write(&source.join(format!("s/{tree}{number}")), tree.as_bytes());
        }
        tree::write(&source.join(format!("s/{tree}/big")), &vec![7; 9 << 20]);
        set_mode(source.join("s"), 0o555);
        command.arg(source.join(""));
    }
    run(command.arg(&there)).expect(0);
    assert_eq!(fs::read_dir(there.join("s")).unwrap().count(), 303);
    assert_eq!(mode_of(there.join("s")), 0o555);
    // The owner has no permission to search the directory.
    set_mode(there.join("s"), 0o444);
    let again = run(command.arg("--json")).expect(0);
    assert_eq!(again.summary()["bytes"], 0);
    assert_no_leftovers(&there);
}
