//! What is in a directory, looked at before the walk comes to it where each look takes long.

use std::collections::VecDeque;
use std::io;

use longhaul_proto::manifest::RESERVED_PREFIX;

use crate::looks::Pace;
use crate::storage::listing::SortedListing;
use crate::storage::{Directory, Status};

/// Names looked at together. Each directory above has so many that wait.
const AHEAD: usize = 128;

/// Directories within each other in which names wait.
const MOST_DEPTH: usize = 64;

/// A name in a directory, and what it is.
pub(super) struct Looked {
    pub name: Box<[u8]>,
    pub status: io::Result<Status>,
}

/// The names of a directory in the order of their bytes, but for longhaul's own.
pub(super) struct Ahead {
    listing: SortedListing,
    waiting: VecDeque<io::Result<Looked>>,
    most: usize,
}

impl Ahead {
    /// Of a directory within `depth` others.
    ///
    /// # Errors
    ///
    /// As [`SortedListing::open_nested`].
    pub fn open(directory: &dyn Directory, depth: usize) -> io::Result<Ahead> {
        Ok(Ahead {
            listing: SortedListing::open_nested(directory, depth)?,
            waiting: VecDeque::new(),
            most: if depth < MOST_DEPTH { AHEAD } else { 1 },
        })
    }

    /// The next name; none at the end.
    ///
    /// # Errors
    ///
    /// As the listing has it.
    pub fn next(&mut self, directory: &dyn Directory, pace: &Pace) -> Option<io::Result<Looked>> {
        if let Some(waiting) = self.waiting.pop_front() {
            return Some(waiting);
        }
        if pace.is_slow() {
            self.look(directory, pace);
            return self.waiting.pop_front();
        }
        let name = match self.next_name()? {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        let status = pace.time(|| directory.status_of(&name));
        Some(Ok(Looked { name, status }))
    }

    fn look(&mut self, directory: &dyn Directory, pace: &Pace) {
        let (mut names, mut failed) = (Vec::new(), None);
        while names.len() < self.most && failed.is_none() {
            match self.next_name() {
                Some(Ok(name)) => names.push(name),
                Some(Err(error)) => failed = Some(Err(error)),
                None => break,
            }
        }
        let found = pace.look(&names, |name| directory.status_of(name));
        let looked = names.into_iter().zip(found);
        self.waiting
            .extend(looked.map(|(name, status)| Ok(Looked { name, status })));
        self.waiting.extend(failed);
    }

    fn next_name(&mut self) -> Option<io::Result<Box<[u8]>>> {
        loop {
            match self.listing.next()? {
                Ok(listed) if listed.name.starts_with(RESERVED_PREFIX) => {}
                listed => return Some(listed.map(|listed| listed.name)),
            }
        }
    }
}
