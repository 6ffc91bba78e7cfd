//! What longhaul knows of a transfer's parts, and what it decides from it. No I/O, no clock, no
//! threads: the caller supplies the measurements and the time.
//!
//! - [`capacity`]: what a layer carries, by its number of flows
//! - [`cluster`]: how many hosts at each end, and which talks to which
//! - [`compression`]: which codec a block gets, while a transfer runs
//! - [`control`]: decides while a transfer runs: observations in, stream counts
//!   out
//! - [`optimise`]: the best numbers of flows for a graph
//! - [`policy`]: published rules for the numbers of flows, to compare with
//! - [`records`]: what layers took in runs whose records exist
//! - [`response`]: what loss leaves of a stream, by congestion control
//! - [`chosen`]: the flows that a plan chose
//! - [`check`]: predictions beside records
//! - [`explain`]: an optimum with its reasons
//! - [`fit`]: from measurements to capacities
//! - [`host`]: what a host can do, from its profile
//! - [`transfer`]: the graph of one of longhaul's own transfers
//! - [`history`]: earlier transfers, and what they say of the next one
//! - [`what_if`]: a graph with other hardware
//! - [`graph`]: the components of a transfer and how they are joined
//! - [`limit`]: what limits a transfer, in one vocabulary
//! - [`forecast`]: a copy's prediction, next to its outcome
//! - [`kernel`]: what a host's kernel lets one stream's window become
//! - [`advice`]: advice on a path, with the sysctls that would help

pub mod advice;
pub mod capacity;
pub mod check;
pub mod chosen;
pub mod cluster;
pub mod compression;
pub mod control;
pub mod explain;
pub mod fit;
pub mod forecast;
pub mod graph;
pub mod history;
pub mod host;
pub mod kernel;
pub mod limit;
pub mod optimise;
pub mod policy;
pub mod records;
pub mod response;
pub mod transfer;
pub mod what_if;
