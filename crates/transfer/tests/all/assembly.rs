//! Several sessions copy parts of one file, and a last one gives it its name.

use std::fs;
use std::path::Path;

use longhaul_proto::assembly::Assembly;
use longhaul_proto::digest::Integrity;
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::spec::TransferSpec;
use longhaul_transfer::stop::Exit;

use super::copy_tree::{local, run};

const MIB: u64 = 1 << 20;

/// Size of the file: two parts of 4 MiB, and a short one.
const SIZE: u64 = 8 * MIB + 1_000_005;

fn data() -> Vec<u8> {
    let mut data = vec![0; SIZE as usize];
    blake3::Hasher::new().finalize_xof().fill(&mut data);
    data
}

fn spec(from: &Path, to: &Path, assembly: Assembly) -> TransferSpec {
    let endpoint = |path: &Path| -> Endpoint { local(path) };
    let mut spec = TransferSpec::copy(vec![endpoint(from)], endpoint(to));
    spec.options.assembly = Some(assembly);
    // Blocks smaller than a part.
    spec.flows.block_bytes = Some(1 << 18);
    spec
}

fn part(number: u64) -> Assembly {
    Assembly::Part {
        offset: number * 4 * MIB,
        length: 4 * MIB,
    }
}

/// Returns the names in a directory.
fn names(at: &Path) -> Vec<String> {
    let names = fs::read_dir(at).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn parts_that_are_copied_at_the_same_time_become_one_file() {
    for integrity in [Integrity::Digest, Integrity::Checksum] {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("data"), place.path().join("to"));
        fs::create_dir(&to).unwrap();
        let copy = to.join("copy");
        fs::write(&from, data()).unwrap();
        let with = |assembly| {
            let mut spec = spec(&from, &copy, assembly);
            spec.options.verification.integrity = integrity;
            spec
        };
        std::thread::scope(|scope| {
            let parts = [2, 0, 1].map(|number| scope.spawn(move || run(with(part(number)))));
            for part in parts {
                assert_eq!(part.join().unwrap(), Exit::Done);
            }
        });
        assert!(!copy.exists(), "a part gives the file no name");
        assert_eq!(names(&to).len(), 2, "{:?}", names(&to));
        assert_eq!(run(with(Assembly::Whole)), Exit::Done);
        assert!(fs::read(&copy).unwrap() == data());
        assert_eq!(names(&to), ["copy"]);
        let times = [&from, &copy].map(|path| fs::metadata(path).unwrap().modified().unwrap());
        assert_eq!(times[0], times[1]);
    }
}

#[test]
fn the_last_session_sends_the_bytes_that_no_part_has() {
    let place = tempfile::tempdir().unwrap();
    let (from, copy) = (place.path().join("data"), place.path().join("copy"));
    fs::write(&from, data()).unwrap();
    assert_eq!(run(spec(&from, &copy, part(1))), Exit::Done);
    // A repeated part finds its data.
    assert_eq!(run(spec(&from, &copy, part(1))), Exit::Done);
    assert_eq!(run(spec(&from, &copy, Assembly::Whole)), Exit::Done);
    assert!(fs::read(&copy).unwrap() == data());
    // The file is there, so that a late part changes nothing.
    assert_eq!(run(spec(&from, &copy, part(0))), Exit::Done);
    assert_eq!(names(place.path()), ["copy", "data"]);
}

#[test]
fn parts_of_an_older_state_of_the_source_are_discarded() {
    let place = tempfile::tempdir().unwrap();
    let (from, copy) = (place.path().join("data"), place.path().join("copy"));
    fs::write(&from, data()).unwrap();
    assert_eq!(run(spec(&from, &copy, part(0))), Exit::Done);
    let mut changed = data();
    changed.reverse();
    fs::write(&from, &changed).unwrap();
    assert_eq!(run(spec(&from, &copy, part(1))), Exit::Done);
    assert_eq!(run(spec(&from, &copy, Assembly::Whole)), Exit::Done);
    assert!(fs::read(&copy).unwrap() == changed);
}

#[test]
fn a_part_after_the_end_of_the_file_is_a_failure() {
    let place = tempfile::tempdir().unwrap();
    let (from, copy) = (place.path().join("data"), place.path().join("copy"));
    fs::write(&from, data()).unwrap();
    assert_eq!(run(spec(&from, &copy, part(9))), Exit::Partial);
    assert_eq!(names(place.path()), ["data"]);
}

#[test]
fn invalid_assemblies_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let (from, copy) = (place.path().join("data"), place.path().join("copy"));
    let refused = |change: &dyn Fn(&mut TransferSpec)| {
        let mut spec = spec(&from, &copy, part(0));
        change(&mut spec);
        let error = spec.validate().unwrap_err().to_string();
        assert!(error.starts_with("assembly: "), "{error}");
    };
    refused(&|spec| spec.options.selection.recursive = true);
    refused(&|spec| spec.destination = Endpoint::parse("null:".as_ref()).unwrap());
    refused(&|spec| {
        spec.options.assembly = Some(Assembly::Part {
            offset: 1,
            length: MIB,
        });
    });
}
