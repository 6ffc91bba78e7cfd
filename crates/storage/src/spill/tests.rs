#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn tiny(memory: u64, records: usize, fan_in: usize) -> SpillSettings {
    SpillSettings {
        memory: ByteCount(memory),
        records,
        fan_in,
        ..SpillSettings::default()
    }
}

type Pair = (Vec<u8>, Vec<u8>);

fn sorted(settings: SpillSettings, records: &[Pair]) -> (Vec<Pair>, bool) {
    let mut sorter = Sorter::new(settings);
    for (key, value) in records {
        sorter.push(key, value).unwrap();
    }
    let mut sorted = sorter.finish().unwrap();
    let spilled = sorted.is_spilled();
    let mut all = Vec::new();
    while let Some(record) = sorted.next_record().unwrap() {
        all.push((record.key.to_vec(), record.value.to_vec()));
    }
    assert!(sorted.next_record().unwrap().is_none());
    (all, spilled)
}

/// Generates keys of few letters, so that many are equal or prefixes of others.
fn any_record() -> impl Strategy<Value = Pair> {
    let letter = prop::sample::select(vec![0u8, b'/', b'a', 0xff]);
    let key = prop::collection::vec(letter, 0..5);
    (key, prop::collection::vec(any::<u8>(), 0..20))
}

proptest! {
    #[test]
    fn as_a_stable_sort_in_memory_would(
        records in prop::collection::vec(any_record(), 0..300),
        memory in 0u64..2000,
        in_memory in 1usize..100,
        fan_in in 0usize..6,
    ) {
        let mut expected = records.clone();
        expected.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (found, _) = sorted(tiny(memory, in_memory, fan_in), &records);
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn no_records_give_no_output() {
    assert_eq!(sorted(SpillSettings::default(), &[]), (vec![], false));
}

#[test]
fn records_that_fit_stay_in_memory() {
    let records: Vec<Pair> = (0..100u8).rev().map(|key| (vec![key], vec![])).collect();
    assert!(!sorted(SpillSettings::default(), &records).1);
    assert!(sorted(tiny(1 << 20, 99, 64), &records).1);
}

#[test]
fn many_runs_are_merged_in_several_passes() {
    let records: Vec<Pair> = (0..5000u32)
        .map(|number| {
            let scattered = number.wrapping_mul(2_654_435_761);
            (
                scattered.to_be_bytes().to_vec(),
                number.to_be_bytes().to_vec(),
            )
        })
        .collect();
    let mut expected = records.clone();
    expected.sort();
    // 500 runs are merged by 64 to 8, and these at once.
    assert_eq!(sorted(tiny(1 << 20, 10, 64), &records), (expected, true));
}

#[test]
fn a_record_longer_than_the_memory_is_sorted_too() {
    let long = vec![b'm'; 100_000];
    let records: Vec<Pair> = [&b"z"[..], &long, b"a"]
        .iter()
        .map(|key| (key.to_vec(), vec![]))
        .collect();
    let (found, _) = sorted(tiny(64, 10, 2), &records);
    assert_eq!(found[1].0, long);
    assert_eq!(found[0].0, b"a");
}

#[test]
fn a_record_beyond_the_maximum_is_refused() {
    let mut sorter = Sorter::new(SpillSettings::default());
    let long = vec![0; MAXIMUM_RECORD_BYTES];
    assert!(sorter.push(&long, b"").is_ok());
    let error = sorter.push(&long, b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn an_error_names_the_directory() {
    let settings = SpillSettings {
        directory: "/nonexistent/spill".into(),
        ..tiny(64, 1, 2)
    };
    let mut sorter = Sorter::new(settings);
    sorter.push(b"a", b"").unwrap();
    let error = sorter.push(b"b", b"").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/nonexistent/spill"), "{error}");
}

#[test]
fn the_spill_file_has_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let settings = SpillSettings {
        directory: directory.path().into(),
        ..tiny(64, 1, 2)
    };
    let mut sorter = Sorter::new(settings);
    for key in 0..10u8 {
        sorter.push(&[key], b"").unwrap();
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    drop(unlinked_file(directory.path()).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_left_over_name_is_stepped_over() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..100 {
        let name = format!(".longhaul-spill-{}-{number}", std::process::id());
        std::fs::write(directory.path().join(name), b"").unwrap();
    }
    unlinked_file(directory.path()).unwrap();
}
