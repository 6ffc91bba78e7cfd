//! The longhaul protocol: the messages between two hosts, and the next steps of each. No I/O, no
//! clock, no threads: the driver supplies those (`longhaul-engine`, or the simulation in the
//! tests).
//!
//! - [`manifest`]: entries of a tree and identities of files
//! - [`digest`]: block checksums and their combination to a file's digest
//! - [`ledger`]: the blocks that are at the destination
//! - [`frame`]: encoding of messages and blocks on a byte stream
//! - [`handshake`]: requests that open a session or join one
//! - [`options`]: options of a transfer
//! - [`filter`]: selection of the entries that are copied
//! - [`listing`]: listing of a path, without a session
//! - [`command`]: commands that run where files arrive
//! - [`message`]: messages within a session, in order
//! - [`block`]: blocks of file data, in any order, on any stream
//! - [`shuffle`]: rearrangement of arrays before a codec
//! - [`coding`]: codecs, statistics of their use, and kinds of data
//! - [`calls`]: results of connecting to the other end
//! - [`distinct`]: proof that a source and its copy are in different directories
//! - [`control`]: messages in order and once, over streams that may fail
//! - [`secret`]: secrets and their comparison
//! - [`session`]: lifetime of a session
//! - [`sender`], [`receiver`]: the two ends of a transfer
//! - [`stream`]: data of unknown length, as a directory of pieces
//! - [`account`]: account of file data, byte by byte
//!
//! A driver passes events to `handle_*`, then calls every `poll_*` until it returns no more, and
//! calls them again at the moment that `poll_timeout` returns. Time is an argument.

pub mod account;
pub mod allowed;
pub mod assembly;
pub mod attributes;
pub mod backup;
pub mod block;
pub mod byte_string;
pub mod calls;
pub mod coding;
pub mod command;
pub mod control;
pub mod criteria;
pub mod deletion;
pub mod digest;
pub mod distinct;
pub mod filter;
pub mod frame;
pub mod handshake;
pub mod keeping;
pub mod ledger;
pub mod listing;
pub mod manifest;
pub mod message;
pub mod notice;
pub mod options;
pub mod receiver;
pub mod secret;
pub mod sender;
pub mod session;
pub mod shuffle;
pub mod stream;
pub mod text;
