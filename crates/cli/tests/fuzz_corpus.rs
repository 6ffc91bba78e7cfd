//! The corpora of the fuzz targets, through what the targets do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../src/sockets/answers.rs"]
#[allow(dead_code)]
mod answers;
#[path = "../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../src/endpoint.rs"]
#[allow(dead_code)]
mod endpoint;
#[path = "../../../fuzz/src/facts.rs"]
mod facts;
#[path = "../src/ssh/greeting.rs"]
#[allow(dead_code)]
mod greeting;
#[path = "../../../fuzz/src/greetings.rs"]
mod greetings;
#[path = "../src/doctor/host.rs"]
#[allow(dead_code)]
mod host;
#[path = "../../../fuzz/src/sockets.rs"]
mod sockets;
#[path = "../src/between/speech.rs"]
#[allow(dead_code)]
mod speech;
#[path = "../../../fuzz/src/speeches.rs"]
mod speeches;
#[path = "../../../fuzz/src/urls.rs"]
mod urls;

#[test]
fn corpora_are_replayed() {
    corpus::replay("endpoint", urls::endpoint);
    corpus::replay("greeting", greetings::greeting);
    corpus::replay("host_facts", facts::host_facts);
    corpus::replay("job_speech", speeches::job_speech);
    corpus::replay("sock_diag", sockets::sock_diag);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (name, url) in [
        (
            "daemon",
            "longhaul://alice@dtn.example.org:7000/data/run 1/",
        ),
        ("address", "longhaul://[::1]:8000/null:"),
        ("zero", "zero:1GiB"),
        ("null", "null:"),
        ("standard", "-"),
        ("local", "a/b:c"),
        ("ssh", "host:path"),
        ("ssh_v6", "u@[2001:db8::7]:~/data/"),
    ] {
        corpus::save("endpoint", name, url.as_bytes());
    }
    for (name, line) in [
        (
            "remote",
            "longhaul-remote/1 software=0.1.0 protocol=1 key=sha256:k port=50000 \
             addresses=192.0.2.7,::1 mortal=1",
        ),
        (
            "client",
            "longhaul-client/1 software=0.1.0 protocol=1 key=k later=1",
        ),
        ("absent", "longhaul-absent/1 Linux x86_64"),
        ("profile", "Welcome to dtn7!"),
    ] {
        corpus::save("greeting", name, line.as_bytes());
    }
    for (name, lines) in [
        ("clock", "longhaul-fact/1 clock 1795276800.25\n"),
        ("old_date", "longhaul-fact/1 clock 1795276800.N\n"),
        (
            "room",
            "longhaul-fact/1 space /dev/my disk 1000 400 600 40% /srv/my data\nlonghaul-fact/1 \
             inodes tank - - - - /tank\n",
        ),
        (
            "kernel",
            "Welcome!\nlonghaul-fact/1 net.ipv4.tcp_wmem 4096 16384 4194304\nlonghaul-fact/1 \
             open_files unlimited\nlonghaul-fact/1 writable no\n",
        ),
    ] {
        corpus::save("host_facts", name, lines.as_bytes());
    }
    save_speeches();
    for (name, bytes) in kernel_answers() {
        corpus::save("sock_diag", name, &bytes);
    }
}

/// As a little-endian kernel of Linux 6 gives them, made by hand: a socket of each
/// family, the end, a refusal.
fn kernel_answers() -> [(&'static str, Vec<u8>); 4] {
    let message = |kind: u8, content: &[u8]| {
        let length = u32::try_from(16 + content.len()).unwrap();
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend([kind, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(content);
        bytes
    };
    let socket = |family: u8| {
        let mut content = vec![0; 72];
        content[..2].copy_from_slice(&[family, 1]);
        content[4..8].copy_from_slice(&[0x4e, 0x20, 0x13, 0x60]);
        content[24..40].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        content[44] = 9;
        // INET_DIAG_CONG, then INET_DIAG_INFO.
        content.extend([10, 0, 4, 0]);
        content.extend(b"cubic\0\0\0");
        content.extend([244, 0, 2, 0]);
        content.extend((0..240).map(|at| u8::from(at % 4 == 0)));
        message(20, &content)
    };
    let mut both = socket(2);
    both.extend(socket(10));
    let mut last = socket(10);
    last.extend(message(3, &[0; 4]));
    [
        ("both_families", both),
        ("last", last),
        ("done", message(3, &[0; 4])),
        ("refused", message(2, &(-1_i32).to_le_bytes())),
    ]
}

fn save_speeches() {
    use speech::{Begin, Channel, Follow, Listed, Order, Reach, ShownProgress, State, Told};
    let listed = Listed {
        name: "0a1b2c3d".into(),
        host: "dtn7".into(),
        from: "dtn7:run".into(),
        to: "dtn9:".into(),
        began: 1_790_000_000,
        state: State::Ended(2),
        compares: true,
    };
    for (name, told) in [
        ("named", Told::Named("0a1b2c3d".into())),
        ("running", Told::Running),
        (
            "said",
            Told::Said(
                Channel::Errors,
                7,
                b"why
"
                .to_vec(),
            ),
        ),
        ("progress", Told::Progress("half".into())),
        ("ended", Told::Ended(130)),
        ("listed", Told::Listed(listed)),
        ("failed", Told::Failed("no answer".into(), None)),
        ("refused", Told::Failed("no daemon".into(), Some(4))),
        ("absent", Told::Absent),
    ] {
        corpus::save("job_speech", name, &speech::frame_of(&told).unwrap());
        let body = minicbor::to_vec(&told).unwrap();
        corpus::save("job_speech", &format!("{name}-body"), &body);
    }
    let begin = Begin {
        words: vec![b"cp".to_vec().into(), b"--".to_vec().into()],
        from: "a:x".into(),
        to: "b:y".into(),
        reach: Reach::Through,
        host: "a".into(),
        manifest: Some("data.b3".into()),
    };
    let sealed = Begin {
        reach: Reach::Sealed,
        manifest: None,
        ..begin.clone()
    };
    let follow = Follow {
        output: 1,
        errors: 2,
        progress: ShownProgress::Json,
        manifest: true,
    };
    for (name, order) in [
        ("begin", Order::Begin(begin)),
        ("begin_sealed", Order::Begin(sealed)),
        ("follow", Order::Follow(follow)),
        ("cancel", Order::Cancel),
        ("limit", Order::Limit(50_000_000)),
    ] {
        corpus::save("job_speech", name, &speech::frame_of(&order).unwrap());
        let body = minicbor::to_vec(&order).unwrap();
        corpus::save("job_speech", &format!("{name}-body"), &body);
    }
}
