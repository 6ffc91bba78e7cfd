//! A small file that is being stored. Its data stay in memory until the server has them.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_system::queue::lock;

use super::stored_facts::Facts;

/// A small file that is being stored.
pub struct SmallUpload {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    facts: Facts,
    phase: Phase,
}

/// Progress of a file.
enum Phase {
    /// The data may change.
    Open(Vec<u8>),
    /// The data wait, or are being stored.
    Waiting(Arc<[u8]>),
    /// The server has the data, or an error occurred.
    Ended(Result<(), String>),
}

impl SmallUpload {
    pub fn new(facts: Facts) -> Arc<SmallUpload> {
        Arc::new(SmallUpload {
            state: Mutex::new(State {
                facts,
                phase: Phase::Open(Vec::new()),
            }),
            ended: Condvar::new(),
        })
    }

    pub fn facts(&self) -> Facts {
        lock(&self.state).facts.clone()
    }

    /// Returns the number of bytes that are in memory.
    pub fn bytes(&self) -> usize {
        match &lock(&self.state).phase {
            Phase::Open(data) => data.len(),
            Phase::Waiting(data) => data.len(),
            Phase::Ended(_) => 0,
        }
    }

    /// Returns the data to store.
    pub fn data(&self) -> Arc<[u8]> {
        match &lock(&self.state).phase {
            Phase::Waiting(data) => Arc::clone(data),
            Phase::Open(_) | Phase::Ended(_) => Arc::default(),
        }
    }

    /// Ends the attempt to store the file.
    pub fn end(&self, result: Result<(), String>) {
        let mut state = lock(&self.state);
        state.facts.are_changed &= result.is_err();
        state.phase = Phase::Ended(result);
        self.ended.notify_all();
    }

    /// Gives the file its final path.
    pub fn name(&self, path: Vec<u8>) {
        let mut state = lock(&self.state);
        state.facts.path = path;
        state.facts.inode = None;
    }

    /// Writes data at an offset.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the data are being stored already.
    pub fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let Phase::Open(bytes) = &mut state.phase else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        state.facts.size = state.facts.size.max(end as u64);
        Ok(())
    }

    /// Sets the length.
    ///
    /// # Errors
    ///
    /// As [`SmallUpload::write`].
    pub fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let Phase::Open(bytes) = &mut state.phase else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        bytes.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
        state.facts.size = length;
        Ok(())
    }

    /// Changes the time or the mode.
    pub fn change(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut lock(&self.state).facts);
    }

    /// Ends the changes of the data. Returns true if the caller must store the file now.
    pub fn close(&self) -> bool {
        let mut state = lock(&self.state);
        let Phase::Open(data) = &mut state.phase else {
            return false;
        };
        let data = std::mem::take(data);
        state.phase = Phase::Waiting(data.into());
        true
    }

    /// Waits until the file is stored, and returns its facts.
    ///
    /// # Errors
    ///
    /// The reason why it could not be stored.
    pub fn wait(&self) -> io::Result<Facts> {
        let mut state = lock(&self.state);
        loop {
            match &state.phase {
                Phase::Ended(Ok(())) => return Ok(state.facts.clone()),
                Phase::Ended(Err(text)) => return Err(io::Error::other(text.clone())),
                Phase::Open(_) | Phase::Waiting(_) => {
                    let waited = self.ended.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
