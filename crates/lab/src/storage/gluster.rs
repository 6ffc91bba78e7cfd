//! A real parallel file system: GlusterFS with a daemon and a brick per storage node.
//!
//! Each node has its own network namespace, because GlusterFS refuses loopback addresses,
//! and takes nodes that share a namespace for one node. An unlimited network with its own
//! thread connects the nodes and the client, so that storage traffic does not use the
//! path between sites. Daemons keep their state in the lab's directory, separate from a
//! GlusterFS of this machine. A node's brick may be behind a modelled device
//! ([`super::mirror`]).
//!
//! Processes end with the lab. Data are removed with the lab's directory.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::thread::UnshareFlags;

use super::StorageSettings;
use super::mirror::MountedStorage;
use super::plan::GlusterSettings;
use crate::emulator::core::{Core, Port};
use crate::emulator::gate::Gate;
use crate::emulator::store::Store;
use crate::emulator::{Emulator, EmulatorReport};
use crate::isolate::is_unprivileged;
use crate::netns::{self, HostPlan, Namespace, NamespaceError};
use crate::processes::listens_in;

/// Programs that must be installed.
const PROGRAMS: [&str; 3] = ["glusterd", "gluster", "glusterfs"];

/// Name of the volume.
const VOLUME: &str = "lab";

/// TCP port of the daemon.
const DAEMON_PORT: u16 = 24_007;

/// Timeout for starting a daemon, joining a peer or mounting a volume. These take
/// seconds, and longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polling interval for states of which GlusterFS sends no notification.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// MTU of the storage network in bytes: jumbo frames, as such networks use.
const STORAGE_MTU: u16 = 9000;

/// Packet memory of the network in bytes. Packets are forwarded at once, so it needs one
/// chunk per host.
const NETWORK_MEMORY: u64 = 64 << 20;

/// Log directory of GlusterFS, which no option changes.
const LOGS: &std::ffi::CStr = c"/var/log/glusterfs";

/// Directory of GlusterFS's sockets and snapshots.
const RUN: &std::ffi::CStr = c"/run/gluster";

/// Reasons why the file system cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum GlusterError {
    /// GlusterFS is not installed.
    #[error(
        "GlusterFS is not installed, \"{0}\" is missing: apt-get install glusterfs-server \
         glusterfs-client"
    )]
    Missing(&'static str),
    /// The lab has no root rights.
    #[error(
        "storage gluster: needs root and not a user namespace: bricks have trusted attributes, \
         which only root may set"
    )]
    Unprivileged,
    /// The directory given for the bricks is not empty.
    #[error("{} is not empty: bricks= needs an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// A directory, a mount or a process cannot be created.
    #[error("{what}: {error}")]
    Io {
        /// Path or name of the object.
        what: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// A storage node cannot be created.
    #[error(transparent)]
    Node(#[from] NamespaceError),
    /// GlusterFS rejected a command.
    #[error("{command} failed: {output}")]
    Refused {
        /// The command.
        command: String,
        /// Output of the command.
        output: String,
    },
    /// A process was not ready in time, or ended.
    #[error("{what}; its log ends: {log}")]
    NotReady {
        /// Description of the missing state.
        what: String,
        /// Last lines of the process's log.
        log: String,
    },
}

fn io_of(what: &Path) -> impl FnOnce(io::Error) -> GlusterError {
    let what = what.display().to_string();
    move |error| GlusterError::Io { what, error }
}

/// Checks that this machine has GlusterFS and that the lab has root rights.
///
/// # Errors
///
/// Returns an error that names the missing part and the remedy.
pub fn check() -> Result<(), GlusterError> {
    if is_unprivileged() {
        return Err(GlusterError::Unprivileged);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    let is_there = |program: &&str| directories.iter().any(|d| d.join(program).is_file());
    match PROGRAMS.iter().find(|program| !is_there(program)) {
        Some(missing) => Err(GlusterError::Missing(missing)),
        None => Ok(()),
    }
}

/// A mounted volume.
pub struct Cluster {
    at: PathBuf,
    bricks: Vec<MountedStorage>,
    network: Emulator,
    _hosts: Vec<Namespace>,
}

/// A storage node that is being started.
struct Node {
    address: Ipv4Addr,
    /// Directory of the node's state.
    directory: PathBuf,
    /// Directory of the node's data.
    brick: PathBuf,
}

impl Node {
    fn socket(&self) -> PathBuf {
        self.directory.join("run/glusterd.socket")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log/glusterd.log")
    }
}

impl Cluster {
    /// Starts the nodes, creates a volume of their bricks and mounts it. `directory` is a
    /// directory for this volume only.
    ///
    /// # Errors
    ///
    /// Returns an error if a part is missing or a step fails, with the output of
    /// GlusterFS.
    pub fn start(settings: &GlusterSettings, directory: &Path) -> Result<Cluster, GlusterError> {
        check()?;
        let data = match &settings.bricks {
            None => directory.join("bricks"),
            Some(own) => own.canonicalize().map_err(io_of(own))?,
        };
        make_directory(&data)?;
        if fs::read_dir(&data).map_err(io_of(&data))?.next().is_some() {
            return Err(GlusterError::NotEmpty(data));
        }
        let at = match &settings.at {
            None => directory.join("mounted"),
            Some(at) => std::path::absolute(at).map_err(io_of(at))?,
        };
        make_directory(&at)?;
        let (hosts, network) = make_network(settings.nodes + 1)?;
        let mut cluster = Cluster {
            at,
            bricks: Vec::new(),
            network,
            _hosts: Vec::new(),
        };
        let (mut nodes, mut daemons) = (Vec::new(), Vec::new());
        for (index, host) in hosts.iter().take(settings.nodes).enumerate() {
            let name = format!("node{}", index + 1);
            let (own, brick) = (directory.join(&name), data.join(&name));
            let brick = cluster.make_brick(settings.brick.as_ref(), &own, brick)?;
            let address = address(index);
            let directory = own;
            let node = Node {
                address,
                directory,
                brick,
            };
            daemons.push(start_daemon(&node, host)?);
            nodes.push(node);
        }
        for ((node, host), daemon) in nodes.iter().zip(&hosts).zip(&mut daemons) {
            await_ready("glusterd is not listening", &node.log(), daemon, || {
                listens_in(host, Some(DAEMON_PORT))
            })?;
        }
        make_volume(&nodes, settings)?;
        if let (Some(client), Some(server)) = (hosts.last(), nodes.first()) {
            mount(&cluster.at, client, server, directory)?;
        }
        cluster._hosts = hosts;
        Ok(cluster)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Returns the devices of the bricks in the order of nodes; empty if bricks have no
    /// devices.
    pub fn bricks(&self) -> &[MountedStorage] {
        &self.bricks
    }

    /// Returns counters of the storage network; `None` if its thread has ended.
    pub fn network(&self) -> Option<EmulatorReport> {
        self.network.report().ok()
    }

    /// Unmounts everything. All processes that use it must have ended.
    pub fn let_go(self) {
        // An error means that it is no longer mounted.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        self.bricks.into_iter().for_each(MountedStorage::let_go);
    }

    /// Creates a node's brick, behind a device if `device` is given.
    fn make_brick(
        &mut self,
        device: Option<&StorageSettings>,
        own: &Path,
        data: PathBuf,
    ) -> Result<PathBuf, GlusterError> {
        for part in ["state", "run", "log/bricks", "brick"] {
            make_directory(&own.join(part))?;
        }
        make_directory(&data)?;
        let Some(device) = device else {
            return Ok(data.join("brick"));
        };
        let at = own.join("brick");
        let mounted = MountedStorage::mount(&data, &at, device);
        self.bricks.push(mounted.map_err(io_of(&at))?);
        Ok(at.join("brick"))
    }
}

fn make_directory(path: &Path) -> Result<(), GlusterError> {
    fs::create_dir_all(path).map_err(io_of(path))
}

/// Returns the address of a storage node or the client, from the range for benchmarks
/// (RFC 2544), outside the addresses of sites.
fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 0, (index + 1) as u8)
}

/// Creates hosts that reach each other without delay.
fn make_network(hosts: usize) -> Result<(Vec<Namespace>, Emulator), GlusterError> {
    let mut namespaces = Vec::new();
    let mut ports = Vec::new();
    for index in 0..hosts {
        let plan = HostPlan {
            addresses: vec![address(index)],
            addresses_v6: Vec::new(),
            mtu: STORAGE_MTU,
            sysctls: Vec::new(),
        };
        let (namespace, tun) = Namespace::create(&plan)?;
        let addresses = vec![address(index).into()];
        namespaces.push(namespace);
        ports.push(Port {
            tun,
            site: 0,
            addresses,
        });
    }
    let failed = |error| GlusterError::Io {
        what: "the storage network".to_owned(),
        error,
    };
    let store = Store::reserve(NETWORK_MEMORY).map_err(failed)?;
    let core = Core::new(ports, 1, vec![None], Gate::default(), store);
    let network = Emulator::start(core, false).map_err(failed)?;
    Ok((namespaces, network))
}

/// Starts the daemon of a node. The options are those of the packaged configuration:
/// without the keepalive options, every probe fails.
fn start_daemon(node: &Node, host: &Namespace) -> Result<Child, GlusterError> {
    let volume = node.directory.join("glusterd.vol");
    let (state, run) = (node.directory.join("state"), node.directory.join("run"));
    let text = format!(
        "volume management\n    type mgmt/glusterd\n    option working-directory {}\n    \
         option run-directory {}\n    option glusterd-sockfile {}\n    \
         option transport-type socket\n    option transport.address-family inet\n    \
         option transport.socket.listen-port {DAEMON_PORT}\n    \
         option transport.socket.keepalive-time 10\n    \
         option transport.socket.keepalive-interval 2\nend-volume\n",
        state.display(),
        run.display(),
        node.socket().display()
    );
    fs::write(&volume, text).map_err(io_of(&volume))?;
    let mut command = Command::new("glusterd");
    command.arg("-N").arg("-f").arg(&volume);
    command.arg("-l").arg(node.log());
    command
        .arg("-p")
        .arg(node.directory.join("run/glusterd.pid"));
    place(command, host, Some(&node.directory), "glusterd")
}

/// Starts a process on a host of the storage network. With `own`, its logs and sockets
/// are placed in that directory.
#[allow(unsafe_code)] // Code between fork and exec is unsafe.
fn place(
    mut command: Command,
    host: &Namespace,
    own: Option<&Path>,
    what: &str,
) -> Result<Child, GlusterError> {
    let failed = |error: io::Error| GlusterError::Io {
        what: what.to_owned(),
        error,
    };
    let namespace = host.duplicate().map_err(failed)?;
    let covered = match own {
        None => None,
        Some(own) => Some((c_path(&own.join("log"))?, c_path(&own.join("run"))?)),
    };
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure makes system calls only and allocates no memory.
    unsafe {
        command.pre_exec(move || {
            netns::enter(namespace.descriptor().as_fd())?;
            let Some((log, run)) = &covered else {
                return Ok(());
            };
            rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)?;
            mount_change(
                "/",
                MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
            )?;
            mount_bind(log.as_c_str(), LOGS)?;
            // The first daemon creates this directory; if it is missing, no mount is
            // needed.
            let _ = mount_bind(run.as_c_str(), RUN);
            Ok(())
        });
    }
    command.spawn().map_err(failed)
}

fn c_path(path: &Path) -> Result<std::ffi::CString, GlusterError> {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|error| io_of(path)(io::Error::other(error)))
}

/// Waits until `is_ready` returns true. Fails if the process ends or [`PATIENCE`] is
/// over.
fn await_ready(
    what: &str,
    log: &Path,
    process: &mut Child,
    is_ready: impl Fn() -> io::Result<bool>,
) -> Result<(), GlusterError> {
    let not_ready = |what: String| {
        let text = fs::read_to_string(log).unwrap_or_default();
        let mut last: Vec<&str> = text.lines().rev().take(3).collect();
        last.reverse();
        let log = last.join(" / ");
        GlusterError::NotReady { what, log }
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        if is_ready().is_ok_and(|ready| ready) {
            return Ok(());
        }
        if let Ok(Some(status)) = process.try_wait() {
            return Err(not_ready(format!("{what}: it ended with {status}")));
        }
        if Instant::now() > deadline {
            return Err(not_ready(format!("{what} after {PATIENCE:?}")));
        }
        // tidy: GlusterFS sends no notification when it is ready
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Joins the nodes and starts a volume of all bricks.
fn make_volume(nodes: &[Node], settings: &GlusterSettings) -> Result<(), GlusterError> {
    let Some(first) = nodes.first() else {
        return Ok(());
    };
    let ask = |arguments: &[&str]| ask(first, arguments);
    for node in &nodes[1..] {
        ask(&["peer", "probe", &node.address.to_string()])?;
    }
    let bricks = nodes
        .iter()
        .map(|node| format!("{}:{}", node.address, node.brick.display()));
    let bricks: Vec<String> = bricks.collect();
    let mut create = vec!["volume", "create", VOLUME, "transport", "tcp"];
    create.extend(bricks.iter().map(String::as_str));
    // Required because the bricks are not on file systems of their own.
    create.push("force");
    let deadline = Instant::now() + PATIENCE;
    // A probed peer joins a moment later.
    while let Err(error) = ask(&create) {
        if Instant::now() > deadline {
            return Err(error);
        }
        // tidy: as above
        std::thread::sleep(LOOK_AGAIN);
    }
    let shard = settings.shard.0.to_string();
    let mut set = vec!["volume", "set", VOLUME];
    set.extend(["features.shard", "on", "features.shard-block-size", &shard]);
    // All bricks share one disk. If it is nearly full, GlusterFS would place shards
    // elsewhere with links to them, which does not help. GlusterFS 10 then searches
    // endlessly for shards that are written and read at the same time.
    set.extend([
        "cluster.min-free-disk",
        "0%",
        "cluster.min-free-inodes",
        "0%",
    ]);
    ask(&set)?;
    ask(&["volume", "start", VOLUME])
}

/// Runs a command of the node's daemon.
fn ask(node: &Node, arguments: &[&str]) -> Result<(), GlusterError> {
    let mut command = Command::new("gluster");
    command.arg("--mode=script");
    command.arg(format!("--glusterd-sock={}", node.socket().display()));
    let log = node.directory.join("log/cli.log");
    command.arg(format!("--log-file={}", log.display()));
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| GlusterError::Io {
        what: "gluster".to_owned(),
        error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(GlusterError::Refused {
        command: format!("gluster {}", arguments.join(" ")),
        output: String::from_utf8_lossy(&said).trim().to_owned(),
    })
}

/// Mounts the volume within the lab.
fn mount(at: &Path, client: &Namespace, node: &Node, own: &Path) -> Result<(), GlusterError> {
    let log = own.join("client.log");
    let before = fs::metadata(at).map_err(io_of(at))?.dev();
    let mut command = Command::new("glusterfs");
    command.arg("-N").arg("-l").arg(&log);
    command.args(["-s", &node.address.to_string(), "--volfile-id", VOLUME]);
    command.arg(at);
    let mut child = place(command, client, None, "glusterfs")?;
    await_ready(
        "glusterfs has not mounted the volume",
        &log,
        &mut child,
        || Ok(fs::metadata(at)?.dev() != before),
    )
}
