//! Tests of the sender as a whole.

mod digests;
mod filtering;
mod lost;
mod queue;

use super::{Sender, SenderSettings};
use crate::filter::{LeftOut, Omitted, Reason};
use crate::manifest::{Entry, EntryId, EntryKind, SourceIdentity, TreePath};
use crate::message::Message;

/// Returns a file of this number and size in bytes.
fn file(id: u64, size: u64) -> Entry {
    Entry {
        id: EntryId(id),
        parent: None,
        path: TreePath::new(format!("file {id}").as_bytes()).unwrap(),
        kind: EntryKind::File {
            identity: SourceIdentity {
                size,
                ..SourceIdentity::default()
            },
            sparse: false,
        },
        mode: 0o644,
        owner: Default::default(),
        modified: Default::default(),
    }
}

#[test]
fn omitted_names_precede_the_end_of_the_walk() {
    let mut sender = Sender::new(SenderSettings::default());
    let omitted = Omitted {
        path: TreePath::new(b"omitted").unwrap(),
        reason: Reason::Rule,
        rule: None,
    };
    sender.work_mut().names_mut().handle_omitted(vec![omitted]);
    sender.work_mut().handle_left_out(LeftOut::default());
    sender.work_mut().handle_walk_end();
    let first = sender.poll_message();
    assert!(matches!(first, Some(Message::Omitted(_))), "{first:?}");
    let second = sender.poll_message();
    assert!(
        matches!(second, Some(Message::WalkEnd { .. })),
        "{second:?}"
    );
}
