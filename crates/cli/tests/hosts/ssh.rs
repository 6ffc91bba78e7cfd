//! Copies over the user's own ssh, to and from real sshd instances.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::process::{Running, run, script};
use crate::support::sshd::{Setting, Sshd, at_dtn, is_possible};
use crate::support::{assert_no_leftovers, tree};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

fn source() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    tree::mixed_tree(&place.path().join("data"), 60, 6 << 20);
    tree::hard_tree(&place.path().join("data/hard"));
    place
}

fn write_profile(home: &Path, text: &str) {
    for file in [".bashrc", ".profile", ".cshrc", ".zshenv"] {
        std::fs::write(home.join(file), text).unwrap();
    }
}

#[test]
fn a_tree_is_copied_in_both_directions() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), source());
    let data = place.path().join("data");
    let there = sshd.home().join("deep/data");
    run(sshd.command("cp").arg("-r").arg(&data).arg(at_dtn("deep"))).expect(0);
    tree::assert_same(&data, &there);
    let back = place.path().join("back");
    run(sshd.command("cp").args(["-r", "dtn:deep/data"]).arg(&back)).expect(0);
    tree::assert_same(&data, &back.join("data"));
    run(sshd.command("verify").arg(&data).arg(at_dtn("~/deep/data"))).expect(0);
    std::fs::write(there.join("one more"), "x").unwrap();
    run(sshd.command("verify").arg(&data).arg(at_dtn(&there)))
        .expect(5)
        .says(&["one more"]);
    assert_no_leftovers(place.path());
    assert_no_leftovers(&sshd.home());
}

// Promise 46.
#[test]
fn one_file_is_copied_to_a_name_or_into_the_home() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), tempfile::tempdir().unwrap());
    let file = place.path().join("a b");
    std::fs::write(&file, "content").unwrap();
    run(sshd.command("cp").arg(&file).arg("dtn:")).expect(0);
    run(sshd.command("cp").arg(&file).arg("dtn:it's new")).expect(0);
    for name in ["a b", "it's new"] {
        let got = std::fs::read_to_string(sshd.home().join(name)).unwrap();
        assert_eq!(got, "content");
    }
    let measured = ["zero:3MiB", "dtn:null:"];
    run(sshd.command("cp").args(measured))
        .expect(0)
        .says(&["copied: 1 file,"]);
}

// Promise 49.
#[test]
fn output_of_a_shell_profile_is_skipped() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), source());
    let text = "echo Welcome to dtn7!; printf 'no end of line'; echo to stderr >&2\n";
    write_profile(&sshd.home(), text);
    let data = place.path().join("data");
    run(sshd.command("cp").arg("-r").arg(&data).arg("dtn:"))
        .expect(0)
        .says(&["to stderr"]);
    tree::assert_same(&data, &sshd.home().join("data"));
    write_profile(&sshd.home(), "head -c 100000 /dev/zero\n");
    run(sshd.command("cp").arg("-r").arg(&data).arg("dtn:"))
        .expect(3)
        .says(&["profile print nothing"]);
}

// Promise 45.
#[test]
fn ssh_refuses_a_changed_host_key() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    sshd.distrust_host_key();
    run(sshd.command("cp").args(["zero:1MiB", "dtn:null:"]))
        .expect(4)
        .says(&[
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            "dtn: ssh could not log in",
        ]);
    sshd.trust_host_key();
    sshd.lock_out();
    run(sshd.command("cp").args(["zero:1MiB", "dtn:null:"]))
        .expect(4)
        .says(&["Permission denied", "dtn: ssh could not log in"]);
}

#[test]
fn an_unreachable_host_is_a_connection_error() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    let nobody = format!("{} -o Port=1", sshd.ssh());
    let mut command = sshd.command("cp");
    command.env("LONGHAUL_SSH", nobody);
    run(command.args(["zero:1MiB", "dtn:null:"]))
        .expect(3)
        .says(&["Connection refused", "dtn: ssh did not connect"]);
    let mut command = sshd.command("cp");
    command.env("LONGHAUL_SSH", "/nonexistent/ssh");
    run(command.args(["zero:1MiB", "dtn:null:"]))
        .expect(6)
        .says(&["cannot start /nonexistent/ssh", "--ssh"]);
}

#[test]
fn missing_remote_longhaul_is_reported() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        // This excludes binaries in the `PATH` of this machine.
        config: "SetEnv PATH=/usr/bin:/bin",
        ..Setting::default()
    });
    run(sshd.bare_command("cp").args(["zero:1MiB", "dtn:null:"]))
        .expect(3)
        .says(&["there is no longhaul on the remote host (Linux "]);
    let bin = sshd.home().join(".local/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_longhaul"), bin.join("longhaul")).unwrap();
    run(sshd.bare_command("cp").args(["zero:1MiB", "dtn:null:"])).expect(0);
}

#[test]
fn remote_failures_are_named() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    run(sshd.command("cp").args(["dtn:missing", "."]))
        .expect(6)
        .says(&["missing"]);
    std::fs::write(sshd.home().join("file"), "").unwrap();
    run(sshd.command("cp").args(["-r", "dtn:file/x/y", "."])).expect(6);
    run(sshd.command("cp").args(["-n", "zero:1MiB", "dtn:new"]))
        .expect(0)
        .says(&["1 new"]);
    assert!(!sshd.home().join("new").exists());
    let clear = ["--data-security", "clear", "zero:1MiB", "dtn:new"];
    run(sshd.command("cp").args(clear))
        .expect(1)
        .says(&["always encrypted"]);
}

fn apart() -> Sshd {
    Sshd::with(&Setting {
        apart: true,
        ..Setting::default()
    })
}

/// Copies there and back; gives the ways that the data went.
fn there_and_back(sshd: &Sshd) -> [String; 2] {
    let place = source();
    let (data, back) = (place.path().join("data"), place.path().join("back"));
    let mut there = sshd.command("cp");
    let there = run(there.args(["-r", "--json"]).arg(&data).arg("dtn:")).expect(0);
    tree::assert_same(&data, &sshd.home().join("data"));
    let mut again = sshd.command("cp");
    let again = run(again.args(["-r", "--json", "dtn:data"]).arg(&back)).expect(0);
    tree::assert_same(&data, &back.join("data"));
    [there, again].map(|done| done.summary()["route"].as_str().unwrap().to_owned())
}

// Promise 47.
#[test]
fn data_go_directly_if_the_remote_host_accepts_connections() {
    if is_possible() {
        let sshd = apart();
        sshd.close_client();
        assert_eq!(there_and_back(&sshd), ["outward", "outward"]);
    }
}

#[test]
fn the_remote_host_connects_if_only_this_host_accepts_connections() {
    if is_possible() {
        let sshd = apart();
        sshd.close_server();
        assert_eq!(there_and_back(&sshd), ["inward", "inward"]);
    }
}

#[test]
fn several_ssh_channels_carry_the_data_if_no_port_opens() {
    if !is_possible() {
        return;
    }
    let sshd = apart();
    sshd.close_server();
    sshd.close_client();
    there_and_back(&sshd);
    // The source is endless, so that the copy continues until the second connection exists.
    let mut command = sshd.command("cp");
    command.args(["--json", "--mptcp", "zero:1TB", "dtn:null:"]);
    let running = Running::start(&mut command);
    assert!(running.event(|event| has_streams(event, 2)).is_some());
    // SSH channels carry data until it is certain that no direct stream opens.
    running.await_words("--mptcp: no stream opens");
    running.signal(Signal::INT);
    let finished = running.wait().expect(130);
    assert_eq!(finished.summary()["route"], "ssh");
    let told = finished.errors.matches("--mptcp: no stream opens").count();
    assert_eq!(told, 1, "{}", finished.errors);
}

#[test]
fn direct_streams_come_from_the_bound_addresses() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    let bound = ["127.0.0.8", "127.0.0.9"];
    // Endless, so that it is not done before both have a stream.
    let mut command = sshd.command("cp");
    for address in bound {
        command.args(["--bind", address]);
    }
    command.args(["--json", "zero:1TB", "dtn:null:"]);
    let running = Running::start(&mut command);
    let has_both = |event: &Value| {
        let none = Vec::new();
        let paths = event["paths"].as_array().unwrap_or(&none);
        let sent = |address: &&str| {
            let mut from = paths.iter().filter(|path| path["local"] == **address);
            from.any(|path| path["sent_bytes"].as_u64() > Some(0))
        };
        bound.iter().all(sent)
    };
    assert!(running.event(has_both).is_some());
    running.signal(Signal::INT);
    running.wait().expect(130);
    let mut missing = sshd.command("cp");
    missing.args(["--bind", "203.0.113.9", "zero:1MB", "dtn:null:"]);
    run(&mut missing).expect(6).says(&["--bind 203.0.113.9"]);
}

/// True if a progress event reports at least this number of live streams.
fn has_streams(event: &Value, count: u64) -> bool {
    event["event"] == "progress" && event["streams"].as_u64() >= Some(count)
}

// Promise 47.
#[test]
fn direct_streams_outlive_the_ssh_process() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (apart(), tempfile::tempdir().unwrap());
    sshd.close_client();
    let file = place.path().join("pid");
    // The first process is the one of the session. If direct connections take long to open, further
    // processes log in.
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -G ] || [ -e {file} ] || echo $$ >{file}\nexec {ssh} \"$@\"\n",
        file = file.display(),
        ssh = sshd.ssh()
    );
    let script = script(place.path().join("ssh"), &text);
    let mut command = sshd.command("cp");
    command.arg("--ssh").arg(&script);
    command.args(["--json", "--streams", "2", "zero:1TB", "dtn:null:"]);
    let running = Running::start(&mut command);
    assert!(running.event(|event| has_streams(event, 3)).is_some());
    let pid = std::fs::read_to_string(&file).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    // The stream over the SSH channel has ended, and the data continue.
    let moved = |event: &Value| event["moved_bytes"].as_u64();
    let alone = |event: &Value| has_streams(event, 2) && !has_streams(event, 3);
    let then = moved(&running.event(alone).unwrap());
    let further = |event: &Value| moved(event) > then.map(|bytes| bytes + 100_000_000);
    assert!(running.event(further).is_some());
    running.signal(Signal::INT);
    assert_eq!(running.wait().expect(130).summary()["route"], "outward");
}

/// This binary without what only a debugger reads.
fn stripped(place: &Path) -> std::path::PathBuf {
    let binary = place.join("longhaul");
    let mut strip = std::process::Command::new("strip");
    strip
        .arg("-o")
        .arg(&binary)
        .arg(env!("CARGO_BIN_EXE_longhaul"));
    assert!(strip.status().unwrap().success());
    binary
}

// Promise 48.
#[test]
fn install_remote_installs_longhaul() {
    if !is_possible() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let binary = stripped(place.path());
    let path = "SetEnv PATH=/usr/bin:/bin";
    let copy = |setting: &Setting<'_>| {
        let sshd = Sshd::with(setting);
        let mut command = sshd.command_of(&binary, "cp");
        command.args(["--install-remote", "zero:1MiB", "dtn:file"]);
        (run(&mut command), sshd)
    };
    let plain = Setting {
        config: path,
        ..Setting::default()
    };
    let (done, sshd) = copy(&plain);
    done.expect(0)
        .says(&["put longhaul", "/.cache/longhaul/longhaul-", "BLAKE3"]);
    let mode = std::os::unix::fs::PermissionsExt::mode;
    let file = sshd.home().join("file").metadata().unwrap();
    assert_eq!(
        mode(&file.permissions()) & 0o777,
        0o644,
        "the umask of the remote shell applies"
    );
    let mut again = sshd.command_of(&binary, "cp");
    let again = run(again.args(["zero:1MiB", "dtn:other"])).expect(0);
    assert!(!again.errors.contains("put longhaul"), "{}", again.errors);
    // A full disk truncated it: it is replaced.
    let mut installed = std::fs::read_dir(sshd.home().join(".cache/longhaul")).unwrap();
    let names = installed.by_ref().flatten().map(|entry| entry.path());
    let kept = names.filter(|path| path.is_file()).last().unwrap();
    let whole = kept.metadata().unwrap().len();
    let half = std::fs::read(&kept).unwrap()[..whole as usize / 2].to_vec();
    // The process of the copy before may not have ended: its file stays.
    std::fs::remove_file(&kept).unwrap();
    std::fs::write(&kept, half).unwrap();
    std::fs::set_permissions(&kept, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let repair = |options: &[&str]| {
        let mut command = sshd.command_of(&binary, "cp");
        run(command.args(options).args(["zero:1MiB", "dtn:third"]))
    };
    repair(&[]).expect(3).says(&["--install-remote"]);
    repair(&["--install-remote"])
        .expect(0)
        .says(&["put longhaul"]);
    assert_eq!(kept.metadata().unwrap().len(), whole);
}

/// Shell commands that prevent programs from running in the home.
const NO_PROGRAMS: &str = "mkdir $far/.cache; mount -t tmpfs -o noexec none $far/.cache;";

// Promise 48.
#[test]
fn install_remote_uses_another_directory_if_programs_do_not_run_in_the_home() {
    if !is_possible() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let binary = stripped(place.path());
    for (before, why) in [
        (NO_PROGRAMS, "programs do not run there (mounted noexec)"),
        (
            "mount -o remount,bind,ro $far",
            "the directory cannot be made or written",
        ),
        (
            "mkdir $far/.cache; mount -t tmpfs -o size=1m none $far/.cache",
            "no room for it (a full disk or quota?)",
        ),
    ] {
        let sshd = Sshd::with(&Setting {
            config: "SetEnv PATH=/usr/bin:/bin",
            before,
            ..Setting::default()
        });
        let mut command = sshd.command_of(&binary, "cp");
        command.args(["--install-remote", "zero:1MiB", "dtn:null:"]);
        let home = "/.cache/longhaul: ";
        run(&mut command)
            .expect(0)
            .says(&[home, why, "into dtn:/var/tmp/longhaul-0/longhaul-"]);
        let mut again = sshd.command_of(&binary, "cp");
        let again = run(again.args(["--install-remote", "zero:1MiB", "dtn:null:"])).expect(0);
        assert!(!again.errors.contains("put longhaul"), "{}", again.errors);
    }
}

#[test]
fn install_remote_names_each_unusable_directory() {
    if !is_possible() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let binary = stripped(place.path());
    let nowhere = format!(
        "{NO_PROGRAMS} mount -o remount,noexec /var/tmp; mount --bind /tmp /tmp; \
         mount -o remount,bind,noexec /tmp"
    );
    let sshd = Sshd::with(&Setting {
        config: "SetEnv PATH=/usr/bin:/bin",
        before: &nowhere,
        ..Setting::default()
    });
    let mut command = sshd.command_of(&binary, "cp");
    command.args(["--install-remote", "zero:1MiB", "dtn:null:"]);
    run(&mut command).expect(3).says(&[
        "could not be put there",
        "/.cache/longhaul: programs do not run there",
        "/var/tmp/longhaul-0: programs do not run there",
        "/tmp/longhaul-0: programs do not run there",
        "set XDG_CACHE_HOME there",
    ]);
    // Another user's directory is left alone.
    let foreign = format!(
        "{NO_PROGRAMS} mkdir /var/tmp/longhaul-0; chown 4242 /var/tmp/longhaul-0; \
         mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp"
    );
    let sshd = Sshd::with(&Setting {
        config: "SetEnv PATH=/usr/bin:/bin",
        before: &foreign,
        ..Setting::default()
    });
    let mut command = sshd.command_of(&binary, "cp");
    command.args(["--install-remote", "zero:1MiB", "dtn:null:"]);
    run(&mut command)
        .expect(3)
        .says(&["/var/tmp/longhaul-0: it or the directory above it is not yours alone"]);
    // Others could put another one there.
    let open = format!(
        "{NO_PROGRAMS} mkdir /var/tmp/open; chmod 777 /var/tmp/open; mount -o remount,noexec /var/tmp; \
         mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp"
    );
    let sshd = Sshd::with(&Setting {
        config: "SetEnv PATH=/usr/bin:/bin SCRATCH=/var/tmp/open",
        before: &open,
        ..Setting::default()
    });
    let mut command = sshd.command_of(&binary, "cp");
    command.args(["--install-remote", "zero:1MiB", "dtn:null:"]);
    run(&mut command)
        .expect(3)
        .says(&["/var/tmp/open/.longhaul-0: it or the directory above it is not yours alone"]);
}

// Promise 48.
#[test]
fn install_remote_replaces_another_release_over_the_same_login() {
    if !is_possible() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let binary = stripped(place.path());
    let sshd = Sshd::with(&Setting {
        config: "SetEnv PATH=/usr/bin:/bin",
        ..Setting::default()
    });
    let bin = sshd.home().join(".local/bin");
    std::fs::create_dir_all(&bin).unwrap();
    script(bin.join("longhaul"), "#!/bin/sh\necho longhaul 0.0.1\n");
    let mut command = sshd.command_of(&binary, "ls");
    run(command.args(["--install-remote", "dtn:"]))
        .expect(0)
        .says(&["put longhaul"]);
    let log = sshd.log();
    assert_eq!(log.matches("Accepted ").count(), 1, "{log}");
}
