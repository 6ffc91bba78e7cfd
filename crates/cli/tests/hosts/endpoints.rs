//! Rows of the table of kinds of endpoints in SEMANTICS.md, tried with a path on this host, a host
//! over SSH and a daemon.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_transfer::endpoint::{Endpoint, Promises};
use tempfile::TempDir;

use crate::support::Daemon;
use crate::support::process::{longhaul, run};
use crate::support::sshd::{Sshd, at_dtn, is_possible};
use crate::support::tree::{set_modified, write};

/// Modification time of the files, in seconds.
const MODIFIED: i64 = 1_000_000;

/// A place that endpoints of one kind name.
struct Site {
    directory: PathBuf,
    endpoint: Box<dyn Fn(&str) -> OsString>,
    command: Box<dyn Fn(&str) -> Command>,
}

impl Site {
    fn here(directory: &Path) -> Site {
        let named = directory.to_owned();
        Site {
            directory: directory.to_owned(),
            endpoint: Box::new(move |name| named.join(name).into_os_string()),
            command: Box::new(|subcommand| {
                let mut command = longhaul();
                command.arg(subcommand);
                command
            }),
        }
    }

    fn over_ssh(directory: &Path) -> Site {
        let (sshd, named) = (Sshd::start(), directory.to_owned());
        Site {
            directory: directory.to_owned(),
            endpoint: Box::new(move |name| at_dtn(named.join(name))),
            command: Box::new(move |subcommand| sshd.command(subcommand)),
        }
    }

    fn at_daemon(directory: &Path) -> Site {
        let daemon = Daemon::with(directory, &["--write", "--allow-clear"]);
        let address = daemon.url("");
        Site {
            directory: directory.to_owned(),
            endpoint: Box::new(move |name| {
                let mut url = address.clone();
                url.push(name);
                url
            }),
            command: Box::new(move |subcommand| daemon.command(subcommand)),
        }
    }

    fn run(&self, subcommand: &str, arguments: &[&str], ends: [OsString; 2]) -> i32 {
        let mut command = (self.command)(subcommand);
        run(command.args(arguments).args(ends)).code.unwrap()
    }

    fn promises(&self) -> &'static Promises {
        Endpoint::parse(&(self.endpoint)("x")).unwrap().promises()
    }

    /// Copies from and to the site and compares the results with the properties of its kind.
    fn check(&self, place: &Path) {
        let promises = self.promises();
        let shown = (self.endpoint)("x");
        // The slash at the end stands for the contents.
        let data = place.join("data/");
        assert_eq!(
            self.run("cp", &["-r"], [data.clone().into(), (self.endpoint)("new")]),
            0,
            "{shown:?}"
        );
        kept(promises, &self.directory.join("new"));
        let back = place.join("back");
        let ends = || [(self.endpoint)("new/"), back.clone().into_os_string()];
        assert_eq!(
            self.run("cp", &["-r", "--retries=2"], ends()) == 0,
            promises.repeatable
        );
        kept(promises, &back);
        let mode = fs::metadata(back.join("sub/set-id")).unwrap().mode();
        assert_eq!(mode & 0o4000 == 0, promises.foreign, "{shown:?}");
        assert_eq!(
            self.run("verify", &[], ends()) == 0,
            promises.digests,
            "{shown:?}"
        );
        write(&back.join("sub/file"), b"other");
        assert_eq!(
            self.run("verify", &[], ends()) == 5,
            promises.digests,
            "{shown:?}"
        );
        let clear = ["-r", "--data-security=clear"];
        let is_refused = self.run("cp", &clear, ends()) != 0;
        assert_eq!(is_refused, promises.always_encrypted, "{shown:?}");
        fs::remove_dir_all(&back).unwrap();
        self.check_listing(promises);
    }

    fn check_listing(&self, promises: &Promises) {
        let listed = run((self.command)("ls")
            .arg("-0")
            .arg((self.endpoint)("new/sub")));
        let is_listed = listed.code == Some(0);
        assert_eq!(is_listed, promises.listing);
        let is_ordered = listed.output == b"a\0b\0c\0file\0link\0set-id\0";
        assert_eq!(is_ordered, promises.ordered_listing);
    }
}

/// Compares a copy of the data with the properties of a kind.
fn kept(promises: &Promises, copy: &Path) {
    assert_eq!(copy.join("sub").is_dir(), promises.trees);
    let file = fs::metadata(copy.join("sub/file")).unwrap();
    assert_eq!(file.mtime() == MODIFIED, promises.times);
    assert_eq!(file.mode() & 0o777 == 0o640, promises.modes);
    let link = fs::symlink_metadata(copy.join("sub/link")).unwrap();
    assert_eq!(link.is_symlink(), promises.links);
}

fn data(place: &TempDir) {
    let sub = place.path().join("data/sub");
    for name in ["c", "a", "b", "file", "set-id"] {
        write(&sub.join(name), name.as_bytes());
    }
    fs::set_permissions(sub.join("file"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::set_permissions(sub.join("set-id"), PermissionsExt::from_mode(0o4755)).unwrap();
    set_modified(&sub.join("file"), MODIFIED, 0);
    symlink("file", sub.join("link")).unwrap();
}

#[test]
fn endpoints_have_the_properties_of_their_kind() {
    let place = tempfile::tempdir().unwrap();
    data(&place);
    let directory = |name: &str| {
        let directory = place.path().join(name);
        fs::create_dir(&directory).unwrap();
        directory
    };
    Site::here(&directory("here")).check(place.path());
    Site::at_daemon(&directory("daemon")).check(place.path());
    if is_possible() {
        Site::over_ssh(&directory("ssh")).check(place.path());
    }
}

#[test]
fn a_pipe_cannot_be_tried_again_or_listed() {
    let promises = Endpoint::parse("-".as_ref()).unwrap().promises();
    let retried = run(longhaul().args(["cp", "--retries=2", "-", "null:"]));
    assert_eq!(retried.code == Some(0), promises.repeatable);
    let listed = run(longhaul().args(["ls", "-"]));
    assert_eq!(listed.code == Some(0), promises.listing);
}
