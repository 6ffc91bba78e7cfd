//! Limits the log lines about failed connections: a few lines, and the number of further ones. A
//! port scan thus cannot fill the disk.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::console::{MAXIMUM_LOGGED_BYTES, one_line};

/// Maximum number of lines per [`SPAN`]. A few suffice to identify the cause.
const MOST_LINES: u32 = 5;

/// Length of a period, after which further lines may be logged.
const SPAN: Duration = Duration::from_secs(60);

/// State of the log lines about failed connections.
#[derive(Default)]
pub struct Unauthenticated(Mutex<Said>);

#[derive(Default)]
struct Said {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Unauthenticated {
    /// Logs a failed connection and its reason, unless the limit is reached.
    pub fn note(&self, text: &str) {
        if let Some(line) = self.line(text, Instant::now()) {
            tracing::warn!(outcome = "unauthenticated", "{line}");
        }
    }

    /// Returns the line to log, or `None` if the limit is reached.
    fn line(&self, text: &str, now: Instant) -> Option<String> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = one_line(text, MAXIMUM_LOGGED_BYTES);
        if said
            .since
            .is_none_or(|since| now.duration_since(since) >= SPAN)
        {
            if said.left_out > 0 {
                line += &format!(
                    " ({} other connections failed in the meantime)",
                    said.left_out
                );
            }
            *said = Said {
                since: Some(now),
                ..Said::default()
            };
        }
        if said.lines == MOST_LINES {
            said.left_out += 1;
            return None;
        }
        said.lines += 1;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_scan_adds_few_lines_and_is_counted() {
        let (unauthenticated, began) = (Unauthenticated::default(), Instant::now());
        let said = |at| unauthenticated.line("a\nb", began + at);
        let lines = (0..100).filter_map(|_| said(Duration::ZERO)).count();
        assert_eq!(lines, MOST_LINES as usize);
        let last = SPAN - Duration::from_millis(1);
        assert_eq!(said(last), None);
        let next = said(SPAN).unwrap();
        assert!(next.starts_with("a\u{fffd}b (96 other"), "{next}");
        assert_eq!(said(SPAN).unwrap(), "a\u{fffd}b");
    }
}
