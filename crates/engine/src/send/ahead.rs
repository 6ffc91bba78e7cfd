//! Queries the status of a directory's entries before the walk reaches them, on slow file systems.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use longhaul_proto::manifest::RESERVED_PREFIX;
use longhaul_storage::fan_out::Pace;
use longhaul_storage::listing::SortedListing;
use longhaul_storage::{Directory, FileKind, Status};

/// Number of names queried together. Each parent directory has as many that wait.
const AHEAD: usize = 128;

/// Maximum depth of directories in which names wait.
const MOST_DEPTH: usize = 64;

/// Age after which a status must be queried again.
const STALE: Duration = Duration::from_secs(1);

/// A name in a directory, and its status.
pub(super) struct Looked {
    pub name: Box<[u8]>,
    pub status: io::Result<Status>,
}

impl Looked {
    /// Queries the status of a directory again, as late as possible before it may be entered.
    fn fresh(self, above: &dyn Directory) -> Looked {
        let enters = |status: &Status| status.kind == FileKind::Directory;
        let status = if self.status.as_ref().is_ok_and(enters) {
            above.status_of(&self.name)
        } else {
            self.status
        };
        Looked { status, ..self }
    }
}

/// Names of a directory in byte order, except those reserved by longhaul.
pub(super) struct Ahead {
    names: Names,
    waiting: VecDeque<io::Result<Looked>>,
    /// Time when the waiting names were queried.
    looked: Instant,
    most: usize,
}

/// Origin of the names.
enum Names {
    Listed(SortedListing),
    /// Names that were known before.
    Known(std::vec::IntoIter<Box<[u8]>>),
}

impl Ahead {
    /// Returns these names alone, in this order.
    pub fn of(names: Vec<Box<[u8]>>) -> Ahead {
        Ahead::with(Names::Known(names.into_iter()), AHEAD)
    }

    /// Lists a directory at a nesting `depth`.
    ///
    /// # Errors
    ///
    /// Errors of [`SortedListing::open_nested`].
    pub fn open(directory: &dyn Directory, depth: usize) -> io::Result<Ahead> {
        let names = Names::Listed(SortedListing::open_nested(directory, depth)?);
        Ok(Ahead::with(
            names,
            if depth < MOST_DEPTH { AHEAD } else { 1 },
        ))
    }

    fn with(names: Names, most: usize) -> Ahead {
        Ahead {
            names,
            waiting: VecDeque::new(),
            looked: Instant::now(),
            most,
        }
    }

    /// Returns the next name; `None` at the end.
    ///
    /// # Errors
    ///
    /// Errors of the listing.
    pub fn next(&mut self, directory: &dyn Directory, pace: &Pace) -> Option<io::Result<Looked>> {
        if !self.waiting.is_empty() && self.looked.elapsed() > STALE {
            self.look_again(directory, pace);
        }
        if self.waiting.is_empty() && pace.is_slow() {
            self.look_ahead(directory, pace);
        }
        if let Some(waiting) = self.waiting.pop_front() {
            return Some(waiting.map(|looked| looked.fresh(directory)));
        }
        let name = match self.next_name()? {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        let status = pace.time(|| directory.content_status_of(&name));
        Some(Ok(Looked { name, status }))
    }

    /// True if the next name was looked at already.
    pub fn has_looked(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn look_ahead(&mut self, directory: &dyn Directory, pace: &Pace) {
        let (mut names, mut failed) = (Vec::new(), None);
        while names.len() < self.most && failed.is_none() {
            match self.next_name() {
                Some(Ok(name)) => names.push(name),
                Some(Err(error)) => failed = Some(Err(error)),
                None => break,
            }
        }
        self.look(names, directory, pace);
        self.waiting.extend(failed);
    }

    /// Queries the waiting names again. Errors of the listing stay.
    fn look_again(&mut self, directory: &dyn Directory, pace: &Pace) {
        let (looked, failed): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(Result::is_ok);
        let names = looked.into_iter().flatten().map(|looked| looked.name);
        self.look(names.collect(), directory, pace);
        self.waiting.extend(failed);
    }

    fn look(&mut self, names: Vec<Box<[u8]>>, directory: &dyn Directory, pace: &Pace) {
        self.looked = Instant::now();
        let found = pace.look(&names, |name| directory.content_status_of(name));
        let looked = names.into_iter().zip(found);
        self.waiting
            .extend(looked.map(|(name, status)| Ok(Looked { name, status })));
    }

    fn next_name(&mut self) -> Option<io::Result<Box<[u8]>>> {
        loop {
            let listing = match &mut self.names {
                Names::Listed(listing) => listing,
                Names::Known(names) => return names.next().map(Ok),
            };
            match listing.next()? {
                Ok(listed) if listed.name.starts_with(RESERVED_PREFIX) => {}
                listed => return Some(listed.map(|listed| listed.name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_storage::posix::PosixDirectory;

    use super::*;

    #[test]
    fn names_are_in_order_with_every_kind_of_lookup() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::write(place.path().join(format!("f{number:03}")), b"").unwrap();
        }
        std::fs::create_dir(place.path().join("f150d")).unwrap();
        std::fs::write(place.path().join(".longhaul-x"), b"").unwrap();
        let root = PosixDirectory::open_root(place.path()).unwrap();
        for slow in [false, true] {
            let pace = Pace::default();
            let mut ahead = Ahead::open(&*root, 0).unwrap();
            let mut found = Vec::new();
            loop {
                while pace.is_slow() != slow {
                    // tidy: a slow file system
                    // tidy: reason: a slow lookup.
                    pace.time(|| std::thread::sleep(Duration::from_micros(300)));
                }
                let Some(looked) = ahead.next(&*root, &pace) else {
                    break;
                };
                let looked = looked.unwrap();
                found.push(String::from_utf8(looked.name.into()).unwrap());
                let enters = looked.status.unwrap().kind == FileKind::Directory;
                assert_eq!(enters, found.last().unwrap().ends_with('d'));
                if found.len() == 10 {
                    ahead.look_again(&*root, &pace);
                }
            }
            assert_eq!(found.len(), 301);
            assert!(found.is_sorted());
        }
    }
}
