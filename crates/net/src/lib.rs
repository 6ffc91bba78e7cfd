//! Byte streams between hosts: authentication and rights of the other end, and transport of the
//! bytes. No code here reads or writes the files of a copy.
//!
//! [`tcp`] makes a connection. [`tls`] (or [`clear`], for block streams where this is permitted)
//! turns it into a [`stream::Stream`], which consists of two halves for two threads and a handle
//! for observers.
//!
//! - [`stream`]: the halves and the handle, for all kinds of streams
//! - [`tcp`], [`tcp_info`]: connecting, socket options, the kernel's measurements
//! - [`sockets`]: the same for other processes' sockets
//! - [`congestion`]: the initial congestion control of a connection
//! - [`multipath`]: streams that the kernels spread over several paths
//! - [`tls`]: TLS 1.3 over TCP
//! - [`clear`]: no encryption: trusted networks and copies within a host
//! - [`candidates`]: possible addresses of an end, and the choice between them
//! - [`relay`]: pipes of another process as a socket
//! - [`identity`]: keys, certificates, fingerprints
//! - `provider`: the cryptography and its cipher suites
//! - `tls_errors`: errors of rustls as sentences
//! - [`validity`]: the dates of certificates
//! - [`trust`], [`known_hosts`]: trust in servers
//! - [`principals`], [`token`], [`client_tokens`]: rights and their authentication
//! - [`gate`]: the limit of unauthenticated connections
//! - [`config_directory`]: location of the user's configuration

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
