//! A handle of a small file that is being stored.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::{Advice, DataMode, DataRange, Status, StoredFile};
use rustix::io::Errno;

use super::file::read_directly;
use super::small_upload::SmallUpload;
use super::stored_facts::{Facts, check};
use super::uploads::Uploads;

/// A handle of a small file that is being stored.
pub struct SmallHandle {
    pub file: Arc<SmallUpload>,
    pub uploads: Arc<Uploads>,
    /// Record of the file on this host, with its lock.
    pub record: Arc<dyn StoredFile>,
}

impl SmallHandle {
    /// Begins to store the file.
    fn begin(&self) {
        if self.file.close() {
            self.uploads.add(Arc::clone(&self.file));
        }
    }

    /// Stores the file with its time and mode.
    fn flush(&self) -> io::Result<Facts> {
        self.begin();
        let facts = self.file.wait()?;
        if !facts.are_changed {
            return Ok(facts);
        }
        // The time or the mode changed after the data were stored.
        let commands = facts.commands();
        self.uploads.sessions().with(|session| {
            let replies = session.commands(&commands)?;
            let mut checked = commands.iter().zip(&replies);
            checked.try_for_each(|((verb, _), reply)| check(verb, reply))
        })?;
        self.file.change(|facts| facts.are_changed = false);
        Ok(facts)
    }
}

impl StoredFile for SmallHandle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let facts = self.flush()?;
        let left = facts.size.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX);
        let count = count.min(buffer.len());
        if count > 0 {
            let of = (&facts.path[..], facts.size);
            read_directly(self.uploads.sessions(), of, &mut buffer[..count], offset)?;
        }
        Ok(count)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write(data, offset)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(self.file.facts().status())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let uploads = &self.uploads;
        match uploads.sets_modes() {
            Some(true) => self.file.change(|facts| facts.set_mode(mode)),
            Some(false) => return Err(Errno::OPNOTSUPP.into()),
            None => {
                let facts = self.flush()?;
                uploads.set_mode(&facts.path, mode)?;
                self.file.change(|facts| facts.mode = Some(mode));
            }
        }
        Ok(())
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        if !self.uploads.sessions().sets_times() {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.file.change(|facts| facts.set_modified(modified));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.flush().map(drop)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.flush().map(drop)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let end = self.file.facts().size;
        let start = offset;
        Ok((start < end).then_some(DataRange { start, end }))
    }

    fn advise(&self, advice: Advice, _: u64, _: u64) {
        if advice == Advice::StartWriteback {
            self.begin();
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.record.try_lock()
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.record.try_lock_shared()
    }

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }
}
