//! Tests against an end that sends.

use std::time::Duration;

use longhaul_proto::block::{ContentName, PieceName};
use longhaul_proto::filter::LeftOut;
use longhaul_proto::manifest::EntryId;
use longhaul_proto::message::{AgainReason, Answer, Farewell, Message, Outcome, Totals};

use super::peer::{Peer, Place, file, pack, short};
use crate::support::ends::PATIENCE;

fn place() -> Place {
    let place = Place::new();
    std::fs::write(place.root().join("small"), b"small").unwrap();
    std::fs::write(place.root().join("large"), vec![7; 300_000]).unwrap();
    place
}

fn farewell(peer: Peer, context: &str) -> Farewell {
    peer.ending(context).farewell
}

#[test]
fn messages_of_a_sender_to_a_sender_end_the_session() {
    let wrong = [
        Message::Entries(vec![file(0, b"a", 1)]),
        Message::WalkEnd {
            entries: 0,
            left_out: LeftOut::default(),
            anchor: None,
        },
        Message::Sealed {
            file: EntryId(0),
            generation: 0,
            size: 0,
            grew: false,
        },
        Message::Finished(Totals::default(), Vec::new()),
    ];
    for message in wrong {
        let place = place();
        let mut peer = Peer::of_sender(&place.root(), short());
        peer.say(&message);
        let context = format!("{message:?}");
        assert!(
            matches!(farewell(peer, &context), Farewell::Broken(_)),
            "{context}"
        );
    }
    let place = place();
    let mut peer = Peer::of_sender(&place.root(), short());
    peer.block(&pack(file(0, b"a", 1), b"x"), b"x");
    let ended = farewell(peer, "a block");
    assert!(matches!(&ended, Farewell::Broken(text) if text.contains("a block came to a sender")));
}

/// The totals must be known although the other end accepts no entries.
#[test]
fn the_scan_ends_before_the_other_end_takes_its_entries() {
    let place = Place::new();
    const FILES: u64 = 20_000;
    for directory in 0..20 {
        let directory = place.root().join(directory.to_string());
        std::fs::create_dir(&directory).unwrap();
        for file in 0..FILES / 20 {
            std::fs::write(directory.join(format!("f{file}")), b"x").unwrap();
        }
    }
    let peer = Peer::of_sender(&place.root(), short());
    let until = std::time::Instant::now() + PATIENCE;
    while !peer.end.measurements().progress().walk_ended {
        assert!(std::time::Instant::now() < until, "the scan does not end");
        assert!(!peer.end.wait_for(Duration::from_millis(50)));
    }
    let progress = peer.end.measurements().progress();
    assert_eq!(progress.walked_entries, FILES + 20);
    assert_eq!(progress.walked_bytes, FILES);
    peer.end.end(Farewell::Cancelled);
    assert_eq!(farewell(peer, "a scan"), Farewell::Cancelled);
}

#[test]
fn invalid_answers_have_no_effect() {
    let place = place();
    let mut peer = Peer::of_sender(&place.root(), short());
    let odd = vec![
        (1, 1),
        (u64::MAX, u64::MAX),
        (1024, 0),
        (0, 1 << 62),
        (100_000, 7),
    ];
    for id in (0..4).chain([u64::MAX]) {
        let id = EntryId(id);
        peer.say(&Message::Answers(vec![
            (id, Answer::Resume(odd.clone())),
            (id, Answer::Send),
        ]));
        for (offset, length) in [
            (0, 0),
            (1, 1),
            (3000, 1 << 40),
            (u64::MAX, u64::MAX),
            (1024, 1024),
        ] {
            let name = PieceName {
                file: id,
                generation: 0,
                offset,
                length,
            };
            let content = ContentName::Piece(name);
            for reason in [AgainReason::Overlap, AgainReason::Corrupt] {
                peer.say(&Message::Again {
                    content: content.clone(),
                    reason,
                });
            }
            let pieces = vec![name];
            peer.say(&Message::Durable { epoch: 1, pieces });
        }
        let content = ContentName::Pack(vec![id; 1000]);
        peer.say(&Message::Again {
            content,
            reason: AgainReason::Corrupt,
        });
        peer.say(&Message::Arrived {
            streams: vec![(0, u64::MAX), (7, 1)],
            room: true,
        });
        let entries = vec![(id, Outcome::Committed { digest: None })];
        peer.say(&Message::Done { epoch: 99, entries });
    }
    std::thread::park_timeout(Duration::from_millis(500));
    assert!(!peer.end.is_over(), "nonsense is ignored");
    let processor = longhaul_processor();
    std::thread::park_timeout(Duration::from_millis(500));
    let spent = longhaul_processor() - processor;
    peer.say(&Message::Goodbye(Farewell::Complete));
    let ended = farewell(peer, "nonsense");
    assert!(
        matches!(&ended, Farewell::Broken(text) if text.contains("before everything")),
        "{ended:?}"
    );
    println!("{spent:?} of processor time in half a second");
}

fn longhaul_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(12) + ticks(13)))
}

#[test]
fn endless_requests_of_a_receiver_are_refused() {
    let place = place();
    let mut peer = Peer::of_sender(&place.root(), short());
    let mut said = 0;
    while said < 200_000 {
        let content = ContentName::Pack(vec![EntryId(0), EntryId(1)]);
        let name = PieceName {
            file: EntryId(0),
            generation: 0,
            offset: 0,
            length: 65_536,
        };
        if !peer.say(&Message::Again {
            content,
            reason: AgainReason::Corrupt,
        }) || !peer.say(&Message::Again {
            content: ContentName::Piece(name),
            reason: AgainReason::Overlap,
        }) {
            break;
        }
        said += 1;
    }
    peer.handle.shutdown();
    assert!(matches!(farewell(peer, "again"), Farewell::Broken(_)));
}
