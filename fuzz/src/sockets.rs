//! What a kernel tells of TCP sockets.

use longhaul_net::sockets::answers::{HEADER, Socket, read_answer};

/// Whatever a piece of an answer holds, no more is read of it than it has, and
/// nothing is kept that a kernel could not mean.
pub fn sock_diag(bytes: &[u8]) {
    let mut sockets: Vec<Socket> = Vec::new();
    let read = read_answer(bytes, &mut sockets);
    assert!(sockets.len() <= bytes.len() / HEADER);
    assert!(read.is_err() || bytes.len() >= HEADER);
    for socket in &sockets {
        // Of 16 bytes, each at worst replaced by a character of three.
        assert!(socket.congestion.len() <= 48);
        assert!(!socket.congestion.contains('\0'));
    }
}
