//! The options of a copy do on every route what they do within a host: to a daemon and from one,
//! over SSH both ways, between two hosts and between two daemons, as jobs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Daemon;
use crate::support::lan::Lan;
use crate::support::process::{Finished, longhaul, run};
use crate::support::site::{DIAL, Site};
use crate::support::sshd::{self, Sshd, at_dtn};
use crate::support::tree::{set_modified, write};
use crate::support::ways::contents;
use tempfile::TempDir;

/// Options, and how the copy ends.
const CASES: &[(&[&str], i32)] = &[
    (&["-r", "--delete"], 0),
    (&["-r", "-n", "--delete"], 0),
    (&["-r", "--delete", "--max-delete=2"], 2),
    (&["-r", "-F", "--delete", "--exclude=*.o"], 0),
    (&["-r", "--exclude=*.o", "--delete-excluded"], 0),
    (&["-rb", "--delete"], 0),
    (&["-r", "--delete", "--backup-dir=../old", "--suffix=.1"], 0),
    (&["-r", "--backup-dir=.old"], 0),
    (&["-ru"], 0),
    (&["-rc"], 0),
    (&["-r", "--existing"], 0),
    (&["-r", "--ignore-existing"], 0),
    (&["-r", "--size-only"], 0),
    (&["-r", "--move"], 0),
    (&["-r", "--move", "--exclude=*.o", "--max-size=100"], 0),
];

fn source(root: &Path) {
    for (name, text, time) in [
        ("changed", "source", 1_000_000),
        ("new", "source", 1_000_000),
        ("new.o", "source", 1_000_000),
        ("same", "same", 1_000_000),
        ("damaged", "good", 1_000_000),
        ("older", "source", 5),
        ("dir/changed", "source", 1_000_000),
        ("dir/deep/new", "source", 1_000_000),
        ("dir/.rsync-filter", "P *.keep\n", 1_000_000),
    ] {
        write(&root.join(name), text.as_bytes());
        set_modified(&root.join(name), time, 5);
    }
    write(&root.join("large"), &vec![7; 5 << 20]);
    symlink("new", root.join("link")).unwrap();
}

fn there(root: &Path) {
    for (name, text, time) in [
        ("changed", "there before", 1_000_000),
        ("same", "same", 1_000_000),
        ("damaged", "evil", 1_000_000),
        ("older", "there", 2_000_000),
        ("dir/changed", "there before", 1_000_000),
        ("dir/x.keep", "there", 5),
        ("dir/gone", "there", 5),
        ("gone.o", "there", 5),
        ("gone/one", "there", 5),
        ("large", "there before", 5),
    ] {
        write(&root.join(name), text.as_bytes());
        set_modified(&root.join(name), time, 5);
    }
    symlink("elsewhere", root.join("link")).unwrap();
}

type Names = BTreeMap<PathBuf, Vec<u8>>;

/// The entries at both ends after a copy, and the deletions that it reported.
#[derive(Debug, PartialEq)]
struct Left {
    here: Names,
    there: Names,
    deleted: BTreeSet<String>,
}

/// A route: its two ends in this host's file system, and its command.
struct Route {
    /// The hosts, which exist as long as the route is used.
    hosts: Hosts,
    /// Directories in which `from` and `there/to` are made.
    ends: [PathBuf; 2],
    /// Their directory, where it is not that of a host.
    _place: Option<TempDir>,
}

enum Hosts {
    Local,
    Push(Daemon),
    Pull(Daemon),
    SshPush(Sshd),
    SshPull(Sshd),
    Between(Box<Lan>),
    Daemons(Box<Site>),
}

impl Route {
    fn local() -> Route {
        let place = tempfile::tempdir().unwrap();
        let ends = [place.path().join("a"), place.path().join("b")];
        Route {
            hosts: Hosts::Local,
            ends,
            _place: Some(place),
        }
    }

    fn daemon(pulls: bool) -> Route {
        let place = tempfile::tempdir().unwrap();
        let ends = [place.path().join("a"), place.path().join("b")];
        let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
        Route {
            hosts: if pulls {
                Hosts::Pull(daemon)
            } else {
                Hosts::Push(daemon)
            },
            ends,
            _place: Some(place),
        }
    }

    fn ssh(pulls: bool) -> Route {
        let (place, sshd) = (tempfile::tempdir().unwrap(), Sshd::start());
        let (here, far) = (place.path().to_owned(), sshd.home());
        Route {
            hosts: if pulls {
                Hosts::SshPull(sshd)
            } else {
                Hosts::SshPush(sshd)
            },
            ends: if pulls { [far, here] } else { [here, far] },
            _place: Some(place),
        }
    }

    fn between() -> Route {
        let lan = Lan::new();
        let ends = [lan.left.home(), lan.right.home()];
        Route {
            hosts: Hosts::Between(Box::new(lan)),
            ends,
            _place: None,
        }
    }

    fn daemons() -> Route {
        let flags = ["--write", "--delete", DIAL];
        let site = Site::new(&flags, &flags);
        let ends = [site.root("one"), site.root("two")];
        Route {
            hosts: Hosts::Daemons(Box::new(site)),
            ends,
            _place: None,
        }
    }

    fn is_third_party(&self) -> bool {
        matches!(self.hosts, Hosts::Between(_) | Hosts::Daemons(_))
    }

    fn command(&self, options: &[&str]) -> Command {
        let [from, to] = self.ends.each_ref().map(|end| end.as_os_str().to_owned());
        let below = |mut end: OsString, more: &str| {
            end.push(more);
            end
        };
        let (mut command, ends) = match &self.hosts {
            Hosts::Local => {
                let mut command = longhaul();
                command.arg("cp");
                (command, [below(from, "/from/"), below(to, "/there/to")])
            }
            Hosts::Push(daemon) => {
                let url = daemon.url("b/there/to");
                (daemon.command("cp"), [below(from, "/from/"), url])
            }
            Hosts::Pull(daemon) => {
                let url = daemon.url("a/from/");
                (daemon.command("cp"), [url, below(to, "/there/to")])
            }
            Hosts::SshPush(sshd) => {
                let ends = [below(from, "/from/"), at_dtn("there/to")];
                (sshd.command("cp"), ends)
            }
            Hosts::SshPull(sshd) => {
                let ends = [at_dtn("from/"), below(to, "/there/to")];
                (sshd.command("cp"), ends)
            }
            Hosts::Between(lan) => {
                let ends = ["left:from/", "right:there/to"].map(OsString::from);
                (lan.copy(), ends)
            }
            Hosts::Daemons(site) => {
                let ends = [site.one.url("from/"), site.two.url("there/to")];
                (site.command("cp"), ends)
            }
        };
        command.args(options).args(ends);
        command
    }

    fn fill(&self) {
        let [from, to] = [self.ends[0].join("from"), self.ends[1].join("there")];
        for old in [&from, &to] {
            let _ = fs::remove_dir_all(old);
        }
        source(&from);
        there(&to.join("to"));
    }

    fn copy(&self, options: &[&str], code: i32) -> Left {
        self.fill();
        let mut all = vec!["--json"];
        all.extend(options);
        let done = run(&mut self.command(&all)).expect(code);
        self.left(&done)
    }

    fn left(&self, done: &Finished) -> Left {
        let events = done.events().into_iter();
        let deleted = events.filter(|event| event["event"] == "deleted");
        Left {
            here: contents(&self.ends[0].join("from")),
            there: contents(&self.ends[1].join("there")),
            deleted: deleted
                .map(|event| event["path"].as_str().unwrap().to_owned())
                .collect(),
        }
    }
}

fn routes() -> Vec<(&'static str, Route)> {
    let mut routes = vec![
        ("to a daemon", Route::daemon(false)),
        ("from a daemon", Route::daemon(true)),
        ("between two daemons", Route::daemons()),
    ];
    if sshd::is_possible() {
        routes.push(("to a host", Route::ssh(false)));
        routes.push(("from a host", Route::ssh(true)));
        routes.push(("between two hosts", Route::between()));
    }
    routes
}

#[test]
fn each_option_does_the_same_on_every_route() {
    let local = Route::local();
    let expected = CASES
        .iter()
        .map(|(options, code)| local.copy(options, *code));
    let expected: Vec<Left> = expected.collect();
    for (name, route) in routes() {
        for ((options, code), expected) in CASES.iter().zip(&expected) {
            let left = route.copy(options, *code);
            let same = left == *expected;
            assert!(same, "{options:?}, {name}: {}", difference(&left, expected));
        }
    }
}

/// Names alone: some files are large.
fn difference(left: &Left, expected: &Left) -> String {
    let of = |one: &Names, other: &Names| {
        let differ = one
            .iter()
            .filter(|(path, text)| other.get(*path) != Some(text));
        let paths = differ.map(|(path, _)| path.display().to_string());
        paths.collect::<Vec<_>>().join(", ")
    };
    format!(
        "here {} / {}; there {} / {}; deleted {:?} / {:?}",
        of(&left.here, &expected.here),
        of(&expected.here, &left.here),
        of(&left.there, &expected.there),
        of(&expected.there, &left.there),
        left.deleted,
        expected.deleted
    )
}

#[test]
fn a_report_has_the_same_lines_on_every_route_of_this_host() {
    let local = Route::local();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("report");
    let flag = format!("--report={}", file.display());
    let options = ["-ru", "--delete", "--exclude=*.o", &flag];
    let lines = || -> BTreeSet<(String, String)> {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let shown = |line: serde_json::Value| (line["path"].to_string(), line["entry"].to_string());
        lines.map(shown).collect()
    };
    local.copy(&options, 0);
    let expected = lines();
    assert!(expected.len() > 10, "{expected:?}");
    for (name, route) in routes() {
        if route.is_third_party() {
            route.fill();
            run(&mut route.command(&options))
                .expect(1)
                .says(&["--report"]);
            continue;
        }
        route.copy(&options, 0);
        assert_eq!(lines(), expected, "{name}");
    }
}

/// A detached job deletes entries and makes backups, and reports both to a later `attach`.
#[test]
fn a_detached_job_deletes_entries_and_makes_backups() {
    if !sshd::is_possible() {
        return;
    }
    let options = ["-r", "--delete", "--backup-dir=../old"];
    let expected = Route::local().copy(&options, 0);
    let route = Route::between();
    route.fill();
    let mut all = options.to_vec();
    all.extend(["--detach", "--json"]);
    run(&mut route.command(&all)).expect(0);
    let Hosts::Between(lan) = &route.hosts else {
        return;
    };
    let listed = run(lan.command("jobs").args(["--json", "left"])).expect(0);
    let name = listed.events()[0]["job"].as_str().unwrap().to_owned();
    let attach = format!("left:{name}");
    let done = run(lan.command("attach").args(["--json", &attach])).expect(0);
    let left = route.left(&done);
    assert!(left == expected, "{}", difference(&left, &expected));
}
