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

fn whole(id: u64, entry: &Entry) -> Task {
    Task {
        id: TaskId(id),
        entry: entry.clone(),
        generation: 0,
        part: Part::Whole,
    }
}

fn only(id: u64, entry: &Entry, (start, end): (u64, u64), held: &[(u64, u64)]) -> Task {
    let held = held.to_vec();
    Task {
        part: Part::Only { start, end, held },
        ..whole(id, entry)
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

#[test]
fn only_the_range_is_read_and_the_receiver_ends_it() {
    let entry = file(0, 8 * MIB);
    let held = [(4 * MIB, MIB)];
    let mut sender = sender(vec![only(7, &entry, (4 * MIB, 8 * MIB), &held)]);
    let (pieces, _) = send_all(&mut sender);
    assert!(pieces.iter().all(|piece| piece.offset >= 5 * MIB));
    assert_eq!(
        pieces.iter().map(|piece| piece.length).sum::<u64>(),
        3 * MIB
    );
    let sealed = sender.poll_message();
    assert!(matches!(sealed, Some(Message::Sealed { .. })), "{sealed:?}");
    durable(&mut sender, pieces);
    assert_eq!(sender.work().results, []);
    done(&mut sender, 0, Outcome::Committed { digest: None });
    assert!(matches!(sender.work().results[..], [(7, _)]));
    assert!(sender.work().is_done());
    let account = sender.account();
    assert_eq!(account.moved_bytes, 3 * MIB);
    assert_eq!(
        (account.durable_bytes, account.resumed_bytes),
        (3 * MIB, MIB)
    );
}

#[test]
fn a_range_of_a_lost_stream_is_sent_again_and_one_that_is_durable_is_not() {
    let entry = file(0, 4 * MIB);
    let mut sender = sender(vec![only(0, &entry, (MIB, 3 * MIB), &[])]);
    let (pieces, _) = send_all(&mut sender);
    let kept = pieces.iter().filter(|piece| piece.offset < 2 * MIB);
    durable(&mut sender, kept.copied().collect());
    sender.handle_stream_down(STREAM);
    sender.handle_stream_up(StreamId(1), NOW);
    let job = sender.poll_read(NOW).map(|job| job.data);
    assert!(matches!(job, Some(ReadData::Piece { piece, .. }) if piece.offset >= 2 * MIB));
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
