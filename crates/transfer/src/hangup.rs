//! Ends the running commands for files before a signal ends the process.

use std::sync::Once;

use longhaul_engine::shell;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Ensures that the handler is installed once.
static HEEDED: Once = Once::new();

/// Installs a handler for signals without another handler. It ends the commands that this process
/// runs and then the process, with the default action of the signal. A signal that is ignored
/// (`nohup`) stays ignored.
pub fn end_commands_at(signals: &[i32]) {
    HEEDED.call_once(|| {
        // Commands require /proc, so without it no command runs.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let Some(ignored) = ignored(&status) else {
            return;
        };
        let heeded = signals.iter().filter(|signal| !is_in(ignored, **signal));
        // If the thread cannot start, the signal ends only this process.
        let Ok(mut signals) = Signals::new(heeded) else {
            return;
        };
        let watch = move || {
            if let Some(signal) = signals.forever().next() {
                shell::end_all();
                // This call does not return.
                let _ = emulate_default_handler(signal);
            }
        };
        let watcher = std::thread::Builder::new().name("hangup".into());
        let _ = watcher.spawn(watch);
    });
}

/// Parses the set of ignored signals from `/proc/self/status`, one bit per signal.
fn ignored(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn is_in(set: u64, signal: i32) -> bool {
    let bit = u32::try_from(signal - 1).ok();
    bit.and_then(|bit| set.checked_shr(bit)).unwrap_or(0) & 1 == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernel() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let set = ignored(status).unwrap();
        assert!(is_in(set, SIGHUP));
        assert!(!is_in(set, SIGINT) && !is_in(set, SIGTERM));
        assert_eq!(ignored(""), None);
        assert_eq!(ignored("SigIgn:\tx"), None);
        assert!(!is_in(u64::MAX, 0) && !is_in(u64::MAX, 65));
        assert!(ignored(&std::fs::read_to_string("/proc/self/status").unwrap()).is_some());
    }
}
