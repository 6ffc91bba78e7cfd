//! Who this process is, for those who find what it left.

use longhaul_engine::recv::landing::file_time_now;
use longhaul_storage::journal::Owner;

/// This process, as a journal names it.
pub fn owner() -> Owner {
    let mut session = [0; 16];
    // Without randomness the process and its start still tell it from others.
    let _ = longhaul_net::token::fill_random(&mut session);
    Owner {
        host: host_name().into(),
        process: std::process::id(),
        started: file_time_now(),
        session,
    }
}

/// This host's name.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    let mut name = name.nodename().to_string_lossy().into_owned();
    name.truncate(200);
    name
}

/// Who copies on this host.
pub fn user_name() -> String {
    format!("uid {}", rustix::process::geteuid().as_raw())
}
