//! One file goes in ranges to two receivers, from a list of tasks.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_proto::block::Piece;
use longhaul_proto::digest::{BlockHasher, Integrity, whole_file};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, TreePath};
use longhaul_proto::receiver::{Placement, Receiver, ReceiverSettings, StorageJob, Verdict};
use longhaul_proto::sender::{
    Dispatch, Part, PieceRead, ReadData, ReadJob, Sender, SenderSettings, Supply, Task, TaskId,
    TaskResult, Work,
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
    fn new() -> Session {
        let now = Moment(0);
        let mut sender = Sender::with_work(SenderSettings::default(), Queue::default());
        sender.handle_stream_up(STREAM, now);
        Session {
            sender,
            receiver: Receiver::new(ReceiverSettings::default()),
            now,
        }
    }

    fn add_range(&mut self, id: u64, offset: u64, length: u64) {
        self.sender.work_mut().tasks.push_back(Task {
            id: TaskId(id),
            entry: entry(),
            generation: 0,
            part: Part::Range { offset, length },
        });
    }

    /// Sends all tasks, makes the data durable, and gives the acknowledgements to the sender.
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
        self.now = self.now + Duration::from_secs(2);
        while let Some(job) = self.receiver.poll_storage(self.now) {
            let StorageJob::Checkpoint(files) = job else {
                panic!("a part of a file is only made durable: {job:?}");
            };
            let durable = files.into_iter().map(|file| (file, None));
            self.receiver.handle_checkpointed(durable.collect());
        }
        while let Some(message) = self.receiver.poll_message() {
            self.sender.handle_message(message, self.now).unwrap();
        }
    }
}

#[test]
fn ranges_out_of_order_at_two_receivers_make_one_file() {
    let data = data();
    let mut sessions = [Session::new(), Session::new()];
    let first = [(1, 5 * MIB, MIB), (0, 2 * MIB, 2 * MIB), (1, 0, MIB)];
    // The second half of the tasks comes after results of the first.
    let second = [(0, 6 * MIB, 5), (0, MIB, MIB), (1, 4 * MIB, MIB)];
    for tasks in [first, second] {
        for (id, (session, offset, length)) in tasks.into_iter().enumerate() {
            sessions[session].add_range(id as u64, offset, length);
        }
        for session in &mut sessions {
            session.run(&data);
            let queue = session.sender.work();
            assert!(queue.is_done(), "{queue:?}");
            let is_durable = |result: &TaskResult| matches!(result, TaskResult::Durable { .. });
            assert!(queue.results.iter().all(|(_, result)| is_durable(result)));
        }
    }
    let mut whole = Placement::new(SIZE, Integrity::Digest);
    for session in &sessions {
        let part = session.receiver.files().placement(FILE).unwrap();
        assert!(!part.is_complete() && part.digest().is_none());
        whole.absorb(&part.merged_blocks().unwrap());
    }
    whole.seal();
    assert!(whole.is_complete());
    assert_eq!(whole.digest(), Some(whole_file(Integrity::Digest, &data)));
}
