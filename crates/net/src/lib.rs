//! Byte streams between hosts: who is at the other end, what it may do, and
//! how the bytes travel. No code here reads or writes the files of a copy.
//!
//! A connection is made by [`tcp`], becomes a [`stream::Stream`] by [`tls`] (or, for block streams
//! that were allowed to, by [`clear`]) and is then two halves for two threads and a handle for
//! observers.
//!
//! - [`stream`]: the halves and the handle, whatever lies below
//! - [`tcp`], [`tcp_info`]: connecting, socket options, what the kernel measures
//! - [`sockets`]: the same of other processes' sockets
//! - [`congestion`]: what governs a connection from the start
//! - [`multipath`]: streams that the kernels spread over several paths
//! - [`tls`]: TLS 1.3 over TCP
//! - [`clear`]: no encryption: trusted networks and copies within a host
//! - [`candidates`]: addresses that may lead to an end, and which does
//! - [`relay`]: pipes of another process as a socket
//! - [`identity`]: keys, certificates, fingerprints
//! - `provider`: the cryptography and its cipher suites
//! - `tls_errors`: errors of rustls as sentences
//! - [`validity`]: the dates of certificates
//! - [`trust`], [`known_hosts`]: whether a server is the one that was meant
//! - [`principals`], [`token`], [`client_tokens`]: who may do what, and how it
//!   is proved
//! - [`gate`]: how many strangers are let in at once
//! - [`config_directory`]: where all of that is kept

pub mod candidates;
pub mod clear;
pub mod client_tokens;
pub mod config_directory;
pub mod congestion;
pub mod gate;
pub mod host_limits;
pub mod identity;
pub mod known_hosts;
pub mod multipath;
pub mod principals;
mod provider;
pub mod relay;
pub mod sha256;
mod sleeper;
pub mod sockets;
pub mod stream;
pub mod tcp;
pub mod tcp_info;
pub mod tls;
mod tls_errors;
pub mod token;
pub mod trust;
pub mod validity;

pub use stream::{Stream, StreamHandle, StreamReader, StreamWriter};
