//! Description of a lab: sites, hosts, paths and kernel parameters of the hosts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, parse_share, parse_span, share_text};

use crate::background::Background;
use crate::emulator::gate::{BlockRule, Blocked, Refusal};
use crate::link::{LinkError, LinkSettings, Loss, Reorder};
use crate::storage::plan::StoragePlan;

// tidy: long file because all of it parses one description language.

/// Maximum number of sites; they are named a to h.
pub const MOST_SITES: usize = 8;

/// Maximum number of hosts per site: about as many as one emulator thread can serve.
pub const MOST_HOSTS: usize = 32;

/// Maximum number of IPv4 addresses per host.
pub const MOST_ADDRESSES: usize = 9;

/// Minimum size in bytes of a queue given in BDPs: two super-packets. A host here has no
/// line that would space the segments of a super-packet.
const SMALLEST_BDP_QUEUE: f64 = 131_072.0;

/// Reasons why a scenario is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The name of a setting is unknown.
    #[error(
        "a path has no \"{0}\": use rtt, rate, loss, queue, jitter, reorder, duplicate, corrupt or corrupt-unseen, or for the way back only delay-back, rate-back or loss-back"
    )]
    UnknownKey(String),
    /// A setting that accepts one value is given twice.
    #[error("{0} is set twice: remove one of them")]
    Twice(String),
    /// Pauses are set without background traffic.
    #[error("background-on-off needs background: set the number of streams")]
    NoBackground,
    /// A setting has no `=`.
    #[error("\"{0}\" is not a setting: write KEY=VALUE,KEY=VALUE")]
    NoValue(String),
    /// A value cannot be parsed.
    #[error("{key}=\"{value}\": {reason}")]
    Value {
        /// Name of the setting.
        key: String,
        /// The given value.
        value: String,
        /// Description of the problem.
        reason: String,
    },
    /// The settings of a link are out of range.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A pair of sites cannot be parsed.
    #[error("write a path between two sites as a-c:rtt=20ms,rate=10gbit, the earlier letter first")]
    Pair,
    /// The site does not exist.
    #[error("there is no site {0}: --hosts sets the number of sites")]
    NoSite(char),
    /// The number of sites or hosts is out of range.
    #[error(
        "hosts are written 1x1, 2x4 or 2x2x1: 2 to {MOST_SITES} sites of 1 to {MOST_HOSTS} hosts"
    )]
    Hosts,
    /// A setting cannot be combined with a cable.
    #[error("--veth connects two hosts by a cable, without an emulator: leave out {0} or --veth")]
    Cable(&'static str),
}

/// Size of the queue before the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueLimit {
    /// Bytes on the wire.
    Bytes(ByteCount),
    /// Multiple of rate × RTT, 0 to 1000; at least 128 KiB.
    Bdp(f64),
}

impl FromStr for QueueLimit {
    type Err = String;

    /// Parses `1bdp`, `0.5bdp`, `4MiB`.
    fn from_str(text: &str) -> Result<QueueLimit, String> {
        if let Some(number) = text.to_ascii_lowercase().strip_suffix("bdp") {
            let times: f64 = number.trim().parse().map_err(|_| "write 1bdp or 4MiB")?;
            if !(0.0..=1000.0).contains(&times) {
                return Err("a queue has 0 to 1000 BDP".to_owned());
            }
            return Ok(QueueLimit::Bdp(times));
        }
        let bytes = text.parse::<ByteCount>().map_err(|e| e.to_string())?;
        Ok(QueueLimit::Bytes(bytes))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => write!(f, "{}B", bytes.0),
            QueueLimit::Bdp(times) => write!(f, "{times}bdp"),
        }
    }
}

/// Settings of a path in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSettings {
    /// Round-trip time without the time in line and queue.
    pub rtt: Duration,
    /// One-way delay of the way back, if it is not half of the RTT.
    pub delay_back: Option<Duration>,
    /// Rate on Ethernet in both directions. `None` means unlimited.
    pub rate: Option<BitRate>,
    /// Rate of the way back, if it differs.
    pub rate_back: Option<BitRate>,
    /// Loss per direction.
    pub loss: Loss,
    /// Loss of the way back, if it differs.
    pub loss_back: Option<Loss>,
    /// Size of the queue per direction.
    pub queue: QueueLimit,
    /// Maximum deviation of the delay, per direction.
    pub jitter: Duration,
    /// Segments held back, per direction.
    pub reorder: Option<Reorder>,
    /// Probability that a segment arrives twice, per direction, 0 to 1.
    pub duplicate: f64,
    /// Probability of damage that the checksum detects, per direction, 0 to 1.
    pub corrupt: f64,
    /// Probability of damage that the checksum does not detect, per direction, 0 to 1.
    pub corrupt_unseen: f64,
}

impl Default for PathSettings {
    /// Returns a path without delay and rate limit. With a rate, its queue holds one BDP.
    fn default() -> PathSettings {
        PathSettings {
            rtt: Duration::ZERO,
            delay_back: None,
            rate: None,
            rate_back: None,
            loss: Loss::None,
            loss_back: None,
            queue: QueueLimit::Bdp(1.0),
            jitter: Duration::ZERO,
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_unseen: 0.0,
        }
    }
}

impl PathSettings {
    /// Changes the named settings, as in `rtt=100ms,rate=1gbit`.
    ///
    /// # Errors
    ///
    /// Returns an error for the first invalid setting.
    pub fn apply(&mut self, text: &str) -> Result<(), ScenarioError> {
        for setting in text.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) = split_setting(setting)?;
            self.apply_one(key, value)?;
        }
        Ok(())
    }

    /// Changes one setting.
    ///
    /// # Errors
    ///
    /// Returns an error if the setting is unknown or its value is invalid.
    pub fn apply_one(&mut self, key: &str, value: &str) -> Result<(), ScenarioError> {
        let wrong = |reason: String| ScenarioError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            reason,
        };
        match key {
            "rtt" => self.rtt = read_span(value).map_err(wrong)?,
            "delay-back" => self.delay_back = Some(read_span(value).map_err(wrong)?),
            "rate" => self.rate = read_rate(value).map_err(wrong)?,
            "rate-back" => self.rate_back = read_rate(value).map_err(wrong)?,
            "loss" => self.loss = read(value).map_err(wrong)?,
            "loss-back" => self.loss_back = Some(read(value).map_err(wrong)?),
            "queue" => self.queue = value.parse().map_err(wrong)?,
            "jitter" => self.jitter = read_span(value).map_err(wrong)?,
            "reorder" => self.reorder = read_reorder(value).map_err(wrong)?,
            "duplicate" => self.duplicate = read_share(value).map_err(wrong)?,
            "corrupt" => self.corrupt = read_share(value).map_err(wrong)?,
            "corrupt-unseen" => self.corrupt_unseen = read_share(value).map_err(wrong)?,
            _ => return Err(ScenarioError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }

    /// Returns the links of both directions: there, then back.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is out of range.
    pub fn links(&self) -> Result<[LinkSettings; 2], ScenarioError> {
        let back = self.delay_back.unwrap_or(self.rtt / 2);
        let there = self.rtt.saturating_sub(back);
        let ways = [
            (there, self.rate, self.loss),
            (
                back,
                self.rate_back.or(self.rate),
                self.loss_back.unwrap_or(self.loss),
            ),
        ];
        let links = ways.map(|(delay, rate, loss)| LinkSettings {
            rate,
            delay,
            jitter: self.jitter,
            loss,
            queue: self.queue_bytes(there + back, rate),
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            corrupt_unseen: self.corrupt_unseen,
        });
        for link in &links {
            link.check()?;
        }
        Ok(links)
    }

    fn queue_bytes(&self, rtt: Duration, rate: Option<BitRate>) -> ByteCount {
        match (self.queue, rate) {
            (QueueLimit::Bytes(bytes), _) => bytes,
            (QueueLimit::Bdp(_), None) => ByteCount(u64::MAX),
            (QueueLimit::Bdp(times), Some(rate)) => {
                let bytes = times * rate.bits_per_second() / 8.0 * rtt.as_secs_f64();
                ByteCount(bytes.max(SMALLEST_BDP_QUEUE).round() as u64)
            }
        }
    }

    /// Returns rate × RTT in bytes for the way there; `None` without a rate.
    pub fn bdp(&self) -> Option<ByteCount> {
        let back = self.delay_back.unwrap_or(self.rtt / 2);
        let rtt = self.rtt.max(back).as_secs_f64();
        let bytes = self.rate?.bits_per_second() / 8.0 * rtt;
        Some(ByteCount(bytes.round() as u64))
    }
}

impl FromStr for PathSettings {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<PathSettings, ScenarioError> {
        let mut settings = PathSettings::default();
        settings.apply(text)?;
        settings.links()?;
        Ok(settings)
    }
}

impl fmt::Display for PathSettings {
    /// Formats the path in the form that `from_str` parses, without settings that have
    /// their default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| format!("{}ms", time.as_secs_f64() * 1e3);
        let share = |value: f64| (value > 0.0).then(|| share_text(value));
        let lossy = |loss: Loss| (loss != Loss::None).then(|| loss.to_string());
        let reorder = |r: Reorder| format!("{}:{}", share_text(r.probability), milliseconds(r.by));
        let jitter = (!self.jitter.is_zero()).then(|| milliseconds(self.jitter));
        let queue = self.rate.map(|_| self.queue.to_string());
        let settings = [
            ("rtt", Some(milliseconds(self.rtt))),
            ("delay-back", self.delay_back.map(milliseconds)),
            ("rate", self.rate.map(shown_rate)),
            ("rate-back", self.rate_back.map(shown_rate)),
            ("loss", lossy(self.loss)),
            ("loss-back", self.loss_back.map(|loss| loss.to_string())),
            ("queue", queue),
            ("jitter", jitter),
            ("reorder", self.reorder.map(reorder)),
            ("duplicate", share(self.duplicate)),
            ("corrupt", share(self.corrupt)),
            ("corrupt-unseen", share(self.corrupt_unseen)),
        ];
        let mut separator = "";
        for (key, value) in settings {
            if let Some(value) = value {
                write!(f, "{separator}{key}={value}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

fn read<T: FromStr>(value: &str) -> Result<T, String>
where
    T::Err: fmt::Display,
{
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn read_span(value: &str) -> Result<Duration, String> {
    parse_span(value).map_err(|error| error.to_string())
}

/// Formats a rate in the largest unit that keeps it exact.
fn shown_rate(rate: BitRate) -> String {
    let bits = rate.bits_per_second();
    let units = [(1e12, "tbit"), (1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")];
    let mut texts = units
        .into_iter()
        .filter(|(factor, _)| bits >= *factor)
        .map(|(factor, unit)| format!("{}{unit}", bits / factor));
    texts
        .find(|text| text.parse() == Ok(rate))
        .unwrap_or_else(|| format!("{bits}bit"))
}

/// Parses a rate; `none` means unlimited.
fn read_rate(value: &str) -> Result<Option<BitRate>, String> {
    match value {
        "none" => Ok(None),
        _ => read(value).map(Some),
    }
}

fn read_share(value: &str) -> Result<f64, String> {
    parse_share(value).map_err(|error| error.to_string())
}

/// Parses `SHARE:TIME`.
fn read_reorder(value: &str) -> Result<Option<Reorder>, String> {
    let (share, time) = value
        .split_once(':')
        .ok_or("write SHARE:TIME, for example 1e-3:2ms")?;
    let (probability, by) = (read_share(share)?, read_span(time)?);
    Ok((probability > 0.0).then_some(Reorder { probability, by }))
}

/// Size of the TCP window of hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Window {
    /// The limits of the machine's own settings.
    Host,
    /// At least this size, or the machine's limit if that is larger.
    AtLeast(QueueLimit),
}

impl FromStr for Window {
    type Err = String;

    /// Parses `host`, `2bdp`, `64MiB`.
    fn from_str(text: &str) -> Result<Window, String> {
        match text {
            "host" => Ok(Window::Host),
            _ => text.parse().map(Window::AtLeast),
        }
    }
}

/// Number of hosts per site, written as `2x4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(pub Vec<usize>);

impl FromStr for Hosts {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Hosts, ScenarioError> {
        let counts: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
        let counts = counts.map_err(|_| ScenarioError::Hosts)?;
        let fits = |count: &usize| (1..=MOST_HOSTS).contains(count);
        if !(2..=MOST_SITES).contains(&counts.len()) || !counts.iter().all(fits) {
            return Err(ScenarioError::Hosts);
        }
        Ok(Hosts(counts))
    }
}

/// Parses a firewall rule: `SITE:PORTS[:reset]`.
///
/// # Errors
///
/// Returns a message that explains the form.
pub fn parse_block(text: &str) -> Result<BlockRule, String> {
    let explain = "write SITE:PORT, SITE:FROM-TO or SITE:new; append :reset to answer with a reset \
                   instead of dropping packets: b:4960:reset";
    let mut parts = text.split(':');
    let site = parts.next().and_then(parse_site).ok_or(explain)?;
    let ports = parts.next().ok_or(explain)?;
    let refusal = match parts.next() {
        None | Some("drop") => Refusal::Drop,
        Some("reset") => Refusal::Reset,
        Some(_) => return Err(explain.to_owned()),
    };
    if parts.next().is_some() {
        return Err(explain.to_owned());
    }
    let port = |text: &str| text.parse::<u16>().map_err(|_| explain.to_owned());
    let blocked = match ports.split_once('-') {
        _ if ports == "new" => Blocked::NewConnections,
        None => Blocked::Ports(port(ports)?..=port(ports)?),
        Some((from, to)) => Blocked::Ports(port(from)?..=port(to)?),
    };
    Ok(BlockRule {
        site,
        blocked,
        refusal,
    })
}

/// Parses a site's letter, `a` to `h`, and returns its index.
pub fn parse_site(text: &str) -> Option<usize> {
    let site = match text.as_bytes() {
        [letter] => letter.to_ascii_lowercase().checked_sub(b'a')?,
        _ => return None,
    };
    Some(usize::from(site)).filter(|site| *site < MOST_SITES)
}

/// Returns the letter of a site.
pub fn site_letter(site: usize) -> char {
    (b'a' + site.min(MOST_SITES - 1) as u8) as char
}

/// Name and addresses of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddresses {
    /// Name such as `a1`.
    pub name: String,
    /// Index of the site.
    pub site: usize,
    /// IPv4 addresses; the first one is the source address of outgoing packets.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses in the same order; empty behind NAT.
    pub v6: Vec<Ipv6Addr>,
}

impl HostAddresses {
    /// Returns the addresses of a host. They are from the ranges for network benchmarks
    /// (RFC 2544 and RFC 5180); behind NAT they are private (RFC 1918).
    pub fn new(site: usize, host: usize, count: usize, behind_nat: bool) -> HostAddresses {
        let first = if behind_nat { [10, 0] } else { [198, 18] };
        let v4 = (0..count).map(|index| {
            let third = 10 * (site + 1) + index;
            Ipv4Addr::new(first[0], first[1], third as u8, (host + 1) as u8)
        });
        let v6 = (0..if behind_nat { 0 } else { count }).map(|index| {
            let (site, host) = ((site + 1) as u16, (host + 1) as u16);
            Ipv6Addr::new(0x2001, 2, 0, site, index as u16, 0, 0, host)
        });
        HostAddresses {
            name: format!("{}{}", site_letter(site), host + 1),
            site,
            v4: v4.collect(),
            v6: v6.collect(),
        }
    }

    /// Returns all addresses, IPv4 first.
    pub fn all(&self) -> Vec<IpAddr> {
        let v4 = self.v4.iter().map(|address| IpAddr::V4(*address));
        v4.chain(self.v6.iter().map(|address| IpAddr::V6(*address)))
            .collect()
    }
}

/// Returns the public address of a site behind NAT.
pub fn public_address(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, (10 * (site + 1)) as u8, 254)
}

/// A kernel parameter for all hosts, the hosts of a site, or one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// Site or host, for example `a` or `b2`. `None` means all hosts.
    pub whose: Option<String>,
    /// Name of the parameter, with dots.
    pub name: String,
    /// Value of the parameter.
    pub value: String,
}

impl FromStr for Sysctl {
    type Err = String;

    /// Parses `net.ipv4.tcp_sack=0` and `b:net.ipv4.tcp_sack=0`.
    fn from_str(text: &str) -> Result<Sysctl, String> {
        let explain = "write NAME=VALUE, or for one site or host SITE:NAME=VALUE";
        let (name, value) = text.split_once('=').ok_or(explain)?;
        let (whose, name) = match name.split_once(':') {
            Some((whose, name)) => (Some(whose.to_owned()), name),
            None => (None, name),
        };
        if !name.starts_with("net.") {
            return Err("only parameters below net. can be set per host".to_owned());
        }
        Ok(Sysctl {
            whose,
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl Sysctl {
    /// True if the parameter applies to this host.
    pub fn is_for(&self, host: &str) -> bool {
        match self.whose.as_deref() {
            None => true,
            Some(whose) if whose.len() == 1 => host.starts_with(whose),
            Some(whose) => whose == host,
        }
    }
}

/// Settings of the path between two sites that differ from those of all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairPath {
    /// Indices of the sites, the smaller first. The way there leads from the first to the
    /// second.
    pub sites: (usize, usize),
    /// Settings that differ, by name.
    changes: BTreeMap<String, String>,
}

impl FromStr for PairPath {
    type Err = ScenarioError;

    /// Parses `a-c:rtt=20ms,rate=10gbit`.
    fn from_str(text: &str) -> Result<PairPath, ScenarioError> {
        let (sites, rest) = split_pair(text).ok_or(ScenarioError::Pair)?;
        let mut changes = BTreeMap::new();
        let mut path = PathSettings::default();
        for setting in rest.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) = split_setting(setting)?;
            path.apply_one(key, value)?;
            changes.insert(key.to_owned(), value.to_owned());
        }
        Ok(PairPath { sites, changes })
    }
}

impl fmt::Display for PairPath {
    /// Formats the path in the form that `from_str` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.sites;
        write!(f, "{}-{}:", site_letter(first), site_letter(second))?;
        for (index, (key, value)) in self.changes.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

/// Splits `a-c:` from the rest; `None` if the text does not begin with a pair of sites.
fn split_pair(text: &str) -> Option<((usize, usize), &str)> {
    let (pair, rest) = text.split_once(':')?;
    let (first, second) = pair.split_once('-')?;
    let (first, second) = (parse_site(first)?, parse_site(second)?);
    (first < second).then_some(((first, second), rest))
}

fn split_setting(setting: &str) -> Result<(&str, &str), ScenarioError> {
    let pair = setting.split_once('=');
    let (key, value) = pair.ok_or_else(|| ScenarioError::NoValue(setting.to_owned()))?;
    Ok((key.trim(), value.trim()))
}

/// One direction between two sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Index of the sending site.
    pub from: usize,
    /// Index of the receiving site.
    pub to: usize,
    /// Settings of the link.
    pub link: LinkSettings,
}

/// Description of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Number of hosts per site.
    pub hosts: Hosts,
    /// Path between any two sites.
    pub path: PathSettings,
    /// Pairs of sites whose path differs.
    pub pairs: Vec<PairPath>,
    /// If true, a cable (a veth pair) connects two hosts, and no path is emulated.
    pub veth: bool,
    /// MTU of the hosts: IP packet length in bytes, 576 to 65,535.
    pub mtu: u16,
    /// Congestion control of all hosts.
    pub congestion: String,
    /// Size of the TCP window.
    pub window: Window,
    /// Kernel parameters of hosts. If one is set twice, the later value counts.
    pub sysctls: Vec<Sysctl>,
    /// Number of IPv4 addresses per host, and of IPv6 addresses, 1 to 9.
    pub addresses: usize,
    /// Firewall rules.
    pub blocks: Vec<BlockRule>,
    /// Index of the site behind NAT, if any.
    pub nat: Option<usize>,
    /// Background traffic, if any.
    pub background: Option<Background>,
    /// Directories behind modelled devices, and parallel file systems.
    pub storage: Vec<StoragePlan>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            hosts: Hosts(vec![1, 1]),
            path: PathSettings::default(),
            pairs: Vec::new(),
            veth: false,
            mtu: 1500,
            // The default of most data transfer nodes.
            congestion: "cubic".to_owned(),
            // Twice the BDP, as ESnet and paper 003 advise.
            window: Window::AtLeast(QueueLimit::Bdp(2.0)),
            sysctls: Vec::new(),
            addresses: 1,
            blocks: Vec::new(),
            nat: None,
            background: None,
            storage: Vec::new(),
            seed: 1,
        }
    }
}

impl Scenario {
    /// Changes the path between all sites. With a prefix such as `a-c:`, changes the path
    /// between two sites.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid; nothing is changed then.
    pub fn change(&mut self, changes: &str) -> Result<(), ScenarioError> {
        let mut changed = self.clone();
        if self.veth {
            return Err(ScenarioError::Cable("changes of the path"));
        }
        if split_pair(changes).is_some() {
            let pair: PairPath = changes.parse()?;
            let own = changed.pairs.iter_mut().find(|own| own.sites == pair.sites);
            match own {
                Some(own) => own.changes.extend(pair.changes),
                None => changed.pairs.push(pair),
            }
        } else {
            changed.path.apply(changes)?;
        }
        changed.directions()?;
        *self = changed;
        Ok(())
    }

    /// Returns the path in the form that `--lab` parses, or `veth` for a cable.
    pub fn shown_path(&self) -> String {
        if self.veth {
            "veth".to_owned()
        } else {
            self.path.to_string()
        }
    }

    /// Returns the path between two sites. The way there begins at the first site.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting of the pair is invalid.
    pub fn path_between(&self, sites: (usize, usize)) -> Result<PathSettings, ScenarioError> {
        let mut path = self.path.clone();
        for pair in self.pairs.iter().filter(|pair| pair.sites == sites) {
            for (key, value) in &pair.changes {
                path.apply_one(key, value)?;
            }
        }
        Ok(path)
    }

    /// Returns an error if the scenario needs more than a cable offers.
    fn beyond_a_cable(&self) -> Option<ScenarioError> {
        let beyond = [
            (self.path != PathSettings::default(), "settings of the path"),
            (!self.pairs.is_empty(), "--path"),
            (self.hosts != Hosts(vec![1, 1]), "--hosts"),
            (!self.blocks.is_empty(), "--block"),
            (self.nat.is_some(), "--nat"),
            (self.background.is_some(), "--background"),
        ];
        let (_, what) = beyond.into_iter().find(|(asked, _)| *asked)?;
        Some(ScenarioError::Cable(what))
    }

    /// Returns the emulated directions between all sites; empty for a cable.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is out of range, a site does not exist, or a cable
    /// has other settings.
    pub fn directions(&self) -> Result<Vec<Direction>, ScenarioError> {
        if self.veth {
            return self.beyond_a_cable().map_or(Ok(Vec::new()), Err);
        }
        let sites = self.hosts.0.len();
        if let Some(pair) = self.pairs.iter().find(|pair| pair.sites.1 >= sites) {
            return Err(ScenarioError::NoSite(site_letter(pair.sites.1)));
        }
        let mut directions = Vec::new();
        for first in 0..sites {
            for second in first + 1..sites {
                let [there, back] = self.path_between((first, second))?.links()?;
                for (from, to, link) in [(first, second, there), (second, first, back)] {
                    directions.push(Direction { from, to, link });
                }
            }
        }
        Ok(directions)
    }

    /// Returns the largest rate × RTT of all paths in bytes; `None` if no path has a
    /// rate.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting of a pair is invalid.
    pub fn largest_bdp(&self) -> Result<Option<ByteCount>, ScenarioError> {
        let pairs = self.pairs.iter().map(|pair| pair.sites);
        let mut largest = self.path.bdp();
        for sites in pairs {
            largest = largest.max(self.path_between(sites)?.bdp());
        }
        Ok(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_in_the_largest_unit_that_keeps_them_exact() {
        for (rate, shown) in [
            (1e9, "1gbit"),
            (2.5e9, "2.5gbit"),
            (1e12, "1tbit"),
            (300e3, "300kbit"),
            (999.0, "999bit"),
            (0.5, "0.5bit"),
        ] {
            let rate = BitRate::new(rate).unwrap();
            assert_eq!(shown_rate(rate), shown);
            assert_eq!(shown.parse(), Ok(rate));
        }
    }

    #[test]
    fn a_path_is_parsed_and_formatted() {
        let text = "rtt=91.6ms,rate=5gbit,loss=1e-5,queue=0.5bdp,jitter=1ms,reorder=1e-3:2ms,\
                    duplicate=1e-4,corrupt=1%,corrupt-unseen=1e-6,delay-back=40ms,rate-back=1gbit,\
                    loss-back=0";
        let path: PathSettings = text.parse().unwrap();
        assert_eq!(path.to_string().parse(), Ok(path.clone()));
        let [there, back] = path.links().unwrap();
        assert_eq!(there.delay, Duration::from_micros(51_600));
        assert_eq!(back.delay, Duration::from_millis(40));
        // 5 Gbit/s × 91.6 ms / 2.
        assert_eq!(there.queue, ByteCount(28_625_000));
        assert_eq!(back.queue, ByteCount(5_725_000));
        assert_eq!(back.loss, Loss::None);
        assert_eq!(path.bdp(), Some(ByteCount(57_250_000)));
    }

    #[test]
    fn a_pair_of_sites_can_have_different_settings() {
        let mut scenario = Scenario {
            hosts: Hosts(vec![1, 1, 1]),
            path: "rtt=10ms,rate=1gbit".parse().unwrap(),
            pairs: vec!["a-c:rtt=100ms,delay-back=70ms".parse().unwrap()],
            ..Scenario::default()
        };
        let delay = |scenario: &Scenario, from, to| {
            let directions = scenario.directions().unwrap();
            let way = directions.iter().find(|d| (d.from, d.to) == (from, to));
            way.unwrap().link.delay.as_millis()
        };
        assert_eq!(delay(&scenario, 0, 1), 5);
        assert_eq!((delay(&scenario, 0, 2), delay(&scenario, 2, 0)), (30, 70));
        assert_eq!(scenario.largest_bdp(), Ok(Some(ByteCount(12_500_000))));
        scenario.change("rtt=20ms").unwrap();
        scenario.change("a-c:delay-back=60ms").unwrap();
        scenario.change("b-c:rate=2gbit").unwrap();
        assert_eq!((delay(&scenario, 0, 1), delay(&scenario, 2, 0)), (10, 60));
        assert_eq!(delay(&scenario, 0, 2), 40);
        assert_eq!(
            scenario.pairs[0].to_string(),
            "a-c:delay-back=60ms,rtt=100ms"
        );
        let before = scenario.clone();
        for wrong in [
            "a-d:rtt=1ms",
            "a-c:speed=1",
            "a-c:rate=0",
            "c-a:rtt=1ms",
            "a-a:rtt=1ms",
        ] {
            assert!(scenario.change(wrong).is_err(), "{wrong}");
            assert_eq!(scenario, before);
        }
        assert!("rtt=1ms".parse::<PairPath>().is_err());
    }

    #[test]
    fn a_cable_rejects_settings_of_paths() {
        let cable = Scenario {
            veth: true,
            ..Scenario::default()
        };
        assert_eq!(cable.directions(), Ok(Vec::new()));
        assert_eq!(cable.shown_path(), "veth");
        let longer = Scenario {
            path: "rtt=1ms".parse().unwrap(),
            ..cable.clone()
        };
        let more = Scenario {
            hosts: Hosts(vec![2, 1]),
            ..cable.clone()
        };
        for wrong in [longer, more] {
            assert!(matches!(wrong.directions(), Err(ScenarioError::Cable(_))));
        }
        let mut cable = cable;
        assert!(cable.change("rtt=1ms").is_err());
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for text in [
            "rtt",
            "rtt=x",
            "speed=1",
            "rate=0",
            "jitter=1ms",
            "loss=2",
            "queue=-1bdp",
        ] {
            assert!(text.parse::<PathSettings>().is_err(), "{text}");
        }
    }

    #[test]
    fn parses_hosts_firewall_rules_and_parameters() {
        assert_eq!("2x4".parse(), Ok(Hosts(vec![2, 4])));
        for text in ["2", "0x1", "1x33", "1x1x1x1x1x1x1x1x1", "axb"] {
            assert!(text.parse::<Hosts>().is_err(), "{text}");
        }
        let rule = parse_block("b:4960:reset").unwrap();
        assert_eq!((rule.site, rule.refusal), (1, Refusal::Reset));
        assert_eq!(rule.blocked, Blocked::Ports(4960..=4960));
        assert_eq!(
            parse_block("a:new").unwrap().blocked,
            Blocked::NewConnections
        );
        for text in ["b", "z:1", "b:1:maybe", "b:x", "b:1:reset:2"] {
            assert!(parse_block(text).is_err(), "{text}");
        }
        let sysctl: Sysctl = "b:net.ipv4.tcp_sack=0".parse().unwrap();
        assert!(sysctl.is_for("b2") && !sysctl.is_for("a1"));
        assert!("vm.swappiness=1".parse::<Sysctl>().is_err());
    }

    #[test]
    fn no_two_addresses_are_equal() {
        let mut all = std::collections::HashSet::new();
        for site in 0..MOST_SITES {
            assert!(all.insert(IpAddr::V4(public_address(site))));
            for host in 0..MOST_HOSTS {
                let host = HostAddresses::new(site, host, MOST_ADDRESSES, false);
                assert!(host.all().into_iter().all(|address| all.insert(address)));
            }
        }
    }
}
