//! A host: a network namespace with one device, that nothing but descriptors
//! keeps alive. When the lab's process ends, however it does, the kernel takes
//! namespace and device away.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::{device, tun, veth};

/// How a host is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// The first is the one it sends from.
    pub addresses: Vec<Ipv4Addr>,
    /// Likewise.
    pub addresses_v6: Vec<Ipv6Addr>,
    /// Bytes of an IP packet, 576 to 65,535.
    pub mtu: u16,
    /// Names with dots, and values.
    pub sysctls: Vec<(String, String)>,
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    descriptor: OwnedFd,
}

/// What a host could not be given.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// No namespace.
    #[error(
        "a network namespace cannot be made: {0}; the lab needs CAP_SYS_ADMIN, which root has, or a user namespace"
    )]
    Namespace(#[source] io::Error),
    /// No device.
    #[error(
        "a TUN device cannot be made: {0}; the lab needs /dev/net/tun and the right to read and write it"
    )]
    Device(#[source] io::Error),
    /// No cable.
    #[error(
        "a cable between two hosts cannot be made: {0}; --veth needs a kernel with veth devices (modprobe veth)"
    )]
    Cable(#[source] io::Error),
    /// No address, route, or they do not come up.
    #[error("a lab host's interface cannot be configured: {0}")]
    Configure(#[source] io::Error),
    /// A kernel parameter.
    #[error("{name} cannot be set to \"{value}\" in a lab host: {error}")]
    Sysctl {
        /// Its name with dots.
        name: String,
        /// What it was to be.
        value: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A thread could not be had, or ended badly.
    #[error("a thread for a lab host cannot run: {0}")]
    Thread(#[source] io::Error),
}

impl Namespace {
    /// Makes a host; gives its namespace and its device.
    ///
    /// # Errors
    ///
    /// What it could not be given.
    pub fn create(plan: &HostPlan) -> Result<(Namespace, OwnedFd), NamespaceError> {
        in_own_thread(|| {
            let namespace = Namespace::bare(plan)?;
            let device = tun::create(plan.mtu).map_err(NamespaceError::Device)?;
            device::configure(&plan.addresses, &plan.addresses_v6)
                .map_err(NamespaceError::Configure)?;
            Ok((namespace, device))
        })
    }

    /// Makes two hosts with a cable between them.
    ///
    /// # Errors
    ///
    /// What they could not be given.
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

    /// Takes this thread into a new one with nothing in it but a loopback.
    fn bare(plan: &HostPlan) -> Result<Namespace, NamespaceError> {
        leave_namespace().map_err(NamespaceError::Namespace)?;
        let descriptor = File::open("/proc/thread-self/ns/net");
        let descriptor = descriptor.map_err(NamespaceError::Namespace)?.into();
        // Before the device comes up: some of them are read then.
        for (name, value) in &plan.sysctls {
            set_sysctl(name, value)?;
        }
        device::bring_up("lo").map_err(NamespaceError::Configure)?;
        Ok(Namespace { descriptor })
    }

    /// Does something in a thread of its own that is in the namespace. Sockets
    /// made there stay there.
    ///
    /// # Errors
    ///
    /// Where the thread cannot be had or cannot enter.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        in_own_thread(|| {
            enter(self.descriptor.as_fd()).map_err(NamespaceError::Namespace)?;
            Ok(work())
        })
    }

    /// The namespace's descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The same namespace by another descriptor.
    ///
    /// # Errors
    ///
    /// Where there are no more descriptors.
    pub fn duplicate(&self) -> io::Result<Namespace> {
        let descriptor = self.descriptor.try_clone()?;
        Ok(Namespace { descriptor })
    }
}

/// Takes this thread into a network namespace.
///
/// # Errors
///
/// Where the kernel refuses.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace, kind)?)
}

/// Gives this process, and those it starts, a name of its own; where the system
/// refuses, it keeps the machine's. Takes no memory.
#[allow(unsafe_code)] // A thread's own name space.
pub fn take_name(name: &str) {
    // SAFETY: the host's name is all that this flag unshares.
    if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUTS) }.is_ok() {
        let _ = rustix::system::sethostname(name.as_bytes());
    }
}

#[allow(unsafe_code)] // A thread's own network namespace.
fn leave_namespace() -> io::Result<()> {
    // SAFETY: the network namespace is the thread's own; descriptors, which
    // other flags would unshare, stay shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// A thread keeps the namespace it entered: so each entry takes a new one.
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

/// Sets a parameter of this thread's network namespace.
///
/// # Errors
///
/// Where there is none of that name, or the kernel does not take the value.
pub fn set_sysctl(name: &str, value: &str) -> Result<(), NamespaceError> {
    std::fs::write(sysctl_path(name), value).map_err(|error| NamespaceError::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
        error,
    })
}

/// Reads a parameter, without white space around it.
///
/// # Errors
///
/// Where there is none of that name.
pub fn sysctl(name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(sysctl_path(name))?;
    Ok(text.trim().to_owned())
}

/// `net.ipv4.tcp_rmem` is a file; a slash stands for a dot in a name, as in sysctl.
pub fn sysctl_path(name: &str) -> PathBuf {
    let swapped: String = name
        .chars()
        .map(|c| match c {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    // What is no name leads to no file, and never out of the directory.
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
    fn names_are_paths_within_one_directory() {
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
