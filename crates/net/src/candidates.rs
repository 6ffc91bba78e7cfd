//! Addresses at which an end may be reached, and a race to the first that answers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Delay before the next address is tried in parallel. RFC 8305, section 8, recommends 250 ms and
/// permits 100. The lower value is used because more addresses than usual are unreachable here
/// (private ones of other hosts), and no user waits for the result.
const STAGGER: Duration = Duration::from_millis(100);

/// Maximum number of addresses that are tried.
pub const MAXIMUM_CANDIDATES: usize = 24;

/// Function that tries one address until a deadline.
pub type Attempt<T> = Arc<dyn Fn(SocketAddr, Instant) -> Result<T, String> + Send + Sync>;

/// Returns the first successful result, with its address. Each address is tried shortly after the
/// previous one, or at once if that one failed.
///
/// # Errors
///
/// The error of each address. Those that took longest come first: a timeout indicates an obstacle
/// (a firewall) better than an address without a route.
pub fn first_to_answer<T: Send + 'static>(
    addresses: &[SocketAddr],
    deadline: Instant,
    attempt: &Attempt<T>,
) -> Result<(SocketAddr, T), Vec<(SocketAddr, String)>> {
    let (sender, results) = channel();
    let mut waiting = addresses.iter().take(MAXIMUM_CANDIDATES);
    let mut under_way: Vec<(SocketAddr, Instant)> = Vec::new();
    let mut failures = Vec::new();
    loop {
        if let Some(address) = waiting.next() {
            try_one(*address, deadline, Arc::clone(attempt), sender.clone());
            under_way.push((*address, Instant::now()));
        }
        if under_way.is_empty() {
            return Err(longest_first(failures));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = match waiting.len() {
            0 => left,
            _ => STAGGER.min(left),
        };
        match results.recv_timeout(patience) {
            Ok((address, Ok(found))) => return Ok((address, found)),
            Ok((address, Err(cause))) => {
                let place = under_way.iter().position(|(tried, _)| *tried == address);
                let began = place.map(|place| under_way.remove(place).1);
                let took = began.map_or(Duration::ZERO, |began| began.elapsed());
                failures.push((took, (address, cause)));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                if Instant::now() >= deadline {
                    let silent = under_way.into_iter().map(|(address, began)| {
                        let took = began.elapsed();
                        (took, (address, format!("{address}: no answer")))
                    });
                    failures.extend(silent);
                    return Err(longest_first(failures));
                }
            }
        }
    }
}

type Failure = (SocketAddr, String);

fn longest_first(mut failures: Vec<(Duration, Failure)>) -> Vec<Failure> {
    failures.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    failures.into_iter().map(|(_, failure)| failure).collect()
}

type Tried<T> = (SocketAddr, Result<T, String>);

/// Tries one address on a separate thread. A result that is no longer needed is dropped.
fn try_one<T: Send + 'static>(
    address: SocketAddr,
    deadline: Instant,
    attempt: Attempt<T>,
    results: Sender<Tried<T>>,
) {
    let failed = results.clone();
    let started = std::thread::Builder::new()
        .name("candidate".into())
        .spawn(move || {
            let _ = results.send((address, attempt(address, deadline)));
        });
    if let Err(error) = started {
        let _ = failed.send((address, Err(error.to_string())));
    }
}

/// Returns the addresses of this host's active interfaces that other hosts may reach. Loopback and
/// link-local addresses are omitted.
///
/// # Errors
///
/// The errors of `getifaddrs`.
#[allow(unsafe_code)] // No safe binding lists interfaces.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is valid for writing; what it is set to is freed
    // below, and not used after that.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: each entry of the list is valid until the list is freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        if up && !entry.ifa_addr.is_null() {
            // SAFETY: the address is as long as its family says.
            addresses.extend(unsafe { address_of(entry.ifa_addr) });
        }
    }
    // SAFETY: `list` came from `getifaddrs` and is freed once.
    unsafe { libc::freeifaddrs(list) };
    addresses.retain(is_reachable);
    addresses.dedup();
    Ok(addresses)
}

/// # Safety
///
/// `address` points to a socket address whose length fits its family.
#[allow(unsafe_code)] // `getifaddrs` returns pointers.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: promised by the caller; read unaligned, as only the family's
    // own type is sure to be aligned.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: as above.
            let found = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let bytes = found.sin_addr.s_addr.to_ne_bytes();
            Some(IpAddr::V4(Ipv4Addr::from(bytes)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let found = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(found.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

fn is_reachable(address: &IpAddr) -> bool {
    let linked = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || linked)
}

/// Returns the addresses in `SSH_CONNECTION`, as set by sshd: the client's and the server's.
pub fn ssh_connection() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    parse_ssh_connection(&text)
}

fn parse_ssh_connection(text: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = text.split(' ');
    let client = words.next()?.parse().ok()?;
    let server = words.nth(1)?.parse().ok()?;
    Some((client, server))
}

/// True if `logind` ends the processes of a login when the login ends (`KillUserProcesses`),
/// according to its configuration files.
pub fn login_ends_processes() -> bool {
    let mut files = vec![std::path::PathBuf::from("/etc/systemd/logind.conf")];
    for directory in [
        "/usr/lib/systemd/logind.conf.d",
        "/etc/systemd/logind.conf.d",
    ] {
        let listed = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut more: Vec<_> = listed.map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    let texts = files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    let is_systemd = std::path::Path::new("/run/systemd/system").exists();
    is_systemd && texts.filter_map(|text| kill_setting(&text)).next_back() == Some(true)
}

/// Returns the last setting in a file, if it has one.
fn kill_setting(text: &str) -> Option<bool> {
    let mut values = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("KillUserProcesses="));
    let last = values.next_back()?;
    Some(["yes", "true", "1", "on"].contains(&last.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_first_that_answers_wins_and_failures_do_not_wait() {
        let attempt: Attempt<u16> = Arc::new(|address, _| match address.port() {
            20 => Ok(20),
            port => Err(format!("no {port}")),
        });
        let found = first_to_answer(&addresses(20), soon(), &attempt).unwrap();
        assert_eq!(found, (addresses(20)[19], 20));
        let failures = first_to_answer(&addresses(3), soon(), &attempt).unwrap_err();
        assert_eq!(failures.len(), 3);
        assert_eq!(first_to_answer(&[], soon(), &attempt), Err(Vec::new()));
    }

    #[test]
    fn a_silent_address_does_not_delay_the_others() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let attempt: Attempt<()> = Arc::new(move |address, _| {
            if address.port() == 1 {
                let _ = held.lock().unwrap().recv();
            }
            Ok(())
        });
        let found = first_to_answer(&addresses(2), soon(), &attempt).unwrap();
        assert_eq!(found.0.port(), 2);
        drop(hold);
    }

    #[test]
    fn a_silent_address_is_named_before_those_without_a_route() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let attempt: Attempt<()> = Arc::new(move |address, _| {
            if address.port() == 1 {
                let _ = held.lock().unwrap().recv();
            }
            Err(format!("{address}: no route"))
        });
        let deadline = Instant::now() + STAGGER + STAGGER;
        let failures = first_to_answer(&addresses(3), deadline, &attempt).unwrap_err();
        let ports: Vec<u16> = failures.iter().map(|(address, _)| address.port()).collect();
        assert_eq!((ports.len(), ports[0]), (3, 1), "{failures:?}");
        assert!(failures[0].1.contains("no answer"), "{failures:?}");
        drop(hold);
    }

    #[test]
    fn no_more_than_the_bound_are_tried() {
        let attempt: Attempt<()> = Arc::new(|_, _| Err("no".to_owned()));
        let failures = first_to_answer(&addresses(100), soon(), &attempt).unwrap_err();
        assert_eq!(failures.len(), MAXIMUM_CANDIDATES);
    }

    #[test]
    fn only_reachable_addresses_are_announced() {
        let told = interface_addresses().unwrap();
        assert!(told.iter().all(is_reachable), "{told:?}");
        for never in ["127.0.0.1", "::1", "169.254.1.1", "fe80::1", "0.0.0.0"] {
            assert!(!is_reachable(&never.parse().unwrap()), "{never}");
        }
        assert!(is_reachable(&"10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn settings_of_sshd_and_logind_are_parsed() {
        let pair = parse_ssh_connection("192.0.2.1 5000 2001:db8::1 22").unwrap();
        assert_eq!(
            pair,
            ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap())
        );
        assert_eq!(parse_ssh_connection("UNKNOWN 0 UNKNOWN 0"), None);
        assert_eq!(kill_setting("[Login]\n#KillUserProcesses=yes\n"), None);
        assert_eq!(
            kill_setting("KillUserProcesses=no\nKillUserProcesses=yes"),
            Some(true)
        );
    }
}
