//! Network device of a host, TUN or veth: name, addresses and routes.

use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::rtnetlink::{ACKNOWLEDGE, CREATE_NEW, Request};

/// Name of the network device of every host.
pub const DEVICE: &str = "wan0";

/// Message type from `linux/rtnetlink.h`.
const RTM_NEWADDR: u16 = 20;

/// Brings an interface of this thread's network namespace up.
///
/// # Errors
///
/// Returns an error if a system call fails.
#[allow(unsafe_code)] // Unions of the kernel's interface.
pub fn bring_up(name: &str) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut request = named(name);
    interface_call(&socket, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS filled this field.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    interface_call(&socket, libc::SIOCSIFFLAGS as _, &mut request)
}

/// Assigns the addresses to the device, adds a default route and brings the device up. The
/// first address is the source address of outgoing packets.
///
/// # Errors
///
/// Returns an error if a system call fails.
pub fn configure(addresses: &[Ipv4Addr], addresses_v6: &[Ipv6Addr]) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for (index, address) in addresses.iter().enumerate() {
        let name = match index {
            0 => DEVICE.to_owned(),
            // Further addresses use an alias of the device; its name fits the kernel's
            // limit of 15 characters.
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
    // A kernel without IPv6 cannot create this socket: the lab then uses IPv4 only.
    let Ok(socket) = UdpSocket::bind("[::]:0") else {
        return Ok(());
    };
    let index = interface_index(&socket)?;
    for address in addresses_v6 {
        add_address_v6(index, *address)?;
    }
    add_route_v6(&socket, index)
}

#[allow(unsafe_code)] // A zeroed structure of integers.
pub(crate) fn named(name: &str) -> libc::ifreq {
    // SAFETY: all zero is a valid `ifreq`: bytes, integers and a null pointer.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // At most 15 of 16 bytes are written: the last byte stays 0 and ends the name.
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[allow(unsafe_code)] // Interfaces are configured by ioctl.
pub(crate) fn interface_call(
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

/// Adds a default route through the device.
#[allow(unsafe_code)] // Routes are made by ioctl.
fn add_route(socket: &UdpSocket) -> io::Result<()> {
    // SAFETY: all zero is a valid `rtentry`.
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

/// The kernel's `struct in6_rtmsg`.
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
pub(crate) fn interface_index(socket: &UdpSocket) -> io::Result<libc::c_int> {
    let mut request = named(DEVICE);
    interface_call(socket, libc::SIOCGIFINDEX as _, &mut request)?;
    // SAFETY: SIOCGIFINDEX filled this field.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

fn add_address_v6(index: libc::c_int, address: Ipv6Addr) -> io::Result<()> {
    let flags = ACKNOWLEDGE | CREATE_NEW;
    Request::about_address_v6(RTM_NEWADDR, flags, (address, 128), index).send()
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
        // The kernel's default metric of routes (IP6_RT_PRIO_USER).
        metric: 1024,
        information: 0,
        flags: u32::from(libc::RTF_UP),
        index,
    };
    // SAFETY: the route outlives the call and has the layout of the kernel's structure.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) })
}
