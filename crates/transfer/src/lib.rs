//! A copy as others call it: endpoints, sessions over TLS and SSH, copies between two
//! remote hosts, the daemon. It knows no command line and no terminal: what happens goes
//! to the caller, who shows it.
//!
//! - [`spec`]: a transfer as a value; [`settings`]: how hosts are reached
//! - [`filter_rules`]: what to copy of a source, with the files that hold rules
//! - [`endpoint`]: where data come from and go to
//! - [`client`]: runs a transfer; its observer hears what happens
//! - [`planning`]: what a copy is expected to do, and what earlier ones did
//! - [`ssh`]: the other end is started over SSH; [`far_side`]: that other end
//! - [`third_party`]: copies between two remote hosts, and the jobs that run them
//! - [`running`]: copies that run, and their rate
//! - [`hangup`]: no command outlives this process; [`signals`]: what a command does at a signal
//! - [`daemon`]: lets principals in and runs their sessions
//! - [`mod@clean`]: what interrupted copies left; [`mod@list`]: what lies at an endpoint
//! - [`codecs`]: which codec a block has, and what codecs did
//! - [`rendering`]: what happens, as text and as JSON
//! - [`console`]: where notices and questions go
//! - [`log_writer`]: a log that nothing waits for
//! - [`stop`]: why an operation ended early, and the exit code

pub mod about;
pub mod clean;
pub mod client;
pub mod codecs;
pub mod console;
pub mod daemon;
pub mod endpoint;
pub mod entry_log;
pub mod far_side;
pub mod filter_rules;
pub mod hangup;
pub mod list;
pub mod log_writer;
pub mod manifest;
mod milliseconds;
pub mod other_tools;
mod own_binary;
pub mod planning;
pub mod point_in_time;
pub mod ports;
pub mod rate_limit;
pub mod rendering;
pub mod running;
pub mod settings;
pub mod signals;
pub mod spec;
pub mod ssh;
mod state;
pub mod stop;
mod text;
pub mod third_party;
