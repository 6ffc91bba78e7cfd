//! Tests that the front of a file that keeps growing is sent, and read again before it is sealed.

use longhaul_proto::block::{ContentName, PieceName};
use longhaul_proto::digest::Checksum;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{AgainReason, FailureKind, Message};
use longhaul_proto::sender::{
    Dispatch, PackedRead, PieceRead, ReadData, ReadJob, Sender, SenderSettings,
};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

const BLOCK: u64 = 1024;
const NOW: Moment = Moment(0);

fn file(size: u64) -> Entry {
    Entry {
        id: EntryId(0),
        parent: None,
        path: TreePath::new(b"log").unwrap(),
        kind: EntryKind::File {
            identity: SourceIdentity {
                size,
                ..SourceIdentity::default()
            },
            sparse: false,
        },
        mode: 0o644,
        modified: Timestamp::default(),
        owner: None,
    }
}

fn sender(size: u64, fronts: bool) -> Sender {
    let mut sender = Sender::new(SenderSettings {
        block_bytes: BLOCK,
        fronts,
        ..SenderSettings::default()
    });
    sender.handle_stream_up(StreamId(0), NOW);
    sender.work_mut().handle_entry(file(size));
    sender.work_mut().handle_walk_end();
    sender
}

/// Course of a front: the pieces that were sent, and the last messages.
#[derive(Debug, Default)]
struct Course {
    sent: Vec<PieceName>,
    checked: usize,
    said: Vec<Message>,
}

/// Returns the checksum of a piece.
fn sum(piece: PieceName) -> Checksum {
    Checksum::Xxh3(piece.offset)
}

/// Reads and sends all pending data. Each read of the whole file finds that it grew by a byte.
/// `read` overrides the result for a piece of the front.
fn run(sender: &mut Sender, read: &mut dyn FnMut(&ReadData) -> Option<PieceRead>) -> Course {
    let mut course = Course::default();
    while let Some(ReadJob { block, data }) = sender.poll_read(NOW) {
        let other = read(&data);
        match data {
            ReadData::Piece { entry, .. } => {
                let grown = PieceRead::Changed(file(entry.size() + 1));
                sender.handle_piece_read(block, other.unwrap_or(grown));
            }
            ReadData::Pack(jobs) => {
                let grown = |size| PackedRead::Grown(file(size + 1));
                let results = jobs
                    .iter()
                    .map(|job| (job.entry.id, grown(job.entry.size())));
                sender.handle_pack_read(block, results.collect());
            }
            ReadData::Front { piece, earlier, .. } => {
                let (usual, checks) = match earlier {
                    None => (PieceRead::Front(sum(piece)), 0),
                    Some(earlier) => {
                        assert_eq!(earlier, sum(piece));
                        (PieceRead::Same, 1)
                    }
                };
                course.checked += checks;
                if sender.handle_piece_read(block, other.unwrap_or(usual)) {
                    course.sent.push(piece);
                }
            }
        }
        while let Some(Dispatch::Send(_)) = sender.poll_dispatch(StreamId(0), NOW) {}
    }
    course.said = std::iter::from_fn(|| sender.poll_message()).collect();
    course
}

fn given_up(course: &Course) -> bool {
    course.said.iter().any(|message| {
        matches!(message, Message::Abandoned { failure, .. } if failure.kind == FailureKind::Changing)
    })
}

fn sealed(course: &Course) -> Option<(u64, bool)> {
    course.said.iter().find_map(|message| match message {
        Message::Sealed { size, grew, .. } => Some((*size, *grew)),
        _ => None,
    })
}

#[test]
fn the_front_of_a_growing_file_is_sent_and_sealed_after_a_second_read() {
    // A file in pieces and a file in a pack.
    for size in [3 * BLOCK, 100] {
        let mut sender = sender(size, true);
        let course = run(&mut sender, &mut |_| None);
        assert_eq!(sealed(&course), Some((size + 2, true)), "{course:?}");
        let pieces = (size + 2).div_ceil(BLOCK) as usize;
        assert_eq!((course.sent.len(), course.checked), (pieces, pieces));
        assert!(course.sent.iter().all(|piece| piece.generation == 2));
    }
}

#[test]
fn no_front_is_sent_if_the_settings_forbid_it() {
    let course = run(&mut sender(3 * BLOCK, false), &mut |_| None);
    assert!(given_up(&course) && course.sent.is_empty());
}

#[test]
fn a_growing_file_that_also_changed_is_given_up() {
    // The file has the same size once.
    let mut same = Some(file(3 * BLOCK));
    let mut sender_ = sender(3 * BLOCK, true);
    let course = run(&mut sender_, &mut |data| match data {
        ReadData::Piece { .. } => same.take().map(PieceRead::Changed),
        _ => None,
    });
    assert!(given_up(&course) && course.sent.is_empty());
    // The front differs when it is read again, for the check or because it was lost.
    let course = run(&mut sender(3 * BLOCK, true), &mut |data| match data {
        ReadData::Front {
            earlier: Some(_),
            entry,
            ..
        } => Some(PieceRead::Changed(entry.clone())),
        _ => None,
    });
    assert!(given_up(&course) && sealed(&course).is_none());
    for sums in [[1, 2], [1, 1]] {
        let mut sender = sender(BLOCK - 2, true);
        let mut given = sums.into_iter();
        let mut read = |data: &ReadData| match data {
            ReadData::Front { earlier: None, .. } => given
                .next()
                .map(|sum| PieceRead::Front(Checksum::Xxh3(sum))),
            ReadData::Front { .. } => Some(PieceRead::Same),
            _ => None,
        };
        let course = run_unchecked(&mut sender, &mut read);
        assert_eq!(sealed(&course), Some((BLOCK, true)));
        let content = ContentName::Piece(course.sent[0]);
        let reason = AgainReason::Corrupt;
        sender
            .handle_message(Message::Again { content, reason }, NOW)
            .unwrap();
        let again = run_unchecked(&mut sender, &mut read);
        assert_eq!(given_up(&again), sums[0] != sums[1], "{again:?}");
    }
}

/// Works as `run`, with checksums that `read` determines.
fn run_unchecked(
    sender: &mut Sender,
    read: &mut dyn FnMut(&ReadData) -> Option<PieceRead>,
) -> Course {
    let mut course = Course::default();
    while let Some(ReadJob { block, data }) = sender.poll_read(NOW) {
        match (read(&data), data) {
            (Some(result), ReadData::Front { piece, .. }) => {
                if sender.handle_piece_read(block, result) {
                    course.sent.push(piece);
                }
            }
            (_, ReadData::Pack(jobs)) => {
                let grown = |size| PackedRead::Grown(file(size + 1));
                let results = jobs
                    .iter()
                    .map(|job| (job.entry.id, grown(job.entry.size())));
                sender.handle_pack_read(block, results.collect());
            }
            (result, data) => panic!("{result:?} of {data:?}"),
        }
        while let Some(Dispatch::Send(_)) = sender.poll_dispatch(StreamId(0), NOW) {}
    }
    course.said = std::iter::from_fn(|| sender.poll_message()).collect();
    course
}
