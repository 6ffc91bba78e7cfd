//! The data path: a session of two hosts, with the threads that read, send, receive and write.
//!
//! `longhaul-storage` has files, `longhaul-net` has streams between hosts, and `longhaul-system`
//! has the parts of the operating system that all of them need.
//!
//! - [`session`] drives one pair of hosts: a [`session::Transfer`] is one end
//! - `ends` puts a session and its stages together
//! - [`send`] is the way out: walk -> read -> compress -> seal -> wire
//! - [`recv`] is the way in: wire -> open -> decompress -> write -> commit
//! - [`listing`]: what lies at a path
//! - [`pool`]: the buffers of all blocks under one memory budget
//! - [`probe`]: what a host can do alone
//! - [`shell`]: commands of users
//! - [`flows`], [`codec`]: the parts that layers are made of

pub mod codec;
mod ends;
pub mod flows;
pub mod listing;
pub mod pool;
pub mod probe;
pub mod recv;
pub mod send;
pub mod session;
pub mod shell;
