//! A session that moves zeros and discards them for a given time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::recv::ReceiveSide;
use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_engine::send::SendSide;
use longhaul_engine::send::source::Sources;
use longhaul_engine::session::{Dialer, FlowCounts, Transfer, TransferSettings};
use longhaul_measure::host::HostDescription;
use longhaul_measure::sources::Direction;
use longhaul_net::token::fill_random;
use longhaul_proto::block::HeaderKey;
use longhaul_proto::digest::Integrity;
use longhaul_proto::handshake::{Request, RequestPath, Role};
use longhaul_proto::message::Farewell;
use longhaul_proto::options::{TransferOptions, Verification};
use longhaul_storage::measuring::sink;
use longhaul_transfer::client::connection::{Connected, Daemon, Opened, block_key, usual_blocks};
use longhaul_transfer::client::owner::owner;
use longhaul_transfer::endpoint::zero_of;
use longhaul_transfer::stop::{Exit, Stop};

use super::span::Span;
use super::trial::{Seen, SharedSeen, Watcher};

/// Number of zeros, more than any path carries in the time: 1 PiB.
const ENDLESS: u64 = 1 << 50;

/// Interval between checks for a signal.
const GLANCE: Duration = Duration::from_millis(100);

/// Description of a session.
pub struct Ask<'a> {
    /// Direction of the data.
    pub direction: Direction,
    /// Number of streams.
    pub streams: u32,
    /// Duration since the first data were acknowledged.
    pub time: Duration,
    /// Maximum additional time until the first data and enough samples arrive, because
    /// hosts may be busy.
    pub patience: Duration,
    /// Congestion control of the sending end. `None` means its kernel's default.
    pub congestion: Option<String>,
    /// If true, blocks are not encrypted.
    pub clear: bool,
    /// Timeout for a silent daemon.
    pub silence: Duration,
    /// If true, the daemon's host description is requested.
    pub wants_host: bool,
    /// Set by a signal.
    pub interrupted: &'a AtomicBool,
}

/// Result of a session.
#[derive(Clone)]
pub struct Session {
    /// Samples of both ends over time.
    pub seen: Seen,
    /// Lead of the daemon's clock minus the delay of a message, in nanoseconds.
    pub clock_lead: Option<i64>,
    /// Protection of the data, for example TLS.
    pub protection: &'static str,
    /// Software of the daemon.
    pub software: String,
    /// Description of the daemon's host, if it was requested and sent. A daemon that does
    /// not let this principal measure sends none.
    pub host: Option<HostDescription>,
}

/// An end that can open sessions.
pub trait Reach {
    /// Connects without a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the end cannot be reached or has another key.
    fn connect(&self) -> Result<Connected, Stop>;

    /// Opens a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the end refuses or the connection breaks.
    fn open(&self, connected: Connected, request: Request) -> Result<Opened, Stop>;

    /// Returns a dialer for further streams of the session.
    fn dialer(&self, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer;
}

impl Reach for Daemon {
    fn connect(&self) -> Result<Connected, Stop> {
        Daemon::connect(self, usual_blocks(), None)
    }

    fn open(&self, connected: Connected, request: Request) -> Result<Opened, Stop> {
        Daemon::open(self, connected, request, &[])
    }

    fn dialer(&self, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        Daemon::dialer(self, opened, transfer)
    }
}

impl Ask<'_> {
    /// Moves zeros for the given time.
    ///
    /// # Errors
    ///
    /// Returns an error if no session can be opened, it broke off, or a signal arrived.
    pub fn run(&self, far: &impl Reach) -> Result<Session, Stop> {
        let connected = far.connect()?;
        self.run_on(far, connected, |_| {})
    }

    /// Performs the session on an existing connection. `meanwhile` may use the session
    /// before the time begins.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Ask::run`].
    pub fn run_on(
        &self,
        far: &impl Reach,
        connected: Connected,
        meanwhile: impl FnOnce(&Arc<Transfer>),
    ) -> Result<Session, Stop> {
        let request = self.request()?;
        let (source, key) = (request.source, request.header_key());
        let opened = far.open(connected, request)?;
        if self.clear && !opened.welcome.clear {
            let text = "the daemon does not allow blocks in clear: start it with --allow-clear, or \
                        remove --data-security clear";
            return Err(Stop::new(Exit::Authentication, text));
        }
        let transfer = self.transfer(&opened, source, key)?;
        let dialer = far.dialer(&opened, &transfer);
        let (watcher, seen) = Watcher::new(self.streams, self.congestion.clone());
        transfer.regulator().steer_by(Box::new(watcher));
        let protection = if self.clear {
            "clear"
        } else {
            opened.stream.handle.protection()
        };
        let software = opened.welcome.software.clone();
        let host = opened.welcome.host.as_deref().filter(|_| self.wants_host);
        let host = host.and_then(|json| HostDescription::from_json(json.as_bytes()).ok());
        let granted = opened.welcome.maximum_streams.max(1);
        opened.begin(&transfer, dialer)?;
        meanwhile(&transfer);
        let lasted = self.wait(
            &transfer,
            Span::new(self.streams.min(granted), self.time, self.patience),
            &seen,
        );
        let clock_lead = transfer.measurements().clock_lead();
        transfer.end(Farewell::Cancelled);
        let ending = transfer.wait();
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Stop::new(Exit::Interrupted, "interrupted"));
        }
        if !lasted {
            let text = match ending.farewell {
                Farewell::Broken(text) => text,
                _ => "the daemon ended it".to_owned(),
            };
            return Err(Stop::new(
                Exit::Connection,
                format!("the measurement broke off: {text}; run the command again"),
            ));
        }
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Session {
            seen,
            clock_lead,
            protection,
            software,
            host,
        })
    }

    /// Waits until the measurement is over. False if the session ended before.
    fn wait(&self, transfer: &Transfer, mut span: Span, seen: &SharedSeen) -> bool {
        let began = Instant::now();
        while !self.interrupted.load(Ordering::Relaxed) {
            let left = {
                let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                span.left(began.elapsed(), &seen)
            };
            let Some(left) = left else { return true };
            if transfer.wait_for(left.min(GLANCE)) {
                return false;
            }
        }
        true
    }

    /// Returns the request to the other end.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random numbers.
    pub fn request(&self) -> Result<Request, Stop> {
        let source = random()?;
        let (role, path) = match self.direction {
            Direction::To => (Role::Sender, RequestPath::Null),
            Direction::From => (Role::Receiver, RequestPath::Zero(ENDLESS)),
        };
        let names = Sources::new(vec![zero_of(ENDLESS)]).top_names();
        let names = names.filter(|_| self.direction == Direction::To);
        Ok(Request {
            source,
            block_key: block_key(self.clear)?,
            destination_empty: self.direction == Direction::From,
            names: names.map(|names| names.into_iter().map(Into::into).collect()),
            large_files: 1,
            wants_host: self.wants_host,
            ..Request::new(role, vec![path], options())
        })
    }

    fn transfer(
        &self,
        opened: &Opened,
        source: [u8; 32],
        key: Option<HeaderKey>,
    ) -> Result<Arc<Transfer>, Stop> {
        let welcome = &opened.welcome;
        let settings = TransferSettings {
            block_bytes: opened.block_bytes as usize,
            flows: FlowCounts {
                streams: self.streams.min(welcome.maximum_streams.max(1)) as usize,
                ..FlowCounts::default()
            },
            silence: self.silence,
            linger: self.silence,
            clear: key.filter(|_| welcome.clear),
            epoch: welcome.epoch,
            asks: match self.direction {
                Direction::To => !welcome.destination_empty,
                Direction::From => false,
            },
            ..TransferSettings::new(&options())
        };
        let watch = Arc::new(|_| {});
        Ok(match self.direction {
            Direction::To => {
                let sources = Sources::new(vec![zero_of(ENDLESS)]);
                Transfer::sending(settings, SendSide::new(sources), watch)
            }
            Direction::From => {
                let arrival = Arrival::new(owner(), source, &options());
                let destination = Destination::sink(sink(), arrival);
                destination
                    .take()
                    .map_err(|error| Stop::because(Exit::Local, error))?;
                Transfer::receiving(settings, ReceiveSide::new(destination), watch)
            }
        })
    }
}

/// Returns the options of a measurement. It uses the cheapest integrity check, because the path is
/// measured and not the hosts.
fn options() -> TransferOptions {
    TransferOptions {
        verification: Verification {
            integrity: Integrity::Checksum,
            ..Verification::default()
        },
        compression: None,
        ..TransferOptions::default()
    }
}

/// Returns a random source identifier, so that no other transfer is fenced.
fn random() -> Result<[u8; 32], Stop> {
    let mut bytes = [0; 32];
    fill_random(&mut bytes).map_err(|_| {
        Stop::new(
            Exit::Local,
            "the system provides no random numbers: try again later",
        )
    })?;
    Ok(bytes)
}
