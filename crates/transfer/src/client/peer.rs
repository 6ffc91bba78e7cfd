//! The other end of a session: a daemon or a host that is reached over SSH.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_engine::session::{Dialer, Ending, Transfer, TransferSettings};
use longhaul_model::control::start::BlockSize;
use longhaul_proto::handshake::Request;
use longhaul_proto::listing::{ListRequest, Listed};

use super::ahead::StreamsFor;
use super::connection::{Connected, Daemon, Opened};
use crate::between_hosts::introduced_peer::{Called, IntroducedPeer, Introduction};
use crate::between_hosts::job_protocol::Reach;
use crate::endpoint::{Host, HostAccess};
use crate::settings::{ConnectionSettings, DataSecurity};
use crate::ssh::remote_end::RemoteEnd;
use crate::ssh::route::Route;
use crate::stop::{Exit, Stop};

/// The other end of a session.
pub enum Peer {
    /// A daemon.
    Daemon(Box<Daemon>),
    /// A host that is reached over SSH.
    Ssh(Arc<RemoteEnd>),
    /// A host that the job's client introduced to this one.
    Introduced(Arc<IntroducedPeer>),
}

impl Peer {
    /// Prepares to reach a host without connecting. `streams` is the number that the user set.
    pub fn new(
        host: &dyn Host,
        arguments: &ConnectionSettings,
        settings: &TransferSettings,
        streams: Option<u32>,
    ) -> Result<Peer, Stop> {
        match host.access() {
            HostAccess::Daemon(remote) => {
                let daemon = Daemon::new(remote, arguments)?;
                Ok(Peer::Daemon(Box::new(daemon)))
            }
            HostAccess::Login(_) if arguments.data_security == DataSecurity::Clear => {
                let text = "over SSH data are always encrypted: leave --data-security clear out, \
                            or copy to a daemon (longhaul serve --allow-clear)";
                Err(Stop::new(Exit::Usage, text))
            }
            HostAccess::Login(remote) => {
                let far = RemoteEnd::new(remote, arguments, settings, streams)?;
                Ok(Peer::Ssh(Arc::new(far)))
            }
        }
    }

    /// Creates the peer from an introduction to its host.
    pub fn introduced(
        host: &dyn Host,
        arguments: &ConnectionSettings,
        introduction: Introduction,
    ) -> Result<Peer, Stop> {
        match (host.access(), introduction.reach) {
            (HostAccess::Daemon(remote), Reach::Daemon) => {
                let daemon = Daemon::introduced(remote, arguments, introduction)?;
                Ok(Peer::Daemon(Box::new(daemon)))
            }
            (HostAccess::Login(remote), Reach::Direct | Reach::Through) => {
                let called = Called {
                    name: remote.destination.clone(),
                    principal: None,
                    daemon: None,
                };
                let peer = IntroducedPeer::new(introduction, called, arguments)?;
                Ok(Peer::Introduced(Arc::new(peer)))
            }
            (HostAccess::Daemon(remote), Reach::Sealed) => {
                let called = Called {
                    name: host.place(),
                    principal: remote.principal.clone(),
                    daemon: Some(remote.host.clone()),
                };
                let peer = IntroducedPeer::new(introduction, called, arguments)?;
                Ok(Peer::Introduced(Arc::new(peer)))
            }
            _ => Err(Stop::new(Exit::Usage, "this path is not at the other host")),
        }
    }

    /// Connects without sending a request. Also starts further connections to a daemon, as many as
    /// `streams` returns.
    pub fn connect(
        &self,
        blocks: BlockSize,
        streams: Option<StreamsFor>,
    ) -> Result<Connected, Stop> {
        match self {
            Peer::Daemon(daemon) => daemon.connect(blocks, streams),
            Peer::Ssh(far) => far.connect(blocks),
            Peer::Introduced(peer) => peer.connect(blocks),
        }
    }

    /// Opens a session. `first_words` holds the first messages, sent with the request.
    pub fn open(
        &self,
        connected: Connected,
        request: Request,
        first_words: &[u8],
    ) -> Result<Opened, Stop> {
        match self {
            Peer::Daemon(daemon) => daemon.open(connected, request, first_words),
            Peer::Ssh(far) => far.open(connected, request, first_words),
            Peer::Introduced(peer) => peer.open(connected, request, first_words),
        }
    }

    /// Calls `tell` for each entry at a remote path as it arrives.
    pub fn list(
        &self,
        request: ListRequest,
        tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        match self {
            Peer::Daemon(daemon) => daemon.list(request, tell),
            Peer::Ssh(far) => far.list(request, tell),
            Peer::Introduced(_) => {
                Err(Stop::new(Exit::Usage, "nothing is listed for another host"))
            }
        }
    }

    /// Returns a function that opens further streams of a session.
    pub fn dialer(&self, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        match self {
            Peer::Daemon(daemon) => daemon.dialer(opened, transfer),
            Peer::Ssh(far) => far.dialer(opened, transfer),
            Peer::Introduced(peer) => peer.dialer(opened, transfer),
        }
    }

    /// Waits for the end of a transfer. For a daemon or a host over SSH, this process exits next
    /// and closes its direct streams. A job's process continues after the transfer.
    pub fn wait(&self, transfer: &Transfer) -> Ending {
        match self {
            Peer::Daemon(_) => transfer.wait_to_exit(),
            Peer::Ssh(far) => far.wait(transfer),
            Peer::Introduced(_) => transfer.wait(),
        }
    }

    /// Returns the route of the session's data if several are possible. `dialled` is the address of
    /// the first stream.
    pub fn route(&self, dialled: Option<SocketAddr>) -> Option<Route> {
        match self {
            Peer::Daemon(daemon) => daemon.route(dialled),
            Peer::Ssh(far) => far.route(),
            Peer::Introduced(peer) => Some(peer.route()),
        }
    }
}
