//! Blocks that vanish on the way.

use std::time::Duration;

use longhaul_units::Moment;

use crate::manifest::{Entry, EntryId, EntryKind, TreePath};
use crate::message::{Message, Outcome};
use crate::sender::{Dispatch, PackedRead, ReadData, ReadJob, Sender, SenderSettings};
use crate::session::StreamId;

const STREAM: StreamId = StreamId(0);
const PATIENCE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Moment {
    Moment(0) + Duration::from_secs(seconds)
}

fn link(number: u64) -> Entry {
    Entry {
        id: EntryId(number),
        parent: None,
        path: TreePath::new(format!("link {number}").as_bytes()).unwrap(),
        kind: EntryKind::Symlink {
            target: b"x".to_vec(),
        },
        mode: 0o777,
        modified: Default::default(),
        owner: None,
    }
}

/// Reads and sends all pending entries. Returns the entries in the order of their blocks.
fn send_all(sender: &mut Sender, now: Moment) -> Vec<EntryId> {
    let mut sent = Vec::new();
    while let Some(ReadJob { block, data }) = sender.poll_read(now) {
        let ReadData::Pack(jobs) = data else {
            panic!("a link is no large file");
        };
        let ids = jobs.iter().map(|job| job.entry.id);
        let ids: Vec<EntryId> = ids.collect();
        let read = ids.iter().map(|id| (*id, PackedRead::Ready(None)));
        assert!(sender.handle_pack_read(block, read.collect()));
        assert_eq!(
            sender.poll_dispatch(STREAM, now),
            Some(Dispatch::Send(block))
        );
        sent.extend(ids);
    }
    sent
}

fn done(sender: &mut Sender, id: u64, now: Moment) {
    let entries = vec![(EntryId(id), Outcome::Committed { digest: None })];
    let message = Message::Done { epoch: 1, entries };
    sender.handle_message(message, now).unwrap();
}

fn sender() -> Sender {
    let mut sender = Sender::new(SenderSettings {
        pack_entries: 1,
        ..SenderSettings::default()
    });
    sender.handle_stream_up(STREAM, at(0));
    (0..3).for_each(|number| sender.work_mut().handle_entry(link(number)));
    sender.work_mut().handle_walk_end();
    sender
}

#[test]
fn a_block_that_vanished_as_a_whole_is_sent_again() {
    let mut sender = sender();
    let all = [0, 1, 2].map(EntryId);
    assert_eq!(send_all(&mut sender, at(0)), all);
    assert_eq!(sender.handle_stillness(PATIENCE, at(0)), 0);
    // The second block is lost, and the third is counted in its place.
    sender.handle_arrived(STREAM, 2, at(1));
    done(&mut sender, 0, at(2));
    done(&mut sender, 2, at(2));
    // The idle stream is closed. Its last block is already done.
    sender.handle_stream_down(STREAM);
    sender.handle_stream_up(StreamId(1), at(12));
    assert_eq!(sender.poll_read(at(12)), None);
    assert_eq!(sender.handle_stillness(PATIENCE, at(12)), 0);
    assert_eq!(sender.handle_stillness(PATIENCE, at(22)), 0);
    assert_eq!(sender.handle_stillness(PATIENCE, at(23)), 1);
    let again = sender.poll_read(at(23)).map(|job| job.data);
    let Some(ReadData::Pack(jobs)) = again else {
        panic!("nothing is read again");
    };
    assert_eq!(jobs[0].entry.id, EntryId(1));
}

#[test]
fn blocks_under_way_or_without_room_are_not_sent_again() {
    let mut sender = sender();
    send_all(&mut sender, at(0));
    for second in 0..100 {
        assert_eq!(sender.handle_stillness(PATIENCE, at(second)), 0);
    }
    let choked = Message::Arrived {
        streams: vec![(STREAM.0, 3)],
        room: false,
    };
    sender.handle_message(choked, at(100)).unwrap();
    for second in 100..200 {
        assert_eq!(sender.handle_stillness(PATIENCE, at(second)), 0);
    }
}
