//! Measures streams from this host to itself: the cost of encryption in addition to sockets.

use std::io;
use std::net::{TcpListener, TcpStream};

use longhaul_net::clear;
use longhaul_net::identity::Identity;
use longhaul_net::stream::Stream;
use longhaul_net::tcp::HostPort;
use longhaul_net::tls::{TlsClient, TlsOptions, TlsServer};
use longhaul_net::trust::ServerTrust;

use super::{Limit, Sample, start, timed};

/// Bytes of a block of a copy, and of the header before it.
const BLOCK_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 200;

/// Moves this many bytes over each of `streams` loopback connections, encrypted or in clear; each
/// has a thread at either end.
///
/// # Errors
///
/// Errors of sockets and TLS; fails if the limit is exceeded.
pub fn measure(streams: usize, bytes: u64, clear: bool, limit: &Limit) -> io::Result<Sample> {
    let mut pairs = Vec::new();
    for _ in 0..streams {
        pairs.push(pair(clear)?);
    }
    timed(|| {
        std::thread::scope(|scope| {
            let ends: Vec<_> = pairs
                .into_iter()
                .map(|(near, far)| {
                    let (mut writer, mut reader) = (near.writer, far.reader);
                    let kept = (near.reader, far.writer);
                    let handle = near.handle;
                    let sent = start(scope, move || {
                        let (header, block) = (vec![1; HEADER_BYTES], vec![2; BLOCK_BYTES]);
                        for _ in 0..bytes.div_ceil(BLOCK_BYTES as u64) {
                            limit.go_on()?;
                            writer.write_all(&[&header, &block])?;
                        }
                        writer.finish()
                    });
                    let received = start(scope, move || {
                        let mut room = vec![3; BLOCK_BYTES];
                        let mut done = 0;
                        loop {
                            match reader.read(&mut room)? {
                                0 => break,
                                count => done += count as u64,
                            }
                        }
                        drop(kept);
                        Ok::<u64, io::Error>(done)
                    });
                    if sent.is_err() || received.is_err() {
                        // A thread that started would wait for the other one.
                        handle.shutdown();
                    }
                    (sent, received)
                })
                .collect();
            let panicked = |_| io::Error::other("a thread panicked");
            let mut done = 0;
            for (sent, received) in ends {
                sent?.join().map_err(panicked)??;
                done += received?.join().map_err(panicked)??;
            }
            Ok((done, 0))
        })
    })
}

fn pair(in_clear: bool) -> io::Result<(Stream, Stream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    if in_clear {
        return Ok((clear::over_tcp(near)?, clear::over_tcp(far)?));
    }
    let options = TlsOptions::default();
    let identity = Identity::ephemeral().map_err(io::Error::other)?;
    let server = TlsServer::new(&identity, options).map_err(io::Error::other)?;
    let trust = ServerTrust::Fingerprint(server.fingerprint());
    let client = TlsClient::new(trust, None, options);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(far));
        let near = client.handshake(near, &HostPort::new("localhost", 1));
        let far = accepted.join();
        let far = far.map_err(|_| io::Error::other("a thread panicked"))?;
        Ok((
            near.map_err(io::Error::other)?,
            far.map_err(io::Error::other)?,
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::tests::{endless, over};
    use super::*;

    #[test]
    fn all_bytes_arrive_with_their_headers() {
        for clear in [true, false] {
            let sample = measure(2, 2 << 20, clear, &endless(&AtomicBool::new(false))).unwrap();
            let each = 2 * (BLOCK_BYTES + HEADER_BYTES) as u64;
            assert_eq!(sample.bytes, 2 * each);
        }
        assert!(measure(1, 1 << 20, false, &endless(&AtomicBool::new(true))).is_err());
        let late = measure(1, 1 << 20, true, &over(&AtomicBool::new(false)));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
