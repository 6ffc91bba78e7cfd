//! A real sshd on loopback, with separate keys, configuration and home, in namespaces that end with
//! the test.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::process::Running;

/// Path of sshd in Debian.
const SSHD: &str = "/usr/sbin/sshd";

/// True if these tests can run. Otherwise prints the reason for the skip.
pub fn is_possible() -> bool {
    if !super::is_root() {
        return false;
    }
    let there = Path::new(SSHD).exists();
    if !there {
        longhaul_testing::skip(&format!("{SSHD} is missing (Debian: openssh-server)"));
    }
    there
}

/// Differences of a server from the default one.
#[derive(Default)]
pub struct Setting<'a> {
    /// Lines of `sshd_config`.
    pub config: &'a str,
    /// If true, the server is on a separate host, connected to the client's host by a wire.
    /// Otherwise it is on loopback.
    pub apart: bool,
    /// Shell commands before it starts, in its namespaces, where `$far` is the
    /// user's home.
    pub before: &'a str,
}

pub struct Sshd {
    running: Option<Running>,
    place: TempDir,
    port: u16,
    wire: Option<Wire>,
    /// Address of the server if it is neither on loopback nor on a wire.
    elsewhere: Option<&'static str>,
}

/// Two network namespaces, the client's and the server's, with a wire.
struct Wire {
    client: String,
    server: String,
}

/// Ports that the tests' sessions may listen on, apart.
pub const PORTS: &str = "50000-50009";

impl Wire {
    fn new() -> Wire {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [client, server] =
            ["c", "s"].map(|end| format!("lh{end}{}-{number}", std::process::id()));
        ip(&format!("netns add {client}"));
        ip(&format!("netns add {server}"));
        ip(&format!(
            "link add wire netns {client} type veth peer name wire netns {server}"
        ));
        for (host, address) in [(&client, CLIENT), (&server, SERVER)] {
            ip(&format!("-n {host} link set lo up"));
            ip(&format!("-n {host} addr add {address}/24 dev wire"));
            ip(&format!("-n {host} link set wire up"));
        }
        Wire { client, server }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for host in [&self.client, &self.server] {
            // If this fails, the test fails too.
            let _ = Command::new("ip").args(["netns", "del", host]).status();
        }
    }
}

const CLIENT: &str = "10.79.0.1";
const SERVER: &str = "10.79.0.2";

fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    assert!(command.status().unwrap().success(), "ip {arguments}");
}

impl Sshd {
    pub fn start() -> Sshd {
        Sshd::with(&Setting::default())
    }

    /// The user is root, and his home an empty directory.
    pub fn with(setting: &Setting<'_>) -> Sshd {
        let mut sshd = Sshd::prepare(setting.config, setting.apart.then(Wire::new), None);
        sshd.run(setting.before);
        sshd
    }

    /// Prepares a server that the test starts on another host with this address. Returns the server
    /// and the path of its start script.
    pub fn at(address: &'static str) -> (Sshd, PathBuf) {
        let sshd = Sshd::prepare("", None, Some(address));
        let script = sshd.at_place("server.sh");
        std::fs::write(&script, sshd.script("")).unwrap();
        (sshd, script)
    }

    fn prepare(config: &str, wire: Option<Wire>, elsewhere: Option<&'static str>) -> Sshd {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        std::fs::create_dir(at.join("home")).unwrap();
        make_key(&at.join("host_key"));
        make_key(&at.join("user_key"));
        std::fs::copy(at.join("user_key.pub"), at.join("authorized")).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let sshd = Sshd {
            running: None,
            place,
            port,
            wire,
            elsewhere,
        };
        sshd.configure(config);
        sshd.trust_host_key();
        sshd
    }

    /// A file beside its home.
    pub fn at_place(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn configure(&self, more: &str) {
        let at = self.place.path().display();
        let (port, address) = (self.port, self.address());
        let server = format!(
            "{more}\nPort {port}\nListenAddress {address}\nHostKey {at}/host_key\n\
             AuthorizedKeysFile {at}/authorized\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nPrintMotd no\n"
        );
        std::fs::write(self.at_place("sshd_config"), server).unwrap();
        let client = format!(
            "Host dtn\n HostName {address}\n Port {port}\n User root\n IdentityFile {at}/user_key\n \
             IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {at}/known_hosts\n \
             GlobalKnownHostsFile none\n StrictHostKeyChecking yes\n"
        );
        std::fs::write(self.at_place("ssh_config"), client).unwrap();
    }

    /// Logs in once for several commands: starts a master if the configuration has one.
    pub fn start_master(&self) {
        let mut command = self.ssh_command();
        command.args(["-M", "-N", "-f", "dtn"]);
        // An inherited stream would stay open as long as the master.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = command.stderr(Stdio::null()).status();
        assert!(started.unwrap().success());
    }

    /// The client's ssh, on the client's host.
    pub fn ssh_command(&self) -> Command {
        let ssh = shlex::split(&self.ssh()).unwrap();
        let mut command = match &self.wire {
            Some(wire) => within(&wire.client, &ssh[0]),
            None => Command::new(&ssh[0]),
        };
        command.args(&ssh[1..]);
        command
    }

    /// The network namespace of the client's host, apart.
    pub fn client_network(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.wire.as_ref().unwrap().client)
    }

    /// Ends it, and gives all that it logged.
    pub fn log(mut self) -> String {
        let ended = self.running.take().unwrap().kill();
        String::from_utf8_lossy(&ended.output).into_owned()
    }

    /// Adds the host key to `known_hosts`, as a first login does.
    pub fn trust_host_key(&self) {
        let key = std::fs::read_to_string(self.at_place("host_key.pub")).unwrap();
        let line = format!("[{}]:{} {key}", self.address(), self.port);
        std::fs::write(self.at_place("known_hosts"), line).unwrap();
    }

    /// The host has another key than the one that is trusted.
    pub fn distrust_host_key(&self) {
        make_key(&self.at_place("other_key"));
        let key = std::fs::read_to_string(self.at_place("other_key.pub")).unwrap();
        let line = format!("[{}]:{} {key}", self.address(), self.port);
        std::fs::write(self.at_place("known_hosts"), line).unwrap();
    }

    /// Removes the host key from `known_hosts`.
    pub fn forget_host_key(&self) {
        std::fs::write(self.at_place("known_hosts"), "").unwrap();
    }

    /// Removes all authorized keys.
    pub fn lock_out(&self) {
        std::fs::write(self.at_place("authorized"), "").unwrap();
    }

    fn script(&self, before: &str) -> String {
        format!(
            "set -e; home={home}; far=$(getent passwd root | cut -d: -f6); mount --bind $home $far; mount -t tmpfs none /run; \
             mount -t tmpfs -o mode=1777 none /var/tmp; mkdir /run/sshd; {before}\n exec {SSHD} -D -e -f {config} 2>&1",
            home = self.home().display(),
            config = self.at_place("sshd_config").display(),
        )
    }

    fn run(&mut self, before: &str) {
        let script = self.script(before);
        let mut command = match &self.wire {
            Some(wire) => within(&wire.server, "unshare"),
            None => Command::new("unshare"),
        };
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", &script]);
        let running = Running::start(&mut command);
        loop {
            match running.line() {
                Some(line) if line.contains("Server listening on") => break,
                Some(_) => {}
                None => panic!("sshd did not start: {:?}", running.wait()),
            }
        }
        self.running = Some(running);
    }

    /// Returns the address and port of the server.
    pub fn server_address(&self) -> std::net::SocketAddr {
        format!("{}:{}", self.address(), self.port).parse().unwrap()
    }

    fn address(&self) -> &'static str {
        match self.wire {
            Some(_) => SERVER,
            None => self.elsewhere.unwrap_or("127.0.0.1"),
        }
    }

    /// More lines of the client's configuration, for all hosts.
    pub fn configure_client(&self, more: &str) {
        let file = self.at_place("ssh_config");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}Host *\n{more}\n")).unwrap();
    }

    /// Returns the client's ssh for a host whose name differs from its address. The host key is
    /// known under both.
    pub fn ssh_by_name(&self, name: &str) -> String {
        format!(
            "{} -o HostName={name} -o HostKeyAlias=[{}]:{}",
            self.ssh(),
            self.address(),
            self.port
        )
    }

    /// The client's ssh, where another host is on the way, which alone knows
    /// that name.
    pub fn ssh_behind(&self, jump: &Sshd, name: &str) -> String {
        let text = std::fs::read_to_string(jump.at_place("ssh_config")).unwrap();
        let own = std::fs::read_to_string(self.at_place("ssh_config")).unwrap();
        let both = own + &text.replacen("Host dtn", "Host jump", 1);
        std::fs::write(self.at_place("ssh_config"), both).unwrap();
        format!("{} -o ProxyJump=jump", self.ssh_by_name(name))
    }

    /// Writes files that resolve these names on the client's host, until the returned directory is
    /// dropped.
    pub fn name_for_client(&self, hosts: &str) -> ClientFiles {
        let client = &self.wire.as_ref().unwrap().client;
        let directory = Path::new("/etc/netns").join(client);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("hosts"), hosts).unwrap();
        ClientFiles(directory)
    }

    /// Blocks connections to the server's session ports.
    pub fn close_server(&self) {
        let host = &self.wire.as_ref().unwrap().client;
        ip(&format!(
            "-n {host} rule add to {SERVER} ipproto tcp dport {PORTS} prohibit"
        ));
    }

    /// Blocks connections to the client's session ports.
    pub fn close_client(&self) {
        let host = &self.wire.as_ref().unwrap().server;
        ip(&format!(
            "-n {host} rule add to {CLIENT} ipproto tcp dport {PORTS} prohibit"
        ));
    }

    /// Drops connections to the client's session ports without an answer.
    pub fn drop_calls(&self) {
        let host = &self.wire.as_ref().unwrap().client;
        ip(&format!(
            "-n {host} rule add from {CLIENT} ipproto tcp sport {PORTS} blackhole"
        ));
    }

    /// Returns the user's home on the remote host.
    pub fn home(&self) -> PathBuf {
        self.at_place("home")
    }

    /// The client's ssh, as `LONGHAUL_SSH` names it.
    pub fn ssh(&self) -> String {
        format!("ssh -F {}", self.at_place("ssh_config").display())
    }

    /// Returns `longhaul` with a subcommand. It reaches `dtn`, where this same binary runs as the
    /// remote end.
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = self.bare_command(subcommand);
        command.args(["--remote-longhaul", env!("CARGO_BIN_EXE_longhaul")]);
        command
    }

    /// Returns the same command, which uses the longhaul that the remote host finds by itself.
    pub fn bare_command(&self, subcommand: &str) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_longhaul")), subcommand)
    }

    /// The same with another binary on this side.
    pub fn command_of(&self, binary: &Path, subcommand: &str) -> Command {
        let mut command = match &self.wire {
            Some(wire) => within(&wire.client, binary),
            None => Command::new(binary),
        };
        command
            .arg(subcommand)
            .env("LONGHAUL_SSH", self.ssh())
            .env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul")
            .env("XDG_STATE_HOME", self.place.path().join("state"));
        if self.wire.is_some() {
            command.args(["--ports", PORTS]);
        }
        command
    }
}

/// Files that `ip netns exec` puts over those of `/etc`.
pub struct ClientFiles(PathBuf);

impl Drop for ClientFiles {
    fn drop(&mut self) {
        // If this fails, the test fails too.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn within(host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(program);
    command
}

fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"])
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

/// `dtn:` and a path.
pub fn at_dtn(path: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut endpoint = OsString::from("dtn:");
    endpoint.push(path);
    endpoint
}
