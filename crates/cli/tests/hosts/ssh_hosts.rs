//! Copies over SSH to hosts as they are: behind others, with dead addresses,
//! behind NAT, with old configurations, full or read-only.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::process::{Finished, longhaul, run, script};
use crate::support::sshd::{PORTS, Setting, Sshd, is_possible};
use crate::support::{assert_no_leftovers, tree};
use tempfile::TempDir;

fn source() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    tree::mixed_tree(&place.path().join("data"), 40, 4 << 20);
    place
}

/// Copies a tree there with this ssh, and compares; gives how the data went.
fn copy_with(sshd: &Sshd, ssh: &str) -> Finished {
    let place = source();
    let data = place.path().join("data");
    let mut command = sshd.command("cp");
    command.env("LONGHAUL_SSH", ssh).args(["-r", "--json"]);
    let done = run(command.arg(&data).arg("dtn:")).expect(0);
    tree::assert_same(&data, &sshd.home().join("data"));
    assert_no_leftovers(&sshd.home());
    done
}

#[test]
fn a_host_behind_another_is_reached_through_it() {
    if !is_possible() {
        return;
    }
    // Only the jump host knows the name.
    let jump = Sshd::with(&Setting {
        before: "echo 127.0.0.1 dtn.internal >$home/hosts; mount --bind $home/hosts /etc/hosts",
        ..Setting::default()
    });
    let sshd = Sshd::start();
    let mut command = sshd.command("cp");
    command.env("LONGHAUL_SSH", sshd.ssh_by_name("dtn.internal"));
    run(command.args(["zero:1kB", "dtn:null:"])).expect(3);
    copy_with(&sshd, &sshd.ssh_behind(&jump, "dtn.internal"));
}

#[test]
fn the_reachable_one_of_two_addresses_is_used() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        apart: true,
        ..Setting::default()
    });
    sshd.close_client();
    // The first address belongs to no host. The resolver considers both addresses equally near.
    let _files = sshd.name_for_client("10.79.0.3 dtn.lab\n10.79.0.2 dtn.lab\n");
    let done = copy_with(&sshd, &sshd.ssh_by_name("dtn.lab"));
    assert_eq!(done.summary()["route"], "outward");
}

/// Labs need a device that not every container has.
fn labs_work() -> bool {
    let works = Path::new("/dev/net/tun").exists();
    if !works {
        longhaul_testing::skip("labs need /dev/net/tun");
    }
    works
}

/// Copies zeros from behind NAT, over an emulated path; gives how they went.
fn from_behind_nat(options: &[&str]) -> String {
    let (sshd, script) = Sshd::at("198.18.20.1");
    let server = format!(
        "unshare --mount --pid --fork --kill-child --mount-proc sh {}",
        script.display()
    );
    let mut command = longhaul();
    command
        .args(["lab", "run", "--quiet", "--rtt", "5ms", "--nat", "a"])
        .args(options)
        .args(["--server", &server, "--"])
        .arg(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "--json", "--ssh", &sshd.ssh()])
        .args(["--remote-longhaul", env!("CARGO_BIN_EXE_longhaul")])
        .args(["--ports", "50000-50000", "zero:64MB", "dtn:file"]);
    let done = run(&mut command).expect(0);
    let file = sshd.home().join("file");
    assert_eq!(std::fs::metadata(file).unwrap().len(), 64_000_000);
    // These are the blocks for a path of 5 ms, as measured on ssh's own connection.
    assert_eq!(done.summary()["block_bytes"], 1 << 20);
    done.summary()["route"].as_str().unwrap().to_owned()
}

#[test]
fn data_from_behind_nat_go_outward_or_through_ssh() {
    if is_possible() && labs_work() {
        assert_eq!(from_behind_nat(&[]), "outward");
        assert_eq!(from_behind_nat(&["--block", "b:50000"]), "ssh");
    }
}

// Promise 47.
#[test]
fn if_all_named_ports_are_in_use_data_go_through_ssh() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    // Both ends run on this host: neither may listen.
    let held = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let mut command = sshd.command("cp");
    command.args(["--json", "--ports", &port.to_string()]);
    let done = run(command.args(["zero:8MB", "dtn:file"])).expect(0);
    assert_eq!(done.summary()["route"], "ssh");
    let said = format!("all ports of --ports {port}-{port} are in use");
    assert_eq!(done.errors.matches(&said).count(), 2, "{}", done.errors);
    let file = sshd.home().join("file");
    assert_eq!(std::fs::metadata(file).unwrap().len(), 8_000_000);
}

/// Shell commands that give root a password, in the server's namespaces alone.
const PASSWORD: &str = "hash=$(openssl passwd -6 sesame); \
    sed \"s|^root:[^:]*:|root:$hash:|\" /etc/shadow >$home/.shadow; chmod 600 $home/.shadow; \
    mount --bind $home/.shadow /etc/shadow; rm -f $home/.shadow || true";

#[test]
fn a_copy_works_with_a_password_login() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        apart: true,
        config: "PasswordAuthentication yes\nPubkeyAuthentication no",
        before: PASSWORD,
    });
    sshd.close_server();
    sshd.close_client();
    let script = script(sshd.at_place("askpass"), "#!/bin/sh\necho sesame\n");
    let place = source();
    let data = place.path().join("data");
    let mut command = sshd.command("cp");
    command
        .env("SSH_ASKPASS", &script)
        .env("SSH_ASKPASS_REQUIRE", "force");
    let done = run(command.args(["-r", "--json"]).arg(&data).arg("dtn:")).expect(0);
    assert_eq!(done.summary()["route"], "ssh");
    tree::assert_same(&data, &sshd.home().join("data"));
}

#[test]
fn a_copy_works_with_old_algorithms_and_a_shared_connection() {
    if !is_possible() {
        return;
    }
    // This is the configuration of an old release: few algorithms, one session for each connection.
    let old = Sshd::with(&Setting {
        config: "Ciphers aes128-ctr\nMACs hmac-sha2-256\nMaxSessions 1\n\
                 KexAlgorithms diffie-hellman-group14-sha256",
        ..Setting::default()
    });
    old.configure_client(" ControlMaster no\n");
    copy_with(&old, &old.ssh());
    // The user's own connection carries the first channel.
    let shared = Sshd::start();
    let socket = shared.at_place("master");
    let socket = socket.display();
    shared.configure_client(&format!(
        " ControlMaster auto\n ControlPath {socket}\n ControlPersist 20\n"
    ));
    copy_with(&shared, &shared.ssh());
    let again = shared.home().join("data");
    std::fs::remove_dir_all(again).unwrap();
    copy_with(&shared, &shared.ssh());
    let mut leave = std::process::Command::new("ssh");
    leave.args(["-F", shared.at_place("ssh_config").to_str().unwrap()]);
    let left = leave.args(["-O", "exit", "dtn"]).output().unwrap();
    assert!(left.status.success(), "there was a master: {left:?}");
}

#[test]
fn a_copy_works_with_few_simultaneous_logins() {
    if !is_possible() {
        return;
    }
    // Every login beyond two that are under way is dropped.
    let sshd = Sshd::with(&Setting {
        apart: true,
        config: "MaxStartups 2:100:2\nMaxSessions 1",
        ..Setting::default()
    });
    sshd.close_server();
    sshd.close_client();
    let done = copy_with(&sshd, &sshd.ssh());
    assert_eq!(done.summary()["route"], "ssh");
}

#[test]
fn ssh_refuses_an_unknown_host() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    sshd.forget_host_key();
    run(sshd.command("cp").args(["zero:1kB", "dtn:null:"]))
        .expect(4)
        .says(&["Host key verification failed", "dtn: ssh could not log in"]);
}

#[test]
fn a_full_remote_disk_is_named() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        before: "mkdir $far/full; mount -t tmpfs -o size=4m none $far/full",
        ..Setting::default()
    });
    run(sshd.command("cp").args(["zero:20MB", "dtn:full/"]))
        .expect(2)
        .says(&["No space left", "free some room"]);
    let place = source();
    let data = place.path().join("data");
    let many = run(sshd.command("cp").arg("-r").arg(&data).arg("dtn:full"));
    assert!(matches!(many.code, Some(0 | 2)), "{many:?}");
}

#[test]
fn a_read_only_home_is_copied_from_and_refuses_writes() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        before: "mkdir $far/data; echo content >$far/data/file; mount -o remount,bind,ro $far",
        ..Setting::default()
    });
    let place = tempfile::tempdir().unwrap();
    let mut back = sshd.command("cp");
    run(back.args(["-r", "dtn:data"]).arg(place.path())).expect(0);
    let got = std::fs::read_to_string(place.path().join("data/file")).unwrap();
    assert_eq!(got, "content\n");
    run(sshd.command("cp").args(["zero:1kB", "dtn:new"]))
        .expect(6)
        .says(&["Read-only file system"]);
}

#[test]
fn ports_of_a_range_are_used_at_both_ends() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        apart: true,
        ..Setting::default()
    });
    let place = source();
    let data = place.path().join("data");
    let mut command = sshd.command("cp");
    let done = run(command.arg("-r").arg(&data).arg("dtn:")).expect(0);
    let first: u16 = PORTS.split('-').next().unwrap().parse().unwrap();
    let used = done.errors.lines().find_map(|line| {
        let address = line.strip_prefix("direct connections, opened from here to ")?;
        address.parse::<std::net::SocketAddr>().ok()
    });
    let port = used.unwrap_or_else(|| panic!("{}", done.errors)).port();
    assert!((first..first + 10).contains(&port), "{port}");
}
