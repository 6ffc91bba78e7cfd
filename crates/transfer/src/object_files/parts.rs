//! An object whose parts are fetched ahead of the reads.
//!
//! The object is divided into parts of equal size. A read waits for its parts, and requests those
//! that follow. Each part is one request, so that several connections fetch one object. If the
//! server sends no parts, one stream fills them in order, and waits when it is far ahead of the
//! reads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_stores::Error;
use longhaul_stores::store::{Object, Store};
use longhaul_system::queue::lock;

use super::fetcher::{Fetcher, Held};

/// Size of a part in bytes.
pub const PART_BYTES: u64 = 4 << 20;

/// Maximum number of parts that are requested ahead of the reads of one object.
const MOST_AHEAD: u64 = 16;

/// Maximum number of parts that a stream keeps.
const MOST_STREAMED: usize = 24;

/// Number of times that a stream may start again, because data are read that have passed.
const MOST_STREAMS: u32 = 8;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The buffer is filled.
    All,
    /// The object changed at the server.
    Changed,
}

/// An object and the parts of it that are in memory.
pub struct Parts {
    store: Arc<dyn Store>,
    fetcher: Arc<Fetcher>,
    path: Vec<u8>,
    object: Object,
    size: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parts: BTreeMap<u64, Part>,
    /// Number of the part after the last one that was requested.
    frontier: u64,
    /// Number of parts that the next read requests ahead.
    ahead: u64,
    /// The stream, if the server sends no parts.
    stream: Option<Stream>,
    /// Numbers of the parts for which reads wait.
    awaited: Vec<u64>,
    is_abandoned: bool,
}

struct Stream {
    /// Number of streams that were started.
    number: u32,
    /// Number of the part that the stream fills.
    at: u64,
    /// Error that ended the stream, if it has ended.
    ended: Option<Result<(), Arc<Error>>>,
}

struct Part {
    data: Vec<u8>,
    length: u64,
    /// Bytes that were read.
    taken: u64,
    ended: Option<Result<(), Arc<Error>>>,
    _held: Held,
}

/// Number and range of a part, and the range of it that a read needs.
struct Piece {
    number: u64,
    start: usize,
    end: usize,
}

impl Parts {
    /// Requests no data yet.
    pub fn new(
        store: Arc<dyn Store>,
        fetcher: Arc<Fetcher>,
        path: Vec<u8>,
        object: Object,
        size: u64,
    ) -> Arc<Parts> {
        Arc::new(Parts {
            store,
            fetcher,
            path,
            object,
            size,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Returns the object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Ends all transfers that no read waits for.
    pub fn abandon(&self) {
        lock(&self.state).is_abandoned = true;
        self.changed.notify_all();
    }

    /// Requests the first part ahead of its read.
    pub fn prefetch(self: &Arc<Parts>) {
        let mut state = lock(&self.state);
        if self.size > 0 && state.frontier == 0 {
            // A failure shows in the read.
            let _ = self.request(&mut state, 0, false);
        }
    }

    /// Fills a buffer, which must be within the object.
    ///
    /// # Errors
    ///
    /// The data cannot be fetched.
    pub fn read(self: &Arc<Parts>, buffer: &mut [u8], offset: u64) -> io::Result<Read> {
        let end = offset + buffer.len() as u64;
        let last = end.saturating_sub(1) / PART_BYTES;
        let mut state = lock(&self.state);
        for number in offset / PART_BYTES..=last {
            if !state.parts.contains_key(&number) && state.stream.is_none() {
                self.request(&mut state, number, true)?;
            }
        }
        self.request_ahead(&mut state, last)?;
        let mut at = offset;
        while at < end {
            let number = at / PART_BYTES;
            let start = (at % PART_BYTES) as usize;
            let until = ((number + 1) * PART_BYTES).min(end);
            let piece = Piece {
                number,
                start,
                end: start + (until - at) as usize,
            };
            let to = (at - offset) as usize..(until - offset) as usize;
            let (again, read) = self.take(state, &piece, &mut buffer[to])?;
            if read == Read::Changed {
                return Ok(Read::Changed);
            }
            state = again;
            at = until;
        }
        Ok(Read::All)
    }

    /// Requests parts beyond a read. Reads in sequence request more and more.
    fn request_ahead(self: &Arc<Parts>, state: &mut State, last: u64) -> io::Result<()> {
        if state.stream.is_some() {
            return Ok(());
        }
        let is_next =
            last + 1 >= state.frontier.saturating_sub(2 * MOST_AHEAD) && last <= state.frontier + 1;
        state.ahead = if is_next {
            (state.ahead * 2).clamp(2, MOST_AHEAD)
        } else {
            0
        };
        let first = state.frontier.max(last + 1);
        let count = self.size.div_ceil(PART_BYTES);
        for number in first..(last + 1 + state.ahead).min(count) {
            if !self.fetcher.has_room() {
                break;
            }
            if !state.parts.contains_key(&number) {
                self.request(state, number, false)?;
            }
        }
        Ok(())
    }

    /// Requests a part.
    fn request(
        self: &Arc<Parts>,
        state: &mut State,
        number: u64,
        is_urgent: bool,
    ) -> io::Result<()> {
        if state.stream.is_some() {
            return Ok(());
        }
        let part = self.new_part(number);
        let parts = Arc::clone(self);
        let length = part.length;
        let job = Box::new(move || parts.fetch(number, length));
        self.fetcher.submit(is_urgent, job)?;
        state.parts.insert(number, part);
        state.frontier = state.frontier.max(number + 1);
        Ok(())
    }

    fn new_part(&self, number: u64) -> Part {
        let length = (self.size - number * PART_BYTES).min(PART_BYTES);
        Part {
            data: Vec::new(),
            length,
            taken: 0,
            ended: None,
            _held: self.fetcher.hold(length),
        }
    }

    /// Fetches a part.
    fn fetch(self: &Arc<Parts>, number: u64, length: u64) {
        let start = number * PART_BYTES;
        let is_wanted = {
            let state = lock(&self.state);
            state.stream.is_none() && state.wants(number)
        };
        let fetched = if is_wanted {
            let mut sink = |data: &[u8]| self.receive(number, data);
            self.store
                .fetch(&self.path, &self.object, start..start + length, &mut sink)
        } else {
            Err(Error::NoRanges)
        };
        let mut state = lock(&self.state);
        if matches!(fetched, Err(Error::NoRanges)) {
            // Reads find the part absent, and start a stream.
            state.parts.remove(&number);
            if is_wanted && state.stream.is_none() {
                self.start_stream(&mut state, 1);
            }
        } else if let Some(part) = state.parts.get_mut(&number) {
            part.ended = Some(fetched.map_err(Arc::new));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes data of a part in order.
    fn receive(&self, number: u64, data: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        let is_wanted = state.wants(number);
        let part = state.parts.get_mut(&number).filter(|_| is_wanted);
        let part = part.ok_or_else(|| io::Error::other("the part is not read any more"))?;
        part.add(data);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for a piece, and copies it.
    fn take<'a>(
        self: &'a Arc<Parts>,
        mut state: MutexGuard<'a, State>,
        piece: &Piece,
        buffer: &mut [u8],
    ) -> io::Result<(MutexGuard<'a, State>, Read)> {
        let number = piece.number;
        loop {
            if let Some(part) = state.parts.get_mut(&number) {
                if let Some(data) = part.data.get(piece.start..piece.end) {
                    buffer.copy_from_slice(data);
                    part.taken += data.len() as u64;
                    if part.taken >= part.length {
                        state.parts.remove(&number);
                    }
                    self.changed.notify_all();
                    return Ok((state, Read::All));
                }
                if let Some(Err(error)) = part.ended.clone() {
                    state.parts.remove(&number);
                    return match *error {
                        Error::Changed => Ok((state, Read::Changed)),
                        _ => Err(as_io(&error)),
                    };
                }
            } else if let Some(stream) = &state.stream {
                match &stream.ended {
                    Some(Err(error)) if matches!(**error, Error::Changed) => {
                        return Ok((state, Read::Changed));
                    }
                    Some(Err(error)) if stream.number >= MOST_STREAMS || !error.may_pass() => {
                        return Err(as_io(error));
                    }
                    None if number >= stream.at => {}
                    _ if stream.number >= MOST_STREAMS => {
                        let text = "the server sends no parts of the file, which is read in \
                                    another order than it arrives";
                        return Err(io::Error::other(text));
                    }
                    _ => {
                        let next = stream.number + 1;
                        self.start_stream(&mut state, next);
                    }
                }
            } else {
                self.request(&mut state, number, true)?;
            }
            state.awaited.push(number);
            self.changed.notify_all();
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = state.awaited.iter().position(|other| *other == number) {
                state.awaited.swap_remove(own);
            }
        }
    }

    /// Starts a stream from the beginning of the object.
    fn start_stream(self: &Arc<Parts>, state: &mut State, number: u32) {
        // Parts of a stream that has not ended stay incomplete.
        state.parts.retain(|_, part| part.is_complete());
        state.stream = Some(Stream {
            number,
            at: 0,
            ended: None,
        });
        let parts = Arc::clone(self);
        let thread = std::thread::Builder::new().name("fetch".to_owned());
        let spawned = thread.spawn(move || parts.run_stream(number));
        if let (Err(error), Some(stream)) = (spawned, &mut state.stream) {
            stream.ended = Some(Err(Arc::new(Error::Local(error))));
        }
    }

    fn run_stream(self: &Arc<Parts>, number: u32) {
        let mut offset = 0;
        let mut sink = |data: &[u8]| self.receive_stream(number, &mut offset, data);
        let fetched = self
            .store
            .fetch_whole(&self.path, &self.object, &mut sink)
            .and_then(|received| {
                let expected = self.size;
                if received == expected {
                    Ok(())
                } else {
                    Err(Error::Incomplete { received, expected })
                }
            });
        let mut state = lock(&self.state);
        if let Some(stream) = &mut state.stream
            && stream.number == number
        {
            stream.at = u64::MAX;
            stream.ended = Some(fetched.map_err(Arc::new));
            // Reads of parts that did not arrive completely start another stream.
            state.parts.retain(|_, part| part.is_complete());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes data of a stream. Waits if it is far ahead of the reads.
    fn receive_stream(&self, number: u32, offset: &mut u64, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let at = *offset / PART_BYTES;
            let left = ((at + 1) * PART_BYTES)
                .min(self.size)
                .saturating_sub(*offset);
            let count = data.len().min(left as usize);
            if count == 0 {
                return Err(io::Error::other("the file is larger than before"));
            }
            let (now, rest) = data.split_at(count);
            let mut state = self.wait_for_room(number, at)?;
            *offset += count as u64;
            data = rest;
            if let Some(part) = state.parts.get_mut(&at) {
                // An earlier stream may have filled it.
                if !part.is_complete() {
                    part.add(now);
                }
            } else {
                let mut part = self.new_part(at);
                part.add(now);
                state.parts.insert(at, part);
            }
            if let Some(stream) = &mut state.stream {
                stream.at = *offset / PART_BYTES;
            }
            drop(state);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until a stream may add to a part.
    fn wait_for_room(&self, number: u32, at: u64) -> io::Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        loop {
            let is_current = |stream: &Stream| stream.number == number;
            if state.is_abandoned || !state.stream.as_ref().is_some_and(is_current) {
                return Err(io::Error::other("the file is not read any more"));
            }
            if state.parts.len() < MOST_STREAMED || state.parts.contains_key(&at) {
                return Ok(state);
            }
            let is_unread = |part: &&u64| !state.awaited.contains(part);
            let oldest = state.parts.keys().find(is_unread).copied();
            let has_late_reader = state.awaited.iter().any(|awaited| *awaited >= at);
            match oldest.filter(|_| has_late_reader) {
                Some(oldest) => {
                    state.parts.remove(&oldest);
                }
                None => {
                    let waited = self.changed.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl State {
    /// True if the data of a part are still read.
    fn wants(&self, number: u64) -> bool {
        !self.is_abandoned || self.awaited.contains(&number)
    }
}

impl Part {
    fn add(&mut self, data: &[u8]) {
        if self.data.is_empty() {
            self.data.reserve_exact(self.length as usize);
        }
        self.data.extend_from_slice(data);
    }

    fn is_complete(&self) -> bool {
        self.data.len() as u64 >= self.length
    }
}

fn as_io(error: &Error) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicU32, Ordering};

    use longhaul_stores::store::{Found, Listed, Sink};

    use super::*;

    /// A server with one object, which may change or send no parts.
    struct Server {
        size: u64,
        has_parts: bool,
        is_changed: bool,
        requests: AtomicU32,
    }

    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    impl Server {
        fn send(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<(), Error> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            if self.is_changed {
                return Err(Error::Changed);
            }
            let mut at = range.start;
            while at < range.end {
                let end = (at + 300_000).min(range.end);
                let data: Vec<u8> = (at..end).map(byte).collect();
                sink(&data).map_err(Error::Local)?;
                at = end;
            }
            Ok(())
        }
    }

    impl Store for Server {
        fn find(&self, _: &[u8]) -> Result<Option<Found>, Error> {
            Ok(None)
        }

        fn list(
            &self,
            _: &[u8],
            _: &mut dyn FnMut(Listed) -> Result<(), Error>,
        ) -> Result<(), Error> {
            Ok(())
        }

        fn fetch(
            &self,
            _: &[u8],
            _: &Object,
            range: Range<u64>,
            sink: &mut Sink<'_>,
        ) -> Result<(), Error> {
            if self.has_parts {
                self.send(range, sink)
            } else {
                Err(Error::NoRanges)
            }
        }

        fn fetch_whole(&self, _: &[u8], _: &Object, sink: &mut Sink<'_>) -> Result<u64, Error> {
            self.send(0..self.size, sink)?;
            Ok(self.size)
        }
    }

    fn server(size: u64, has_parts: bool) -> Arc<Server> {
        Arc::new(Server {
            size,
            has_parts,
            is_changed: false,
            requests: AtomicU32::new(0),
        })
    }

    fn parts(server: &Arc<Server>) -> Arc<Parts> {
        let object = Object {
            size: Some(server.size),
            modified: None,
            mode: None,
            version: None,
            has_ranges: true,
            place: None,
        };
        let store: Arc<dyn Store> = Arc::clone(server) as Arc<dyn Store>;
        let fetcher = Arc::new(Fetcher::default());
        Parts::new(store, fetcher, b"/x".to_vec(), object, server.size)
    }

    fn check(parts: &Arc<Parts>, offset: u64, length: usize) {
        let mut buffer = vec![0; length];
        assert_eq!(parts.read(&mut buffer, offset).unwrap(), Read::All);
        let end = offset + length as u64;
        assert!(
            buffer.iter().copied().eq((offset..end).map(byte)),
            "{offset}"
        );
    }

    #[test]
    fn reads_take_parts_in_any_order() {
        let server = server(5 * PART_BYTES + 77, true);
        let parts = parts(&server);
        check(&parts, 5 * PART_BYTES + 70, 7);
        check(&parts, PART_BYTES - 5, 10);
        check(&parts, 0, 3 * PART_BYTES as usize);
        check(&parts, 0, 1);
        check(&parts, 3 * PART_BYTES + 1, 2 * PART_BYTES as usize);
    }

    #[test]
    fn sequential_reads_request_each_part_once() {
        let count = 40;
        let server = server(count * PART_BYTES, true);
        let parts = parts(&server);
        for number in 0..count {
            check(&parts, number * PART_BYTES, PART_BYTES as usize);
        }
        assert_eq!(server.requests.load(Ordering::Relaxed), count as u32);
    }

    #[test]
    fn concurrent_reads_of_a_stream_are_served() {
        let count = 40;
        let server = server(count * PART_BYTES, false);
        let parts = parts(&server);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let parts = &parts;
                scope.spawn(move || {
                    for number in (thread..count).step_by(3) {
                        check(parts, number * PART_BYTES, PART_BYTES as usize);
                    }
                });
            }
        });
        let requests = server.requests.load(Ordering::Relaxed);
        assert!(requests <= MOST_STREAMS, "{requests}");
    }

    #[test]
    fn a_stream_forgets_data_that_no_read_takes() {
        let count = 64;
        let server = server(count * PART_BYTES, false);
        let parts = parts(&server);
        check(&parts, (count - 1) * PART_BYTES, PART_BYTES as usize);
        assert!(lock(&parts.state).parts.len() <= MOST_STREAMED);
        check(&parts, 0, 10);
        assert_eq!(server.requests.load(Ordering::Relaxed), 2);
        parts.abandon();
    }

    #[test]
    fn a_changed_object_is_reported() {
        let mut server = server(PART_BYTES, true);
        Arc::get_mut(&mut server).unwrap().is_changed = true;
        let read = parts(&server).read(&mut [0; 10], 0).unwrap();
        assert_eq!(read, Read::Changed);
    }

    #[test]
    fn an_abandoned_stream_ends() {
        let server = server(64 * PART_BYTES, false);
        let parts = parts(&server);
        check(&parts, 0, 10);
        parts.abandon();
        longhaul_testing::await_that(|| Arc::strong_count(&parts) == 1);
    }
}
