//! Converts events of the state machines to the events that observers receive.

use longhaul_proto::criteria::Held;
use longhaul_proto::digest::Checksum;
use longhaul_proto::filter::Omitted;
use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{Change, Failure, FailureKind, Outcome, Removal};
use longhaul_proto::receiver::ReceivedEvent;
use longhaul_proto::sender::{Ending, EntryEvent};

use super::events::Event;

fn is_file(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { .. })
}

fn committed(entry: Entry, digest: Option<Checksum>) -> Event {
    let (size, file) = (entry.size(), is_file(&entry));
    Event::Committed {
        path: entry.path,
        size,
        file,
        digest,
    }
}

/// Returns `None` for an unchanged directory: only its corrected attributes are reported.
fn skipped(entry: Entry, digest: Option<Checksum>) -> Option<Event> {
    let (size, file) = (entry.size(), is_file(&entry));
    (entry.kind != EntryKind::Directory).then_some(Event::Skipped {
        path: entry.path,
        size,
        file,
        digest,
    })
}

fn mended(entry: Entry, digest: Option<Checksum>) -> Event {
    let (size, file) = (entry.size(), is_file(&entry));
    let directory = entry.kind == EntryKind::Directory;
    Event::Mended {
        path: entry.path,
        size,
        file,
        directory,
        digest,
    }
}

fn planned(entry: Entry, change: Change) -> Event {
    let (size, file) = (entry.size(), is_file(&entry));
    let directory = entry.kind == EntryKind::Directory;
    Event::Planned {
        path: entry.path,
        size,
        file,
        directory,
        change,
    }
}

fn left(entry: Entry, held: Held) -> Event {
    let (size, file) = (entry.size(), is_file(&entry));
    Event::Left {
        path: entry.path,
        size,
        file,
        held,
    }
}

fn resumed(entry: Entry, durable: u64) -> Event {
    let size = entry.size();
    Event::Resumed {
        path: entry.path,
        size,
        durable,
    }
}

fn durable(entry: Entry, durable: u64) -> Event {
    let size = entry.size();
    Event::Durable {
        path: entry.path,
        size,
        durable,
    }
}

/// Returns `None` for a message without a path and without a failure.
fn from_removal(removal: Removal) -> Option<Event> {
    let Removal {
        path,
        size,
        directory,
        failure,
    } = removal;
    Some(match (path, failure) {
        (path @ Some(_), Some(failure)) => Event::Failed { path, failure },
        (None, Some(failure)) => Event::Undeleted { failure },
        (Some(path), None) => Event::Deleted {
            path,
            size,
            directory,
            planned: false,
        },
        (None, None) => return None,
    })
}

/// Converts an entry that a walk left out.
pub(crate) fn from_omitted(omitted: Omitted) -> Event {
    let Omitted { path, reason, rule } = omitted;
    Event::Omitted { path, reason, rule }
}

/// Converts an event of the sender; `None` if observers do not receive it.
pub(super) fn from_sender(event: EntryEvent) -> Option<Event> {
    let (entry, ending) = match event {
        EntryEvent::Ended { entry, ending } => (entry, ending),
        EntryEvent::Resumed { entry, bytes } => return Some(resumed(entry, bytes)),
        EntryEvent::Durable { entry, bytes } => return Some(durable(entry, bytes)),
        EntryEvent::Removed(removal) => return from_removal(removal),
        EntryEvent::Damaged {
            entry,
            piece,
            entries,
        } => {
            return Some(Event::Damaged {
                path: entry.path,
                piece,
                entries,
            });
        }
    };
    Some(match ending {
        Ending::Committed(digest) => committed(entry, digest),
        Ending::Skipped(digest) => return skipped(entry, digest),
        Ending::Mended(digest) => mended(entry, digest),
        Ending::Planned(change) => planned(entry, change),
        Ending::LeftOut => return None,
        Ending::Left(held) => left(entry, held),
        Ending::Failed(failure) => Event::Failed {
            path: Some(entry.path),
            failure,
        },
    })
}

/// Converts an event of the receiver; `None` if observers do not receive it.
pub(super) fn from_receiver(event: ReceivedEvent) -> Option<Event> {
    let (entry, outcome, digest) = match event {
        ReceivedEvent::Ended {
            entry,
            outcome,
            digest,
            ..
        } => (entry, outcome, digest),
        ReceivedEvent::Resumed { entry, bytes } => return Some(resumed(entry, bytes)),
        ReceivedEvent::Durable { entry, bytes } => return Some(durable(entry, bytes)),
        ReceivedEvent::Removed(removal) => return from_removal(removal),
        ReceivedEvent::Omitted(omitted) => return Some(from_omitted(omitted)),
    };
    Some(match (entry, outcome) {
        (Some(entry), Some(Outcome::Committed { digest })) => committed(entry, digest),
        (entry, Some(Outcome::Failed(failure))) => Event::Failed {
            path: entry.map(|entry| entry.path),
            failure,
        },
        (Some(entry), Some(Outcome::Mended)) => mended(entry, digest),
        (Some(entry), Some(Outcome::Planned(Some(change)))) => planned(entry, change),
        (Some(entry), Some(Outcome::Left(held))) => left(entry, held),
        (Some(entry), Some(Outcome::Planned(None) | Outcome::Unchanged) | None) => {
            return skipped(entry, digest);
        }
        (Some(_), Some(Outcome::LeftOut)) => return None,
        (None, _) => Event::Failed {
            path: None,
            failure: Failure::new(FailureKind::Other, "unknown entry"),
        },
    })
}
