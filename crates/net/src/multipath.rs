//! Multipath TCP (RFC 8684): a stream that the kernels spread over several paths. It appears to a
//! program as one socket. Each path has a separate TCP connection (a subflow), with a separate
//! window and round trip.
//!
//! The hosts' configuration (`ip mptcp endpoint`) determines the paths. A socket that requested
//! Multipath TCP but got plain TCP does not count as multipath here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::tcp_info::{RawTcpInfo, TcpInfo};

/// A path of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subflow {
    /// Number assigned by the kernel, unique within a stream; 0 for plain TCP.
    pub number: u32,
    /// Address of this end.
    pub local: SocketAddr,
    /// Address of the other end.
    pub peer: SocketAddr,
    /// The kernel's measurements of the path.
    pub info: TcpInfo,
}

/// Maximum number of subflows examined. Linux opens at most eight in addition to the first. A
/// message with the samples of this many paths for each of 512 streams is still smaller than 1 MiB.
const MAXIMUM_SUBFLOWS: usize = 12;

const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
/// Available since Linux 6.5.
const MPTCP_FULL_INFO: libc::c_int = 4;

/// Layout in bytes of `struct mptcp_subflow_info`: a number and, from byte 8 on, two
/// `sockaddr_storage`.
const ADDRESS_BYTES: usize = 128;
const LOCAL_AT: usize = 8;
const PEER_AT: usize = LOCAL_AT + ADDRESS_BYTES;
const SUBFLOW_BYTES: usize = PEER_AT + ADDRESS_BYTES;

/// True if this host's kernel supports Multipath TCP (`net.mptcp.enabled`) and reports each path
/// (Linux 6.5). An older kernel shows the first path only, so a stream would seem stalled while its
/// other paths carry data.
pub fn is_available() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    socket.is_ok_and(|socket| subflows(&socket.into()).is_ok())
}

/// True if a connection uses Multipath TCP, because both ends support it.
pub fn is_multipath(socket: &TcpStream) -> bool {
    asked(socket) && agreed(socket)
}

/// True if a socket was created for Multipath TCP.
pub(super) fn asked(socket: &TcpStream) -> bool {
    let protocol = SockRef::from(socket).protocol();
    matches!(protocol, Ok(Some(protocol)) if protocol == Protocol::MPTCP)
}

/// True if the kernel reports about the socket. It refuses if the socket fell back to TCP.
#[allow(unsafe_code)] // No safe binding has this option.
fn agreed(socket: &TcpStream) -> bool {
    let mut bytes = [0u8; 256];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow's life, pointer and length
    // describe `bytes`, and any bytes are valid in it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    result == 0
}

/// The required beginning of `struct mptcp_full_info` of `linux/mptcp.h`; later fields are omitted.
#[repr(C)]
#[derive(Debug, Default)]
struct FullInfo {
    tcp_info_bytes_of_kernel: u32,
    tcp_info_bytes: u32,
    subflow_bytes_of_kernel: u32,
    subflow_bytes: u32,
    subflows: u32,
    room: u32,
    subflow_array: u64,
    tcp_info_array: u64,
}

/// Returns the kernel's data about each path of a multipath connection, at most twelve. Paths that
/// are being opened are omitted.
///
/// # Errors
///
/// The error of `getsockopt`: the connection fell back to TCP, or the kernel is older than Linux
/// 6.5.
#[allow(unsafe_code)] // No safe binding has this option.
pub fn subflows(socket: &TcpStream) -> io::Result<Vec<Subflow>> {
    let mut subflows = [0u8; SUBFLOW_BYTES * MAXIMUM_SUBFLOWS];
    let mut infos = [0u8; RawTcpInfo::BYTES * MAXIMUM_SUBFLOWS];
    let mut full = FullInfo {
        tcp_info_bytes: RawTcpInfo::BYTES as u32,
        subflow_bytes: SUBFLOW_BYTES as u32,
        room: MAXIMUM_SUBFLOWS as u32,
        subflow_array: subflows.as_mut_ptr() as u64,
        tcp_info_array: infos.as_mut_ptr() as u64,
        ..FullInfo::default()
    };
    let mut length = size_of::<FullInfo>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow's life; pointer and length
    // describe `full`, in which any numbers are valid. The kernel writes at most
    // `room` times `subflow_bytes` and `tcp_info_bytes` to the two arrays, which
    // are as long as that, and which nobody else uses meanwhile.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_FULL_INFO,
            (&raw mut full).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse(&full, &subflows, &infos))
}

/// Parses both arrays. The kernel has lowered the sizes to those of its structures.
fn parse(full: &FullInfo, subflows: &[u8], infos: &[u8]) -> Vec<Subflow> {
    let count = (full.subflows as usize).min(MAXIMUM_SUBFLOWS);
    let part = |bytes: &[u8], size: u32, at: usize| -> Option<Vec<u8>> {
        let size = size as usize;
        Some(bytes.get(at * size..(at + 1) * size)?.to_vec())
    };
    let subflow = |at: usize| {
        let ends = part(subflows, full.subflow_bytes, at)?;
        let raw = RawTcpInfo::new(&part(infos, full.tcp_info_bytes, at)?);
        let number = u32::from_ne_bytes(ends.get(..4)?.try_into().ok()?);
        raw.is_open().then_some(Subflow {
            number,
            local: address(ends.get(LOCAL_AT..)?)?,
            peer: address(ends.get(PEER_AT..)?)?,
            info: TcpInfo::parse(&raw),
        })
    };
    (0..count).filter_map(subflow).collect()
}

/// Parses a `sockaddr_in` or `sockaddr_in6`.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{self, HostPort, TcpOptions};
    use std::io::{Read, Write};
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    fn multipath() -> TcpOptions {
        TcpOptions {
            multipath: true,
            ..TcpOptions::default()
        }
    }

    fn joined(client: &TcpOptions) -> (TcpStream, TcpStream) {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = tcp::listen(any, &TcpOptions::default()).unwrap();
        let target = HostPort::from(listener.local_addr().unwrap());
        let socket = tcp::connect(&target, MINUTE, client).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        tcp::prepare(&accepted, &TcpOptions::default()).unwrap();
        (socket, accepted)
    }

    #[test]
    fn multipath_tcp_is_used_if_one_end_requests_it_and_the_kernel_supports_it() {
        if !is_available() {
            longhaul_testing::skip_without_kernel("this kernel does no Multipath TCP");
            return;
        }
        let (mut client, mut server) = joined(&multipath());
        assert!(is_multipath(&client) && is_multipath(&server));
        client.write_all(&[1; 10_000]).unwrap();
        server.read_exact(&mut [0; 10_000]).unwrap();
        server.write_all(&[2; 500]).unwrap();
        client.read_exact(&mut [0; 500]).unwrap();
        let [subflow] = subflows(&client).unwrap()[..] else {
            panic!("a loop has one path: {:?}", subflows(&client));
        };
        assert_eq!(subflow.local, client.local_addr().unwrap());
        assert_eq!(subflow.peer, client.peer_addr().unwrap());
        assert!(subflow.info.acknowledged.unwrap().0 >= 10_000);
        assert!(subflow.info.rtt > Duration::ZERO);
        crate::congestion::set(&client, "reno").unwrap();
        assert_eq!(crate::congestion::of(&client).unwrap(), "reno");
        // The kernel rejects pacing on a multipath socket. Callers continue without it.
        assert!(tcp::set_pace(&client, Some(1)).is_err());
    }

    #[test]
    fn multipath_tcp_is_available_if_the_kernel_reports_paths() {
        let plain = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        assert!(subflows(&plain.into()).is_err());
        let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}"));
        let on = read("net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
        let release = read("kernel/osrelease").unwrap();
        let numbers: Vec<u32> = release
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|part| part.parse().ok())
            .take(2)
            .collect();
        assert_eq!(is_available(), on && numbers >= vec![6, 5], "{release}");
    }

    #[test]
    fn a_plain_client_gets_an_ordinary_socket() {
        let (client, server) = joined(&TcpOptions::default());
        assert!(!asked(&client) && !asked(&server));
        assert!(SockRef::from(&server).tcp_user_timeout().unwrap().is_some());
        tcp::set_pace(&server, Some(1_000_000)).unwrap();
    }

    #[test]
    fn a_peer_without_it_gets_plain_tcp_with_all_its_options() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = HostPort::from(listener.local_addr().unwrap());
        let socket = tcp::connect(&target, MINUTE, &multipath()).unwrap();
        assert!(!is_multipath(&socket) && !asked(&socket));
        assert!(SockRef::from(&socket).tcp_user_timeout().unwrap().is_some());
        tcp::set_pace(&socket, Some(1_000_000)).unwrap();
    }

    #[test]
    fn excess_bytes_of_the_kernel_are_not_read() {
        let full = FullInfo {
            subflows: u32::MAX,
            subflow_bytes: SUBFLOW_BYTES as u32,
            tcp_info_bytes: RawTcpInfo::BYTES as u32,
            ..FullInfo::default()
        };
        let mut subflow = [0; SUBFLOW_BYTES];
        subflow[..4].copy_from_slice(&7u32.to_ne_bytes());
        for at in [LOCAL_AT, PEER_AT] {
            subflow[at..at + 2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            subflow[at + 2..at + 8].copy_from_slice(&[1, 2, 10, 0, 0, 1]);
        }
        let mut info = [0; RawTcpInfo::BYTES];
        info[0] = 1;
        let found = parse(&full, &subflow, &info);
        let [found] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(found.number, 7);
        assert_eq!(found.local, "10.0.0.1:258".parse().unwrap());
        // A path that is being opened.
        info[0] = 2;
        assert!(parse(&full, &subflow, &info).is_empty());
        let family = FullInfo {
            subflows: 1,
            ..full
        };
        assert!(parse(&family, &[0; SUBFLOW_BYTES], &[1; 256]).is_empty());
    }
}
