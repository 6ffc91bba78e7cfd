//! A file at a server.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_engine::recv::landing::file_time_now;
use longhaul_gridftp::protocol::ranges::Ranges;
use longhaul_gridftp::retrieve::{Fetch, Sink};
use longhaul_proto::manifest::Timestamp;
use longhaul_storage::{Advice, DataMode, DataRange, Status, StoredFile};
use longhaul_system::queue::lock;

use super::ahead::{Ahead, Taken};
use super::as_io;
use super::directory::Entries;
use super::sessions::Sessions;
use super::small_files::SmallFiles;
use super::stored_facts::set_modified;
use super::uploads::Uploads;

/// A file at a server.
pub struct RemoteFile {
    status: Mutex<Status>,
    size: u64,
    data: Data,
    /// Path of a file whose time and mode may be changed. `None` for a source.
    changeable: Option<(Arc<Uploads>, Vec<u8>)>,
}

enum Data {
    Small {
        files: Arc<SmallFiles>,
        listing: Option<Arc<Entries>>,
        name: Vec<u8>,
        /// The data after the first read.
        read: Mutex<Option<Arc<[u8]>>>,
    },
    Large {
        sessions: Arc<Sessions>,
        path: Vec<u8>,
        /// The transfer that is ahead of the reads. `None` before the first read.
        ahead: Mutex<Option<Arc<Ahead>>>,
    },
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if let Data::Large { ahead, .. } = &self.data
            && let Some(ahead) = &*lock(ahead)
        {
            ahead.abandon();
        }
    }
}

impl RemoteFile {
    /// Returns a file that is fetched with others of its directory.
    pub fn small(
        files: Arc<SmallFiles>,
        listing: Option<Arc<Entries>>,
        name: &[u8],
        status: Status,
    ) -> RemoteFile {
        let data = Data::Small {
            files,
            listing,
            name: name.to_vec(),
            read: Mutex::new(None),
        };
        RemoteFile::of(status, data)
    }

    fn of(status: Status, data: Data) -> RemoteFile {
        RemoteFile {
            size: status.size,
            status: Mutex::new(status),
            data,
            changeable: None,
        }
    }

    /// Lets the time and the mode of the file be changed. `path` is its path.
    pub fn make_changeable(&mut self, uploads: Arc<Uploads>, path: Vec<u8>) {
        self.changeable = Some((uploads, path));
    }

    /// Returns a file that is fetched in parts.
    pub fn large(sessions: Arc<Sessions>, path: Vec<u8>, status: Status) -> RemoteFile {
        let data = Data::Large {
            sessions,
            path,
            ahead: Mutex::default(),
        };
        RemoteFile::of(status, data)
    }

    fn changeable(&self) -> io::Result<(&Arc<Uploads>, &[u8])> {
        let changeable = self.changeable.as_ref();
        let (uploads, path) = changeable.ok_or(io::ErrorKind::Unsupported)?;
        Ok((uploads, path))
    }

    /// Reads a part of a large file.
    fn read_part(
        &self,
        sessions: &Arc<Sessions>,
        (path, ahead): (&[u8], &Mutex<Option<Arc<Ahead>>>),
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        let size = self.size;
        let start = || Ahead::start(Arc::clone(sessions), path.to_vec(), size, offset);
        // Each attempt may take as long as the server may be silent.
        let mut may_start = true;
        loop {
            let mut current = lock(ahead);
            let transfer = match &*current {
                Some(transfer) => Arc::clone(transfer),
                None if sessions.permits_more() => {
                    may_start = false;
                    Arc::clone(current.insert(start()?))
                }
                None => break,
            };
            drop(current);
            match transfer.take(buffer, offset) {
                Taken::All => return Ok(()),
                Taken::Far if may_start && sessions.permits_more() => {
                    may_start = false;
                    let mut current = lock(ahead);
                    // Another thread may have started one already.
                    if current
                        .as_ref()
                        .is_some_and(|now| Arc::ptr_eq(now, &transfer))
                    {
                        transfer.abandon();
                        *current = Some(start()?);
                    }
                }
                Taken::Absent | Taken::Far => break,
            }
        }
        read_directly(sessions, (path, size), buffer, offset)
    }
}

/// Reads a part of a file in a transfer of its own.
pub(super) fn read_directly(
    sessions: &Sessions,
    (path, size): (&[u8], u64),
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<()> {
    let end = offset + buffer.len() as u64;
    let part = Part {
        start: offset,
        buffer: Mutex::new(buffer),
    };
    let mut present = Ranges::front(offset);
    present.insert(end, size).map_err(io::Error::other)?;
    let is_read = sessions.with(|session| {
        if !session.is_extended() {
            return Ok(false);
        }
        let file = Fetch {
            path,
            size,
            present: present.clone(),
            sink: &part,
        };
        let mut result = Ok(());
        session.retrieve(&[file], &mut |_, ended| result = ended)?;
        result.map(|()| true)
    })?;
    if is_read {
        return Ok(());
    }
    // In stream mode, a transfer ends only with its connection.
    let session = sessions.open_for_file().map_err(as_io)?;
    let mut reader = session.into_reader(path, offset).map_err(as_io)?;
    let mut buffer = lock(&part.buffer);
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]).map_err(as_io)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

/// The part of a file that a buffer holds. Other bytes are ignored.
struct Part<'a> {
    start: u64,
    buffer: Mutex<&'a mut [u8]>,
}

impl Sink for Part<'_> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut buffer = lock(&self.buffer);
        copy_overlap(&mut buffer, self.start, bytes, offset);
        Ok(())
    }
}

/// Copies the bytes that both ranges of a file have.
fn copy_overlap(buffer: &mut [u8], start: u64, bytes: &[u8], offset: u64) {
    let first = start.max(offset);
    let end = (start + buffer.len() as u64).min(offset + bytes.len() as u64);
    if first >= end {
        return;
    }
    let to = (first - start) as usize..(end - start) as usize;
    let from = (first - offset) as usize..(end - offset) as usize;
    buffer[to].copy_from_slice(&bytes[from]);
}

impl StoredFile for RemoteFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.size.saturating_sub(offset);
        let count = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = &mut buffer[..count];
        if count == 0 {
            return Ok(0);
        }
        match &self.data {
            Data::Small {
                files,
                listing,
                name,
                read,
            } => {
                let mut read = lock(read);
                let data = match &*read {
                    Some(data) => Arc::clone(data),
                    None => {
                        let data = files.read(listing.as_deref(), name, self.size)?;
                        Arc::clone(read.insert(data))
                    }
                };
                copy_overlap(buffer, offset, &data, 0);
            }
            Data::Large {
                sessions,
                path,
                ahead,
            } => self.read_part(sessions, (path, ahead), buffer, offset)?,
        }
        Ok(count)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(*lock(&self.status))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        Ok((offset < self.size).then_some(DataRange {
            start: offset,
            end: self.size,
        }))
    }

    fn advise(&self, _: Advice, _: u64, _: u64) {}

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let (uploads, path) = self.changeable()?;
        uploads.set_mode(path, mode)?;
        let mut status = lock(&self.status);
        status.mode = mode;
        status.changed = file_time_now();
        Ok(())
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        let (uploads, path) = self.changeable()?;
        let modified = set_modified(uploads.sessions(), path, modified)?;
        let mut status = lock(&self.status);
        status.modified = modified;
        status.changed = file_time_now();
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use longhaul_gridftp::session::Options;
    use longhaul_storage::FileKind;

    use super::super::test_server::{Answer, DATA, TestServer};
    use super::*;

    /// Starts a server whose data connections a firewall rejects. Returns sessions to it, and
    /// the status of its file.
    fn behind_a_firewall() -> (TestServer, Arc<Sessions>, Status) {
        let extended = Mutex::new(HashSet::new());
        let features = " PARALLEL\r\n REST STREAM\r\n";
        let server = TestServer::start(features, move |session, command| {
            let mut extended = lock(&extended);
            if command == "MODE E" {
                extended.insert(session);
            }
            if command.starts_with("RETR") && extended.contains(&session) {
                Answer::Lines("425 Cannot open data connection.\r\n")
            } else {
                Answer::Usual
            }
        });
        let sessions = Sessions::new(server.location(), Options::default());
        let status = Status::on_no_disk(FileKind::File, 0o644, DATA.len() as u64);
        (server, Arc::new(sessions), status)
    }

    /// Returns the number of attempts in extended block mode.
    fn extended_attempts(server: &TestServer) -> usize {
        let commands = server.commands().into_iter();
        commands.filter(|command| command == "MODE E").count()
    }

    #[test]
    fn a_large_file_behind_a_firewall_is_tried_once_in_extended_mode() {
        let (server, sessions, status) = behind_a_firewall();
        let file = RemoteFile::large(sessions, b"/f".to_vec(), status);
        for start in [0, 4] {
            let mut buffer = [0; 4];
            assert_eq!(file.read_at(&mut buffer, start as u64).unwrap(), 4);
            assert_eq!(buffer, DATA[start..start + 4]);
        }
        assert_eq!(extended_attempts(&server), 1);
    }

    #[test]
    fn a_small_file_behind_a_firewall_is_fetched_in_stream_mode() {
        let (server, sessions, status) = behind_a_firewall();
        let small_files = Arc::new(SmallFiles::new(sessions, b"/"));
        let file = RemoteFile::small(small_files, None, b"f", status);
        let mut buffer = [0; DATA.len()];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), DATA.len());
        assert_eq!(buffer, DATA);
        assert_eq!(extended_attempts(&server), 1);
    }
}
