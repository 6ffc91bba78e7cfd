//! Tests a case that no schedule of a whole copy covers: a name of the copy is noted while a backup
//! is made.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use longhaul_proto::backup::Backup;
use longhaul_proto::handshake::Landing;
use longhaul_proto::manifest::TreePath;
use longhaul_storage::forgetting::ForgettingStorage;
use longhaul_storage::roots::OpenRoot;
use longhaul_storage::{Creation, DataMode, Directory};

use super::Backups;
use crate::recv::ReceiveSide;
use crate::recv::landing::{Arrival, Destination, Missing};
use crate::session::{Transfer, TransferSettings};

/// Returns one directory for every path.
struct OnlyRoot(Arc<dyn Directory>);

impl OpenRoot for OnlyRoot {
    fn open_root(&self, _: &std::path::Path) -> std::io::Result<Arc<dyn Directory>> {
        Ok(self.0.clone())
    }

    fn open_following(&self, path: &std::path::Path) -> std::io::Result<Arc<dyn Directory>> {
        self.open_root(path)
    }

    fn make_root(&self, path: &std::path::Path) -> std::io::Result<Arc<dyn Directory>> {
        self.open_root(path)
    }
}

fn receiver(root: &Arc<dyn Directory>) -> Arc<ReceiveSide> {
    let asked = Backup {
        suffix: Some(b"~"[..].into()),
        directory: None,
    };
    let (root, arrival) = (OnlyRoot(root.clone()), Arrival::of_tests());
    let there = Destination::open(&root, b"there/", Landing::Within, Missing::Make, arrival);
    let there = there.unwrap().keeping_backups(Backups::beside(&asked));
    there.take().unwrap();
    Arc::new(ReceiveSide::new(there))
}

fn write(root: &Arc<dyn Directory>, name: &[u8]) {
    let file = root.create_file(name, Creation::New, DataMode::Buffered);
    file.unwrap().write_at(name, 0).unwrap();
}

fn read(root: &Arc<dyn Directory>, name: &[u8]) -> Option<Vec<u8>> {
    let file = root.open_file(name, DataMode::Buffered).ok()?;
    let mut bytes = vec![0; file.status().unwrap().size as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// The other end announces a name of the copy after a backup was given that name. Without hard
/// links the file was not renamed by then, and it stays.
#[test]
fn a_backup_does_not_replace_a_name_that_the_copy_announces_later() {
    let disk = ForgettingStorage::new();
    let root = disk.root();
    for name in [&b"file"[..], b"file~"] {
        write(&root, name);
    }
    let side = receiver(&root);
    let settings = TransferSettings::default();
    let transfer = Transfer::receiving_into(settings, &side, Arc::new(|_| {}));
    let [file, beside] = [&b"file"[..], b"file~"].map(|name| TreePath::new(name).unwrap());
    for is_noted in [true, false] {
        let mut kept = side
            .at_work(&transfer)
            .remover()
            .keep_replaced(&[(side.folders.anchor(), &file)]);
        let kept = kept.pop().unwrap().unwrap();
        if is_noted {
            side.destination.backups.as_ref().unwrap().note(&beside);
        }
        let moved = side.destination.while_owned(|| {
            let place = (file.name(), kept.as_ref());
            side.make_way(side.folders.anchor(), place)
        });
        let moved = moved.unwrap();
        if is_noted {
            let error = moved.unwrap_err().to_string();
            assert!(error.contains("run it again"), "{error}");
            assert_eq!(read(&root, b"file").unwrap(), b"file");
        } else {
            // The next run uses another name.
            assert!(moved.unwrap());
            assert_eq!(read(&root, b"file~~").unwrap(), b"file");
        }
        assert_eq!(read(&root, b"file~").unwrap(), b"file~");
    }
}
