#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use longhaul_units::ByteCount;
use proptest::prelude::*;

use super::*;
use crate::posix::PosixDirectory;

fn root(directory: &tempfile::TempDir) -> Arc<dyn Directory> {
    PosixDirectory::open_root(directory.path()).unwrap()
}

fn names(listing: SortedListing) -> Vec<Vec<u8>> {
    listing.map(|listed| listed.unwrap().name.into()).collect()
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..30)
        .prop_filter("a name", |name| crate::resolution::check_name(name).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_name_once_in_byte_order(
        expected in prop::collection::btree_set(any_name(), 0..60),
        memory in 0u64..500,
        fan_in in 2usize..5,
    ) {
        let directory = tempfile::tempdir().unwrap();
        for name in &expected {
            std::fs::write(directory.path().join(OsStr::from_bytes(name)), b"").unwrap();
        }
        let settings = SpillSettings {
            memory: ByteCount(memory),
            fan_in,
            ..SpillSettings::default()
        };
        let listing = SortedListing::open(root(&directory).as_ref(), &settings).unwrap();
        let found = names(listing);
        // The set is sorted in byte order.
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn listed_names_have_kinds() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("b")).unwrap();
    std::fs::write(directory.path().join("a"), b"").unwrap();
    std::os::unix::fs::symlink("a", directory.path().join("c")).unwrap();
    let settings = SpillSettings::default();
    let listing = SortedListing::open(root(&directory).as_ref(), &settings).unwrap();
    let found: Vec<ListedName> = listing.map(Result::unwrap).collect();
    let kinds = [FileKind::File, FileKind::Directory, FileKind::Symlink];
    for ((listed, name), kind) in found.iter().zip([b"a", b"b", b"c"]).zip(kinds) {
        assert_eq!(&*listed.name, name);
        // Some file systems do not report the kind.
        assert!(listed.kind.is_none_or(|found| found == kind));
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn the_code_of_each_kind_is_read_back() {
    for kind in KINDS.map(Some).into_iter().chain([None]) {
        assert_eq!(kind_of(&[code_of(kind)]), kind);
    }
    assert_eq!(kind_of(&[]), None);
    assert_eq!(kind_of(&[9]), None);
}

#[test]
fn a_repeated_name_is_listed_once() {
    let mut sorter = Sorter::new(SpillSettings::default());
    for name in ["b", "a", "b", "b"] {
        sorter.push(name.as_bytes(), &[1]).unwrap();
    }
    let listing = SortedListing {
        names: Names::Sorted(sorter.finish().unwrap()),
        previous: None,
        failed: false,
    };
    assert_eq!(names(listing), [b"a", b"b"]);
}
