//! Network interfaces as the kernel reports them: MTU, queues, driver, speed and offloads, like
//! `ethtool`.
//!
//! All data are queried by a socket, which belongs to the network namespace of the thread that
//! created it. `/sys/class/net` belongs to the namespace that mounted it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Maximum number of interfaces that are reported.
pub const MOST_INTERFACES: usize = 64;

/// Names of offloads, and their commands of `linux/ethtool.h`.
const OFFLOADS: [(&str, u32); 6] = [
    ("rx_checksums", 0x14),
    ("tx_checksums", 0x16),
    ("scatter_gather", 0x18),
    ("tcp_segmentation", 0x1e),
    ("generic_segmentation", 0x23),
    ("generic_receive", 0x2b),
];

/// `ETHTOOL_GSET`, `ETHTOOL_GDRVINFO` and `ETHTOOL_GCHANNELS` of `linux/ethtool.h`.
const GET_SETTINGS: u32 = 0x01;
const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;

/// Constants of `linux/sockios.h`.
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCETHTOOL: u32 = 0x8946;

/// `IFF_UP` and `IFF_RUNNING` of `linux/if.h`.
const UP: u16 = 1;
const RUNNING: u16 = 1 << 6;

/// Number of words of the longest answer, `struct ethtool_drvinfo`, with a margin.
const ANSWER_WORDS: usize = 64;

/// Bytes of a name in `struct ifreq`.
const NAME_BYTES: usize = 16;

/// A network interface. Values that its driver does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// `up`, `down`, or `no carrier` (up, but not connected).
    pub state: &'static str,
    /// Maximum bytes of an IP packet.
    pub mtu: Option<u64>,
    /// Maximum number of waiting packets, if its queue counts packets.
    pub transmit_queue_length: Option<u64>,
    /// Line rate in Mbit/s.
    pub speed_mbit_per_second: Option<u64>,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Number of receive queues.
    pub receive_queues: Option<u64>,
    /// Number of transmit queues.
    pub transmit_queues: Option<u64>,
    /// Each known offload, and true if it is on.
    pub offloads: Vec<(&'static str, bool)>,
}

/// `struct ifreq`: its union has 24 bytes and begins with a number or an address.
#[repr(C, align(8))]
struct Request {
    name: [u8; NAME_BYTES],
    value: [u8; 24],
}

/// Returns the interfaces of this thread's network namespace except loopback, by ascending name.
///
/// # Errors
///
/// Fails if they cannot be listed, or if there is no socket for queries.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let asked = Asked::new()?;
    let mut names = names(&table);
    names.sort_unstable();
    names.truncate(MOST_INTERFACES);
    Ok(names
        .into_iter()
        .map(|name| asked.interface(name))
        .collect())
}

/// Parses two lines of titles, then a name and a colon per line.
fn names(table: &str) -> Vec<&str> {
    let lines = table.lines().skip(2);
    let names = lines.filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names
        .filter(|name| *name != "lo" && name.len() < NAME_BYTES)
        .collect()
}

/// Socket for queries.
struct Asked(UdpSocket);

impl Asked {
    fn new() -> io::Result<Asked> {
        // A namespace may have only one of the families.
        UdpSocket::bind("0.0.0.0:0")
            .or_else(|_| UdpSocket::bind("[::]:0"))
            .map(Asked)
    }

    fn interface(&self, name: &str) -> Interface {
        let number = |question| {
            let bytes = self.ask(name, question).ok()?;
            Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let flags = self.ask(name, SIOCGIFFLAGS).ok();
        let flags = flags.map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
        let channels = self.ethtool(name, GET_CHANNELS).ok();
        // Receive, transmit, other, combined: the numbers in use, after as many maxima.
        let queues = |own: usize| {
            let channels = channels.as_ref()?;
            Some(u64::from(channels[own].saturating_add(channels[8])))
        };
        Interface {
            name: name.to_owned(),
            state: match flags {
                Some(flags) if flags & UP == 0 => "down",
                Some(flags) if flags & RUNNING == 0 => "no carrier",
                Some(_) => "up",
                None => "unknown",
            },
            mtu: number(SIOCGIFMTU).map(u64::from),
            transmit_queue_length: number(SIOCGIFTXQLEN).map(u64::from),
            speed_mbit_per_second: self.ethtool(name, GET_SETTINGS).ok().and_then(speed),
            driver: self.ethtool(name, GET_DRIVER).ok().and_then(driver),
            receive_queues: queues(5),
            transmit_queues: queues(6),
            offloads: self.offloads(name),
        }
    }

    fn offloads(&self, name: &str) -> Vec<(&'static str, bool)> {
        let known = OFFLOADS.iter().filter_map(|&(what, question)| {
            let answer = self.ethtool(name, question).ok()?;
            Some((what, answer[1] != 0))
        });
        known.collect()
    }

    /// Runs a query; returns the union of `struct ifreq` afterwards.
    fn ask(&self, interface: &str, question: u32) -> io::Result<[u8; 24]> {
        let mut request = request(interface, &[])?;
        self.call(question, &mut request)?;
        Ok(request.value)
    }

    /// Runs an ethtool command; returns its answer.
    fn ethtool(&self, interface: &str, question: u32) -> io::Result<[u32; ANSWER_WORDS]> {
        let mut answer = [0; ANSWER_WORDS];
        answer[0] = question;
        let address = (&raw mut answer).expose_provenance();
        let mut request = request(interface, &address.to_ne_bytes())?;
        self.call(SIOCETHTOOL, &mut request)?;
        Ok(answer)
    }

    #[expect(unsafe_code, reason = "no binding has these ioctls")]
    fn call(&self, code: u32, request: &mut Request) -> io::Result<()> {
        // SAFETY: the descriptor is open; the request is as long as the kernel's, and what
        // it has the address of is longer than any answer to what is asked; both outlive
        // the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), code as _, &raw mut *request) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn request(interface: &str, value: &[u8]) -> io::Result<Request> {
    let mut request = Request {
        name: [0; NAME_BYTES],
        value: [0; 24],
    };
    if interface.len() >= NAME_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..interface.len()].copy_from_slice(interface.as_bytes());
    request.value[..value.len()].copy_from_slice(value);
    Ok(request)
}

/// Returns the speed in `struct ethtool_cmd`, which has two halves; all ones if the driver does not
/// know it.
fn speed(settings: [u32; ANSWER_WORDS]) -> Option<u64> {
    let half = |word: u32, place: usize| {
        let bytes = word.to_ne_bytes();
        u16::from_ne_bytes([bytes[place], bytes[place + 1]])
    };
    let (low, high) = (half(settings[3], 0), half(settings[7], 0));
    let speed = u32::from(high) << 16 | u32::from(low);
    let is_known = speed > 0 && low != u16::MAX && speed != u32::MAX;
    is_known.then_some(u64::from(speed))
}

/// Returns the driver in `struct ethtool_drvinfo`, up to its first NUL.
fn driver(answer: [u32; ANSWER_WORDS]) -> Option<String> {
    let bytes: Vec<u8> = answer[1..9].iter().flat_map(|w| w.to_ne_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_described_and_unknown_interfaces_are_not() {
        let asked = Asked::new().unwrap();
        let loopback = asked.interface("lo");
        assert_eq!((loopback.state, loopback.mtu), ("up", Some(65_536)));
        let known = &loopback.offloads;
        assert!(known.contains(&("tcp_segmentation", true)), "{known:?}");
        assert_eq!(loopback.speed_mbit_per_second, None);
        for none in ["no-such-card", "a-name-of-17-bytes"] {
            let none = asked.interface(none);
            assert_eq!((none.state, none.mtu, none.driver), ("unknown", None, None));
            assert!(none.offloads.is_empty());
        }
    }

    #[test]
    fn names_are_listed_without_loopback() {
        let table = "Inter-|   Receive |\n face |bytes |\n    lo: 1 2\n  eth0: 3 4\nwlan0:5 6\n";
        assert_eq!(names(table), ["eth0", "wlan0"]);
        let own = interfaces().unwrap();
        assert!(own.iter().all(|interface| interface.name != "lo"));
        assert!(
            own.iter().all(|interface| interface.mtu.is_some()),
            "{own:?}"
        );
    }

    #[test]
    fn a_speed_has_two_halves_or_is_not_known() {
        let told = |low: u16, high: u16| {
            let mut settings = [0; ANSWER_WORDS];
            let word = |half: u16| {
                let [first, second] = half.to_ne_bytes();
                u32::from_ne_bytes([first, second, 0, 0])
            };
            (settings[3], settings[7]) = (word(low), word(high));
            speed(settings)
        };
        assert_eq!(told(10_000, 0), Some(10_000));
        // 100 Gbit/s exceed the lower half.
        assert_eq!(told(0x86a0, 1), Some(100_000));
        for unknown in [(0, 0), (u16::MAX, 0), (u16::MAX, u16::MAX)] {
            assert_eq!(told(unknown.0, unknown.1), None);
        }
    }

    #[test]
    fn a_driver_is_named_up_to_its_end() {
        let mut answer = [0; ANSWER_WORDS];
        assert_eq!(driver(answer), None);
        answer[1] = u32::from_ne_bytes(*b"veth");
        assert_eq!(driver(answer).as_deref(), Some("veth"));
    }
}
