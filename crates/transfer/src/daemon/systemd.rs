//! Reports the state of a daemon to its service manager; see sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the address of the service manager's socket.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports a state, such as `READY=1`. Has no effect without a service manager.
pub fn report(state: &str) {
    let Some(path) = std::env::var_os(SOCKET) else {
        return;
    };
    let bytes = path.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!("the service manager did not receive {state}: {error}");
    }
}
