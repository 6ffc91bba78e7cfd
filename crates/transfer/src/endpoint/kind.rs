//! Traits that each kind of endpoint implements.

use std::fmt;
use std::io;
use std::sync::Arc;

use longhaul_engine::listing::Depth;
use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_engine::send::source::Source as OpenSource;
use longhaul_proto::listing::Listed;
use longhaul_proto::message::Failure;
use longhaul_storage::roots::OpenRoot;
use longhaul_units::ByteCount;

use super::Endpoint;
use super::daemon::Remote;
use super::error::EndpointError;
use super::promises::Promises;
use super::remote_path::RemotePath;
use super::ssh::SshRemote;
use crate::settings::ConnectionSettings;
use crate::stop::{Exit, Stop};

/// Facts about a kind of endpoint, for the registry.
pub(super) struct Definition {
    /// Name of the kind: an example of its notation.
    pub(super) name: &'static str,
    /// Notation in error messages. `None` for kinds that messages do not suggest.
    pub(super) notation: Option<&'static str>,
    /// Properties that callers may rely on.
    pub(super) promises: Promises,
    /// Parses a text that is not empty. Returns `None` if the text is not in this kind's notation.
    pub(super) parse: fn(&[u8]) -> Option<Result<Endpoint, EndpointError>>,
}

/// An endpoint of one kind.
pub(super) trait Kind: fmt::Debug + Send + Sync {
    /// Returns the entry of the registry.
    fn definition(&self) -> &'static Definition;

    /// Returns the text that the kind's parser reads back.
    fn text(&self) -> Vec<u8>;

    /// Returns the byte strings that identify the endpoint as a source (FORMAT.md, "Source keys").
    /// `run` identifies this run of the program.
    ///
    /// # Errors
    ///
    /// Fails if a relative path cannot be made absolute.
    fn identity(&self, run: &[u8]) -> io::Result<Vec<Vec<u8>>>;

    /// Returns the source if this process opens it.
    fn source(&self) -> Option<&dyn Source> {
        None
    }

    /// Returns the destination if this process opens it.
    fn sink(&self) -> Option<&dyn Sink> {
        None
    }

    /// Returns the host whose longhaul process opens the endpoint.
    fn host(&self) -> Option<&dyn Host> {
        None
    }

    /// Returns the name of the other host without a user name, or `None` for this host.
    fn host_name(&self) -> Option<&str> {
        self.host().map(Host::name)
    }

    /// Returns the path on this host, or `None` if the endpoint has none.
    fn local_path(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the path here or at the other host, or `None` if the endpoint has none.
    fn path(&self) -> Option<&[u8]> {
        let remote = || self.host().and_then(|host| host.path().as_path());
        self.local_path().or_else(remote)
    }

    /// Returns the same endpoint with another path, or `None` if the endpoint has no path.
    fn with_path(&self, _: Vec<u8>) -> Option<Endpoint> {
        None
    }

    /// Returns the number of bytes if this process generates the data.
    fn generated(&self) -> Option<ByteCount> {
        None
    }

    /// Calls `tell` for each entry at the endpoint.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint cannot be listed, or if `tell` fails.
    fn list(&self, depth: Depth, hosts: &dyn ListsHosts, tell: &mut Tell<'_>) -> Result<(), Stop> {
        let host = self.host();
        match host.and_then(|host| Some((host, host.path().as_path()?))) {
            Some((host, path)) => hosts.list(host, path, depth, tell),
            None => {
                let text = "null:, zero: and - hold nothing that could be listed: name a path";
                Err(Stop::new(Exit::Usage, text))
            }
        }
    }
}

/// Receiver of listed entries.
pub type Tell<'a> = dyn FnMut(Listed) -> Result<(), Stop> + 'a;

/// Lists paths at hosts whose longhaul process does the work.
pub trait ListsHosts {
    /// Returns the settings for connections to other hosts.
    fn connection(&self) -> &ConnectionSettings;

    /// Calls `tell` for each entry at a path of the host.
    ///
    /// # Errors
    ///
    /// Fails if the path cannot be listed, or if `tell` fails.
    fn list(
        &self,
        host: &dyn Host,
        path: &[u8],
        depth: Depth,
        tell: &mut Tell<'_>,
    ) -> Result<(), Stop>;
}

/// A source that this process opens.
pub trait Source {
    /// Opens the source.
    ///
    /// # Errors
    ///
    /// [`NoSource`].
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource>;
}

/// A destination that this process opens.
pub trait Sink {
    /// Opens the destination.
    ///
    /// # Errors
    ///
    /// Fails if the destination cannot be opened.
    fn open(&self, opening: &dyn SinkOpening, arrival: Arrival) -> Result<Destination, Stop>;
}

/// Services of the process that opens sources.
pub trait SourceOpening {
    /// Checks that the process may generate data, as `zero:` does.
    ///
    /// # Errors
    ///
    /// The principal of the job has no right to it.
    fn may_measure(&self) -> Result<(), Stop>;

    /// Opens a path on this host with the options of the command.
    ///
    /// # Errors
    ///
    /// [`NoSource`].
    fn open_path(&self, path: &[u8]) -> Result<OpenSource, NoSource>;

    /// Opens a path of another file system with the options of the command.
    ///
    /// # Errors
    ///
    /// [`NoSource`].
    fn open_in(&self, root: Arc<dyn OpenRoot>, path: &[u8]) -> Result<OpenSource, NoSource>;

    /// Returns standard input as a source, or `None` if the command does not read it.
    fn standard_input(&self) -> Option<OpenSource>;

    /// Returns the number of streams if the command fixes it.
    fn streams(&self) -> Option<u32>;

    /// Returns the settings for connections to other hosts.
    fn connection(&self) -> &ConnectionSettings;
}

/// Services of the process that opens destinations.
pub trait SinkOpening {
    /// Checks that the process may discard data, as `null:` does.
    ///
    /// # Errors
    ///
    /// The principal of the job has no right to it.
    fn may_measure(&self) -> Result<(), Stop>;

    /// Opens a path on this host with the options of the command.
    ///
    /// # Errors
    ///
    /// Fails if the path cannot be opened.
    fn open_path(&self, path: &[u8], arrival: Arrival) -> Result<Destination, Stop>;

    /// Returns the number of streams if the command fixes it.
    fn streams(&self) -> Option<u32>;

    /// True if the command changes the destination. False for a comparison and a dry run.
    fn changes(&self) -> bool;

    /// Opens a path of another file system with the options of the command.
    ///
    /// # Errors
    ///
    /// Fails if the path cannot be opened, or if an option needs a file system of this host.
    fn open_in(
        &self,
        root: &dyn OpenRoot,
        path: &[u8],
        arrival: Arrival,
    ) -> Result<Destination, Stop>;

    /// Returns the settings for connections to other hosts.
    fn connection(&self) -> &ConnectionSettings;
}

/// A source that could not be opened.
#[derive(Debug)]
pub struct NoSource {
    /// Error for the user if the command ends because of it.
    pub stop: Stop,
    /// Failure of this entry if the command continues with other sources; `None` if it cannot
    /// continue.
    pub failure: Option<Failure>,
}

impl From<Stop> for NoSource {
    fn from(stop: Stop) -> NoSource {
        let failure = None;
        NoSource { stop, failure }
    }
}

/// Another host, whose longhaul process opens the endpoint and takes part in a session.
pub trait Host {
    /// Returns the host with the user's name there. Endpoints with the same result share one
    /// session.
    fn place(&self) -> String;

    /// Returns the name of the host without a user name.
    fn name(&self) -> &str;

    /// Returns the path at the host.
    fn path(&self) -> &RemotePath;

    /// Returns the way to the longhaul process.
    fn access(&self) -> HostAccess<'_>;
}

/// Way to the longhaul process at another host.
#[derive(Clone, Copy, Debug)]
pub enum HostAccess<'a> {
    /// A login over SSH starts the process.
    Login(&'a SshRemote),
    /// The process is a daemon that accepts connections.
    Daemon(&'a Remote),
}

impl<'a> HostAccess<'a> {
    /// Returns the daemon, or `None` if a login starts the process.
    pub fn daemon(self) -> Option<&'a Remote> {
        match self {
            HostAccess::Daemon(remote) => Some(remote),
            HostAccess::Login(_) => None,
        }
    }
}
