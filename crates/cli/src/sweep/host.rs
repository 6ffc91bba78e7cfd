//! What a record says of the host that it was made on.

use std::fs;
use std::path::Path;

use longhaul_measure::record::HostRecord;
use longhaul_units::ByteCount;

/// Parameters that decide what TCP reaches; those of a lab's host are its own.
const SETTINGS: [&str; 6] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
];

/// Its name is left out: records are published.
pub fn describe(name: &str) -> HostRecord {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let memory = read("/proc/meminfo");
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
            .unwrap_or_default()
    };
    let kibibytes: u64 = field(&memory, "MemTotal")
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default();
    HostRecord {
        name: name.to_owned(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        cpu: field(&processors, "model name"),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        memory: ByteCount(kibibytes * 1024),
        storage: String::new(),
        settings: Default::default(),
    }
}

/// Parameters of this thread's network namespace, and what the machine has.
pub fn settings() -> std::collections::BTreeMap<String, String> {
    let read = |name: &str| longhaul_lab::netns::sysctl(name).ok();
    let found = SETTINGS.iter().filter_map(|name| {
        let words: Vec<String> = read(name)?.split_whitespace().map(str::to_owned).collect();
        Some(((*name).to_owned(), words.join(" ")))
    });
    found.collect()
}

/// File system and mount options of a directory, as `/proc/self/mountinfo` has them.
pub fn storage(directory: &Path) -> String {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let mounts = text.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split_whitespace().skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let kind = kind.split_whitespace().next()?;
        directory
            .starts_with(point)
            .then(|| (point.len(), format!("{kind} {options}")))
    });
    // The longest that fits is nearest; of equal ones the last covers the others.
    mounts
        .max_by_key(|(length, _)| *length)
        .map(|(_, text)| text)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_what_it_is() {
        let host = describe("a");
        assert!(host.cores > 0 && host.memory.0 > 1 << 20, "{host:?}");
        assert!(!host.kernel.is_empty());
        assert!(settings()["net.ipv4.tcp_rmem"].split(' ').count() == 3);
        assert!(storage(Path::new("/proc/self")).starts_with("proc"));
    }
}
