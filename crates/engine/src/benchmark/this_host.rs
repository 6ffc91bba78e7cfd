//! Description of this host for records of runs, host profiles and daemons.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use longhaul_measure::host::{HostDescription, HostError, InterfaceDescription};

use super::interfaces::{Interface, interfaces};

/// Sysctls that affect transfers, relative to `/proc/sys`.
const SYSCTLS: [&str; 27] = [
    "net/core/default_qdisc",
    "net/core/netdev_max_backlog",
    "net/core/rmem_default",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_default",
    "net/core/wmem_max",
    "net/ipv4/tcp_adv_win_scale",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_dsack",
    "net/ipv4/tcp_ecn",
    "net/ipv4/tcp_limit_output_bytes",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_moderate_rcvbuf",
    "net/ipv4/tcp_mtu_probing",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_wmem",
    "net/mptcp/enabled",
    "vm/dirty_ratio",
];

/// Maximum bytes of a host name. Linux has at most 64 (`__NEW_UTS_LEN`), others may have more.
const LONGEST_NAME: usize = 200;

/// Number of hexadecimal digits of a digest: 64 bits are enough to distinguish all hosts.
const DIGEST_DIGITS: usize = 16;

/// Reads a one-line file, with single spaces; `None` if there is no file, or it is empty.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// Returns the host's name, at most 200 bytes.
pub fn name() -> String {
    let names = rustix::system::uname();
    let mut name = names.nodename().to_string_lossy().into_owned();
    name.truncate(name.floor_char_boundary(LONGEST_NAME));
    name
}

/// Describes the host, with this thread's network namespace. The name is omitted, because records
/// are published.
pub fn describe() -> HostDescription {
    HostDescription {
        kernel: line("/proc/sys/kernel/osrelease"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        processor: processor(),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        memory_bytes: memory_bytes(),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
        // On an error the interfaces are unknown.
        interfaces: interfaces()
            .unwrap_or_default()
            .into_iter()
            .map(described)
            .collect(),
        sysctls: sysctls(),
    }
}

/// Returns the digest that names a description.
///
/// # Errors
///
/// Fails if the description is too long.
pub fn digest_of(host: &HostDescription) -> Result<String, HostError> {
    let digest = blake3::hash(host.to_json()?.as_bytes()).to_hex();
    Ok(digest[..DIGEST_DIGITS].to_owned())
}

/// Returns the bytes of memory of this host.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes << 10)
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.to_owned())
}

fn sysctls() -> BTreeMap<String, String> {
    let known = SYSCTLS.iter().filter_map(|name| {
        // Some are absent within a network namespace.
        let value = line(Path::new("/proc/sys").join(name))?;
        Some((name.replace('/', "."), value))
    });
    known.collect()
}

fn described(interface: Interface) -> (String, InterfaceDescription) {
    let offloads = interface.offloads.into_iter();
    let description = InterfaceDescription {
        state: interface.state.to_owned(),
        mtu_bytes: interface.mtu,
        speed_mbit_per_second: interface.speed_mbit_per_second,
        driver: interface.driver,
        transmit_queue_length: interface.transmit_queue_length,
        receive_queues: interface.receive_queues,
        transmit_queues: interface.transmit_queues,
        offloads: offloads.map(|(what, on)| (what.to_owned(), on)).collect(),
    };
    (interface.name, description)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_described() {
        let host = describe();
        assert!(host.cores > 0 && host.memory_bytes.unwrap() > 1 << 20);
        assert!(host.kernel.as_ref().unwrap().contains('.'));
        let wmem = &host.sysctls["net.ipv4.tcp_wmem"];
        assert_eq!(wmem.split(' ').count(), 3, "{wmem}");
        assert!(!host.interfaces.contains_key("lo"));
        let digest = digest_of(&host).unwrap();
        assert_eq!(digest.len(), DIGEST_DIGITS);
        let other = HostDescription { cores: 77, ..host };
        assert_ne!(digest, digest_of(&other).unwrap());
        assert_eq!(line("/nonexistent"), None);
    }
}
