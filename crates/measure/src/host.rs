//! What a host is: kernel, processor, memory, network interfaces, settings of TCP.
//!
//! A description is larger than a record of a run may be. So it stands once, on a line
//! of its own in a file beside the records, and they name it by its digest. FORMAT.md
//! has both.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use longhaul_units::ByteCount;
use serde::{Deserialize, Serialize};

use crate::record::HostRecord;

/// The version of the line that this crate reads and writes.
pub const SCHEMA: u32 = 1;

/// The most bytes a description may have as JSON: the one of a host with 64 interfaces.
pub const LONGEST_DESCRIPTION: usize = 32 << 10;

/// Sysctls that a record has itself: they decide what TCP reaches.
const RECORDED_SYSCTLS: [&str; 6] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
];

/// Most characters of a word that a record has itself: another host's may be anything.
const LONGEST_WORD: usize = 80;

/// Hexadecimal digits of the longest digest that is read.
const LONGEST_DIGEST: usize = 64;

/// What else its line holds.
const LINE_ALLOWANCE: usize = 256;

/// Most lines of a file: hosts are few.
pub const MOST_LINES: usize = 10_000;

/// A host. What is not known is empty or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostDescription {
    /// Its kernel, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The release of longhaul that described it.
    pub version: String,
    /// The model of its processor.
    pub processor: Option<String>,
    /// Cores that may be used.
    pub cores: u32,
    /// Its memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// What governs the first processor's frequency.
    pub governor: Option<String>,
    /// Whether huge pages are used, as the kernel reports it.
    pub huge_pages: Option<String>,
    /// Its network interfaces but loopback, by name.
    pub interfaces: BTreeMap<String, InterfaceDescription>,
    /// Sysctls that bear on transfers, by name with dots.
    pub sysctls: BTreeMap<String, String>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceDescription {
    /// `up`, `down`, `no carrier` or `unknown`.
    pub state: String,
    /// Bytes of an IP packet.
    pub mtu_bytes: Option<u64>,
    /// Its line's rate.
    pub speed_mbit_per_second: Option<u64>,
    /// What drives it.
    pub driver: Option<String>,
    /// Packets that its queue holds.
    pub transmit_queue_length: Option<u64>,
    /// Queues that packets arrive in.
    pub receive_queues: Option<u64>,
    /// Queues that packets leave by.
    pub transmit_queues: Option<u64>,
    /// What it does for the kernel, and whether that is on, by name.
    pub offloads: BTreeMap<String, bool>,
}

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It, or its line, is too long.
    #[error("a host's description has more than {LONGEST_DESCRIPTION} bytes")]
    TooLong,
    /// It is none.
    #[error("this is no host's description: {0}")]
    Malformed(String),
    /// It is of another schema.
    #[error(
        "the host's description is of schema {0}, and this longhaul reads {SCHEMA}: read it with \
         the one that wrote it"
    )]
    Schema(u64),
    /// The file has more lines than there are hosts.
    #[error("more than {MOST_LINES} lines are no file of hosts")]
    TooMany,
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

impl HostDescription {
    /// As JSON, which is the same for equal ones.
    ///
    /// # Errors
    ///
    /// Where it is too long.
    pub fn to_json(&self) -> Result<String, HostError> {
        let json = serde_json::to_string(self).map_err(|e| HostError::Malformed(e.to_string()))?;
        match json.len() {
            length if length > LONGEST_DESCRIPTION => Err(HostError::TooLong),
            _ => Ok(json),
        }
    }

    /// From JSON, of another host or an older release.
    ///
    /// # Errors
    ///
    /// Where it is too long, or none.
    pub fn from_json(json: &[u8]) -> Result<HostDescription, HostError> {
        if json.len() > LONGEST_DESCRIPTION {
            return Err(HostError::TooLong);
        }
        serde_json::from_slice(json).map_err(|error| HostError::Malformed(error.to_string()))
    }
}

impl HostDescription {
    /// What a record has itself of it, under a name; its storage and the digest are the
    /// caller's to add.
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

    /// Its only interface that is up, in words; `None` if several are, since the one that a path
    /// uses is unknown here.
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

/// A word's beginning, as it can be shown: another host may say anything of itself.
fn short(text: &str) -> String {
    let mut shortened: String = text.chars().filter(|c| !c.is_control()).collect();
    shortened.truncate(shortened.floor_char_boundary(LONGEST_WORD));
    shortened
}

/// A line of a file of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedHost {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What records name it by: `HostRecord::description`.
    pub digest: String,
    /// The host.
    pub host: HostDescription,
}

impl DescribedHost {
    /// As a line, without its line feed.
    ///
    /// # Errors
    ///
    /// Where it is too long.
    pub fn to_line(&self) -> Result<String, HostError> {
        self.host.to_json()?;
        serde_json::to_string(self).map_err(|error| HostError::Malformed(error.to_string()))
    }
}

/// Only what says how the rest is to be read.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u64,
}

/// Reads a file of hosts. An invalid or incomplete line is skipped: its writer was stopped, and no
/// figure depends on it.
///
/// # Errors
///
/// Where a line is of another schema or too long, or there are too many.
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
    fn what_is_written_is_read() {
        let (a, b) = (described("a"), described("b"));
        let text = format!("{}\n\n{}\n", a.to_line().unwrap(), b.to_line().unwrap());
        assert_eq!(read_hosts(text.as_bytes()).unwrap(), [a.clone(), b]);
        // Killed at any byte of the second line, the first stays.
        let first = text.find('\n').unwrap() + 2;
        for end in first..text.len() {
            let read = read_hosts(&text.as_bytes()[..end]).unwrap();
            assert_eq!(read.len(), 1, "{end}");
        }
        let json = a.host.to_json().unwrap();
        assert_eq!(HostDescription::from_json(json.as_bytes()).unwrap(), a.host);
        // A newer release may add, an older one leave out.
        let other = HostDescription::from_json(b"{\"kernel\": \"7\", \"moon\": 1}").unwrap();
        assert_eq!((other.kernel.as_deref(), other.cores), (Some("7"), 0));
    }

    #[test]
    fn a_record_has_the_most_of_it() {
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
    fn what_is_none_is_refused() {
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
