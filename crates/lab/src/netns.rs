//! A host: a network namespace with one device. Only descriptors keep it alive. When the
//! lab's process ends for any reason, the kernel removes namespace and device.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::{device, tun, veth};

/// Configuration of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// IPv4 addresses; the first one is the source address of outgoing packets.
    pub addresses: Vec<Ipv4Addr>,
    /// IPv6 addresses; the first one is the source address of outgoing packets.
    pub addresses_v6: Vec<Ipv6Addr>,
    /// MTU of the device: IP packet length in bytes, 576 to 65,535.
    pub mtu: u16,
    /// Kernel parameters: names with dots, and values.
    pub sysctls: Vec<(String, String)>,
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    descriptor: OwnedFd,
}

/// Reasons why a host cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The network namespace cannot be created.
    #[error(
        "a network namespace cannot be created: {0}; the lab needs CAP_SYS_ADMIN (root) or a user namespace"
    )]
    Namespace(#[source] io::Error),
    /// The TUN device cannot be created.
    #[error(
        "a TUN device cannot be created: {0}; the lab needs read and write access to /dev/net/tun"
    )]
    Device(#[source] io::Error),
    /// The veth pair cannot be created.
    #[error(
        "a cable between two hosts cannot be created: {0}; --veth needs a kernel with veth devices (modprobe veth)"
    )]
    Cable(#[source] io::Error),
    /// An address or route cannot be set, or the interface cannot be brought up.
    #[error("a lab host's interface cannot be configured: {0}")]
    Configure(#[source] io::Error),
    /// A kernel parameter cannot be set.
    #[error("{name} cannot be set to \"{value}\" in a lab host: {error}")]
    Sysctl {
        /// Name of the parameter, with dots.
        name: String,
        /// The requested value.
        value: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// A thread cannot be started, or it panicked.
    #[error("a thread for a lab host cannot run: {0}")]
    Thread(#[source] io::Error),
}

impl Namespace {
    /// Creates a host and returns its namespace and its TUN device.
    ///
    /// # Errors
    ///
    /// Returns an error for the first step that failed.
    pub fn create(plan: &HostPlan) -> Result<(Namespace, OwnedFd), NamespaceError> {
        in_own_thread(|| {
            let namespace = Namespace::bare(plan)?;
            let device = tun::create(plan.mtu).map_err(NamespaceError::Device)?;
            device::configure(&plan.addresses, &plan.addresses_v6)
                .map_err(NamespaceError::Configure)?;
            Ok((namespace, device))
        })
    }

    /// Creates two hosts connected by a cable (a veth pair).
    ///
    /// # Errors
    ///
    /// Returns an error for the first step that failed.
    pub fn create_connected(plans: [&HostPlan; 2]) -> Result<[Namespace; 2], NamespaceError> {
        let [near, far] = plans;
        let end = in_own_thread(|| Namespace::bare(far))?;
        let configure = |plan: &HostPlan| {
            device::configure(&plan.addresses, &plan.addresses_v6)
                .map_err(NamespaceError::Configure)
        };
        let beginning = in_own_thread(|| {
            let namespace = Namespace::bare(near)?;
            veth::create(near.mtu, end.descriptor()).map_err(NamespaceError::Cable)?;
            configure(near)?;
            Ok(namespace)
        })?;
        end.within(|| configure(far))??;
        Ok([beginning, end])
    }

    /// Moves this thread into a new network namespace that has only a loopback device.
    fn bare(plan: &HostPlan) -> Result<Namespace, NamespaceError> {
        leave_namespace().map_err(NamespaceError::Namespace)?;
        let descriptor = File::open("/proc/thread-self/ns/net");
        let descriptor = descriptor.map_err(NamespaceError::Namespace)?.into();
        // Set before the device is up, because the kernel reads some parameters at that
        // moment.
        for (name, value) in &plan.sysctls {
            set_sysctl(name, value)?;
        }
        device::bring_up("lo").map_err(NamespaceError::Configure)?;
        Ok(Namespace { descriptor })
    }

    /// Runs `work` in a new thread inside the namespace. Sockets created there stay in
    /// the namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started or cannot enter the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        in_own_thread(|| {
            enter(self.descriptor.as_fd()).map_err(NamespaceError::Namespace)?;
            Ok(work())
        })
    }

    /// Returns the descriptor of the namespace.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns the same namespace with a new descriptor.
    ///
    /// # Errors
    ///
    /// Returns an error if no descriptor is available.
    pub fn duplicate(&self) -> io::Result<Namespace> {
        let descriptor = self.descriptor.try_clone()?;
        Ok(Namespace { descriptor })
    }
}

/// Moves this thread into a network namespace.
///
/// # Errors
///
/// Returns an error if the kernel refuses.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace, kind)?)
}

/// Gives this process and its children a separate host name. If the system refuses, the
/// machine's name remains. Allocates no memory.
#[allow(unsafe_code)] // A thread's own name space.
pub fn take_name(name: &str) {
    // SAFETY: NEWUTS unshares the host name only.
    if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUTS) }.is_ok() {
        let _ = rustix::system::sethostname(name.as_bytes());
    }
}

#[allow(unsafe_code)] // A thread's own network namespace.
fn leave_namespace() -> io::Result<()> {
    // SAFETY: NEWNET unshares the network namespace of the thread only; descriptors stay
    // shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Runs `work` in a new thread, because a thread keeps the namespace that it entered.
fn in_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, NamespaceError> + Send,
) -> Result<T, NamespaceError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("lab-host".to_owned());
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(NamespaceError::Thread)?;
        let panicked = |_| NamespaceError::Thread(io::Error::other("it panicked"));
        thread.join().map_err(panicked)?
    })
}

/// Sets a kernel parameter of this thread's network namespace.
///
/// # Errors
///
/// Returns an error if the parameter does not exist or the kernel rejects the value.
pub fn set_sysctl(name: &str, value: &str) -> Result<(), NamespaceError> {
    std::fs::write(sysctl_path(name), value).map_err(|error| NamespaceError::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
        error,
    })
}

/// Reads a kernel parameter and removes white space around it.
///
/// # Errors
///
/// Returns an error if the parameter does not exist or cannot be read.
pub fn sysctl(name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(sysctl_path(name))?;
    Ok(text.trim().to_owned())
}

/// Returns the file of a kernel parameter such as `net.ipv4.tcp_rmem`. As in `sysctl`, a
/// slash in the name stands for a dot.
pub fn sysctl_path(name: &str) -> PathBuf {
    let swapped: String = name
        .chars()
        .map(|c| match c {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    // Invalid names lead to missing files and never out of the directory.
    let parts = swapped
        .split('/')
        .filter(|part| !part.is_empty() && *part != "..");
    parts.fold(Path::new("/proc/sys").to_owned(), |path, part| {
        path.join(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_gives_a_path_below_proc_sys() {
        assert_eq!(
            sysctl_path("net.ipv4.tcp_rmem"),
            Path::new("/proc/sys/net/ipv4/tcp_rmem")
        );
        assert_eq!(
            sysctl_path("net.ipv4.conf.eth0/1.forwarding"),
            Path::new("/proc/sys/net/ipv4/conf/eth0.1/forwarding")
        );
        assert!(sysctl_path("....etc.passwd").starts_with("/proc/sys"));
    }
}
