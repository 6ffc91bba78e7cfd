//! `longhaul worker`: the process on each host of a site. It obeys the orders on its standard input
//! until that is closed, and writes reports to its standard output.
//!
//! - `destination`: a daemon that serves the root
//! - `source`: sessions that send from the root
//! - `observing`: events of sessions as reports
//! - `reports`: writes reports
//!
//! A worker reads and writes only beneath the root with which it was started: the order of a
//! session names files beneath it, and the addresses of a specification are replaced.

mod destination;
mod observing;
mod reports;
mod source;

use std::fs::File;
use std::io::BufReader;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use longhaul_transfer::stop::{Exit, Stop};

use crate::private::Private;
use crate::protocol::{Begin, MAXIMUM_ORDER_BYTES, Order, Report, VERSION, read};
use reports::Reports;
use source::Sessions;

/// Shortest interval between two signs of life.
const LEAST_ALIVE: Duration = Duration::from_millis(50);

/// Settings of a worker.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Directory that the worker reads or serves.
    pub root: PathBuf,
}

/// Runs a worker until its input is closed.
///
/// # Errors
///
/// The coordinator is another release, or an order is invalid.
pub fn run(settings: WorkerSettings, input: OwnedFd, output: OwnedFd) -> Result<Exit, Stop> {
    let reports = Reports::new(File::from(output));
    reports.send(&Report::Ready {
        version: VERSION.to_owned(),
    });
    let result = obey(&settings, BufReader::new(File::from(input)), &reports);
    if let Err(stop) = &result {
        reports.send(&Report::Failed {
            exit: stop.exit.code(),
            text: stop.text.clone(),
        });
    }
    result
}

fn obey(
    settings: &WorkerSettings,
    mut input: BufReader<File>,
    reports: &Reports,
) -> Result<Exit, Stop> {
    let mut next = || {
        read::<Order>(&mut input, MAXIMUM_ORDER_BYTES)
            .map_err(|error| Stop::new(Exit::Usage, format!("an order is invalid: {error}")))
    };
    let begin = match next()? {
        Some(Order::Begin(begin)) => begin,
        Some(_) => return Err(Stop::new(Exit::Usage, "the first order is no transfer")),
        None => return Ok(Exit::Done),
    };
    if begin.version != VERSION {
        let text = format!(
            "the worker is longhaul {VERSION} and the coordinator {}: install the same release",
            begin.version
        );
        return Err(Stop::new(Exit::Usage, text));
    }
    let private = Private::new().map_err(|error| {
        let text = format!("cannot make a directory for temporary files: {error}");
        Stop::new(Exit::Local, text)
    })?;
    let _alive = report_life(&begin, reports)?;
    let (begin, private) = (Arc::new(*begin), Arc::new(private));
    let sessions = Sessions::new(&settings.root, (&begin, &private), reports);
    let mut serving = None;
    while let Some(order) = next()? {
        match order {
            Order::Begin(_) => return Err(Stop::new(Exit::Usage, "the transfer began before")),
            Order::Serve(serve) if serving.is_none() => {
                let daemon =
                    destination::start(&settings.root, &serve, (&begin, &private), reports)?;
                serving = Some(daemon);
            }
            Order::Serve(_) => return Err(Stop::new(Exit::Usage, "the daemon runs already")),
            Order::Start(start) => sessions.start(start)?,
            Order::Cancel { session } => sessions.cancel(session),
        }
    }
    sessions.end();
    if let Some(daemon) = serving {
        destination::end(daemon);
    }
    Ok(Exit::Done)
}

/// Reports regularly that the worker runs, until the result is dropped.
fn report_life(begin: &Begin, reports: &Reports) -> Result<Sender<()>, Stop> {
    let interval = Duration::from_millis(begin.alive_milliseconds).max(LEAST_ALIVE);
    let (open, ended) = channel::<()>();
    let reports = reports.clone();
    let tell = move || {
        while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            reports.send(&Report::Alive {});
        }
    };
    let thread = std::thread::Builder::new().name("alive".into());
    let started = thread.spawn(tell);
    started.map(|_| open).map_err(|error| {
        let text = format!("cannot start a thread: {error}");
        Stop::new(Exit::Local, text)
    })
}
