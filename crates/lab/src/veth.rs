//! A cable in place of an emulated path: a veth pair. It costs only the processor time of
//! the hosts' own network stacks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::device::DEVICE;
use crate::rtnetlink::{ACKNOWLEDGE, CREATE_NEW, Request};

/// Constants from `linux/rtnetlink.h`, `linux/if_link.h` and `linux/veth.h`.
const RTM_NEWLINK: u16 = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

/// Creates one end in the network namespace of this thread and the other end in `peer`.
/// Both are removed when either namespace ends.
///
/// # Errors
///
/// Returns an error if the kernel has no veth devices, or this process may not create
/// them.
pub fn create(mtu: u16, peer: BorrowedFd<'_>) -> io::Result<()> {
    let name = [DEVICE.as_bytes(), b"\0"].concat();
    let mtu = u32::from(mtu).to_ne_bytes();
    let mut request = Request::about_interface(RTM_NEWLINK, ACKNOWLEDGE | CREATE_NEW, 0);
    request.attribute(IFLA_IFNAME, &name);
    request.attribute(IFLA_MTU, &mtu);
    request.nested(IFLA_LINKINFO, |request| {
        request.attribute(IFLA_INFO_KIND, b"veth");
        request.nested(IFLA_INFO_DATA, |request| {
            request.nested(VETH_INFO_PEER, |request| {
                request.interface(0);
                request.attribute(IFLA_IFNAME, &name);
                request.attribute(IFLA_MTU, &mtu);
                request.attribute(IFLA_NET_NS_FD, &peer.as_raw_fd().to_ne_bytes());
            });
        });
    });
    request.send()
}
