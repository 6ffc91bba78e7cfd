//! Tests of a sender whose pieces arrive corrupt.

use longhaul_proto::block::{ContentName, PieceName};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{AgainReason, Failure, Message};
use longhaul_proto::sender::{Dispatch, PieceRead, ReadData, Sender, SenderSettings};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

const BLOCK: u64 = 1024;
const PIECES: u64 = 40;
const NOW: Moment = Moment(0);

fn file(modified: i64) -> Entry {
    let modified = Timestamp {
        seconds: modified,
        ..Timestamp::default()
    };
    Entry {
        id: EntryId(0),
        parent: None,
        path: TreePath::new(b"a").unwrap(),
        kind: EntryKind::File {
            identity: SourceIdentity {
                size: BLOCK * PIECES,
                modified,
                ..SourceIdentity::default()
            },
            sparse: false,
        },
        mode: 0o644,
        modified,
        owner: None,
    }
}

/// Makes a sender of one file of many pieces, with one stream.
fn sender() -> Sender {
    let mut sender = Sender::new(SenderSettings {
        block_bytes: BLOCK,
        asks: false,
        unacknowledged_blocks: 2 * PIECES as usize,
        ..SenderSettings::default()
    });
    sender.handle_stream_up(StreamId(0), NOW);
    sender.work_mut().handle_entry(file(1));
    sender.work_mut().handle_walk_end();
    sender
}

/// Reads and sends all pending data. Returns the pieces in order.
fn send_all(sender: &mut Sender, mut read: impl FnMut() -> PieceRead) -> Vec<PieceName> {
    let mut sent = Vec::new();
    while let Some(job) = sender.poll_read(NOW) {
        let ReadData::Piece { piece, .. } = job.data else {
            panic!("a pack");
        };
        if sender.handle_piece_read(job.block, read()) {
            sent.push(piece);
        }
        while let Some(Dispatch::Send(_)) = sender.poll_dispatch(StreamId(0), NOW) {}
    }
    sent
}

fn again(sender: &mut Sender, piece: PieceName, reason: AgainReason) {
    let content = ContentName::Piece(piece);
    let message = Message::Again { content, reason };
    sender.handle_message(message, NOW).unwrap();
}

/// Returns the reason why the file was given up; `None` if it was not.
fn given_up(sender: &mut Sender) -> Option<Failure> {
    let mut messages = std::iter::from_fn(|| sender.poll_message());
    messages.find_map(|message| match message {
        Message::Abandoned { failure, .. } => Some(failure),
        _ => None,
    })
}

#[test]
fn one_change_of_the_source_counts_once_for_all_blocks_in_flight() {
    for reason in [AgainReason::Corrupt, AgainReason::Void] {
        let mut sender = sender();
        for state in 2..6 {
            let sent = send_all(&mut sender, || PieceRead::Ready);
            assert_eq!(sent.len() as u64, PIECES, "state {state}");
            for piece in &sent {
                again(&mut sender, *piece, reason);
            }
            // The first piece that is read again shows that the file changed.
            let mut changed = Some(file(state));
            let sent = send_all(&mut sender, || {
                changed.take().map_or(PieceRead::Ready, PieceRead::Changed)
            });
            let generation = sent.iter().map(|piece| piece.generation).max();
            assert_eq!(generation, Some(state as u32 - 1));
            // A message about the former state arrives late.
            let former = PieceName {
                generation: state as u32 - 2,
                ..sent[0]
            };
            (0..100).for_each(|_| again(&mut sender, former, reason));
            assert_eq!(given_up(&mut sender), None, "state {state}");
            for piece in sent {
                again(&mut sender, piece, reason);
            }
        }
    }
}

// Promise 30.
#[test]
fn repeatedly_unusable_data_are_given_up() {
    for reason in [AgainReason::Corrupt, AgainReason::Void] {
        let mut sender = sender();
        let mut rounds = 0;
        let failure = loop {
            let sent = send_all(&mut sender, || PieceRead::Ready);
            for piece in sent {
                again(&mut sender, piece, reason);
            }
            rounds += 1;
            assert!(rounds < 100);
            if let Some(failure) = given_up(&mut sender) {
                break failure;
            }
        };
        assert!(failure.text.contains("faulty memory"), "{failure:?}");
        assert!(rounds > 10, "{rounds}");
    }
}
