//! Tests that any message that can be decoded causes no panic and uses bounded memory, and that
//! additions of later versions are skipped.

use std::time::Duration;

use longhaul_proto::block::{ContentName, PackedEntry, Piece, PieceName};
use longhaul_proto::digest::{Checksum, LARGEST_FILE_BYTES};
use longhaul_proto::filter::LeftOut;
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{
    AgainReason, Answer, Failure, FailureKind, Message, Outcome, Totals,
};
use longhaul_proto::receiver::{Compared, Receiver, ReceiverSettings, StorageJob, Verdict};
use longhaul_proto::sender::{BlockId, PackedRead, PieceRead, Sender, SenderError, SenderSettings};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::random::Random;

/// Returns a number from a small range, so that numbers collide often, or an extreme one.
fn number(random: &mut Random) -> u64 {
    match random.below(12) {
        0 => u64::MAX,
        1 => LARGEST_FILE_BYTES,
        2 => LARGEST_FILE_BYTES + 1,
        3 => random.next(),
        4 | 5 => random.below(8) * 1024,
        _ => random.below(8),
    }
}

fn id(random: &mut Random) -> EntryId {
    EntryId(number(random))
}

fn checksum(random: &mut Random) -> Checksum {
    match random.below(2) {
        0 => Checksum::Blake3([random.below(3) as u8; 32]),
        _ => Checksum::Xxh3(random.below(3)),
    }
}

fn entry(random: &mut Random) -> Entry {
    let kind = match random.below(5) {
        0 => EntryKind::Directory,
        1 => EntryKind::Symlink {
            target: vec![b'x'; random.below(3) as usize],
        },
        _ => {
            let identity = SourceIdentity {
                size: number(random),
                ..Default::default()
            };
            EntryKind::File {
                identity,
                sparse: random.chance(300),
            }
        }
    };
    Entry {
        id: id(random),
        parent: random.chance(500).then(|| id(random)),
        path: TreePath::new(b"a").unwrap(),
        kind,
        mode: 0o644,
        modified: Timestamp::default(),
        owner: None,
    }
}

fn piece(random: &mut Random) -> PieceName {
    PieceName {
        file: id(random),
        generation: random.below(3) as u32,
        offset: number(random),
        length: number(random),
    }
}

fn content(random: &mut Random) -> ContentName {
    match random.below(2) {
        0 => ContentName::Piece(piece(random)),
        _ => ContentName::Pack((0..random.below(4)).map(|_| id(random)).collect()),
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Other, "x")
}

fn outcome(random: &mut Random) -> Outcome {
    match random.below(2) {
        0 => Outcome::Committed { digest: None },
        _ => Outcome::Failed(failure()),
    }
}

fn for_receiver(random: &mut Random) -> Message {
    match random.below(7) {
        0 => Message::Entries((0..random.below(4)).map(|_| entry(random)).collect()),
        1 => Message::DirectoryEnd {
            entry: entry(random),
            children: number(random),
        },
        2 => Message::WalkEnd {
            entries: number(random),
            left_out: LeftOut::default(),
            anchor: None,
        },
        3 => Message::Sealed {
            file: id(random),
            generation: random.below(3) as u32,
            size: number(random),
            grew: false,
        },
        4 => {
            let parent = random.chance(500).then(|| id(random));
            Message::Abandoned {
                id: id(random),
                parent,
                failure: failure(),
            }
        }
        8 => Message::Digests(vec![(id(random), checksum(random))]),
        _ => Message::WantTickets(random.next() as u32),
    }
}

fn for_sender(random: &mut Random) -> Message {
    if random.chance(10) {
        return Message::Finished(Totals::default(), Vec::new());
    }
    let some = random.below(4);
    match random.below(7) {
        0 => Message::Answers(
            (0..some)
                .map(|_| {
                    let answer = match random.below(5) {
                        0 => Answer::Send,
                        4 => Answer::Compare,
                        1 => Answer::Skip {
                            digest: None,
                            mended: random.below(2) == 0,
                        },
                        2 => Answer::Refuse(failure()),
                        _ => Answer::Resume(
                            (0..3).map(|_| (number(random), number(random))).collect(),
                        ),
                    };
                    (id(random), answer)
                })
                .collect(),
        ),
        1 => Message::Durable {
            epoch: random.below(3),
            pieces: (0..some).map(|_| piece(random)).collect(),
        },
        2 => Message::Done {
            epoch: random.below(3),
            entries: (0..some).map(|_| (id(random), outcome(random))).collect(),
        },
        3 | 4 => {
            let reason = random.pick(&[AgainReason::Corrupt, AgainReason::Overlap]);
            Message::Again {
                content: content(random),
                reason,
            }
        }
        _ => Message::Arrived {
            streams: (0..some)
                .map(|_| (number(random) as u32, random.next()))
                .collect(),
            room: random.below(2) == 0,
        },
    }
}

fn store(receiver: &mut Receiver, random: &mut Random, now: Moment) {
    while let Some(job) = receiver.poll_storage(now) {
        let result = match random.below(4) {
            0 => Err(failure()),
            _ => Ok(()),
        };
        match job {
            StorageJob::Compare(entries) => {
                let compare = |entry: Entry| {
                    let compared = match random.below(5) {
                        0 => Compared::Send,
                        4 => Compared::Contents,
                        1 => Compared::Same(None),
                        2 => Compared::Refused(failure()),
                        _ => Compared::Partial(vec![DurableBlock {
                            offset: number(random),
                            length: number(random),
                            checksum: checksum(random),
                        }]),
                    };
                    (entry, compared)
                };
                let found = entries.into_iter().map(compare).collect();
                receiver.handle_compared(found);
            }
            StorageJob::CompareContents(entry, digest) => {
                let compared = match result {
                    Ok(()) => Compared::Same(Some(digest)),
                    Err(_) => Compared::Differs,
                };
                receiver.handle_contents_compared(entry, compared);
            }
            StorageJob::Checkpoint(files) => {
                let files = files.into_iter().map(|file| (file, result.clone().err()));
                receiver.handle_checkpointed(files.collect());
            }
            StorageJob::Commit {
                entry, generation, ..
            } => {
                receiver.handle_committed(entry.id, generation, result);
            }
            StorageJob::ReadBack {
                entry, generation, ..
            } => receiver.handle_read_back(entry.id, generation, result),
            StorageJob::Names(_) | StorageJob::EndNames(_) | StorageJob::Remove => {}
            StorageJob::MakeProbes(_) | StorageJob::RemoveProbes(_) => {}
            StorageJob::Discard { .. } => {}
            StorageJob::Link(entry) => {
                let outcome = Outcome::Committed { digest: None };
                receiver.handle_packed(vec![(entry, outcome)]);
            }
            StorageJob::FinishDirectory(entry) => receiver.handle_directory(entry, result.into()),
            StorageJob::Finish => receiver.handle_finished(Vec::new()),
        }
    }
}

/// Gives the receiver a random block, if the block is valid.
fn random_block(receiver: &mut Receiver, random: &mut Random, now: Moment) -> bool {
    let mut file = entry(random);
    if random.chance(400) {
        let packed = PackedEntry {
            entry: file.clone(),
            generation: 0,
            checksum: None,
        };
        let valid = file.is_valid();
        let kept = valid
            && receiver
                .handle_pack(&[packed])
                .is_ok_and(|v| v == [Verdict::Keep]);
        match random.below(3) {
            0 if kept => {
                let content = ContentName::Pack(vec![file.id]);
                receiver.handle_corrupt(content, AgainReason::Corrupt);
            }
            1 if kept => receiver.handle_packed(vec![(file, outcome(random))]),
            _ => {}
        }
        return true;
    }
    let name = piece(random);
    file.id = name.file;
    let block = longhaul_proto::digest::is_block(name.offset, name.length, file.size());
    if !file.is_valid() || !block {
        return true;
    }
    let PieceName {
        generation,
        offset,
        length,
        ..
    } = name;
    let piece = Piece {
        entry: file,
        generation,
        offset,
        length,
        extents: None,
        checksum: None,
    };
    match receiver.handle_piece(&piece) {
        Err(_) => return false,
        Ok(Verdict::Drop) => {}
        Ok(Verdict::Keep) => match random.below(4) {
            0 => receiver.handle_corrupt(ContentName::Piece(name), AgainReason::Corrupt),
            1 => receiver.handle_written(name, Err(failure()), now),
            _ => receiver.handle_written(name, Ok(checksum(random)), now),
        },
    }
    true
}

#[test]
fn a_receiver_survives_arbitrary_messages() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let settings = ReceiverSettings {
            checkpoint_bytes: random.below(5000),
            ..ReceiverSettings::default()
        };
        let mut receiver = Receiver::new(settings);
        for step in 0..300 {
            let now = Moment(step * 1_000_000);
            let alive = match random.below(3) {
                0 => receiver.handle_message(for_receiver(&mut random)).is_ok(),
                1 => random_block(&mut receiver, &mut random, now),
                _ => {
                    receiver
                        .acks_mut()
                        .handle_arrival(StreamId(random.below(4) as u32));
                    store(&mut receiver, &mut random, now);
                    while random.chance(900) && receiver.poll_message().is_some() {}
                    true
                }
            };
            while receiver.poll_event().is_some() {}
            if !alive {
                break;
            }
        }
    }
}

#[test]
fn a_sender_survives_arbitrary_messages() {
    let (mut early, mut finished) = (0, 0);
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let settings = SenderSettings {
            block_bytes: 1024,
            asks: random.chance(500),
            unacknowledged_blocks: 16,
            ..SenderSettings::default()
        };
        let mut sender = Sender::new(settings);
        let (mut read, walk) = (Vec::new(), random.below(300));
        for step in 0..300 {
            let now = Moment(step * 1_000_000);
            if step == walk {
                sender.work_mut().handle_walk_end();
            }
            if random.chance(700) {
                let message = for_sender(&mut random);
                // The only possible error of such a message is that it comes too early, which ends
                // the session.
                let ends = matches!(message, Message::Finished(..));
                let done = step >= walk && sender.work().tracked() == 0;
                let expected = if ends && !done {
                    Err(SenderError::TooEarly)
                } else {
                    Ok(())
                };
                assert_eq!(sender.handle_message(message, now), expected, "seed {seed}");
                assert_eq!(sender.finished().is_some(), ends && done, "seed {seed}");
                early += u64::from(ends && !done);
                finished += u64::from(ends && done);
                if ends {
                    break;
                }
            } else {
                drive(&mut sender, &mut random, (step, walk), now, &mut read);
            }
            assert!(sender.blocks_under_way() <= 2 * settings.unacknowledged_blocks);
            while sender.poll_message().is_some() || sender.poll_event().is_some() {}
        }
    }
    assert!(early > 100 && finished > 10, "{early} {finished}");
}

fn drive(
    sender: &mut Sender,
    random: &mut Random,
    (step, walk): (u64, u64),
    now: Moment,
    read: &mut Vec<(BlockId, longhaul_proto::sender::ReadData)>,
) {
    let stream = StreamId(random.below(3) as u32);
    match random.below(8) {
        0 => {
            let mut entry = entry(random);
            entry.id = EntryId(step);
            if entry.is_valid() && step < walk {
                sender.work_mut().handle_entry(entry);
            }
        }
        1 => sender.handle_stream_up(stream, now),
        2 if random.chance(300) => sender.handle_reserve(stream, random.chance(500)),
        2 => sender.handle_stream_down(stream),
        3 => read.extend(sender.poll_read(now).map(|job| (job.block, job.data))),
        4 => while sender.poll_dispatch(stream, now).is_some() {},
        5 => drop(sender.streams_mut().poll_control(stream, now)),
        6 => {
            if let Some(suspect) = sender.poll_suspect(now) {
                sender
                    .streams_mut()
                    .handle_judged(suspect, random.chance(500), now);
                assert_ne!(sender.poll_suspect(now), Some(suspect));
            }
        }
        _ => {
            let Some((block, data)) = read.pop() else {
                return;
            };
            match data {
                longhaul_proto::sender::ReadData::Piece { entry, .. } => {
                    let result = match random.below(6) {
                        0 => PieceRead::Changed(entry),
                        1 => PieceRead::Failed(failure()),
                        _ => PieceRead::Ready,
                    };
                    sender.handle_piece_read(block, result);
                }
                longhaul_proto::sender::ReadData::Front { entry, earlier, .. } => {
                    let sum = longhaul_proto::digest::Checksum::Xxh3(random.below(2));
                    let result = match (random.below(6), earlier) {
                        (0, _) => PieceRead::Changed(entry),
                        (1, _) => PieceRead::Failed(failure()),
                        (_, None) => PieceRead::Front(sum),
                        (_, Some(_)) => PieceRead::Same,
                    };
                    sender.handle_piece_read(block, result);
                }
                longhaul_proto::sender::ReadData::Pack(jobs) => {
                    let results = jobs.into_iter().map(|job| {
                        let result = match random.below(6) {
                            0 => PackedRead::Grown(job.entry.clone()),
                            1 => PackedRead::Failed(failure()),
                            2 => PackedRead::Ready(Some(job.entry.clone())),
                            _ => PackedRead::Ready(None),
                        };
                        (job.entry.id, result)
                    });
                    let results = results.collect();
                    sender.handle_pack_read(block, results);
                }
            }
        }
    }
    sender.poll_timeout(now + Duration::from_secs(1));
}

/// Sends messages until the receiver refuses one, and never reads.
fn endures(mut say: impl FnMut(&mut Receiver, u64) -> bool) {
    let mut receiver = Receiver::new(ReceiverSettings::default());
    let refused = (0..2_000_000).any(|n| !say(&mut receiver, n));
    assert!(refused, "it remembers {} things", receiver.tracked());
}

fn file(id: u64, size: u64) -> Entry {
    let identity = SourceIdentity {
        size,
        ..Default::default()
    };
    Entry {
        id: EntryId(id),
        parent: None,
        path: TreePath::new(b"a").unwrap(),
        kind: EntryKind::File {
            identity,
            sparse: false,
        },
        mode: 0,
        modified: Timestamp::default(),
        owner: None,
    }
}

fn half(entry: Entry, offset: u64) -> Piece {
    Piece {
        entry,
        generation: 0,
        offset,
        length: 1024,
        extents: None,
        checksum: None,
    }
}

#[test]
fn unfinished_work_uses_bounded_memory() {
    endures(|receiver, n| receiver.handle_piece(&half(file(n, 2048), 0)).is_ok());
    endures(|receiver, n| {
        receiver
            .handle_piece(&half(file(0, LARGEST_FILE_BYTES), n * 2048))
            .is_ok()
    });
    endures(|receiver, n| {
        let sealed = Message::Sealed {
            file: EntryId(n),
            generation: 0,
            size: 1,
            grew: false,
        };
        receiver.handle_message(sealed).is_ok()
    });
    endures(|receiver, n| {
        let packed = PackedEntry {
            entry: file(2 * n, 1),
            generation: 0,
            checksum: None,
        };
        receiver.handle_pack(&[packed]).is_ok()
    });
    endures(|receiver, n| {
        let (parent, failure) = (Some(EntryId(2 * n + 1)), failure());
        let abandoned = Message::Abandoned {
            id: EntryId(2 * n),
            parent,
            failure,
        };
        receiver.handle_message(abandoned).is_ok()
    });
    endures(|receiver, _| {
        let piece = half(file(0, 2048), 0);
        let verdict = receiver.handle_piece(&piece);
        receiver.handle_corrupt(ContentName::Piece(piece.name()), AgainReason::Corrupt);
        verdict.is_ok()
    });
    endures(|receiver, _| {
        receiver
            .handle_message(Message::Entries(vec![file(0, 1)]))
            .is_ok()
    });
}
