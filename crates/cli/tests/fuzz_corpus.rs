//! The corpora of the fuzz targets, through what the targets do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

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
        ("failed", Told::Failed("no answer".into())),
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
    let follow = Follow {
        output: 1,
        errors: 2,
        progress: ShownProgress::Json,
        manifest: true,
    };
    for (name, order) in [
        ("begin", Order::Begin(begin)),
        ("follow", Order::Follow(follow)),
        ("cancel", Order::Cancel),
        ("limit", Order::Limit(50_000_000)),
    ] {
        corpus::save("job_speech", name, &speech::frame_of(&order).unwrap());
        let body = minicbor::to_vec(&order).unwrap();
        corpus::save("job_speech", &format!("{name}-body"), &body);
    }
}
