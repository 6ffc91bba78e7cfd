//! A relay that delays what it carries, and counts round trips.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Delay of each direction. It must be longer than the time that an end needs for an answer.
/// Otherwise a later message would count as an answer to one that arrived in the meantime.
const ONE_WAY: Duration = Duration::from_millis(50);

/// Counts since [`Relay::begin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Number of round trips in the longest chain of messages and answers that ends at the client.
    pub answered: u64,
    /// Round trips before the client's bytes became more than messages.
    pub before_data: Option<u64>,
}

#[derive(Default)]
struct Counts {
    passed: Passed,
    /// The longest chain that the server has the end of.
    asked: u64,
    client_bytes: u64,
    data_bytes: u64,
    under_way: usize,
}

/// Between one client and a server.
pub struct Relay {
    pub address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Speaker {
    Client,
    Server,
}

/// Some bytes, when they are due, and how long the chain is that they end.
struct Piece {
    bytes: Vec<u8>,
    due: Instant,
    chain: u64,
}

impl Relay {
    /// On the host of this network namespace.
    pub fn within(network: &Path, server: SocketAddr) -> Relay {
        let network = File::open(network).unwrap();
        let counts = Arc::new(Mutex::new(Counts::default()));
        let counting = Arc::clone(&counts);
        let (ready, listening) = channel();
        std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(network.as_fd(), kind).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(server).unwrap();
                carry(Speaker::Client, &client, &server, &counting);
                carry(Speaker::Server, &server, &client, &counting);
            }
        });
        let address = listening.recv().unwrap();
        Relay { address, counts }
    }

    /// Starts to count once no message is in flight. `data_bytes` bytes of the client are data.
    pub fn begin(&self, data_bytes: u64) {
        loop {
            let mut counts = self.counts.lock().unwrap();
            if counts.under_way == 0 {
                *counts = Counts {
                    data_bytes,
                    ..Counts::default()
                };
                return;
            }
            drop(counts);
            // tidy: reason: a piece that is under way sends no event.
            std::thread::sleep(ONE_WAY);
        }
    }

    pub fn passed(&self) -> Passed {
        self.counts.lock().unwrap().passed
    }
}

impl Counts {
    /// Records a sent message, and returns the length of its chain.
    fn sent(&mut self, from: Speaker, bytes: usize) -> u64 {
        self.under_way += 1;
        if from == Speaker::Server {
            return self.asked;
        }
        let before = self.passed.answered;
        self.client_bytes += bytes as u64;
        if self.client_bytes > self.data_bytes && self.passed.before_data.is_none() {
            self.passed.before_data = Some(before);
        }
        before + 1
    }

    /// Records the arrival of a message. It is called before the end receives the message, because
    /// the end may answer at once.
    fn arrives(&mut self, from: Speaker, chain: u64) {
        let longest = match from {
            Speaker::Client => &mut self.asked,
            Speaker::Server => &mut self.passed.answered,
        };
        *longest = chain.max(*longest);
    }
}

/// Carries one direction with two threads: one reads, and the other one delivers after the delay.
fn carry(from: Speaker, source: &TcpStream, sink: &TcpStream, counts: &Arc<Mutex<Counts>>) {
    let (mut source, mut sink) = (source.try_clone().unwrap(), sink.try_clone().unwrap());
    sink.set_nodelay(true).unwrap();
    let (pieces, due): (Sender<Piece>, Receiver<Piece>) = channel();
    let counting = Arc::clone(counts);
    std::thread::spawn(move || {
        let mut room = vec![0; 64 << 10];
        while let Ok(read @ 1..) = source.read(&mut room) {
            let chain = counting.lock().unwrap().sent(from, read);
            let piece = Piece {
                bytes: room[..read].to_vec(),
                due: Instant::now() + ONE_WAY,
                chain,
            };
            if pieces.send(piece).is_err() {
                return;
            }
        }
    });
    let counts = Arc::clone(counts);
    std::thread::spawn(move || {
        for piece in due {
            // tidy: reason: the delay of an emulated path.
            std::thread::sleep(piece.due.saturating_duration_since(Instant::now()));
            counts.lock().unwrap().arrives(from, piece.chain);
            let written = sink.write_all(&piece.bytes);
            counts.lock().unwrap().under_way -= 1;
            if written.is_err() {
                return;
            }
        }
        let _ = sink.shutdown(Shutdown::Write);
    });
}
