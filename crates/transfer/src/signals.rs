//! SIGINT and SIGTERM.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal that comes again within this time is the same one: a lab, and
/// `timeout`, send it to a process and to the group that it is in.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// Does something at every SIGINT and SIGTERM, on a thread of its own.
///
/// # Errors
///
/// Where there is no such thread: a signal then ends this process.
pub fn at_signal(mut what: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watch = move || {
        let mut first = None;
        for _ in signals.forever() {
            let again = first.is_some_and(|at: Instant| at.elapsed() < SAME_SIGNAL);
            first.get_or_insert_with(Instant::now);
            if !again {
                what();
            }
        }
    };
    let watcher = std::thread::Builder::new().name("signals".into());
    watcher.spawn(watch).map(drop)
}
