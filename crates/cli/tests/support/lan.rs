//! Three hosts, each joined to both others by a wire: where the user sits, and
//! two with an sshd, `left` and `right`.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Pid;
use tempfile::TempDir;

use super::process::Running;
use super::procfs;
use super::sshd::{PORTS, Sshd};

/// Each end of each wire: the host, the other one, the address.
const WIRES: [(&str, &str, &str); 6] = [
    ("here", "left", "10.80.1.1"),
    ("left", "here", "10.80.1.2"),
    ("here", "right", "10.80.2.1"),
    ("right", "here", "10.80.2.2"),
    ("left", "right", "10.80.3.1"),
    ("right", "left", "10.80.3.2"),
];

pub struct Lan {
    /// They end before what they serve is removed.
    _running: [Running; 2],
    pub left: Sshd,
    pub right: Sshd,
    names: Names,
    place: TempDir,
}

/// The network namespaces' names, which end with it.
struct Names(String);

impl Names {
    fn of(&self, host: &str) -> String {
        format!("{}-{host}", self.0)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for host in ["here", "left", "right"] {
            let host = self.of(host);
            // If this fails, the test fails too.
            let _ = Command::new("ip").args(["netns", "del", &host]).status();
        }
    }
}

impl Lan {
    pub fn new() -> Lan {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = Names(format!("lhl{}-{number}", std::process::id()));
        for host in ["here", "left", "right"] {
            ip(&format!("netns add {}", names.of(host)));
            ip(&format!("-n {} link set lo up", names.of(host)));
        }
        for [one, two] in [["here", "left"], ["here", "right"], ["left", "right"]] {
            ip(&format!(
                "link add to-{two} netns {} type veth peer name to-{one} netns {}",
                names.of(one),
                names.of(two)
            ));
        }
        for (host, other, address) in WIRES {
            let host = names.of(host);
            ip(&format!("-n {host} addr add {address}/24 dev to-{other}"));
            ip(&format!("-n {host} link set to-{other} up"));
        }
        // One address of the right host is enough for all connections.
        ip(&format!(
            "-n {} route add 10.80.2.2 via 10.80.3.2",
            names.of("left")
        ));
        let (left, left_runs) = start(&names, "left", "10.80.1.2");
        let (right, right_runs) = start(&names, "right", "10.80.2.2");
        let place = tempfile::tempdir().unwrap();
        let config = format!(
            "Include {}\nMatch all\nInclude {}\n",
            left.at_place("ssh_config").display(),
            right.at_place("ssh_config").display()
        );
        std::fs::write(place.path().join("ssh_config"), config).unwrap();
        Lan {
            left,
            right,
            _running: [left_runs, right_runs],
            names,
            place,
        }
    }

    /// Blocks connections from one host to the session ports of the other.
    pub fn close(&self, from: &str, to: &str) {
        let wires = WIRES.iter().filter(|(host, _, _)| *host == to);
        for (_, _, address) in wires {
            let from = self.names.of(from);
            ip(&format!(
                "-n {from} rule add to {address} ipproto tcp dport {PORTS} prohibit"
            ));
        }
    }

    fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    /// Removes the local records of jobs.
    pub fn forget(&self) {
        std::fs::remove_dir_all(self.state()).unwrap();
    }

    /// `longhaul` where the user sits.
    pub fn command(&self, subcommand: &str) -> Command {
        let config = self.place.path().join("ssh_config");
        let binary = env!("CARGO_BIN_EXE_longhaul");
        let mut command = within(&self.names.of("here"), binary);
        command
            .arg(subcommand)
            .env("LONGHAUL_SSH", format!("ssh -F {}", config.display()))
            .env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul")
            .env("XDG_STATE_HOME", self.state())
            .args(["--remote-longhaul", binary]);
        command
    }

    /// `longhaul cp` where the user sits.
    pub fn copy(&self) -> Command {
        let mut command = self.command("cp");
        command.args(["--ports", PORTS]);
        command
    }

    /// Returns the processes on one of the hosts whose command line contains the text.
    pub fn processes(&self, host: &str, of: &str) -> Vec<Pid> {
        let namespace = format!("/run/netns/{}", self.names.of(host));
        let number = std::fs::metadata(namespace).unwrap().ino();
        let there = PathBuf::from(format!("net:[{number}]"));
        let fit = |pid: &i32| {
            let within = std::fs::read_link(format!("/proc/{pid}/ns/net"));
            procfs::command_of(*pid).contains(of) && within.is_ok_and(|within| within == there)
        };
        let pids = procfs::processes().into_iter().filter(fit);
        pids.filter_map(Pid::from_raw).collect()
    }

    /// The same command on one of the hosts.
    pub fn on(&self, host: &str, command: &Command) -> Command {
        let mut on = within(&self.names.of(host), command.get_program());
        on.args(command.get_args());
        for (name, value) in command.get_envs() {
            on.env(name, value.unwrap_or_default());
        }
        on
    }
}

/// An sshd on one of the hosts, which the client's ssh calls by the host's name.
fn start(names: &Names, host: &str, address: &'static str) -> (Sshd, Running) {
    let (sshd, script) = Sshd::at(address);
    let file = sshd.at_place("ssh_config");
    let config = std::fs::read_to_string(&file).unwrap();
    let named = config.replacen("Host dtn", &format!("Host {host}"), 1);
    assert_ne!(named, config);
    std::fs::write(file, named).unwrap();
    let mut command = within(&names.of(host), "unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg("sh")
        .arg(script);
    let running = Running::start(&mut command);
    loop {
        match running.line() {
            Some(line) if line.contains("Server listening on") => return (sshd, running),
            Some(_) => {}
            None => panic!("sshd did not start: {:?}", running.wait()),
        }
    }
}

fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    assert!(command.status().unwrap().success(), "ip {arguments}");
}

fn within(host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(program);
    command
}
