//! One file goes in parts to several receivers, from lists of tasks.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;

use longhaul_proto::block::Piece;
use longhaul_proto::digest::{BlockHasher, Integrity};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, TreePath};
use longhaul_proto::receiver::{Receiver, ReceiverSettings, StorageJob, Verdict};
use longhaul_proto::sender::{
    Dispatch, Ending, Part, PieceRead, ReadData, ReadJob, Sender, SenderSettings, Supply, Task,
    TaskId, TaskResult, Work,
};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 6 * MIB + 5;
const FILE: EntryId = EntryId(3);
const STREAM: StreamId = StreamId(0);

/// Tasks for one receiver, and their results so far.
#[derive(Debug, Default)]
struct Queue {
    tasks: VecDeque<Task>,
    open: usize,
    results: Vec<(u64, TaskResult)>,
}

impl Work for Queue {
    fn next_task(&mut self) -> Option<Task> {
        let task = self.tasks.pop_front();
        self.open += usize::from(task.is_some());
        task
    }

    fn handle_result(&mut self, task: TaskId, result: TaskResult) {
        self.open -= 1;
        self.results.push((task.0, result));
    }

    fn supply(&self) -> Supply {
        Supply::More
    }

    fn is_done(&self) -> bool {
        self.tasks.is_empty() && self.open == 0
    }
}

/// A session: a sender with a queue, and its receiver.
struct Session {
    sender: Sender<Queue>,
    receiver: Receiver,
    now: Moment,
}

fn data() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 777) as u8).collect()
}

fn entry() -> Entry {
    Entry {
        id: FILE,
        parent: None,
        path: TreePath::new(b"file").unwrap(),
        kind: EntryKind::File {
            identity: SourceIdentity {
                size: SIZE,
                ..SourceIdentity::default()
            },
            sparse: false,
        },
        mode: 0o644,
        modified: Default::default(),
        owner: None,
    }
}

impl Session {
    /// Makes a session that copies the range of the file.
    fn new(range: (u64, u64)) -> Session {
        let now = Moment(0);
        let task = Task {
            id: TaskId(1),
            entry: entry(),
            generation: 0,
            part: Part::Only {
                start: range.0,
                end: range.1,
                held: Vec::new(),
            },
        };
        let queue = Queue {
            tasks: [task].into(),
            ..Queue::default()
        };
        let mut sender = Sender::with_work(SenderSettings::default(), queue);
        sender.handle_stream_up(STREAM, now);
        Session {
            sender,
            receiver: Receiver::new(ReceiverSettings {
                part: Some(range),
                ..ReceiverSettings::default()
            }),
            now,
        }
    }

    /// Sends the range, makes its data durable, and gives the acknowledgements to the sender.
    fn run(&mut self, data: &[u8]) {
        while let Some(ReadJob { block, data: read }) = self.sender.poll_read(self.now) {
            let ReadData::Piece { entry, piece } = read else {
                panic!("only ranges are sent");
            };
            assert!(self.sender.handle_piece_read(block, PieceRead::Ready));
            let sent = self.sender.poll_dispatch(STREAM, self.now);
            assert_eq!(sent, Some(Dispatch::Send(block)));
            let (offset, length) = (piece.offset, piece.length);
            let mut hasher = BlockHasher::new(Integrity::Digest, offset, length, SIZE).unwrap();
            hasher.update(&data[offset as usize..(offset + length) as usize]);
            let checksum = hasher.finish();
            let arrived = Piece {
                entry,
                generation: piece.generation,
                offset,
                length,
                extents: None,
                checksum: Some(checksum),
            };
            self.receiver.acks_mut().handle_arrival(STREAM);
            assert_eq!(self.receiver.handle_piece(&arrived), Ok(Verdict::Keep));
            self.receiver.handle_written(piece, Ok(checksum), self.now);
        }
        while let Some(message) = self.sender.poll_message() {
            self.receiver.handle_message(message).unwrap();
        }
        let mut is_durable = false;
        while let Some(job) = self.receiver.poll_storage(self.now) {
            match job {
                StorageJob::Checkpoint(files) => {
                    assert!(!is_durable);
                    is_durable = true;
                    let durable = files.into_iter().map(|file| (file, None));
                    self.receiver.handle_checkpointed(durable.collect());
                }
                StorageJob::Commit { digest, .. } => {
                    assert!(is_durable && digest.is_none());
                    self.receiver.handle_committed(FILE, 0, Ok(()));
                }
                job => panic!("a part of a file is only made durable: {job:?}"),
            }
        }
        while let Some(message) = self.receiver.poll_message() {
            self.sender.handle_message(message, self.now).unwrap();
        }
    }
}

/// The last part is made durable at once, although no checkpoint is due by time.
#[test]
fn a_part_is_durable_at_once_and_ends_its_task() {
    let data = data();
    let parts = [(4 * MIB, 6 * MIB), (0, 4 * MIB), (6 * MIB, 8 * MIB)];
    for part in parts {
        let mut session = Session::new(part);
        session.run(&data);
        let queue = session.sender.work();
        assert!(queue.is_done(), "{queue:?}");
        assert!(matches!(
            queue.results[..],
            [(
                1,
                TaskResult::Ended {
                    ending: Ending::Committed(None),
                    ..
                }
            )]
        ));
        let length = part.1.min(SIZE) - part.0;
        assert_eq!(session.sender.account().durable_bytes, length);
    }
}
