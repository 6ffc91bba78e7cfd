use super::*;
use crate::forgetting::ForgettingStorage;
use crate::{Creation, DataMode, FileKind};

fn empty_file() -> Arc<dyn StoredFile> {
    let storage = ForgettingStorage::new();
    let root = storage.root();
    root.create_file(b"digests", Creation::New, DataMode::Buffered)
        .unwrap()
}

fn open(file: &Arc<dyn StoredFile>) -> KeptDigests {
    KeptDigests::open(Arc::clone(file), &std::env::temp_dir()).unwrap()
}

fn status(inode: u64) -> Status {
    Status {
        kind: FileKind::File,
        mode: 0o644,
        size: 7,
        allocated: 4096,
        device: 1,
        inode,
        modified: Default::default(),
        owner: Default::default(),
        changed: Default::default(),
        names: 1,
        special: None,
    }
}

fn state(number: u64) -> FileState {
    FileState::new(
        format!("data/{number}").as_bytes(),
        &SourceIdentity::default(),
        &status(number),
    )
}

fn digest(number: u64) -> [u8; 32] {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}

#[test]
fn digests_of_earlier_sessions_are_found() {
    let file = empty_file();
    for session in 0..3_u64 {
        let kept = open(&file);
        for number in 0..session * 2000 {
            assert_eq!(kept.find(&state(number)), Some(digest(number)));
        }
        assert_eq!(kept.find(&state(session * 2000)), None);
        let new: Vec<_> = (session * 2000..(session + 1) * 2000)
            .map(|number| (state(number), digest(number)))
            .collect();
        for batch in new.chunks(64) {
            kept.append(batch);
        }
    }
}

#[test]
fn another_state_of_a_file_is_not_found() {
    let file = empty_file();
    open(&file).append(&[(state(1), digest(1))]);
    let kept = open(&file);
    assert_eq!(kept.find(&state(1)), Some(digest(1)));
    let was = status(1);
    let mut later = was.modified;
    later.nanoseconds += 1;
    let others = [
        Status { inode: 2, ..was },
        Status { size: 8, ..was },
        Status {
            modified: later,
            ..was
        },
        Status {
            changed: later,
            ..was
        },
    ];
    let source = SourceIdentity::default();
    for other in others {
        assert_eq!(kept.find(&FileState::new(b"data/1", &source, &other)), None);
    }
    assert_eq!(kept.find(&FileState::new(b"data/2", &source, &was)), None);
    // The digest is not found either if the source has another state.
    for changed in [
        SourceIdentity { inode: 3, ..source },
        SourceIdentity { size: 8, ..source },
        SourceIdentity {
            modified: later,
            ..source
        },
        SourceIdentity {
            changed: later,
            ..source
        },
    ] {
        assert_eq!(kept.find(&FileState::new(b"data/1", &changed, &was)), None);
    }
}

#[test]
fn a_record_that_is_not_valid_costs_itself_only() {
    let file = empty_file();
    let kept = open(&file);
    kept.append(&[(state(0), digest(0)), (state(1), digest(1))]);
    kept.append(&[(state(2), digest(2))]);
    // Only a part of the second append reached the disk, and the last record is torn.
    file.write_at(&[0; 40], RECORD_BYTES as u64).unwrap();
    file.set_length(3 * RECORD_BYTES as u64 - 1).unwrap();
    let kept = open(&file);
    assert_eq!(kept.find(&state(0)), Some(digest(0)));
    assert_eq!(kept.find(&state(1)), None);
    assert_eq!(kept.find(&state(2)), None);
    kept.append(&[(state(3), digest(3))]);
    let kept = open(&file);
    assert_eq!(kept.find(&state(0)), Some(digest(0)));
    assert_eq!(kept.find(&state(3)), Some(digest(3)));
}

#[test]
fn files_with_equal_hash_prefixes_are_distinguished() {
    let alike = |last: u8| {
        let mut bytes = [0xff; FILE_BYTES];
        bytes[FILE_BYTES - 1] = last;
        FileState(bytes)
    };
    let file = empty_file();
    let all: Vec<_> = (0..40).map(|n| (alike(n), digest(n.into()))).collect();
    open(&file).append(&all);
    let kept = open(&file);
    for (state, digest) in all {
        assert_eq!(kept.find(&state), Some(digest));
    }
    assert_eq!(kept.find(&alike(40)), None);
}

#[test]
fn digests_beyond_the_bound_are_removed() {
    let file = empty_file();
    let kept = open(&file);
    kept.append(&[(state(0), digest(0)), (state(1), digest(1))]);
    kept.forget_beyond(2);
    assert_eq!(open(&file).find(&state(1)), Some(digest(1)));
    let kept = open(&file);
    kept.append(&[(state(2), digest(2))]);
    kept.forget_beyond(2);
    assert_eq!(kept.find(&state(1)), None);
    assert_eq!(file.status().unwrap().size, 0);
    // Appending continues from there.
    kept.append(&[(state(3), digest(3))]);
    assert_eq!(open(&file).find(&state(3)), Some(digest(3)));
}

#[test]
fn a_record_is_valid_in_its_place_only() {
    let record = encode(&state(1), &digest(1), 64);
    assert_eq!(decode(&record, 64), Some((state(1), digest(1))));
    assert_eq!(decode(&record, 128), None);
    let mut other = record;
    other[30] ^= 1;
    assert_eq!(decode(&other, 64), None);
}

fn command(number: u64) -> FileState {
    let source = SourceIdentity::default();
    FileState::of_command(format!("data/{number}").as_bytes(), &source)
}

#[test]
fn the_last_record_decides_if_a_command_is_to_run() {
    let file = empty_file();
    let kept = open(&file);
    let all: Vec<FileState> = (0..500).map(command).collect();
    kept.await_commands(&all).unwrap();
    kept.append(&[(state(1), digest(1))]);
    for number in (0..500).step_by(2) {
        kept.end_command(command(number));
    }
    let kept = open(&file);
    for number in 0..500 {
        assert_eq!(kept.awaits_command(&command(number)), number % 2 == 1);
    }
    assert!(!kept.awaits_command(&command(500)));
    assert!(!kept.awaits_command(&state(1)));
    assert_eq!(kept.find(&state(1)), Some(digest(1)));
}

/// The number of interrupted copies does not matter.
#[test]
fn files_that_await_their_command_are_not_forgotten() {
    let file = empty_file();
    for round in 0..5 {
        let kept = open(&file);
        let all: Vec<FileState> = (0..100).map(command).collect();
        kept.await_commands(&all).unwrap();
        for number in 0..100 {
            kept.append(&[(state(number), digest(number))]);
            if number % 10 > 0 {
                kept.end_command(command(number));
            }
        }
        kept.forget_beyond(150);
        assert_eq!(file.status().unwrap().size, 10 * RECORD_BYTES as u64);
        let later = open(&file);
        for number in 0..100 {
            assert_eq!(later.awaits_command(&command(number)), number % 10 == 0);
        }
        assert_eq!(later.find(&state(round)), None);
    }
    // Later records are appended at the right position.
    open(&file).end_command(command(10));
    assert!(!open(&file).awaits_command(&command(10)));
    assert!(open(&file).awaits_command(&command(20)));
}
