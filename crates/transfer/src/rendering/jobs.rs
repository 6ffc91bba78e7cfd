//! The list of jobs.

use crate::console::harmless;
use crate::stop::Exit;
use crate::third_party::job_protocol::{Listed, State};

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

/// The hosts that run them, each once.
pub fn hosts_of(jobs: &[Listed]) -> Vec<String> {
    let mut hosts: Vec<String> = jobs.iter().map(|job| job.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// A line for each job and the host that was asked, in columns.
pub fn table(lines: &[(String, Listed)]) -> Vec<String> {
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
