//! The kernel's list of TCP sockets.

use longhaul_net::sockets::answers::{HEADER, Socket, read_answer};

/// Checks that a truncated or arbitrary answer is not read beyond its end, and that only valid
/// sockets are kept.
pub fn sock_diag(bytes: &[u8]) {
    let mut sockets: Vec<Socket> = Vec::new();
    let read = read_answer(bytes, &mut sockets);
    assert!(sockets.len() <= bytes.len() / HEADER);
    assert!(read.is_err() || bytes.len() >= HEADER);
    for socket in &sockets {
        // The name has 16 bytes. Each may be replaced by a character of three bytes.
        assert!(socket.congestion.len() <= 48);
        assert!(!socket.congestion.contains('\0'));
    }
}
