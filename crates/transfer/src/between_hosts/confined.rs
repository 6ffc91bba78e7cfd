//! Confines a job that a daemon runs for a principal. Its paths lie beneath the principal's roots.
//! It only copies to or from another daemon, and cannot access other files of the daemon's user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::principals::Principal;

use super::dialing::{self, Closed, Dialing};
use super::job_protocol::Reach;
use crate::console::{MAXIMUM_LOGGED_BYTES, one_line};
use crate::daemon::audit::AuditSession;
use crate::daemon::audit::job::JobAudit;
use crate::endpoint::{Endpoint, HostAccess};
use crate::remote_process::RemoteProcessSettings;
use crate::settings::{ConnectionSettings, DataSecurity, SshSettings};
use crate::spec::{Limits, TransferSpec, ValidSpec};
use crate::stop::{Exit, Stop};

/// Time limit for connecting to the other daemon.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Maximum timeout that a principal may request.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// The principal, and the settings of its daemon.
pub struct Confined {
    principal: Arc<Principal>,
    dialing: Dialing,
    memory: u64,
    expiry: Option<Duration>,
    audit: Option<JobAudit>,
}

fn refused(text: &str) -> Stop {
    Stop::new(Exit::Usage, text)
}

impl Confined {
    /// Reads the daemon's settings for the job; `None` if SSH started this process.
    ///
    /// # Errors
    ///
    /// Fails if the daemon's file cannot be read.
    pub fn read(arguments: &RemoteProcessSettings) -> Result<Option<Confined>, Stop> {
        let Some(file) = &arguments.confined else {
            return Ok(None);
        };
        let principal = Principal::read_back(file);
        // The daemon wrote the file for this process alone.
        let _ = std::fs::remove_file(file);
        let principal = principal.map_err(|error| Stop::because(Exit::Local, error))?;
        Ok(Some(Confined {
            principal: Arc::new(principal),
            dialing: Dialing::of_word(arguments.dial.as_deref()),
            memory: arguments.memory,
            expiry: arguments.expiry,
            audit: JobAudit::of_environment().map_err(|error| Stop::because(Exit::Local, error))?,
        }))
    }

    /// Returns the principal that owns the job.
    pub fn principal(&self) -> Arc<Principal> {
        Arc::clone(&self.principal)
    }

    /// Begins the records of the job in the daemon's audit log, if it has one.
    ///
    /// # Errors
    ///
    /// The log cannot be written, and the job may change files.
    pub fn begin_audit(&self, spec: &TransferSpec) -> Result<Option<Arc<AuditSession>>, Stop> {
        let Some(audit) = &self.audit else {
            return Ok(None);
        };
        let begun = audit.begin(self.principal.name(), spec);
        let begun = begun.map_err(|error| {
            self.log(&format!("the audit log cannot be written: {error}"));
            let text = "the daemon cannot record who writes what, and runs no job that writes";
            Stop::new(Exit::Local, text)
        })?;
        Ok(Some(Arc::new(begun)))
    }

    /// Writes a message about the principal's request to the daemon's log.
    pub fn log(&self, text: &str) {
        let principal = self.principal.name();
        let text = format!("{principal}: {text}");
        tracing::warn!(principal, "{}", one_line(&text, MAXIMUM_LOGGED_BYTES));
    }

    /// Returns the address of the job's other end, if the job may connect to it. `None` if channels
    /// are carried to the other end, so that the job connects to no host.
    fn other_end<'s>(
        &self,
        spec: &'s TransferSpec,
        reach: Reach,
    ) -> Result<Option<SocketAddr>, Stop> {
        let (sources, destination) = (&spec.sources, &spec.destination);
        let is_own = |endpoint: &Endpoint| endpoint.promises().jobs_of_daemons;
        let daemon = |endpoint: &'s Endpoint| endpoint.access().and_then(HostAccess::daemon);
        let other = match (sources.first().and_then(daemon), daemon(destination)) {
            (Some(other), _) if is_own(destination) => other,
            (None, Some(other)) if sources.iter().all(is_own) => other,
            _ => return Err(refused("a daemon copies to or from one other daemon")),
        };
        match reach {
            Reach::Daemon => {}
            Reach::Sealed => return Ok(None),
            Reach::Direct | Reach::Through => {
                return Err(refused("a daemon connects to daemons alone"));
            }
        }
        let connected = self.dialing.connect(&other.host, CONNECT_WITHIN);
        let connected = connected.map_err(|closed| match closed {
            Closed::Forbidden(text) => Stop::new(Exit::Authentication, text),
            Closed::Apart(why) => {
                self.log(&format!("{} cannot be connected to: {why}", other.host));
                Stop::new(Exit::Connection, dialing::apart(&other.host))
            }
        })?;
        let address = connected.peer_addr().map(Some);
        address.map_err(|error| Stop::because(Exit::Connection, error))
    }

    /// Returns the same copy with the daemon's own limits, and the address of its other end. The
    /// options are checked when the ends open. All other fields are listed, so that a new one
    /// cannot be forgotten.
    ///
    /// # Errors
    ///
    /// Fails if the principal requests an option that it may not use.
    pub fn confine(
        &self,
        asked: ValidSpec,
        reach: Reach,
    ) -> Result<(ValidSpec, Option<SocketAddr>), Stop> {
        let TransferSpec {
            version,
            options,
            sources,
            destination,
            limits:
                Limits {
                    rate,
                    memory,
                    checkpoint,
                    leftovers_expire: _,
                    errors,
                    stop_after,
                    retries: _,
                    retries_sleep: _,
                },
            flows,
            policy,
            path_rate,
            task,
            connection,
        } = asked.into_spec();
        let expire = self.expiry.map(|age| age.as_millis());
        let spec = TransferSpec {
            version,
            options,
            sources,
            destination,
            limits: Limits {
                rate,
                memory: memory.min(self.memory),
                checkpoint,
                leftovers_expire: expire.and_then(|age| u64::try_from(age).ok()),
                errors,
                stop_after,
                // The job was introduced for one session only.
                retries: None,
                retries_sleep: None,
            },
            flows,
            policy,
            path_rate,
            task,
            connection: connection_of(connection)?,
        };
        let address = self.other_end(&spec, reach)?;
        let spec = spec.validate();
        Ok((spec.map_err(|error| refused(&error.to_string()))?, address))
    }
}

/// Returns the connection settings of a job. The client has introduced the other end, and this
/// end's identity was created for the job, so the settings must name no files. The job makes no
/// logins, so that settings for them have no effect.
fn connection_of(asked: ConnectionSettings) -> Result<ConnectionSettings, Stop> {
    let files = [
        &asked.authority,
        &asked.token_file,
        &asked.certificate,
        &asked.key,
    ];
    let SshSettings {
        ssh,
        remote_longhaul,
        install_remote,
        ports,
        persist: _,
        asks_nobody: _,
    } = &asked.ssh;
    let names_files = files.iter().any(|file| file.is_some());
    let runs = ssh.is_some() || remote_longhaul.is_some() || *install_remote || ports.is_some();
    let is_trusted = asked.accept_new || asked.fingerprint.is_some();
    if names_files || runs || is_trusted || !asked.bind.is_empty() {
        return Err(refused("a job at a daemon is introduced to the other one"));
    }
    if asked.data_security != DataSecurity::Tls {
        return Err(refused("between two daemons data are encrypted"));
    }
    let timeout = asked.timeout.min(LONGEST_TIMEOUT);
    Ok(ConnectionSettings {
        timeout,
        ..asked.introduced()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;

    fn confined(hosts: Option<&[String]>) -> Confined {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("principal");
        std::fs::write(&file, "name = \"alice\"\n").unwrap();
        Confined {
            audit: None,
            principal: Arc::new(Principal::read_back(&file).unwrap()),
            dialing: Dialing::new(hosts),
            memory: 1 << 20,
            expiry: None,
        }
    }

    fn asked(paths: &[&str]) -> TransferSpec {
        let ends = paths
            .iter()
            .map(|path| Endpoint::parse(path.as_ref()).unwrap());
        let mut sources: Vec<Endpoint> = ends.collect();
        let destination = sources.pop().unwrap();
        TransferSpec::copy(sources, destination)
    }

    fn confine(spec: &TransferSpec) -> Result<ValidSpec, Stop> {
        let spec = spec.clone().validate().unwrap();
        let confined = confined(None).confine(spec, Reach::Sealed);
        confined.map(|(spec, _)| spec)
    }

    #[test]
    fn settings_that_concern_the_daemons_user_are_refused() {
        let usual = asked(&["/a", "longhaul://h/b"]);
        assert!(confine(&usual).is_ok());
        let forbidden: [fn(&mut ConnectionSettings); 9] = [
            |connection| connection.ssh.ssh = Some("sh -c x".into()),
            |connection| connection.ssh.remote_longhaul = Some("/bin/sh".into()),
            |connection| connection.ssh.install_remote = true,
            |connection| connection.ssh.ports = "7-9".parse().ok(),
            |connection| connection.token_file = Some("tokens".into()),
            |connection| {
                connection.certificate = Some("c".into());
                connection.key = Some("k".into());
            },
            |connection| connection.accept_new = true,
            |connection| connection.bind = vec!["127.0.0.1".parse().unwrap()],
            |connection| connection.data_security = DataSecurity::Clear,
        ];
        for (index, forbid) in forbidden.iter().enumerate() {
            let mut spec = usual.clone();
            forbid(&mut spec.connection);
            assert!(confine(&spec).is_err(), "{index}");
        }
        let mut greedy = usual.clone();
        greedy.limits.memory = 1 << 30;
        greedy.limits.leftovers_expire = Some(0);
        greedy.connection.timeout = Duration::from_secs(1 << 40);
        let bound = confine(&greedy).unwrap();
        assert_eq!(bound.limits.memory, 1 << 20);
        assert_eq!(bound.limits.leftovers_expire, None);
        assert_eq!(bound.connection.timeout, LONGEST_TIMEOUT);
    }

    #[test]
    fn only_one_other_daemon_is_connected_to() {
        let confined = confined(Some(&["127.0.0.1".to_owned()]));
        let end = |paths: &[&str], reach| {
            let end = confined.other_end(&asked(paths), reach);
            end.map_err(|stop| stop.exit)
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = format!("longhaul://{address}/x");
        assert_eq!(end(&["/a", &other], Reach::Daemon), Ok(Some(address)));
        assert_eq!(end(&[&other, "/a"], Reach::Daemon), Ok(Some(address)));
        for paths in [
            &["/a", "/b"][..],
            &["/a", "host:b"],
            &["host:b", "/a"],
            &["-", &other],
            &[&other, "-"],
            &[&other, &other],
        ] {
            for reach in [Reach::Daemon, Reach::Sealed] {
                assert_eq!(end(paths, reach), Err(Exit::Usage), "{paths:?}");
            }
        }
        for reach in [Reach::Direct, Reach::Through] {
            assert_eq!(end(&["/a", &other], reach), Err(Exit::Usage));
        }
        let elsewhere = ["/a", "longhaul://192.0.2.1/x"];
        assert_eq!(end(&elsewhere, Reach::Daemon), Err(Exit::Authentication));
        // The job connects to no host.
        assert_eq!(end(&elsewhere, Reach::Sealed), Ok(None));
    }
}
