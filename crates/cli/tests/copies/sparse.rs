//! `-S`: runs of zeros become holes at the destination.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::run;
use crate::support::tree::write;
use crate::support::ways::{WAYS, copy};

const PAGE: usize = 4096;

/// Files of zeros with some pages of data, without holes: small ones, which travel in packs, and
/// large ones, which travel in pieces.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let pages = |count: usize, data: &[usize]| {
        let mut bytes = vec![0_u8; count * PAGE];
        for page in data {
            bytes[page * PAGE + 9] = 1;
        }
        bytes
    };
    let from = place.path().join("from");
    write(&from.join("small"), &pages(40, &[3, 17]));
    write(&from.join("small_zeros"), &pages(40, &[]));
    write(&from.join("large"), &pages(3000, &[0, 700, 701, 2999]));
    write(&from.join("large_zeros"), &pages(2500, &[]));
    let mut odd = pages(2100, &[5]);
    odd.extend([0; 77]);
    write(&from.join("odd"), &odd);
    write(&from.join("data"), &vec![7; 10_000]);
    // Without the sync, a part of the file would not be on the disk yet.
    run(&mut Command::new("sync"));
    place
}

fn names(root: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(root).unwrap();
    let mut names: Vec<PathBuf> = names.map(|name| name.unwrap().path()).collect();
    names.sort();
    names
}

/// Bytes that a file takes on the disk.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn runs_of_zeros_become_holes_on_every_route() {
    for way in WAYS {
        for flags in [&["-rS"][..], &["-r", "--sparse", "--compress", "zstd"]] {
            let place = place();
            let daemon = Daemon::start(place.path());
            let [from, to, by_cp] = ["from", "to", "cp"].map(|name| place.path().join(name));
            let command = copy((&daemon, place.path()), way, (&from, &to));
            run(&mut command.with(flags)).expect(0);
            let mut cp = Command::new("cp");
            cp.args(["-r", "--sparse=always"]).arg(&from).arg(&by_cp);
            run(&mut cp).expect(0);
            run(&mut Command::new("sync"));
            for path in names(&to) {
                let name = path.file_name().unwrap();
                assert_eq!(
                    fs::read(&path).unwrap(),
                    fs::read(from.join(name)).unwrap(),
                    "{way:?} {name:?}"
                );
                let (ours, theirs) = (allocated(&path), allocated(&by_cp.join(name)));
                assert!(
                    ours <= theirs + PAGE as u64,
                    "{way:?} {flags:?} {name:?}: {ours}, {theirs}"
                );
            }
            assert_eq!(names(&to).len(), 6);
            let command = copy((&daemon, place.path()), way, (&from, &to));
            let mut again = command.with(&["-rS", "--verify", "--json"]);
            assert_eq!(run(&mut again).expect(0).summary()["files"], 0, "{way:?}");
        }
    }
}

/// Zeros that the source has on its disk are on the destination's too.
#[test]
fn zeros_are_written_without_the_option() {
    let place = place();
    let daemon = Daemon::start(place.path());
    for flags in [&["-r"][..], &["-rS", "--no-sparse"]] {
        let [from, to] = ["from", "to"].map(|name| place.path().join(name));
        let command = copy((&daemon, place.path()), WAYS[0], (&from, &to));
        run(&mut command.with(flags)).expect(0);
        run(&mut Command::new("sync"));
        for path in names(&to) {
            let size = fs::metadata(&path).unwrap().len();
            assert!(allocated(&path) >= size, "{flags:?} {path:?}");
        }
        fs::remove_dir_all(&to).unwrap();
    }
}
