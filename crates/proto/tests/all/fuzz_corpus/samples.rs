//! Valid samples of the messages of both ends.

use longhaul_proto::allowed::Allowed;
use longhaul_proto::block::{
    BlockHeader, Codec, Content, ContentName, Extent, PackedEntry, Piece, PieceName,
};
use longhaul_proto::calls::{Call, CallLook};
use longhaul_proto::coding::{CodecUse, Kind};
use longhaul_proto::control::Numbered;
use longhaul_proto::digest::Checksum;
use longhaul_proto::filter::LeftOut;
use longhaul_proto::frame::{self, FrameKind};
use longhaul_proto::handshake::{
    self, Capability, ControlRequest, Credential, Hello, Join, Joined, PROTOCOL_VERSION, Purpose,
    Refusal, Refused, Request, RequestPath, Role, Secret, SessionId, Target, Task, Vouch, Vouched,
};
use longhaul_proto::listing::{Details, ListRequest, Listed, ListedEntry, ListedKind};
use longhaul_proto::manifest::{
    Attributes, Entry, EntryId, EntryKind, Ownership, SourceIdentity, Timestamp, TreePath,
};
use longhaul_proto::message::{
    AgainReason, Answer, Failure, FailureKind, Farewell, Flows, Message, Observation, Outcome,
    StreamObservation, Totals, Tuning,
};
use longhaul_proto::notice::{Notice, NoticeKind};
use longhaul_proto::options::{Selection, Stack, TransferOptions};

const BLAKE3: Checksum = Checksum::Blake3([3; 32]);

fn entry(id: u64, kind: EntryKind) -> Entry {
    Entry {
        id: EntryId(id),
        parent: id.checked_sub(1).map(EntryId),
        path: TreePath::new(b"data/run 1").unwrap(),
        kind,
        mode: 0o644,
        modified: Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 5,
        },
        owner: Some(Box::new(Attributes::of(Ownership { user: 1, group: 2 }))),
    }
}

fn file(id: u64, size: u64) -> Entry {
    let identity = SourceIdentity {
        inode: 9,
        size,
        ..SourceIdentity::default()
    };
    let sparse = false;
    entry(id, EntryKind::File { identity, sparse })
}

fn link(id: u64) -> Entry {
    let target = b"../elsewhere".to_vec();
    entry(id, EntryKind::Symlink { target })
}

fn piece_name() -> PieceName {
    PieceName {
        file: EntryId(1),
        generation: 0,
        offset: 1 << 20,
        length: 1 << 20,
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Permission, "a: permission denied")
}

pub fn messages() -> Vec<Message> {
    let mut all = from_sender();
    all.extend(from_receiver());
    all.extend(from_either());
    all
}

fn from_sender() -> Vec<Message> {
    vec![
        Message::Entries(vec![entry(0, EntryKind::Directory), file(1, 5), link(2)]),
        Message::DirectoryEnd {
            entry: entry(0, EntryKind::Directory),
            children: 2,
        },
        Message::WalkEnd {
            entries: 3,
            left_out: LeftOut::default(),
            anchor: None,
        },
        Message::Sealed {
            file: EntryId(1),
            generation: 0,
            size: 5,
            grew: false,
        },
        Message::Abandoned {
            id: EntryId(2),
            parent: Some(EntryId(0)),
            failure: failure(),
        },
        Message::Checksums {
            content: ContentName::Piece(piece_name()),
            checksums: vec![Some(BLAKE3)],
        },
    ]
}

fn from_receiver() -> Vec<Message> {
    vec![
        Message::Answers(vec![
            (EntryId(0), Answer::Send),
            (
                EntryId(1),
                Answer::Skip {
                    digest: None,
                    mended: true,
                },
            ),
            (EntryId(2), Answer::Resume(vec![(0, 1 << 20)])),
            (EntryId(3), Answer::Refuse(failure())),
        ]),
        Message::Durable {
            epoch: 1,
            pieces: vec![piece_name()],
        },
        Message::Done {
            epoch: 1,
            entries: vec![
                (EntryId(1), Outcome::Committed { digest: None }),
                (EntryId(2), Outcome::Failed(failure())),
                (EntryId(3), Outcome::Mended),
            ],
        },
        Message::Again {
            content: ContentName::Pack(vec![EntryId(1)]),
            reason: AgainReason::Corrupt,
        },
        Message::Arrived {
            streams: vec![(0, 7)],
            room: true,
        },
        Message::Finished(
            Totals::default(),
            vec![Notice::new(NoticeKind::TimeLimited, "a/b", "it is 2038")],
        ),
    ]
}

fn from_either() -> Vec<Message> {
    vec![
        Message::Observed(Observation {
            at: 5,
            streams: vec![StreamObservation {
                sent: Some(1000),
                duplicates: Some(1),
                retransmitted_bytes: Some(2896),
                lost: 1,
                ..StreamObservation::default()
            }],
            layers: vec![(1, 2, 0.5)],
            cpu: 9,
            cores: 2,
            remaining: Some(7),
            congestion: "cubic".into(),
            congestions: vec!["reno".into(), "bbr".into()],
            send_buffer: Some(1 << 22),
            receive_buffer: None,
            idle: Some(1.5),
            codecs: vec![CodecUse {
                kind: Some(Kind::Numbers8),
                codec: Codec::Zstd { level: 3 },
                shuffled: true,
                bytes: 1000,
                encoded: 300,
                nanoseconds: 5000,
            }],
            ..Observation::default()
        }),
        Message::Tune(Tuning {
            congestion: Some("bbr".into()),
            pace: None,
            unsent: Some(1 << 20),
            limit: Some(1_000_000),
        }),
        Message::SetFlows(Flows {
            streams: Some(4),
            ..Flows::default()
        }),
        Message::WantTickets(2),
        Message::WantCalls {
            count: 3,
            told: true,
        },
        Message::Called(vec![Call::new(
            &"192.0.2.7:50000",
            CallLook::Reset,
            "Connection refused",
        )]),
        Message::Tickets(vec![Secret([1; 32])]),
        Message::Goodbye(Farewell::Broken("no room".into())),
        Message::Goodbye(Farewell::Restarting),
    ]
}

fn block(content: Content, codec: Codec, decoded: u64) -> BlockHeader {
    BlockHeader {
        content,
        codec,
        decoded,
        transit: None,
        proof: None,
        trailer: None,
        shuffle: None,
    }
}

fn piece(extents: Option<Vec<Extent>>) -> Content {
    Content::Piece(Piece {
        entry: file(1, 3 << 20),
        generation: 0,
        offset: 1 << 20,
        length: 1 << 20,
        extents,
        checksum: Some(BLAKE3),
    })
}

pub fn blocks() -> Vec<BlockHeader> {
    let extents = [(0, 4096), (8192, 4096)].map(|(start, length)| Extent { start, length });
    let packed = |entry, checksum| PackedEntry {
        entry,
        generation: 0,
        checksum,
    };
    let pack = Content::Pack(vec![
        packed(file(1, 5), Some(BLAKE3)),
        packed(file(2, 0), Some(BLAKE3)),
        packed(link(3), None),
    ]);
    vec![
        block(piece(None), Codec::Plain, 1 << 20),
        block(piece(None), Codec::Zstd { level: 3 }, 1 << 20),
        block(piece(Some(extents.to_vec())), Codec::Lz4, 8192),
        block(piece(None), Codec::Omitted, 0),
        BlockHeader {
            transit: Some(7),
            ..block(pack, Codec::Plain, 5)
        },
    ]
}

fn request() -> Request {
    let options = TransferOptions {
        selection: Selection {
            recursive: true,
            copy_links: true,
            keep_set_ids: true,
        },
        ..TransferOptions::default()
    };
    Request {
        credential: Some(Credential {
            principal: "alice".into(),
            token: Some("lht_x".into()),
        }),
        source: [5; 32],
        anywhere: Some([3; 32].into()),
        names: Some(vec![b"data".to_vec().into()]),
        large_files: 64,
        limit: Some(1_000_000),
        stack: Stack::Paired,
        wants_host: true,
        waited_milliseconds: 2500,
        ..Request::new(
            Role::Sender,
            vec![RequestPath::Path(b"/data/".to_vec())],
            options,
        )
    }
}

fn hellos() -> Vec<Hello> {
    let join = Join {
        session: SessionId([4; 16]),
        secret: Secret([1; 32]),
        stream: 3,
        received: 8,
    };
    let hello = |purpose| Hello {
        version: PROTOCOL_VERSION,
        software: "longhaul 0.1.0".into(),
        capabilities: Capability::ALL.to_vec(),
        purpose,
    };
    let control_request = |what| {
        hello(Purpose::ControlRequest(ControlRequest {
            credential: None,
            what,
        }))
    };
    vec![
        hello(Purpose::Open(Box::new(request()))),
        hello(Purpose::Join(join)),
        hello(Purpose::List(ListRequest {
            credential: None,
            path: b"/data".to_vec(),
            recursive: true,
            details: true,
        })),
        hello(Purpose::Vouch(Vouch {
            credential: None,
            key: [5; 32],
            allowed: Some(Allowed {
                role: Role::Sender,
                options: Box::new(TransferOptions::default()),
                paths: vec![RequestPath::Path(b"/data".to_vec())],
                sources: vec![RequestPath::Path(b"run*".to_vec())],
            }),
        })),
        control_request(Task::Drive),
        control_request(Task::Attach("0a1b2c3d".into())),
        control_request(Task::Jobs),
        control_request(Task::Reach(Target {
            host: "dtn9.example.org".into(),
            port: 4960,
            key: [6; 32],
        })),
        control_request(Task::DriveThrough),
        control_request(Task::Channel("0a1b2c3d4e5f60718293a4b5c6d7e8f9".into())),
    ]
}

fn answers() -> Vec<handshake::Answer> {
    vec![
        handshake::Answer::Joined(Joined { received: 8 }),
        handshake::Answer::Vouched(Vouched { seconds: 300 }),
        handshake::Answer::Begun,
        handshake::Answer::Refused(Refused {
            refusal: Refusal::Credential,
            text: "no".into(),
            superseded: false,
        }),
        handshake::Answer::Listed(Listed::Entries(vec![ListedEntry {
            path: TreePath::new(b"data/link").unwrap(),
            kind: ListedKind::Symlink,
            details: Some(Details {
                mode: 0o777,
                size: 4,
                modified: Timestamp::default(),
                target: Some(b"../x".to_vec().into()),
            }),
        }])),
        handshake::Answer::Listed(Listed::Failed(failure())),
        handshake::Answer::Listed(Listed::End),
    ]
}

/// Returns frames as they are on the wire, and as the target builds them: kind, payload length,
/// body.
pub fn frames() -> Vec<Vec<u8>> {
    let handshakes = hellos()
        .into_iter()
        .map(|hello| frame::encode(FrameKind::Handshake, &hello, 0))
        .chain(
            answers()
                .into_iter()
                .map(|answer| frame::encode(FrameKind::Handshake, &answer, 0)),
        );
    let mut whole: Vec<Vec<u8>> = handshakes.map(Result::unwrap).collect();
    for message in messages().into_iter().step_by(5) {
        let numbered = Numbered {
            number: 1,
            received: 2,
            message: minicbor::to_vec(&message).ok(),
        };
        whole.push(frame::encode(FrameKind::Control, &numbered, 0).unwrap());
    }
    for block in blocks() {
        whole.push(frame::encode(FrameKind::Block, &block, 8192).unwrap());
    }
    let built: Vec<Vec<u8>> = whole
        .iter()
        .map(|frame| [&[frame[0] - 1, 0][..], &frame[frame::HEADER_BYTES..]].concat())
        .collect();
    whole.extend(built);
    whole
}
