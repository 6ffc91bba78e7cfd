//! Records the entries and the end of a daemon's job in its audit log.

use std::sync::Arc;

use longhaul_engine::session::Event;
use longhaul_proto::message::Farewell;

use super::observer::{Again, Observer, Outcome, Running};
use crate::daemon::audit::AuditSession;
use crate::planning::foresight::Foreseen;
use crate::stop::Stop;

struct Audited {
    inner: Arc<dyn Observer>,
    audit: Arc<AuditSession>,
}

/// Wraps an observer, if the transfer has an audit log.
pub fn audited(inner: &Arc<dyn Observer>, audit: Option<&Arc<AuditSession>>) -> Arc<dyn Observer> {
    match audit {
        None => Arc::clone(inner),
        Some(audit) => Arc::new(Audited {
            inner: Arc::clone(inner),
            audit: Arc::clone(audit),
        }),
    }
}

impl Observer for Audited {
    fn event(&self, event: &Event) {
        self.audit.event(event);
        self.inner.event(event);
    }

    fn begun(&self, running: &Running) {
        self.inner.begun(running);
    }

    fn wants_forecast(&self) -> bool {
        self.inner.wants_forecast()
    }

    fn foreseen(&self, foreseen: &Foreseen) {
        self.inner.foreseen(foreseen);
    }

    fn again(&self, again: &Again<'_>) {
        self.inner.again(again);
    }

    fn concluded(&self, outcome: &Outcome<'_>) -> Result<(), Stop> {
        let ended = match &outcome.ending.farewell {
            Farewell::Complete => "complete",
            Farewell::Fenced => "a newer session took over",
            Farewell::Cancelled => "cancelled",
            Farewell::Restarting => "the other daemon was stopped for a restart",
            Farewell::Broken(text) | Farewell::Storage(text) => text,
        };
        let progress = &outcome.progress;
        let bytes = progress.done_bytes.max(progress.settled_bytes);
        self.audit.end(Some(progress), bytes, ended);
        self.inner.concluded(outcome)
    }
}
