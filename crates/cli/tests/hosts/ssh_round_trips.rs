//! Compares the round trips through the user's own master before the data of a copy leave with
//! those of `ssh host true`. They are counted, not timed. A message of an end counts as an answer
//! to all messages that reached it before. So a count may be too high, but never too low.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::process::run;
use crate::support::round_trips::Relay;
use crate::support::sshd::{Setting, Sshd, is_possible};

/// Runs of each: the least count is the closest.
const TRIES: usize = 5;

/// Round trips after the end of `ssh host true` within which the data must leave.
const MORE: u64 = 2;

/// More than all messages of a session's start.
const DATA_BYTES: u64 = 128 << 10;

#[test]
fn data_leave_at_most_two_round_trips_after_a_login_through_the_same_master() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        apart: true,
        ..Setting::default()
    });
    // All data go through the channel.
    sshd.close_server();
    sshd.close_client();
    let relay = Relay::within(&sshd.client_network(), sshd.server_address());
    let socket = sshd.at_place("master");
    let port = relay.address.port();
    sshd.configure_client(&format!(
        " ControlPath {}\n ProxyCommand bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & exec \
         cat >&3'\n",
        socket.display()
    ));
    sshd.start_master();
    let logins = (0..TRIES).map(|_| {
        relay.begin(DATA_BYTES);
        run(sshd.ssh_command().args(["dtn", "true"])).expect(0);
        relay.passed().answered
    });
    let login = logins.min().unwrap();
    assert!(login >= 1, "no data went through the relay");
    let copies = (0..TRIES).map(|_| {
        relay.begin(DATA_BYTES);
        let mut copy = sshd.command("cp");
        let copied = run(copy.args(["--json", "zero:4MB", "dtn:null:"])).expect(0);
        assert_eq!(copied.summary()["route"], "ssh", "{}", copied.summary());
        relay
            .passed()
            .before_data
            .expect("no data went through the relay")
    });
    let copy = copies.min().unwrap();
    println!("ssh host true: {login} round trips, data leave after {copy}");
    assert!(copy <= login + MORE, "{copy} round trips, beside {login}");
    run(sshd.ssh_command().args(["-O", "exit", "dtn"])).expect(0);
}
