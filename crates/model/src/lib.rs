//! A model of the components of a transfer, and decisions based on it. This crate has no I/O, no
//! clock and no threads: the caller supplies measurements and times.
//!
//! - [`capacity`]: the capacity of a layer, by its number of flows
//! - [`cluster`]: the hosts of a transfer between clusters, and their pairs
//! - [`compression`]: chooses the codec of each block while a transfer runs
//! - [`control`]: chooses the number of streams while a transfer runs
//! - [`optimise`]: the best numbers of flows for a graph
//! - [`policy`]: published rules for the numbers of flows, for comparison
//! - [`records`]: costs of layers, fitted to records of runs
//! - [`response`]: the rate of a stream under loss, by congestion control
//! - [`chosen`]: the flows that a plan chose
//! - [`check`]: predictions compared with records
//! - [`explain`]: an optimum with its explanation
//! - [`fit`]: fits capacities to measurements
//! - [`host`]: the capacities of a host, from its profile
//! - [`transfer`]: the graph of one of longhaul's own transfers
//! - [`history`]: earlier transfers, and predictions from them
//! - [`what_if`]: a graph with other hardware
//! - [`graph`]: the components of a transfer and their connections
//! - [`limit`]: names of the bottlenecks of a transfer
//! - [`forecast`]: the prediction of a copy, compared with its outcome
//! - [`kernel`]: the window that a host's kernel allows one stream
//! - [`advice`]: advice about a path, with sysctls that help

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
