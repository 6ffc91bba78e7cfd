//! A signal that ends a process at once ends the commands before that run for files.

use std::sync::Once;

use longhaul_engine::shell;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// This is done once.
static HEEDED: Once = Once::new();

/// At each of these signals, which nobody else heeds, the commands that this process runs end, and
/// then it does, as the signal ends others. One that is ignored (`nohup`) stays so.
pub fn end_commands_at(signals: &[i32]) {
    HEEDED.call_once(|| {
        // Without /proc no command runs.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let Some(ignored) = ignored(&status) else {
            return;
        };
        let heeded = signals.iter().filter(|signal| !is_in(ignored, **signal));
        // Where there is no such thread, the signal ends this process alone.
        let Ok(mut signals) = Signals::new(heeded) else {
            return;
        };
        let watch = move || {
            if let Some(signal) = signals.forever().next() {
                shell::end_all();
                // It does not come back from that.
                let _ = emulate_default_handler(signal);
            }
        };
        let watcher = std::thread::Builder::new().name("hangup".into());
        let _ = watcher.spawn(watch);
    });
}

/// The signals that a process ignores, a bit each, as the kernel tells.
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
    fn what_is_ignored_is_read_as_the_kernel_tells_it() {
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
