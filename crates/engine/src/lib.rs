//! The data path: the only crate that touches disks, sockets and threads.
//!
//! - [`session`] drives one pair of hosts: a [`session::Transfer`] is one end
//! - `ends` puts a session and its stages together
//! - [`send`] is the way out: walk -> read -> compress -> seal -> wire
//! - [`recv`] is the way in: wire -> open -> decompress -> write -> commit
//! - [`net`]: streams, TLS, identities, principals
//! - [`storage`]: every durable call, behind two traits
//! - [`journal`]: what of a large file is durable, beside the file
//! - [`listing`]: what lies at a path
//! - [`pool`]: the buffers of all blocks under one memory budget
//! - [`probe`]: what a host can do alone
//! - [`allowance`]: the threads and memory that the system allows
//! - [`clock`]: the time of day
//! - [`shell`]: commands of users
//! - [`named_files`]: files that are not data of a copy
//! - [`owners`]: users and groups by name and by number
//! - [`flows`], [`queue`], [`codec`], `file_data`, `idle`: what layers are made of

pub mod allowance;
pub mod clock;
pub mod codec;
mod descriptors;
mod ends;
pub mod failure;
mod file_data;
pub mod flows;
mod idle;
pub mod journal;
pub mod listing;
pub mod looks;
pub mod named_files;
pub mod net;
pub mod notices;
pub mod owners;
pub mod pool;
pub mod probe;
pub mod queue;
pub mod recv;
pub mod send;
pub mod session;
mod shares;
pub mod shell;
pub mod storage;
