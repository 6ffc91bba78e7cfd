//! Objects that were found, until they are opened.
//!
//! The walk finds objects in the order of their names, and the readers open them in about the same
//! order. Small objects that follow an opened one are therefore fetched ahead.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use longhaul_proto::manifest::Timestamp;
use longhaul_stores::store::{Found, Object, Store};
use longhaul_system::queue::lock;

use super::fetcher::Fetcher;
use super::parts::{PART_BYTES, Parts};
use super::whole::Whole;

/// Maximum number of objects that are known. Each needs about 300 bytes.
const MOST_KNOWN: usize = 1 << 16;

/// Maximum size of objects that are fetched ahead.
const SMALL_BYTES: u64 = PART_BYTES;

/// Maximum number of objects that are fetched ahead at a time.
const MOST_AHEAD: usize = 48;

/// Maximum number of objects of unknown size that are kept in files.
const MOST_WHOLE: usize = 64;

/// Objects of a server.
pub struct Known {
    store: Arc<dyn Store>,
    fetcher: Arc<Fetcher>,
    /// Time of entries whose server tells none. It makes them newer than all copies.
    pub started: Timestamp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Vec<u8>, Entry>,
    /// Paths of objects that are fetched ahead.
    ahead: BTreeSet<Vec<u8>>,
    whole: BTreeMap<Vec<u8>, Arc<Whole>>,
}

struct Entry {
    object: Object,
    is_opened: bool,
    ahead: Option<Arc<Parts>>,
}

/// The data of an opened object.
pub enum Data {
    /// Data that are fetched in parts.
    Parts(Arc<Parts>),
    /// Data that have arrived.
    Whole(Object, Arc<Whole>),
}

impl Known {
    /// Knows no object yet.
    pub fn new(store: Arc<dyn Store>, started: Timestamp) -> Known {
        Known {
            store,
            fetcher: Arc::default(),
            started,
            state: Mutex::default(),
        }
    }

    /// Returns the server.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Finds the entry at a path, and remembers an object until it is opened. If the server tells
    /// no size, `measures` fetches the object to find it.
    ///
    /// # Errors
    ///
    /// The server cannot answer.
    pub fn find(&self, path: &[u8], measures: bool) -> io::Result<Option<Found>> {
        let mut found = self.store.find(path)?;
        if let Some(Found::Object(object)) = &mut found {
            if object.size.is_none() && measures {
                object.size = Some(self.fetch_whole(path, object)?.size);
            }
            self.remember(path, object);
        }
        Ok(found)
    }

    fn remember(&self, path: &[u8], object: &Object) {
        let mut state = lock(&self.state);
        if state.objects.len() >= MOST_KNOWN {
            state.objects.pop_first();
        }
        if let Some(known) = state.objects.get_mut(path) {
            if known.object == *object && known.ahead.is_some() {
                return;
            }
            state.ahead.remove(path);
        }
        let entry = Entry {
            object: object.clone(),
            is_opened: false,
            ahead: None,
        };
        state.objects.insert(path.to_vec(), entry);
    }

    /// Forgets an object, which has changed.
    pub fn forget(&self, path: &[u8]) {
        let mut state = lock(&self.state);
        state.objects.remove(path);
        state.ahead.remove(path);
        state.whole.remove(path);
    }

    fn fetch_whole(&self, path: &[u8], object: &Object) -> io::Result<Arc<Whole>> {
        let whole = Arc::new(Whole::fetch(&*self.store, path, object)?);
        let mut state = lock(&self.state);
        if state.whole.len() >= MOST_WHOLE {
            state.whole.pop_first();
        }
        state.whole.insert(path.to_vec(), Arc::clone(&whole));
        Ok(whole)
    }

    /// Opens the object at a path.
    ///
    /// # Errors
    ///
    /// `NotFound` or `InvalidInput` if there is no object, or the server cannot answer.
    pub fn open(&self, path: &[u8]) -> io::Result<Data> {
        let known = lock(&self.state)
            .objects
            .get(path)
            .map(|entry| entry.object.clone());
        let mut object = match known {
            Some(object) => object,
            None => match self.find(path, false)? {
                Some(Found::Object(object)) => object,
                Some(Found::Directory) => return Err(io::ErrorKind::InvalidInput.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            },
        };
        let kept = lock(&self.state).whole.get(path).cloned();
        if let Some(whole) = kept.filter(|whole| object.size.is_none_or(|size| size == whole.size))
        {
            object.size = Some(whole.size);
            return Ok(Data::Whole(object, whole));
        }
        let Some(size) = object.size else {
            let whole = self.fetch_whole(path, &object)?;
            object.size = Some(whole.size);
            return Ok(Data::Whole(object, whole));
        };
        let fetched = self.note_opened(path);
        let fetched = fetched.filter(|parts| *parts.object() == object);
        let data = fetched.unwrap_or_else(|| self.parts(path, &object, size));
        Ok(Data::Parts(data))
    }

    fn parts(&self, path: &[u8], object: &Object, size: u64) -> Arc<Parts> {
        let (store, fetcher) = (Arc::clone(&self.store), Arc::clone(&self.fetcher));
        Parts::new(store, fetcher, path.to_vec(), object.clone(), size)
    }

    /// Notes that an object is opened. Fetches as many following objects ahead as were opened in
    /// sequence before. Returns the object's data if they were fetched ahead.
    fn note_opened(&self, path: &[u8]) -> Option<Arc<Parts>> {
        let mut state = lock(&self.state);
        let entry = state.objects.get_mut(path)?;
        entry.is_opened = true;
        let own = entry.ahead.take();
        state.ahead.remove(path);
        let before = state.objects.range(..=path.to_vec()).rev();
        let in_sequence = before.take_while(|(_, entry)| entry.is_opened);
        let count = in_sequence.take(MOST_AHEAD).count();
        let start = (std::ops::Bound::Excluded(path), std::ops::Bound::Unbounded);
        let after = state.objects.range::<[u8], _>(start);
        let is_due = |entry: &Entry| !entry.is_opened && entry.ahead.is_none();
        let small = |object: &Object| object.size.filter(|size| *size <= SMALL_BYTES);
        let due: Vec<(Vec<u8>, Object, u64)> = after
            .take(if count > 1 { count } else { 0 })
            .filter(|(_, entry)| is_due(entry))
            .filter_map(|(path, entry)| {
                Some((path.clone(), entry.object.clone(), small(&entry.object)?))
            })
            .collect();
        for (path, object, size) in due {
            if !self.fetcher.has_room() || !state.make_room(&path) {
                break;
            }
            let parts = self.parts(&path, &object, size);
            parts.prefetch();
            if let Some(entry) = state.objects.get_mut(&path) {
                entry.ahead = Some(parts);
                state.ahead.insert(path);
            }
        }
        own
    }
}

impl State {
    /// Forgets the first object that was fetched ahead, if there are too many and it precedes
    /// `path` far enough. Returns true if one more may be fetched.
    fn make_room(&mut self, path: &[u8]) -> bool {
        if self.ahead.len() < MOST_AHEAD {
            return true;
        }
        let Some(first) = self
            .ahead
            .first()
            .filter(|first| &first[..] < path)
            .cloned()
        else {
            return false;
        };
        // All between it and the path were requested later, and it was not opened yet.
        let between = self.objects.range(first.clone()..path.to_vec());
        if between.filter(|(_, entry)| entry.is_opened).count() < MOST_AHEAD {
            return false;
        }
        self.ahead.remove(&first);
        if let Some(entry) = self.objects.get_mut(&first)
            && let Some(parts) = entry.ahead.take()
        {
            parts.abandon();
        }
        true
    }
}
