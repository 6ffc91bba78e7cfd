//! `longhaul jobs`, `attach`, `cancel`: copies between two remote hosts that run without their
//! client.

use longhaul_transfer::rendering::json;
use longhaul_transfer::third_party::hosts::{ask, check_host, reach};
use longhaul_transfer::third_party::job_protocol::{self, Listed, Order, Shown, State};
use longhaul_transfer::third_party::started;
use longhaul_transfer::third_party::viewer::Unseen;
use longhaul_transfer::third_party::watch::{Fetched, Left, Watched};

use super::screen::{Screen, leave_at_signal};
use crate::arguments::{AttachArguments, BandwidthLimit, CancelArguments, JobsArguments};
use crate::messages::{Exit, Stop, finish, harmless, print_line, say};

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
            .for_each(|(host, job)| print_line!("{}", json::job(host, job))),
        false => print(&lines, exit),
    }
    Ok(exit)
}

fn hosts_of(jobs: &[Listed]) -> Vec<String> {
    let mut hosts: Vec<String> = jobs.iter().map(|job| job.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

fn state_of(job: &Listed) -> String {
    match job.state {
        State::Running => "running".to_owned(),
        State::Ended(0) => "done".to_owned(),
        State::Ended(code) if code == Exit::Interrupted.code() => "cancelled".to_owned(),
        State::Ended(code) => format!("exit {code}"),
        State::Lost => "killed".to_owned(),
        State::Elsewhere => format!("on {}", harmless(&job.host)),
    }
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

/// A line for each job, in columns.
fn table(lines: &[(String, Listed)]) -> Vec<String> {
    let cells = |(host, job): &(String, Listed)| {
        [
            job.name.clone(),
            state_of(job),
            job.began_at(),
            harmless(host),
            job.command().to_owned(),
        ]
    };
    let rows: Vec<[String; 5]> = lines.iter().map(cells).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3, 4].map(width);
    let line = |(row, (_, job)): (&[String; 5], &(String, Listed))| {
        let columns = row.iter().zip(widths);
        let columns = columns.map(|(cell, width)| format!("{cell:<width$}  "));
        let columns: String = columns.collect();
        format!("{columns}{} -> {}", harmless(&job.from), harmless(&job.to))
    };
    rows.iter().zip(lines).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_did_not_answer_may_have_jobs() {
        assert_eq!(nothing(&[], Exit::Done), Some("no jobs"));
        assert_eq!(nothing(&[], Exit::Connection), None);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let job = |state, compares| Listed {
            name: "0a1b2c3d".into(),
            host: "a-node-with-a-long-name".into(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state,
            compares,
        };
        let lines = table(&[
            ("dtn7".to_owned(), job(State::Running, true)),
            (
                "user@dtn.example.org".to_owned(),
                job(State::Elsewhere, false),
            ),
            ("d".to_owned(), job(State::Ended(0), false)),
        ]);
        for text in ["1970-01-01", "  a -> b"] {
            let at: Vec<Option<usize>> = lines.iter().map(|line| line.find(text)).collect();
            assert!(
                at[0].is_some() && at.iter().all(|place| *place == at[0]),
                "{lines:#?}"
            );
        }
    }
}
