//! The protocols FTP and GridFTP as values and parsers, without sockets, clocks and threads.
//!
//! - [`command`]: lines that the client sends
//! - [`reply`]: lines that the server sends, as replies
//! - [`features`]: abilities that the server lists
//! - [`address`]: ports and addresses of data connections
//! - [`facts`], [`unix_listing`]: entries of a directory
//! - [`time`]: times in the notation of the protocol
//! - [`ranges`]: ranges of bytes, as restart markers carry them
//! - [`block`]: frames of extended block mode (MODE E)
//!
//! RFC 959, 2428, 3659 and 4217 describe FTP; GFD.20 and GFD.47 describe GridFTP.

pub mod address;
pub mod block;
pub mod command;
pub mod facts;
pub mod features;
pub mod ranges;
pub mod reply;
pub mod time;
pub mod unix_listing;
