//! What governs a connection from its first segment on.
//!
//! BBR releases each burst by a timer. Once it has governed a connection, Linux keeps those
//! timers, whatever governs it later (`sk_pacing_status` in `net/ipv4/tcp_output.c`). They cost up
//! to 30,000 interrupts and a tenth of the CPU time of 4 GB within a host. BBR is better with
//! random loss at a distance. So if BBR is a host's default, connections begin with Reno, which
//! every kernel has and permits. They get what their distance calls for once it is known.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use socket2::{SockRef, Socket, Type};

/// Paces by timers.
const PACES: &str = "bbr";

/// What connections begin with.
const BEGINS: &str = "reno";

/// What governs them near.
const NEARBY: &str = "cubic";

/// Round trips of a host, a site or a town: a window that loss made small is whole again within
/// milliseconds. On short queues CUBIC carried more than BBR up to 2 ms, and less from 5 ms on;
/// on a full path without distance BBR sent two fifths of everything again.
const NEAR: Duration = Duration::from_micros(2500);

/// Has a socket that is not connected yet, and whatever a listener accepts, begin with another
/// control than the host's own where that keeps timers, and there is a way back.
pub(super) fn begin(socket: &Socket) {
    let paces = name_of(SockRef::from(socket)).is_ok_and(|name| name == PACES);
    // Asked for by name it may be refused where it came by itself.
    if paces && socket.set_tcp_congestion(PACES.as_bytes()).is_ok() {
        // What is refused stays the host's own.
        let _ = socket.set_tcp_congestion(BEGINS.as_bytes());
    }
}

/// What should govern a connection with such a beginning, the least round trip of which is
/// `least_rtt`; `None` if it began with what is its own. An unknown round trip is a long one.
pub fn by_distance(socket: &TcpStream, least_rtt: Option<Duration>) -> Option<&'static str> {
    let began = of(socket).is_ok_and(|name| name == BEGINS);
    // A route may have named another, a host may have Reno as its own.
    if !began || own(socket).is_none_or(|own| own != PACES) {
        return None;
    }
    if least_rtt.is_some_and(|rtt| rtt <= NEAR) {
        Some(NEARBY)
    } else {
        Some(PACES)
    }
}

/// What new sockets of this kind have.
fn own(socket: &TcpStream) -> Option<String> {
    let domain = SockRef::from(socket).domain().ok()?;
    let new = Socket::new(domain, Type::STREAM, None).ok()?;
    name_of(SockRef::from(&new)).ok()
}

/// The name of what governs a socket.
fn name_of(socket: SockRef<'_>) -> io::Result<String> {
    let name = socket.tcp_congestion()?;
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Returns the congestion control of a connection.
///
/// # Errors
///
/// What the kernel says.
pub fn of(socket: &TcpStream) -> io::Result<String> {
    name_of(SockRef::from(socket))
}

/// Changes the congestion control of a connection, live or not.
///
/// # Errors
///
/// `NotFound` where the kernel has no such module, `PermissionDenied` where it
/// is not in `net.ipv4.tcp_allowed_congestion_control`.
pub fn set(socket: &TcpStream, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{self, HostPort, TcpOptions};

    #[test]
    fn nothing_paces_before_the_distance_is_known() {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = tcp::listen(any, &TcpOptions::default()).unwrap();
        let target = HostPort::from(listener.local_addr().unwrap());
        let minute = Duration::from_secs(60);
        for multipath in [false, true] {
            let options = TcpOptions {
                multipath,
                ..TcpOptions::default()
            };
            let near = tcp::connect(&target, minute, &options).unwrap();
            let far = listener.accept().unwrap().0;
            for socket in [near, far] {
                let own = own(&socket).unwrap();
                let paces = own == PACES;
                let begins = if paces { BEGINS } else { &own };
                assert_eq!(of(&socket).unwrap(), begins, "{multipath}");
                let named = |rtt| by_distance(&socket, rtt);
                assert_eq!(named(Some(NEAR)), paces.then_some(NEARBY));
                assert_eq!(named(Some(NEAR * 2)), paces.then_some(PACES));
                assert_eq!(named(None), paces.then_some(PACES));
                // Somebody chose.
                if paces {
                    set(&socket, PACES).unwrap();
                    assert_eq!(by_distance(&socket, None), None);
                }
            }
        }
    }
}
