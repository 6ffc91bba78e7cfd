//! Another session acts at critical moments: between a check and the gate, and between opening a
//! journal and locking it.

use std::any::Any;
use std::io;
use std::sync::Mutex;

use super::*;
use crate::forgetting::ForgettingStorage;
use crate::{Creation, NameList, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeOpening,
    AfterOpening,
}

type Act = Box<dyn FnOnce() + Send>;

/// A directory that runs a function, once, when a journal is opened.
struct Interrupted {
    inner: Arc<dyn Directory>,
    act: Mutex<Option<(Moment, Act)>>,
}

impl Interrupted {
    fn new(inner: &Arc<dyn Directory>) -> Arc<Interrupted> {
        Arc::new(Interrupted {
            inner: inner.clone(),
            act: Mutex::new(None),
        })
    }

    fn on_opening(&self, moment: Moment, act: impl FnOnce() + Send + 'static) {
        *self.act.lock().unwrap() = Some((moment, Box::new(act)));
    }

    fn reach(&self, moment: Moment) {
        let due = self.act.lock().unwrap().take_if(|(due, _)| *due == moment);
        if let Some((_, act)) = due {
            act();
        }
    }

    fn happened(&self) -> bool {
        self.act.lock().unwrap().is_none()
    }
}

impl Directory for Interrupted {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        self.inner.open_directory(name)
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()> {
        self.inner.make_directory(name, mode)
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        self.inner.open_file(name, mode)
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        if !name.ends_with(b".journal") {
            return self.inner.create_file(name, creation, mode);
        }
        self.reach(Moment::BeforeOpening);
        let file = self.inner.create_file(name, creation, mode);
        self.reach(Moment::AfterOpening);
        file
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        self.inner.make_symlink(name, target)
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        self.inner.read_symlink(name)
    }

    fn rename(&self, from: &[u8], _target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        // The journal renames only within one directory.
        self.inner.rename(from, &*self.inner, to)
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.inner.remove_file(name)
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.inner.remove_directory(name)
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.inner.status_of(name)
    }

    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        self.inner.set_modified_of(name, modified)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.inner.set_mode(mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        self.inner.set_modified(modified)
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        self.inner.list()
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns an owner of the block in the middle, and the directory through which it works.
fn owning() -> (Arc<dyn Directory>, Arc<Interrupted>, Partial) {
    let root = ForgettingStorage::new().root();
    let interrupted = Interrupted::new(&root);
    let seen: Arc<dyn Directory> = interrupted.clone();
    let partial = claim(&seen, FIRST, 1);
    FIRST.receive(&partial, 1).unwrap();
    (root, interrupted, partial)
}

const MOMENTS: [Moment; 2] = [Moment::BeforeOpening, Moment::AfterOpening];

fn is_fenced<T>(result: Result<T, JournalError>) -> bool {
    matches!(result, Err(JournalError::Fenced { .. }))
}

/// Runs `act` as the owner, while `source` takes the file over. The session of `source` continues
/// normally.
fn lose_to(source: Source, moment: Moment, act: impl Fn(&Partial) -> bool) {
    let (root, interrupted, first) = owning();
    let won = Arc::new(Mutex::new(None));
    let (winner, at) = (won.clone(), root.clone());
    interrupted.on_opening(moment, move || {
        let second = claim(&at, source, 2);
        source.receive(&second, 2).unwrap();
        *winner.lock().unwrap() = Some(second);
    });
    assert!(act(&first), "{source:?}, {moment:?}");
    assert!(interrupted.happened());
    assert_eq!(read(&root, NAME), None);
    let second = won.lock().unwrap().take().unwrap();
    source.receive(&second, 0).unwrap();
    drop((first, second));
    let third = claim(&root, source, 3);
    let found = third.recovered();
    assert!(found.contains(&source.durable(0)) && found.contains(&source.durable(2)));
}

#[test]
fn a_fenced_session_makes_no_changes() {
    for source in [FIRST, CHANGED] {
        for moment in MOMENTS {
            lose_to(source, moment, |first| {
                is_fenced(first.append_durable(&[FIRST.durable(2)]))
            });
            lose_to(source, moment, |first| is_fenced(commit(first, 0o644)));
            lose_to(source, moment, |first| is_fenced(first.abandon()));
        }
    }
}

#[test]
fn finishing_spares_the_next_journal() {
    for moment in MOMENTS {
        let (root, interrupted, first) = owning();
        let committed = commit(&first, 0o644).unwrap();
        root.sync().unwrap();
        let (won, at) = (Arc::new(Mutex::new(None)), root.clone());
        let winner = won.clone();
        interrupted.on_opening(moment, move || {
            *winner.lock().unwrap() = Some(claim(&at, OTHER, 2));
        });
        committed.finish().unwrap();
        assert!(interrupted.happened());
        let second = won.lock().unwrap().take().unwrap();
        OTHER.receive(&second, 0).unwrap();
    }
}

#[test]
fn a_claim_of_a_journal_that_goes_begins_anew() {
    for moment in MOMENTS {
        let (root, interrupted, first) = owning();
        interrupted.on_opening(moment, move || first.abandon().unwrap());
        let seen: Arc<dyn Directory> = interrupted.clone();
        let second = claim(&seen, FIRST, 2);
        assert!(interrupted.happened() && second.recovered().is_empty());
        FIRST.receive(&second, 0).unwrap();
        drop(second);
        assert_eq!(claim(&root, FIRST, 3).recovered(), [FIRST.durable(0)]);
    }
}
