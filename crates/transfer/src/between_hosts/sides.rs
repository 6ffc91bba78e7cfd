//! Splits a request about two remote hosts into the requests to each of them.

use std::path::Path;
use std::time::Duration;

use longhaul_proto::allowed::Allowed;
use longhaul_proto::handshake::{Operation, Role};

use super::job_protocol::{MAXIMUM_NAME_BYTES, Shown};
use super::viewer::Viewer;
use crate::endpoint::{Endpoint, RemotePath};
use crate::settings::ConnectionSettings;
use crate::spec::{TransferSpec, ValidSpec};
use crate::stop::{Exit, Stop};

/// A copy or comparison between two remote hosts.
pub struct JobRequest<'a> {
    /// Specification; both its sides are remote, unless it is a job of this host.
    pub spec: &'a ValidSpec,
    /// Source and destination as the user named them.
    pub named: [String; 2],
    /// Selects the texts that the job writes.
    pub shown: Shown,
    /// File on this host for the digests of all files.
    pub manifest: Option<&'a Path>,
    /// Files for the result of each entry: for programs, and for people. Only a job of this host
    /// writes them.
    pub accounts: [Option<&'a Path>; 2],
    /// If true, starts the job and waits only until it runs.
    pub detach: bool,
    /// If true, carries the data through this host.
    pub through_local: bool,
    /// Shows the job.
    pub viewer: &'a dyn Viewer,
}

impl JobRequest<'_> {
    /// Returns the connection settings.
    pub(super) fn connection(&self) -> &ConnectionSettings {
        &self.spec.connection
    }

    /// Returns the age at which leftovers expire. A comparison removes no leftovers.
    pub(super) fn expiry(&self) -> Option<Duration> {
        match self.spec.options.operation {
            Operation::Verify => None,
            Operation::Copy | Operation::DryRun => self.spec.limits.expiry(),
        }
    }

    /// Returns the specification for the host that runs the job, which has the sources or the
    /// destination.
    ///
    /// # Errors
    ///
    /// Fails if a job does not support a connection setting.
    pub(super) fn of_job(&self, runs_at_source: bool) -> Result<TransferSpec, Stop> {
        let mut spec = TransferSpec::clone(self.spec);
        if runs_at_source {
            spec.sources = spec.sources.iter().map(own_path).collect();
        } else {
            spec.destination = own_path(&spec.destination);
        }
        spec.connection = connection_of(&spec.connection)?;
        Ok(spec)
    }

    /// Returns the requests that the host that runs the job may make to the other host.
    pub(super) fn allowed(&self, runs_at_source: bool) -> Allowed {
        let spec = self.spec;
        let sources = spec.sources.iter().filter_map(Endpoint::remote_path);
        let sources = sources.map(RemotePath::request_path).collect();
        let options = &spec.options;
        let (role, paths, sources, options) = if runs_at_source {
            let to = spec.destination.remote_path().map(RemotePath::request_path);
            let paths = to.into_iter().collect();
            (Role::Sender, paths, sources, options.of_destination())
        } else {
            (Role::Receiver, sources, Vec::new(), options.of_source())
        };
        Allowed {
            role,
            options: Box::new(options.without_rules()),
            paths,
            sources,
        }
    }
}

/// Converts an endpoint at the host that runs the job into a path of that host.
fn own_path(endpoint: &Endpoint) -> Endpoint {
    let path = endpoint.remote_path();
    path.map_or_else(|| endpoint.clone(), RemotePath::at_its_host)
}

/// Returns the connection settings of the job. The client has already authenticated the hosts, so
/// the job gets no credentials.
fn connection_of(asked: &ConnectionSettings) -> Result<ConnectionSettings, Stop> {
    if !asked.bind.is_empty() {
        let text = "--bind is for connections of this host, and a copy between two remote hosts \
                    has none: leave it out";
        return Err(Stop::new(Exit::Usage, text));
    }
    Ok(asked.clone().introduced())
}

/// Returns a path as the user named it, for lists and messages.
pub fn named(path: &std::ffi::OsStr) -> String {
    let mut text = path.to_string_lossy().into_owned();
    text.truncate(text.floor_char_boundary(MAXIMUM_NAME_BYTES));
    text
}

/// Returns the sources and the destination of a command as the user named them, in short.
pub fn named_ends(paths: &[&std::ffi::OsString]) -> [String; 2] {
    let (to, sources) = match paths.split_last() {
        Some((to, sources)) => (named(to), sources),
        None => (String::new(), &[][..]),
    };
    let first = sources.first().map_or(String::new(), |first| named(first));
    let from = match sources.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    };
    [from, to]
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::between_hosts::viewer::Unseen;

    fn spec(sources: &[&str], destination: &str) -> TransferSpec {
        let parse = |text: &str| Endpoint::parse(OsStr::new(text)).unwrap();
        let sources = sources.iter().map(|text| parse(text)).collect();
        TransferSpec::copy(sources, parse(destination))
    }

    fn job(spec: &TransferSpec, at_source: bool) -> Result<TransferSpec, Stop> {
        let request = JobRequest {
            spec: &spec.clone().validate().unwrap(),
            named: Default::default(),
            shown: Shown::default(),
            manifest: None,
            accounts: [None, None],
            detach: false,
            through_local: false,
            viewer: &Unseen,
        };
        request.of_job(at_source)
    }

    /// Returns the paths that the host that runs the job parses.
    fn paths(sources: &[&str], destination: &str, at_source: bool) -> Vec<String> {
        let spec = job(&spec(sources, destination), at_source).unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        let understood: TransferSpec = serde_json::from_str(&text).unwrap();
        let ends = understood.sources.iter().chain([&understood.destination]);
        let shown = |end: &Endpoint| String::from_utf8(end.text()).unwrap();
        ends.map(shown).collect()
    }

    #[test]
    fn paths_keep_their_meaning_at_the_other_host() {
        let two = ["a:-x", "a:p:q"];
        assert_eq!(paths(&two, "u@[::1]:~", true), ["-x", "./p:q", "u@[::1]:."]);
        let zeros = paths(&["a:zero:1kB"], "b:null:", true);
        assert_eq!(zeros, ["zero:1000B", "b:null:"]);
        let daemon = paths(&["longhaul://p@d:7/x"], "b:/y", false);
        assert_eq!(daemon, ["longhaul://p@d:7/x", "/y"]);
        let sink = paths(&["a:x"], "longhaul://d/null:", true);
        assert_eq!(sink, ["x", "longhaul://d:4960/null:"]);
    }

    #[test]
    fn a_job_gets_the_users_settings_without_credentials() {
        let mut asked = spec(&["a:x"], "b:y");
        asked.options.selection.recursive = true;
        asked.limits.memory = 1 << 20;
        asked.flows.streams = Some(7);
        asked.connection.nice = true;
        asked.connection.timeout = Duration::from_secs(90);
        asked.connection.token_file = Some("tokens".into());
        asked.connection.ssh.ssh = Some("ssh -p 2222".into());
        let mut expected = asked.clone();
        expected.sources = vec![Endpoint::local(b"x".to_vec())];
        expected.connection.token_file = None;
        expected.connection.ssh.ssh = None;
        assert_eq!(job(&asked, true).unwrap(), expected);
        asked.connection.bind = vec!["127.0.0.1".parse().unwrap()];
        assert!(job(&asked, true).is_err());
    }
}
