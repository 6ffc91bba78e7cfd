//! Downloads in extended block mode: the server connects to this end.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::{Ended, Fetch, READ_BYTES};
use crate::control::wait;
use crate::data::may_repeat;
use crate::error::Error;
use crate::protocol::address::active;
use crate::protocol::block::{BlockReader, MAXIMUM_CONNECTIONS, Part};
use crate::protocol::ranges::Ranges;
use crate::protocol::reply::Reply;
use crate::session::pipeline::{Answer, Pipeline};
use crate::session::{Kept, Session};

/// Files whose commands are sent before their data arrive.
const FILES_AHEAD: usize = 32;

/// Time for the first data connection of the server. Firewalls drop packets silently.
const FIRST_CONNECTION: Duration = Duration::from_secs(20);

/// Data connections from the server, kept for the next file.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    connections: Vec<Connection>,
    /// True if the server has opened any connection.
    was_reached: bool,
}

/// A data connection.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    reader: BlockReader,
    buffer: Box<[u8]>,
    /// Bytes in `buffer` that are not yet split into frames.
    unread: std::ops::Range<usize>,
    /// True if the connection carries no further data of the current file.
    has_ended: bool,
}

/// Result of reading a connection.
enum Progress {
    /// Bytes arrived, or the connection waits.
    Open,
    /// The server closed the connection.
    Closed,
}

/// State of the file whose data arrive.
struct Current {
    received: Ranges,
    /// True if the server has announced the data.
    is_announced: bool,
    /// Number of connections that have ended their part.
    ended: u64,
    /// Number of connections that carry data of the file.
    connections: Option<u64>,
    /// Final reply of the server.
    reply: Option<Reply>,
}

impl Current {
    fn new(file: &Fetch<'_>) -> Current {
        Current {
            received: file.present.clone(),
            is_announced: false,
            ended: 0,
            connections: None,
            reply: None,
        }
    }

    /// True if no further data of the file can arrive.
    fn has_all_ends(&self) -> bool {
        self.connections.is_some_and(|count| self.ended >= count)
    }
}

/// A batch of downloads.
struct Batch<'a, 'b> {
    files: &'a [Fetch<'b>],
    pipeline: Pipeline<'a>,
}

impl Session {
    pub(super) fn retrieve_extended(
        &mut self,
        files: &[Fetch<'_>],
        ended: &mut Ended<'_>,
    ) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(());
        }
        let mut incoming = self.incoming()?;
        let commands = files.iter().map(|file| (file.path, &file.present));
        let mut batch = Batch {
            files,
            pipeline: Pipeline::new("RETR", commands, FILES_AHEAD),
        };
        while let Some(file) = files.get(batch.pipeline.head()) {
            let mut current = Current::new(file);
            let result = self.retrieve_one(&mut batch, &mut incoming, &mut current);
            match result {
                Err(error) if error.ends_session() || current.is_announced => return Err(error),
                result => ended(batch.pipeline.head(), result),
            }
            batch.pipeline.advance();
            for connection in &mut incoming.connections {
                connection.has_ended = false;
            }
        }
        self.kept = Kept::Incoming(incoming);
        Ok(())
    }

    /// Returns the kept connections from the server, or names a new port to it.
    fn incoming(&mut self) -> Result<Incoming, Error> {
        self.use_extended_mode()?;
        if let Kept::Incoming(incoming) = std::mem::replace(&mut self.kept, Kept::Extended) {
            return Ok(incoming);
        }
        let count = self.connections();
        let parallelism = format!("RETR Parallelism={count},{count},{count};");
        self.control.send("OPTS", Some(parallelism.as_bytes()))?;
        let listener = self.listen()?;
        let address = listener.local_addr();
        let address = address.map_err(|error| Error::io("listen for data", error))?;
        let (verb, argument) = active(address);
        self.control.send(verb, Some(argument.as_bytes()))?;
        for verb in ["OPTS", verb] {
            self.control.finished(verb)?;
        }
        Ok(Incoming {
            listener,
            connections: Vec::new(),
            was_reached: false,
        })
    }

    /// Receives one file.
    fn retrieve_one(
        &mut self,
        batch: &mut Batch<'_, '_>,
        incoming: &mut Incoming,
        current: &mut Current,
    ) -> Result<(), Error> {
        let file = &batch.files[batch.pipeline.head()];
        loop {
            batch.pipeline.send(&mut self.control)?;
            self.take_replies(batch, current)?;
            if let Some(reply) = &current.reply
                && !reply.is_success()
            {
                return Err(Error::refused("RETR", reply));
            }
            if current.is_announced {
                incoming.split(file, current)?;
            }
            if current.reply.is_some() {
                incoming.accept(self.server())?;
                // The server has sent all data before its reply: no further connection comes.
                let is_over = incoming.connections.iter().all(|one| one.has_ended);
                if current.has_all_ends() || is_over {
                    return check(file, current);
                }
            }
            self.wait_and_receive(batch, incoming, current)?;
        }
    }

    /// Takes replies that have arrived, up to the final one of the current file.
    fn take_replies(
        &mut self,
        batch: &mut Batch<'_, '_>,
        current: &mut Current,
    ) -> Result<(), Error> {
        while current.reply.is_none()
            && let Some(answer) = batch.pipeline.arrived(&mut self.control)?
        {
            match answer {
                // A server that rejects the ranges sends the whole file.
                Answer::Ranges(_) | Answer::Restart(_) => {}
                Answer::Announced => current.is_announced = true,
                Answer::Ended(reply) => current.reply = Some(reply),
            }
        }
        Ok(())
    }

    /// Waits for a reply, a connection or data, and reads them.
    fn wait_and_receive(
        &mut self,
        batch: &Batch<'_, '_>,
        incoming: &mut Incoming,
        current: &mut Current,
    ) -> Result<(), Error> {
        let readable: Vec<usize> = incoming.readable(current);
        let descriptor = self.control.descriptor().ok_or(Error::Closed)?;
        let mut waited = vec![
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
            PollFd::from_borrowed_fd(incoming.listener.as_fd(), PollFlags::IN),
        ];
        for index in &readable {
            let descriptor = incoming.connections[*index].stream.as_fd();
            waited.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
        let silence = self.control.silence();
        let limit = if incoming.was_reached {
            silence
        } else {
            silence.min(FIRST_CONNECTION)
        };
        let is_ready = wait(&mut waited, limit)?;
        let ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
        drop(waited);
        if !is_ready {
            let seconds = limit.as_secs();
            return Err(if incoming.was_reached {
                Error::Silent { seconds }
            } else {
                Error::NoDataConnection { seconds }
            });
        }
        if ready[0] {
            self.control.read()?;
        }
        if ready[1] {
            incoming.accept(self.server())?;
        }
        let file = &batch.files[batch.pipeline.head()];
        let connections = readable.iter().zip(&ready[2..]);
        let connections = connections.filter(|(_, ready)| **ready);
        incoming.receive(connections.map(|(index, _)| *index), file, current)
    }
}

/// Compares the received bytes with the size of the file.
fn check(file: &Fetch<'_>, current: &Current) -> Result<(), Error> {
    if current.received.covers(file.size) {
        return Ok(());
    }
    Err(Error::Incomplete {
        transferred: current.received.bytes(),
        size: file.size,
    })
}

impl Incoming {
    /// Accepts all waiting connections of the server. Closes those of other hosts.
    fn accept(&mut self, server: std::net::IpAddr) -> Result<(), Error> {
        loop {
            let failed = |error| Error::io("accept a data connection", error);
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    let is_server = peer.ip().to_canonical() == server.to_canonical();
                    if !is_server || self.connections.len() >= MAXIMUM_CONNECTIONS {
                        continue;
                    }
                    stream.set_nonblocking(true).map_err(failed)?;
                    self.was_reached = true;
                    self.connections.push(Connection {
                        stream,
                        reader: BlockReader::default(),
                        buffer: vec![0; READ_BYTES].into(),
                        unread: 0..0,
                        has_ended: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Returns the connections to read. Data that arrive before the server has announced their
    /// file might belong to a later one.
    fn readable(&self, current: &Current) -> Vec<usize> {
        if !current.is_announced {
            return Vec::new();
        }
        let connections = self.connections.iter().enumerate();
        connections
            .filter(|(_, connection)| !connection.has_ended && connection.unread.is_empty())
            .map(|(index, _)| index)
            .collect()
    }

    /// Splits bytes that arrived with those of the file before.
    fn split(&mut self, file: &Fetch<'_>, current: &mut Current) -> Result<(), Error> {
        for connection in &mut self.connections {
            connection.split(file, current)?;
        }
        Ok(())
    }

    /// Reads connections that have data, and forgets those that the server closed.
    fn receive(
        &mut self,
        ready: impl Iterator<Item = usize>,
        file: &Fetch<'_>,
        current: &mut Current,
    ) -> Result<(), Error> {
        let mut closed = Vec::new();
        for index in ready {
            let connection = &mut self.connections[index];
            match connection.receive(file, current)? {
                Progress::Open => {}
                Progress::Closed => closed.push(index),
            }
        }
        for index in closed.into_iter().rev() {
            self.connections.swap_remove(index);
        }
        Ok(())
    }
}

impl Connection {
    fn receive(&mut self, file: &Fetch<'_>, current: &mut Current) -> Result<Progress, Error> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) if self.reader.is_between_frames() => Ok(Progress::Closed),
            Ok(0) => Err(Error::Unexpected(
                "the server closed a data connection within a frame".to_owned(),
            )),
            Ok(count) => {
                self.unread = 0..count;
                self.split(file, current)?;
                Ok(Progress::Open)
            }
            Err(error) if may_repeat(&error) => Ok(Progress::Open),
            Err(error) => Err(Error::io("read data of the server", error)),
        }
    }

    /// Splits the bytes in the buffer into frames, up to the end of the current file.
    fn split(&mut self, file: &Fetch<'_>, current: &mut Current) -> Result<(), Error> {
        while !self.has_ended {
            let bytes = &self.buffer[self.unread.clone()];
            let (used, part) = self.reader.next(bytes, file.size)?;
            match part {
                Some(Part::Data { offset, bytes }) => {
                    file.sink.write_at(offset, bytes).map_err(Error::Local)?;
                    current
                        .received
                        .insert(offset, offset + bytes.len() as u64)?;
                }
                Some(Part::Flags {
                    is_end,
                    connections,
                }) => {
                    current.connections = connections.or(current.connections);
                    current.ended += u64::from(is_end);
                    self.has_ended = is_end;
                }
                None => {}
            }
            self.unread.start += used;
            if part.is_none() && self.unread.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
