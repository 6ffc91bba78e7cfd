//! Removes sources that are durable at the destination, if they did not change since they were
//! read, and only if the copy is known to be in another directory ([`longhaul_proto::distinct`]).

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use longhaul_net::token::fill_random;
use longhaul_proto::distinct::{Probe, Question, SourcesQuestion};
use longhaul_proto::manifest::{Entry, EntryKind, Timestamp, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::{Moved, Sender};
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::names::temporary;
use longhaul_storage::nested::place_of;
use longhaul_storage::{Creation, DataMode, Directory, FileKind, Special, Status};

use super::Sending;
use super::origin::Origins;
use super::source::{Located, NamedLink};
use crate::flows::Flow;
use crate::intents::{Intent, IntentKind, unannounced};

/// Maximum number of pairs of directories, and of files with several names, that are remembered.
const MOST_REMEMBERED: usize = 65_536;

/// A directory of a source, by device and inode, and the directory of the destination that receives
/// its contents.
type Pair = ((u64, u64), Option<TreePath>);

/// Next step of the remover's thread.
enum Step {
    /// Remove these sources.
    Remove(Vec<Moved>),
    /// Search the sources for a probe of the other end.
    Search(SourcesQuestion),
}

/// A probe of this end.
struct Own {
    probe: Probe,
    /// Modification time of its directory before and after the probe was created.
    before: Timestamp,
    after: Timestamp,
}

/// Knowledge of the remover.
#[derive(Default)]
struct Known {
    /// Pairs of directories that are distinct. With an error, only files that this copy wrote are
    /// known to be distinct from their sources; the text is the reason.
    distinct: HashMap<Pair, Result<(), String>>,
    /// Reasons why other pairs may be the same directory.
    doubts: HashMap<Pair, Failure>,
    /// Files of which a name was removed, by device and inode.
    unlinked: HashMap<(u64, u64), Unlinked>,
}

/// Maximum number of remembered removals of names of one file.
const MOST_UNLINKED: usize = 64;

/// Change times of an inode. The removal of a name sets a new one.
struct Unlinked {
    /// Times before names were removed.
    before: Vec<Timestamp>,
    /// Time after the last removal.
    after: Timestamp,
}

impl Sending<'_> {
    /// Runs the remover's thread.
    pub(crate) fn run_remover(&self, flow: &Flow) {
        let mut known = Known::default();
        let poll = |sender: &mut Sender, _| {
            let search = sender.work_mut().searches_mut().poll().map(Step::Search);
            search.or_else(|| sender.work_mut().moves_mut().poll_moved().map(Step::Remove))
        };
        while let Some(step) = self.next_step(flow, poll) {
            let batch = match step {
                Step::Remove(batch) => batch,
                Step::Search(question) => {
                    let result = flow.busy(|| self.search(&question));
                    self.tell(|sender| sender.work_mut().searches_mut().handle_searched(result));
                    continue;
                }
            };
            let unknown = flow.busy(|| self.unknown_pairs(&known, &batch));
            if !unknown.is_empty() {
                self.tell_apart(flow, &mut known, unknown);
            }
            for moved in batch {
                let result = flow.busy(|| self.remove(&mut known, &moved));
                self.tell(|sender| {
                    sender
                        .work_mut()
                        .moves_mut()
                        .handle_moved(moved.entry, result)
                });
            }
        }
    }

    /// Returns pairs of directories of these entries that may be one directory, each with one
    /// entry.
    fn unknown_pairs<'a>(&self, known: &Known, batch: &'a [Moved]) -> Vec<(Pair, &'a Entry)> {
        let mut met = HashSet::new();
        let mut unknown = Vec::new();
        for Moved { entry, .. } in batch {
            // An entry that cannot be opened is not removed; the removal reports the error.
            let Ok(pair) = self.pair_of(entry) else {
                continue;
            };
            if !known.distinct.contains_key(&pair) && met.insert(pair.clone()) {
                unknown.push((pair, entry));
            }
        }
        unknown
    }

    /// Returns the directory from which an entry is removed, and the directory of its copy.
    fn pair_of(&self, entry: &Entry) -> io::Result<Pair> {
        let (directory, _) = self.open_removal(entry)?;
        Ok((place_of(&*directory)?, entry.path.parent()))
    }

    /// Opens the directory from which an entry is removed, and returns the name to remove: the
    /// link's, if the source was named by a link.
    fn open_removal(&self, entry: &Entry) -> io::Result<Located> {
        let sources = &self.side.sources;
        match sources.named_link(entry.id, &entry.path) {
            Some(link) => Ok((link.directory.open()?, link.name.clone())),
            None => sources.open_parent(entry.id, &entry.path),
        }
    }

    /// Creates probes, requests those of the other end and searches for them. If the session ends
    /// meanwhile, the result stays unknown.
    fn tell_apart(&self, flow: &Flow, known: &mut Known, unknown: Vec<(Pair, &Entry)>) {
        let own = || -> Vec<_> {
            let make = |(_, entry): &(Pair, &Entry)| self.make_own(entry);
            unknown.iter().map(make).collect()
        };
        let own = flow.busy(own);
        let questions = unknown.iter().zip(&own);
        let questions = questions.map(|(((_, directory), _), own)| Question {
            directory: directory.clone(),
            probe: own.as_ref().ok().map(|own| own.probe.clone()),
        });
        let asked = self.ask(flow, &unknown, questions.collect());
        let own = unknown.iter().zip(own).map(|((_, entry), own)| {
            let own = own.and_then(|own| self.remove_own(entry, &own));
            own.map_err(|error| error.to_string())
        });
        let own: Vec<_> = own.collect();
        let Some(results) = asked else {
            return;
        };
        for (((pair, _), own), doubt) in unknown.into_iter().zip(own).zip(results) {
            known.note(pair, doubt.map_or(Ok(own), Err));
        }
    }

    /// Returns, for each question, the reason why the directories may be one. `None` if the session
    /// is over.
    fn ask(
        &self,
        flow: &Flow,
        unknown: &[(Pair, &Entry)],
        questions: Vec<Question>,
    ) -> Option<Vec<Option<Failure>>> {
        self.tell(|sender| sender.work_mut().moves_mut().ask_distinct(questions))?;
        let probes = self.next_step(flow, |sender, _| {
            sender.work_mut().moves_mut().poll_probes()
        })?;
        let look = |((pair, entry), probe): (&(Pair, &Entry), Option<Probe>)| match probe {
            Some(probe) => self.look_for(&probe, pair, entry),
            None => Ok(false),
        };
        let looked = || -> Vec<_> { unknown.iter().zip(probes).map(look).collect() };
        let looked = flow.busy(looked);
        let seen = looked.iter().map(|seen| *seen.as_ref().unwrap_or(&true));
        let seen = seen.collect();
        self.tell(|sender| sender.work_mut().moves_mut().handle_seen(seen))?;
        let results = self.next_step(flow, |sender, _| {
            sender.work_mut().moves_mut().poll_distinct()
        })?;
        let results = looked.into_iter().zip(results);
        Some(
            results
                .map(|(looked, told)| looked.err().or(told))
                .collect(),
        )
    }

    /// Creates a probe in the directory from which an entry is removed.
    fn make_own(&self, entry: &Entry) -> io::Result<Own> {
        let (directory, _) = self.open_removal(entry)?;
        let mut random = [0; 16];
        fill_random(&mut random).map_err(io::Error::other)?;
        let random = u128::from_be_bytes(random);
        let probe = Probe {
            session: (random >> 64) as u64,
            number: random as u64,
            landing: None,
            shown: false,
        };
        let before = directory.status()?.modified;
        let name = temporary(probe.session, probe.number);
        directory.create_file(&name, Creation::New, DataMode::Buffered)?;
        let after = directory.status()?.modified;
        Ok(Own {
            probe,
            before,
            after,
        })
    }

    /// Removes this end's probe. If another process removed it, it proves no difference.
    fn remove_own(&self, entry: &Entry, own: &Own) -> io::Result<()> {
        let (directory, _) = self.open_removal(entry)?;
        let now = directory.status()?.modified;
        directory.remove_file(&temporary(own.probe.session, own.probe.number))?;
        // Keep the modification time that others set meanwhile: perhaps no source is removed from
        // the directory, and the other end may have finished it as the directory of the copy.
        let modified = if now == own.after { own.before } else { now };
        let _ = directory.set_modified(modified);
        Ok(())
    }

    /// True if the directory from which an entry is removed contains a probe of the other end, or
    /// if the destination's directory contained this end's probe.
    fn look_for(&self, probe: &Probe, pair: &Pair, entry: &Entry) -> Result<bool, Failure> {
        let failed = |error: io::Error| {
            failure_of(
                "tell the source from its copy",
                &entry.path.to_string(),
                &error,
            )
        };
        let (directory, name) = self.open_removal(entry).map_err(failed)?;
        if place_of(&*directory).map_err(failed)? != pair.0 {
            return Err(failed(io::Error::other("it was moved meanwhile")));
        }
        let probed = temporary(probe.session, probe.number);
        match directory.status_of(&probed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !probe.shown => Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => {
                let landing = probe.landing.as_deref();
                let other = landing.is_some_and(|landing| is_other(&*directory, &name, landing));
                Ok(!other)
            }
        }
    }

    fn remove(&self, known: &mut Known, moved: &Moved) -> Result<(), Failure> {
        let entry = &moved.entry;
        let shown = entry.path.to_string();
        let failed = |error: io::Error| {
            let failure = failure_of("remove the source", &shown, &error);
            let text = format!("{} (it was copied)", failure.text);
            Failure::new(failure.kind, text)
        };
        let (parent, name) = self.open_removal(entry).map_err(failed)?;
        let pair = (place_of(&*parent).map_err(failed)?, entry.path.parent());
        if !known.proves(&pair, moved)? {
            // The session is over. The next one finds the copy complete and removes the source.
            return Ok(());
        }
        let sources = &self.side.sources;
        let changed = || {
            let text = format!(
                "{shown}: it was copied, and then changed at the source, where it stays: run the \
                 same command again"
            );
            Failure::new(FailureKind::Changing, text)
        };
        let origins = &self.side.origins;
        if let Some(link) = sources.named_link(entry.id, &entry.path) {
            let target = sources.open_parent(entry.id, &entry.path);
            let (above, target) = target.map_err(failed)?;
            let same = known.is_same(origins, (&*above, &target), entry);
            let same = same.and_then(|same| Ok(same && is_link(&*parent, link)?));
            return if same.map_err(failed)? {
                announce_removal(self, (&*parent, &name), entry)?;
                let removed = parent.remove_file(&name).map_err(failed);
                removed.inspect(|()| note_removed(self, entry))
            } else {
                Err(changed())
            };
        }
        let same = known.is_same(origins, (&*parent, &name), entry);
        if same.map_err(failed)? {
            announce_removal(self, (&*parent, &name), entry)?;
            let removed = known.remove((&*parent, &name), entry).map_err(failed);
            removed.inspect(|()| note_removed(self, entry))
        } else {
            Err(changed())
        }
    }
}

fn note_removed(sending: &Sending<'_>, entry: &Entry) {
    if let Some(intents) = &sending.side.intents {
        intents.note_removed_source(&entry.path);
    }
}

/// Announces the removal of a source.
fn announce_removal(
    sending: &Sending<'_>,
    (parent, name): (&dyn Directory, &[u8]),
    entry: &Entry,
) -> Result<(), Failure> {
    let Some(intents) = &sending.side.intents else {
        return Ok(());
    };
    let host_path = parent.location();
    let intent = Intent {
        kind: IntentKind::RemoveSource,
        path: entry.path.clone(),
        host_path: host_path.map(|path| path.join(OsStr::from_bytes(name))),
        size: entry.size(),
        inode: parent.status_of(name).ok().map(|status| status.inode),
    };
    let announced = intents.announce(&[intent]);
    announced.map_err(|error| unannounced(&entry.path, &error))
}

impl Known {
    /// Records that a pair of directories is distinct, or a reason for doubt.
    fn note(&mut self, pair: Pair, told: Result<Result<(), String>, Failure>) {
        if self.distinct.len() >= MOST_REMEMBERED {
            self.distinct.clear();
        }
        if self.doubts.len() >= MOST_REMEMBERED {
            self.doubts.clear();
        }
        match told {
            Ok(reverse) => {
                self.doubts.remove(&pair);
                self.distinct.insert(pair, reverse);
            }
            Err(doubt) => {
                self.doubts.insert(pair, doubt);
            }
        }
    }

    /// True if a copy is known to be another file than its source; false if that is unknown.
    ///
    /// # Errors
    ///
    /// The reason why they may be the same file.
    fn proves(&self, pair: &Pair, moved: &Moved) -> Result<bool, Failure> {
        let shown = &moved.entry.path;
        let stays = |kind: FailureKind, why: &str| {
            let text = format!("{shown}: stays at the source: {why}");
            Err(Failure::new(kind, text))
        };
        match (self.distinct.get(pair), self.doubts.get(pair)) {
            (Some(Ok(())), _) => Ok(true),
            (Some(Err(_)), _) if moved.written => Ok(true),
            (Some(Err(why)), _) => {
                let why = format!(
                    "the file at the destination may be the same one, since no file can be made \
                     next to the source to prove that it is not: {why}"
                );
                stays(FailureKind::Other, &why)
            }
            (None, Some(doubt)) => stays(doubt.kind, &doubt.text),
            (None, None) => Ok(false),
        }
    }

    /// True if a file is unchanged since it was read. The removal of another of its names is not a
    /// change of the file's data.
    fn is_same(
        &self,
        origins: &Origins,
        (parent, name): (&dyn Directory, &[u8]),
        entry: &Entry,
    ) -> io::Result<bool> {
        let EntryKind::File { identity, .. } = &entry.kind else {
            return is_same_other((parent, name), entry);
        };
        let file = parent.open_file(name, DataMode::Buffered)?;
        let mut status = file.status()?;
        let unlinked = self.unlinked.get(&(status.device, status.inode));
        let only_unlinked = |unlinked: &Unlinked| {
            unlinked.after == status.changed && unlinked.before.contains(&identity.changed)
        };
        if unlinked.is_some_and(only_unlinked) {
            status.changed = identity.changed;
        }
        Ok(*identity == origins.identity_of(&status))
    }

    /// Removes a name that is unchanged since it was read.
    fn remove(&mut self, (parent, name): (&dyn Directory, &[u8]), entry: &Entry) -> io::Result<()> {
        if !matches!(entry.kind, EntryKind::File { .. }) {
            return parent.remove_file(name);
        }
        let file = parent.open_file(name, DataMode::Buffered)?;
        let before = file.status()?;
        parent.remove_file(name)?;
        if before.names > 1 {
            let after = file.status()?;
            self.note_unlinked(&before, &after);
        }
        Ok(())
    }

    /// Records that a file lost one of its names.
    fn note_unlinked(&mut self, before: &Status, after: &Status) {
        let place = (after.device, after.inode);
        let known = self.unlinked.remove(&place);
        if !is_unlinked(before, after) || self.unlinked.len() >= MOST_REMEMBERED {
            return;
        }
        let known = known.filter(|known| known.after == before.changed);
        let mut times = known.map_or_else(Vec::new, |known| known.before);
        if times.len() >= MOST_UNLINKED {
            times.remove(0);
        }
        times.push(before.changed);
        let after = after.changed;
        self.unlinked.insert(
            place,
            Unlinked {
                before: times,
                after,
            },
        );
    }
}

/// True if the removal of one name is the only change of a file.
fn is_unlinked(before: &Status, after: &Status) -> bool {
    let changed = after.changed;
    let names = before.names.saturating_sub(1);
    *after
        == Status {
            changed,
            names,
            ..*before
        }
}

/// True if the entry under another name in the same directory is another file.
fn is_other(directory: &dyn Directory, name: &[u8], landing: &[u8]) -> bool {
    let place = |name: &[u8]| {
        let status = directory.status_of(name)?;
        Ok::<_, io::Error>((status.device, status.inode))
    };
    let is_name = TreePath::new(landing).is_ok_and(|path| path.names().count() == 1);
    is_name && matches!((place(name), place(landing)), (Ok(a), Ok(b)) if a != b)
}

/// True if a link is the same as when it was named as a source.
fn is_link(directory: &dyn Directory, link: &NamedLink) -> io::Result<bool> {
    let status = directory.status_of(&link.name)?;
    Ok(status.kind == FileKind::Symlink && directory.read_symlink(&link.name)? == link.target)
}

/// True if an entry that is not a file is unchanged since it was read.
fn is_same_other((parent, name): (&dyn Directory, &[u8]), entry: &Entry) -> io::Result<bool> {
    match &entry.kind {
        // Copies with hard links are not moved.
        EntryKind::Directory | EntryKind::HardLink { .. } | EntryKind::File { .. } => Ok(false),
        EntryKind::Special { kind, major, minor } => {
            let device = (*major, *minor);
            let special = Special {
                kind: *kind,
                device,
            };
            Ok(parent.status_of(name)?.special == Some(special))
        }
        EntryKind::Symlink { target } => {
            let status = parent.status_of(name)?;
            Ok(status.kind == FileKind::Symlink
                && status.modified == entry.modified
                && *parent.read_symlink(name)? == target[..])
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use longhaul_proto::manifest::{EntryId, SpecialKind};
    use longhaul_storage::forgetting::ForgettingStorage;
    use longhaul_storage::posix::PosixDirectory;

    use super::*;

    fn write(root: &Arc<dyn Directory>, name: &[u8], creation: Creation) {
        let file = root.create_file(name, creation, DataMode::Buffered);
        file.unwrap().write_at(b"data", 0).unwrap();
    }

    /// Returns the entry as read with this name.
    fn entry(root: &Arc<dyn Directory>, name: &[u8]) -> Entry {
        let status = root.status_of(name).unwrap();
        let kind = match status.kind {
            FileKind::Symlink => EntryKind::Symlink {
                target: root.read_symlink(name).unwrap().into(),
            },
            _ => Origins::default().kind_of(&status),
        };
        Entry {
            id: EntryId(0),
            parent: None,
            path: TreePath::new(name).unwrap(),
            kind,
            mode: status.mode,
            modified: status.modified,
            owner: None,
        }
    }

    fn is_still(root: &Arc<dyn Directory>, entry: &Entry) -> bool {
        let place = (&**root, entry.path.name());
        let known = Known::default();
        known
            .is_same(&Origins::default(), place, entry)
            .unwrap_or(false)
    }

    /// Makes each change that may happen between the last check and the removal.
    #[test]
    fn only_the_version_that_was_read_is_removed() {
        let root = ForgettingStorage::new().root();
        let make = |name: &[u8]| match name {
            b"file" => write(&root, name, Creation::New),
            _ => root.make_symlink(name, b"here").unwrap(),
        };
        let rewrite = || write(&root, b"file", Creation::Existing);
        let time = |name: &[u8]| {
            let then = root.status_of(name).unwrap().modified;
            let later = longhaul_proto::manifest::Timestamp {
                seconds: then.seconds + 1,
                ..then
            };
            root.set_modified_of(name, later).unwrap();
        };
        let replace = |name: &[u8], target: Option<&[u8]>| {
            let before = root.status_of(name).unwrap().modified;
            root.remove_file(name).unwrap();
            match target {
                Some(target) => root.make_symlink(name, target).unwrap(),
                None => write(&root, name, Creation::New),
            }
            // The replacement has the same modification time.
            root.set_modified_of(name, before).unwrap();
        };
        let changes: [(&[u8], &dyn Fn()); 7] = [
            (b"file", &rewrite),
            (b"file", &|| time(b"file")),
            (b"file", &|| replace(b"file", None)),
            (b"file", &|| replace(b"file", Some(b"here"))),
            (b"link", &|| time(b"link")),
            (b"link", &|| replace(b"link", Some(b"there"))),
            (b"link", &|| replace(b"link", None)),
        ];
        for (number, (name, change)) in changes.into_iter().enumerate() {
            make(name);
            let read = entry(&root, name);
            assert!(is_still(&root, &read), "{number}");
            change();
            assert!(!is_still(&root, &read), "{number}");
            root.remove_file(name).unwrap();
            assert!(!is_still(&root, &read), "{number}");
        }
    }

    #[test]
    fn directories_and_other_names_are_not_removed() {
        let root = ForgettingStorage::new().root();
        write(&root, b"file", Creation::New);
        let file = entry(&root, b"file");
        let further = EntryKind::HardLink {
            target: file.path.clone(),
            first: EntryId(0),
        };
        let device = EntryKind::Special {
            kind: SpecialKind::Fifo,
            major: 0,
            minor: 0,
        };
        for kind in [EntryKind::Directory, further, device] {
            let entry = Entry {
                kind,
                ..file.clone()
            };
            assert!(!is_still(&root, &entry), "{entry:?}");
        }
    }

    /// The removal of one name changes the inode that other names share.
    #[test]
    fn every_name_of_a_file_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let root = PosixDirectory::open_root(place.path()).unwrap();
        let root: Arc<dyn Directory> = root;
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("a"), "data").unwrap();
        for name in ["b", "c"] {
            std::fs::hard_link(path("a"), path(name)).unwrap();
        }
        let names = [b"a", b"b", b"c"].map(|name| (name, entry(&root, name)));
        let mut known = Known::default();
        let origins = Origins::default();
        for (number, (name, read)) in names.into_iter().enumerate() {
            let place = (&*root, &name[..]);
            if number == 2 {
                std::fs::write(path("c"), "more").unwrap();
                assert!(!known.is_same(&origins, place, &read).unwrap());
                continue;
            }
            assert!(known.is_same(&origins, place, &read).unwrap(), "{number}");
            known.remove(place, &read).unwrap();
            assert!(root.status_of(name).is_err());
        }
    }

    #[test]
    fn another_name_in_one_directory_is_another_file_if_its_inode_is() {
        let place = tempfile::tempdir().unwrap();
        let root = PosixDirectory::open_root(place.path()).unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("a"), "data").unwrap();
        std::fs::write(path("b"), "data").unwrap();
        std::fs::hard_link(path("a"), path("c")).unwrap();
        assert!(is_other(&*root, b"a", b"b"));
        for landing in [&b"a"[..], b"c", b"missing", b"./b", b"../b", b""] {
            assert!(!is_other(&*root, b"a", landing), "{landing:?}");
        }
    }
}
