//! Both ends of a transfer in one process.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_engine::flows::Count;
use longhaul_engine::recv::ReceiveSide;
use longhaul_engine::recv::landing::{Arrival, Destination, Missing};
use longhaul_engine::send::SendSide;
use longhaul_engine::send::select::Selected;
use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_engine::session::{Ending, Event, FlowCounts, Transfer, TransferSettings, Watch};
use longhaul_net::clear::local_pair;
use longhaul_net::{Stream, StreamHandle};
use longhaul_proto::block::HeaderKey;
use longhaul_proto::filter::Filter;
use longhaul_proto::handshake::{Landing, Secret};
use longhaul_proto::message::Farewell;
use longhaul_proto::options::TransferOptions;
use longhaul_proto::session::StreamId;
use longhaul_storage::Directory;
use longhaul_storage::journal::Owner;
use longhaul_storage::roots::OpenRoot;
use longhaul_units::ByteCount;

/// Longer than any transfer of these tests takes: after it, the transfer hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a key for clear streams.
pub fn key() -> Option<HeaderKey> {
    Some(HeaderKey::new(Secret([7; 32])))
}

/// Returns one directory for every path.
pub struct OnlyRoot(pub Arc<dyn Directory>);

impl OpenRoot for OnlyRoot {
    fn open_root(&self, _: &Path) -> io::Result<Arc<dyn Directory>> {
        Ok(self.0.clone())
    }

    fn open_following(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        self.open_root(path)
    }

    fn make_root(&self, _: &Path) -> io::Result<Arc<dyn Directory>> {
        Ok(self.0.clone())
    }
}

/// Returns the owner of a new session.
pub fn owner() -> Owner {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut session = [0; 16];
    session[..8].copy_from_slice(&number.to_be_bytes());
    Owner {
        host: "test".into(),
        process: number as u32,
        started: Default::default(),
        session,
    }
}

pub fn sources(directory: Arc<dyn Directory>, what: What) -> Sources {
    let shown = "source".to_owned();
    Sources::new(vec![Source::new(directory.into(), what, shown)])
}

/// Returns the same transfer each time, with a new session.
pub fn arrival() -> Arrival {
    Arrival {
        anywhere: [0; 32],
        principal: "tester".to_owned(),
        ..Arrival::new(owner(), [7; 32], &TransferOptions::default())
    }
}

pub fn destination(root: Arc<dyn Directory>) -> Destination {
    let there = b"there/";
    Destination::open(
        &OnlyRoot(root),
        there,
        Landing::Within,
        Missing::Make,
        arrival(),
    )
    .unwrap()
}

/// Returns settings with small blocks, frequent checkpoints and short timeouts.
pub fn settings() -> TransferSettings {
    TransferSettings {
        block_bytes: 64 << 10,
        budget: ByteCount(2 << 20),
        flows: FlowCounts {
            readers: Count::Fixed(2),
            compressors: 2,
            streams: 2,
            decompressors: 2,
            writers: 2,
            committers: 4,
        },
        checkpoint_bytes: 64 << 10,
        checkpoint_span: Duration::from_millis(2),
        linger: Duration::from_secs(5),
        silence: Duration::from_secs(20),
        ..TransferSettings::default()
    }
}

/// Events that an end reported, by path.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub committed: Vec<Vec<u8>>,
    pub skipped: Vec<Vec<u8>>,
    pub failed: BTreeMap<Vec<u8>, String>,
    pub deleted: Vec<Vec<u8>>,
    /// Reasons for which deletion was skipped.
    pub undeleted: Vec<String>,
}

/// Creates an observer of one end.
pub fn watch() -> (Watch, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let inner = told.clone();
    let watch: Watch = Arc::new(move |event| {
        let mut told = inner.lock().unwrap();
        match event {
            Event::Committed { path, .. } => told.committed.push(path.as_bytes().into()),
            Event::Skipped { path, .. } | Event::Mended { path, .. } => {
                told.skipped.push(path.as_bytes().into())
            }
            Event::Planned { path, .. } => panic!("{path} is planned in a copy"),
            Event::Failed { path, failure } => {
                let path = path.map(|path| path.as_bytes().to_vec());
                told.failed.insert(path.unwrap_or_default(), failure.text);
            }
            Event::Deleted { path, .. } => told.deleted.push(path.as_bytes().into()),
            Event::Undeleted { failure } => told.undeleted.push(failure.text),
            Event::Left { .. }
            | Event::Omitted { .. }
            | Event::Resumed { .. }
            | Event::Durable { .. }
            | Event::Damaged { .. }
            | Event::StreamDamaged { .. } => {}
        }
    });
    (watch, told)
}

/// An observer of an end, and the events that it received.
type Watched = (Watch, Arc<Mutex<Told>>);

/// Two ends, their streams, and the events that they reported.
pub struct Ends {
    pub sender: Arc<Transfer>,
    pub receiver: Arc<Transfer>,
    sent: Arc<Mutex<Told>>,
    received: Arc<Mutex<Told>>,
}

/// The endings of both ends.
pub struct Ended {
    pub sender: Ending,
    pub receiver: Ending,
    pub sent: Told,
    pub received: Told,
}

impl Ended {
    pub fn is_complete(&self) -> bool {
        self.sender.farewell == Farewell::Complete && self.sent.failed.is_empty()
    }
}

impl Ends {
    pub fn start(settings: TransferSettings, from: Sources, to: Destination) -> Ends {
        Ends::start_watched(settings, from, to, watch(), watch())
    }

    /// Starts both ends without observers.
    pub fn start_unwatched(settings: TransferSettings, from: Sources, to: Destination) -> Ends {
        let nobody = || -> (Watch, Arc<Mutex<Told>>) { (Arc::new(|_| {}), Arc::default()) };
        Ends::start_watched(settings, from, to, nobody(), nobody())
    }

    pub fn start_watched(
        settings: TransferSettings,
        from: Sources,
        to: Destination,
        (send_watch, sent): (Watch, Arc<Mutex<Told>>),
        (receive_watch, received): (Watch, Arc<Mutex<Told>>),
    ) -> Ends {
        let watched = ((send_watch, sent), (receive_watch, received));
        Ends::start_sides(settings, SendSide::new(from), ReceiveSide::new(to), watched)
    }

    /// Starts both ends with a selection of the sources.
    pub fn start_selecting(
        settings: TransferSettings,
        (from, selection): (Sources, &Filter),
        to: Destination,
    ) -> Ends {
        let selected = Selected::new(selection).unwrap();
        let side = SendSide::new(from).selecting(selected);
        Ends::start_sides(settings, side, ReceiveSide::new(to), (watch(), watch()))
    }

    /// Starts both ends with this sending side.
    pub fn start_coding(settings: TransferSettings, from: SendSide, to: Destination) -> Ends {
        Ends::start_sides(settings, from, ReceiveSide::new(to), (watch(), watch()))
    }

    fn start_sides(
        settings: TransferSettings,
        from: SendSide,
        to: ReceiveSide,
        ((send_watch, sent), (receive_watch, received)): (Watched, Watched),
    ) -> Ends {
        let receiver = Transfer::receiving(settings.clone(), to, receive_watch);
        let sender = Transfer::sending(settings, from, send_watch);
        Ends {
            sender,
            receiver,
            sent,
            received,
        }
    }

    /// Joins both ends by a new stream; false if one of them is over.
    pub fn join(&self, number: u32, clear: bool) -> bool {
        let (left, right) = local_pair().unwrap();
        let id = StreamId(number);
        let (sent, received) = (
            self.sender.streams().received(),
            self.receiver.streams().received(),
        );
        self.receiver.streams().attach(right, id, clear, sent)
            && self.sender.streams().attach(left, id, clear, received)
    }

    /// Joins like [`Ends::join`], and returns a handle that kills the stream.
    pub fn join_killable(&self, number: u32) -> Option<StreamHandle> {
        let (left, right) = local_pair().unwrap();
        let handle = left.handle.clone();
        self.join_by(left, right, number, false).then_some(handle)
    }

    /// Joins both ends by the two given streams.
    pub fn join_by(&self, left: Stream, right: Stream, number: u32, clear: bool) -> bool {
        let id = StreamId(number);
        let (sent, received) = (
            self.sender.streams().received(),
            self.receiver.streams().received(),
        );
        self.receiver.streams().attach(right, id, clear, sent)
            && self.sender.streams().attach(left, id, clear, received)
    }

    /// Returns counters of work at both ends. If they do not change for [`PATIENCE`], the ends
    /// hang, even on a slow host.
    fn work(&self) -> [u64; 8] {
        let [sender, receiver] =
            [&self.sender, &self.receiver].map(|end| end.measurements().progress());
        [
            sender.walked_entries,
            sender.read_bytes,
            sender.done_entries,
            sender.settled_bytes,
            receiver.disk_bytes,
            receiver.done_entries,
            receiver.done_bytes,
            receiver.lost_streams,
        ]
    }

    pub fn finish(self, context: &str) -> Ended {
        let (mut until, mut work) = (Instant::now() + PATIENCE, self.work());
        while !self.sender.wait_for(Duration::from_millis(200)) {
            let before = std::mem::replace(&mut work, self.work());
            if before != work {
                until = Instant::now() + PATIENCE;
            } else if Instant::now() > until {
                let (sender, receiver) = (
                    self.sender.measurements().progress(),
                    self.receiver.measurements().progress(),
                );
                panic!("{context}: hangs\n{sender:#?}\n{receiver:#?}");
            }
        }
        let sender = self.sender.wait();
        let receiver = self.receiver.wait();
        let (sent, received) = (self.sent.lock().unwrap(), self.received.lock().unwrap());
        Ended {
            sender,
            receiver,
            sent: sent.clone(),
            received: received.clone(),
        }
    }
}

/// Copies a tree named `top` over two streams. The destination is claimed first; a failure of that
/// is returned.
pub fn copy(
    mut settings: TransferSettings,
    from: &Arc<dyn Directory>,
    to: &Arc<dyn Directory>,
    context: &str,
) -> Result<Ended, String> {
    let destination = destination(to.clone());
    settings.epoch = destination.take().map_err(|error| error.to_string())?;
    let top = from.open_directory(b"top").unwrap();
    let ends = Ends::start(
        settings,
        sources(top, What::Tree(b"top"[..].into())),
        destination,
    );
    for number in 0..2 {
        ends.join(number, false);
    }
    Ok(ends.finish(context))
}
