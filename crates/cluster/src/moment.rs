//! The clock of leases. It also runs while the host is suspended, and is never compared with the
//! clock of another host.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since this host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// Returns the current time.
    pub fn now() -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Moment(Duration::new(seconds, time.tv_nsec as u32))
    }

    /// Returns the moment that is `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }

    /// Returns the time since an earlier moment; zero if it is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
