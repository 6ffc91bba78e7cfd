//! A copy as others call it: endpoints, sessions over TLS and SSH, copies between two
//! remote hosts, the daemon. It knows no command line and no terminal: what happens goes
//! to the caller, who shows it ([`console`]).

pub mod console;
pub mod endpoint;
pub mod ports;
pub mod rate_limit;
pub mod ssh;
pub mod stop;
pub mod third_party;
