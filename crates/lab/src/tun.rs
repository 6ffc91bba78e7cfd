//! TUN device of a host, served by the emulator. Offload is enabled, so that
//! super-packets stay in one piece.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::device::{DEVICE, check, interface_call, interface_index, named};
use crate::rtnetlink::{ACKNOWLEDGE, Request};

/// Length of the device's queue in packets. A sender's whole window arrives at once, at
/// memory speed. Packets that the emulator cannot read at once must not be lost before
/// its own queue. Ten thousand is the largest value in common use.
const TRANSMIT_QUEUE: u32 = 10_000;

/// Work that the hosts' TCP leaves to the device: checksums and segmentation.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// Request to change an interface, and the attribute of its queue length; from
/// `linux/rtnetlink.h` and `linux/if_link.h`.
const RTM_SETLINK: u16 = 19;
const IFLA_TXQLEN: u16 = 13;

/// Creates the device in the network namespace of this thread. It is removed when the
/// descriptor is closed.
///
/// # Errors
///
/// Returns an error if `/dev/net/tun` is missing or not accessible, or the device cannot
/// be configured.
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
    // SAFETY: the request outlives the call and is an ifreq, as TUNSETIFF requires.
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

/// Sets the queue length by netlink. The ioctl `SIOCSIFTXQLEN` requires root in the first
/// user namespace, even if the process owns the network namespace.
fn set_transmit_queue(index: libc::c_int) -> io::Result<()> {
    let mut request = Request::about_interface(RTM_SETLINK, ACKNOWLEDGE, index);
    request.attribute(IFLA_TXQLEN, &TRANSMIT_QUEUE.to_ne_bytes());
    request.send()
}

/// Returns the number of packets dropped because the device's queue was full, in this
/// thread's network namespace.
///
/// # Errors
///
/// Returns an error if the kernel's table cannot be read.
pub fn overrun() -> io::Result<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(parse_overrun(&table).unwrap_or_default())
}

/// Returns the twelfth number of the device's line: packets dropped in transmission.
fn parse_overrun(table: &str) -> Option<u64> {
    let own = format!("{DEVICE}:");
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(&own))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

/// Checks that this process can open `/dev/net/tun`.
///
/// # Errors
///
/// Returns an error if `/dev/net/tun` is missing or cannot be opened.
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
    fn parses_the_table_of_devices() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0\n  \
            wan0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(parse_overrun(table), Some(12));
        assert_eq!(parse_overrun(""), None);
    }
}
