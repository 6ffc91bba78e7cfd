//! A client of stock FTP and GridFTP servers.
//!
//! A [`session::Session`] is one control connection with its data connections. It lists
//! directories, fetches and stores files, and changes names. Files of a batch share the
//! commands' round trips where the server permits it. Several sessions to one server may run at
//! the same time.
//!
//! ```text
//! Session::open ── Control ── TCP, TLS or ssh            commands and replies
//!            └──── data connections
//!                  stream mode:   one connection for each file, one after the other
//!                  extended mode: several connections for each file, kept for the next file
//! ```
//!
//! In stream mode this end connects to the server. In extended block mode (MODE E) the sender of
//! data connects, so that a download needs a port at this end that the server can reach.
//!
//! - [`location`] parses URLs, [`netrc`] the file of passwords
//! - [`protocol`] has the protocols as values, without I/O
//! - `control` and `tls` make the control connection
//! - [`session`] has the login, names, listings and checksums
//! - `data` opens data connections
//! - [`retrieve`] and [`store`] transfer files

pub mod checksum;
mod control;
mod data;
mod error;
pub mod location;
pub mod netrc;
pub mod protocol;
pub mod session;
mod tls;

pub use error::Error;
pub use session::{retrieve, store};
