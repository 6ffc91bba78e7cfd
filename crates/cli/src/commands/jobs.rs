//! `longhaul jobs`, `attach` and `cancel`: commands for jobs, which run without their
//! client. `limit` changes the rate of jobs and of other copies.

use std::time::Duration;

use longhaul_transfer::between_hosts::hosts::{ask, check_host, reach};
use longhaul_transfer::between_hosts::job_protocol::{Listed, Order, Shown};
use longhaul_transfer::between_hosts::own_job::HERE;
use longhaul_transfer::between_hosts::started;
use longhaul_transfer::between_hosts::watch::{Fetched, Left, Watched};
use longhaul_transfer::rendering::jobs::{hosts_of, table};
use longhaul_transfer::rendering::json;
use longhaul_transfer::running::{self, RunningHere};
use longhaul_transfer::settings::ConnectionSettings;

use super::screen::{Screen, leave_at_signal};
use crate::arguments::{
    AttachArguments, BandwidthLimit, CancelArguments, ChangedLimit, JobsArguments, LimitArguments,
};
use crate::messages::{Exit, Stop, finish, print_json, print_line, say};

/// Timeout for each host to answer `jobs`. An unreachable host must not delay the others.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// Runs `longhaul jobs`.
pub fn jobs(arguments: &JobsArguments) -> Exit {
    finish(list(arguments))
}

/// Runs `longhaul attach`.
pub fn attach(arguments: &AttachArguments) -> Exit {
    let screen = Screen::new(Shown {
        json: arguments.json,
        quiet: arguments.quiet,
        ..Shown::default()
    });
    let found = reach(&arguments.job, &arguments.connection.settings());
    let followed = found.and_then(|(found, _process)| {
        let watched = Watched {
            manifest: Fetched::into(arguments.manifest.as_deref())?,
            ..found
        };
        leave_at_signal(&watched);
        if let Some(limit) = arguments.bwlimit {
            let rate = limit.0.map_or(0, BandwidthLimit::bytes_per_second);
            watched.order(&Order::Limit(rate));
        }
        let left = watched.follow(&screen, false);
        let _ = watched.channel.shutdown(std::net::Shutdown::Both);
        left.map(Left::exit)
    });
    finish(followed)
}

/// Runs `longhaul limit`: changes or prints the rate of a running copy.
pub fn limit(arguments: &LimitArguments) -> Exit {
    finish(bind(arguments))
}

fn bind(arguments: &LimitArguments) -> Result<Exit, Stop> {
    let running = match (&arguments.copy, arguments.rate) {
        (None, _) => running::everything()?,
        (Some(copy), rate) => match (copy.parse(), rate) {
            (Ok(process), _) if copy.len() < 8 => vec![RunningHere::Copy(match rate {
                Some(rate) => running::limit(process, rate.0)?,
                None => running::ask(process)?,
            })],
            (_, Some(rate)) => return bind_job(arguments, copy, rate),
            _ => vec![running::job(copy)?],
        },
    };
    if running.is_empty() && !arguments.json {
        say("no copies of this user are running on this host");
    }
    for copy in running {
        if arguments.json {
            print_json(&json::running(&copy));
        } else {
            print_line!("{}", copy.line());
        }
    }
    Ok(Exit::Done)
}

fn bind_job(arguments: &LimitArguments, job: &str, rate: ChangedLimit) -> Result<Exit, Stop> {
    let (watched, _process) = reach(job, &arguments.connection.settings())?;
    watched.bind(rate.0)?;
    let unlimited = || "not limited (--bwlimit none)".to_owned();
    let limit = rate
        .0
        .map_or_else(unlimited, |rate| format!("limited to {rate}"));
    say(&format!("the rate of {job} is now {limit}"));
    Ok(Exit::Done)
}

/// Runs `longhaul cancel`.
pub fn cancel(arguments: &CancelArguments) -> Exit {
    finish(end(arguments))
}

fn end(arguments: &CancelArguments) -> Result<Exit, Stop> {
    let (watched, _process) = reach(&arguments.job, &arguments.connection.settings())?;
    let left = watched.cancel()?;
    let _ = watched.channel.shutdown(std::net::Shutdown::Both);
    let name = &watched.name;
    match left.exit() {
        Exit::Interrupted => say(&format!(
            "{name} is cancelled; the command that started it resumes the copy"
        )),
        other => say(&format!(
            "{name} had already ended with exit code {}",
            other.code()
        )),
    }
    Ok(Exit::Done)
}

fn list(arguments: &JobsArguments) -> Result<Exit, Stop> {
    let mut hosts = match arguments.hosts.as_slice() {
        [] => hosts_of(&started::list()),
        hosts => hosts.to_vec(),
    };
    hosts.sort_by_key(|host| host != HERE);
    for host in &hosts {
        check_host(host)?;
    }
    let asked = arguments.connection.settings();
    let connection = ConnectionSettings {
        timeout: arguments.connection.timeout.unwrap_or(ANSWERS_WITHIN),
        ..asked
    };
    let (mut exit, mut any) = (Exit::Done, false);
    for host in hosts {
        if host != HERE {
            say(&format!("asking {host} for its jobs"));
        }
        match ask(&host, &connection) {
            // Printed at once, because the next host may not answer.
            Ok(jobs) => {
                any |= !jobs.is_empty();
                let jobs = jobs.into_iter().map(|job| (host.clone(), job));
                print(&jobs.collect::<Vec<_>>(), arguments.json);
            }
            Err(stop) => {
                say(&stop.text);
                exit = stop.exit;
            }
        }
    }
    if let Some(text) = nothing(any, exit).filter(|_| !arguments.json) {
        say(text);
    }
    Ok(exit)
}

/// Returns the message if no job is listed. A host that did not answer may have jobs.
fn nothing(any: bool, exit: Exit) -> Option<&'static str> {
    (!any && exit == Exit::Done).then_some("no jobs")
}

fn print(lines: &[(String, Listed)], is_json: bool) {
    if is_json {
        lines
            .iter()
            .for_each(|(host, job)| print_json(&json::job(host, job)));
    } else {
        table(lines).iter().for_each(|line| print_line!("{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_host_may_have_jobs() {
        assert_eq!(nothing(false, Exit::Done), Some("no jobs"));
        assert_eq!(nothing(false, Exit::Connection), None);
        assert_eq!(nothing(true, Exit::Done), None);
    }
}
