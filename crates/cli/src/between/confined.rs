//! A job that a daemon runs for a principal: his paths lie beneath his roots, he
//! copies to or from another daemon and nothing else, and nothing that belongs
//! to the daemon's user is read or written for him.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::net::principals::Principal;
use longhaul_units::ByteCount;

use super::dialing::{self, Closed, Dialing};
use super::job_protocol::Reach;
use crate::arguments::{
    ConnectionArguments, CopyArguments, DataSecurity, Expiry, LayerArguments, RemoteArguments,
    SshArguments, VerifyArguments,
};
use crate::endpoint::Endpoint;
use crate::messages::{Exit, MAXIMUM_LOGGED_BYTES, Stop, one_line, say};

/// How long connecting to the other daemon may take.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The longest silence that he may ask for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Him, and what the daemon was started with.
pub struct Confined {
    principal: Arc<Principal>,
    dialing: Dialing,
    memory: ByteCount,
    expiry: Expiry,
}

fn refused(text: &str) -> Stop {
    Stop::new(Exit::Usage, text)
}

impl Confined {
    /// As the daemon says; none for the far side of SSH.
    ///
    /// # Errors
    ///
    /// Where what it wrote down cannot be read.
    pub fn read(arguments: &RemoteArguments) -> Result<Option<Confined>, Stop> {
        let Some(file) = &arguments.confined else {
            return Ok(None);
        };
        let principal = Principal::read_back(file);
        // It was written for this process alone.
        let _ = std::fs::remove_file(file);
        let principal = principal.map_err(|error| Stop::because(Exit::Local, error))?;
        Ok(Some(Confined {
            principal: Arc::new(principal),
            dialing: Dialing::of_word(arguments.dial.as_deref()),
            memory: arguments.memory,
            expiry: arguments.expire_leftovers,
        }))
    }

    /// Whose job it is.
    pub fn principal(&self) -> Arc<Principal> {
        Arc::clone(&self.principal)
    }

    /// Tells the daemon's log of what he asked for.
    pub fn log(&self, text: &str) {
        let text = format!("{}: {text}", self.principal.name());
        say(&one_line(&text, MAXIMUM_LOGGED_BYTES));
    }

    /// Where the other end of the job is, which may be connected to; none where
    /// channels are carried to it and nobody is connected to.
    ///
    /// # Errors
    ///
    /// Where it is no daemon, may not be connected to, or does not answer.
    pub fn other_end(
        &self,
        paths: &[std::ffi::OsString],
        reach: Reach,
    ) -> Result<Option<SocketAddr>, Stop> {
        let parse = |path| Endpoint::parse(path).map_err(|error| Stop::because(Exit::Usage, error));
        let endpoints = paths.iter().map(|path| parse(path));
        let endpoints = endpoints.collect::<Result<Vec<Endpoint>, Stop>>()?;
        let Some((destination, sources)) = endpoints.split_last() else {
            return Err(refused("a copy has a source and a destination"));
        };
        let here = |endpoint: &Endpoint| {
            let here = matches!(endpoint, Endpoint::Local(_) | Endpoint::Zero(_));
            here || *endpoint == Endpoint::Null
        };
        let other = match (sources.first(), destination) {
            (Some(Endpoint::Daemon(other)), own) if here(own) => other,
            (Some(_), Endpoint::Daemon(other)) if sources.iter().all(here) => other,
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

    /// A copy, less what is not his to ask for. Every field is named, so that
    /// none that is added comes through unseen.
    ///
    /// # Errors
    ///
    /// What he may not ask for.
    pub fn copy(&self, asked: CopyArguments) -> Result<CopyArguments, Stop> {
        let CopyArguments {
            paths,
            recursive,
            copy_links,
            keep_set_ids,
            dry_run,
            verbose,
            compress,
            integrity,
            verify,
            manifest,
            direct,
            checkpoint,
            bwlimit,
            expire_leftovers: _,
            json,
            quiet,
            lab,
            layers,
            connection,
            between,
        } = asked;
        if manifest.is_some() || lab.is_some() {
            return Err(refused(
                "a job at a daemon writes no files but those copied",
            ));
        }
        Ok(CopyArguments {
            paths,
            recursive,
            copy_links,
            keep_set_ids,
            dry_run,
            verbose,
            compress,
            integrity,
            verify,
            manifest: None,
            direct,
            checkpoint,
            bwlimit,
            expire_leftovers: self.expiry,
            json,
            quiet,
            lab: None,
            layers: self.layers(layers),
            connection: connection_of(connection)?,
            between,
        })
    }

    /// The same of a comparison.
    ///
    /// # Errors
    ///
    /// As of a copy.
    pub fn verify(&self, asked: VerifyArguments) -> Result<VerifyArguments, Stop> {
        let VerifyArguments {
            left,
            right,
            copy_links,
            verbose,
            json,
            quiet,
            layers,
            connection,
            between,
        } = asked;
        Ok(VerifyArguments {
            left,
            right,
            copy_links,
            verbose,
            json,
            quiet,
            layers: self.layers(layers),
            connection: connection_of(connection)?,
            between,
        })
    }

    fn layers(&self, asked: LayerArguments) -> LayerArguments {
        LayerArguments {
            memory: asked.memory.min(self.memory),
            ..asked
        }
    }
}

/// Who the other end is was said by whoever introduced it, and what this end is
/// was made for the job: nothing of that is looked for in files.
fn connection_of(asked: ConnectionArguments) -> Result<ConnectionArguments, Stop> {
    let ConnectionArguments {
        fingerprint,
        accept_new,
        authority,
        token_file,
        certificate,
        key,
        data_security,
        congestion,
        nice,
        bind,
        mptcp,
        buffer,
        timeout,
        ssh:
            SshArguments {
                ssh,
                remote_longhaul,
                install_remote,
                ports,
            },
    } = asked;
    let files = [authority, token_file, certificate, key];
    let names_files = files.iter().any(Option::is_some);
    let runs = ssh.is_some() || remote_longhaul.is_some() || install_remote || ports.is_some();
    if names_files || runs || accept_new || fingerprint.is_some() || !bind.is_empty() {
        return Err(refused("a job at a daemon is introduced to the other one"));
    }
    if data_security != DataSecurity::Tls {
        return Err(refused("between two daemons data are encrypted"));
    }
    Ok(ConnectionArguments {
        fingerprint: None,
        accept_new: false,
        authority: None,
        token_file: None,
        certificate: None,
        key: None,
        data_security,
        congestion,
        nice,
        bind,
        mptcp,
        buffer,
        timeout: timeout.min(LONGEST_TIMEOUT),
        ssh: SshArguments {
            ssh: None,
            remote_longhaul: None,
            install_remote: false,
            ports: None,
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn confined(hosts: Option<&[String]>) -> Confined {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("principal");
        std::fs::write(&file, "name = \"alice\"\n").unwrap();
        Confined {
            principal: Arc::new(Principal::read_back(&file).unwrap()),
            dialing: Dialing::new(hosts),
            memory: ByteCount(1 << 20),
            expiry: Expiry(None),
        }
    }

    fn asked(line: &[&str]) -> CopyArguments {
        let line = [&["longhaul", "cp"], line].concat();
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Cp(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_of_the_daemons_user_is_touched() {
        let confined = confined(None);
        for line in [
            &["--manifest", "/etc/x", "/a", "longhaul://h/b"][..],
            &["--ssh", "sh -c x", "/a", "longhaul://h/b"],
            &["--remote-longhaul", "/bin/sh", "/a", "longhaul://h/b"],
            &["--token-file", "tokens", "/a", "longhaul://h/b"],
            &["--certificate", "c", "--key", "k", "/a", "longhaul://h/b"],
            &["--accept-new", "/a", "longhaul://h/b"],
            &["--bind", "127.0.0.1", "/a", "longhaul://h/b"],
            &["--lab", "rtt=1ms", "/a", "longhaul://h/b"],
            &["--data-security", "clear", "/a", "longhaul://h/b"],
        ] {
            assert!(confined.copy(asked(line)).is_err(), "{line:?}");
        }
        let line = [
            "--memory",
            "1GiB",
            "--expire-leftovers",
            "0s",
            "/a",
            "longhaul://h/b",
        ];
        let copy = confined.copy(asked(&line)).unwrap();
        assert_eq!(copy.layers.memory, ByteCount(1 << 20));
        assert_eq!(copy.expire_leftovers, Expiry(None));
    }

    #[test]
    fn only_one_other_daemon_is_connected_to() {
        let confined = confined(Some(&["127.0.0.1".to_owned()]));
        let end = |paths: &[&str], reach| {
            let paths: Vec<_> = paths.iter().map(std::ffi::OsString::from).collect();
            confined.other_end(&paths, reach).map_err(|stop| stop.exit)
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
        // Nobody is connected to.
        assert_eq!(end(&elsewhere, Reach::Sealed), Ok(None));
    }
}
