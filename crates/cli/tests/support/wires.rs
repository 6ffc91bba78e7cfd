//! Two hosts joined by two wires, each a path: `near` and `far`.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The wires' rate, so that one alone cannot carry what two can.
const RATE: &str = "80mbit";

pub struct Wires {
    name: String,
}

impl Wires {
    /// Returns `None`, with a message, if the kernel cannot limit the rate of a wire.
    pub fn new() -> Option<Wires> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let wires = Wires {
            name: format!("lhw{}-{number}", std::process::id()),
        };
        let [near, far] = ["near", "far"].map(|host| wires.host(host));
        for host in [&near, &far] {
            ip(&format!("netns add {host}"));
            ip(&format!("-n {host} link set lo up"));
        }
        for wire in 1..=2 {
            ip(&format!(
                "link add wire{wire} netns {near} type veth peer name wire{wire} netns {far}"
            ));
            for (last, host) in [(1, &near), (2, &far)] {
                ip(&format!(
                    "-n {host} addr add 10.81.{wire}.{last}/24 dev wire{wire}"
                ));
                ip(&format!("-n {host} link set wire{wire} up"));
                let limit = format!("dev wire{wire} root tbf rate {RATE} burst 64kb latency 50ms");
                if !run(host, &format!("tc qdisc add {limit}")) {
                    longhaul_testing::skip_without_kernel("no token bucket (sch_tbf, tc)");
                    return None;
                }
            }
        }
        Some(wires)
    }

    /// Permits the kernel of `near` to use the second wire for Multipath TCP.
    pub fn announce(&self) {
        let near = self.host("near");
        ip(&format!("-n {near} mptcp limits set subflow 4"));
        ip(&format!(
            "-n {near} mptcp endpoint add 10.81.2.1 dev wire2 subflow"
        ));
    }

    /// Routes packets from the second address over the second wire.
    pub fn route_by_address(&self) {
        let near = self.host("near");
        ip(&format!("-n {near} rule add from 10.81.2.1 table 82"));
        ip(&format!(
            "-n {near} route add default via 10.81.2.2 dev wire2 table 82"
        ));
    }

    pub fn set_multipath(&self, host: &str, on: bool) {
        let setting = format!("sysctl -q -w net.mptcp.enabled={}", u8::from(on));
        assert!(run(&self.host(host), &setting), "{setting}");
    }

    /// A command on one of the hosts.
    pub fn on(&self, host: &str, command: &Command) -> Command {
        let mut on = within(&self.host(host), command.get_program());
        on.args(command.get_args());
        for (name, value) in command.get_envs() {
            on.env(name, value.unwrap_or_default());
        }
        on
    }

    /// Cuts a wire.
    pub fn cut(&self, wire: u32) {
        let far = self.host("far");
        ip(&format!("-n {far} link set wire{wire} down"));
    }

    /// Bytes that left `near` on each wire.
    pub fn sent(&self) -> [u64; 2] {
        [1, 2].map(|wire| {
            let mut command = within(&self.host("near"), "cat");
            command.arg(format!("/sys/class/net/wire{wire}/statistics/tx_bytes"));
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            text.trim().parse().unwrap()
        })
    }

    fn host(&self, host: &str) -> String {
        format!("{}-{host}", self.name)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for host in ["near", "far"] {
            let host = self.host(host);
            // If this fails, the test fails too.
            let _ = Command::new("ip").args(["netns", "del", &host]).status();
        }
    }
}

fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    assert!(command.status().unwrap().success(), "ip {arguments}");
}

/// Runs a command on a host. Returns true if it succeeded.
fn run(host: &str, line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = within(host, words.next().unwrap());
    command.args(words).status().unwrap().success()
}

fn within(host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(program);
    command
}
