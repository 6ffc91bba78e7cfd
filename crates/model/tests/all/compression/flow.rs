//! Simulates a copy with a virtual clock: readers, compressors, a path, decompressors and writers
//! with the buffers between them. The choice of codecs sees the same as in the engine, and
//! determines the codecs of the blocks. So errors reinforce themselves as in a real copy.

use std::collections::VecDeque;

use longhaul_model::compression::figures::Observed;
use longhaul_model::compression::sense::{Cores, Look, Sense};
use longhaul_model::compression::{Compression, Deal, TRIAL_BYTES};

use super::world::{Data, candidates};

/// Length of a step in seconds, and number of steps between two samples.
const STEP: f64 = 1e-3;
const LOOK_STEPS: u64 = 100;

/// Maximum rate of a source in bytes per second.
const SOURCE: f64 = 3e9;

/// Maximum duration of a copy in seconds.
const LONGEST: f64 = 1000.0;

/// One end: its cores, the number of cores that other work uses, and the flows of its codecs.
#[derive(Clone, Copy)]
pub struct End {
    pub cores: f64,
    pub others: f64,
    pub flows: usize,
}

pub struct Copy {
    /// Kinds of data in their order, each a part with its number of blocks.
    pub data: Vec<(Data, usize)>,
    pub block_bytes: f64,
    /// Number of buffers for blocks at each end.
    pub buffers: usize,
    /// Rate of the path in bytes per second at a time in seconds.
    pub path: fn(f64) -> f64,
    /// True if the windows show this rate.
    pub is_long: bool,
    pub sender: End,
    pub receiver: End,
    /// Rate in bytes per second at which data become durable.
    pub written: f64,
}

impl Default for Copy {
    fn default() -> Copy {
        let end = End {
            cores: 2.0,
            others: 0.3,
            flows: 2,
        };
        Copy {
            data: Vec::new(),
            block_bytes: (1 << 20) as f64,
            buffers: 64,
            path: |_| 117.7e6,
            is_long: true,
            sender: end,
            receiver: end,
            written: 3e9,
        }
    }
}

/// The result of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub seconds: f64,
    /// Number of blocks that were compressed.
    pub coded: usize,
    /// Number of the first compressed block among the blocks of its kind.
    pub first_coded: Option<usize>,
}

#[derive(Clone, Copy)]
struct Block {
    number: usize,
    part: u32,
    data: Data,
    codec: Option<usize>,
    since: f64,
    /// Remaining bytes on the wire, and remaining CPU seconds.
    left: f64,
    work: f64,
}

struct Running<'a> {
    copy: &'a Copy,
    chooser: Option<(Compression, Sense)>,
    at: f64,
    to_read: VecDeque<Block>,
    coding: VecDeque<Block>,
    encoding: Vec<Block>,
    prepared: VecDeque<Block>,
    arrived: VecDeque<Block>,
    decoding: Vec<Block>,
    /// Number of blocks to write, and durable bytes of the first one.
    writing: usize,
    durable: f64,
    done: usize,
    /// True if the receiver has room. `chokes` is the number of times that it had none.
    has_room: bool,
    chokes: u64,
    seen_chokes: u64,
    carried: f64,
    supplied: f64,
    /// CPU seconds that codecs used at both ends, in total and until the last sample.
    spent: [f64; 2],
    spent_before: [f64; 2],
    is_active: bool,
    came: Came,
}

impl Copy {
    /// Runs the copy with automatically chosen codecs, or without codecs.
    pub fn run(&self, chosen: bool) -> Came {
        let mut blocks = VecDeque::new();
        for (part, (data, count)) in self.data.iter().enumerate() {
            blocks.extend((0..*count).map(|number| Block {
                number,
                part: part as u32,
                data: *data,
                codec: None,
                since: 0.0,
                left: self.block_bytes,
                work: 0.0,
            }));
        }
        let all = blocks.len();
        let mut running = Running {
            copy: self,
            chooser: chosen.then(|| (Compression::new(candidates()), Sense::default())),
            at: 0.0,
            to_read: blocks,
            coding: VecDeque::new(),
            encoding: Vec::new(),
            prepared: VecDeque::new(),
            arrived: VecDeque::new(),
            decoding: Vec::new(),
            writing: 0,
            durable: 0.0,
            done: 0,
            has_room: true,
            chokes: 0,
            seen_chokes: 0,
            carried: 0.0,
            supplied: 0.0,
            spent: [0.0; 2],
            spent_before: [0.0; 2],
            is_active: false,
            came: Came {
                seconds: 0.0,
                coded: 0,
                first_coded: None,
            },
        };
        let mut step = 0;
        while running.done < all && running.at < LONGEST {
            if step % LOOK_STEPS == 0 {
                running.look();
            }
            running.read();
            running.encode();
            running.send();
            running.decode();
            running.write();
            step += 1;
            running.at = step as f64 * STEP;
        }
        running.came.seconds = running.at;
        running.came
    }
}

impl Running<'_> {
    fn look(&mut self) {
        let (at, is_first) = (self.at.max(1e-3), self.at <= 0.0);
        let span = LOOK_STEPS as f64 * STEP;
        let mut cores = |end: End, place: usize, usable: usize| {
            let used = (self.spent[place] - self.spent_before[place]) / span;
            self.spent_before[place] = self.spent[place];
            Cores {
                at,
                all: end.cores,
                idle: (end.cores - end.others - used).max(0.0),
                usable: usable as f64,
                codec_seconds: self.spent[place],
            }
        };
        let (sender, receiver) = (self.copy.sender, self.copy.receiver);
        let sends = cores(sender, 0, sender.flows.min(self.copy.buffers / 2));
        let receives = cores(receiver, 1, receiver.flows);
        let had_room = self.has_room && self.chokes == self.seen_chokes;
        self.seen_chokes = self.chokes;
        let window_rate = if self.copy.is_long {
            (self.copy.path)(at)
        } else {
            0.0
        };
        let look = Look {
            at,
            carried: self.carried,
            supplied: self.supplied,
            is_full: !self.prepared.is_empty(),
            had_room,
            window_rate,
            most_rate: f64::INFINITY,
            waits_for_codec: !self.coding.is_empty() || !self.encoding.is_empty(),
            sender: sends,
            receiver: (!is_first).then_some(receives),
        };
        let Some((compression, sense)) = &mut self.chooser else {
            return;
        };
        if let Some(found) = sense.handle_look(look) {
            compression.handle_resources(at, found);
            let binds = found.wire_rate > 0.0 && found.wire_rate < found.supply_rate;
            self.is_active = binds || compression.is_in_use();
        }
    }

    /// Returns the number of buffers before a codec and at the receiver: half of all buffers while
    /// a codec is in use.
    fn most_buffers(&self) -> usize {
        if self.came.coded > 0 {
            self.copy.buffers / 2
        } else {
            self.copy.buffers
        }
    }

    fn read(&mut self) {
        let mut bytes = SOURCE * STEP;
        while bytes > 0.0 {
            let plain = |block: &&Block| block.codec.is_none();
            let in_use = self.coding.len()
                + self.encoding.len()
                + self.prepared.iter().filter(plain).count();
            if in_use >= self.most_buffers() {
                return;
            }
            let Some(mut block) = self.to_read.pop_front() else {
                return;
            };
            bytes -= self.copy.block_bytes;
            self.supplied += self.copy.block_bytes;
            block.since = self.at;
            let dealt = match &mut self.chooser {
                Some((compression, _)) if self.is_active => {
                    compression.deal(block.part, self.copy.block_bytes as u64)
                }
                _ => Deal::Plain,
            };
            match dealt {
                Deal::Plain => self.prepared.push_back(block),
                // Without a codec, trials decide.
                Deal::Coded(codec) => self.coding.push_back(Block {
                    codec: Some(codec),
                    ..block
                }),
                Deal::Try => self.coding.push_back(block),
            }
        }
    }

    fn encode(&mut self) {
        let flows = self.copy.sender.flows;
        while self.encoding.len() < flows
            && self.prepared.len() < self.copy.buffers
            && let Some(block) = self.coding.pop_front()
        {
            match self.begin(block) {
                Some(block) => self.encoding.push(block),
                None => self.prepared.push_back(Block {
                    codec: None,
                    ..block
                }),
            }
        }
        let (done, spent) = work(&mut self.encoding, self.copy.sender);
        self.spent[0] += spent;
        for block in done {
            let bytes = self.copy.block_bytes;
            let codec = block.codec.unwrap_or_default();
            let (ratio, encode, _) = block.data.figures()[codec];
            if let Some((compression, _)) = &mut self.chooser {
                let seen = Observed {
                    bytes: bytes as u64,
                    encoded: (bytes / ratio) as u64,
                    seconds: bytes * encode,
                };
                compression.handle_encoded(block.part, codec, seen, false);
            }
            if self.came.coded == 0 {
                self.came.first_coded = Some(block.number);
            }
            self.came.coded += 1;
            self.prepared.push_back(Block {
                left: bytes / ratio,
                ..block
            });
        }
    }

    /// Starts a block at a compressor. Returns `None` if the block is now sent uncompressed.
    fn begin(&mut self, block: Block) -> Option<Block> {
        let starves = self.prepared.is_empty();
        let bytes = self.copy.block_bytes;
        let (compression, _) = self.chooser.as_mut()?;
        let waited = self.at - block.since;
        if starves && waited > 0.02 && compression.is_late(bytes as u64, waited) {
            return None;
        }
        let figures = block.data.figures();
        let mut tried = 0.0;
        let codec = match block.codec {
            Some(codec) => compression.renew(block.part, codec),
            None => {
                while let Some(codec) = compression.next_trial(block.part, bytes as u64) {
                    let (ratio, encode, _) = figures[codec];
                    let seen = Observed {
                        bytes: TRIAL_BYTES,
                        encoded: (TRIAL_BYTES as f64 / ratio) as u64,
                        seconds: TRIAL_BYTES as f64 * encode,
                    };
                    tried += seen.seconds;
                    compression.handle_encoded(block.part, codec, seen, true);
                }
                compression.choose(block.part, bytes as u64)
            }
        };
        self.spent[0] += tried;
        Some(Block {
            codec: Some(codec?),
            work: bytes * figures[codec?].1,
            ..block
        })
    }

    fn send(&mut self) {
        let held = self.arrived.len() + self.decoding.len() + self.writing;
        let most = self.most_buffers();
        if self.has_room && held >= most {
            (self.has_room, self.chokes) = (false, self.chokes + 1);
        } else if held < most * 3 / 4 {
            self.has_room = true;
        }
        let mut bytes = (self.copy.path)(self.at) * STEP;
        while self.has_room && bytes > 0.0 {
            let Some(block) = self.prepared.front_mut() else {
                return;
            };
            let sent = block.left.min(bytes);
            block.left -= sent;
            bytes -= sent;
            self.carried += sent;
            if block.left <= 0.0 {
                self.arrived.extend(self.prepared.pop_front());
            }
        }
    }

    fn decode(&mut self) {
        while let Some(mut block) = self.arrived.pop_front() {
            let Some(codec) = block.codec else {
                self.writing += 1;
                continue;
            };
            if self.decoding.len() >= self.copy.receiver.flows {
                self.arrived.push_front(block);
                break;
            }
            block.work = self.copy.block_bytes * block.data.figures()[codec].2;
            self.decoding.push(block);
        }
        let (done, spent) = work(&mut self.decoding, self.copy.receiver);
        self.spent[1] += spent;
        self.writing += done.len();
    }

    fn write(&mut self) {
        self.durable += self.copy.written * STEP;
        while self.writing > 0 && self.durable >= self.copy.block_bytes {
            self.durable -= self.copy.block_bytes;
            (self.writing, self.done) = (self.writing - 1, self.done + 1);
        }
        if self.writing == 0 {
            self.durable = 0.0;
        }
    }
}

/// Works on blocks for one step. Each block has its own flow, and other work reduces the cores.
/// Returns the finished blocks and the CPU seconds used.
fn work(blocks: &mut Vec<Block>, end: End) -> (Vec<Block>, f64) {
    // Even a busy host gives each process a share.
    let free = (end.cores - end.others).max(0.1 * end.cores);
    let each = (free / blocks.len().max(1) as f64).min(1.0) * STEP;
    let mut spent = 0.0;
    for block in blocks.iter_mut() {
        spent += block.work.min(each);
        block.work -= each;
    }
    let (done, left) = blocks
        .iter()
        .partition::<Vec<Block>, _>(|block| block.work <= 0.0);
    *blocks = left;
    (done, spent)
}
