//! A host's device: a TUN with offload, so that super-packets stay whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Every host's device has this name.
pub const DEVICE: &str = "wan0";

/// Packets that wait for the emulator in the kernel. The sender's whole window
/// comes at once, as fast as memory is copied: what the emulator cannot read
/// at once must not be lost before its queue. Ten thousand is the largest that
/// `ip link` users commonly set.
const TRANSMIT_QUEUE: u32 = 10_000;

/// What the hosts' TCP may leave to us: checksums and segmentation.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// Makes the device in the network namespace of this thread; it goes away with
/// the descriptor.
///
/// # Errors
///
/// Where `/dev/net/tun` is missing or may not be used.
#[allow(unsafe_code)] // The two ioctls have no safe binding.
pub fn create(mtu: u16) -> io::Result<OwnedFd> {
    let tun: OwnedFd = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?
        .into();
    let mut request = named(DEVICE);
    let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = kind as libc::c_short;
    // SAFETY: the request outlives the call, and is what TUNSETIFF reads.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    let offloads = libc::c_ulong::from(OFFLOADS);
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) })?;
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?;
    request = named(DEVICE);
    request.ifr_ifru.ifru_mtu = i32::from(mtu);
    interface_call(&socket, libc::SIOCSIFMTU as _, &mut request)?;
    set_transmit_queue(interface_index(&socket)?)?;
    Ok(tun)
}

/// Numbers of rtnetlink: a request to change an interface, its attribute for the
/// queue's length, and the answer.
const RTM_SETLINK: u16 = 19;
const IFLA_TXQLEN: u16 = 13;
const NLMSG_ERROR: u16 = 2;
const REQUEST_AND_ANSWER: u16 = 1 | 4;

/// Bytes of the request: `nlmsghdr` and `ifinfomsg` of 16 bytes each, and one
/// attribute.
const SETLINK_BYTES: usize = 16 + 16 + 8;

/// By netlink: the old way (`SIOCSIFTXQLEN`) asks for the rights of root in the
/// first user namespace, whosever the network is.
fn set_transmit_queue(index: libc::c_int) -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let mut request = [0; SETLINK_BYTES];
    request[0..4].copy_from_slice(&(SETLINK_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_SETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_AND_ANSWER.to_ne_bytes());
    request[20..24].copy_from_slice(&index.to_ne_bytes());
    request[32..34].copy_from_slice(&8_u16.to_ne_bytes());
    request[34..36].copy_from_slice(&IFLA_TXQLEN.to_ne_bytes());
    request[36..40].copy_from_slice(&TRANSMIT_QUEUE.to_ne_bytes());
    let flags = SocketFlags::CLOEXEC;
    // No protocol is the first one, of routes and interfaces.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::io::write(&socket, &request)?;
    let mut answer = [0; 256];
    let length = rustix::io::read(&socket, &mut answer)?;
    match parse_answer(&answer[..length]) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The error's number of an answer, 0 for none.
fn parse_answer(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code.saturating_neg())
}

/// Brings an interface of this thread's network namespace up.
///
/// # Errors
///
/// Where the kernel refuses.
#[allow(unsafe_code)] // Unions of the kernel's interface.
pub fn bring_up(name: &str) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut request = named(name);
    interface_call(&socket, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS filled this field.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    interface_call(&socket, libc::SIOCSIFFLAGS as _, &mut request)
}

/// Gives the device its addresses, the first of which it sends from, and a
/// route to everywhere. Brings it up.
///
/// # Errors
///
/// Where the kernel refuses.
pub fn configure(addresses: &[Ipv4Addr], addresses_v6: &[Ipv6Addr]) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for (index, address) in addresses.iter().enumerate() {
        let name = match index {
            0 => DEVICE.to_owned(),
            // An alias, as long as an interface's name may be.
            further => format!("{DEVICE}:{further}"),
        };
        set_address(&socket, &name, *address, libc::SIOCSIFADDR as _)?;
        set_address(
            &socket,
            &name,
            Ipv4Addr::BROADCAST,
            libc::SIOCSIFNETMASK as _,
        )?;
    }
    bring_up(DEVICE)?;
    add_route(&socket)?;
    // A kernel without IPv6 has a lab without it.
    let Ok(socket) = UdpSocket::bind("[::]:0") else {
        return Ok(());
    };
    let index = interface_index(&socket)?;
    for address in addresses_v6 {
        add_address_v6(&socket, index, *address)?;
    }
    add_route_v6(&socket, index)
}

#[allow(unsafe_code)] // A zeroed structure of integers.
fn named(name: &str) -> libc::ifreq {
    // SAFETY: all zero is a value of it: bytes, integers, a null pointer.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last stays 0, which ends the name.
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[allow(unsafe_code)] // Interfaces are configured by ioctl.
fn interface_call(
    socket: &UdpSocket,
    call: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the request outlives the call, which reads and writes an ifreq.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), call, std::ptr::from_mut(request)) })
}

#[allow(unsafe_code)] // A socket address in a union.
fn set_address(
    socket: &UdpSocket,
    name: &str,
    address: Ipv4Addr,
    call: libc::Ioctl,
) -> io::Result<()> {
    let mut request = named(name);
    // SAFETY: both are 16 bytes of plain data with the same alignment or less.
    request.ifr_ifru.ifru_addr = unsafe {
        std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(socket_address(address))
    };
    interface_call(socket, call, &mut request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.octets()),
        },
        sin_zero: [0; 8],
    }
}

/// To everywhere, through the device.
#[allow(unsafe_code)] // Routes are made by ioctl.
fn add_route(socket: &UdpSocket) -> io::Result<()> {
    // SAFETY: all zero is a value of it.
    let mut route: libc::rtentry = unsafe { zeroed() };
    let anywhere = socket_address(Ipv4Addr::UNSPECIFIED);
    // SAFETY: as in `set_address`.
    let anywhere = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(anywhere) };
    route.rt_dst = anywhere;
    route.rt_genmask = anywhere;
    route.rt_flags = libc::RTF_UP;
    let mut device = named(DEVICE).ifr_name;
    route.rt_dev = device.as_mut_ptr();
    // SAFETY: the route and the name it points to outlive the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) })
}

/// `struct in6_ifreq` of the kernel.
#[repr(C)]
struct AddressV6 {
    address: [u8; 16],
    prefix: u32,
    index: libc::c_int,
}

/// `struct in6_rtmsg` of the kernel.
#[repr(C)]
struct RouteV6 {
    destination: [u8; 16],
    source: [u8; 16],
    gateway: [u8; 16],
    kind: u32,
    destination_bits: u16,
    source_bits: u16,
    metric: u32,
    information: libc::c_ulong,
    flags: u32,
    index: libc::c_int,
}

#[allow(unsafe_code)] // A field of a union.
fn interface_index(socket: &UdpSocket) -> io::Result<libc::c_int> {
    let mut request = named(DEVICE);
    interface_call(socket, libc::SIOCGIFINDEX as _, &mut request)?;
    // SAFETY: SIOCGIFINDEX filled this field.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

#[allow(unsafe_code)] // Addresses are given by ioctl.
fn add_address_v6(socket: &UdpSocket, index: libc::c_int, address: Ipv6Addr) -> io::Result<()> {
    let request = AddressV6 {
        address: address.octets(),
        prefix: 128,
        index,
    };
    // SAFETY: the request outlives the call and is laid out as the kernel's.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFADDR as _,
            &raw const request,
        )
    })
}

#[allow(unsafe_code)] // Routes are made by ioctl.
fn add_route_v6(socket: &UdpSocket, index: libc::c_int) -> io::Result<()> {
    let route = RouteV6 {
        destination: [0; 16],
        source: [0; 16],
        gateway: [0; 16],
        kind: 0,
        destination_bits: 0,
        source_bits: 0,
        // What the kernel gives routes that do not say (IP6_RT_PRIO_USER).
        metric: 1024,
        information: 0,
        flags: u32::from(libc::RTF_UP),
        index,
    };
    // SAFETY: the route outlives the call and is laid out as the kernel's.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) })
}

/// Packets that the kernel could not hand to the emulator because its queue was
/// full, of this thread's network namespace.
///
/// # Errors
///
/// Where the kernel's table cannot be read.
pub fn overrun() -> io::Result<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(parse_overrun(&table).unwrap_or_default())
}

/// The twelfth number of the device's line: packets dropped in sending.
fn parse_overrun(table: &str) -> Option<u64> {
    let own = format!("{DEVICE}:");
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(&own))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

/// Whether this process can make such devices at all.
///
/// # Errors
///
/// Where `/dev/net/tun` is missing or may not be opened.
pub fn probe() -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map(drop::<File>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_netlink_answers() {
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(parse_answer(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(parse_answer(&answer), Some(libc::EPERM));
        assert_eq!(parse_answer(&answer[..19]), None);
        answer[4] = 3;
        assert_eq!(parse_answer(&answer), None);
    }

    #[test]
    fn reads_the_table_of_devices() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0\n  \
            wan0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(parse_overrun(table), Some(12));
        assert_eq!(parse_overrun(""), None);
    }
}
