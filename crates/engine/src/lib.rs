//! The data path: a session of two hosts, with the threads that read, send, receive and write.
//!
//! `longhaul-storage` has files, `longhaul-net` has streams between hosts, and `longhaul-system`
//! has the interfaces to the operating system that all of them need.
//!
//! - [`session`] drives one pair of hosts: a [`session::Transfer`] is one end
//! - `ends` creates an end from a session and its stages
//! - [`send`] is the sending pipeline: walk -> read -> compress -> seal -> wire
//! - [`recv`] is the receiving pipeline: wire -> open -> decompress -> write -> commit
//! - [`intents`]: announces commits and deletions before they are made
//! - [`listing`]: lists the entries at a path
//! - [`pool`]: the buffers of all blocks with one memory budget
//! - [`benchmark`]: measures the parts of a single host
//! - [`shell`]: runs commands of users
//! - [`flows`], [`codec`]: threads of layers, and codecs

pub mod benchmark;
pub mod codec;
mod ends;
pub mod flows;
pub mod intents;
pub mod listing;
pub mod pool;
pub mod recv;
pub mod send;
pub mod session;
pub mod shell;
