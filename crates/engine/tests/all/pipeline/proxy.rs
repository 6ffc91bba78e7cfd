//! A connection between two ends that corrupts bytes like faulty hardware.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_net::clear::local_pair;
use longhaul_net::{Stream, StreamHandle, StreamReader, StreamWriter};

use longhaul_proto::block::{BlockHeader, Content};
use longhaul_proto::frame::{self, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_proto::manifest::TreePath;

use crate::support::Random;
use crate::support::ends::Ends;

/// Fault in the direction from the sender to the receiver.
#[derive(Clone, Copy)]
pub enum Fault {
    /// Flips a bit of one byte in about `every` bytes.
    Flips { every: u64 },
    /// Stops the first stream after `after` bytes.
    Stall { after: u64 },
    /// Changes the header of one block in `every`, in a valid frame.
    Forges { every: u64 },
}

/// Streams over faulty connections.
pub struct Proxied {
    fault: Fault,
    seed: u64,
    count: Arc<AtomicU64>,
    next: u32,
    /// A handle of each stream, and a number that is not 0 once it ended.
    live: Vec<(StreamHandle, Arc<AtomicU64>)>,
}

impl Proxied {
    pub fn new(fault: Fault, seed: u64) -> Proxied {
        Proxied {
            fault,
            seed,
            count: Arc::default(),
            next: 1,
            live: Vec::new(),
        }
    }

    /// Returns the number of faults that happened.
    pub fn faults(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn join(&mut self, ends: &Ends, number: u32, clear: bool) -> bool {
        let (left, near) = local_pair().unwrap();
        let (far, right) = local_pair().unwrap();
        let ended = Arc::new(AtomicU64::new(0));
        self.live.push((left.handle.clone(), ended.clone()));
        self.carry(near, far, number, ended);
        self.next = self.next.max(number + 1);
        ends.join_by(left, right, number, clear)
    }

    /// Joins new clear streams in place of those that ended.
    pub fn keep_joined(&mut self, ends: &Ends, wanted: usize) {
        self.live
            .retain(|(_, ended)| ended.load(Ordering::Relaxed) == 0);
        while self.live.len() < wanted {
            if !self.join(ends, self.next, true) {
                return;
            }
        }
    }

    fn carry(&self, near: Stream, far: Stream, number: u32, ended: Arc<AtomicU64>) {
        let fault = match self.fault {
            Fault::Stall { .. } if number > 1 => Fault::Flips { every: u64::MAX },
            fault => fault,
        };
        let mut chance = Random::new(self.seed ^ u64::from(number) << 32);
        let (count, done) = (self.count.clone(), ended.clone());
        let handles = [near.handle.clone(), far.handle.clone()];
        std::thread::spawn(move || {
            forwards(fault, &mut chance, &count, near.reader, far.writer);
            handles.iter().for_each(StreamHandle::shutdown);
            done.store(1, Ordering::Relaxed);
        });
        std::thread::spawn(move || {
            forwards(
                Fault::Flips { every: u64::MAX },
                &mut Random::new(0),
                &AtomicU64::new(0),
                far.reader,
                near.writer,
            );
            ended.store(1, Ordering::Relaxed);
        });
    }
}

fn forwards(
    fault: Fault,
    chance: &mut Random,
    count: &AtomicU64,
    mut from: Box<dyn StreamReader>,
    mut to: Box<dyn StreamWriter>,
) {
    if let Fault::Forges { every } = fault {
        return forges(every, chance, count, &mut *from, &mut *to).unwrap_or_default();
    }
    let (mut room, mut carried) = (vec![0; 32 << 10], 0);
    while let Ok(read @ 1..) = from.read(&mut room) {
        carried += read as u64;
        match fault {
            Fault::Flips { every } if chance.below(every) < read as u64 => {
                room[chance.below(read as u64) as usize] ^= 1 << chance.below(8);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Fault::Stall { after } if carried > after => {
                count.fetch_add(1, Ordering::Relaxed);
                // The stream stays stalled until the other end closes it.
                while let Ok(1..) = from.read(&mut room) {
                    // tidy: reason: the proxy reads slowly.
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                return;
            }
            _ => {}
        }
        if to.write_all(&[&room[..read]]).is_err() {
            return;
        }
    }
}

fn take(from: &mut dyn StreamReader, room: &mut [u8]) -> Option<()> {
    let mut taken = 0;
    while taken < room.len() {
        match from.read(&mut room[taken..]) {
            Ok(read @ 1..) => taken += read,
            _ => return None,
        }
    }
    Some(())
}

/// Returns `None` at the end of the stream.
fn forges(
    every: u64,
    chance: &mut Random,
    count: &AtomicU64,
    from: &mut dyn StreamReader,
    to: &mut dyn StreamWriter,
) -> Option<()> {
    loop {
        let mut start = [0; HEADER_BYTES];
        take(from, &mut start)?;
        let header = FrameHeader::parse(&start).ok()?;
        let (mut body, mut payload) = (vec![0; header.body], vec![0; header.payload]);
        take(from, &mut body)?;
        take(from, &mut payload)?;
        let mut frame = [&start[..], &body].concat();
        if header.kind == FrameKind::Block && chance.below(every) == 0 {
            let mut block: BlockHeader = header.decode(&body).ok()?;
            let entry = match &mut block.content {
                Content::Piece(piece) => &mut piece.entry,
                Content::Pack(entries) => &mut entries[0].entry,
            };
            let mut length = payload.len();
            match chance.below(4) {
                0 => entry.mode ^= 0o4111,
                1 => entry.modified.seconds += 1,
                2 => length ^= 1,
                _ => entry.path = TreePath::new(b"forged").ok()?,
            }
            frame = frame::encode(FrameKind::Block, &block, length).ok()?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        to.write_all(&[&frame, &payload]).ok()?;
    }
}
