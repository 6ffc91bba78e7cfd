//! Simulates the protocol with two ends and a virtual clock: no sockets, no threads, no disk. A
//! seed determines each schedule: `LONGHAUL_SEED=n cargo test -p longhaul-proto --test all
//! simulation::` runs one again. `LONGHAUL_SCHEDULES` sets the number of schedules.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod again;
mod checks;
mod disk;
mod distance;
mod dry_run;
mod growing;
mod hostile;
mod network;
mod random;
mod receiving;
mod round_trips;
mod scale;
mod scenario;
mod schedules;
mod sending;
mod slow_stream;
mod source;
mod streams;
mod world;
