//! The longhaul protocol: the messages of two hosts, and what each has to do next. No I/O, no
//! clock, no threads: the driver supplies those (`longhaul-engine`, or the simulation in the
//! tests).
//!
//! - [`manifest`]: what is to move: entries of a tree, identities of files
//! - [`digest`]: block checksums and how they merge to a file's digest
//! - [`ledger`]: which blocks are at the destination
//! - [`frame`]: how messages and blocks lie on a byte stream
//! - [`handshake`]: how a stream opens a session or joins one
//! - [`filter`]: what of a tree is copied
//! - [`listing`]: what lies at a path, without a session
//! - [`command`]: commands that run where files arrive
//! - [`message`]: messages within a session, in order
//! - [`block`]: what carries file data, in any order, on any stream
//! - [`shuffle`]: what goes before a codec, for arrays of numbers
//! - [`coding`]: codecs, what they did at an end, and kinds of data
//! - [`calls`]: what came of connecting to the other end
//! - [`distinct`]: proof that a source and its copy are in different directories
//! - [`control`]: messages in order and once, over streams that may die
//! - [`secret`]: what must not be guessed, and how it is compared
//! - [`session`]: how long a session lives and who steers it
//! - [`sender`], [`receiver`]: the two ends of a transfer
//! - [`stream`]: data of unknown length, as a directory of pieces
//! - [`account`]: what became of file data, counted byte by byte
//!
//! A driver passes events to `handle_*`, then drains every `poll_*` until it has nothing more, and
//! calls again at the moment that `poll_timeout` returns. Time is an argument.

pub mod account;
pub mod allowed;
pub mod attributes;
pub mod backup;
pub mod block;
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
pub mod receiver;
pub mod secret;
pub mod sender;
pub mod session;
pub mod shuffle;
pub mod stream;
pub mod text;
