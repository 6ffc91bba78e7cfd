//! A lab that runs: its hosts and what is between them.

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
use crate::machine::{Change, Kind, MachineError};
use crate::netns::{self, HostPlan, Namespace, NamespaceError};
use crate::report::LabReport;
use crate::scenario::{
    Direction, HostAddresses, QueueLimit, Scenario, ScenarioError, Window, public_address,
};
use crate::state::StateDirectory;
use crate::storage::running::Storages;
use crate::tun;

/// Memory beside what the paths keep in flight: each host's own chunk, and what
/// small packets take beyond their bytes on the wire.
const SPARE_MEMORY: u64 = 256 << 20;

/// Why a lab does not start.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// It makes no sense.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A host could not be made.
    #[error(transparent)]
    Host(#[from] NamespaceError),
    /// The machine could not be prepared.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The kernel has no such congestion control.
    #[error(
        "this kernel has no congestion control \"{0}\": net.ipv4.tcp_available_congestion_control has {1}"
    )]
    Congestion(String, String),
    /// Only root may allow it for hosts.
    #[error(
        "this machine keeps congestion control \"{wanted}\" for root, and lets nobody change that \
         from within a user's or a network's namespace: choose one of \"{allowed}\" (--congestion), \
         or have root run once, outside: sysctl -w \
         net.ipv4.tcp_allowed_congestion_control=\"{allowed} {wanted}\""
    )]
    CongestionOfRoot {
        /// What hosts were to have.
        wanted: String,
        /// What everybody may have.
        allowed: String,
    },
    /// More is in flight than this machine has memory.
    #[error(
        "the paths keep up to {needed} in flight and queued, and this machine has {free} free: choose a lower rate, RTT or queue"
    )]
    Memory {
        /// What the paths need.
        needed: ByteCount,
        /// What there is.
        free: ByteCount,
    },
    /// Other traffic.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// The emulator.
    #[error("the lab's emulator cannot start: {0}")]
    Emulator(#[source] io::Error),
}

/// A host of a lab.
#[derive(Debug)]
pub struct Host {
    /// Its name and addresses.
    pub addresses: HostAddresses,
    namespace: Namespace,
}

impl Host {
    /// Its network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The address that others reach it at: of its own, or its site's.
    pub fn address(&self) -> IpAddr {
        let own = self.addresses.v4.first().copied();
        IpAddr::V4(own.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED))
    }
}

/// A lab; it ends when this is dropped.
pub struct Lab {
    scenario: Scenario,
    hosts: Vec<Host>,
    emulator: Emulator,
    storage: Storages,
}

impl Lab {
    /// Makes hosts and the paths between them.
    ///
    /// # Errors
    ///
    /// What could not be made; then nothing is left of it.
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
            // The last one of the first two sites is for other traffic.
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

    /// Tells commands and reports about mounted storage.
    pub fn add_storage(&mut self, storage: Storages) {
        self.storage = storage;
    }

    /// Ends all processes of the lab where it has storage, and unmounts that.
    pub fn end_storage(&mut self) {
        self.storage = Storages::default();
    }

    /// What it was made from, as it is now.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host by its name, `b2`; a site's letter is its first.
    pub fn host(&self, name: &str) -> Option<&Host> {
        let name = name.to_ascii_lowercase();
        let full = if name.len() == 1 {
            format!("{name}1")
        } else {
            name
        };
        self.hosts.iter().find(|host| host.addresses.name == full)
    }

    /// Makes a command run on a host: in its network, with the lab's variables.
    ///
    /// # Errors
    ///
    /// Where there are no more descriptors.
    pub fn place(&self, host: &Host, command: &mut Command) -> io::Result<()> {
        command.envs(self.environment(host));
        let name = format!("lab-{}", host.addresses.name);
        enter_before_exec(host.namespace().duplicate()?, name, command);
        Ok(())
    }

    /// Variables of a command on a host: addresses of all hosts, of each site's
    /// first, and what the path is.
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

    /// Lines of `/etc/hosts`: `lab-a1`, which is what the host calls itself, and
    /// `lab-a` for a site's first.
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
        // What this machine knows besides stays known.
        text += &std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        text
    }

    /// Changes the paths between all sites from now on, or with `a-c:` before
    /// the settings between two.
    ///
    /// # Errors
    ///
    /// Where the settings make no sense; then nothing changes.
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
    /// Where the emulator is gone.
    pub fn cut(&self, time: Duration) -> Result<(), SetPathError> {
        if self.scenario.veth {
            return Err(ScenarioError::Cable("cuts").into());
        }
        for Direction { from, to, .. } in self.scenario.directions()? {
            self.emulator.cut(from, to, time)?;
        }
        Ok(())
    }

    /// What it did so far.
    ///
    /// # Errors
    ///
    /// Where the emulator is gone.
    pub fn report(&self) -> Result<LabReport, SetPathError> {
        let emulator = self.emulator.report().map_err(SetError::Stopped)?;
        let mut overrun = 0;
        for host in &self.hosts {
            // A table that cannot be read says nothing.
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

/// Why a path cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum SetPathError {
    /// It makes no sense.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The emulator did not take it.
    #[error(transparent)]
    Set(#[from] SetError),
}

/// The child enters the namespace and takes the host's name between fork and
/// exec.
#[allow(unsafe_code)] // What runs between fork and exec is unsafe to write.
fn enter_before_exec(namespace: Namespace, name: String, command: &mut Command) {
    // SAFETY: system calls alone, and no memory is taken.
    unsafe {
        command.pre_exec(move || {
            netns::take_name(&name);
            netns::enter(namespace.descriptor().as_fd())
        });
    }
}

/// Touched at the start: beyond it the start would take seconds.
const MOST_WARMED: u64 = 1 << 30;

/// Bytes on their way in one direction: the line's rate for the time they
/// travel.
fn in_flight(Direction { link, .. }: &Direction) -> u64 {
    let rate = link.rate.map_or(0.0, |rate| rate.bits_per_second());
    (rate / 8.0 * (link.delay + link.jitter).as_secs_f64()) as u64
}

/// Addresses for what the paths can keep, or for half of what is free where
/// they have no line.
fn store_for(directions: &[Direction]) -> Result<Store, LabError> {
    let free = free_memory();
    // Notes, headers and alignment: a 40-byte packet takes 64 bytes here and
    // costs 78 on the wire, so that nothing takes more than its wire bytes.
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
    // It takes no memory until it is used; paths may be changed later.
    Store::reserve(free / 2 + needed / 2).map_err(LabError::Emulator)
}

/// What the kernel thinks can be had without swapping; a bold guess where it
/// does not say.
fn free_memory() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(1 << 30, |kibibytes| kibibytes * 1024)
}

/// From site to site, row by row; none from a site to itself.
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

/// What every namespace may use.
const ALLOWED_CONGESTION: &str = "net.ipv4.tcp_allowed_congestion_control";

/// Whether this process may allow more. It may not in a user or network namespace, even as root
/// there.
fn may_allow() -> bool {
    let path = netns::sysctl_path(ALLOWED_CONGESTION);
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// What a lab's hosts can use: `wanted` where it is allowed, or may be for a
/// moment; else what this machine uses itself, which is always allowed.
pub fn congestion_here(wanted: &str) -> String {
    let allowed = netns::sysctl(ALLOWED_CONGESTION).unwrap_or_default();
    let has = allowed.split_whitespace().any(|name| name == wanted);
    if has || may_allow() {
        wanted.to_owned()
    } else {
        netns::sysctl("net.ipv4.tcp_congestion_control").unwrap_or_else(|_| wanted.to_owned())
    }
}

/// In a new namespace only what the machine allows everybody can be the
/// default: so it is allowed for the moment in which hosts are made, one lab at
/// a time, or another would take it back meanwhile.
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

/// Two hosts and a cable, nothing that emulates.
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

/// Buffers that let TCP have the window in flight: twice the window, since the
/// kernel counts what a segment takes in memory, and offers half of a receive
/// buffer at first. Never less than the machine has.
fn window_sysctls(scenario: &Scenario) -> Vec<(String, String)> {
    let window = match scenario.window {
        Window::Host => return Vec::new(),
        Window::AtLeast(QueueLimit::Bytes(bytes)) => bytes.0,
        Window::AtLeast(QueueLimit::Bdp(times)) => match scenario.largest_bdp() {
            Ok(Some(bdp)) => (bdp.0 as f64 * times) as u64,
            _ => return Vec::new(),
        },
    };
    // The kernel's integers have a sign.
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
