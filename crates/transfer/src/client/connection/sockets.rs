//! Socket options of connections, and messages for those that cannot be set.

use std::net::IpAddr;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use longhaul_engine::session::Transfer;
use longhaul_engine::session::black_hole::SEGMENTS;
use longhaul_model::kernel::BufferLimits;
use longhaul_net::host_limits::HostLimits;
use longhaul_net::multipath;
use longhaul_net::tcp::{self, TcpOptions};
use longhaul_units::ByteCount;

use crate::console::say;
use crate::settings::ConnectionSettings;
use crate::stop::{Exit, Stop};

/// Returns the message for `--mptcp` if only plain TCP is available.
pub fn single_path(host: &dyn std::fmt::Display) -> String {
    if multipath::is_available() {
        format!(
            "--mptcp: {host} does not answer with Multipath TCP, so that its streams are plain TCP: \
         set net.mptcp.enabled=1 there, use the same release of longhaul on both ends, and look \
         for a firewall that takes TCP options away"
        )
    } else {
        format!(
            "--mptcp: this host's kernel has no Multipath TCP, so that the streams to {host} are \
         plain TCP: set net.mptcp.enabled=1 here (Linux 6.5 or later), or leave --mptcp out"
        )
    }
}

/// Segment size limit of new connections, set if the path loses large packets.
#[derive(Debug, Default)]
pub struct SmallSegments {
    /// Limit in bytes; 0 leaves the size to the kernel.
    bytes: AtomicU32,
    told: AtomicBool,
}

impl SmallSegments {
    /// Returns the limit in bytes, if there is one.
    pub fn known(&self) -> Option<u32> {
        Some(self.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Lowers the limit to the one that the session detected, and returns it.
    pub fn limit(&self, transfer: &Weak<Transfer>) -> Option<u32> {
        let found = transfer
            .upgrade()
            .and_then(|transfer| transfer.streams().segment_limit());
        let known = self.known();
        if let Some(bytes) = found.filter(|found| known.is_none_or(|known| *found < known)) {
            self.set(bytes);
        }
        self.known()
    }

    /// Lowers the limit to the next smaller size; false without one.
    pub fn shrink(&self) -> bool {
        let known = self.known().unwrap_or(u32::MAX);
        let next = SEGMENTS.into_iter().find(|bytes| *bytes < known);
        next.inspect(|bytes| self.set(*bytes)).is_some()
    }

    /// Sets the limit and reports the first change.
    fn set(&self, bytes: u32) {
        self.bytes.store(bytes, Ordering::Relaxed);
        if !self.told.swap(true, Ordering::Relaxed) {
            say(&format!(
                "large packets do not arrive, although small ones do (an MTU black hole): new \
                 connections send segments of {bytes} bytes; let ICMP \"fragmentation needed\" \
                 pass, or set net.ipv4.tcp_mtu_probing=1 at both hosts"
            ));
        }
    }
}

/// Checks that every `--bind` address belongs to this host. Connections from another address would
/// be retried without end.
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

/// Returns the TCP options with the next of the local addresses, in rotation.
pub(super) fn bound_tcp(tcp: &TcpOptions, addresses: &[IpAddr], stream: u32) -> TcpOptions {
    let turn = stream as usize % addresses.len().max(1);
    TcpOptions {
        bind: addresses.get(turn).copied(),
        ..*tcp
    }
}

/// Returns the size in bytes for socket buffers. Returns `None`, with a message, if the kernel's
/// own tuning allows larger ones.
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
