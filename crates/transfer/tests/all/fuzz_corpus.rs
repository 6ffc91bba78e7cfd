//! Runs the corpora of the fuzz targets through the targets' checks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../fuzz/src/greetings.rs"]
mod greetings;
#[path = "../../../../fuzz/src/specs.rs"]
mod specs;
#[path = "../../../../fuzz/src/speeches.rs"]
mod speeches;
#[path = "../../../../fuzz/src/urls.rs"]
mod urls;

use longhaul_transfer::between_hosts::job_protocol;

#[test]
fn corpora_are_replayed() {
    corpus::replay("endpoint", urls::endpoint);
    corpus::replay("greeting", greetings::greeting);
    corpus::replay("job_speech", speeches::job_speech);
    corpus::replay("transfer_spec", specs::transfer_spec);
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
        ("ftp", "gsiftp://user@host:2811/a%20b/"),
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
    save_speeches();
}

// tidy: long because each message has a sample.
fn save_speeches() {
    use job_protocol::{
        Begin, Channel, Follow, JobEvent, Listed, Order, Reach, Shown, ShownProgress, State,
    };
    let listed = Listed {
        name: "0a1b2c3d".into(),
        host: "dtn7".into(),
        from: "dtn7:run".into(),
        to: "dtn9:".into(),
        began: 1_790_000_000,
        state: State::Ended(2),
        compares: true,
        done_bytes: Some(1 << 30),
        bwlimit_bytes_per_second: None,
    };
    for (name, told) in [
        ("named", JobEvent::Named("0a1b2c3d".into())),
        ("running", JobEvent::Running),
        (
            "said",
            JobEvent::Output(
                Channel::Errors,
                7,
                b"why
"
                .to_vec(),
            ),
        ),
        ("progress", JobEvent::Progress("half".into())),
        ("ended", JobEvent::Ended(130)),
        ("listed", JobEvent::Listed(listed)),
        ("failed", JobEvent::Failed("no answer".into(), None)),
        ("refused", JobEvent::Failed("no daemon".into(), Some(4))),
        ("absent", JobEvent::Absent),
        ("alive", JobEvent::Alive),
    ] {
        corpus::save("job_speech", name, &job_protocol::frame_of(&told).unwrap());
        let body = minicbor::to_vec(&told).unwrap();
        corpus::save("job_speech", &format!("{name}-body"), &body);
    }
    let begin = Begin {
        spec: r#"{"version":1,"sources":["x"],"destination":"b:y"}"#.into(),
        from: "a:x".into(),
        to: "b:y".into(),
        reach: Reach::Through,
        host: "a".into(),
        manifest: Some("data.b3".into()),
        shown: Shown::default(),
        compares: false,
        report: None,
        log: None,
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
        alive_seconds: 15,
    };
    for (name, order) in [
        ("begin", Order::Begin(begin)),
        ("begin_sealed", Order::Begin(sealed)),
        ("follow", Order::Follow(follow)),
        ("cancel", Order::Cancel),
        ("limit", Order::Limit(50_000_000)),
    ] {
        corpus::save("job_speech", name, &job_protocol::frame_of(&order).unwrap());
        let body = minicbor::to_vec(&order).unwrap();
        corpus::save("job_speech", &format!("{name}-body"), &body);
    }
}
