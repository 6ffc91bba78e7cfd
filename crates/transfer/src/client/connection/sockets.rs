//! What is set on the sockets of a connection, and what to say where it cannot be.

use std::net::IpAddr;

use longhaul_engine::net::host_limits::HostLimits;
use longhaul_engine::net::multipath;
use longhaul_engine::net::tcp::{self, TcpOptions};
use longhaul_model::kernel::BufferLimits;
use longhaul_units::ByteCount;

use crate::console::say;
use crate::settings::ConnectionSettings;
use crate::stop::{Exit, Stop};

/// What to say where `--mptcp` brings plain TCP.
pub fn single_path(host: &dyn std::fmt::Display) -> String {
    match multipath::is_available() {
        true => format!(
            "--mptcp: {host} does not answer with Multipath TCP, so that its streams are plain TCP: \
             set net.mptcp.enabled=1 there, use the same release of longhaul on both ends, and look \
             for a firewall that takes TCP options away"
        ),
        false => format!(
            "--mptcp: this host's kernel has no Multipath TCP, so that the streams to {host} are \
             plain TCP: set net.mptcp.enabled=1 here (Linux 6.5 or later), or leave --mptcp out"
        ),
    }
}

/// Connections from an address that is not there would be tried again and again.
pub fn check_bind(arguments: &ConnectionSettings) -> Result<(), Stop> {
    for address in &arguments.bind {
        tcp::check_local(*address).map_err(|cause| {
            let text = format!(
                "--bind {address}: {cause}: name an address of this host (`ip address` lists them)"
            );
            Stop::new(Exit::Local, text)
        })?;
    }
    Ok(())
}

/// Local addresses take turns.
pub(super) fn bound_tcp(tcp: &TcpOptions, addresses: &[IpAddr], stream: u32) -> TcpOptions {
    let turn = stream as usize % addresses.len().max(1);
    TcpOptions {
        bind: addresses.get(turn).copied(),
        ..*tcp
    }
}

/// Bytes to set socket buffers to; `None` if the kernel reaches further by itself, which is said.
pub fn buffer_by_hand(asked: Option<ByteCount>) -> Option<usize> {
    let asked = asked?;
    let limits = HostLimits::read();
    let buffers = BufferLimits {
        tcp_send: limits.tcp_send,
        tcp_receive: limits.tcp_receive,
        core_send: limits.core_send,
        core_receive: limits.core_receive,
    };
    if buffers.allows_by_hand(asked) {
        return usize::try_from(asked.0).ok();
    }
    say(&format!(
        "--buffer {} is left to the kernel, whose own tuning reaches further here; to set buffers \
         by hand, raise net.core.wmem_max and net.core.rmem_max to half of net.ipv4.tcp_wmem's and \
         tcp_rmem's last numbers or more",
        asked.0
    ));
    None
}
