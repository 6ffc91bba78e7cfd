//! Copies between clusters. Each host of a site is a worker process on this host.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::support::process::{Finished, Running, longhaul, run};

/// Two sites with a directory each.
struct Sites {
    place: TempDir,
}

impl Sites {
    fn new(hosts: [usize; 2]) -> Sites {
        let place = tempfile::tempdir().unwrap();
        let sites = Sites { place };
        fs::create_dir(sites.source()).unwrap();
        // The shell replaces itself with the worker, so that its process number is the worker's.
        let script = sites.place.path().join("start");
        let binary = env!("CARGO_BIN_EXE_longhaul");
        let text = format!(
            "#!/bin/sh\necho $$ > {}/$1.pid\neval \"set -- $2\"\nexport LANG=C\nexec \"$@\"\n",
            sites.place.path().display()
        );
        fs::write(&script, text).unwrap();
        let mut file = String::new();
        for (site, count) in ["a", "b"].iter().zip(hosts) {
            let host = |number| format!("{{ host = \"{site}{number}\", address = \"127.0.0.1\" }}");
            let hosts: Vec<String> = (0..count).map(host).collect();
            file += &format!(
                "[site.{site}]\nhosts = [{}]\nlaunch = [\"sh\", \"{}\", \"{{host}}\"]\n\
                 longhaul = \"{binary}\"\n",
                hosts.join(", "),
                script.display()
            );
        }
        fs::write(sites.file(), file).unwrap();
        sites
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("sites.toml")
    }

    fn source(&self) -> PathBuf {
        self.place.path().join("source")
    }

    fn destination(&self) -> PathBuf {
        self.place.path().join("destination")
    }

    /// Writes files of different sizes, with directories and links.
    fn fill(&self, files: usize) {
        for number in 0..files {
            let directory = self.source().join(format!("d{}", number % 7));
            fs::create_dir_all(&directory).unwrap();
            let data = vec![number as u8; number * 37 % 5000];
            fs::write(directory.join(format!("f{number}")), data).unwrap();
        }
        std::os::unix::fs::symlink("d0/f0", self.source().join("link")).unwrap();
    }

    /// Writes files that are tasks of their own.
    fn fill_large(&self, files: usize) {
        for number in 0..files {
            let mut data = vec![number as u8; 65 << 20];
            data[..8].copy_from_slice(&number.to_le_bytes());
            fs::write(self.source().join(format!("large{number}")), data).unwrap();
        }
    }

    /// Writes a file that is copied in four parts.
    fn write_parts(&self) {
        let mut data = vec![0; (200 << 20) + 5];
        for (number, page) in data.chunks_mut(4096).enumerate() {
            page.fill((number / 7) as u8);
        }
        fs::write(self.source().join("parts"), data).unwrap();
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = longhaul();
        let ends = [("a", self.source()), ("b", self.destination())];
        let ends = ends.map(|(site, path)| format!("{site}:{}", path.display()));
        command.args(["cp", "-r", "--cluster", "--sites"]);
        command.arg(self.file()).args(options).args(ends);
        command.env("LONGHAUL_CLUSTER_LEASE_MILLISECONDS", "2000");
        command.env("TMPDIR", self.place.path());
        command
    }

    fn copy(&self, options: &[&str]) -> Finished {
        run(&mut self.command(options))
    }

    /// Returns the process of a host's worker.
    fn worker(&self, host: &str) -> Pid {
        let text = fs::read_to_string(self.place.path().join(format!("{host}.pid"))).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    fn assert_same(&self) {
        assert_eq!(tree(&self.source()), tree(&self.destination()));
    }
}

/// Names, kinds, contents, modes and times of a tree.
fn tree(root: &Path) -> Vec<(OsString, u32, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let status = path.symlink_metadata().unwrap();
            let data = if status.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else if status.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(root).unwrap().as_os_str().to_owned();
            let time = if status.is_symlink() {
                0
            } else {
                status.mtime()
            };
            found.push((name, status.mode(), time, data));
        }
    }
    found.sort();
    found
}

// Promise 89.
#[test]
fn hosts_of_two_sites_copy_a_tree() {
    let sites = Sites::new([2, 2]);
    sites.fill(200);
    let planned = sites.copy(&["-n"]).expect(0);
    assert!(
        planned.errors.contains("would copy: 200 files"),
        "{planned:?}"
    );
    assert!(!sites.destination().exists());
    let copied = sites.copy(&[]).expect(0);
    assert!(copied.errors.contains("tasks: 200 files"), "{copied:?}");
    sites.assert_same();
    let again = sites.copy(&["--json"]).expect(0);
    let output = String::from_utf8(again.output).unwrap();
    let last = output.lines().last().unwrap();
    assert!(last.contains("\"tasks\":0"), "{last}");
}

// Promise 89.
#[test]
fn a_large_file_is_copied_in_parts() {
    let sites = Sites::new([2, 2]);
    sites.write_parts();
    let copied = sites.copy(&["--json"]).expect(0);
    let output = String::from_utf8(copied.output).unwrap();
    let last = output.lines().last().unwrap();
    // Four parts, and the task that gives the file its name.
    assert!(last.contains("\"tasks\":5"), "{last}");
    sites.assert_same();
}

#[test]
fn parts_of_a_killed_worker_are_copied_by_the_others() {
    let sites = Sites::new([2, 2]);
    sites.write_parts();
    let copy = Running::start(&mut sites.command(&["--bwlimit", "40MB/s"]));
    longhaul_testing::await_that(|| {
        let names = fs::read_dir(sites.destination());
        let mut names = names.into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().to_string_lossy().ends_with(".part"))
    });
    kill_process(sites.worker("a0"), Signal::KILL).unwrap();
    kill_process(sites.worker("b1"), Signal::KILL).unwrap();
    copy.wait().expect(0);
    sites.assert_same();
}

// Promise 89.
#[test]
fn options_of_a_copy_apply_between_clusters() {
    let sites = Sites::new([1, 2]);
    sites.fill(20);
    fs::write(sites.source().join("left out.o"), "x").unwrap();
    fs::hard_link(sites.source().join("d1/f1"), sites.source().join("d2/same")).unwrap();
    fs::create_dir(sites.destination()).unwrap();
    fs::write(sites.destination().join("old"), "x").unwrap();
    let options = ["--delete", "--exclude", "*.o", "-H", "-v", "--hosts", "1:1"];
    let copied = sites.copy(&options).expect(0);
    let names = String::from_utf8(copied.output).unwrap();
    assert!(names.contains("deleted old\n"), "{names}");
    assert!(names.lines().any(|name| name == "d3/f3"), "{names}");
    assert!(!sites.destination().join("left out.o").exists());
    let [one, other] = ["d1/f1", "d2/same"].map(|name| sites.destination().join(name));
    assert_eq!(
        one.metadata().unwrap().ino(),
        other.metadata().unwrap().ino()
    );
    fs::remove_file(sites.source().join("left out.o")).unwrap();
    sites.assert_same();
}

// Promise 89.
#[test]
fn options_that_clusters_lack_are_refused() {
    let sites = Sites::new([1, 1]);
    for option in ["--move", "--on-commit=true", "--report=x", "--detach"] {
        let refused = sites.copy(&[option]);
        assert_eq!(refused.code, Some(1), "{option}: {refused:?}");
        assert!(!sites.destination().exists());
    }
}

/// Waits until the copy has committed a file.
fn await_commit(copy: &Running) {
    let is_commit = |event: &serde_json::Value| event["event"] == "committed";
    copy.event(is_commit).expect("a file is committed");
}

// Promises 89 and 90.
#[test]
fn the_other_workers_complete_the_copy_of_a_killed_one() {
    for host in ["a0", "b1"] {
        let sites = Sites::new([2, 2]);
        sites.fill(200);
        sites.fill_large(8);
        let options = ["--json", "--bwlimit", "200MB/s"];
        let copy = Running::start(&mut sites.command(&options));
        await_commit(&copy);
        kill_process(sites.worker(host), Signal::KILL).unwrap();
        let ended = copy.wait();
        assert!(
            ended.errors.contains(&format!("{host}: the worker ended")),
            "{ended:?}"
        );
        ended.expect(0);
        sites.assert_same();
    }
}

// Promise 90.
#[test]
fn a_stopped_worker_loses_its_tasks_to_the_others() {
    for host in ["a0", "b0"] {
        let sites = Sites::new([2, 2]);
        sites.fill_large(8);
        let options = ["--json", "--bwlimit", "200MB/s"];
        let copy = Running::start(&mut sites.command(&options));
        await_commit(&copy);
        let worker = sites.worker(host);
        kill_process(worker, Signal::STOP).unwrap();
        copy.await_words("no sign of life");
        kill_process(worker, Signal::CONT).unwrap();
        copy.wait().expect(0);
        sites.assert_same();
    }
}

// Promise 90.
#[test]
fn a_file_that_is_edited_after_its_commit_stays_as_edited() {
    let sites = Sites::new([2, 2]);
    sites.fill_large(8);
    let options = ["--json", "--bwlimit", "200MB/s"];
    let copy = Running::start(&mut sites.command(&options));
    let is_commit = |event: &serde_json::Value| event["event"] == "committed";
    let event = copy.event(is_commit).expect("a file is committed");
    let edited = sites.destination().join(event["path"].as_str().unwrap());
    fs::write(&edited, "edited").unwrap();
    copy.wait().expect(0);
    assert_eq!(fs::read(&edited).unwrap(), b"edited");
    let source = sites.source().join(edited.file_name().unwrap());
    fs::write(source, "edited").unwrap();
    let names = |tree: Vec<(OsString, u32, i64, Vec<u8>)>| {
        let entry = |(name, _, _, data)| (name, data);
        tree.into_iter().map(entry).collect::<Vec<_>>()
    };
    assert_eq!(
        names(tree(&sites.source())),
        names(tree(&sites.destination()))
    );
}

// Promise 90.
#[test]
fn the_same_command_resumes_after_the_coordinator_was_killed() {
    let sites = Sites::new([2, 1]);
    sites.fill(50);
    sites.fill_large(6);
    let copy = Running::start(&mut sites.command(&["--json", "--bwlimit", "200MB/s"]));
    await_commit(&copy);
    copy.signal(Signal::KILL);
    copy.wait();
    sites.copy(&[]).expect(0);
    sites.assert_same();
    let planned = sites.copy(&["-n"]).expect(0).errors;
    assert!(planned.contains("would copy: nothing"), "{planned}");
}

// Promise 91.
#[test]
fn a_copy_ends_if_a_site_has_no_worker_left() {
    let sites = Sites::new([1, 1]);
    sites.fill_large(4);
    let copy = Running::start(&mut sites.command(&["--json", "--bwlimit", "50MB/s"]));
    await_commit(&copy);
    kill_process(sites.worker("b0"), Signal::KILL).unwrap();
    let ended = copy.wait().expect(3);
    assert!(
        ended.errors.contains("no worker of site b is left"),
        "{ended:?}"
    );
}

// Promise 91.
#[test]
fn a_worker_refuses_paths_outside_of_its_root() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let begin = r#"{"order":"begin","version":"0.1.0","spec":{"version":1,"sources":["/"],"destination":"x"},"output":{"json":false,"quiet":false,"verbose":false},"sessions":1,"alive_milliseconds":1000}"#;
    let start = r#"{"order":"start","session":1,"kind":{"pack":{"task":"t","files":["../secret"],"update":false}},"to":{"address":"127.0.0.1","port":1,"fingerprint":"FINGERPRINT","principal":"user","token":"t"}}"#;
    let fingerprint = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let start = start.replace("FINGERPRINT", fingerprint);
    let orders = place.path().join("orders");
    fs::write(&orders, format!("{begin}\n{start}\n")).unwrap();
    let binary = env!("CARGO_BIN_EXE_longhaul");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(
        "exec {binary} worker --root {} < {}",
        root.display(),
        orders.display()
    ));
    let refused = run(&mut command).expect(1);
    assert!(
        refused.errors.contains("outside of the root"),
        "{refused:?}"
    );
}
