//! Transfers as a library: endpoints, sessions over TLS and SSH, copies between two remote hosts,
//! and the daemon. It has no command line and no terminal; events go to the caller.
//!
//! - [`spec`]: specification of a transfer; [`settings`]: connection settings
//! - [`filter_rules`]: rules that select entries, from options and files
//! - [`endpoint`]: sources and destinations of data
//! - [`client`]: runs a transfer and reports events to its observer
//! - [`planning`]: forecasts, and the history of earlier transfers
//! - [`ssh`]: starts the other end over SSH; [`remote_process`]: that other end
//! - [`between_hosts`]: copies between two remote hosts, and the jobs that run them
//! - [`running`]: running copies and their rate
//! - [`hangup`]: ends commands with the process; [`signals`]: handling of signals
//! - [`daemon`]: authenticates principals and runs their sessions
//! - [`daemon_log`]: log of a daemon on standard error
//! - [`mod@clean`]: removes files of interrupted copies; [`mod@list`]: lists an endpoint
//! - [`codecs`]: choice of codecs, and reports on them
//! - [`rendering`]: events as text and as JSON
//! - [`console`]: notices and questions to the user
//! - [`log_writer`]: writes a log without blocking
//! - [`stop`]: reasons for an early end, and exit codes

pub mod about;
pub mod between_hosts;
pub mod clean;
pub mod client;
pub mod codecs;
pub mod console;
pub mod daemon;
pub mod daemon_log;
pub mod endpoint;
pub mod entry_log;
pub mod filter_rules;
mod ftp;
pub mod hangup;
pub mod list;
pub mod log_writer;
pub mod manifest;
mod milliseconds;
mod object_files;
pub mod other_tools;
mod own_binary;
pub mod planning;
pub mod point_in_time;
pub mod ports;
pub mod quantities;
pub mod rate_limit;
pub mod remote_process;
pub mod rendering;
pub mod running;
pub mod settings;
pub mod signals;
pub mod spec;
pub mod ssh;
mod state;
pub mod stop;
mod text;
