//! Data connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;

/// Connections that a server may open before this end accepts them.
const BACKLOG: i32 = 128;

/// Time for a data connection to the server, which has just named the port.
const CONNECT: Duration = Duration::from_secs(30);

/// True if the operation on a data connection can be repeated after a wait.
pub fn may_repeat(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Connects to a port of the server.
///
/// # Errors
///
/// As `connect`.
pub fn open(
    server: IpAddr,
    port: u16,
    buffer_bytes: Option<usize>,
    silence: Duration,
) -> Result<TcpStream, Error> {
    let failed = |error| Error::io(format!("connect to port {port} of the server"), error);
    let stream = connect(SocketAddr::new(server, port), buffer_bytes).map_err(failed)?;
    stream.set_read_timeout(Some(silence)).map_err(failed)?;
    stream.set_write_timeout(Some(silence)).map_err(failed)?;
    Ok(stream)
}

fn connect(address: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<TcpStream> {
    let socket = stream_socket(address, buffer_bytes)?;
    socket.connect_timeout(&address.into(), CONNECT)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Listens for data connections of the server at an address of this host. Uses the first free
/// port of `ports`, or any port.
///
/// # Errors
///
/// If no port can be used.
pub fn listen(
    address: IpAddr,
    ports: Option<&RangeInclusive<u16>>,
    buffer_bytes: Option<usize>,
) -> Result<TcpListener, Error> {
    let any = 0..=0;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports.unwrap_or(&any).clone() {
        match listen_at(SocketAddr::new(address, port), buffer_bytes) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(Error::io(format!("listen for data at {address}"), last))
}

fn listen_at(address: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<TcpListener> {
    // Accepted connections inherit the size of the buffers.
    let socket = stream_socket(address, buffer_bytes)?;
    if address.port() != 0 {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Creates a socket with buffers of this size. They must be set before the window is negotiated.
fn stream_socket(address: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(bytes) = buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_port_of_a_range_is_used() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let busy = listen(here, None, None).unwrap();
        let port = busy.local_addr().unwrap().port();
        let refused = listen(here, Some(&(port..=port)), None).unwrap_err();
        assert!(refused.to_string().contains("127.0.0.1"), "{refused}");
        drop(busy);
        let next = listen(here, Some(&(port..=port)), Some(1 << 16)).unwrap();
        assert_eq!(next.local_addr().unwrap().port(), port);
    }
}
