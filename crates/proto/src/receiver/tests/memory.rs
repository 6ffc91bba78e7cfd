//! Bounds of the memory.

use longhaul_units::Moment;

use crate::manifest::{Entry, EntryId, EntryKind, Timestamp, TreePath};
use crate::message::{Message, Outcome};
use crate::receiver::load::NUMBER_BYTES;
use crate::receiver::{
    Compared, MAXIMUM_REMEMBERED_BYTES, Receiver, ReceiverError, ReceiverSettings, StorageJob,
};

fn entry(id: u64, kind: EntryKind, path: &[u8]) -> Entry {
    Entry {
        id: EntryId(id),
        parent: None,
        path: TreePath::new(path).unwrap(),
        kind,
        mode: 0o755,
        modified: Timestamp::default(),
        owner: None,
    }
}

fn long(id: u64) -> Vec<u8> {
    let name = "x".repeat(240);
    let mut names = vec![name.as_str(); 65];
    let first = id.to_string();
    names[0] = &first;
    names.join("/").into_bytes()
}

/// Directories wait for their entries and have paths of the maximum length.
#[test]
fn paths_are_bounded_by_their_bytes() {
    let mut receiver = Receiver::new(ReceiverSettings::default());
    let mut ended = 0;
    let refused = loop {
        let entry = entry(ended, EntryKind::Directory, &long(ended));
        match receiver.handle_message(Message::DirectoryEnd { entry, children: 7 }) {
            Ok(()) => ended += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, ReceiverError::TooMuch);
    let bytes = long(0).len() as u64;
    assert!(ended * bytes < MAXIMUM_REMEMBERED_BYTES as u64);
    assert!(ended > 1000, "{ended}");
}

#[test]
fn done_items_use_no_memory() {
    let mut receiver = Receiver::new(ReceiverSettings::default());
    for id in 0..100 {
        let directory = entry(id, EntryKind::Directory, &long(id));
        // The second message replaces the first.
        for children in [7, 0] {
            let entry = directory.clone();
            receiver
                .handle_message(Message::DirectoryEnd { entry, children })
                .unwrap();
        }
    }
    let link = |id| {
        let target = vec![b't'; 4000];
        entry(id, EntryKind::Symlink { target }, b"link")
    };
    let listed = Message::Entries((100..200).map(link).collect());
    receiver.handle_message(listed).unwrap();
    assert!(receiver.load().bytes > 100 * 16_000);
    while let Some(job) = receiver.poll_storage(Moment(0)) {
        match job {
            StorageJob::FinishDirectory(entry) => {
                receiver.handle_directory(entry, Outcome::Committed { digest: None });
            }
            StorageJob::Compare(entries) => {
                let same = |entry| (entry, Compared::Same(None));
                receiver.handle_compared(entries.into_iter().map(same).collect());
            }
            job => panic!("{job:?}"),
        }
    }
    while receiver.poll_message().is_some() {}
    while receiver.poll_event().is_some() {}
    // One range of finished numbers remains.
    assert_eq!(receiver.load().bytes, NUMBER_BYTES);
}
