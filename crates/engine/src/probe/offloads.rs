//! What a network interface does for the kernel, as `ethtool -k` shows it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Questions of `linux/ethtool.h` and what they ask after.
const QUESTIONS: [(&str, u32); 6] = [
    ("rx_checksums", 0x14),
    ("tx_checksums", 0x16),
    ("scatter_gather", 0x18),
    ("tcp_segmentation", 0x1e),
    ("generic_segmentation", 0x23),
    ("generic_receive", 0x2b),
];

/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: u32 = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    question: u32,
    answer: u32,
}

/// The part of `struct ifreq` that this needs, and its whole length.
#[repr(C)]
struct Request {
    name: [u8; 16],
    value: *mut EthtoolValue,
    rest: [u8; 16],
}

/// Each offload by name, and whether it is on; those that the interface does not
/// know are left out.
///
/// # Errors
///
/// Where the name is longer than 15 bytes, or there is no socket to ask through.
pub fn offloads_of(interface: &str) -> io::Result<Vec<(&'static str, bool)>> {
    let mut name = [0; 16];
    if interface.len() >= name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let answers = QUESTIONS.iter().filter_map(|&(what, question)| {
        let answer = ask(&socket, name, question).ok()?;
        Some((what, answer != 0))
    });
    Ok(answers.collect())
}

#[expect(unsafe_code, reason = "no binding has this ioctl")]
fn ask(socket: &UdpSocket, name: [u8; 16], question: u32) -> io::Result<u32> {
    let mut value = EthtoolValue {
        question,
        answer: 0,
    };
    let mut request = Request {
        name,
        value: &raw mut value,
        rest: [0; 16],
    };
    // SAFETY: the descriptor is open; the request is as long as the kernel's
    // and points to a value that it fills; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    match result {
        0 => Ok(value.answer),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn loopback_segments_and_nonsense_is_nothing() {
        let known = offloads_of("lo").unwrap();
        assert!(known.contains(&("tcp_segmentation", true)), "{known:?}");
        assert!(offloads_of("no-such-card").unwrap().is_empty());
        assert!(offloads_of("a-name-of-17-bytes").is_err());
    }
}
