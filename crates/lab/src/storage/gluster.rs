//! A real parallel file system: GlusterFS, with a daemon and a brick for each
//! storage node.
//!
//! Every node is a network namespace of its own, since GlusterFS refuses loopback addresses, and
//! takes nodes that share one for one node. A network without limits, with its own thread, joins
//! the nodes and the client. So storage traffic is not on the path between sites. Daemons keep
//! their state in the lab's directory, separate from a GlusterFS of this machine. A node's brick
//! may be behind a modelled device ([`super::mirror`]).
//!
//! Processes end with the lab; data are removed with its directory.

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

/// What has to be installed.
const PROGRAMS: [&str; 3] = ["glusterd", "gluster", "glusterfs"];

/// The volume's name.
const VOLUME: &str = "lab";

/// Where a daemon listens.
const DAEMON_PORT: u16 = 24_007;

/// A daemon starts, a peer joins and a volume mounts within seconds; on a busy
/// machine it may take some more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that GlusterFS tells nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Bytes of an IP packet on the storage network: what such networks have.
const STORAGE_MTU: u16 = 9000;

/// The network passes everything on at once: a chunk for each host's reads.
const NETWORK_MEMORY: u64 = 64 << 20;

/// The directory of GlusterFS's logs, which no option moves.
const LOGS: &std::ffi::CStr = c"/var/log/glusterfs";

/// Its sockets and snapshots.
const RUN: &std::ffi::CStr = c"/run/gluster";

/// Why there is no such file system.
#[derive(Debug, thiserror::Error)]
pub enum GlusterError {
    /// Not installed.
    #[error(
        "GlusterFS is not installed, \"{0}\" is missing: apt-get install glusterfs-server \
         glusterfs-client"
    )]
    Missing(&'static str),
    /// Not permitted.
    #[error(
        "storage gluster: needs root, not a user namespace: bricks have trusted attributes, which \
         only root may set"
    )]
    Unprivileged,
    /// The user's directory.
    #[error("{} is not empty: bricks= wants an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// A directory, a mount or a process.
    #[error("{what}: {error}")]
    Io {
        /// Of what.
        what: String,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A storage node.
    #[error(transparent)]
    Node(#[from] NamespaceError),
    /// GlusterFS itself.
    #[error("{command} failed: {output}")]
    Refused {
        /// What it was asked.
        command: String,
        /// What it said.
        output: String,
    },
    /// It is not ready in time, or ended.
    #[error("{what}; its log ends: {log}")]
    NotReady {
        /// What was waited for.
        what: String,
        /// The end of its log.
        log: String,
    },
}

fn io_of(what: &Path) -> impl FnOnce(io::Error) -> GlusterError {
    let what = what.display().to_string();
    move |error| GlusterError::Io { what, error }
}

/// Whether this machine has GlusterFS.
///
/// # Errors
///
/// What is missing, with the remedy.
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

/// A volume that is mounted.
pub struct Cluster {
    at: PathBuf,
    bricks: Vec<MountedStorage>,
    network: Emulator,
    _hosts: Vec<Namespace>,
}

/// A storage node that is being set up.
struct Node {
    address: Ipv4Addr,
    /// Its state.
    directory: PathBuf,
    /// Its data.
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
    /// Starts nodes, makes a volume of their bricks and mounts it. `directory`
    /// is the lab's own for this.
    ///
    /// # Errors
    ///
    /// What is missing, or which step failed and what GlusterFS said.
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
            await_ready("glusterd does not listen", &node.log(), daemon, || {
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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// The devices of the bricks, in the order of nodes; `None` if they have none.
    pub fn bricks(&self) -> &[MountedStorage] {
        &self.bricks
    }

    /// What the storage network did; `None` if its thread is gone.
    pub fn network(&self) -> Option<EmulatorReport> {
        self.network.report().ok()
    }

    /// Unmounts everything. Its processes have to be ended before.
    pub fn let_go(self) {
        // Not mounted any more: nothing to do.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        self.bricks.into_iter().for_each(MountedStorage::let_go);
    }

    /// A node's brick, behind its device where it has one.
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

/// An address of a storage node or the client, from the range for benchmarks (RFC 2544), except
/// those of hosts of sites.
fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 0, (index + 1) as u8)
}

/// Hosts that reach each other at once.
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

/// Starts a node's daemon. Its options are as
/// packaged: without those of keeping alive it calls every probe a failure.
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

/// Starts a process on a host of the storage network; with a directory, its
/// logs and sockets go there.
#[allow(unsafe_code)] // What runs between fork and exec is unsafe to write.
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
    // SAFETY: system calls alone, and no memory is taken.
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
            // Made by whoever comes first; then it is not covered.
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

/// Waits until it is, the process ended, or [`PATIENCE`] did.
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
        // tidy: GlusterFS tells nobody when it is ready
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
    // GlusterFS wants bricks on file systems of their own.
    create.push("force");
    let deadline = Instant::now() + PATIENCE;
    // A peer that was probed becomes one a moment later.
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
    // Bricks share one disk: where that is nearly full, nothing is gained by
    // putting shards elsewhere with links to them, which GlusterFS 10 then looks
    // for without an end when they are written and read at once.
    set.extend([
        "cluster.min-free-disk",
        "0%",
        "cluster.min-free-inodes",
        "0%",
    ]);
    ask(&set)?;
    ask(&["volume", "start", VOLUME])
}

/// Asks the daemon of a node.
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
    await_ready("glusterfs does not mount", &log, &mut child, || {
        Ok(fs::metadata(at)?.dev() != before)
    })
}
