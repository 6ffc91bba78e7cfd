//! Handles SIGINT and SIGTERM.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time within which a repeated signal counts as the same one. The lab and `timeout` send a signal
/// both to a process and to its group.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// Calls a function at every SIGINT and SIGTERM, on its own thread.
///
/// # Errors
///
/// Fails if the thread cannot be started. A signal then ends this process.
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
