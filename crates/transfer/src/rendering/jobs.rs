//! Formats the list of jobs.

use longhaul_units::ByteCount;

use crate::between_hosts::job_protocol::{Listed, State};
use crate::between_hosts::own_job::HERE;
use crate::console::one_line;
use crate::stop::Exit;

/// Formats a name on one line.
fn shown(name: &str) -> String {
    one_line(name, usize::MAX)
}

fn done_bytes_of(job: &Listed) -> String {
    let bytes = job.done_bytes.map(|bytes| ByteCount(bytes).to_string());
    bytes.unwrap_or_else(|| "-".to_owned())
}

fn state_of(job: &Listed) -> String {
    match job.state {
        State::Running => "running".to_owned(),
        State::Ended(0) => "done".to_owned(),
        State::Ended(code) if code == Exit::Interrupted.code() => "cancelled".to_owned(),
        State::Ended(code) => format!("exit {code}"),
        State::Lost => "killed".to_owned(),
        State::Elsewhere => format!("on {}", shown(&job.host)),
    }
}

/// Returns the hosts that run these jobs, each once. This host comes first, because it answers at
/// once.
pub fn hosts_of(jobs: &[Listed]) -> Vec<String> {
    let mut hosts: Vec<String> = jobs.iter().map(|job| job.host.clone()).collect();
    hosts.sort_by_key(|host| (host != HERE, host.clone()));
    hosts.dedup();
    hosts
}

/// Formats a line in columns for each job and the host that listed it.
pub fn table(lines: &[(String, Listed)]) -> Vec<String> {
    let cells = |(host, job): &(String, Listed)| {
        [
            job.name.clone(),
            state_of(job),
            done_bytes_of(job),
            job.began_at(),
            shown(host),
            job.command().to_owned(),
        ]
    };
    let rows: Vec<[String; 6]> = lines.iter().map(cells).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3, 4, 5].map(width);
    let line = |(row, (_, job)): (&[String; 6], &(String, Listed))| {
        let columns = row.iter().zip(widths);
        let columns = columns.map(|(cell, width)| format!("{cell:<width$}  "));
        let columns: String = columns.collect();
        format!("{columns}{} -> {}", shown(&job.from), shown(&job.to))
    };
    rows.iter().zip(lines).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_one_line_for_any_names() {
        let job = Listed {
            name: "0a1b2c3d".into(),
            host: "dtn7".into(),
            from: "new\nline".into(),
            to: "tab\t\x1b[2J".into(),
            began: 7,
            state: State::Lost,
            compares: false,
            done_bytes: None,
            bwlimit_bytes_per_second: None,
        };
        let lines = table(&[("dtn7".to_owned(), job)]);
        assert!(!lines[0].contains(|c: char| c.is_control()), "{lines:?}");
    }

    #[test]
    fn the_jobs_of_this_host_are_listed_first() {
        let job = |host: &str| Listed {
            name: "0a1b2c3d".into(),
            host: host.into(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state: State::Running,
            compares: false,
            done_bytes: None,
            bwlimit_bytes_per_second: None,
        };
        let hosts = hosts_of(&[job("dtn7"), job("a"), job(HERE), job("dtn7")]);
        assert_eq!(hosts, [HERE, "a", "dtn7"]);
    }

    #[test]
    fn columns_have_the_width_of_their_widest_cell() {
        let job = |state, compares| Listed {
            name: "0a1b2c3d".into(),
            host: "a-node-with-a-long-name".into(),
            from: "a".into(),
            to: "b".into(),
            began: 7,
            state,
            compares,
            done_bytes: Some(3_000_000),
            bwlimit_bytes_per_second: None,
        };
        let lines = table(&[
            ("dtn7".to_owned(), job(State::Running, true)),
            (
                "user@dtn.example.org".to_owned(),
                job(State::Elsewhere, false),
            ),
            ("d".to_owned(), job(State::Ended(0), false)),
        ]);
        for text in ["3.00 MB", "1970-01-01", "  a -> b"] {
            let at: Vec<Option<usize>> = lines.iter().map(|line| line.find(text)).collect();
            assert!(
                at[0].is_some() && at.iter().all(|place| *place == at[0]),
                "{lines:#?}"
            );
        }
    }
}
