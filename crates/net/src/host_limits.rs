//! TCP limits of this host's kernel, from `/proc/sys/net`.

use std::path::Path;

use longhaul_proto::message::{MAXIMUM_CONGESTION_BYTES, MAXIMUM_CONGESTIONS};

/// Limits of this host and network namespace. Values that cannot be read are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Maximum size in bytes to which a send buffer grows automatically: the third number of
    /// `net.ipv4.tcp_wmem`.
    pub tcp_send: Option<u64>,
    /// The same for a receive buffer: the third number of `net.ipv4.tcp_rmem`.
    pub tcp_receive: Option<u64>,
    /// Maximum size in bytes to which a send buffer can be set: `net.core.wmem_max`.
    pub core_send: Option<u64>,
    /// The same for a receive buffer: `net.core.rmem_max`.
    pub core_receive: Option<u64>,
    /// Congestion controls that this process may choose.
    pub congestions: Vec<String>,
}

impl HostLimits {
    /// Reads the limits.
    pub fn read() -> HostLimits {
        // A privileged process may choose any available control, other processes only the permitted
        // ones.
        let privileged = rustix::process::geteuid().is_root();
        HostLimits::read_from(Path::new("/proc/sys/net"), privileged)
    }

    fn read_from(root: &Path, privileged: bool) -> HostLimits {
        let text = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let number = |name: &str, place: usize| {
            let text = text(name);
            text.split_ascii_whitespace().nth(place)?.parse().ok()
        };
        let names = if privileged {
            "ipv4/tcp_available_congestion_control"
        } else {
            "ipv4/tcp_allowed_congestion_control"
        };
        HostLimits {
            tcp_send: number("ipv4/tcp_wmem", 2),
            tcp_receive: number("ipv4/tcp_rmem", 2),
            // Not available within a network namespace.
            core_send: number("core/wmem_max", 0),
            core_receive: number("core/rmem_max", 0),
            congestions: text(names)
                .split_ascii_whitespace()
                .filter(|name| name.len() <= MAXIMUM_CONGESTION_BYTES)
                .take(MAXIMUM_CONGESTIONS)
                .map(str::to_owned)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_sysctls_are_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("ipv4")).unwrap();
        std::fs::write(root.path().join("ipv4/tcp_wmem"), "4096\t16384\t4194304\n").unwrap();
        let name = "ipv4/tcp_allowed_congestion_control";
        std::fs::write(root.path().join(name), "reno bbr\n").unwrap();
        let limits = HostLimits::read_from(root.path(), false);
        assert_eq!(limits.tcp_send, Some(4 << 20));
        assert_eq!((limits.tcp_receive, limits.core_send), (None, None));
        assert_eq!(limits.congestions, ["reno", "bbr"]);
        assert!(
            HostLimits::read_from(root.path(), true)
                .congestions
                .is_empty()
        );
    }

    #[test]
    fn this_host_has_some_congestion_control() {
        assert!(!HostLimits::read().congestions.is_empty());
    }
}
