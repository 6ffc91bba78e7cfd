//! Descriptions of hosts: kernel, processor, memory, network interfaces and TCP settings.
//!
//! A description can be larger than the record of a run may be. So each description is written
//! once, on a line of a file beside the records, and records refer to it by its digest. FORMAT.md
//! specifies both.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use longhaul_units::ByteCount;
use serde::{Deserialize, Serialize};

use crate::record::HostRecord;

/// Schema version of the lines that this crate reads and writes.
pub const SCHEMA: u32 = 1;

/// Maximum length of a description as JSON, in bytes: enough for a host with 64 interfaces.
pub const LONGEST_DESCRIPTION: usize = 32 << 10;

/// Sysctls that are part of a run's record, because they limit TCP.
const RECORDED_SYSCTLS: [&str; 6] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
];

/// Maximum length in bytes of a text in a run's record. The text can come from another host.
const LONGEST_WORD: usize = 80;

/// Maximum number of hexadecimal digits of a digest.
const LONGEST_DIGEST: usize = 64;

/// Maximum length of the rest of a description's line, in bytes.
const LINE_ALLOWANCE: usize = 256;

/// Maximum number of lines of a file of hosts.
pub const MOST_LINES: usize = 10_000;

/// The description of a host. Unknown values are empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostDescription {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// Release of longhaul that wrote the description.
    pub version: String,
    /// Model of the processor.
    pub processor: Option<String>,
    /// Number of cores that the process may use.
    pub cores: u32,
    /// Size of the memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Frequency governor of the first processor.
    pub governor: Option<String>,
    /// Use of huge pages, as the kernel reports it.
    pub huge_pages: Option<String>,
    /// Network interfaces except loopback, by name.
    pub interfaces: BTreeMap<String, InterfaceDescription>,
    /// Sysctls that affect transfers, by dotted name.
    pub sysctls: BTreeMap<String, String>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceDescription {
    /// `up`, `down`, `no carrier` or `unknown`.
    pub state: String,
    /// MTU of the interface in bytes.
    pub mtu_bytes: Option<u64>,
    /// Line rate in Mbit/s.
    pub speed_mbit_per_second: Option<u64>,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Length of the transmit queue in packets.
    pub transmit_queue_length: Option<u64>,
    /// Number of receive queues.
    pub receive_queues: Option<u64>,
    /// Number of transmit queues.
    pub transmit_queues: Option<u64>,
    /// Offloads by name. True if the offload is on.
    pub offloads: BTreeMap<String, bool>,
}

/// Reasons why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The description or its line is too long.
    #[error("a host's description has more than {LONGEST_DESCRIPTION} bytes")]
    TooLong,
    /// The text is not a description of a host.
    #[error("not a description of a host: {0}")]
    Malformed(String),
    /// The description has another schema version.
    #[error(
        "the description of the host has schema version {0}, but this longhaul reads version \
        {SCHEMA}: use the longhaul that wrote it"
    )]
    Schema(u64),
    /// The file has too many lines.
    #[error("the file of hosts has more than {MOST_LINES} lines")]
    TooMany,
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

impl HostDescription {
    /// Converts the description to JSON. Equal descriptions give equal JSON.
    ///
    /// # Errors
    ///
    /// If the description is too long.
    pub fn to_json(&self) -> Result<String, HostError> {
        let json = serde_json::to_string(self).map_err(|e| HostError::Malformed(e.to_string()))?;
        match json.len() {
            length if length > LONGEST_DESCRIPTION => Err(HostError::TooLong),
            _ => Ok(json),
        }
    }

    /// Parses a description from JSON, which may come from another host or an older release.
    ///
    /// # Errors
    ///
    /// If the text is too long or is not a description.
    pub fn from_json(json: &[u8]) -> Result<HostDescription, HostError> {
        if json.len() > LONGEST_DESCRIPTION {
            return Err(HostError::TooLong);
        }
        serde_json::from_slice(json).map_err(|error| HostError::Malformed(error.to_string()))
    }
}

impl HostDescription {
    /// Returns the part of the description that a run's record includes, under a name. The caller
    /// adds the storage and the digest.
    pub fn record(&self, name: &str) -> HostRecord {
        let word = |text: &Option<String>| short(text.as_deref().unwrap_or_default());
        let sysctls = RECORDED_SYSCTLS.iter().filter_map(|name| {
            let value = self.sysctls.get(*name)?;
            Some(((*name).to_owned(), short(value)))
        });
        let release = Some(&self.version).filter(|version| !version.is_empty());
        let others = [
            ("governor", self.governor.as_deref().map(short)),
            ("longhaul", release.map(|version| short(version))),
            ("nic", self.interface_in_use()),
        ];
        let others = others.into_iter();
        let others = others.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        HostRecord {
            name: name.to_owned(),
            kernel: word(&self.kernel),
            cpu: word(&self.processor),
            cores: self.cores,
            memory: ByteCount(self.memory_bytes.unwrap_or_default()),
            storage: String::new(),
            settings: sysctls.chain(others).collect(),
            description: String::new(),
        }
    }

    /// Describes the only interface that is up. Returns `None` if several are up, because the
    /// interface that a path uses is unknown here.
    fn interface_in_use(&self) -> Option<String> {
        let mut up = self.interfaces.iter().filter(|(_, one)| one.state == "up");
        let ((name, interface), None) = (up.next()?, up.next()) else {
            return None;
        };
        let number = |value: Option<u64>, before: &str, after: &str| {
            value.map(|value| format!("{before}{value}{after}"))
        };
        let offload = |name: &str, shown: &str| {
            let on = interface.offloads.get(name)?;
            Some(format!("{shown} {}", if *on { "on" } else { "off" }))
        };
        let parts = [
            Some(name.clone()),
            interface.driver.clone(),
            number(interface.speed_mbit_per_second, "", " Mbit/s"),
            number(interface.mtu_bytes, "MTU ", ""),
            number(interface.transmit_queue_length, "queue ", ""),
            offload("tcp_segmentation", "TSO"),
            offload("generic_receive", "GRO"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        Some(short(&parts.join(", ")))
    }
}

/// Removes control characters and truncates the text, which can come from another host.
fn short(text: &str) -> String {
    let mut shortened: String = text.chars().filter(|c| !c.is_control()).collect();
    shortened.truncate(shortened.floor_char_boundary(LONGEST_WORD));
    shortened
}

/// A line of a file of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedHost {
    /// Schema version: [`SCHEMA`].
    pub schema: u32,
    /// Digest by which records refer to this description: `HostRecord::description`.
    pub digest: String,
    /// The description.
    pub host: HostDescription,
}

impl DescribedHost {
    /// Formats the line, without its line feed.
    ///
    /// # Errors
    ///
    /// If the description is too long.
    pub fn to_line(&self) -> Result<String, HostError> {
        self.host.to_json()?;
        serde_json::to_string(self).map_err(|error| HostError::Malformed(error.to_string()))
    }
}

/// The schema version of a line, which determines how to read the rest.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u64,
}

/// Reads a file of hosts. Skips invalid and incomplete lines: a writer may have been stopped, and
/// no figure depends on them.
///
/// # Errors
///
/// If a line has another schema version or is too long, or there are too many lines.
pub fn read_hosts(mut input: impl BufRead) -> Result<Vec<DescribedHost>, HostError> {
    const LONGEST_LINE: usize = LONGEST_DESCRIPTION + LINE_ALLOWANCE;
    let mut hosts = Vec::new();
    let mut line = Vec::new();
    for _ in 0..=MOST_LINES {
        line.clear();
        let limit = LONGEST_LINE as u64 + 1;
        Read::take(&mut input, limit).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return if line.len() > LONGEST_LINE {
                Err(HostError::TooLong)
            } else {
                Ok(hosts)
            };
        }
        hosts.extend(parse(&line)?);
    }
    Err(HostError::TooMany)
}

fn parse(line: &[u8]) -> Result<Option<DescribedHost>, HostError> {
    match serde_json::from_slice::<SchemaOnly>(line) {
        Ok(other) if other.schema != u64::from(SCHEMA) => Err(HostError::Schema(other.schema)),
        _ => {
            let host: Option<DescribedHost> = serde_json::from_slice(line).ok();
            Ok(host.filter(|host| is_digest(&host.digest)))
        }
    }
}

fn is_digest(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits && (1..=LONGEST_DIGEST).contains(&text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(digest: &str) -> DescribedHost {
        let interface = InterfaceDescription {
            state: "up".to_owned(),
            mtu_bytes: Some(9000),
            offloads: [("tcp_segmentation".to_owned(), true)].into(),
            ..InterfaceDescription::default()
        };
        DescribedHost {
            schema: SCHEMA,
            digest: digest.to_owned(),
            host: HostDescription {
                kernel: Some("6.18.0".to_owned()),
                cores: 2,
                interfaces: [("eth0".to_owned(), interface)].into(),
                sysctls: [("net.ipv4.tcp_sack".to_owned(), "1".to_owned())].into(),
                ..HostDescription::default()
            },
        }
    }

    #[test]
    fn written_hosts_are_read_back() {
        let (a, b) = (described("a"), described("b"));
        let text = format!("{}\n\n{}\n", a.to_line().unwrap(), b.to_line().unwrap());
        assert_eq!(read_hosts(text.as_bytes()).unwrap(), [a.clone(), b]);
        // If the writer is killed within the second line, the first line is still read.
        let first = text.find('\n').unwrap() + 2;
        for end in first..text.len() {
            let read = read_hosts(&text.as_bytes()[..end]).unwrap();
            assert_eq!(read.len(), 1, "{end}");
        }
        let json = a.host.to_json().unwrap();
        assert_eq!(HostDescription::from_json(json.as_bytes()).unwrap(), a.host);
        // A later release may add fields, and an earlier one may omit fields.
        let other = HostDescription::from_json(b"{\"kernel\": \"7\", \"moon\": 1}").unwrap();
        assert_eq!((other.kernel.as_deref(), other.cores), (Some("7"), 0));
    }

    #[test]
    fn a_record_includes_the_important_settings() {
        let mut host = described("a").host;
        host.governor = Some("performance".to_owned());
        host.version = "9".repeat(1000);
        host.sysctls.insert("vm.dirty_ratio".into(), "20".into());
        let record = host.record("near");
        assert_eq!((record.name.as_str(), record.cores), ("near", 2));
        let settings = &record.settings;
        assert_eq!(settings["nic"], "eth0, MTU 9000, TSO on");
        assert_eq!(settings["net.ipv4.tcp_sack"], "1");
        assert_eq!(settings["longhaul"].len(), LONGEST_WORD);
        assert!(!settings.contains_key("vm.dirty_ratio"), "{settings:?}");
        let second = host.interfaces["eth0"].clone();
        host.interfaces.insert("eth1".to_owned(), second);
        assert!(!host.record("near").settings.contains_key("nic"));
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let newer = described("a").to_line().unwrap().replacen('1', "2", 1) + "\n";
        assert!(matches!(
            read_hosts(newer.as_bytes()),
            Err(HostError::Schema(2))
        ));
        let long = format!("{{\"kernel\": \"{}\"}}", "x".repeat(LONGEST_DESCRIPTION));
        assert!(matches!(
            HostDescription::from_json(long.as_bytes()),
            Err(HostError::TooLong)
        ));
        let line = format!("{}\n", "x".repeat(LONGEST_DESCRIPTION + LINE_ALLOWANCE + 1));
        assert!(matches!(
            read_hosts(line.as_bytes()),
            Err(HostError::TooLong)
        ));
        let none = b"{}\nno JSON\n{\"schema\":1}\n{\"schema\":1,\"digest\":\"x\",\"host\":{}}\n";
        assert_eq!(read_hosts(&none[..]).unwrap(), []);
        let mut wide = described("a");
        wide.host.processor = Some("x".repeat(LONGEST_DESCRIPTION));
        assert!(matches!(wide.to_line(), Err(HostError::TooLong)));
        let many = format!("{}\n", described("a").to_line().unwrap()).repeat(MOST_LINES + 1);
        assert!(matches!(
            read_hosts(many.as_bytes()),
            Err(HostError::TooMany)
        ));
    }
}
