//! TCP statistics from outside: the kernel's data about other processes' sockets (`sock_diag(7)`),
//! as shown by `ss --info`.

pub mod answers;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use answers::{HEADER, INET_DIAG_CONG, INET_DIAG_INFO, Socket, read_answer};

/// Constants from `linux/netlink.h` and `linux/inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;

/// States to list: ESTABLISHED, and those in which one side has no more to send: FIN_WAIT1,
/// FIN_WAIT2, CLOSE_WAIT.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;

/// Size in bytes of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;

/// Maximum size in bytes of the parts of the kernel's dumps.
const RECEIVED_AT_ONCE: usize = 64 << 10;

/// Maximum number of sockets in a list.
const MOST_SOCKETS: usize = 65_536;

/// A netlink socket, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct SocketTable {
    netlink: OwnedFd,
}

impl SocketTable {
    /// Opens it in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel does not support `sock_diag`.
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

    /// Lists all TCP sockets that carry data, for IPv4 and IPv6.
    ///
    /// # Errors
    ///
    /// The kernel refuses the request, or its answer is malformed.
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

/// Returns the minimum round trip of a process's connection to another host. `None` if the process
/// has no such connection, or several, or the kernel does not provide the value.
pub fn round_trip_of(process: u32) -> Option<Duration> {
    let held = sockets_of(process)?;
    let sockets = SocketTable::open().ok()?.list().ok()?;
    only_round_trip(&sockets, &held)
}

/// Returns the minimum round trip of the only held socket that leads to another host.
fn only_round_trip(sockets: &[Socket], held: &BTreeSet<u32>) -> Option<Duration> {
    let leads_away =
        |socket: &&Socket| held.contains(&socket.inode) && !socket.peer.0.is_loopback();
    let mut away = sockets.iter().filter(leads_away);
    let only = away.next().filter(|_| away.next().is_none())?;
    only.least_rtt()
}

/// Returns the inodes of the sockets that a process of this user holds.
fn sockets_of(process: u32) -> Option<BTreeSet<u32>> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let inode = link.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    };
    Some(links.filter_map(inode).collect())
}

/// Encodes `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: AddressFamily) -> Vec<u8> {
    const TCP: u8 = 6;
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // Sequence and port are zero, because there is one request at a time.
    bytes.extend([0; 8]);
    let wanted = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    bytes.extend([family.as_raw() as u8, TCP, wanted, 0]);
    bytes.extend(STATES.to_ne_bytes());
    // Zeros mean any address and any port.
    bytes.resize(HEADER + REQUEST, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_is_listed_with_its_byte_counts() {
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
        assert_eq!(own.local_port, near.local_addr().unwrap().port());
        // The data that was read has been received. Its acknowledgement may not have arrived yet.
        assert!(own.acknowledged <= 5001, "{own:?}");
        assert!(own.window >= 1000 && !own.congestion.is_empty(), "{own:?}");
        assert!(own.least_rtt().is_some(), "{own:?}");
        let held = sockets_of(std::process::id()).unwrap();
        assert!(held.contains(&own.inode), "{own:?}");
        // A connection within this host gives no distance.
        assert_eq!(only_round_trip(std::slice::from_ref(own), &held), None);
        let away = Socket {
            peer: ([192, 0, 2, 7].into(), 22),
            ..own.clone()
        };
        let one = [own.clone(), away.clone()];
        assert_eq!(only_round_trip(&one, &held), own.least_rtt());
        assert_eq!(only_round_trip(&one, &BTreeSet::new()), None);
        assert_eq!(only_round_trip(&[away.clone(), away], &held), None);
    }
}
