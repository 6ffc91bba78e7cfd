//! Identity of this process, recorded with the files that it leaves.

use longhaul_engine::recv::landing::file_time_now;
use longhaul_storage::journal::Owner;

/// Returns the identity of this process for a journal.
pub fn owner() -> Owner {
    let mut session = [0; 16];
    // Without random bytes, the process ID and start time still identify the process.
    let _ = longhaul_net::token::fill_random(&mut session);
    Owner {
        host: host_name().into(),
        process: std::process::id(),
        started: file_time_now(),
        session,
    }
}

/// Returns the name of this host.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    let mut name = name.nodename().to_string_lossy().into_owned();
    name.truncate(200);
    name
}

/// Returns the name of the user who runs this process.
pub fn user_name() -> String {
    format!("uid {}", rustix::process::geteuid().as_raw())
}
