//! The protocol with two ends and a virtual clock: no sockets, no threads, no
//! disk. Every schedule is its seed: `LONGHAUL_SEED=n cargo test -p
//! longhaul-proto --test all simulation::` runs one again; `LONGHAUL_SCHEDULES` says
//! how many are run.

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
