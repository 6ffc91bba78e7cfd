//! `verify` with the filters of a copy: a filtered mirror agrees, and what differs within the
//! selection is named, on every way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{Finished, longhaul, run};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, slashed};

fn source(root: &Path) {
    for (name, text) in [
        ("a.o", "object"),
        ("a.c", "source"),
        ("build/x.c", "built"),
        ("src/a.o", "object"),
        ("src/keep.o", "object"),
        ("src/deep/b.c", "source of more than ten bytes"),
        ("src/.gitignore", "*.o\n!keep.o\n/deep/\n"),
        ("src/.rsync-filter", "- /deep\n"),
        ("old", "old"),
    ] {
        write(&root.join(name), text.as_bytes());
    }
    set_modified(&root.join("old"), 1_000_000, 0);
    std::fs::create_dir_all(root.join("empty")).unwrap();
}

/// The sides of a command on a way, as they are written for a copy.
fn ends(daemon: &Daemon, way: Way, from: (&Path, OsString), to: &Path) -> (Command, [OsString; 2]) {
    let url = |path: &Path| daemon.url(path.file_name().unwrap());
    let mut left = url(from.0);
    if from.1.as_encoded_bytes().ends_with(b"/") {
        left.push("/");
    }
    match way {
        Way::Local => (longhaul(), [from.1, to.into()]),
        Way::Push => (daemon.command("verify"), [from.1, url(to)]),
        Way::Pull => (daemon.command("verify"), [left, to.into()]),
    }
}

fn verify(
    daemon: &Daemon,
    way: Way,
    flags: &[&str],
    from: (&Path, OsString),
    to: &Path,
) -> Finished {
    let (mut command, ends) = ends(daemon, way, from, to);
    if way == Way::Local {
        command.arg("verify");
    }
    run(command.args(flags).args(ends))
}

// tidy: long because each difference is looked for on each way.
// Promise 34.
#[test]
fn a_filtered_mirror_agrees_and_its_differences_are_named() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let from = place.path().join("from");
    source(&from);
    for (number, (flags, left_out, selected)) in [
        (&["--exclude=*.o"][..], "src/new.o", "src/new.c"),
        (&["--exclude=/build/"], "build/new", "src/build/new"),
        (
            &["--include=*/", "--include=*.c", "--exclude=*"],
            "src/new",
            "src/new.c",
        ),
        (&["--gitignore"], "src/new.o", "new.o"),
        (&["-FF"], "src/deep/new", "src/new"),
        (&["-F"], "src/deep/new", "src/new"),
        (&["--max-size=10"], "src/deep/b.c", "src/deep/new"),
        (&["--older-than=2001-01-01"], "src/a.o", "src/new"),
        (&["--max-depth=1"], "src/new", "new"),
    ]
    .into_iter()
    .enumerate()
    {
        for way in WAYS {
            let to = place.path().join(format!("to{number}{way:?}"));
            let mut command = longhaul();
            command.args(["cp", "-r"]).args(flags);
            run(command.arg(slashed(&from)).arg(&to)).expect(0);
            let compare = || verify(&daemon, way, flags, (&from, slashed(&from)), &to);
            compare().expect(0);
            // Excluded entries may exist with any contents.
            write(&to.join(left_out), b"not compared");
            compare().expect(0);
            write(&to.join(selected), b"x");
            let shown = format!("{selected}: only at the destination");
            compare().expect(5).says(&[&shown]);
            std::fs::remove_file(to.join(selected)).unwrap();
        }
    }
}

#[test]
fn only_selected_entries_are_compared() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let from = place.path().join("from");
    source(&from);
    let list = place.path().join("list");
    write(&list, b"src/keep.o\nbuild\n");
    let files = format!("--files-from={}", list.display());
    for way in WAYS {
        let to = place.path().join(format!("to{way:?}"));
        source(&to);
        write(&to.join("src/a.o"), b"changed");
        write(&to.join("src/deep/b.c"), b"changed, and of the same len.");
        let compare = |flags: &[&str]| verify(&daemon, way, flags, (&from, slashed(&from)), &to);
        compare(&[]).expect(5).says(&["src/a.o", "src/deep/b.c"]);
        let one = compare(&["--exclude=*.o"])
            .expect(5)
            .says(&["src/deep/b.c"]);
        assert!(!one.errors.contains("a.o"), "{}", one.errors);
        compare(&["--exclude=*.o", "--exclude=deep"]).expect(0);
        // Unlisted entries are not reported.
        write(&to.join("src/more"), b"x");
        compare(&["-r", &files]).expect(0);
        write(&to.join("build/x.c"), b"BUILT");
        compare(&["-r", &files]).expect(5).says(&["build/x.c"]);
        // As in a copy, a listed directory is compared without its contents.
        compare(&[&files]).expect(0);
    }
}

/// Without a slash, rules begin at the source's own name, as in a copy, whatever the name of the
/// second path is.
#[test]
fn rules_are_relative_to_the_same_directory_as_in_a_copy() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let from = place.path().join("from");
    source(&from);
    for way in WAYS {
        let to = place.path().join(format!("other{way:?}"));
        source(&to);
        std::fs::remove_dir_all(to.join("build")).unwrap();
        write(&to.join("build/else"), b"x");
        for (source, flag, code) in [
            (from.as_os_str().to_owned(), "--exclude=/from/build", 0),
            (from.as_os_str().to_owned(), "--exclude=/build", 5),
            (slashed(&from), "--exclude=/build", 0),
            (slashed(&from), "--exclude=/from/build", 5),
        ] {
            verify(&daemon, way, &[flag], (&from, source), &to).expect(code);
        }
    }
    let one = place.path().join("one.c");
    write(&one, b"x");
    write(&place.path().join("two.c"), b"y");
    let mut command = longhaul();
    command.current_dir(place.path());
    run(command.args(["verify", "one.c", "two.c", "--exclude=*.c"])).expect(0);
    let mut command = longhaul();
    command.current_dir(place.path());
    run(command.args(["verify", "one.c", "two.c", "--exclude=*.o"])).expect(5);
}
