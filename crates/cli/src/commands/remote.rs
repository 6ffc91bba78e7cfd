//! `longhaul remote`: the remote end of a copy over SSH, started by ssh or by a daemon.

use longhaul_transfer::between_hosts::drive;
use longhaul_transfer::remote_process::{self, RemoteProcessSettings};
use longhaul_transfer::ssh::install;

use crate::arguments::RemoteArguments;
use crate::log;
use crate::messages::{Exit, Stop, finish, print_line};
use crate::report::Report;

/// Runs `longhaul remote`.
pub fn run(arguments: &RemoteArguments) -> Exit {
    // A job is started through a link to this program; without this, the link's name
    // would be shown.
    let _ = rustix::thread::set_name(c"longhaul");
    log::start_far_side();
    finish(serve(arguments))
}

fn serve(arguments: &RemoteArguments) -> Result<Exit, Stop> {
    if arguments.digest {
        let local = |error: std::io::Error| Stop::because(Exit::Local, error);
        let own = std::env::current_exe().map_err(local)?;
        print_line!("{}", install::digest(&own).map_err(local)?);
        return Ok(Exit::Done);
    }
    if let Some(name) = &arguments.join {
        return remote_process::carry(name);
    }
    if arguments.own_job {
        return drive::run_own(&Report::of_job);
    }
    if let Some(name) = &arguments.attach {
        return drive::attach(name);
    }
    let settings = RemoteProcessSettings {
        ports: arguments.ports,
        memory: arguments.memory.0,
        linger: arguments.linger,
        expiry: arguments.expire_leftovers.0,
        confined: arguments.confined.clone(),
        dial: arguments.dial.clone(),
        channels: arguments.channels.clone(),
    };
    match (arguments.jobs, arguments.drive) {
        (true, _) => drive::jobs(),
        (_, true) => drive::run(&settings, &Report::of_job),
        _ => remote_process::session(&settings, arguments.meet),
    }
}
