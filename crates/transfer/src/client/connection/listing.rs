//! A listing over a stream that serves no other purpose.

use std::time::Duration;

use longhaul_engine::session::opening::{self, OpenError};
use longhaul_net::Stream;
use longhaul_proto::listing::{ListRequest, Listed};

use super::open_stop;
use crate::stop::Stop;

/// Reasons for an early end of a listing.
pub(super) enum ListStop {
    Open(OpenError),
    Told(Stop),
}

impl ListStop {
    pub(super) fn of(self, host: &dyn std::fmt::Display) -> Stop {
        match self {
            ListStop::Open(error) => open_stop(host, &error),
            ListStop::Told(stop) => stop,
        }
    }
}

impl From<OpenError> for ListStop {
    fn from(error: OpenError) -> ListStop {
        ListStop::Open(error)
    }
}

/// Lists a remote path over a stream that serves no other purpose. Fails after `silence` without
/// data from the other end.
pub fn list_over(
    stream: &mut Stream,
    request: ListRequest,
    (host, silence): (&dyn std::fmt::Display, Duration),
    tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
) -> Result<(), Stop> {
    try_list(stream, request, silence, tell).map_err(|stop| stop.of(host))
}

pub(super) fn try_list(
    stream: &mut Stream,
    request: ListRequest,
    silence: Duration,
    tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
) -> Result<(), ListStop> {
    opening::list(stream, request, silence, |listed| {
        tell(listed).map_err(ListStop::Told)
    })
}
