//! Uploads in extended block mode: this end connects to the server.

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::pieces::{BLOCK_BYTES, Next, Pieces};
use super::{Put, read_block};
use crate::control::wait;
use crate::data::{self, may_repeat};
use crate::error::Error;
use crate::protocol::block::{END_OF_DATA, END_OF_FILE, HEADER_BYTES, Header};
use crate::protocol::ranges::Ranges;
use crate::protocol::reply::Reply;
use crate::session::pipeline::{Answer, Pipeline, RESTART_RANGES};
use crate::session::retrieve::Ended;
use crate::session::{Kept, Session};

/// Files whose commands are sent before their data.
const FILES_AHEAD: usize = 16;

/// Text of a range marker before its ranges.
const RANGE_TEXT: &[u8] = b"Range Marker";

/// Data connections to the server, kept for the next file.
#[derive(Debug)]
pub struct Outgoing {
    connections: Vec<Connection>,
}

/// A data connection.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// A frame that is being sent.
    frame: Vec<u8>,
    /// Number of its bytes that are sent.
    sent: usize,
    /// True if the end of the data was put into `frame`.
    has_ended: bool,
}

/// Data of the file that is being sent.
enum Supply<'a> {
    /// The ranges of a file that are missing, in descending order.
    File(&'a Put<'a>, Vec<(u64, u64)>),
    /// Pieces that arrive during the transfer.
    Pieces(&'a Pieces),
}

/// State of the file that is being sent.
struct Current {
    /// Ranges that the server reported.
    stored: Ranges,
    /// True if the server waits for the data.
    is_announced: bool,
    /// Final reply of the server.
    reply: Option<Reply>,
}

impl Session {
    pub(super) fn store_extended(
        &mut self,
        files: &[Put<'_>],
        ended: &mut Ended<'_>,
    ) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(());
        }
        let mut outgoing = self.outgoing()?;
        let commands = files.iter().map(|file| (file.path, &file.present));
        let mut pipeline = Pipeline::new("STOR", commands, FILES_AHEAD);
        while let Some(file) = files.get(pipeline.head()) {
            let present = file.present.first(RESTART_RANGES);
            let mut missing = present.missing(file.size);
            missing.reverse();
            let mut current = Current::new(present);
            let mut supply = Supply::File(file, missing);
            let result = self.store_one(&mut supply, &mut pipeline, &mut outgoing, &mut current);
            match result {
                Err(error) if error.ends_session() || current.is_announced => return Err(error),
                result => ended(pipeline.head(), result),
            }
            pipeline.advance();
            outgoing.begin_file();
        }
        self.kept = Kept::Outgoing(outgoing);
        Ok(())
    }

    /// Stores pieces as they arrive.
    pub(super) fn store_pieces_extended(
        &mut self,
        path: &[u8],
        is_new: bool,
        pieces: &Pieces,
    ) -> Result<(), Error> {
        let mut outgoing = self.outgoing()?;
        // Any range in the command keeps the data that the file has.
        let present = Ranges::front(u64::from(!is_new));
        let commands = std::iter::once((path, &present));
        let mut pipeline = Pipeline::new("STOR", commands, 1);
        let mut current = Current::new(Ranges::default());
        let mut supply = Supply::Pieces(pieces);
        let result = self.store_one(&mut supply, &mut pipeline, &mut outgoing, &mut current);
        // After a rejection, no data were sent.
        if result.is_ok() || !current.is_announced {
            outgoing.begin_file();
            self.kept = Kept::Outgoing(outgoing);
        }
        match result {
            Err(error) if current.is_announced && !error.ends_session() => {
                let text = format!("the server ended the transfer: {error}");
                Err(Error::Unexpected(text))
            }
            result => result,
        }
    }

    /// Returns the kept connections to the server, or opens new ones.
    fn outgoing(&mut self) -> Result<Outgoing, Error> {
        self.use_extended_mode()?;
        if let Kept::Outgoing(outgoing) = std::mem::replace(&mut self.kept, Kept::Extended) {
            return Ok(outgoing);
        }
        let port = self.passive_port()?;
        let (server, buffer_bytes) = (self.server(), self.buffer_bytes());
        let silence = self.control.silence();
        let connect = || Connection::open(server, port, buffer_bytes, silence);
        // The connections share a round trip.
        let connections = std::thread::scope(|scope| {
            let count = self.connections();
            let opening: Vec<_> = (0..count).map(|_| scope.spawn(connect)).collect();
            let opened = opening.into_iter().map(std::thread::ScopedJoinHandle::join);
            opened
                .map(|opened| opened.unwrap_or(Err(Error::Closed)))
                .collect::<Result<Vec<Connection>, Error>>()
        });
        Ok(Outgoing {
            connections: connections?,
        })
    }

    /// Sends one file.
    fn store_one(
        &mut self,
        supply: &mut Supply<'_>,
        pipeline: &mut Pipeline<'_>,
        outgoing: &mut Outgoing,
        current: &mut Current,
    ) -> Result<(), Error> {
        loop {
            pipeline.send(&mut self.control)?;
            self.take_markers(supply, pipeline, current)?;
            if let Some(reply) = &current.reply {
                if !reply.is_success() {
                    return Err(Error::refused("STOR", reply));
                }
                if outgoing.is_done() {
                    return Ok(());
                }
                let text = "the server confirmed a file before all data were sent";
                return Err(Error::Unexpected(text.to_owned()));
            }
            self.wait_and_send(supply, outgoing, current)?;
        }
    }

    /// Takes replies that have arrived, up to the final one of the current file.
    fn take_markers(
        &mut self,
        supply: &Supply<'_>,
        pipeline: &mut Pipeline<'_>,
        current: &mut Current,
    ) -> Result<(), Error> {
        while current.reply.is_none()
            && let Some(answer) = pipeline.arrived(&mut self.control)?
        {
            match answer {
                Answer::Ranges(reply) => {
                    if let Supply::File(file, _) = supply {
                        current.add_marker(&reply, file);
                    }
                }
                Answer::Restart(reply) if reply.is_intermediate() => {}
                // Without the ranges, the server would empty the file.
                Answer::Restart(reply) => {
                    current.is_announced = true;
                    return Err(Error::refused("REST", &reply));
                }
                Answer::Announced => current.is_announced = true,
                Answer::Ended(reply) => current.reply = Some(reply),
            }
        }
        Ok(())
    }

    /// Waits until a reply arrives or data can be sent, and does so.
    fn wait_and_send(
        &mut self,
        supply: &mut Supply<'_>,
        outgoing: &mut Outgoing,
        current: &mut Current,
    ) -> Result<(), Error> {
        let has_data = supply.is_ready();
        let sending = outgoing.sending(current, has_data);
        let descriptor = self.control.descriptor().ok_or(Error::Closed)?;
        let mut waited = vec![PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        if let (Supply::Pieces(pieces), false) = (&*supply, has_data) {
            let descriptor = pieces.descriptor();
            waited.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
        let before = waited.len();
        for index in &sending {
            let descriptor = outgoing.connections[*index].stream.as_fd();
            waited.push(PollFd::from_borrowed_fd(descriptor, PollFlags::OUT));
        }
        let silence = self.control.silence();
        let is_ready = wait(&mut waited, silence)?;
        let ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
        drop(waited);
        if let (Supply::Pieces(pieces), false) = (&*supply, has_data) {
            pieces.clear_signal();
        }
        // While data are missing at this end, the server has nothing to say.
        if !is_ready && (has_data || !sending.is_empty() || !current.is_announced) {
            let seconds = silence.as_secs();
            return Err(Error::Silent { seconds });
        }
        if ready[0] {
            self.control.read()?;
        }
        let ready = sending.iter().zip(&ready[before..]);
        for (index, _) in ready.filter(|(_, ready)| **ready) {
            outgoing.advance(*index, supply)?;
        }
        Ok(())
    }
}

impl Supply<'_> {
    /// True if data can be taken, or if they have ended.
    fn is_ready(&self) -> bool {
        match self {
            Supply::File(..) => true,
            Supply::Pieces(pieces) => pieces.is_ready(),
        }
    }

    /// Adds data to a frame, at most [`BLOCK_BYTES`].
    fn take(&mut self, frame: &mut Vec<u8>) -> Result<Next, Error> {
        match self {
            Supply::Pieces(pieces) => Ok(pieces.take(frame)),
            Supply::File(file, missing) => {
                let Some((start, end)) = missing.pop() else {
                    return Ok(Next::End);
                };
                let before = frame.len();
                frame.resize(before + BLOCK_BYTES, 0);
                let length = read_block(file, start, end, &mut frame[before..])?;
                frame.truncate(before + length);
                let at = start + length as u64;
                if at < end {
                    missing.push((at, end));
                }
                Ok(Next::Data(start))
            }
        }
    }
}

impl Current {
    fn new(stored: Ranges) -> Current {
        Current {
            stored,
            is_announced: false,
            reply: None,
        }
    }

    /// Adds the ranges of a marker, and passes them on. Markers of another form are ignored.
    fn add_marker(&mut self, reply: &Reply, file: &Put<'_>) {
        let ranges = reply
            .last_line()
            .strip_prefix(RANGE_TEXT)
            .and_then(Ranges::parse);
        for (start, end) in ranges.iter().flat_map(Ranges::iter) {
            if end > file.size || self.stored.insert(start, end).is_err() {
                return;
            }
        }
        file.source.stored(&self.stored);
    }
}

impl Outgoing {
    /// Prepares the connections for the next file.
    fn begin_file(&mut self) {
        for connection in &mut self.connections {
            connection.has_ended = false;
        }
    }

    /// True if all frames of the file are sent.
    fn is_done(&self) -> bool {
        let mut connections = self.connections.iter();
        connections.all(|one| one.has_ended && one.sent == one.frame.len())
    }

    /// Returns the connections that have data to send.
    fn sending(&self, current: &Current, has_data: bool) -> Vec<usize> {
        if !current.is_announced {
            return Vec::new();
        }
        let connections = self.connections.iter().enumerate();
        connections
            .filter(|(_, one)| one.sent < one.frame.len() || (has_data && !one.has_ended))
            .map(|(index, _)| index)
            .collect()
    }

    /// Sends bytes through a connection, of its frame or of the next one.
    fn advance(&mut self, index: usize, supply: &mut Supply<'_>) -> Result<(), Error> {
        let count = self.connections.len() as u64;
        let connection = &mut self.connections[index];
        if connection.sent == connection.frame.len() {
            connection.fill(index == 0, count, supply)?;
        }
        match connection
            .stream
            .write(&connection.frame[connection.sent..])
        {
            Ok(sent) => connection.sent += sent,
            Err(error) if may_repeat(&error) => {}
            Err(error) => return Err(Error::io("send data to the server", error)),
        }
        Ok(())
    }
}

impl Connection {
    /// Connects to a port of the server.
    fn open(
        server: IpAddr,
        port: u16,
        buffer_bytes: Option<usize>,
        silence: Duration,
    ) -> Result<Connection, Error> {
        let stream = data::open(server, port, buffer_bytes, silence)?;
        let set = stream.set_nonblocking(true);
        set.map_err(|error| Error::io("open a data connection", error))?;
        Ok(Connection {
            stream,
            frame: Vec::with_capacity(HEADER_BYTES + BLOCK_BYTES),
            sent: 0,
            has_ended: false,
        })
    }

    /// Puts the next block of the file into the frame, or the end. `tells_count` is true for
    /// the connection that sends the number of connections.
    fn fill(
        &mut self,
        tells_count: bool,
        count: u64,
        supply: &mut Supply<'_>,
    ) -> Result<(), Error> {
        self.sent = 0;
        self.frame.clear();
        self.frame.resize(HEADER_BYTES, 0);
        let (flags, offset) = match supply.take(&mut self.frame)? {
            Next::Data(offset) => (0, offset),
            Next::Later => {
                self.frame.clear();
                return Ok(());
            }
            Next::End => {
                self.has_ended = true;
                if tells_count {
                    (END_OF_DATA | END_OF_FILE, count)
                } else {
                    (END_OF_DATA, 0)
                }
            }
        };
        let header = Header {
            flags,
            length: (self.frame.len() - HEADER_BYTES) as u64,
            offset,
        };
        self.frame[..HEADER_BYTES].copy_from_slice(&header.bytes());
        Ok(())
    }
}
