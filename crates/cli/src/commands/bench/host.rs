//! What a host is: what its figures depend on besides its disks.

use std::fs;
use std::path::Path;

use longhaul_engine::probe::offloads::offloads_of;
use serde_json::{Map, Value, json};

use super::super::run::host_name;

/// Sysctls that bear on transfers, below `/proc/sys`.
const SYSCTLS: [&str; 24] = [
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
    "vm/dirty_ratio",
];

/// Interfaces that are told of at most.
const MOST_INTERFACES: usize = 64;

/// A file's one line, with single spaces; null where there is none.
pub fn line(path: impl AsRef<Path>) -> Value {
    let text = fs::read_to_string(path).ok();
    let line = text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    line.filter(|line| !line.is_empty())
        .map_or(Value::Null, Value::String)
}

/// As [`line()`], as a number.
pub fn number(path: impl AsRef<Path>) -> Value {
    let value = line(path);
    let number = value.as_str().and_then(|text| text.parse::<i64>().ok());
    number.map_or(Value::Null, Value::from)
}

/// All of it.
pub fn facts() -> Value {
    json!({
        "name": host_name(),
        "kernel": line("/proc/sys/kernel/osrelease"),
        "version": env!("CARGO_PKG_VERSION"),
        "processor": processor(),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": memory_bytes(),
        "governor": line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "interfaces": interfaces(),
        "sysctls": sysctls(),
    })
}

/// Bytes of memory that this host has.
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

fn sysctls() -> Value {
    let known = SYSCTLS.iter().map(|name| {
        let dotted = name.replace('/', ".");
        (dotted, line(Path::new("/proc/sys").join(name)))
    });
    // Within a network namespace some are absent.
    Value::Object(known.filter(|(_, value)| !value.is_null()).collect())
}

/// Network interfaces but loopback, by name.
fn interfaces() -> Value {
    let root = Path::new("/sys/class/net");
    let names = fs::read_dir(root).into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "lo")
        .take(MOST_INTERFACES)
        .collect();
    names.sort_unstable();
    let facts = names.into_iter().map(|name| {
        let facts = interface(&root.join(&name), &name);
        (name, facts)
    });
    Value::Object(facts.collect())
}

fn interface(path: &Path, name: &str) -> Value {
    let queues = |kind: &str| {
        let entries = fs::read_dir(path.join("queues")).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with(kind))
            .count()
    };
    let driver = fs::read_link(path.join("device/driver")).ok();
    let driver = driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    let offloads: Option<Map<String, Value>> = offloads_of(name).ok().map(|known| {
        let known = known.into_iter();
        known
            .map(|(what, on)| (what.to_owned(), Value::Bool(on)))
            .collect()
    });
    json!({
        "state": line(path.join("operstate")),
        "mtu_bytes": number(path.join("mtu")),
        "speed_mbit_per_second": speed(number(path.join("speed"))),
        "driver": driver,
        "transmit_queue_length": number(path.join("tx_queue_len")),
        "receive_queues": queues("rx-"),
        "transmit_queues": queues("tx-"),
        "offloads": offloads,
    })
}

/// A driver that does not know says -1.
fn speed(told: Value) -> Value {
    match told.as_i64() {
        Some(speed) if speed > 0 => told,
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_described() {
        let facts = facts();
        assert!(facts["cores"].as_u64().unwrap() > 0);
        assert!(facts["memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(facts["kernel"].as_str().unwrap().contains('.'));
        let wmem = facts["sysctls"]["net.ipv4.tcp_wmem"].as_str().unwrap();
        assert_eq!(wmem.split(' ').count(), 3, "{wmem}");
        assert!(facts["interfaces"].get("lo").is_none());
    }

    #[test]
    fn what_is_not_there_is_null() {
        assert_eq!(line("/nonexistent"), Value::Null);
        assert_eq!(number("/proc/version"), Value::Null);
        assert_eq!(speed(json!(-1)), Value::Null);
        assert_eq!(speed(json!(1000)), json!(1000));
    }
}
