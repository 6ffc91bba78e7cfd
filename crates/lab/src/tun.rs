//! The device of a host that an emulator serves: a TUN with offload, so that
//! super-packets stay whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::device::{DEVICE, check, interface_call, interface_index, named};
use crate::rtnetlink::{ACKNOWLEDGE, Request};

/// Packets that wait for the emulator in the kernel. The sender's whole window
/// comes at once, as fast as memory is copied: what the emulator cannot read
/// at once must not be lost before its queue. Ten thousand is the largest that
/// `ip link` users commonly set.
const TRANSMIT_QUEUE: u32 = 10_000;

/// What the hosts' TCP may leave to us: checksums and segmentation.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// From `linux/rtnetlink.h` and `linux/if_link.h`: a request to change an interface, and
/// its attribute for the queue's length.
const RTM_SETLINK: u16 = 19;
const IFLA_TXQLEN: u16 = 13;

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

/// By netlink: the old way (`SIOCSIFTXQLEN`) asks for the rights of root in the
/// first user namespace, whosever the network is.
fn set_transmit_queue(index: libc::c_int) -> io::Result<()> {
    let mut request = Request::about_interface(RTM_SETLINK, ACKNOWLEDGE, index);
    request.attribute(IFLA_TXQLEN, &TRANSMIT_QUEUE.to_ne_bytes());
    request.send()
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
    fn reads_the_table_of_devices() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0\n  \
            wan0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(parse_overrun(table), Some(12));
        assert_eq!(parse_overrun(""), None);
    }
}
