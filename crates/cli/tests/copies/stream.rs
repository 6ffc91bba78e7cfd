//! `-`: one stream of data from standard input, or to standard output.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Daemon;
use crate::support::assert_no_leftovers;
use crate::support::process::{longhaul, run};
use crate::support::sshd::{Sshd, is_possible};
use serde_json::Value;

/// Some blocks and a rest, of which no two pieces are alike.
fn data() -> Vec<u8> {
    let numbers = 0..1_700_003_u32;
    numbers.flat_map(u32::to_le_bytes).collect()
}

/// Runs a command with these data on its standard input. Returns the exit code and the output.
fn fed(command: &mut Command, data: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // If the command stops reading, its message gives the reason.
            let _ = input.write_all(data);
        });
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        (done.status.code(), done.stdout, said)
    })
}

// Promises 50 and 53.
#[test]
fn standard_input_becomes_a_file_and_standard_output_returns_it() {
    let (place, data) = (tempfile::tempdir().unwrap(), data());
    let daemon = Daemon::start(place.path());
    let mut there = daemon.command("cp");
    let (code, output, said) = fed(there.arg("-").arg(daemon.url("y.tar")), &data);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(output, b"", "only data go to standard output");
    let digest = blake3_of(&data);
    assert!(
        said.contains(&digest) && said.contains("copied: 1 file,"),
        "{said}"
    );
    let file = place.path().join("y.tar");
    assert!(std::fs::read(&file).unwrap() == data);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0, "{mode:o}");
    let mut back = daemon.command("cp");
    let back = run(back.arg(daemon.url("y.tar")).arg("-")).expect(0);
    assert!(back.output == data);
    assert_no_leftovers(place.path());
}

/// Returns the digest in the format of `b3sum`, computed by a copy of longhaul.
fn blake3_of(data: &[u8]) -> String {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("file"), data).unwrap();
    let mut command = longhaul();
    command
        .args(["cp", "--json"])
        .arg(place.path().join("file"));
    let done = run(command.arg(place.path().join("copy"))).expect(0);
    let committed = done
        .events()
        .into_iter()
        .find(|event| event["event"] == "committed");
    committed.unwrap()["blake3"].as_str().unwrap().to_owned()
}

#[test]
fn pipes_work_over_ssh_and_within_this_host() {
    let (place, data) = (tempfile::tempdir().unwrap(), data());
    let file = place.path().join("here");
    let mut here = longhaul();
    let (code, _, said) = fed(here.args(["cp", "-"]).arg(&file), &data);
    assert_eq!(code, Some(0), "{said}");
    assert!(std::fs::read(&file).unwrap() == data);
    let mut out = longhaul();
    assert!(run(out.arg("cp").arg(&file).arg("-")).expect(0).output == data);
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    let mut there = sshd.command("cp");
    let (code, _, said) = fed(there.args(["-", "dtn:y.tar"]), &data);
    assert_eq!(code, Some(0), "{said}");
    assert!(std::fs::read(sshd.home().join("y.tar")).unwrap() == data);
    let mut back = sshd.command("cp");
    assert!(run(back.args(["dtn:y.tar", "-"])).expect(0).output == data);
}

/// A slow link, a codec and little memory make blocks smaller than what is read of
/// standard input at once.
#[test]
fn standard_input_arrives_in_small_blocks_too() {
    let (place, data) = (tempfile::tempdir().unwrap(), data());
    let daemon = Daemon::start(place.path());
    let short = &data[..data.len().min(700_001)];
    let options = [
        &["--bwlimit", "200kBps"][..],
        &["--compress", "lz4", "--memory", "4MiB"],
        &["--memory", "2MiB"],
    ];
    for (at, options) in options.into_iter().enumerate() {
        let name = format!("y{at}");
        let mut there = daemon.command("cp");
        let there = there.args(options).arg("-").arg(daemon.url(&name));
        let (code, _, said) = fed(there, short);
        assert_eq!(code, Some(0), "{options:?}: {said}");
        let file = place.path().join(&name);
        assert!(std::fs::read(&file).unwrap() == short, "{options:?}");
        let mut here = longhaul();
        let file = place.path().join(format!("here{at}"));
        let (code, _, said) = fed(here.arg("cp").args(options).arg("-").arg(&file), short);
        assert_eq!(code, Some(0), "{options:?}: {said}");
        assert!(std::fs::read(&file).unwrap() == short, "{options:?}");
    }
}

/// The file has the name of a piece, but is not one.
#[test]
fn a_file_named_like_a_piece_is_written_completely() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("d0000000000000007");
    std::fs::write(&file, b"seven").unwrap();
    let mut out = longhaul();
    let out = run(out.arg("cp").arg(&file).arg("-")).expect(0);
    assert_eq!(out.output, b"seven");
}

#[test]
fn empty_and_short_input_arrives() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    for data in [&b""[..], b"x"] {
        let mut there = daemon.command("cp");
        there.args(["--json", "-"]).arg(daemon.url("small"));
        let (code, output, said) = fed(&mut there, data);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(std::fs::read(place.path().join("small")).unwrap(), data);
        let events = String::from_utf8(output).unwrap();
        let events = events
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let committed: Vec<Value> = events
            .filter(|event| event["event"] == "committed")
            .collect();
        assert_eq!(committed.len(), 1, "{committed:?}");
        assert_eq!(committed[0]["size"], data.len());
        let mut back = daemon.command("cp");
        let back = run(back.arg(daemon.url("small")).arg("-")).expect(0);
        assert_eq!(back.output, data);
    }
}

/// Opens a source that cannot be read.
fn broken(place: &Path) -> File {
    // Reading a directory fails.
    File::open(place).unwrap()
}

// Promise 51.
#[test]
fn a_failed_source_leaves_the_old_file() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    std::fs::write(place.path().join("y.tar"), "old").unwrap();
    let mut command = daemon.command("cp");
    command.arg("-").arg(daemon.url("y.tar"));
    let child = command
        .stdin(broken(place.path()))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("standard input: cannot be read"), "{said}");
    assert_eq!(said.matches("longhaul: ").count(), 1, "{said}");
    assert_eq!(std::fs::read(place.path().join("y.tar")).unwrap(), b"old");
    // The other end tidies up when this one has gone.
    daemon.running().signal(rustix::process::Signal::TERM);
    daemon.wait().expect(0);
    assert_no_leftovers(place.path());
}

// Promise 51.
#[test]
fn a_killed_pipe_leaves_the_old_file() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--linger", "1s"]);
    std::fs::write(place.path().join("y.tar"), "old").unwrap();
    let mut command = daemon.command("cp");
    command.arg("-").arg(daemon.url("y.tar"));
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The data exceed the pipe, the memory of one end and the pieces. So some of them have arrived
    // when all are taken.
    let data = vec![7; 100 << 20];
    input.write_all(&data).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read(place.path().join("y.tar")).unwrap(), b"old");
    daemon.running().signal(rustix::process::Signal::TERM);
    daemon.wait().expect(0);
    assert_no_leftovers(place.path());
}

// Promise 53.
#[test]
fn a_copy_ends_if_its_reader_closes_the_pipe() {
    let mut command = longhaul();
    let mut child = command
        .args(["cp", "zero:1TB", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [1; 100]).unwrap();
    drop(output);
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(
        said.contains("standard output: cannot write: Broken pipe"),
        "{said}"
    );
}

#[test]
fn options_that_a_pipe_does_not_support_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    std::fs::create_dir(place.path().join("sub")).unwrap();
    std::fs::write(place.path().join("sub/a"), "").unwrap();
    for (arguments, text) in [
        (&["-n", "-", "x"][..], "--dry-run"),
        (&["--verify", "-", "x"], "need files"),
        (&["--manifest", "m", "-", "x"], "need files"),
        (&["--json", "x", "-"], "leave out --json"),
        (&["-v", "x", "-"], "--verbose"),
        (&["a", "-", "x"], "one source"),
        (&["--lab", "rtt=1ms", "-", "x"], "--lab"),
    ] {
        run(longhaul().arg("cp").args(arguments))
            .expect(1)
            .says(&[text]);
    }
    run(longhaul().args(["verify", "-", "x"]))
        .expect(1)
        .says(&["- is a stream"]);
    let mut command = daemon.command("cp");
    run(command.arg("-").arg(daemon.url("sub")))
        .expect(6)
        .says(&["no name of its own"]);
    let mut command = daemon.command("cp");
    run(command.arg("-r").arg(daemon.url("sub")).arg("-"))
        .expect(1)
        .says(&["no single file"]);
    let mut command = longhaul();
    run(command.args(["cp", "-r"]).arg(place.path()).arg("-"))
        .expect(1)
        .says(&["no single file"]);
    let reading = Daemon::with(place.path(), &[]);
    let mut command = reading.command("cp");
    run(command.arg("-").arg(reading.url("new"))).expect(4);
    assert_no_leftovers(place.path());
}

#[test]
fn a_full_disk_is_reported_once() {
    if !crate::support::is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs -o size=4m none {at}; cd {at}; head -c 30000000 /dev/zero | \
         {binary} cp - full; code=$?; ls -A; exit $code",
        at = place.path().display(),
        binary = env!("CARGO_BIN_EXE_longhaul"),
    );
    let done = run(command.args(["--mount", "sh", "-c", &script]))
        .expect(2)
        .says(&["full: cannot write: No space left", "free some room"]);
    assert_eq!(done.output, b"", "files are left");
    assert_eq!(
        done.errors.matches("longhaul: ").count(),
        1,
        "{}",
        done.errors
    );
}

/// A FIFO or a device is no file that a stream may replace.
#[test]
fn a_special_file_is_not_replaced_by_a_pipe() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    let mut copy = longhaul();
    let (code, _, said) = fed(copy.arg("cp").arg("-").arg(&fifo), b"data");
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("is not replaced"), "{said}");
    let kind = std::fs::symlink_metadata(&fifo).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    assert_no_leftovers(place.path());
}
