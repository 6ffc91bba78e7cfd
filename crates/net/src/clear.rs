//! Streams without encryption: for block streams on networks that both ends trust (the protocol
//! authenticates them), for copies within one process, and for channels that SSH already protects.
//!
//! Every end of the connection counts as a clean end here. A truncation cannot be detected, so the
//! reader must know the amount of data in advance.

use std::io::{self, IoSlice};
use std::net::{Shutdown, TcpStream};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use super::sleeper::Sleeper;
use super::stream::{
    Half, Socket, Stream, StreamHandle, StreamReader, StreamWriter, Wire, copy_range,
};

/// Creates a clear stream from a connection.
///
/// # Errors
///
/// The error of the kernel for `TCP_NODELAY`.
pub fn over_tcp(socket: TcpStream) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    Ok(build(Socket::Tcp(socket)))
}

/// Creates a stream from one end of a local pair. Another process forwards its bytes to another
/// host. `protection` names that process's protection of the data.
pub fn over_local(socket: UnixStream, protection: &'static str) -> Stream {
    build_protected(Socket::Unix(socket), protection)
}

/// Creates two streams within this host that are connected to each other.
///
/// # Errors
///
/// The process has too many open files.
pub fn local_pair() -> io::Result<(Stream, Stream)> {
    let (left, right) = UnixStream::pair()?;
    Ok((build(Socket::Unix(left)), build(Socket::Unix(right))))
}

fn build(socket: Socket) -> Stream {
    build_protected(socket, "clear")
}

fn build_protected(socket: Socket, protection: &'static str) -> Stream {
    let wire = Wire::new(socket, None, protection);
    let (reading, writing) = Half::pair(&wire);
    Stream {
        reader: Box::new(ClearReader {
            half: reading,
            sleeper: Sleeper::new(),
        }),
        writer: Box::new(ClearWriter { half: writing }),
        handle: StreamHandle::new(&wire),
    }
}

struct ClearReader {
    half: Half,
    sleeper: Sleeper,
}

impl StreamReader for ClearReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = self.sleeper.receive(&self.half, buffer, 0)?;
        self.sleeper.note(count);
        self.half.count_read(count);
        Ok(count)
    }

    fn anticipate(&mut self, bytes: usize) {
        self.sleeper.anticipate(&self.half, bytes);
    }
}

struct ClearWriter {
    half: Half,
}

impl StreamWriter for ClearWriter {
    fn write_all(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.half.send_all(&mut slices)?;
        self.half
            .count_written(parts.iter().map(|part| part.len()).sum());
        Ok(())
    }

    fn write_file(
        &mut self,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> io::Result<()> {
        self.half.send_head(head)?;
        let sent = self.half.send_file(file, offset, length)?;
        let rest = (offset + sent as u64, length - sent);
        copy_range(file, rest.0, rest.1, |part| {
            self.half.send_all(&mut [IoSlice::new(part)])
        })?;
        self.half.count_written(head.len() + length);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.half.shutdown(Shutdown::Write)
    }
}

impl Drop for ClearWriter {
    fn drop(&mut self) {
        // The peer's reader must not wait for a dropped writer.
        let _ = self.half.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_to_end(reader: &mut dyn StreamReader) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 1000];
        loop {
            match reader.read(&mut buffer).unwrap() {
                0 => return all,
                n => all.extend_from_slice(&buffer[..n]),
            }
        }
    }

    #[test]
    fn carries_parts_in_order_both_ways() {
        let (mut left, mut right) = local_pair().unwrap();
        let big = vec![7; 300_000];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                left.writer.write_all(&[b"", b"ab", &big, b""]).unwrap();
                left.writer.finish().unwrap();
            });
            right.writer.write_all(&[b"back"]).unwrap();
            right.writer.finish().unwrap();
            let got = read_to_end(&mut *right.reader);
            assert_eq!(got, [b"ab", &big[..]].concat());
        });
        assert_eq!(read_to_end(&mut *left.reader), b"back");
        assert_eq!(left.handle.bytes_written().0, 300_002);
        assert_eq!(right.handle.bytes_read().0, 300_002);
        assert!(left.handle.tcp_info().is_none());
        assert!(left.handle.set_congestion("cubic").is_err());
    }

    #[test]
    fn a_range_of_a_file_is_sent_with_zeros_beyond_its_end() {
        use std::os::fd::AsFd;
        let mut file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        io::Write::write_all(&mut file, &data).unwrap();
        let zeros = [0; 100_000];
        let pairs = [local_pair().unwrap(), {
            let (near, far, _) = over_loopback();
            (near, far)
        }];
        for (mut left, mut right) in pairs {
            let file = file.as_fd();
            let sending = |writer: &mut dyn StreamWriter| {
                writer.write_file(b"head", file, 1, 200_000)?;
                writer.write_file(b"", file, 250_000, 150_000)?;
                writer.write_file(b"end", file, 0, 0)?;
                writer.finish()
            };
            let got = std::thread::scope(|scope| {
                scope.spawn(|| sending(&mut *left.writer).unwrap());
                read_to_end(&mut *right.reader)
            });
            let parts = [b"head", &data[1..200_001], &data[250_000..], &zeros, b"end"];
            assert!(got == parts.concat());
            assert_eq!(left.handle.bytes_written().0, 350_007);
        }
    }

    /// Returns a pair over TCP, and the size of the second one's receive buffer.
    fn over_loopback() -> (Stream, Stream, usize) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let held = socket2::SockRef::from(&far).recv_buffer_size().unwrap();
        let (near, far) = (over_tcp(near).unwrap(), over_tcp(far).unwrap());
        far.handle.end_in_time();
        (near, far, held)
    }

    /// Reads at least one byte.
    fn read_some(reader: &mut dyn StreamReader, buffer: &mut [u8]) -> usize {
        let count = reader.read(buffer).unwrap();
        assert!(count > 0, "ended where more was to come");
        count
    }

    #[test]
    fn a_reader_that_expects_much_is_not_woken_for_little() {
        const MUCH: usize = 1 << 20;
        let (mut near, mut far, held) = over_loopback();
        let writing = std::thread::spawn(move || {
            for _ in 0..MUCH / 4096 {
                near.writer.write_all(&[&[7; 4096]]).unwrap();
            }
            near
        });
        far.reader.anticipate(MUCH);
        let mut all = vec![0; MUCH];
        let mut filled = far.reader.read(&mut all).unwrap();
        assert!(filled >= (held / 16).min(128 << 10), "{filled} of {held}");
        while filled < MUCH {
            filled += read_some(&mut *far.reader, &mut all[filled..]);
        }
        assert!(all.iter().all(|byte| *byte == 7));
        // Later data was not announced, and is returned at once.
        let mut near = writing.join().unwrap();
        near.writer.write_all(&[b"x"]).unwrap();
        assert_eq!(far.reader.read(&mut all).unwrap(), 1);
    }

    /// No data follows the announced amount, in however many parts it arrives.
    #[test]
    fn a_reader_needs_only_the_expected_bytes() {
        const FRAME: usize = 20_000;
        let (mut near, mut far, _) = over_loopback();
        let reading = std::thread::spawn(move || {
            for _ in 0..2000 {
                far.reader.anticipate(FRAME);
                let mut filled = 0;
                while filled < FRAME {
                    filled += read_some(&mut *far.reader, &mut vec![0; FRAME - filled]);
                }
                far.writer.write_all(&[b"x"]).unwrap();
            }
        });
        for round in 0..2000 {
            let frame = [0; FRAME];
            let (first, second) = frame.split_at(5000 + round * 5 % 10_000);
            near.writer.write_all(&[first]).unwrap();
            (0..round % 100).for_each(|_| std::thread::yield_now());
            near.writer.write_all(&[second]).unwrap();
            assert_eq!(near.reader.read(&mut [0]).unwrap(), 1);
        }
        reading.join().unwrap();
    }

    #[test]
    fn the_end_of_a_stream_wakes_a_reader_that_expects_more() {
        let (near, mut far, _) = over_loopback();
        far.reader.anticipate(1 << 20);
        drop(near);
        assert_eq!(far.reader.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn writes_of_zero_bytes_succeed() {
        let (mut left, _right) = local_pair().unwrap();
        left.writer.write_all(&[]).unwrap();
        left.writer.write_all(&[b"", b""]).unwrap();
    }

    #[test]
    fn shutdown_wakes_a_blocked_reader() {
        let (left, _right) = local_pair().unwrap();
        let (mut reader, handle) = (left.reader, left.handle);
        let waiting = std::thread::spawn(move || reader.read(&mut [0; 8]));
        handle.shutdown();
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    }

    #[test]
    fn a_kept_handle_does_not_keep_the_connection() {
        let (left, mut right) = local_pair().unwrap();
        let Stream {
            reader,
            writer,
            handle,
        } = left;
        drop((reader, writer));
        assert_eq!(right.reader.read(&mut [0; 8]).unwrap(), 0);
        assert!(right.writer.write_all(&[&[0; 8]]).is_err());
        drop(handle);
    }
}
