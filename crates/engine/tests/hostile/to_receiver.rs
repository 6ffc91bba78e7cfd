//! Tests against an end that receives.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_engine::codec::{Encoder, bound};
use longhaul_engine::session::TransferSettings;
use longhaul_net::clear::local_pair;
use longhaul_proto::block::{Codec, Content, Extent};
use longhaul_proto::block::{ContentName, PieceName};
use longhaul_proto::calls::{Call, CallLook, MAXIMUM_CALLS, MAXIMUM_CAUSE_BYTES};
use longhaul_proto::control::Numbered;
use longhaul_proto::digest::Checksum;
use longhaul_proto::filter::LeftOut;
use longhaul_proto::frame::{self, FrameKind};
use longhaul_proto::handshake::{Operation, Secret};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind};
use longhaul_proto::message::{Answer, Failure, FailureKind, Farewell, Flows, Message};
use longhaul_proto::session::StreamId;
use longhaul_proto::shuffle::{Arrangement, ElementSize, Shuffle};
use longhaul_testing::await_that;

use super::peer::{Peer, Place, file, lingering, pack, piece, short};
use crate::support::ends::PATIENCE;

/// More messages than any end accepts; the bar's ten million take a minute.
const FLOOD: u64 = 1_000_000;

fn broken(peer: Peer, context: &str) -> String {
    match peer.ending(context).farewell {
        Farewell::Broken(text) => text,
        other => panic!("{context}: {other:?}"),
    }
}

/// Returns the bytes of a message with a path that [`longhaul_proto`] would refuse to create.
fn with_path(path: &[u8]) -> Vec<u8> {
    let stand_in = vec![b'x'; path.len().max(1)];
    let end = Message::Entries(vec![file(0, &stand_in, 3)]);
    let mut bytes = minicbor::to_vec(end).unwrap();
    let at = bytes
        .windows(stand_in.len())
        .position(|part| part == stand_in)
        .unwrap();
    bytes[at..at + path.len()].copy_from_slice(path);
    bytes
}

// Promise 28.
#[test]
fn paths_that_lead_out_end_the_session() {
    for path in [
        &b"../beside/sentinel"[..],
        b"/etc/longhaul",
        b"a/../../beside/x",
        b"a//b",
        b".",
        b"a/.longhaul-x",
        b"a\0b",
    ] {
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        peer.say_raw(with_path(path));
        let shown = path.escape_ascii().to_string();
        assert!(broken(peer, &shown).contains("decoded"), "{shown}");
        place.assert_untouched(&shown);
    }
}

/// A sender in the middle of a large file must still receive the reason for the end of the session.
#[test]
fn data_after_the_end_are_read() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, lingering());
    let end = Arc::clone(&peer.end);
    end.end(Farewell::Storage("the disk is gone".to_owned()));
    let waiting = Arc::clone(&end);
    let ended = std::thread::spawn(move || waiting.wait());
    assert!(end.wait_until_left(PATIENCE));
    // The data exceeds the buffer of a socket.
    let large = file(0, b"large", 1 << 20);
    for offset in (0..1 << 20).step_by(65_536) {
        let header = piece(large.clone(), offset, &[1; 65_536]);
        assert!(peer.block(&header, &[1; 65_536]), "closed at {offset}");
    }
    drop(peer);
    let ending = ended.join().unwrap();
    assert!(
        matches!(ending.farewell, Farewell::Storage(_)),
        "{ending:?}"
    );
}

// Promise 27.
#[test]
fn links_in_a_path_are_not_followed() {
    let place = Place::new();
    symlink(place.beside(), place.root().join("away")).unwrap();
    symlink(place.beside().join("sentinel"), place.root().join("file")).unwrap();
    let mut peer = Peer::of_receiver(&place, short());
    peer.block(&pack(file(0, b"away/sentinel", 4), b"evil"), b"evil");
    peer.block(&pack(file(1, b"away/inner/new", 4), b"evil"), b"evil");
    peer.block(&pack(file(2, b"file", 4), b"evil"), b"evil");
    peer.block(
        &piece(file(3, b"away/large", 200_000), 0, &[1; 65_536]),
        &[1; 65_536],
    );
    let directory = Entry {
        kind: EntryKind::Directory,
        ..file(4, b"away", 0)
    };
    peer.say(&Message::DirectoryEnd {
        entry: directory,
        children: 0,
    });
    peer.say(&Message::WalkEnd {
        entries: 3,
        left_out: LeftOut::default(),
        anchor: None,
    });
    // The last entry never completes, so the test waits for the counts and not for the end.
    let until = Instant::now() + PATIENCE;
    let counts = || {
        let progress = peer.end.measurements().progress();
        (progress.failed_entries, progress.done_entries)
    };
    while counts() != (4, 1) {
        assert!(Instant::now() < until, "{:?}", counts());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    peer.handle.shutdown();
    let ending = peer.ending("links");
    place.assert_untouched("links");
    assert!(
        std::fs::symlink_metadata(place.root().join("file"))
            .unwrap()
            .is_file()
    );
    assert!(
        ending
            .totals
            .is_some_and(|totals| totals.failed == 4 && totals.committed == 1),
        "{ending:?}"
    );
}

#[test]
fn a_directory_swapped_for_a_link_does_not_lead_out() {
    let place = Place::new();
    let inside = place.root().join("inside");
    let mut peer = Peer::of_receiver(&place, short());
    let mut id = 0;
    for round in 0..200 {
        for _ in 0..5 {
            peer.block(
                &pack(file(id, b"inside/inner/sentinel", 4), b"evil"),
                b"evil",
            );
            id += 1;
        }
        let large = file(id, format!("inside/inner/l{id}").as_bytes(), 100_000);
        peer.block(&piece(large, 0, &[1; 65_536]), &[1; 65_536]);
        id += 1;
        // Each step may succeed or fail at any moment.
        let _ = match round % 2 {
            0 => std::fs::rename(&inside, place.root().join(format!("old{round}")))
                .and_then(|()| symlink(place.beside(), &inside)),
            _ => std::fs::remove_file(&inside),
        };
    }
    peer.handle.shutdown();
    peer.ending("swapped");
    place.assert_untouched("swapped");
}

#[test]
fn half_a_frame_and_silence_end_the_session() {
    for length in [3, 30, 300] {
        let place = Place::new();
        let settings = TransferSettings {
            silence: Duration::from_secs(2),
            ..short()
        };
        let mut peer = Peer::of_receiver(&place, settings);
        let header = pack(file(0, b"a", 5000), &[1; 5000]);
        let frame = longhaul_proto::frame::encode(FrameKind::Block, &header, 5000).unwrap();
        let bytes = [&frame[..], &[1; 5000]].concat();
        peer.send(&[&bytes[..length]]);
        assert!(broken(peer, "half a frame").contains("came back"));
        assert!(!place.root().join("a").exists());
    }
}

const FLOODS: [&str; 12] = [
    "entries",
    "large files",
    "seals",
    "abandoned",
    "abandoned in a row",
    "long texts",
    "parents",
    "directories",
    "long directories",
    "checksums",
    "tickets",
    "wants",
];

/// Returns the n-th message of a flood.
fn message_of(flood: &str, n: u64) -> Message {
    let (id, generation) = (EntryId(n), 0);
    let apart = EntryId(2 * n);
    let failure = |length| Failure::new(FailureKind::Other, "x".repeat(length));
    let listed = |id: u64| file(id, format!("{id}").as_bytes(), 9);
    let directory = |entry| Entry {
        kind: EntryKind::Directory,
        ..entry
    };
    match flood {
        "entries" => Message::Entries((500 * n..500 * (n + 1)).map(listed).collect()),
        "large files" => Message::Entries(vec![file(2 * n, b"same", 1 << 40)]),
        "seals" => Message::Sealed {
            file: id,
            generation,
            size: 1,
            grew: false,
        },
        "abandoned" => Message::Abandoned {
            id: apart,
            parent: None,
            failure: failure(1000),
        },
        "abandoned in a row" => Message::Abandoned {
            id,
            parent: None,
            failure: failure(1000),
        },
        "long texts" => Message::Abandoned {
            id,
            parent: None,
            failure: Failure {
                kind: FailureKind::Other,
                text: "x".repeat(500_000),
            },
        },
        "parents" => Message::Abandoned {
            id: EntryId(2 * n + 1),
            parent: Some(apart),
            failure: failure(0),
        },
        "directories" => Message::DirectoryEnd {
            entry: directory(listed(n)),
            children: 7,
        },
        "long directories" => {
            let name = "x".repeat(200);
            let path = format!("{n}{}", format!("/{name}").repeat(80));
            Message::DirectoryEnd {
                entry: directory(file(n, path.as_bytes(), 9)),
                children: 7,
            }
        }
        "checksums" => Message::Checksums {
            content: ContentName::Pack(vec![id]),
            checksums: vec![Some(Checksum::Xxh3(n)); 20],
        },
        "tickets" => Message::Tickets(vec![Secret([1; 32]); 100]),
        _ => Message::WantTickets(u32::MAX),
    }
}

// Promise 37.
#[test]
fn floods_are_refused_with_bounded_memory() {
    for name in FLOODS {
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        let before = resident();
        let mut sent = 0;
        while sent < FLOOD / 5 && peer.say(&message_of(name, sent)) {
            sent += 1;
        }
        peer.handle.shutdown();
        let text = broken(peer, name);
        let grown = resident().saturating_sub(before);
        println!("{name}: {sent} messages, {} MiB, {text}", grown >> 20);
        assert!(grown < 256 << 20, "{name}: {} MiB", grown >> 20);
        place.assert_untouched(name);
    }
}

/// A lost session keeps its state for a client that comes back.
#[test]
fn a_lost_session_with_much_unfinished_data_ends_at_once() {
    let place = Place::new();
    let settings = TransferSettings {
        linger: Duration::from_secs(3600),
        ..short()
    };
    let mut peer = Peer::of_receiver(&place, settings);
    for n in 0..1000 {
        assert!(peer.say(&message_of("long directories", n)));
    }
    peer.handle.shutdown();
    assert!(broken(peer, "lost").contains("under way"));
}

/// The number of threads that a peer requests is bounded.
#[test]
fn flows_that_a_peer_asks_for_are_bounded() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, short());
    let many = Some(2000);
    let flows = Flows {
        readers: many,
        compressors: many,
        streams: None,
        decompressors: many,
        writers: many,
        committers: many,
    };
    peer.say(&Message::SetFlows(flows));
    let flows_of = |layer: &str| {
        let layers = peer.end.measurements().progress().layers;
        let found = layers.iter().find(|found| found.layer == layer);
        found.map_or(0, |found| found.flows)
    };
    // Without a request there are at most eight.
    await_that(|| flows_of("write") > 8);
    for layer in ["write", "decompress"] {
        assert!(flows_of(layer) <= 64, "{layer}: {}", flows_of(layer));
    }
    peer.handle.shutdown();
    peer.ending("flows");
}

/// The peer begins very many directories that are compared, and ends none of them.
#[test]
fn endless_directories_end_the_session() {
    let place = Place::new();
    for n in 0..66_000 {
        std::fs::create_dir(place.root().join(n.to_string())).unwrap();
    }
    let mut settings = short();
    settings.operation = Operation::Verify;
    let mut peer = Peer::of_receiver(&place, settings);
    for n in 0..66_000 {
        let entry = Entry {
            kind: EntryKind::Directory,
            ..file(n, format!("{n}/f").as_bytes(), 9)
        };
        if !peer.say(&Message::Entries(vec![entry])) {
            break;
        }
    }
    assert!(broken(peer, "without end").contains("ends none"));
}

/// The peer begins very many directories that do not exist at the destination.
#[test]
fn endless_missing_directories_use_bounded_memory() {
    let place = Place::new();
    let mut settings = short();
    settings.operation = Operation::Verify;
    let mut peer = Peer::of_receiver(&place, settings);
    let before = resident();
    // A path of the greatest length: 60,000 of them are 240 MB.
    let below = format!("/{}", "x".repeat(200)).repeat(19);
    for n in 0..60_000 {
        let missing = file(n, format!("{n}{below}/f").as_bytes(), 9);
        let directory = Entry {
            kind: EntryKind::Directory,
            ..missing
        };
        if !peer.say(&Message::Entries(vec![directory])) {
            break;
        }
    }
    let grown = resident().saturating_sub(before);
    peer.handle.shutdown();
    println!("{} MiB", grown >> 20);
    // Entries that wait for their comparison take up to 64 MiB, and their messages as much again.
    assert!(grown < 160 << 20, "{} MiB", grown >> 20);
    peer.ending("without end");
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn scattered_pieces_and_many_files_are_refused() {
    let mut peer = Peer::of_sink(short());
    let data = [1; 1024];
    let mut sent = 0;
    while sent < FLOOD && peer.block(&piece(file(0, b"l", 1 << 50), sent * 2048, &data), &data) {
        sent += 1;
    }
    println!("{sent} scattered pieces");
    assert!(sent < FLOOD);
    assert!(broken(peer, "scattered").contains("under way"));
}

#[test]
fn corrupt_data_never_get_the_name() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, short());
    peer.block(&pack(file(0, b"digest", 4), b"good"), b"evil");
    let mut unsigned = pack(file(1, b"unsigned", 4), b"good");
    let Content::Pack(entries) = &mut unsigned.content else {
        unreachable!()
    };
    entries[0].checksum = None;
    peer.block(&unsigned, b"good");
    let mut other = piece(file(2, b"kind", 100_000), 0, &[1; 65_536]);
    let Content::Piece(piece_of) = &mut other.content else {
        unreachable!()
    };
    piece_of.checksum = Some(Checksum::Xxh3(1));
    peer.block(&other, &[1; 65_536]);
    // Pieces overlap, come twice, and the file is sealed before it is complete.
    let large = || file(3, b"large", 131_072);
    peer.block(&piece(large(), 0, &[1; 65_536]), &[1; 65_536]);
    peer.block(&piece(large(), 0, &[2; 1024]), &[2; 1024]);
    peer.block(&piece(large(), 0, &[1; 65_536]), &[1; 65_536]);
    peer.say(&Message::Sealed {
        file: EntryId(3),
        generation: 0,
        size: 131_072,
        grew: false,
    });
    std::thread::park_timeout(Duration::from_millis(300));
    peer.say(&Message::Goodbye(Farewell::Complete));
    assert!(broken(peer, "wrong").contains("before everything"));
    for name in ["digest", "unsigned", "kind", "large"] {
        assert!(!place.root().join(name).exists(), "{name}");
    }
}

#[test]
fn blocks_that_contradict_themselves_end_the_session() {
    let entry = || file(0, b"a", 1 << 20);
    let good = || piece(entry(), 0, &[1; 65_536]);
    let change = |change: &dyn Fn(&mut longhaul_proto::block::Piece)| {
        let mut header = good();
        let Content::Piece(piece) = &mut header.content else {
            unreachable!()
        };
        change(piece);
        header
    };
    let extent = |start, length| Extent { start, length };
    let mut longer = good();
    longer.decoded = 1 << 40;
    let mut bomb = good();
    (bomb.codec, bomb.decoded) = (Codec::Zstd { level: 1 }, 16 << 20);
    let mut omitted = pack(file(0, b"o", 4), b"none");
    (omitted.codec, omitted.decoded) = (Codec::Omitted, 0);
    let huge = pack(file(0, b"h", u64::MAX), &[1; 65_536]);
    let data = [1; 65_536];
    for (name, header, payload) in [
        ("offset", change(&|p| p.offset = 1000), &data[..]),
        ("beyond", change(&|p| p.offset = 1 << 62), &data),
        ("overflow", change(&|p| p.offset = u64::MAX - 1023), &data),
        ("length", change(&|p| p.length = 1 << 30), &data),
        (
            "extents",
            change(&|p| p.extents = Some(vec![extent(9, 9), extent(3, 65_527)])),
            &data,
        ),
        (
            "extent",
            change(&|p| p.extents = Some(vec![extent(u32::MAX, 65_536)])),
            &data,
        ),
        (
            "many",
            change(&|p| p.extents = Some(vec![extent(0, 1); 9000])),
            &data,
        ),
        ("decoded", longer, &data),
        ("bomb", bomb, &data),
        ("omitted", omitted, &[]),
        ("huge", huge, &data),
    ] {
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        peer.block(&header, payload);
        let text = broken(peer, name);
        println!("{name}: {text}");
        assert!(!text.contains("came back"), "{name}: {text}");
    }
}

#[test]
fn a_decompression_bomb_is_bounded_by_its_announcement() {
    let place = Place::new();
    let mut settings = short();
    settings.codec = Codec::Zstd { level: 1 };
    let mut peer = Peer::of_receiver(&place, settings);
    let bomb = zstd::bulk::compress(&vec![0; 512 << 20], 3).unwrap();
    let before = resident();
    for id in 0..20 {
        let mut header = pack(file(id, format!("{id}").as_bytes(), 60_000), &[0; 60_000]);
        header.codec = Codec::Zstd { level: 1 };
        peer.block(&header, &bomb);
    }
    std::thread::park_timeout(Duration::from_millis(500));
    peer.handle.shutdown();
    broken(peer, "bomb");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB", grown >> 20);
    assert!(!place.root().join("0").exists());
}

/// Data of another codec, truncated or corrupt data, or data of another length than announced must
/// not be written, whatever codec the session named.
#[test]
fn data_that_do_not_decode_to_the_announced_length_are_not_written() {
    const LENGTH: usize = 60_000;
    let text = |length: usize| b"all the same ".repeat(length / 13 + 1)[..length].to_vec();
    let shuffle = Some(Shuffle {
        arrangement: Arrangement::Bits,
        element: ElementSize::Four,
    });
    let mut encoder = Encoder::new().unwrap();
    for codec in [Codec::Zstd { level: 1 }, Codec::Lz4] {
        let mut encoded = |length: usize| {
            let mut room = vec![0; bound(codec, length)];
            let size = encoder.encode(codec, &text(length), &mut room).unwrap();
            room.truncate(size);
            room
        };
        let (good, longer, shorter) = (encoded(LENGTH), encoded(2 * LENGTH), encoded(LENGTH - 1));
        let half = good[..good.len() / 2].to_vec();
        let mut flipped = good.clone();
        flipped.iter_mut().skip(8).for_each(|byte| *byte ^= 0x55);
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        let payloads = [longer, shorter, half, flipped, vec![0xff; 30_000]];
        for (id, payload) in payloads.iter().enumerate() {
            for (way, shuffle) in [None, shuffle].into_iter().enumerate() {
                let name = format!("{id} {way}");
                let entry = file(2 * id as u64 + way as u64, name.as_bytes(), LENGTH as u64);
                let mut header = pack(entry, &text(LENGTH));
                (header.codec, header.shuffle) = (codec, shuffle);
                peer.block(&header, payload);
            }
        }
        // The header claims a shuffle that was not applied.
        let mut header = pack(file(100, b"shuffled", LENGTH as u64), &text(LENGTH));
        (header.codec, header.shuffle) = (codec, shuffle);
        peer.block(&header, &good);
        std::thread::park_timeout(Duration::from_millis(300));
        peer.handle.shutdown();
        broken(peer, "damaged");
        let there = std::fs::read_dir(place.root()).unwrap().flatten();
        let there = there.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
        assert_eq!(there.count(), 0, "{codec:?}");
    }
}

#[test]
fn a_tree_to_be_verified_is_not_written_to() {
    let place = Place::new();
    let mut settings = short();
    settings.operation = Operation::Verify;
    let mut peer = Peer::of_receiver(&place, settings.clone());
    peer.block(&pack(file(0, b"new", 4), b"evil"), b"evil");
    assert!(broken(peer, "data").contains("checksums"));
    std::fs::write(place.root().join("there"), b"four").unwrap();
    let mut peer = Peer::of_receiver(&place, settings);
    let mut huge = pack(file(0, b"there", 1 << 60), b"");
    (huge.codec, huge.decoded) = (Codec::Omitted, 0);
    peer.block(&huge, b"");
    broken(peer, "huge");
    assert!(!place.root().join("new").exists());
}

#[test]
fn messages_of_the_wrong_role_and_invalid_ones_end_the_session() {
    let name = PieceName {
        file: EntryId(0),
        generation: 0,
        offset: 0,
        length: 1,
    };
    let wrong = [
        Message::Answers(vec![(EntryId(0), Answer::Send)]),
        Message::Durable {
            epoch: 1,
            pieces: vec![name],
        },
        Message::Done {
            epoch: 1,
            entries: Vec::new(),
        },
        Message::Finished(Default::default(), Vec::new()),
        Message::Called(Vec::new()),
        Message::Entries(vec![Entry {
            mode: 0o77777,
            ..file(0, b"a", 1)
        }]),
        Message::Entries(vec![Entry {
            parent: Some(EntryId(9)),
            ..file(3, b"a", 1)
        }]),
        Message::DirectoryEnd {
            entry: file(0, b"a", 1),
            children: 0,
        },
    ];
    for message in wrong {
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        peer.say(&message);
        broken(peer, &format!("{message:?}"));
    }
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, short());
    peer.say_raw(vec![0xff; 50]);
    broken(peer, "no message");
    let mut peer = Peer::of_receiver(&place, short());
    peer.frame(FrameKind::Handshake, &1_u64, &[]);
    assert!(broken(peer, "handshake").contains("handshake"));
    let mut peer = Peer::of_receiver(&place, short());
    peer.send(&[b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"]);
    broken(peer, "another protocol");
}

#[test]
fn a_finished_receiver_waits_until_the_sender_knows_it() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, lingering());
    peer.block(&pack(file(0, b"new", 4), b"data"), b"data");
    peer.say(&Message::WalkEnd {
        entries: 1,
        left_out: LeftOut::default(),
        anchor: None,
    });
    while !peer.end.wait_for(Duration::from_secs(1)) {}
    let end = Arc::clone(&peer.end);
    let stays = std::thread::spawn(move || end.wait());
    peer.handle.shutdown();
    while peer.end.measurements().progress().streams > 0 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    std::thread::park_timeout(Duration::from_millis(50));
    peer.come_back(StreamId(1));
    peer.say(&Message::Goodbye(Farewell::Complete));
    let ending = stays.join().unwrap();
    assert_eq!(ending.farewell, Farewell::Complete);
    assert!(ending.totals.is_some_and(|totals| totals.committed == 1));
}

/// The sender moves to another stream and sends no new messages there. The receiver must repeat its
/// messages, because those on the previous stream may never arrive.
#[test]
fn messages_are_repeated_on_the_new_stream_of_the_sender() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, lingering());
    peer.block(&pack(file(0, b"new", 4), b"data"), b"data");
    peer.say(&Message::WalkEnd {
        entries: 1,
        left_out: LeftOut::default(),
        anchor: None,
    });
    while !peer.end.wait_for(Duration::from_secs(1)) {}
    // The last messages take a moment, and so does a stream until it waits for more.
    std::thread::park_timeout(Duration::from_millis(50));
    peer.come_back(StreamId(1));
    std::thread::park_timeout(Duration::from_millis(50));
    // No messages have come yet, unless this host was too busy for the last ones.
    let before = peer.heard.load(Ordering::Relaxed);
    assert!(peer.say(&Message::SetFlows(Flows::default())));
    let until = Instant::now() + PATIENCE;
    while peer.heard.load(Ordering::Relaxed) == before {
        assert!(Instant::now() < until, "nothing is said again");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn requested_calls_are_reported_within_bounds() {
    let call = Call::new(&"192.0.2.1:1", CallLook::Reset, "refused");
    let long = Call {
        cause: "x".repeat(MAXIMUM_CAUSE_BYTES + 1),
        ..call.clone()
    };
    for (told, taken) in [
        (vec![call.clone(); MAXIMUM_CALLS], true),
        (vec![call; MAXIMUM_CALLS + 1], false),
        (vec![long], false),
    ] {
        let place = Place::new();
        let mut peer = Peer::of_receiver(&place, short());
        assert_eq!(
            peer.end.streams().ask_calls(Duration::ZERO),
            None,
            "nobody waits"
        );
        peer.say(&Message::Called(told));
        peer.say(&Message::Goodbye(Farewell::Cancelled));
        let farewell = peer.ending("calls").farewell;
        assert_eq!(farewell == Farewell::Cancelled, taken, "{farewell:?}");
    }
}

#[test]
fn a_number_joins_once_and_a_flood_of_flows_is_bounded() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, short());
    let (_ours, theirs) = local_pair().unwrap();
    assert!(!peer.end.streams().attach(theirs, StreamId(0), false, 0));
    let (_ours, theirs) = local_pair().unwrap();
    assert!(
        !peer.end.streams().attach(theirs, StreamId(1), false, 99),
        "messages never said"
    );
    let most = Some(u32::MAX);
    peer.say(&Message::SetFlows(Flows {
        readers: most,
        compressors: most,
        streams: most,
        decompressors: most,
        writers: most,
        committers: most,
    }));
    std::thread::park_timeout(Duration::from_millis(300));
    peer.say(&Message::Goodbye(Farewell::Cancelled));
    assert_eq!(peer.ending("flows").farewell, Farewell::Cancelled);
}

/// An attacker on the network path can send any bytes on a clear stream.
// Promise 36.
#[test]
fn invalid_data_in_clear_close_only_their_stream() {
    let place = Place::new();
    let mut peer = Peer::of_receiver(&place, short());
    let (mut ours, theirs) = local_pair().unwrap();
    assert!(peer.end.streams().attach(theirs, StreamId(1), true, 0));
    let goodbye = |number| Numbered {
        number,
        received: 0,
        message: Some(minicbor::to_vec(Message::Goodbye(Farewell::Fenced)).unwrap()),
    };
    for number in [1, 7] {
        let said = frame::encode(FrameKind::Control, &goodbye(number), 0).unwrap();
        // The second message meets a stream that is already closed.
        let _ = ours.writer.write_all(&[&said]);
    }
    // A stream that is closed with unread data is reset.
    while matches!(ours.reader.read(&mut [0; 4096]), Ok(1..)) {}
    // A handshake or a false claim of a joining stream must not end the session either.
    let (mut ours, theirs) = local_pair().unwrap();
    assert!(peer.end.streams().attach(theirs, StreamId(2), true, 99));
    let said = frame::encode(FrameKind::Handshake, &goodbye(1), 0).unwrap();
    let _ = ours.writer.write_all(&[&said]);
    while matches!(ours.reader.read(&mut [0; 4096]), Ok(1..)) {}
    assert!(!peer.end.is_over());
    peer.say(&Message::Goodbye(Farewell::Cancelled));
    assert_eq!(peer.ending("in clear").farewell, Farewell::Cancelled);
}

/// Each stream costs two threads and a descriptor, so even an authenticated peer is limited.
#[test]
fn a_session_takes_no_more_streams_than_it_may_have() {
    let place = Place::new();
    let peer = Peer::of_receiver(&place, short());
    let mut ours = Vec::new();
    let mut joined = 0;
    for number in 1..2000 {
        let (near, far) = local_pair().unwrap();
        ours.push(near);
        if !peer.end.streams().attach(far, StreamId(number), false, 0) {
            break;
        }
        joined += 1;
    }
    assert!((512..600).contains(&joined), "{joined}");
    assert!(!peer.end.is_over());
    drop(ours);
    peer.end.end(Farewell::Cancelled);
}
