//! What a user sees of a transfer: a progress line or JSON events while it
//! runs, failures as they happen, a summary and a manifest at the end.

mod json;
pub mod manifest;
mod notices;
mod progress;
mod summary;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use longhaul_engine::send::stream::WholeStream;
use longhaul_engine::session::{Ending, Event, Transfer, Watch};
use longhaul_proto::digest::Checksum;
use longhaul_proto::handshake::Purport;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Change, FailureKind, Farewell};
use longhaul_proto::notice::{Notice, NoticeKind};

use crate::arguments::BandwidthLimit;
use crate::commands::steering::Shared as Steered;
use crate::messages::{Exit, Stop, clear_line, leave, say, write_error_line, write_output};
use crate::signals::at_signal;
use crate::ssh::route::Route;
pub use json::name_of;
use manifest::Manifest;

/// What an interrupted command says last.
pub const INTERRUPTED: &str = "interrupted; the same command resumes it";

/// How a command reports.
pub struct Report {
    shared: Arc<Shared>,
}

struct Shared {
    json: bool,
    quiet: bool,
    /// What would be copied is named on standard output.
    names: bool,
    /// The summary tells of layers, wire and decisions.
    detailed: bool,
    terminal: bool,
    /// The rate that the transfer is bound to.
    limit: Mutex<Limit>,
    failed: AtomicU64,
    /// Failures that mean that data differ.
    differing: AtomicU64,
    interrupted: AtomicBool,
    /// What was asked for by name: not to get it is a failure.
    asked: Mutex<Vec<NoticeKind>>,
    /// Signals are waited for.
    heeds_signals: AtomicBool,
    manifest: Option<Mutex<Manifest>>,
    /// How streams were steered, where somebody did.
    steered: OnceLock<Steered>,
    /// How the data went, where there is more than one way.
    route: OnceLock<Route>,
    /// One stream of data was copied, and this is what was read of it.
    stream: OnceLock<Option<WholeStream>>,
    /// Who is told how far it is, where nobody is at a terminal.
    outlet: OnceLock<Arc<dyn Outlet>>,
    /// What an interrupt ends.
    running: Mutex<Option<Weak<Transfer>>>,
}

/// The rate that a transfer is bound to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// The rate; none: it is not bound.
    rate: Option<BandwidthLimit>,
    /// It was another one before.
    changed: bool,
}

/// Tells others how far a transfer is.
pub trait Outlet: Send + Sync {
    /// It has begun.
    fn begun(&self);
    /// The newest progress line.
    fn line(&self, line: String);
    /// The newest progress event.
    fn event(&self, event: String);
    /// The summary is next.
    fn over(&self);
}

impl Report {
    /// A report.
    pub fn new(
        json: bool,
        quiet: bool,
        manifest: Option<(PathBuf, String)>,
    ) -> Result<Report, Stop> {
        let manifest = manifest.map(|(file, named)| Manifest::new(file, named));
        let manifest = manifest.transpose()?;
        let shared = Shared {
            json,
            quiet,
            names: false,
            detailed: false,
            limit: Mutex::default(),
            terminal: std::io::stderr().is_terminal(),
            failed: AtomicU64::new(0),
            differing: AtomicU64::new(0),
            interrupted: AtomicBool::new(false),
            asked: Mutex::default(),
            heeds_signals: AtomicBool::new(false),
            manifest: manifest.map(Mutex::new),
            steered: OnceLock::new(),
            route: OnceLock::new(),
            stream: OnceLock::new(),
            outlet: OnceLock::new(),
            running: Mutex::default(),
        };
        Ok(Report {
            shared: Arc::new(shared),
        })
    }

    /// The summary tells how streams were steered.
    pub fn tell_of(&self, steered: Steered) {
        // A command steers one transfer.
        let _ = self.shared.steered.set(steered);
    }

    /// The summary tells how the data went.
    pub fn tell_route(&self, route: Option<Route>) {
        if let Some(route) = route {
            let _ = self.shared.route.set(route);
        }
    }

    /// The summary tells of one stream of data, of which this was read; none
    /// where it did not come to its end.
    pub fn tell_stream(&self, whole: Option<WholeStream>) {
        let _ = self.shared.stream.set(whole);
    }

    /// Progress is told to others, and shown to nobody here.
    pub fn tell_progress(&self, outlet: Arc<dyn Outlet>) {
        // A command has one transfer, and one place to tell of it.
        let _ = self.shared.outlet.set(outlet);
    }

    /// What ends the transfer in order, as an interrupt does.
    pub fn interrupter(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            shared.interrupt();
        }
    }

    /// What binds the transfer to another rate, or to none: the one that runs,
    /// or will.
    pub fn limiter(&self) -> impl Fn(Option<BandwidthLimit>) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |rate| {
            let changed = true;
            // Before one looks whether it runs: who begins it looks after that.
            *shared.limit() = Limit { rate, changed };
            let transfer = shared.running().as_ref().and_then(Weak::upgrade);
            if let Some(transfer) = transfer {
                transfer.limit(rate.map(BandwidthLimit::bytes_per_second));
            }
        }
    }

    /// The same; whether what would be copied is named.
    pub fn naming(mut self, names: bool) -> Report {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.names = names;
        }
        self
    }

    /// The same; whether the summary tells of layers, wire and decisions.
    pub fn detailed(mut self, detailed: bool) -> Report {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.detailed = detailed;
        }
        self
    }

    /// The same of a transfer that is bound to a rate.
    pub fn bound_to(mut self, limit: Option<BandwidthLimit>) -> Report {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            let changed = false;
            shared.limit = Mutex::new(Limit {
                rate: limit,
                changed,
            });
        }
        self
    }

    /// A flag asked for this: where the destination does not keep it the copy is not complete.
    pub fn ask_for(&self, kind: NoticeKind) {
        let asked = self.shared.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).push(kind);
    }

    /// What a transfer tells its events to.
    pub fn watch(&self) -> Watch {
        let shared = Arc::clone(&self.shared);
        Arc::new(move |event| shared.handle(&event))
    }

    /// Follows a transfer until it is over: progress, and signals that end it.
    pub fn follow(&self, transfer: &Arc<Transfer>) {
        *self.shared.running() = Some(Arc::downgrade(transfer));
        if self.was_interrupted() {
            transfer.end(Farewell::Cancelled);
        }
        let limit = *self.shared.limit();
        if limit.changed {
            transfer.limit(limit.rate.map(BandwidthLimit::bytes_per_second));
        }
        self.end_at_signal();
        if let Some(outlet) = self.shared.outlet.get() {
            outlet.begun();
            let (outlet, transfer) = (Arc::clone(outlet), Arc::clone(transfer));
            let thread = std::thread::Builder::new().name("progress".into());
            // Without it nobody hears how far it is; it goes on.
            let _ = thread.spawn(move || progress::tell(&transfer, &*outlet));
            return;
        }
        if self.shared.quiet || !(self.shared.terminal || self.shared.json) {
            return;
        }
        let (shared, transfer) = (Arc::clone(&self.shared), Arc::clone(transfer));
        let followed = std::thread::Builder::new()
            .name("progress".into())
            .spawn(move || {
                progress::follow(&transfer, shared.json, shared.terminal);
            });
        if let Err(error) = followed {
            say(&format!("there will be no progress line: {error}"));
        }
    }

    /// SIGINT and SIGTERM end the transfer, a second one the process, and the
    /// first one too as long as there is no transfer.
    pub fn end_at_signal(&self) {
        if self.shared.heeds_signals.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let heeded = at_signal(move || {
            if shared.interrupt() || shared.running().is_none() {
                say(INTERRUPTED);
                leave(Exit::Interrupted);
            }
        });
        if let Err(error) = heeded {
            say(&format!("an interrupt will end this at once: {error}"));
        }
    }

    /// Whether a signal ended it.
    pub fn was_interrupted(&self) -> bool {
        self.shared.interrupted.load(Ordering::Relaxed)
    }

    /// The end: summary and manifest.
    pub fn conclude(
        &self,
        transfer: &Transfer,
        ending: &Ending,
        purport: Purport,
    ) -> Result<(), Stop> {
        clear_line();
        let shared = &self.shared;
        if let Some(outlet) = shared.outlet.get() {
            outlet.over();
        }
        let mut progress = transfer.progress();
        let stream = shared.stream.get();
        if stream.is_some() {
            // However many pieces it went in.
            let done = ending.totals.is_some() && shared.failed.load(Ordering::Relaxed) == 0;
            progress.files = done.into();
            progress.done_entries = done.into();
            if !done {
                // Nothing of a stream that broke off is kept.
                progress.done_bytes = 0;
                progress.settled_bytes = 0;
                progress.account.durable_bytes = 0;
            }
        }
        let stream = stream.copied().flatten().filter(|_| progress.files > 0);
        let none = Steered::default();
        let steered = shared.steered.get().unwrap_or(&none).lock();
        let steered = steered.unwrap_or_else(PoisonError::into_inner);
        if shared.json {
            if let Some(stream) = stream {
                json::stream(&stream);
            }
            json::summary(
                &progress,
                ending,
                &steered,
                shared.route.get(),
                shared.limit().rate,
            );
        } else if !shared.quiet {
            summary::print(&progress, ending, shared.asked(purport), transfer, &steered);
            if let Some(WholeStream { bytes, digest }) = stream {
                let digest = manifest::hexadecimal(&digest);
                write_error_line(&format!(
                    "the stream: {bytes} bytes, BLAKE3 {digest} (as b3sum prints it there)"
                ));
            }
            let what = match purport {
                Purport::Copy => "data",
                Purport::Verify => "checksums",
                Purport::DryRun => "names",
            };
            let route = shared.route.get();
            for line in route.map_or_else(Vec::new, |route| route.lines(what)) {
                write_error_line(&line);
            }
        }
        drop(steered);
        shared.tell_notices(&ending.notices);
        match &shared.manifest {
            Some(manifest) if ending.farewell == Farewell::Complete => manifest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(),
            _ => Ok(()),
        }
    }

    /// The exit code of a transfer that came to its end.
    pub fn exit(&self, purport: Purport) -> Exit {
        let failed = self.shared.failed.load(Ordering::Relaxed) > 0;
        let differing = self.shared.differing.load(Ordering::Relaxed) > 0;
        if differing || failed && purport == Purport::Verify {
            return Exit::Integrity;
        }
        match self.shared.failed.load(Ordering::Relaxed) {
            0 => Exit::Done,
            _ => Exit::Partial,
        }
    }
}

/// What to say of a block that arrived wrong.
fn damage(path: &TreePath, piece: Option<(u64, u64)>, entries: usize) -> String {
    let what = match (piece, entries) {
        (Some((offset, length)), _) => format!(", {length} bytes from byte {offset} on,"),
        (None, 2..) => format!(" and {} other files", entries - 1),
        (None, _) => String::new(),
    };
    format!("{path}{what} arrived damaged: sent again")
}

/// What to say of a stream on which damage was noticed.
pub fn stream_damage(stream: u32, error: &str) -> String {
    format!(
        "connection {stream} is replaced, for what came on it was damaged on its way: {error}; \
         what was under way on it is sent again"
    )
}

/// An entry and what is done with it: for programs the name's bytes, for people none that
/// move a terminal's cursor.
fn name(what: &[u8], path: &TreePath) {
    clear_line();
    match std::io::stdout().is_terminal() {
        true => write_output(&[what, path.to_string().as_bytes(), b"\n"].concat()),
        false => write_output(&[what, path.as_bytes(), b"\n"].concat()),
    }
}

/// What a copy would do with an entry.
fn planned(change: Change) -> &'static [u8] {
    match change {
        Change::New => b"new ",
        Change::Changed => b"changed ",
    }
}

impl Shared {
    fn limit(&self) -> MutexGuard<'_, Limit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self, purport: Purport) -> summary::Asked {
        summary::Asked {
            purport,
            limit: *self.limit(),
            detailed: self.detailed,
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Weak<Transfer>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the transfer, or lets none begin; true where that was asked for
    /// before.
    fn interrupt(&self) -> bool {
        let before = self.interrupted.swap(true, Ordering::Relaxed);
        let transfer = self.running().as_ref().and_then(Weak::upgrade);
        if let Some(transfer) = transfer.filter(|_| !before) {
            transfer.end(Farewell::Cancelled);
        }
        before
    }

    /// Tells what the destination did not keep or refused.
    fn tell_notices(&self, told: &[Notice]) {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        for notice in told {
            let line = notices::line(notice);
            if asked.contains(&notice.kind) {
                self.failed.fetch_add(1, Ordering::Relaxed);
                say(&line);
            } else if !self.quiet && !self.json {
                write_error_line(&line);
            }
        }
    }

    fn handle(&self, event: &Event) {
        if self.json {
            json::event(event);
        }
        match event {
            Event::Failed { path, failure } => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let differs = [
                    FailureKind::Differs,
                    FailureKind::Extra,
                    FailureKind::Corrupt,
                ];
                if differs.contains(&failure.kind) {
                    self.differing.fetch_add(1, Ordering::Relaxed);
                }
                let shown = path.as_ref().map(ToString::to_string).unwrap_or_default();
                match failure.text.contains(&shown) {
                    true => say(&failure.text),
                    false => say(&format!("{shown}: {}", failure.text)),
                }
            }
            Event::Planned { path, change, .. } if self.names => name(planned(*change), path),
            Event::Planned { .. } => {}
            Event::Committed { path, digest, .. } | Event::Skipped { path, digest, .. } => {
                if self.names && matches!(event, Event::Committed { .. }) {
                    name(b"", path);
                }
                if let (Some(manifest), Some(Checksum::Blake3(digest))) = (&self.manifest, digest) {
                    let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
                    manifest.add(path.as_bytes(), digest);
                }
            }
            Event::Damaged {
                path,
                piece,
                entries,
            } => say(&damage(path, *piece, *entries)),
            Event::StreamDamaged { stream, error } => say(&stream_damage(*stream, error)),
            Event::Resumed { .. } | Event::Durable { .. } => {}
        }
    }
}
