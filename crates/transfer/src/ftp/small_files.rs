//! Small files of a directory, fetched in batches before they are read.
//!
//! The sender reads files in the order of their names. The first read of a file fetches the next
//! ones too, whose commands then share a round trip.

use std::collections::HashMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex};

use longhaul_gridftp::Error;
use longhaul_gridftp::protocol::facts::EntryKind;
use longhaul_gridftp::protocol::ranges::Ranges;
use longhaul_gridftp::retrieve::{Fetch, Sink};
use longhaul_gridftp::session::join;
use longhaul_system::queue::lock;

use super::directory::Entries;
use super::sessions::{Sessions, cannot_connect};

/// Maximum size of a small file in bytes. The data of a larger file take longer than a round trip
/// at 100 Mbit/s and 100 ms.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of files of a batch.
const BATCH_FILES: usize = 64;

/// Maximum size of a batch in bytes.
const BATCH_BYTES: u64 = 4 << 20;

/// Size of fetched files beyond which those that were not read are forgotten.
const KEPT_BYTES: u64 = 32 << 20;

/// Small files of a directory.
pub struct SmallFiles {
    sessions: Arc<Sessions>,
    directory: Vec<u8>,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    files: HashMap<Vec<u8>, Slot>,
    /// Size of the arrived files in bytes.
    bytes: u64,
    /// Last name of the batches so far. Files up to it are not fetched before they are read again.
    last: Vec<u8>,
}

enum Slot {
    /// The file is being fetched.
    Coming,
    /// The data, or a description of the error.
    Arrived(Result<Arc<[u8]>, String>),
}

/// Place for the data of a file.
struct Memory(Mutex<Vec<u8>>);

impl Sink for Memory {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut data = lock(&self.0);
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let place = data.get_mut(start..start + bytes.len());
        let place = place.ok_or_else(|| io::Error::other("data beyond the end of the file"))?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}

impl SmallFiles {
    pub fn new(sessions: Arc<Sessions>, directory: &[u8]) -> SmallFiles {
        SmallFiles {
            sessions,
            directory: directory.to_vec(),
            state: Mutex::default(),
            arrived: Condvar::new(),
        }
    }

    /// Returns the data of a file. `listing` has the files that may be fetched with it.
    ///
    /// # Errors
    ///
    /// If the file cannot be fetched, or has another size.
    pub fn read(&self, listing: Option<&Entries>, name: &[u8], size: u64) -> io::Result<Arc<[u8]>> {
        let mut state = lock(&self.state);
        loop {
            match state.files.get(name) {
                Some(Slot::Coming) => {
                    state = self
                        .arrived
                        .wait(state)
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                Some(Slot::Arrived(_)) => {
                    if let Some(Slot::Arrived(data)) = state.files.remove(name) {
                        state.bytes -= data.as_ref().map_or(0, |data| data.len() as u64);
                        return data.map_err(io::Error::other);
                    }
                }
                None => break,
            }
        }
        let batch = state.choose(listing, name, size);
        drop(state);
        let results = self.fetch(&batch);
        let mut state = lock(&self.state);
        let mut own = Err("the file was not fetched".to_owned());
        for ((file, _), result) in batch.into_iter().zip(results) {
            if file == name {
                own = result;
                state.files.remove(name);
                continue;
            }
            state.bytes += result.as_ref().map_or(0, |data| data.len() as u64);
            state.files.insert(file, Slot::Arrived(result));
        }
        self.arrived.notify_all();
        drop(state);
        own.map_err(io::Error::other)
    }

    /// Fetches files. Returns a result for each.
    fn fetch(&self, batch: &[(Vec<u8>, u64)]) -> Vec<Result<Arc<[u8]>, String>> {
        let paths: Vec<Vec<u8>> = batch
            .iter()
            .map(|(name, _)| join(&self.directory, name))
            .collect();
        let mut results: Vec<Option<Result<Arc<[u8]>, String>>> = vec![None; batch.len()];
        while let Some(start) = results.iter().position(Option::is_none) {
            let done = self.sessions.with(|session| {
                let open = results.iter().position(Option::is_none).unwrap_or(start);
                let sinks: Vec<Memory> = batch[open..]
                    .iter()
                    .map(|(_, size)| Memory(Mutex::new(vec![0; *size as usize])))
                    .collect();
                let files: Vec<Fetch<'_>> = batch[open..]
                    .iter()
                    .zip(&paths[open..])
                    .zip(&sinks)
                    .map(|(((_, size), path), sink)| Fetch {
                        path,
                        size: *size,
                        present: Ranges::default(),
                        sink,
                    })
                    .collect();
                let mut rejected = Ok(());
                session.retrieve(&files, &mut |index, result: Result<(), Error>| {
                    if result.as_ref().is_err_and(cannot_connect) {
                        // Stream mode may fetch the file.
                        rejected = result;
                        return;
                    }
                    let data = std::mem::take(&mut *lock(&sinks[index].0));
                    let data = result.map(|()| data.into()).map_err(|e| e.to_string());
                    results[open + index] = Some(data);
                })?;
                rejected
            });
            if let Err(error) = done {
                // The first file without a result caused the error. The others are tried again.
                let failed = results.iter_mut().find(|result| result.is_none());
                if let Some(failed) = failed {
                    *failed = Some(Err(error.to_string()));
                }
            }
        }
        let missing = || Err("the file was not fetched".to_owned());
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(missing))
            .collect()
    }
}

impl State {
    /// Chooses the files of a batch and marks them. The named file is the first one.
    fn choose(&mut self, listing: Option<&Entries>, name: &[u8], size: u64) -> Vec<(Vec<u8>, u64)> {
        if self.bytes > KEPT_BYTES {
            self.files.retain(|_, slot| matches!(slot, Slot::Coming));
            self.bytes = 0;
        }
        let mut batch = vec![(name.to_vec(), size)];
        let mut bytes = size;
        let is_first_time = name > self.last.as_slice() || self.last.is_empty();
        if let Some(listing) = listing.filter(|_| is_first_time) {
            let after = (Bound::Excluded(name.to_vec()), Bound::Unbounded);
            for (next, entry) in listing.range(after) {
                let Some(entry) = entry else {
                    continue;
                };
                let size = entry.size.filter(|size| *size <= SMALL_FILE_BYTES);
                let is_file = entry.kind == EntryKind::File && entry.link_target.is_none();
                let Some(size) = size.filter(|_| is_file) else {
                    continue;
                };
                bytes += size;
                if bytes > BATCH_BYTES || batch.len() == BATCH_FILES {
                    break;
                }
                if !self.files.contains_key(next) {
                    batch.push((next.clone(), size));
                }
            }
        }
        for (file, _) in &batch {
            self.files.insert(file.clone(), Slot::Coming);
            if *file > self.last {
                self.last.clone_from(file);
            }
        }
        batch
    }
}
