//! Selects the congestion control of connections.
//!
//! BBR paces each burst with a timer. Once a connection has used BBR, Linux keeps those timers even
//! after a change (`sk_pacing_status` in `net/ipv4/tcp_output.c`). They cost up to 30,000
//! interrupts and a tenth of the CPU time of 4 GB within a host. BBR is better with random loss at
//! a distance. If BBR is the host's default, connections therefore begin with Reno, which every
//! kernel has and permits, and change to the control for their distance once that is known.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use socket2::{SockRef, Socket, Type};

/// Congestion control that paces with timers.
const PACES: &str = "bbr";

/// Initial congestion control of connections.
const BEGINS: &str = "reno";

/// Congestion control of nearby connections.
const NEARBY: &str = "cubic";

/// Maximum round trip of a nearby connection: a host, a site or a town. After a loss, the window
/// recovers within milliseconds. On short queues, CUBIC was faster than BBR up to 2 ms, and slower
/// from 5 ms on. On a saturated path without delay, BBR retransmitted two fifths of all data.
const NEAR: Duration = Duration::from_micros(2500);

/// Sets the initial congestion control of an unconnected socket, or of the connections of a
/// listener, if the host's default paces with timers and can be selected again later.
pub(super) fn begin(socket: &Socket) {
    let paces = name_of(SockRef::from(socket)).is_ok_and(|name| name == PACES);
    // The default may be refused when it is selected by name.
    if paces && socket.set_tcp_congestion(PACES.as_bytes()).is_ok() {
        // If the change is refused, the host's default stays.
        let _ = socket.set_tcp_congestion(BEGINS.as_bytes());
    }
}

/// Returns the congestion control for a connection's minimum round trip. `None` if the connection
/// did not begin with the choice of `begin`. An unknown round trip counts as a long one.
pub fn by_distance(socket: &TcpStream, least_rtt: Option<Duration>) -> Option<&'static str> {
    let began = of(socket).is_ok_and(|name| name == BEGINS);
    // A route may select another control, and the host's default may be Reno.
    if !began || own(socket).is_none_or(|own| own != PACES) {
        return None;
    }
    if least_rtt.is_some_and(|rtt| rtt <= NEAR) {
        Some(NEARBY)
    } else {
        Some(PACES)
    }
}

/// Returns the default congestion control of new sockets of this family.
fn own(socket: &TcpStream) -> Option<String> {
    let domain = SockRef::from(socket).domain().ok()?;
    let new = Socket::new(domain, Type::STREAM, None).ok()?;
    name_of(SockRef::from(&new)).ok()
}

/// Returns the name of a socket's congestion control.
fn name_of(socket: SockRef<'_>) -> io::Result<String> {
    let name = socket.tcp_congestion()?;
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Returns the congestion control of a connection.
///
/// # Errors
///
/// The error of the kernel.
pub fn of(socket: &TcpStream) -> io::Result<String> {
    name_of(SockRef::from(socket))
}

/// Changes the congestion control of a connection, before or after it is established.
///
/// # Errors
///
/// `NotFound` if the kernel has no such module, `PermissionDenied` if the module is not in
/// `net.ipv4.tcp_allowed_congestion_control`.
pub fn set(socket: &TcpStream, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{self, HostPort, TcpOptions};

    #[test]
    fn streams_are_not_paced_before_the_distance_is_known() {
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
                // An explicit choice is not changed.
                if paces {
                    set(&socket, PACES).unwrap();
                    assert_eq!(by_distance(&socket, None), None);
                }
            }
        }
    }
}
