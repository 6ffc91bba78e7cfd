//! Tasks that come from a list instead of a walk.

use std::collections::VecDeque;

use longhaul_units::Moment;

use super::file;
use crate::block::PieceName;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{Answer, Failure, FailureKind, Message, Outcome, Totals};
use crate::sender::{
    Dispatch, Ending, PackedRead, Part, PieceRead, ReadData, ReadJob, Sender, SenderError,
    SenderSettings, Supply, Task, TaskId, TaskResult, Work,
};
use crate::session::StreamId;

const STREAM: StreamId = StreamId(0);
const MIB: u64 = 1 << 20;
const NOW: Moment = Moment(0);

/// A list of tasks, and the results so far.
#[derive(Debug, Default)]
struct List {
    tasks: VecDeque<Task>,
    open: usize,
    results: Vec<(u64, TaskResult)>,
}

impl Work for List {
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
        Supply::Ended
    }

    fn is_done(&self) -> bool {
        self.tasks.is_empty() && self.open == 0
    }
}

fn range(id: u64, entry: &Entry, offset: u64, length: u64) -> Task {
    Task {
        id: TaskId(id),
        entry: entry.clone(),
        generation: 0,
        part: Part::Range { offset, length },
    }
}

fn whole(id: u64, entry: &Entry) -> Task {
    Task {
        part: Part::Whole,
        ..range(id, entry, 0, 0)
    }
}

fn sender(tasks: Vec<Task>) -> Sender<List> {
    let list = List {
        tasks: tasks.into(),
        ..List::default()
    };
    let mut sender = Sender::with_work(SenderSettings::default(), list);
    sender.handle_stream_up(STREAM, NOW);
    sender
}

/// Reads and sends all data that the sender has. Returns its pieces and packed entries in order.
fn send_all(sender: &mut Sender<List>) -> (Vec<PieceName>, Vec<EntryId>) {
    let (mut pieces, mut packed) = (Vec::new(), Vec::new());
    while let Some(ReadJob { block, data }) = sender.poll_read(NOW) {
        match data {
            ReadData::Piece { piece, .. } => {
                assert!(sender.handle_piece_read(block, PieceRead::Ready));
                pieces.push(piece);
            }
            ReadData::Pack(jobs) => {
                let ids: Vec<EntryId> = jobs.iter().map(|job| job.entry.id).collect();
                let read = ids.iter().map(|id| (*id, PackedRead::Ready(None)));
                assert!(sender.handle_pack_read(block, read.collect()));
                packed.extend(ids);
            }
            ReadData::Front { .. } => panic!("no file grows here"),
        }
        let sent = sender.poll_dispatch(STREAM, NOW);
        assert_eq!(sent, Some(Dispatch::Send(block)));
    }
    (pieces, packed)
}

fn durable(sender: &mut Sender<List>, pieces: Vec<PieceName>) {
    let message = Message::Durable { epoch: 1, pieces };
    sender.handle_message(message, NOW).unwrap();
}

fn done(sender: &mut Sender<List>, id: u64, outcome: Outcome) {
    let entries = vec![(EntryId(id), outcome)];
    let message = Message::Done { epoch: 1, entries };
    sender.handle_message(message, NOW).unwrap();
}

fn durable_result(id: u64, offset: u64, length: u64) -> (u64, TaskResult) {
    let result = TaskResult::Durable {
        file: EntryId(0),
        offset,
        length,
    };
    (id, result)
}

#[test]
fn only_the_ranges_are_read_and_each_has_its_result_when_it_is_durable() {
    let entry = file(0, 8 * MIB);
    let tasks = vec![
        range(7, &entry, 6 * MIB, 2 * MIB),
        range(3, &entry, 0, MIB),
        range(5, &entry, 4 * MIB, MIB),
    ];
    let mut sender = sender(tasks);
    let (pieces, _) = send_all(&mut sender);
    let bytes = |pieces: &[PieceName], from, to| {
        let within = pieces
            .iter()
            .filter(|piece| (from..to).contains(&piece.offset));
        within.map(|piece| piece.length).sum::<u64>()
    };
    assert_eq!(bytes(&pieces, 0, 8 * MIB), 4 * MIB);
    assert_eq!(bytes(&pieces, 0, MIB), MIB);
    assert_eq!(bytes(&pieces, 4 * MIB, 5 * MIB), MIB);
    assert_eq!(
        sender.poll_message(),
        None,
        "a part of a file is not sealed"
    );
    let (mut first, rest): (Vec<_>, Vec<_>) =
        pieces.into_iter().partition(|piece| piece.offset < MIB);
    let last = first.pop().unwrap();
    durable(&mut sender, first);
    assert_eq!(sender.work().results, []);
    durable(&mut sender, vec![last]);
    assert_eq!(sender.work().results, [durable_result(3, 0, MIB)]);
    assert!(!sender.work().is_done());
    durable(&mut sender, rest);
    let results = &sender.work().results[1..];
    assert!(results.contains(&durable_result(7, 6 * MIB, 2 * MIB)));
    assert!(results.contains(&durable_result(5, 4 * MIB, MIB)));
    assert!(sender.work().is_done());
    assert_eq!(sender.blocks_under_way(), 0);
}

#[test]
fn a_range_of_a_lost_stream_is_sent_again_and_one_that_is_durable_is_not() {
    let entry = file(0, 4 * MIB);
    let mut sender = sender(vec![
        range(0, &entry, 0, MIB),
        range(1, &entry, 2 * MIB, MIB),
    ]);
    let (pieces, _) = send_all(&mut sender);
    let kept = pieces.iter().filter(|piece| piece.offset < MIB);
    durable(&mut sender, kept.copied().collect());
    sender.handle_stream_down(STREAM);
    sender.handle_stream_up(StreamId(1), NOW);
    let job = sender.poll_read(NOW).map(|job| job.data);
    assert!(matches!(job, Some(ReadData::Piece { piece, .. }) if piece.offset >= 2 * MIB));
    // The same range may come from the queue again while its file is open.
    sender.work_mut().tasks.push_back(range(9, &entry, 0, MIB));
    sender.poll_read(NOW);
    durable(&mut sender, Vec::new());
    assert!(sender.work().results.contains(&durable_result(9, 0, MIB)));
}

#[test]
fn packs_and_links_have_a_result_for_each_entry() {
    let link = Entry {
        kind: EntryKind::Symlink {
            target: b"x".to_vec(),
        },
        ..file(2, 0)
    };
    let tasks = vec![
        whole(4, &file(0, 5)),
        whole(4, &file(1, 6)),
        whole(8, &link),
    ];
    let mut sender = sender(tasks);
    let (_, packed) = send_all(&mut sender);
    assert_eq!(packed, [0, 1, 2].map(EntryId));
    done(&mut sender, 1, Outcome::Committed { digest: None });
    done(&mut sender, 2, Outcome::Unchanged);
    let failure = Failure::new(FailureKind::NoSpace, "full");
    done(&mut sender, 0, Outcome::Failed(failure.clone()));
    let ended = |id, entry, ending| (id, TaskResult::Ended { entry, ending });
    let expected = [
        ended(4, file(1, 6), Ending::Committed(None)),
        ended(8, link, Ending::Skipped(None)),
        ended(4, file(0, 5), Ending::Failed(failure)),
    ];
    assert_eq!(sender.work().results, expected);
    let end = Message::Finished(Totals::default(), Vec::new());
    sender.handle_message(end, NOW).unwrap();
    assert!(sender.finished().is_some());
}

#[test]
fn each_range_of_a_file_that_changed_or_cannot_be_read_has_that_result() {
    let (entry, longer) = (file(0, 4 * MIB), file(0, 5 * MIB));
    let failure = Failure::new(FailureKind::Permission, "no");
    let changed = TaskResult::Changed {
        entry: longer.clone(),
        grew: true,
    };
    let failed = TaskResult::Ended {
        entry: entry.clone(),
        ending: Ending::Failed(failure.clone()),
    };
    for (read, result) in [
        (PieceRead::Changed(longer), changed),
        (PieceRead::Failed(failure), failed),
    ] {
        let ranges = vec![range(1, &entry, 0, MIB), range(2, &entry, 2 * MIB, MIB)];
        let mut sender = sender(ranges);
        let block = sender.poll_read(NOW).unwrap().block;
        assert!(!sender.handle_piece_read(block, read));
        let expected = [(1, result.clone()), (2, result)];
        assert_eq!(sender.work().results, expected);
        assert_eq!(
            sender.poll_message(),
            None,
            "other receivers may have the rest"
        );
        assert_eq!(sender.blocks_under_way(), 0);
    }
}

#[test]
fn ranges_that_are_no_blocks_or_contradict_the_file_fail() {
    let entry = file(0, 4 * MIB + 5);
    for (offset, length) in [
        (0, 0),
        (1, MIB),
        (0, MIB + 1),
        (4 * MIB, 6),
        (u64::MAX, 2),
        (5 * MIB, MIB),
    ] {
        let mut sender = sender(vec![range(1, &entry, offset, length)]);
        assert_eq!(sender.poll_read(NOW), None);
        assert_eq!(sender.work().results, []);
        durable(&mut sender, Vec::new());
        let results = &sender.work().results[..];
        assert!(
            matches!(
                results,
                [(
                    1,
                    TaskResult::Ended {
                        ending: Ending::Failed(_),
                        ..
                    }
                )]
            ),
            "{offset} {length}: {results:?}"
        );
    }
    let other = file(0, 5 * MIB);
    let mut sender = sender(vec![range(1, &entry, 4 * MIB, 5), range(2, &other, 0, MIB)]);
    let (pieces, _) = send_all(&mut sender);
    assert_eq!(pieces.len(), 1);
    assert!(matches!(sender.work().results[..], [(2, _)]));
}

#[test]
fn a_receiver_that_answers_a_list_ends_the_session() {
    let mut sender = sender(vec![whole(0, &file(0, 5))]);
    sender.poll_read(NOW);
    let answers = Message::Answers(vec![(EntryId(0), Answer::Send)]);
    assert_eq!(
        sender.handle_message(answers, NOW),
        Err(SenderError::NotAsked)
    );
    let end = Message::Finished(Totals::default(), Vec::new());
    assert_eq!(sender.handle_message(end, NOW), Err(SenderError::TooEarly));
}
