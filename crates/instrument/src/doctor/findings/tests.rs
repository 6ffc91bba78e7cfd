use super::ports::Opening;
use super::rights::Right;
use super::*;
use std::net::SocketAddr;

mod remedies;

fn host_facts(lines: &[&str]) -> HostFacts {
    let mut facts = HostFacts::default();
    for line in lines {
        facts.add_line(&format!("longhaul-fact/1 {line}"));
    }
    facts
}

const SOUND: [&str; 12] = [
    "path /srv/data",
    "space /dev/sda1 1000000000 400000000 600000000 40% /",
    "inodes /dev/sda1 1000000 400000 600000 40% /",
    "file_system ext2/ext3",
    "writable yes",
    "readable yes",
    "net.ipv4.tcp_wmem 4096 16384 67108864",
    "net.ipv4.tcp_rmem 4096 131072 67108864",
    "net.ipv4.tcp_congestion_control cubic",
    "net.ipv4.tcp_available_congestion_control reno cubic bbr",
    "net.ipv4.tcp_window_scaling 1",
    "open_files 65536",
];

fn sound() -> HostFacts {
    host_facts(&SOUND)
}

/// Returns the facts of a sound host, with some lines replaced.
fn but(lines: &[&str]) -> HostFacts {
    let mut facts = sound();
    for line in lines {
        facts.add_line(&format!("longhaul-fact/1 {line}"));
    }
    facts
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 50_000))
}

fn measured() -> Measured {
    Measured {
        direction: "to",
        bytes_per_second: 110e6,
        streams: 4,
        most_streams: 4,
        one_stream: Some(30e6),
        loss: 0.0,
        segment: 1448,
        rtt: (Duration::from_millis(100), Duration::from_millis(101)),
        congestion: "cubic".into(),
        advice: Vec::new(),
    }
}

/// Returns facts of a remote host without any problem.
fn facts() -> Facts {
    Facts {
        reached: Some(Ok("ssh logs in".into())),
        software: Some(Ok(Software::Same)),
        here: Ok(sound()),
        far: Some(Ok(sound())),
        outward: Some(Ok(vec![Tried {
            address: address(7),
            opening: Opening::Open,
        }])),
        inward: Some(Ok(Inward {
            tried: vec![Tried {
                address: address(1),
                opening: Opening::Open,
            }],
            own: vec![address(1).ip()],
            seen: Some(address(1).ip()),
        })),
        mortal: false,
        rights: None,
        clock: Some(Ok(Lead {
            ahead: 0.2,
            uncertainty: 0.1,
        })),
        options: Some(Ok(Options {
            scaling: true,
            path_mtu: 1500,
        })),
        measured: vec![Ok(measured())],
    }
}

fn of<'a>(found: &'a [Finding], topic: &str) -> Vec<&'a Finding> {
    found
        .iter()
        .filter(|finding| finding.topic == topic)
        .collect()
}

/// Returns the only finding of a topic that is not good.
fn flaw(facts: &Facts, topic: &str) -> Finding {
    let found = findings(facts);
    let mut flaws = of(&found, topic).into_iter();
    let mut flaws = flaws
        .by_ref()
        .filter(|finding| finding.weight() != Weight::Good);
    let flaw = flaws.next().unwrap_or_else(|| panic!("{topic}: {found:?}"));
    assert_eq!(flaws.next(), None);
    flaw.clone()
}

#[test]
fn a_sound_host_has_no_flaw() {
    let found = findings(&facts());
    let flaws: Vec<_> = found
        .iter()
        .filter(|one| one.weight() != Weight::Good)
        .collect();
    assert!(flaws.is_empty(), "{flaws:?}");
    for topic in [
        "login",
        "longhaul",
        "ports outward",
        "ports inward",
        "clock",
        "window scaling",
        "mtu",
        "path",
        "space",
        "inodes",
        "file system",
        "rights",
        "kernel",
        "congestion control",
    ] {
        assert!(!of(&found, topic).is_empty(), "{topic} is missing");
    }
}

#[test]
fn unknown_facts_give_no_good_finding() {
    let why = || "no answer".to_owned();
    let unknown = Facts {
        reached: Some(Ok("ssh logs in".into())),
        software: Some(Err(why())),
        here: Err(why()),
        far: Some(Err(why())),
        outward: Some(Err(why())),
        inward: Some(Err(why())),
        mortal: false,
        rights: Some(Err(why())),
        clock: Some(Err(why())),
        options: Some(Err(why())),
        measured: vec![Err(why())],
    };
    let found = findings(&unknown);
    let others = found.iter().filter(|finding| finding.topic != "login");
    for finding in others {
        assert_eq!(finding.weight(), Weight::NotChecked, "{finding:?}");
        assert!(finding.text.contains("no answer"), "{finding:?}");
    }
    // A host whose shell reports no facts.
    let silent = Facts {
        far: Some(Ok(HostFacts::default())),
        ..facts()
    };
    let found = findings(&silent);
    let of_far = found
        .iter()
        .filter(|one| one.text.contains("the remote host: "));
    for finding in of_far {
        assert_eq!(finding.weight(), Weight::NotChecked, "{finding:?}");
    }
}

#[test]
fn a_blocked_port_is_reported_with_its_symptom() {
    let blocked = |opening| Facts {
        outward: Some(Ok(vec![Tried {
            address: address(7),
            opening,
        }])),
        ..facts()
    };
    for (opening, text) in [
        (
            Opening::Reset("Connection refused".into()),
            "refuses the connection (Connection refused)",
        ),
        (Opening::Silent(Duration::from_secs(3)), "is silent (3 s)"),
        (Opening::Unreachable("No route".into()), "no way leads"),
        (
            Opening::WrongHost("another key".into()),
            "another host answers",
        ),
        (Opening::Stalled("handshake".into()), "stalls"),
    ] {
        let flaw = flaw(&blocked(opening), "ports outward");
        assert_eq!(flaw.weight(), Weight::Problem);
        assert!(
            flaw.text.contains(text) && flaw.text.contains("192.0.2.7:50000"),
            "{flaw:?}"
        );
        assert!(flaw.remedy().is_some());
    }
    // One of two addresses does not answer: this is reported without a remedy.
    let two = Facts {
        outward: Some(Ok(vec![
            Tried {
                address: address(8),
                opening: Opening::Silent(Duration::from_secs(3)),
            },
            Tried {
                address: address(7),
                opening: Opening::Open,
            },
        ])),
        ..facts()
    };
    let found = findings(&two);
    let told = of(&found, "ports outward");
    assert!(
        told.iter().all(|one| one.weight() == Weight::Good),
        "{told:?}"
    );
    assert!(
        told[0]
            .text
            .ends_with("is silent (3 s); another address is open"),
        "{told:?}"
    );
}

#[test]
fn results_of_the_remote_end_are_reported_with_their_symptom() {
    let from_there = |opening| {
        let inward = Inward {
            tried: vec![Tried {
                address: address(1),
                opening,
            }],
            own: vec![address(1).ip()],
            seen: Some(address(1).ip()),
        };
        let facts = Facts {
            inward: Some(Ok(inward)),
            ..facts()
        };
        flaw(&facts, "ports inward").text
    };
    let cause = || "why".to_owned();
    for (opening, says) in [
        (
            Opening::Reset(cause()),
            "refuses the remote host's connection (why)",
        ),
        (
            Opening::Silent(Duration::from_secs(3)),
            "silent to the remote host (3 s)",
        ),
        (
            Opening::Unreachable(cause()),
            "no way leads from the remote host",
        ),
        (Opening::WrongHost(cause()), "another host answers"),
        (Opening::Stalled(cause()), "stalls"),
    ] {
        let text = from_there(opening);
        assert!(
            text.contains(says) && text.contains("192.0.2.1:50000"),
            "{text}"
        );
        assert!(!text.contains("NAT"), "{text}");
    }
}

#[test]
fn an_address_of_nat_is_recognised() {
    let closed = Inward {
        tried: [1, 99]
            .map(|last| Tried {
                address: address(last),
                opening: Opening::Silent(Duration::from_secs(3)),
            })
            .to_vec(),
        own: vec![address(1).ip()],
        seen: Some(address(99).ip()),
    };
    let facts = Facts {
        inward: Some(Ok(closed)),
        ..facts()
    };
    let found = findings(&facts);
    let told = of(&found, "ports inward");
    assert!(!told[0].text.contains("NAT"), "{told:?}");
    assert!(told[1].text.contains("192.0.2.99") && told[1].text.contains("NAT"));
    assert!(told[1].remedy().unwrap().contains("forward a range"));
}

#[test]
fn missing_and_other_releases_have_a_remedy() {
    for software in [Software::Absent, Software::Other("longhaul 0.0.9".into())] {
        let facts = Facts {
            software: Some(Ok(software)),
            ..facts()
        };
        let flaw = flaw(&facts, "longhaul");
        assert!(flaw.remedy().unwrap().contains("--install-remote"));
    }
}

#[test]
fn a_binary_that_does_not_run_is_a_problem() {
    let broken = Facts {
        software: Some(Ok(Software::Broken("exit 127".into()))),
        ..facts()
    };
    let flaw = flaw(&broken, "longhaul");
    assert!(flaw.text.contains("exit 127"), "{flaw:?}");
    assert_eq!(flaw.weight(), Weight::Problem);
}

#[test]
fn a_wrong_clock_is_distinguished_from_an_uncertain_one() {
    let at = |ahead, uncertainty| Facts {
        clock: Some(Ok(Lead { ahead, uncertainty })),
        ..facts()
    };
    assert!(flaw(&at(-3600.0, 0.2), "clock").text.contains("behind"));
    let found = findings(&at(3.0, 5.0));
    assert_eq!(of(&found, "clock")[0].weight(), Weight::Good);
}

#[test]
fn window_scaling_is_forbidden_by_a_host_or_stripped_between() {
    let forbids = || but(&["net.ipv4.tcp_window_scaling 0"]);
    let stripped = Some(Ok(Options {
        scaling: false,
        path_mtu: 1500,
    }));
    for (here, far, text) in [
        (sound(), sound(), "something between strips"),
        (forbids(), sound(), "this host forbids"),
        (sound(), forbids(), "the remote host forbids"),
    ] {
        let facts = Facts {
            here: Ok(here),
            far: Some(Ok(far)),
            options: stripped.clone(),
            ..facts()
        };
        let flaw = flaw(&facts, "window scaling");
        assert!(flaw.text.contains(text), "{flaw:?}");
    }
}

#[test]
fn loss_without_a_queue_or_gain_of_streams_suggests_a_policer() {
    // One stream carried as much as four.
    let policed = Measured {
        loss: 0.02,
        streams: 1,
        one_stream: Some(100e6),
        ..measured()
    };
    let facts_of = |measured: Measured| Facts {
        measured: vec![Ok(measured)],
        ..facts()
    };
    let found = flaw(&facts_of(policed.clone()), "policer");
    assert!(
        found.text.contains("4 streams carried no more"),
        "{}",
        found.text
    );
    assert!(found.remedy().unwrap().contains("--bwlimit"));
    for innocent in [
        Measured {
            loss: 0.0,
            ..policed.clone()
        },
        // Random loss: more streams carry more.
        Measured {
            one_stream: Some(30e6),
            ..policed.clone()
        },
        // A full queue.
        Measured {
            rtt: (Duration::from_millis(100), Duration::from_millis(180)),
            ..policed.clone()
        },
        // The rate of one stream is unknown.
        Measured {
            one_stream: None,
            ..policed
        },
    ] {
        assert!(of(&findings(&facts_of(innocent)), "policer").is_empty());
    }
}

#[test]
fn full_disks_file_systems_and_limits_are_reported() {
    let with = |line: &str| Facts {
        far: Some(Ok(but(&[line]))),
        ..facts()
    };
    for (line, topic, text) in [
        (
            "space /dev/a 1000000000 999999000 1000 100% /",
            "space",
            "1.02 MB of",
        ),
        (
            "inodes /dev/a 1000000 1000000 0 100% /",
            "inodes",
            "0 of 1000000",
        ),
        (
            "quota /dev/a 1000* 900 1200 0 7 0 0 0",
            "quota",
            "1.02 MB of 922 kB are used",
        ),
        (
            "quota /dev/a 5 0 0 0 100 0 100 0",
            "quota",
            "100 of 100 files are used",
        ),
        ("file_system tmpfs", "file system", "tmpfs"),
        ("file_system nfs", "file system", "nfs"),
        ("writable no", "rights", "but not written to"),
        ("open_files 256", "open files", "256"),
        ("net.ipv4.tcp_wmem 4096 16384 4194304", "kernel", "4194304"),
        (
            "net.ipv4.tcp_available_congestion_control reno cubic",
            "congestion control",
            "bbr",
        ),
    ] {
        let flaw = flaw(&with(line), topic);
        assert!(flaw.text.contains(text), "{flaw:?}");
        assert!(flaw.text.contains("the remote host"), "{flaw:?}");
        assert!(flaw.remedy().is_some());
    }
    // btrfs counts no inodes, and the space of a small file system may be nearly all
    // free.
    for line in [
        "inodes /dev/a 0 0 0 - /",
        "space /dev/a 100000 100 99900 1% /",
    ] {
        let found = findings(&with(line));
        let flaws = found.iter().filter(|one| one.weight() != Weight::Good);
        assert_eq!(flaws.count(), 0, "{line}");
    }
}

#[test]
fn a_failed_login_is_a_problem() {
    let refused = Facts {
        reached: Some(Err("ssh could not log in".into())),
        software: None,
        far: None,
        outward: None,
        inward: None,
        clock: None,
        options: None,
        measured: Vec::new(),
        ..facts()
    };
    assert_eq!(flaw(&refused, "login").weight(), Weight::Problem);
}

#[test]
fn connections_without_data_indicate_an_mtu_black_hole() {
    let nothing = Measured {
        bytes_per_second: 0.0,
        segment: 0,
        ..measured()
    };
    let hole = Facts {
        measured: vec![Ok(measured()), Ok(nothing)],
        ..facts()
    };
    let flaw = flaw(&hole, "mtu");
    assert_eq!(flaw.weight(), Weight::Problem);
    assert!(flaw.remedy().unwrap().contains("tcp_mtu_probing"));
    // An open port alone is no evidence about large packets.
    let unmeasured = Facts {
        measured: vec![Err("each login asks".into())],
        ..facts()
    };
    let found = findings(&unmeasured);
    assert_eq!(of(&found, "mtu")[0].weight(), Weight::NotChecked);
}

#[test]
fn advice_without_a_sysctl_has_a_remedy() {
    let queue = Advice {
        topic: "queue",
        text: "a queue".into(),
        remedies: Vec::new(),
    };
    let told = path(&Ok(Measured {
        congestion: String::new(),
        streams: 1,
        one_stream: None,
        advice: vec![queue],
        ..measured()
    }));
    assert!(told[0].text.ends_with("data pass"), "{}", told[0].text);
    assert!(told[0].text.contains("1 stream;"), "{}", told[0].text);
    assert!(told[1].remedy().unwrap().contains("--nice"));
}

#[test]
fn rights_of_a_principal_are_reported_with_a_remedy() {
    let with_delete = |read: Right, write: Right, delete: Right| Facts {
        rights: Some(Ok(Rights {
            principal: "alice".into(),
            path: "/data".into(),
            read: Ok(read),
            write: Ok(write),
            delete: Ok(delete),
        })),
        ..facts()
    };
    use Right::{Denied, Granted, Obstructed};
    let with = |read, write| with_delete(read, write, Granted);
    let kept = flaw(&with_delete(Granted, Granted, Denied), "rights");
    assert_eq!(kept.weight(), Weight::Advice);
    assert!(kept.remedy().unwrap().contains("--delete"));
    let told = findings(&with(Granted, Granted));
    let all = of(&told, "rights");
    assert!(
        all.iter().all(|one| one.weight() == Weight::Good),
        "{all:?}"
    );
    assert!(all[0].text.contains("alice") && all[0].text.contains("/data"));
    let read_only = flaw(&with(Granted, Denied), "rights");
    assert_eq!(read_only.weight(), Weight::Advice);
    assert!(read_only.remedy().unwrap().contains("serve --write"));
    let write_only = flaw(&with(Denied, Granted), "rights");
    assert!(write_only.remedy().unwrap().contains("\"read\""));
    let neither = flaw(&with(Denied, Denied), "rights");
    assert_eq!(neither.weight(), Weight::Problem);
    let gone = || Obstructed("there is no x".into());
    let absent = flaw(&with(gone(), Granted), "place");
    assert_eq!(absent.weight(), Weight::Advice);
    let neither = flaw(&with(gone(), gone()), "place");
    assert_eq!(neither.weight(), Weight::Problem);
}

#[test]
fn a_missing_path_is_reported() {
    let at = |parent: &str| Facts {
        reached: None,
        far: None,
        here: Ok(but(&[
            "asked /nonexist/dir",
            "path /",
            "path_is_whole no",
            &format!("parent_is_there {parent}"),
        ])),
        ..facts()
    };
    let new = flaw(&at("yes"), "place");
    assert_eq!(new.weight(), Weight::Advice);
    let wrong = flaw(&at("no"), "place");
    assert_eq!(wrong.weight(), Weight::Problem);
    assert!(wrong.text.contains("/nonexist/dir"), "{wrong:?}");
}
