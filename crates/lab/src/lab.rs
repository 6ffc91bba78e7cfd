//! A running lab: its hosts and the paths between them.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use longhaul_units::ByteCount;

use crate::background::{self, BackgroundError};
use crate::emulator::core::{Core, Port};
use crate::emulator::gate::{Gate, Nat};
use crate::emulator::store::Store;
use crate::emulator::wire::Wire;
use crate::emulator::{Emulator, SetError};
use crate::link::Link;
use crate::machine::{Change, Kind, MachineError, read_alone};
use crate::netns::{self, HostPlan, Namespace, NamespaceError};
use crate::report::LabReport;
use crate::scenario::{
    Direction, HostAddresses, QueueLimit, Scenario, ScenarioError, Window, public_address,
};
use crate::state::StateDirectory;
use crate::storage::running::Storages;
use crate::tun;

/// Memory in bytes beyond the data that the paths keep in flight: one chunk per host, and
/// the space that small packets take beyond their length on the wire.
const SPARE_MEMORY: u64 = 256 << 20;

/// Reasons why a lab cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A host cannot be created.
    #[error(transparent)]
    Host(#[from] NamespaceError),
    /// The parameters of the machine cannot be changed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The kernel lacks the congestion control.
    #[error(
        "this kernel has no congestion control \"{0}\": net.ipv4.tcp_available_congestion_control lists {1}"
    )]
    Congestion(String, String),
    /// Only root may allow this congestion control for hosts.
    #[error(
        "this machine reserves congestion control \"{wanted}\" for root, and it cannot be allowed \
         from within a user or network namespace: choose one of \"{allowed}\" (--congestion), \
         or run once as root outside of it: sysctl -w \
         net.ipv4.tcp_allowed_congestion_control=\"{allowed} {wanted}\""
    )]
    CongestionOfRoot {
        /// Congestion control requested for the hosts.
        wanted: String,
        /// Congestion controls that unprivileged users may choose.
        allowed: String,
    },
    /// The paths need more memory than the machine has free.
    #[error(
        "the paths keep up to {needed} in flight and queued, and this machine has {free} free: choose a lower rate, RTT or queue"
    )]
    Memory {
        /// Memory that the paths need.
        needed: ByteCount,
        /// Memory that is free.
        free: ByteCount,
    },
    /// Background traffic cannot be started.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// The emulator cannot be started.
    #[error("the lab's emulator cannot start: {0}")]
    Emulator(#[source] io::Error),
}

/// A host of a lab.
#[derive(Debug)]
pub struct Host {
    /// Name and addresses.
    pub addresses: HostAddresses,
    namespace: Namespace,
}

impl Host {
    /// Returns the host's network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the first IPv4 address of the host. Behind NAT this is a private address.
    pub fn address(&self) -> IpAddr {
        let own = self.addresses.v4.first().copied();
        IpAddr::V4(own.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED))
    }
}

/// A running lab. Dropping it ends the lab.
pub struct Lab {
    scenario: Scenario,
    hosts: Vec<Host>,
    emulator: Emulator,
    storage: Storages,
}

impl Lab {
    /// Creates the hosts and the paths between them.
    ///
    /// # Errors
    ///
    /// Returns an error if a part cannot be created; the other parts are then removed.
    pub fn start(scenario: Scenario, state: &StateDirectory) -> Result<Lab, LabError> {
        let directions = scenario.directions()?;
        let store = store_for(&directions)?;
        let _allowed = allow_congestion(&scenario.congestion, state)?;
        let mut hosts = Vec::new();
        let mut other_hosts = Vec::new();
        let mut ports = Vec::new();
        if scenario.veth {
            hosts.extend(make_connected(&scenario)?);
        }
        let emulated = scenario.hosts.0.iter().enumerate();
        for (site, count) in emulated.filter(|_| !scenario.veth) {
            // The last host of each of the first two sites is for background traffic.
            let others = usize::from(scenario.background.is_some() && site < 2);
            for index in 0..*count + others {
                let (host, port) = make_host(&scenario, site, index)?;
                if index < *count {
                    hosts.push(host);
                } else {
                    other_hosts.push(host);
                }
                ports.push(port);
            }
        }
        let sites = scenario.hosts.0.len();
        let gate = Gate {
            rules: scenario.blocks.clone(),
            nat: scenario
                .nat
                .map(|site| (site, Nat::new(public_address(site))))
                .into_iter()
                .collect(),
        };
        let wires = make_wires(&directions, sites, scenario.seed)?;
        let mut core = Core::new(ports, sites, wires, gate, store);
        let most = directions.iter().map(in_flight).max();
        core.warm(most.unwrap_or(0).min(MOST_WARMED));
        let emulator = Emulator::start(core, true).map_err(LabError::Emulator)?;
        if let (Some(background), [from, to]) = (scenario.background, other_hosts.as_slice()) {
            background::start(from, to, background)?;
        }
        Ok(Lab {
            scenario,
            hosts,
            emulator,
            storage: Storages::default(),
        })
    }

    /// Adds mounted storage, for the variables of commands and for reports.
    pub fn add_storage(&mut self, storage: Storages) {
        self.storage = storage;
    }

    /// If the lab has storage: ends all processes of the lab and unmounts the storage.
    pub fn end_storage(&mut self) {
        self.storage = Storages::default();
    }

    /// Returns the scenario with all changes made by [`Lab::set`].
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns all hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns a host by its name, for example `b2`. A single letter means the first host
    /// of that site.
    pub fn host(&self, name: &str) -> Option<&Host> {
        let name = name.to_ascii_lowercase();
        let full = if name.len() == 1 {
            format!("{name}1")
        } else {
            name
        };
        self.hosts.iter().find(|host| host.addresses.name == full)
    }

    /// Prepares a command to run on a host: in the host's network, with the lab's
    /// variables.
    ///
    /// # Errors
    ///
    /// Returns an error if no descriptor is available.
    pub fn place(&self, host: &Host, command: &mut Command) -> io::Result<()> {
        command.envs(self.environment(host));
        let name = format!("lab-{}", host.addresses.name);
        enter_before_exec(host.namespace().duplicate()?, name, command);
        Ok(())
    }

    /// Returns the environment variables of a command on a host: addresses of all hosts,
    /// path, congestion control and storage.
    pub fn environment(&self, on: &Host) -> Vec<(String, String)> {
        let mut variables = vec![
            ("LONGHAUL_LAB_HOST".to_owned(), on.addresses.name.clone()),
            ("LONGHAUL_LAB_PATH".to_owned(), self.scenario.shown_path()),
            (
                "LONGHAUL_LAB_CONGESTION".to_owned(),
                self.scenario.congestion.clone(),
            ),
        ];
        for (index, path) in self.storage.paths().enumerate() {
            let path = path.display().to_string();
            if index == 0 {
                variables.push(("LONGHAUL_LAB_STORAGE".to_owned(), path.clone()));
            }
            variables.push((format!("LONGHAUL_LAB_STORAGE_{}", index + 1), path));
        }
        for host in &self.hosts {
            let name = host.addresses.name.to_ascii_uppercase();
            let is_first = name.ends_with('1') && name.len() == 2;
            let site = name[..1].to_owned();
            for name in is_first.then_some(site).into_iter().chain([name]) {
                let key = format!("LONGHAUL_LAB_{name}");
                variables.push((key.clone(), host.address().to_string()));
                if let Some(address) = host.addresses.v6.first() {
                    variables.push((format!("{key}_V6"), address.to_string()));
                }
                let all: Vec<String> = host.addresses.v4.iter().map(ToString::to_string).collect();
                variables.push((format!("{key}_ALL"), all.join(" ")));
            }
        }
        variables
    }

    /// Returns the content of `/etc/hosts`: `lab-a1` for each host, `lab-a` also for the
    /// first host of a site, and the machine's own entries.
    pub fn host_names(&self) -> String {
        let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        for host in &self.hosts {
            let name = &host.addresses.name;
            let site = match name.as_str() {
                first if first.len() == 2 && first.ends_with('1') => format!(" lab-{}", &name[..1]),
                _ => String::new(),
            };
            if let Some(address) = host.addresses.v4.first() {
                text += &format!("{address} lab-{name}{site}\n");
            }
        }
        // Adds the names that the machine knows.
        text += &std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        text
    }

    /// Changes the paths between all sites. With a prefix such as `a-c:`, changes the
    /// path between two sites.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid or the emulator has ended. Invalid
    /// settings change nothing.
    pub fn set(&mut self, changes: &str) -> Result<(), SetPathError> {
        let mut scenario = self.scenario.clone();
        scenario.change(changes)?;
        for Direction { from, to, link } in scenario.directions()? {
            self.emulator.set(from, to, link)?;
        }
        self.scenario = scenario;
        Ok(())
    }

    /// Cuts all paths for a time from now.
    ///
    /// # Errors
    ///
    /// Returns an error if the paths are a cable or the emulator has ended.
    pub fn cut(&self, time: Duration) -> Result<(), SetPathError> {
        if self.scenario.veth {
            return Err(ScenarioError::Cable("cuts").into());
        }
        for Direction { from, to, .. } in self.scenario.directions()? {
            self.emulator.cut(from, to, time)?;
        }
        Ok(())
    }

    /// Returns the counters of the lab.
    ///
    /// # Errors
    ///
    /// Returns an error if the emulator has ended.
    pub fn report(&self) -> Result<LabReport, SetPathError> {
        let emulator = self.emulator.report().map_err(SetError::Stopped)?;
        let mut overrun = 0;
        for host in &self.hosts {
            // A table that cannot be read counts as 0.
            let dropped = host.namespace.within(tun::overrun);
            overrun += dropped.ok().and_then(Result::ok).unwrap_or_default();
        }
        Ok(LabReport {
            path: self.scenario.shown_path(),
            pairs: self.scenario.pairs.clone(),
            congestion: self.scenario.congestion.clone(),
            emulator,
            overrun,
            storage: self.storage.reports(),
        })
    }
}

/// Reasons why a path cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum SetPathError {
    /// The settings are invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The emulator rejected the settings or has ended.
    #[error(transparent)]
    Set(#[from] SetError),
}

/// Makes the child enter the namespace and take the host's name between fork and exec.
#[allow(unsafe_code)] // Code between fork and exec is unsafe.
fn enter_before_exec(namespace: Namespace, name: String, command: &mut Command) {
    // SAFETY: the closure makes system calls only and allocates no memory.
    unsafe {
        command.pre_exec(move || {
            netns::take_name(&name);
            netns::enter(namespace.descriptor().as_fd())
        });
    }
}

/// Maximum number of bytes of packet memory touched at the start. More would delay the
/// start by seconds.
const MOST_WARMED: u64 = 1 << 30;

/// Returns the bytes in flight in one direction: line rate × (delay + jitter).
fn in_flight(Direction { link, .. }: &Direction) -> u64 {
    let rate = link.rate.map_or(0.0, |rate| rate.bits_per_second());
    (rate / 8.0 * (link.delay + link.jitter).as_secs_f64()) as u64
}

/// Reserves the packet store: half of the free memory plus half of the needs of the
/// paths.
fn store_for(directions: &[Direction]) -> Result<Store, LabError> {
    let free = free_memory();
    // With offload header and alignment, a packet takes at most its bytes on the wire: a
    // 40-byte packet takes 64 bytes here and 78 bytes on the wire.
    let queued = |way: &Direction| way.link.rate.map_or(0, |_| way.link.queue.0);
    let needed = directions
        .iter()
        .map(|way| queued(way).saturating_add(in_flight(way)))
        .fold(SPARE_MEMORY, u64::saturating_add);
    if needed > free {
        return Err(LabError::Memory {
            needed: ByteCount(needed),
            free: ByteCount(free),
        });
    }
    // The store takes no memory until it is used. It leaves room for later changes of the
    // paths.
    Store::reserve(free / 2 + needed / 2).map_err(LabError::Emulator)
}

/// Returns the free memory in bytes (MemAvailable), or 1 GiB if the kernel does not
/// report it.
fn free_memory() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(1 << 30, |kibibytes| kibibytes * 1024)
}

/// Returns the directions by site, row by row; `None` from a site to itself.
fn make_wires(
    directions: &[Direction],
    sites: usize,
    seed: u64,
) -> Result<Vec<Option<Wire>>, LabError> {
    let mut wires: Vec<Option<Wire>> = (0..sites * sites).map(|_| None).collect();
    for Direction { from, to, link } in directions {
        let index = from * sites + to;
        let own_seed = seed.wrapping_add(index as u64);
        let link = Link::new(link.clone(), own_seed).map_err(ScenarioError::Link)?;
        wires[index] = Some(Wire::new(link));
    }
    Ok(wires)
}

/// Kernel parameter with the congestion controls that every namespace may use.
const ALLOWED_CONGESTION: &str = "net.ipv4.tcp_allowed_congestion_control";

/// True if this process may extend the list. It may not in a user or network namespace,
/// even as root there.
fn may_allow() -> bool {
    let path = netns::sysctl_path(ALLOWED_CONGESTION);
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Returns the congestion control that a lab's hosts can use: `wanted` if it is allowed
/// or can be allowed for a moment, else the machine's own default, which is always
/// allowed.
pub fn congestion_here(wanted: &str) -> String {
    let has = |list: &str| list.split_whitespace().any(|name| name == wanted);
    let is_listed = || has(&netns::sysctl(ALLOWED_CONGESTION).unwrap_or_default());
    // Another lab may have listed it for a moment.
    let is_allowed = || {
        let state = StateDirectory::open().ok();
        let alone = state.and_then(|state| read_alone(&state, is_listed).ok());
        alone.unwrap_or_else(is_listed)
    };
    if may_allow() || is_allowed() {
        wanted.to_owned()
    } else {
        netns::sysctl("net.ipv4.tcp_congestion_control").unwrap_or_else(|_| wanted.to_owned())
    }
}

/// Allows a congestion control for the short time in which hosts are created. In a new
/// namespace, only an allowed one can be the default. Labs take turns, so that none
/// removes the setting of another.
fn allow_congestion(wanted: &str, state: &StateDirectory) -> Result<Change, LabError> {
    let has = |list: &str| list.split_whitespace().any(|name| name == wanted);
    let read = |name| netns::sysctl(name).unwrap_or_default();
    let available = read("net.ipv4.tcp_available_congestion_control");
    if !has(&available) {
        return Err(LabError::Congestion(wanted.to_owned(), available));
    }
    let name = ALLOWED_CONGESTION;
    let allowed = read(name);
    if !has(&allowed) && !may_allow() {
        return Err(LabError::CongestionOfRoot {
            wanted: wanted.to_owned(),
            allowed,
        });
    }
    let missing = || {
        let allowed = read(name);
        let setting = (name.to_owned(), format!("{allowed} {wanted}"));
        if has(&allowed) {
            Vec::new()
        } else {
            vec![setting]
        }
    };
    Ok(Change::apply_once_alone(state, Kind::Momentary, missing)?)
}

/// Creates two hosts connected by a cable, without an emulator.
fn make_connected(scenario: &Scenario) -> Result<[Host; 2], LabError> {
    let [(a, near), (b, far)] = [0, 1].map(|site| host_plan(scenario, site, 0));
    let [near, far] = Namespace::create_connected([&near, &far])?;
    Ok([(a, near), (b, far)].map(|(addresses, namespace)| Host {
        addresses,
        namespace,
    }))
}

fn host_plan(scenario: &Scenario, site: usize, index: usize) -> (HostAddresses, HostPlan) {
    let behind_nat = scenario.nat == Some(site);
    let addresses = HostAddresses::new(site, index, scenario.addresses, behind_nat);
    let mut sysctls = vec![(
        "net.ipv4.tcp_congestion_control".to_owned(),
        scenario.congestion.clone(),
    )];
    sysctls.extend(window_sysctls(scenario));
    let own = scenario
        .sysctls
        .iter()
        .filter(|s| s.is_for(&addresses.name));
    sysctls.extend(own.map(|s| (s.name.clone(), s.value.clone())));
    let plan = HostPlan {
        addresses: addresses.v4.clone(),
        addresses_v6: addresses.v6.clone(),
        mtu: scenario.mtu,
        sysctls,
    };
    (addresses, plan)
}

fn make_host(scenario: &Scenario, site: usize, index: usize) -> Result<(Host, Port), LabError> {
    let (addresses, plan) = host_plan(scenario, site, index);
    let (namespace, tun) = Namespace::create(&plan)?;
    let port = Port {
        tun,
        site,
        addresses: addresses.all(),
    };
    let host = Host {
        addresses,
        namespace,
    };
    Ok((host, port))
}

/// Returns the TCP buffer limits that allow the window: twice the window, because the
/// kernel counts the memory of a segment and initially advertises half of a receive
/// buffer. Never less than the machine's own limits.
fn window_sysctls(scenario: &Scenario) -> Vec<(String, String)> {
    let window = match scenario.window {
        Window::Host => return Vec::new(),
        Window::AtLeast(QueueLimit::Bytes(bytes)) => bytes.0,
        Window::AtLeast(QueueLimit::Bdp(times)) => match scenario.largest_bdp() {
            Ok(Some(bdp)) => (bdp.0 as f64 * times) as u64,
            _ => return Vec::new(),
        },
    };
    // The kernel's integers are signed.
    let wanted = window.saturating_mul(2).min(i32::MAX as u64);
    let larger = |name: &str| {
        let now = netns::sysctl(name).ok()?;
        let numbers: Option<Vec<u64>> = now.split_whitespace().map(|n| n.parse().ok()).collect();
        let [least, default, most] = numbers?.try_into().ok()?;
        let value = format!("{least} {default} {}", most.max(wanted));
        Some((name.to_owned(), value))
    };
    ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
        .into_iter()
        .filter_map(larger)
        .collect()
}
