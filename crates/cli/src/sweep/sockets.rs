//! TCP over time from outside: what the kernel tells of other processes' sockets
//! (`sock_diag(7)`), as `ss --info` shows it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// From `linux/netlink.h` and `linux/inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;

/// Established, and those of which one side has no more to send: FIN_WAIT1,
/// FIN_WAIT2, CLOSE_WAIT.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;

/// Bytes of `struct nlmsghdr`, `struct inet_diag_msg`, `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
const REQUEST: usize = 56;

/// The kernel's dumps come in pieces of at most this.
const RECEIVED_AT_ONCE: usize = 64 << 10;

/// More sockets than a host of a sweep has.
const MOST_SOCKETS: usize = 65_536;

/// A TCP socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Socket {
    /// Unlike that of every other socket while the machine runs.
    pub cookie: u64,
    /// Where it leads.
    pub peer: (IpAddr, u16),
    /// Its congestion control.
    pub congestion: String,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Congestion window in bytes.
    pub window: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt_microseconds: u32,
}

/// A door to the kernel, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct SocketTable {
    netlink: OwnedFd,
}

impl SocketTable {
    /// Of this thread's network namespace.
    ///
    /// # Errors
    ///
    /// Where the kernel has no `sock_diag`.
    pub fn open() -> io::Result<SocketTable> {
        let flags = SocketFlags::CLOEXEC;
        let netlink = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(SocketTable { netlink })
    }

    /// All TCP sockets that carry data, of both families.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses or answers what is no answer.
    pub fn list(&self) -> io::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            self.ask(family, &mut sockets)?;
        }
        Ok(sockets)
    }

    fn ask(&self, family: AddressFamily, sockets: &mut Vec<Socket>) -> io::Result<()> {
        rustix::net::send(&self.netlink, &request(family), SendFlags::empty())?;
        let mut buffer = vec![0; RECEIVED_AT_ONCE];
        loop {
            let flags = RecvFlags::empty();
            let (length, _) = rustix::net::recv(&self.netlink, &mut buffer[..], flags)?;
            if read_answer(&buffer[..length], sockets)? || sockets.len() > MOST_SOCKETS {
                return Ok(());
            }
        }
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: AddressFamily) -> Vec<u8> {
    const TCP: u8 = 6;
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // Sequence and port: there is one question at a time.
    bytes.extend([0; 8]);
    let wanted = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    bytes.extend([family.as_raw() as u8, TCP, wanted, 0]);
    bytes.extend(STATES.to_ne_bytes());
    // Any addresses, any ports.
    bytes.resize(HEADER + REQUEST, 0);
    bytes
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn aligned(length: usize) -> usize {
    length.div_ceil(4) * 4
}

/// Reads one piece of an answer; true where it is the last.
fn read_answer(mut bytes: &[u8], sockets: &mut Vec<Socket>) -> io::Result<bool> {
    let broken = || io::Error::other("sock_diag gave what is no answer");
    if bytes.is_empty() {
        return Err(broken());
    }
    while !bytes.is_empty() {
        let length = number(bytes, 0)
            .map(u32::from_ne_bytes)
            .ok_or_else(broken)? as usize;
        let kind = number(bytes, 4)
            .map(u16::from_ne_bytes)
            .ok_or_else(broken)?;
        let message = bytes.get(HEADER..length).ok_or_else(broken)?;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let error = number(message, 0).map_or(0, i32::from_ne_bytes);
                return Err(io::Error::from_raw_os_error(error.saturating_neg()));
            }
            _ => sockets.extend(read_socket(message)),
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct inet_diag_msg` and its attributes; none without `struct tcp_info`.
fn read_socket(message: &[u8]) -> Option<Socket> {
    let mut socket = Socket {
        cookie: u64::from_ne_bytes(number(message, 44)?),
        peer: (address(message)?, u16::from_be_bytes(number(message, 6)?)),
        congestion: String::new(),
        acknowledged: 0,
        retransmitted: 0,
        window: 0,
        rtt_microseconds: 0,
    };
    let mut has_info = false;
    let mut attributes = message.get(MESSAGE..)?;
    while let Some(length) = number(attributes, 0).map(u16::from_ne_bytes) {
        let length = usize::from(length);
        let (Some(kind), Some(value)) = (number(attributes, 2), attributes.get(4..length)) else {
            break;
        };
        match u16::from_ne_bytes(kind) {
            INET_DIAG_INFO => has_info = read_info(value, &mut socket).is_some(),
            INET_DIAG_CONG => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion = String::from_utf8_lossy(text).into_owned();
            }
            _ => {}
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    has_info.then_some(socket)
}

fn address(message: &[u8]) -> Option<IpAddr> {
    let to: [u8; 16] = number(message, 24)?;
    match AddressFamily::from_raw(u16::from(*message.first()?)) {
        AddressFamily::INET => Some(Ipv4Addr::new(to[0], to[1], to[2], to[3]).into()),
        AddressFamily::INET6 => Some(Ipv6Addr::from(to).to_canonical()),
        _ => None,
    }
}

/// Offsets of `struct tcp_info` in `linux/tcp.h`, which only ever grew.
fn read_info(info: &[u8], socket: &mut Socket) -> Option<()> {
    let word = |at| number(info, at).map(u32::from_ne_bytes);
    let (segment, window) = (word(16)?, word(80)?);
    socket.window = u64::from(segment) * u64::from(window);
    socket.rtt_microseconds = word(68)?;
    socket.retransmitted = word(100)?.into();
    socket.acknowledged = u64::from_ne_bytes(number(info, 120)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_is_seen_with_what_it_carried() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        let mut room = [0; 5000];
        far.read_exact(&mut room).unwrap();
        let table = SocketTable::open().unwrap();
        let all = table.list().unwrap();
        let to = listener.local_addr().unwrap();
        let own = all
            .iter()
            .find(|socket| socket.peer == (to.ip(), to.port()));
        let own = own.unwrap();
        // What was read was received; its acknowledgement may be on its way.
        assert!(own.acknowledged <= 5001, "{own:?}");
        assert!(own.window >= 1000 && !own.congestion.is_empty(), "{own:?}");
    }

    #[test]
    fn no_answer_is_read_beyond_its_end() {
        let mut sockets = Vec::new();
        let mut whole = request(AddressFamily::INET);
        whole.extend([1; 200]);
        for end in 0..whole.len() {
            for first in [0, 1, 16, 255] {
                let mut bytes = whole[..end].to_vec();
                if let Some(byte) = bytes.first_mut() {
                    *byte = first;
                }
                // A refusal or nothing, and no panic.
                let _ = read_answer(&bytes, &mut sockets);
            }
        }
        assert!(read_answer(&[], &mut sockets).is_err());
        assert!(read_answer(&[0; 16], &mut sockets).is_err());
        let done = [16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(read_answer(&done, &mut sockets).unwrap());
    }
}
