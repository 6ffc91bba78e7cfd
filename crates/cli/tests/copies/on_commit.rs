//! `cp --on-commit`: a command runs for each file that is committed, where that arrives, and no
//! file is forgotten.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::daemon::with_roots;
use crate::support::process::{Running, await_process, longhaul, make_fifo, run};
use crate::support::site::{DIAL, Site};
use crate::support::sshd::{self, Sshd};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, contents, copy, slashed};
use crate::support::{Daemon, assert_no_leftovers};
use longhaul_testing::{await_end, until};
use rustix::process::{Signal, test_kill_process};

/// Names that a shell would take apart, and what the files hold.
const NAMES: [&str; 5] = [
    "plain",
    "with space and ' and \"",
    "$(touch injected)",
    "dir/`touch injected`; touch injected",
    "dir/line\nbreak",
];

fn source(root: &Path) {
    for (number, name) in (0..).zip(NAMES) {
        write(&root.join(name), &vec![b'x'; number]);
        set_modified(&root.join(name), 1_000_000, 5);
    }
    write(&root.join("large"), &vec![7; 5 << 20]);
    symlink("plain", root.join("link")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
}

/// Returns a command that logs its file, and fails if a variable is wrong.
fn logging(log: &Path) -> String {
    format!(
        "set -e; test $PWD = /; test \"$LONGHAUL_PATH\" = \"$1\"; \
         printf '%s %s %s\\0' \"$LONGHAUL_NAME\" \"$(wc -c < \"$1\")=$LONGHAUL_SIZE\" \
         \"$LONGHAUL_BLAKE3\" >> '{0}'",
        log.display()
    )
}

/// Returns the number of runs of the command for each name.
fn logged(log: &Path) -> BTreeMap<String, usize> {
    let mut ran = BTreeMap::new();
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8(text).unwrap();
    for line in text.split_terminator('\0') {
        let (rest, digest) = line.rsplit_once(' ').unwrap();
        let (name, sizes) = rest.rsplit_once(' ').unwrap();
        let (there, told) = sizes.split_once('=').unwrap();
        assert_eq!(there, told, "{line:?}");
        assert_eq!(digest.len(), 64, "{line:?}");
        *ran.entry(name.to_owned()).or_default() += 1;
    }
    ran
}

fn all_once() -> BTreeMap<String, usize> {
    let names = NAMES.into_iter().chain(["large"]);
    names.map(|name| (name.to_owned(), 1)).collect()
}

fn local(from: &Path, to: &Path, options: &[&str]) -> Command {
    let mut command = longhaul();
    command.arg("cp").arg("-r").args(options);
    command.arg(slashed(from)).arg(to);
    command
}

// Promise 85.
#[test]
fn the_command_runs_once_for_each_file_on_every_route() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let named = format!("log={}", logging(&log));
    let daemon = Daemon::with(place.path(), &["--write", "--on-commit", &named]);
    let from = place.path().join("from");
    source(&from);
    for way in WAYS {
        let to = place.path().join(format!("{way:?}"));
        let text = match way {
            Way::Push => "log".to_owned(),
            _ => logging(&log),
        };
        for ran in [all_once(), BTreeMap::new()] {
            let command = copy((&daemon, place.path()), way, (&from, &to));
            run(&mut command.with(&["-r", "--on-commit", &text])).expect(0);
            assert_eq!(logged(&log), ran, "{way:?}");
            let _ = fs::remove_file(&log);
        }
        assert_eq!(contents(&to), contents(&from));
        assert_no_leftovers(&to);
        // The command runs again for a changed file.
        write(&to.join("plain"), b"other");
        let command = copy((&daemon, place.path()), way, (&from, &to));
        run(&mut command.with(&["-r", "--on-commit", &text])).expect(0);
        assert_eq!(logged(&log), [("plain".to_owned(), 1)].into());
        fs::remove_file(&log).unwrap();
    }
    assert!(!place.path().join("injected").exists());
}

/// A file whose command failed is complete, so it does not count as missing.
#[test]
fn a_failed_command_does_not_make_a_file_incomplete() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("plain"), b"data");
    let finished = run(&mut local(&from, &to, &["--on-commit", "false"])).expect(2);
    let finished = finished.says(&["plain: it is there, but its command did not succeed"]);
    let finished = finished.says(&["verified by BLAKE3 of every block moved"]);
    assert!(
        !finished.errors.contains("no file is complete"),
        "{}",
        finished.errors
    );
}

/// The file stays, the others are done, and the same command runs for what failed and for no
/// other file.
// Promise 85.
#[test]
fn a_failed_command_fails_its_file_and_runs_again() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let log = place.path().join("log");
    source(&from);
    let fails = format!(
        "{}; case $LONGHAUL_NAME in plain|large) echo out of order >&2; exit 3;; esac",
        logging(&log)
    );
    for again in [false, true, true] {
        let report = place.path().join("report");
        let report_option = format!("--report={}", report.display());
        let options = ["--json", &report_option, "--on-commit", &fails];
        let finished = run(&mut local(&from, &to, &options)).expect(2);
        let finished = finished.says(&["plain: ", "large: ", "exit code 3: out of order"]);
        let failed = finished.events().into_iter();
        let failed: Vec<_> = failed.filter(|event| event["event"] == "failed").collect();
        assert_eq!(failed.len(), 2);
        assert!(failed.iter().all(|event| event["kind"] == "Other"));
        let report = fs::read_to_string(report).unwrap();
        assert_eq!(report.matches("\"kind\":\"Other\"").count(), 2, "{report}");
        let ran = if !again {
            all_once()
        } else {
            ["large", "plain"].map(|name| (name.to_owned(), 1)).into()
        };
        assert_eq!(logged(&log), ran);
        fs::remove_file(&log).unwrap();
    }
    // If the copy takes the source for unchanged, so does the command, for every kind of
    // comparison.
    fs::set_permissions(from.join("plain"), fs::Permissions::from_mode(0o600)).unwrap();
    // Its digest is kept for the state that it had.
    let well = format!("echo >> '{}'", log.display());
    let options = ["--ignore-existing", "--on-commit", &well];
    run(&mut local(&from, &to, &options)).expect(0);
    assert_eq!(fs::read(&log).unwrap(), b"\n\n");
    fs::remove_file(&log).unwrap();
    run(&mut local(&from, &to, &["--on-commit", &well])).expect(0);
    assert!(!log.exists());
    assert_eq!(contents(&to), contents(&from));
    assert_no_leftovers(&to);
}

/// Killed at any moment after a file has its name, the same command runs for it.
#[test]
fn commands_that_a_kill_prevented_run_later() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let log = place.path().join("log");
    source(&from);
    for number in 0..50 {
        write(&from.join(format!("small {number}")), b"small");
    }
    let fifo = place.path().join("fifo");
    make_fifo(&fifo);
    // The command reports that it runs, and then waits forever.
    let waits = format!("echo $$ > '{0}.pid'; read x < '{0}'", fifo.display());
    let options = ["--on-commit", &waits, "--on-commit-jobs", "1"];
    let running = Running::start(&mut local(&from, &to, &options));
    let process = await_process(&fifo.with_extension("pid"));
    running.kill();
    let there = fs::read_dir(&to).unwrap().flatten();
    let there = there.filter(|entry| entry.metadata().unwrap().is_file());
    assert!(there.count() > 0);
    // A kill of longhaul ends no command: it would be cut off in its work.
    rustix::process::kill_process_group(process, Signal::KILL).unwrap();
    let well = logging(&log);
    run(&mut local(&from, &to, &["--on-commit", &well])).expect(0);
    let ran = logged(&log);
    assert_eq!(ran.len(), NAMES.len() + 1 + 50, "{ran:?}");
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    assert_eq!(contents(&to), contents(&from));
    assert_no_leftovers(&to);
}

#[test]
fn an_interrupt_ends_the_commands_with_the_copy() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    let pid = place.path().join("pid");
    let waits = format!("echo $$ > '{}'; {}", pid.display(), until("false"));
    let running = Running::start(&mut local(&from, &to, &["--on-commit", &waits]));
    let process = await_process(&pid);
    running.signal(Signal::INT);
    running.wait().expect(130);
    assert!(
        test_kill_process(process).is_err(),
        "the process still exists"
    );
}

/// A second interrupt, or the close of the terminal, ends longhaul at once. It ends its commands
/// first. Only SIGKILL does not. This command ignores SIGTERM.
// Promises 41 and 85.
#[test]
fn no_command_outlives_a_copy_that_ends_at_once() {
    let place = tempfile::tempdir().unwrap();
    let (from, pid) = (place.path().join("from"), place.path().join("pid"));
    write(&from.join("file"), b"file");
    let daemon = Daemon::start(place.path());
    let stays = format!(
        "trap '' TERM; echo $$ > '{}'; {}",
        pid.display(),
        until("false")
    );
    for (number, (option, signals)) in [
        ("--on-commit", &[Signal::HUP][..]),
        ("--on-commit", &[Signal::INT, Signal::INT]),
        ("--filter-cmd", &[Signal::HUP]),
    ]
    .into_iter()
    .enumerate()
    {
        let to = place.path().join(number.to_string());
        let command = copy((&daemon, place.path()), Way::Pull, (&from, &to));
        let running = Running::start(&mut command.with(&["-r", option, &stays]));
        let process = await_process(&pid);
        for signal in signals {
            running.signal(*signal);
            // tidy: reason: two signals within 0.3 s count as one.
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        let finished = running.wait();
        let expected = signals.len() > 1;
        assert_eq!(finished.code == Some(130), expected, "{:?}", finished.code);
        await_end(process.as_raw_nonzero().get());
        fs::remove_file(&pid).unwrap();
    }
}

/// `nohup longhaul cp` and its commands continue when the terminal is closed.
#[test]
fn an_ignored_hangup_ends_no_command() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("file"), b"file");
    let (pid, go) = (place.path().join("pid"), place.path().join("go"));
    let goes = until(&format!("[ -e '{}' ]", go.display()));
    let waits = format!("echo $$ > '{}'; {goes}", pid.display());
    let copy = local(&from, &to, &["--on-commit", &waits]);
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    ignoring.arg(copy.get_program()).args(copy.get_args());
    for (name, value) in copy.get_envs() {
        if let Some(value) = value {
            ignoring.env(name, value);
        }
    }
    let running = Running::start(&mut ignoring);
    await_process(&pid);
    running.signal(Signal::HUP);
    write(&go, b"");
    running.wait().expect(0);
}

#[test]
fn a_daemon_ended_by_a_hangup_leaves_no_command() {
    let place = tempfile::tempdir().unwrap();
    let (from, pid) = (place.path().join("from"), place.path().join("pid"));
    write(&from.join("file"), b"file");
    let named = format!("wait=echo $$ > '{}'; {}", pid.display(), until("false"));
    let daemon = Daemon::with(place.path(), &["--write", "--on-commit", &named]);
    let command = copy(
        (&daemon, place.path()),
        Way::Push,
        (&from, &place.path().join("to")),
    );
    let running = Running::start(&mut command.with(&["-r", "--on-commit", "wait"]));
    let process = await_process(&pid);
    daemon.running().signal(Signal::HUP);
    await_end(process.as_raw_nonzero().get());
    running.kill();
}

#[test]
fn a_command_that_exceeds_its_time_is_ended() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("file"), b"file");
    let options = ["--on-commit", "sleep 300", "--on-commit-timeout", "100ms"];
    let finished = run(&mut local(&from, &to, &options)).expect(2);
    finished.says(&["file: ", "it took too long"]);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"file");
}

/// The requested number of commands runs at a time: each waits for the others, and no further one
/// starts.
#[test]
fn commands_have_separate_flows() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let daemon = Daemon::start(place.path());
    for number in 0..6 {
        write(&from.join(number.to_string()), b"file");
    }
    let begun = place.path().join("begun");
    fs::create_dir(&begun).unwrap();
    // Each command waits until three have started.
    let waits = format!(
        "cd '{}'; : > \"$LONGHAUL_NAME\"; {}",
        begun.display(),
        until("[ $(ls | wc -l) -ge 3 ]")
    );
    let options = ["--json", "--on-commit", &waits, "--on-commit-jobs", "3"];
    let command = copy((&daemon, place.path()), Way::Pull, (&from, &to));
    let options = [&["-r"], &options[..]].concat();
    let summary = run(&mut command.with(&options)).expect(0).summary();
    let layers = summary["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["layer"] == "on-commit");
    assert_eq!(layer.expect("a layer of its own")["flows"], 3);
    let bad = ["--on-commit", "true", "--on-commit-jobs", "65"];
    run(&mut local(&from, &to, &bad))
        .expect(1)
        .says(&["1 to 64"]);
}

// Promise 85.
#[test]
fn a_daemon_runs_only_commands_of_its_configuration() {
    let place = tempfile::tempdir().unwrap();
    let (from, log) = (place.path().join("from"), place.path().join("log"));
    source(&from);
    let mut roots = String::new();
    for (name, commands) in [("without", "[]"), ("with", "[\"log\", \"other\"]")] {
        let path = place.path().join(name);
        fs::create_dir(&path).unwrap();
        roots += &format!(
            "[[principal.root]]\nat = \"/{name}\"\npath = {path:?}\nrights = [\"write\"]\n\
             on-commit = {commands}\nfilter-cmd = [\"hidden\"]\n"
        );
    }
    let text = logging(&log);
    roots += &format!("[commands]\nlog = {text:?}\nother = \"true\"\nhidden = \"true\"\n");
    let (daemon, tokens) = with_roots(place.path(), &roots);
    let copy_to = |root: &str, command: &str| {
        let mut copy = longhaul();
        copy.args([
            "cp",
            "-r",
            "--fingerprint",
            &daemon.fingerprint,
            "--token-file",
        ]);
        copy.arg(&tokens).args(["--on-commit", command]);
        run(copy
            .arg(slashed(&from))
            .arg(daemon.url(format!("{root}/to"))))
    };
    let injected = format!("touch {}", place.path().join("injected").display());
    for (root, command, text) in [
        ("without", "log", "none is allowed there"),
        ("with", "hidden", "one of log, other"),
        ("with", injected.as_str(), "one of log, other"),
        ("with", "", "1 to 4096 bytes"),
    ] {
        let code = if command.is_empty() { 1 } else { 4 };
        copy_to(root, command).expect(code).says(&[text]);
        assert!(!place.path().join(root).join("to").exists());
    }
    assert!(!place.path().join("injected").exists());
    copy_to("with", "log").expect(0);
    assert_eq!(logged(&log), all_once());
}

#[test]
fn a_daemon_does_not_start_with_invalid_commands() {
    let place = tempfile::tempdir().unwrap();
    for (command, text) in [
        ("a=", "\"a\""),
        ("a", "NAME=CMD"),
        ("b=other", "two commands"),
    ] {
        let mut serve = longhaul();
        serve.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--write",
            "--filter-cmd",
            "b=cat",
            "--on-commit",
            command,
        ]);
        serve.arg("--root").arg(place.path()).arg("--state");
        let finished = run(serve.arg(place.path().join("../state-of-no-daemon")));
        assert_ne!(finished.code, Some(0));
        finished.says(&[text]);
    }
    let _ = fs::remove_dir_all(place.path().join("../state-of-no-daemon"));
}

#[test]
fn on_commit_is_refused_for_destinations_without_file_names() {
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("file"), b"file");
    let file = place.path().join("file");
    for to in ["-", "null:"] {
        let mut command = longhaul();
        command
            .args(["cp", "--on-commit", "true"])
            .arg(&file)
            .arg(to);
        run(&mut command).expect(1).says(&["--on-commit"]);
    }
    // The thread that hears of the other end would wait for a command.
    let from = place.path().join("from");
    write(&from.join("file"), b"file");
    for option in ["--on-commit", "--filter-cmd"] {
        let options = ["--stack", "paired", option, "cat"];
        let refused = run(&mut local(&from, &place.path().join("to"), &options));
        refused.expect(1).says(&[option, "--stack paired"]);
    }
    // A dry run runs no command.
    let ran = place.path().join("ran");
    let text = format!("touch {}", ran.display());
    let to = place.path().join("to");
    run(&mut local(&from, &to, &["-n", "--on-commit", &text])).expect(0);
    assert!(!ran.exists());
}

#[test]
fn the_command_runs_at_the_remote_host_over_ssh() {
    if !sshd::is_possible() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let sshd = Sshd::start();
    let log = sshd.home().join("log");
    let text = logging(Path::new(&log));
    let mut command = sshd.command("cp");
    command
        .args(["-r", "--on-commit", &text])
        .arg(slashed(&from));
    run(command.arg("dtn:to")).expect(0);
    assert_eq!(logged(&log), all_once());
    assert_eq!(contents(&sshd.home().join("to")), contents(&from));
}

#[test]
fn the_command_runs_at_the_destination_between_two_daemons() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let named = format!("log={}", logging(&log));
    for (one, two) in [
        (&[DIAL][..], &["--write", "--on-commit", &named][..]),
        (&[], &["--write", "--on-commit", &named, DIAL]),
    ] {
        let site = Site::new(one, two);
        source(&site.root("one").join("data"));
        let options = ["-r", "--on-commit", "other"];
        run(&mut site.copy(&options, "data/", "to")).expect(4);
        let options = ["-r", "--on-commit", "log"];
        run(&mut site.copy(&options, "data/", "to")).expect(0);
        assert_eq!(logged(&log), all_once());
        fs::remove_file(&log).unwrap();
    }
}

/// The path of the file is resolved if the destination is a link.
#[test]
fn the_command_gets_the_resolved_path_of_the_file() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (from, to, told) = (place.join("from"), place.join("to"), place.join("told"));
    write(&from, b"file");
    fs::create_dir(&to).unwrap();
    symlink("to", place.join("link")).unwrap();
    let text = format!("printf '%s' \"$1\" > '{}'", told.display());
    let mut command = longhaul();
    command.args(["cp", "--on-commit", &text]).arg(&from);
    run(command.arg(place.join("link/named"))).expect(0);
    let told = PathBuf::from(std::ffi::OsStr::from_bytes(&fs::read(told).unwrap()));
    assert_eq!(told, to.join("named"));
}

/// More files than may wait for their command.
// Promise 85.
#[test]
fn commits_wait_for_commands_and_continue() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for number in 0..1500 {
        write(&from.join(number.to_string()), b"file");
    }
    let text = format!("echo >> '{}'", place.path().join("log").display());
    run(&mut local(&from, &to, &["--on-commit", &text])).expect(0);
    let log = fs::read(place.path().join("log")).unwrap();
    assert_eq!(log.len(), 1500);
}
