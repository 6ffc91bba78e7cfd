//! The control connection: sends commands and receives replies.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, SESSION_ENDS};
use crate::protocol::command;
use crate::protocol::reply::{Event, Reply, ReplyError, ReplyReader};
use crate::tls::TlsStream;

/// Bytes that one read takes from the server.
const READ_BYTES: usize = 16 * 1024;

/// Maximum number of bytes of replies that arrived and were not read. It holds the replies to all
/// commands that are sent ahead.
const WAITING_BYTES: usize = 1 << 20;

/// Time for a connection to one address. After it, the next address of the host is tried.
const CONNECT: Duration = Duration::from_secs(30);

/// The bytes below the control connection.
#[derive(Debug)]
enum Wire {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Program {
        child: Child,
        input: ChildStdin,
        output: ChildStdout,
    },
    /// The connection is being moved, or failed while it was moved.
    Absent,
}

/// A control connection.
#[derive(Debug)]
pub struct Control {
    wire: Wire,
    reader: ReplyReader,
    silence: Duration,
}

impl Drop for Control {
    /// Ends the program below the connection, if it has one.
    fn drop(&mut self) {
        if let Wire::Program { child, .. } = &mut self.wire {
            // The program may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Connects to a host by TCP. Tries all its addresses.
///
/// # Errors
///
/// The error of the last address.
pub fn connect(host: &str, port: u16) -> Result<TcpStream, Error> {
    let action = || format!("connect to {host} port {port}");
    let addresses = (host, port).to_socket_addrs();
    let addresses = addresses.map_err(|error| Error::io(format!("look up {host}"), error))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match connect_address(address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Error::io(action(), last))
}

/// Connects to an address by TCP, without delays for small packets.
///
/// # Errors
///
/// As `connect`.
pub fn connect_address(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Waits until a descriptor is ready. Returns false if the time ends before.
///
/// # Errors
///
/// As `poll`.
pub fn wait(waited: &mut [PollFd<'_>], limit: Duration) -> Result<bool, Error> {
    let time = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    loop {
        match poll(waited, Some(&time)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::io("wait for the server", error.into())),
        }
    }
}

impl Control {
    /// Uses a TCP connection. `silence` is the maximum time without a byte of the server.
    pub fn over_tcp(stream: TcpStream, silence: Duration) -> Control {
        Control {
            wire: Wire::Tcp(stream),
            reader: ReplyReader::default(),
            silence,
        }
    }

    /// Starts a program, usually ssh, and uses its standard input and output. Its standard
    /// error is the one of this process.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn over_program(mut program: Command, silence: Duration) -> Result<Control, Error> {
        let name = program.get_program().to_string_lossy().into_owned();
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program
            .spawn()
            .map_err(|error| Error::io(format!("start {name}"), error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Unexpected(format!("{name} has no pipes")));
        };
        Ok(Control {
            wire: Wire::Program {
                child,
                input,
                output,
            },
            reader: ReplyReader::default(),
            silence,
        })
    }

    /// Returns the addresses of both ends: first this end, then the server. `None` if the
    /// connection is not TCP.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let stream = match &self.wire {
            Wire::Tcp(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
            Wire::Program { .. } | Wire::Absent => return None,
        };
        Some((stream.local_addr().ok()?, stream.peer_addr().ok()?))
    }

    /// Returns the maximum time without a byte of the server.
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Continues the connection in TLS. `start` makes the handshake.
    ///
    /// # Errors
    ///
    /// If the handshake fails, or if the server sent bytes before it: these bytes are not
    /// authenticated. The connection cannot be used afterwards.
    pub fn secure(
        &mut self,
        start: impl FnOnce(TcpStream) -> Result<TlsStream, Error>,
    ) -> Result<(), Error> {
        if self.reader.next_event()?.is_some() {
            return Err(Error::Tls("the server sent replies before TLS".to_owned()));
        }
        match std::mem::replace(&mut self.wire, Wire::Absent) {
            Wire::Tcp(stream) => {
                self.reader = ReplyReader::default();
                self.wire = Wire::Tls(Box::new(start(stream)?));
                Ok(())
            }
            _ => Err(Error::Tls("the connection is not TCP".to_owned())),
        }
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// If the command cannot be expressed, or the connection failed.
    pub fn send(&mut self, verb: &str, argument: Option<&[u8]>) -> Result<(), Error> {
        let line = command::line(verb, argument)?;
        let sent = match &mut self.wire {
            Wire::Tcp(stream) => stream.write_all(&line),
            Wire::Tls(stream) => stream.write_all(&line).and_then(|()| stream.flush()),
            Wire::Program { input, .. } => input.write_all(&line).and_then(|()| input.flush()),
            Wire::Absent => return Err(Error::Closed),
        };
        sent.map_err(|error| Error::io(format!("send {verb}"), error))
    }

    /// Returns the next reply if it has arrived. Reads no bytes.
    ///
    /// # Errors
    ///
    /// If the bytes are not replies, or if the server ends the session.
    pub fn arrived(&mut self) -> Result<Option<Reply>, Error> {
        match self.reader.next_reply()? {
            Some(reply) if reply.code == SESSION_ENDS => Err(Error::refused("the session", &reply)),
            reply => Ok(reply),
        }
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    ///
    /// If the connection failed or is silent, if the bytes are not replies, or if the server ends
    /// the session.
    pub fn reply(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some(reply) = self.arrived()? {
                return Ok(reply);
            }
            self.wait_and_read()?;
        }
    }

    /// Waits for the next part of a reply.
    ///
    /// # Errors
    ///
    /// As [`Control::reply`].
    pub fn event(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.reader.next_event()? {
                return Ok(event);
            }
            self.wait_and_read()?;
        }
    }

    /// Sends a command and waits for its final reply.
    ///
    /// # Errors
    ///
    /// If the connection failed, or if the server ends the session. Other negative replies are no
    /// errors here.
    pub fn ask(&mut self, verb: &str, argument: Option<&[u8]>) -> Result<Reply, Error> {
        self.send(verb, argument)?;
        self.final_reply()
    }

    /// Waits for the next reply that is not preliminary.
    ///
    /// # Errors
    ///
    /// As [`Control::reply`].
    pub fn final_reply(&mut self) -> Result<Reply, Error> {
        loop {
            let reply = self.reply()?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
    }

    /// As [`Control::ask`], but a reply other than success is an error.
    ///
    /// # Errors
    ///
    /// Also [`Error::Refused`].
    pub fn command(&mut self, verb: &str, argument: Option<&[u8]>) -> Result<Reply, Error> {
        self.send(verb, argument)?;
        self.finished(verb)
    }

    /// Waits for the final reply to a command that was sent. A reply other than success is an
    /// error.
    ///
    /// # Errors
    ///
    /// As [`Control::command`].
    pub fn finished(&mut self, verb: &str) -> Result<Reply, Error> {
        let reply = self.final_reply()?;
        if reply.is_success() {
            Ok(reply)
        } else {
            Err(Error::refused(verb, &reply))
        }
    }

    /// Returns the descriptor to wait for before [`Control::read`]. `None` if the connection is
    /// gone.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.wire {
            Wire::Tcp(stream) => Some(stream.as_fd()),
            Wire::Tls(stream) => Some(stream.sock.as_fd()),
            Wire::Program { output, .. } => Some(output.as_fd()),
            Wire::Absent => None,
        }
    }

    fn wait_and_read(&mut self) -> Result<(), Error> {
        let descriptor = self.descriptor().ok_or(Error::Closed)?;
        let mut waited = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        if !wait(&mut waited, self.silence)? {
            return Err(Error::Silent {
                seconds: self.silence.as_secs(),
            });
        }
        self.read()
    }

    /// Reads bytes of the server once. Waits if there are none.
    ///
    /// # Errors
    ///
    /// If the connection failed or ended, or if the server sends replies without commands.
    pub fn read(&mut self) -> Result<(), Error> {
        if self.reader.waiting_bytes() > WAITING_BYTES {
            return Err(ReplyError::Flood.into());
        }
        let mut bytes = [0; READ_BYTES];
        let read = match &mut self.wire {
            Wire::Tcp(stream) => stream.read(&mut bytes),
            Wire::Tls(_) => return self.read_tls(),
            Wire::Program { output, .. } => output.read(&mut bytes),
            Wire::Absent => return Err(Error::Closed),
        };
        match read {
            Ok(0) => Err(Error::Closed),
            Ok(count) => {
                self.reader.push(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(Error::io("read the reply of the server", error)),
        }
    }

    /// Reads one or more records of TLS, and takes all the bytes in them, so that the descriptor
    /// shows whether further bytes exist.
    fn read_tls(&mut self) -> Result<(), Error> {
        let Wire::Tls(stream) = &mut self.wire else {
            return Err(Error::Closed);
        };
        let failed = |error| Error::io("read the reply of the server", error);
        let count = stream.conn.read_tls(&mut stream.sock).map_err(failed)?;
        if count == 0 {
            return Err(Error::Closed);
        }
        let state = stream.conn.process_new_packets();
        let state = state.map_err(|error| Error::Tls(error.to_string()))?;
        let mut bytes = vec![0; state.plaintext_bytes_to_read()];
        stream
            .conn
            .reader()
            .read_exact(&mut bytes)
            .map_err(failed)?;
        self.reader.push(&bytes);
        Ok(())
    }
}
