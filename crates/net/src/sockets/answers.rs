//! Parses the answers of `sock_diag`: netlink messages with `struct inet_diag_msg` and `struct
//! tcp_info`. This module needs no kernel, so that it can be fuzzed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Attribute with `struct tcp_info`, from `linux/inet_diag.h`.
pub const INET_DIAG_INFO: u16 = 2;
/// Attribute with the name of the congestion control.
pub const INET_DIAG_CONG: u16 = 4;

/// Constants from `linux/netlink.h` and `linux/socket.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Size in bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;

/// Size in bytes of `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// Maximum length in bytes of a congestion control's name (`TCP_CA_NAME_MAX`).
const LONGEST_NAME: usize = 16;

/// A TCP socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Socket {
    /// Unique number of the socket until the next boot.
    pub cookie: u64,
    /// Inode number, as in the descriptors of processes.
    pub inode: u32,
    /// Port of this end.
    pub local_port: u16,
    /// Address and port of the other end.
    pub peer: (IpAddr, u16),
    /// Name of the congestion control.
    pub congestion: String,
    /// Number of acknowledged bytes.
    pub acknowledged: u64,
    /// Number of bytes in the send queue that are not acknowledged yet.
    pub queued: u32,
    /// Part of `queued` that was never sent; `None` if the kernel does not provide it (before 4.6).
    pub unsent: Option<u32>,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Congestion window in bytes.
    pub window: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt_microseconds: u32,
    /// Minimum round-trip time in microseconds; `None` before the first sample, or if the kernel
    /// does not provide it (before 4.6).
    pub minimum_rtt_microseconds: Option<u32>,
    /// Pacing rate in bytes per second; `None` without pacing.
    pub pace: Option<u64>,
}

impl Socket {
    /// Returns the minimum round trip.
    pub fn least_rtt(&self) -> Option<Duration> {
        let least = self.minimum_rtt_microseconds?;
        Some(Duration::from_micros(least.into()))
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn aligned(length: usize) -> usize {
    length.div_ceil(4) * 4
}

/// Parses one part of an answer. Returns true if it is the last one.
///
/// # Errors
///
/// The kernel refuses the request, or the answer is malformed.
pub fn read_answer(mut bytes: &[u8], sockets: &mut Vec<Socket>) -> io::Result<bool> {
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

/// Parses `struct inet_diag_msg` and its attributes; `None` without `struct tcp_info`.
fn read_socket(message: &[u8]) -> Option<Socket> {
    let mut socket = Socket {
        cookie: u64::from_ne_bytes(number(message, 44)?),
        inode: u32::from_ne_bytes(number(message, 68)?),
        local_port: u16::from_be_bytes(number(message, 4)?),
        peer: (address(message)?, u16::from_be_bytes(number(message, 6)?)),
        congestion: String::new(),
        acknowledged: 0,
        queued: u32::from_ne_bytes(number(message, 60)?),
        unsent: None,
        retransmitted: 0,
        window: 0,
        rtt_microseconds: 0,
        minimum_rtt_microseconds: None,
        pace: None,
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
                let value = &value[..value.len().min(LONGEST_NAME)];
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
    match *message.first()? {
        AF_INET => Some(Ipv4Addr::new(to[0], to[1], to[2], to[3]).into()),
        AF_INET6 => Some(Ipv6Addr::from(to).to_canonical()),
        _ => None,
    }
}

/// Parses `struct tcp_info` of `linux/tcp.h`, whose fields never move.
fn read_info(info: &[u8], socket: &mut Socket) -> Option<()> {
    let word = |at| number(info, at).map(u32::from_ne_bytes);
    let (segment, window) = (word(16)?, word(80)?);
    socket.window = u64::from(segment) * u64::from(window);
    socket.rtt_microseconds = word(68)?;
    socket.retransmitted = word(100)?.into();
    let pace = u64::from_ne_bytes(number(info, 104)?);
    socket.pace = Some(pace).filter(|pace| *pace != u64::MAX);
    socket.acknowledged = u64::from_ne_bytes(number(info, 120)?);
    socket.unsent = word(144);
    // All bits are set before the first sample.
    socket.minimum_rtt_microseconds = word(148).filter(|least| *least != u32::MAX);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a message of this kind with this content.
    fn message(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = (HEADER + content.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(content);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    /// Creates a socket from port 20000 to 192.0.2.7:4960.
    fn socket() -> Vec<u8> {
        let mut content = vec![0; MESSAGE];
        content[0] = AF_INET;
        content[4..6].copy_from_slice(&20_000_u16.to_be_bytes());
        content[6..8].copy_from_slice(&4960_u16.to_be_bytes());
        content[24..28].copy_from_slice(&[192, 0, 2, 7]);
        content[44..52].copy_from_slice(&99_u64.to_ne_bytes());
        content[60..64].copy_from_slice(&8000_u32.to_ne_bytes());
        content[68..72].copy_from_slice(&4711_u32.to_ne_bytes());
        let mut info = vec![0; 240];
        for (at, value) in [
            (16, 1448_u32),
            (68, 100_000),
            (80, 10),
            (100, 3),
            (144, 600),
            (148, 90_000),
        ] {
            info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        info[104..112].copy_from_slice(&7000_u64.to_ne_bytes());
        info[120..128].copy_from_slice(&5000_u64.to_ne_bytes());
        content.extend(attribute(INET_DIAG_INFO, &info));
        content.extend(attribute(INET_DIAG_CONG, b"cubic\0"));
        message(20, &content)
    }

    #[test]
    fn a_socket_is_read_from_its_offsets() {
        let mut sockets = Vec::new();
        let mut bytes = socket();
        bytes.extend(message(NLMSG_DONE, &[0; 4]));
        assert!(read_answer(&bytes, &mut sockets).unwrap());
        let wanted = Socket {
            cookie: 99,
            inode: 4711,
            local_port: 20_000,
            peer: ([192, 0, 2, 7].into(), 4960),
            congestion: "cubic".to_owned(),
            acknowledged: 5000,
            queued: 8000,
            unsent: Some(600),
            retransmitted: 3,
            window: 14_480,
            rtt_microseconds: 100_000,
            minimum_rtt_microseconds: Some(90_000),
            pace: Some(7000),
        };
        assert_eq!(sockets, [wanted]);
    }

    #[test]
    fn a_truncated_answer_is_refused_or_contains_no_socket() {
        let whole = socket();
        for end in 0..whole.len() {
            let mut sockets = Vec::new();
            assert!(read_answer(&whole[..end], &mut sockets).is_err(), "{end}");
            // The same with a length field that matches the truncated message.
            let mut bytes = whole[..end].to_vec();
            if end >= HEADER {
                bytes[..4].copy_from_slice(&(end as u32).to_ne_bytes());
                assert!(!read_answer(&bytes, &mut sockets).unwrap());
            }
            assert!(sockets.iter().all(|socket| socket.acknowledged == 5000));
        }
    }

    #[test]
    fn refusals_are_errors_of_the_system() {
        let mut sockets = Vec::new();
        let refused = message(NLMSG_ERROR, &(-13_i32).to_ne_bytes());
        let error = read_answer(&refused, &mut sockets).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(13));
        assert!(read_answer(&[], &mut sockets).is_err());
        assert!(read_answer(&[0; 16], &mut sockets).is_err());
        assert!(read_answer(&message(NLMSG_DONE, &[]), &mut sockets).unwrap());
    }
}
