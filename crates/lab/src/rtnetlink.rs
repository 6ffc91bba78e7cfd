//! Netlink requests about interfaces and addresses, as in `linux/rtnetlink.h`.

use std::io;
use std::net::Ipv6Addr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Message type of an answer, from `linux/netlink.h`.
const NLMSG_ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// Flag: the kernel answers with the result.
pub(crate) const ACKNOWLEDGE: u16 = 4;
/// Flags: creates a new object; an object of the same name is an error.
pub(crate) const CREATE_NEW: u16 = 0x400 | 0x200;

/// Attribute of an address, from `linux/if_addr.h`, and the flag that skips duplicate
/// address detection.
const IFA_ADDRESS: u16 = 1;
const IFA_F_NODAD: u8 = 2;

/// Lengths of `struct nlmsghdr` and `struct ifinfomsg` in bytes.
const HEADER: usize = 16;
const INTERFACE: usize = 16;

/// A request under construction.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Begins a request about an interface, selected by its index, or by attributes if
    /// the index is 0.
    pub(crate) fn about_interface(kind: u16, flags: u16, index: libc::c_int) -> Request {
        let mut request = Request::begin(kind, flags);
        request.interface(index);
        request
    }

    /// Begins a request about an IPv6 address of an interface. Duplicate address
    /// detection is skipped, so that the address is usable at once.
    pub(crate) fn about_address_v6(
        kind: u16,
        flags: u16,
        (address, prefix): (Ipv6Addr, u8),
        index: libc::c_int,
    ) -> Request {
        let mut request = Request::begin(kind, flags);
        let family = libc::AF_INET6 as u8;
        // `struct ifaddrmsg` with global scope.
        request.0.extend([family, prefix, IFA_F_NODAD, 0]);
        request.0.extend(index.to_ne_bytes());
        request.attribute(IFA_ADDRESS, &address.octets());
        request
    }

    fn begin(kind: u16, flags: u16) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        Request(bytes)
    }

    /// Appends a `struct ifinfomsg` that contains only the index.
    pub(crate) fn interface(&mut self, index: libc::c_int) {
        let start = self.0.len();
        self.0.resize(start + INTERFACE, 0);
        self.0[start + 4..start + 8].copy_from_slice(&index.to_ne_bytes());
    }

    /// Appends an attribute of at most some thousand bytes.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.0.extend_from_slice(value));
    }

    /// Appends an attribute that contains the attributes that `within` appends.
    pub(crate) fn nested(&mut self, kind: u16, within: impl FnOnce(&mut Request)) {
        let start = self.0.len();
        self.0.extend([0; 4]);
        within(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Sends the request in this thread's network namespace. The flags must contain
    /// [`ACKNOWLEDGE`].
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, or `InvalidData` for an unexpected answer.
    pub(crate) fn send(mut self) -> io::Result<()> {
        let length = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&length.to_ne_bytes());
        let flags = SocketFlags::CLOEXEC;
        // Without a protocol number, the socket uses protocol 0: routes and interfaces.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::io::write(&socket, &self.0)?;
        // An error answer contains a copy of the request.
        let mut answer = [0; 1024];
        let length = rustix::io::read(&socket, &mut answer)?;
        match parse_answer(&answer[..length]) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Returns the error number of an answer; 0 means success. `None` if the message is not
/// an answer.
fn parse_answer(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code.saturating_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_netlink_answers() {
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
    fn attributes_are_aligned_and_can_be_nested() {
        let mut request = Request::about_interface(16, ACKNOWLEDGE, 7);
        request.nested(18, |request| request.attribute(1, b"veth"));
        request.attribute(3, b"a\0");
        let bytes = request.0;
        assert_eq!(bytes[20..24], 7_i32.to_ne_bytes());
        let attribute = |at: usize| {
            let number = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            (number(at), number(at + 2))
        };
        assert_eq!(attribute(32), (12, 18));
        assert_eq!(attribute(36), (8, 1));
        assert_eq!(&bytes[40..44], b"veth");
        assert_eq!(attribute(44), (6, 3));
        assert_eq!(bytes.len(), 52);
    }
}
