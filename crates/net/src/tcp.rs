//! Creates, accepts and configures TCP connections.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use longhaul_system::limits::thread_refusal;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::{congestion, multipath};

/// A host by name or address, in lower case and without brackets, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// Creates it from a name, an IPv4 or an IPv6 address, the latter with or without brackets.
    pub fn new(host: &str, port: u16) -> HostPort {
        let bare = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        HostPort {
            host: bare.to_ascii_lowercase(),
            port,
        }
    }

    /// Returns the host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for HostPort {
    /// Writes `host:port`, with IPv6 addresses in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> HostPort {
        // A listener for IPv6 and IPv4 reports IPv4 clients as `::ffff:192.0.2.1`.
        HostPort::new(&address.ip().to_canonical().to_string(), address.port())
    }
}

/// Maximum user timeout. The kernel counts milliseconds in 31 bits, which overflow after 24 days.
const LONGEST_USER_TIMEOUT: Duration = Duration::from_secs(24 * 86_400);

/// Options of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Idle time after which the kernel probes the peer, in whole seconds, 1 or more. It repeats
    /// the probe at every third of that time.
    pub keepalive: Duration,
    /// Maximum time without an acknowledgement of sent data (`TCP_USER_TIMEOUT`), in milliseconds.
    /// The kernel then closes the connection.
    pub user_timeout: Duration,
    /// `TCP_NOTSENT_LOWAT` in bytes. `None` keeps the kernel's value.
    pub unsent_limit: Option<u32>,
    /// `SO_SNDBUF` in bytes. `None`, the default, lets the kernel tune the size, beyond the fixed
    /// sizes that `net.core.wmem_max` permits.
    pub send_buffer: Option<usize>,
    /// `SO_RCVBUF` in bytes. `None` lets the kernel tune the size.
    pub receive_buffer: Option<usize>,
    /// Local address to connect from. `None` lets the routing table choose.
    pub bind: Option<IpAddr>,
    /// If true, connects with Multipath TCP if both ends support it.
    pub multipath: bool,
    /// `TCP_MAXSEG` in bytes: the largest segment of either direction. `None` keeps the kernel's
    /// value.
    pub segment: Option<u32>,
}

impl Default for TcpOptions {
    /// Treats a peer as dead after a minute of silence. Shorter interruptions are survived. After
    /// longer ones, a new connection recovers faster than the old one's timers.
    fn default() -> Self {
        TcpOptions {
            keepalive: Duration::from_secs(20),
            user_timeout: Duration::from_secs(60),
            unsent_limit: None,
            send_buffer: None,
            receive_buffer: None,
            bind: None,
            multipath: false,
            segment: None,
        }
    }
}

/// Reasons why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name cannot be resolved.
    #[error("cannot resolve {target}: {cause}: check the host's name and this host's resolver")]
    Resolve {
        /// The host and port.
        target: HostPort,
        /// Error of the resolver.
        cause: io::Error,
    },
    /// The name has no address.
    #[error("{target} has no address: check the host's name")]
    NoAddress {
        /// The host and port.
        target: HostPort,
    },
    /// The host has no address of the same family as the local address.
    #[error(
        "{target} has no {} address, and --bind {local} connects from one: bind an address of the \
         other family, or name an address of this family in the URL", family(*local)
    )]
    Family {
        /// The host and port.
        target: HostPort,
        /// Local address to connect from.
        local: IpAddr,
    },
    /// Every address failed.
    #[error(
        "cannot connect to {target} ({addresses} addresses tried, last {last}): {cause}: check \
         that the daemon runs there and that no firewall is between"
    )]
    Refused {
        /// The host and port.
        target: HostPort,
        /// Number of addresses tried.
        addresses: usize,
        /// The last address that failed.
        last: SocketAddr,
        /// Error of the last address.
        cause: io::Error,
    },
    /// No address answered in time.
    #[error(
        "no answer from {target} within {} s: check the address and port, and whether a firewall \
         drops packets between", tenths(*timeout)
    )]
    Timeout {
        /// The host and port.
        target: HostPort,
        /// Time limit of the attempt.
        timeout: Duration,
    },
}

/// Delay before the next address is tried in parallel (RFC 8305, section 8: 250 ms is recommended).
const STAGGER: Duration = Duration::from_millis(250);

/// Maximum number of addresses that are tried. Each uses a thread, and a name with more addresses
/// is a mistake or an attack.
const MAXIMUM_ADDRESSES: usize = 8;

/// Connects to the host's first address that answers. Each address is tried 250 ms after the
/// previous one, or at once if that one failed. IPv6 and IPv4 addresses alternate.
///
/// # Errors
///
/// The name cannot be resolved, or no address answers within `timeout`. The time for resolving is
/// not counted, because the system's resolver has its own timeouts.
pub fn connect(
    target: &HostPort,
    timeout: Duration,
    options: &TcpOptions,
) -> Result<TcpStream, ConnectError> {
    race(target, &addresses_of(target)?, timeout, options)
}

/// Connects as [`connect`] does, to the given addresses.
///
/// # Errors
///
/// No address answers within `timeout`.
pub fn connect_to(
    target: &HostPort,
    addresses: &[SocketAddr],
    timeout: Duration,
    options: &TcpOptions,
) -> Result<TcpStream, ConnectError> {
    race(target, addresses, timeout, options)
}

/// Checks that connections can be made from a local address.
///
/// # Errors
///
/// The errors of `bind`: `AddrNotAvailable` if the address does not belong to this host.
pub fn check_local(address: IpAddr) -> io::Result<()> {
    std::net::UdpSocket::bind((address, 0)).map(drop)
}

/// Returns the host's addresses in the order in which they are tried, at most eight. IPv6 and IPv4
/// addresses alternate.
///
/// # Errors
///
/// The name cannot be resolved.
pub fn addresses_of(target: &HostPort) -> Result<Vec<SocketAddr>, ConnectError> {
    let found = (target.host(), target.port())
        .to_socket_addrs()
        .map_err(|cause| ConnectError::Resolve {
            target: target.clone(),
            cause,
        })?;
    Ok(interleave(found.collect()))
}

/// Alternates IPv6 and IPv4 addresses, beginning with the family of the resolver's first choice.
fn interleave(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut ours, mut others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|a| a.is_ipv6() == first_is_v6);
    let mut addresses = Vec::new();
    ours.reverse();
    others.reverse();
    while let Some(address) = ours.pop() {
        addresses.push(address);
        addresses.extend(others.pop());
    }
    addresses.extend(others.into_iter().rev());
    addresses.truncate(MAXIMUM_ADDRESSES);
    addresses
}

fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

/// Returns the addresses of the same family as the local address.
fn of_family(addresses: &[SocketAddr], local: Option<IpAddr>) -> Vec<SocketAddr> {
    let fits = |address: &&SocketAddr| local.is_none_or(|ip| ip.is_ipv4() == address.is_ipv4());
    addresses.iter().filter(fits).copied().collect()
}

type Attempt = (SocketAddr, io::Result<TcpStream>);

fn race(
    target: &HostPort,
    addresses: &[SocketAddr],
    timeout: Duration,
    options: &TcpOptions,
) -> Result<TcpStream, ConnectError> {
    let there = of_family(addresses, options.bind);
    if let (true, false, Some(local)) = (there.is_empty(), addresses.is_empty(), options.bind) {
        let target = target.clone();
        return Err(ConnectError::Family { target, local });
    }
    let addresses = there.as_slice();
    let deadline = Instant::now() + timeout;
    let (sender, results) = mpsc::channel::<Attempt>();
    let mut waiting = addresses.iter();
    let mut failed = 0;
    let mut last = None;
    while failed < addresses.len() {
        if let Some(address) = waiting.next() {
            attempt(*address, deadline, *options, sender.clone());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = match waiting.len() {
            0 => left,
            _ => STAGGER.min(left),
        };
        match results.recv_timeout(patience) {
            Ok((_, Ok(socket))) => return Ok(socket),
            Ok((address, Err(cause))) => {
                failed += 1;
                last = Some((address, cause));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                if Instant::now() >= deadline {
                    break;
                }
            }
        }
    }
    Err(give_up(target, addresses.len(), last, timeout))
}

/// Returns the error for the last failure. A timeout applies to the whole attempt.
fn give_up(
    target: &HostPort,
    addresses: usize,
    last: Option<(SocketAddr, io::Error)>,
    timeout: Duration,
) -> ConnectError {
    let target = target.clone();
    match last {
        _ if addresses == 0 => ConnectError::NoAddress { target },
        Some((last, cause)) if cause.kind() != io::ErrorKind::TimedOut => ConnectError::Refused {
            target,
            addresses,
            last,
            cause,
        },
        _ => ConnectError::Timeout { target, timeout },
    }
}

/// Tries one address on a separate thread, which ends by the deadline. A connection that is no
/// longer needed is closed when its message is dropped.
fn attempt(address: SocketAddr, deadline: Instant, options: TcpOptions, results: Sender<Attempt>) {
    let failed = results.clone();
    let body = move || {
        let _ = results.send((address, connect_one(address, deadline, &options)));
    };
    let started = std::thread::Builder::new()
        .name("connect".into())
        .stack_size(64 << 10)
        .spawn(body);
    if let Err(error) = started {
        let error = io::Error::other(thread_refusal(&error));
        let _ = failed.send((address, Err(error)));
    }
}

/// Connects to one address, with Multipath TCP if requested and available at both ends.
fn connect_one(
    address: SocketAddr,
    deadline: Instant,
    options: &TcpOptions,
) -> io::Result<TcpStream> {
    let connect = |protocol, until| connect_as(protocol, address, until, options);
    if options.multipath && multipath::is_available() {
        multipath_or_plain(deadline, connect, multipath::is_multipath)
    } else {
        connect(Protocol::TCP, deadline)
    }
}

/// Connects with Multipath TCP, or again with plain TCP if the other end does not support it,
/// because a socket that fell back has neither pacing nor a user timeout. A failed attempt is also
/// repeated with plain TCP, as some firewalls drop unknown options. The first attempt gets half of
/// the time.
fn multipath_or_plain<S>(
    deadline: Instant,
    connect: impl Fn(Protocol, Instant) -> io::Result<S>,
    agreed: impl Fn(&S) -> bool,
) -> io::Result<S> {
    let left = deadline.saturating_duration_since(Instant::now());
    match connect(Protocol::MPTCP, deadline - left / 2) {
        Ok(socket) if agreed(&socket) => Ok(socket),
        Ok(_) | Err(_) => connect(Protocol::TCP, deadline),
    }
}

fn connect_as(
    protocol: Protocol,
    address: SocketAddr,
    deadline: Instant,
    options: &TcpOptions,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    // Must precede connecting: the first packet fixes the window scale.
    set_buffers(&socket, options)?;
    if let Some(bytes) = options.segment {
        // Must precede connecting: the first packet announces the segment size. A multipath socket
        // of a kernel without this option keeps its default.
        let _ = socket.set_tcp_mss(bytes);
    }
    congestion::begin(&socket);
    if let Some(local) = options.bind {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    let left = deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    socket.connect_timeout(&address.into(), left)?;
    let socket = TcpStream::from(socket);
    prepare(&socket, options)?;
    Ok(socket)
}

/// Limits the segments, in bytes, of connections that a listener accepts from now on, in both
/// directions. A multipath listener of a kernel without this option keeps its default.
pub fn limit_segments(listener: &TcpListener, bytes: u32) {
    let _ = SockRef::from(listener).set_tcp_mss(bytes);
}

fn set_buffers(socket: &Socket, options: &TcpOptions) -> io::Result<()> {
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// Sets the options on a connection that [`listen`]'s listener accepted. ([`connect`] has done so
/// already.) A multipath socket goes without the options that its kernel does not support there.
/// Linux added them one by one (`TCP_NODELAY` with 5.17, `TCP_NOTSENT_LOWAT` with 6.9,
/// `TCP_KEEPIDLE` with 6.11). Silence still ends a stream.
///
/// # Errors
///
/// The error of the kernel.
pub fn prepare(socket: &TcpStream, options: &TcpOptions) -> io::Result<()> {
    let reference = SockRef::from(socket);
    let second = Duration::from_secs(1);
    let known = |result| known_or_done_without(socket, result);
    known(socket.set_nodelay(true))?;
    // Set separately, so that a rejected option does not affect the others.
    for keepalive in [
        TcpKeepalive::new().with_time(options.keepalive.max(second)),
        TcpKeepalive::new().with_interval((options.keepalive / 3).max(second)),
        TcpKeepalive::new().with_retries(3),
    ] {
        known(reference.set_tcp_keepalive(&keepalive))?;
    }
    let user_timeout = options.user_timeout.min(LONGEST_USER_TIMEOUT);
    known(reference.set_tcp_user_timeout(Some(user_timeout)))?;
    if let Some(bytes) = options.unsent_limit {
        known(set_unsent_limit(socket, bytes))?;
    }
    Ok(())
}

/// Returns the result of setting an option. A multipath socket may lack the option without an
/// error.
fn known_or_done_without(socket: &TcpStream, result: io::Result<()>) -> io::Result<()> {
    let is_unknown = |error: &io::Error| {
        let number = error.raw_os_error();
        matches!(number, Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP))
    };
    match result {
        Err(error) if is_unknown(&error) && multipath::asked(socket) => Ok(()),
        other => other,
    }
}

/// Reasons why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process uses the port.
    #[error(
        "{address} is in use: stop the process that listens there (`ss -tlnp` names it) or \
         choose another port"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The port is below 1024 and this user may not use it.
    #[error("{address} needs a privilege: choose a port of 1024 or more")]
    Privileged {
        /// The address.
        address: SocketAddr,
    },
    /// Any other error.
    #[error("cannot listen on {address}: {cause}: check that it is an address of this host")]
    Other {
        /// The address.
        address: SocketAddr,
        /// Error of the kernel.
        cause: io::Error,
    },
}

/// Maximum number of connections that wait to be accepted. Hundreds of streams may connect at once.
const BACKLOG: i32 = 1024;

/// Listens on an address. `[::]` includes IPv4. The listener accepts Multipath TCP if the kernel
/// supports it and reports its paths. A client without it gets the same socket as from a plain
/// listener.
///
/// # Errors
///
/// The address is in use, not permitted, or not an address of this host.
pub fn listen(address: SocketAddr, options: &TcpOptions) -> Result<TcpListener, ListenError> {
    listen_socket(address, options).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address },
        io::ErrorKind::PermissionDenied => ListenError::Privileged { address },
        _ => ListenError::Other { address, cause },
    })
}

fn listen_socket(address: SocketAddr, options: &TcpOptions) -> io::Result<TcpListener> {
    let multipath = if multipath::is_available() {
        listen_as(Protocol::MPTCP, address, options)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    };
    multipath.or_else(|_| listen_as(Protocol::TCP, address, options))
}

fn listen_as(
    protocol: Protocol,
    address: SocketAddr,
    options: &TcpOptions,
) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(protocol))?;
    // A restarted daemon need not wait until its predecessor's connections expire.
    socket.set_reuse_address(true)?;
    if address.ip() == IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    // Accepted connections inherit the buffer sizes.
    set_buffers(&socket, options)?;
    socket.bind(&address.into())?;
    // From here on, a multipath listener has the socket that its connections inherit from.
    congestion::begin(&socket);
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`), in bytes.
///
/// # Errors
///
/// The error of the kernel.
pub fn set_unsent_limit(socket: &TcpStream, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// Limits the sending rate of the kernel, in bytes per second. `None` removes the limit.
///
/// # Errors
///
/// The error of the kernel.
pub fn set_pace(socket: &TcpStream, bytes_per_second: Option<u64>) -> io::Result<()> {
    let rate = bytes_per_second.unwrap_or(u64::MAX);
    set_number(socket, libc::SO_MAX_PACING_RATE, rate.to_ne_bytes())
}

/// Makes the kernel wake a reader only when this many bytes are available (`SO_RCVLOWAT`), or no
/// more can come. 1 is the default. The kernel wakes the reader earlier if the buffer has no room
/// for that many.
///
/// # Errors
///
/// The error of the kernel.
pub fn set_receive_threshold(socket: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_number(socket, libc::SO_RCVLOWAT, bytes.to_ne_bytes())
}

/// Sets a numeric option at the socket level. `value` holds its bytes.
#[allow(unsafe_code)] // No safe binding has these options.
fn set_number<const BYTES: usize>(
    socket: &TcpStream,
    option: libc::c_int,
    value: [u8; BYTES],
) -> io::Result<()> {
    // SAFETY: the descriptor is open for the borrow's life, and pointer and
    // length describe `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_ptr().cast(),
            BYTES as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a time in seconds, rounded up to a tenth, for messages.
pub(super) fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).ceil() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn segments_are_limited_in_both_directions() {
        use crate::tcp_info::TcpInfo;
        let listener = listen(local(), &TcpOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let limited = TcpOptions {
            segment: Some(1024),
            ..TcpOptions::default()
        };
        let target = HostPort::from(address);
        let near = connect(&target, Duration::from_secs(60), &limited).unwrap();
        let far = listener.accept().unwrap().0;
        for end in [&near, &far] {
            let segment = TcpInfo::of(end).unwrap().send_segment.0;
            assert!((1..=1024).contains(&segment), "{segment}");
        }
        let plain = std::net::TcpListener::bind(local()).unwrap();
        limit_segments(&plain, 1024);
        let target = HostPort::from(plain.local_addr().unwrap());
        let near = connect(&target, Duration::from_secs(60), &TcpOptions::default()).unwrap();
        let far = plain.accept().unwrap().0;
        for end in [&near, &far] {
            let segment = TcpInfo::of(end).unwrap().send_segment.0;
            assert!((1..=1024).contains(&segment), "{segment}");
        }
    }

    #[test]
    fn names_hosts() {
        let v6 = HostPort::new("[2001:DB8::1]", 5);
        assert_eq!((v6.host(), v6.port()), ("2001:db8::1", 5));
        assert_eq!(v6.to_string(), "[2001:db8::1]:5");
        assert_eq!(
            HostPort::new("Host.Example", 80).to_string(),
            "host.example:80"
        );
    }

    #[test]
    fn takes_turns_between_families() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(parse);
        let expected = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"].map(parse);
        assert_eq!(interleave(all.to_vec()), expected);
        let v4_first = ["1.1.1.1:1", "[::1]:1", "[::2]:1"].map(parse);
        assert_eq!(interleave(v4_first.to_vec()), v4_first);
        assert!(interleave(Vec::new()).is_empty());
    }

    #[test]
    fn the_address_that_answers_is_used() {
        let listener = listen(local(), &TcpOptions::default()).unwrap();
        let good = listener.local_addr().unwrap();
        // Connections to a port that was just closed are refused.
        let bad = TcpListener::bind(local()).unwrap().local_addr().unwrap();
        let target = HostPort::from(good);
        let options = TcpOptions::default();
        let minute = Duration::from_secs(60);
        let socket = race(&target, &[bad, good], minute, &options).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), good);
        let error = race(&target, &[bad, bad], minute, &options).unwrap_err();
        assert!(
            matches!(error, ConnectError::Refused { addresses: 2, .. }),
            "{error}"
        );
        let error = race(&target, &[], minute, &options).unwrap_err();
        assert!(matches!(error, ConnectError::NoAddress { .. }), "{error}");
    }

    #[test]
    fn only_addresses_of_the_local_ones_family_are_tried() {
        let listener = listen(local(), &TcpOptions::default()).unwrap();
        let good = listener.local_addr().unwrap();
        let other: SocketAddr = "[2001:db8::1]:1".parse().unwrap();
        let target = HostPort::from(good);
        let minute = Duration::from_secs(60);
        let from = |text: &str| TcpOptions {
            bind: Some(text.parse().unwrap()),
            ..TcpOptions::default()
        };
        let socket = race(&target, &[other, good], minute, &from("127.0.0.1")).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), good);
        let error = race(&target, &[good], minute, &from("::1")).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("no IPv6 address") && said.contains("--bind ::1"),
            "{said}"
        );
        let error = race(&target, &[other], minute, &from("127.0.0.1")).unwrap_err();
        assert!(matches!(error, ConnectError::Family { .. }), "{error}");
    }

    #[test]
    fn a_silent_address_is_given_up_at_the_timeout() {
        // A listener whose backlog is full does not answer.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&local().into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let short = Duration::from_millis(50);
        let options = TcpOptions::default();
        let mut held = Vec::new();
        let error = loop {
            match race(&HostPort::from(address), &[address], short, &options) {
                Ok(socket) => held.push(socket),
                Err(error) => break error,
            }
            assert!(held.len() < 100);
        };
        assert!(matches!(error, ConnectError::Timeout { .. }), "{error}");
    }

    #[test]
    fn an_address_that_is_not_this_hosts_is_known() {
        check_local(local().ip()).unwrap();
        // An address for documentation (RFC 5737), which no host has.
        let error = check_local("203.0.113.9".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn requested_options_are_set() {
        let options = TcpOptions {
            unsent_limit: Some(1 << 20),
            ..TcpOptions::default()
        };
        let listener = listen(local(), &options).unwrap();
        let target = HostPort::from(listener.local_addr().unwrap());
        let socket = connect(&target, Duration::from_secs(60), &options).unwrap();
        let reference = SockRef::from(&socket);
        assert!(socket.nodelay().unwrap() && reference.keepalive().unwrap());
        assert_eq!(
            reference.tcp_user_timeout().unwrap(),
            Some(options.user_timeout)
        );
        assert_eq!(reference.tcp_notsent_lowat().unwrap(), 1 << 20);
        // Every kernel has reno.
        set_pace(&socket, Some(1_000_000)).unwrap();
        set_pace(&socket, None).unwrap();
        congestion::set(&socket, "reno").unwrap();
        assert_eq!(congestion::of(&socket).unwrap(), "reno");
        assert!(congestion::set(&socket, "no-such").is_err());
    }

    #[test]
    fn plain_tcp_is_tried_after_multipath_tcp() {
        let error = |number| Err(io::Error::from_raw_os_error(number));
        let deadline = Instant::now() + Duration::from_secs(60);
        for found in [Ok(1), error(libc::EOPNOTSUPP), error(libc::ETIMEDOUT)] {
            let found = std::cell::Cell::new(Some(found));
            let tried = std::cell::RefCell::new(Vec::new());
            let connect = |protocol, until| {
                tried.borrow_mut().push((protocol, until));
                found.take().unwrap_or(Ok(2))
            };
            // The first attempt fell back or failed.
            let socket = multipath_or_plain(deadline, connect, |_| false).unwrap();
            let [(first, half), (second, whole)] = tried.borrow()[..] else {
                panic!("{tried:?}");
            };
            assert_eq!((first, second), (Protocol::MPTCP, Protocol::TCP));
            let left = deadline - Instant::now();
            assert!(half < deadline && deadline - half >= left / 2);
            assert_eq!((socket, whole), (2, deadline));
        }
        let agreed = |protocol, _| Ok(protocol);
        let kept = multipath_or_plain(deadline, agreed, |_| true).unwrap();
        assert_eq!(kept, Protocol::MPTCP);
    }

    #[test]
    fn an_option_that_multipath_has_not_costs_no_connection() {
        let socket = |protocol| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).unwrap();
            TcpStream::from(socket)
        };
        let set = |socket: &TcpStream, number| {
            let refused = Err(io::Error::from_raw_os_error(number));
            known_or_done_without(socket, refused)
        };
        let plain = socket(Protocol::TCP);
        assert!(set(&plain, libc::EOPNOTSUPP).is_err());
        if !multipath::is_available() {
            longhaul_testing::skip_without_kernel("this kernel does no Multipath TCP");
            return;
        }
        let multipath = socket(Protocol::MPTCP);
        assert!(set(&multipath, libc::EOPNOTSUPP).is_ok());
        assert!(set(&multipath, libc::ENOPROTOOPT).is_ok());
        assert!(set(&multipath, libc::EINVAL).is_err());
        // No kernel supports the user timeout on a multipath socket so far.
        prepare(&multipath, &TcpOptions::default()).unwrap();
    }

    #[test]
    fn times_in_messages_are_short() {
        let shown = [60.0, 2.191_932_91].map(|time| tenths(Duration::from_secs_f64(time)));
        assert_eq!(shown.map(|time| time.to_string()), ["60", "2.2"]);
    }

    #[test]
    fn a_port_in_use_is_reported() {
        let listener = listen(local(), &TcpOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let error = listen(address, &TcpOptions::default()).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    }
}
