//! `longhaul jobs`, `attach`, `cancel`: copies that run without their client. `limit` is for these
//! and for copies that do not.

use longhaul_transfer::rendering::jobs::{hosts_of, table};
use longhaul_transfer::rendering::json;
use longhaul_transfer::running;
use longhaul_transfer::third_party::hosts::{ask, check_host, reach};
use longhaul_transfer::third_party::job_protocol::{self, Listed, Order, Shown};
use longhaul_transfer::third_party::started;
use longhaul_transfer::third_party::viewer::Unseen;
use longhaul_transfer::third_party::watch::{Fetched, Left, Watched};

use super::screen::{Screen, leave_at_signal};
use crate::arguments::{
    AttachArguments, BandwidthLimit, CancelArguments, ChangedLimit, JobsArguments, LimitArguments,
};
use crate::messages::{Exit, Stop, finish, print_json, print_line, say};

/// Lists jobs.
pub fn jobs(arguments: &JobsArguments) -> Exit {
    finish(list(arguments))
}

/// Follows a job.
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
            // Where the channel is lost, that is heard and said.
            let _ = job_protocol::send(&watched.channel, &Order::Limit(rate));
        }
        let left = watched.follow(&screen, false);
        let _ = watched.channel.shutdown(std::net::Shutdown::Both);
        left.map(Left::exit)
    });
    finish(followed)
}

/// Changes the rate of a copy that runs, or says it.
pub fn limit(arguments: &LimitArguments) -> Exit {
    finish(bind(arguments))
}

fn bind(arguments: &LimitArguments) -> Result<Exit, Stop> {
    let copies = match (&arguments.copy, arguments.rate) {
        (None, _) => running::list()?,
        (Some(copy), rate) => match (copy.parse(), rate) {
            (Ok(process), _) if copy.len() < 8 => vec![match rate {
                Some(rate) => running::limit(process, rate.0)?,
                None => running::ask(process)?,
            }],
            (_, Some(rate)) => return bind_job(arguments, copy, rate),
            _ => {
                let text = format!("{copy}: name a rate, or none, for a job");
                return Err(Stop::new(Exit::Usage, text));
            }
        },
    };
    if copies.is_empty() && !arguments.json {
        say("no copies of yours run here");
    }
    for copy in copies {
        match arguments.json {
            true => print_json(&json::running(&copy)),
            false => print_line!("{}", copy.line()),
        }
    }
    Ok(Exit::Done)
}

fn bind_job(arguments: &LimitArguments, job: &str, rate: ChangedLimit) -> Result<Exit, Stop> {
    let (watched, _process) = reach(job, &arguments.connection.settings())?;
    watched.bind(rate.0)?;
    say(&format!("{job} is bound to {rate}"));
    Ok(Exit::Done)
}

/// Ends a job.
pub fn cancel(arguments: &CancelArguments) -> Exit {
    finish(end(arguments))
}

fn end(arguments: &CancelArguments) -> Result<Exit, Stop> {
    let (watched, _process) = reach(&arguments.job, &arguments.connection.settings())?;
    let lost = |error: std::io::Error| {
        let text = format!("{}: the connection was lost: {error}", watched.host);
        Stop::new(Exit::Connection, text)
    };
    job_protocol::send(&watched.channel, &Order::Cancel).map_err(lost)?;
    let left = watched.follow(&Unseen, false)?;
    let _ = watched.channel.shutdown(std::net::Shutdown::Both);
    let name = &watched.name;
    match left.exit() {
        Exit::Interrupted => say(&format!(
            "{name} is cancelled; the command that began it resumes it"
        )),
        other => say(&format!(
            "{name} had ended already, with exit code {}",
            other.code()
        )),
    }
    Ok(Exit::Done)
}

fn list(arguments: &JobsArguments) -> Result<Exit, Stop> {
    let hosts = match arguments.hosts.as_slice() {
        [] => hosts_of(&started::list()),
        hosts => hosts.to_vec(),
    };
    for host in &hosts {
        check_host(host)?;
    }
    let connection = arguments.connection.settings();
    let (mut exit, mut lines) = (Exit::Done, Vec::new());
    for host in hosts {
        match ask(&host, &connection) {
            Ok(jobs) => lines.extend(jobs.into_iter().map(|job| (host.clone(), job))),
            Err(stop) => {
                say(&stop.text);
                exit = stop.exit;
            }
        }
    }
    match arguments.json {
        true => lines
            .iter()
            .for_each(|(host, job)| print_json(&json::job(host, job))),
        false => print(&lines, exit),
    }
    Ok(exit)
}

fn print(lines: &[(String, Listed)], exit: Exit) {
    if let Some(text) = nothing(lines, exit) {
        say(text);
    }
    for line in table(lines) {
        print_line!("{line}");
    }
}

/// What to say where no job is listed. Of a host that did not answer nobody knows whether it has
/// any; why it did not was said.
fn nothing(lines: &[(String, Listed)], exit: Exit) -> Option<&'static str> {
    (lines.is_empty() && exit == Exit::Done).then_some("no jobs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_did_not_answer_may_have_jobs() {
        assert_eq!(nothing(&[], Exit::Done), Some("no jobs"));
        assert_eq!(nothing(&[], Exit::Connection), None);
    }
}
