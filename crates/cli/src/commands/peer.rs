//! The other end of a session: a daemon, or a host that SSH reaches.

use std::sync::Arc;

use longhaul_engine::session::{Dialer, Transfer, TransferSettings};
use longhaul_proto::handshake::Request;

use super::connection::{Connected, Daemon, Opened};
use crate::arguments::ConnectionArguments;
use crate::between::met::{Introduction, Met};
use crate::between::speech::Reach;
use crate::endpoint::Endpoint;
use crate::messages::{Exit, Stop};
use crate::ssh::far::Far;
use crate::ssh::route::Route;

/// Whoever is at the other end.
pub enum Peer {
    /// A daemon.
    Daemon(Box<Daemon>),
    /// A host that SSH reaches.
    Ssh(Arc<Far>),
    /// A host that whoever started this job introduced.
    Met(Arc<Met>),
}

impl Peer {
    /// What is needed to reach the host of an endpoint, which is not done yet.
    pub fn new(
        endpoint: &Endpoint,
        arguments: &ConnectionArguments,
        settings: &TransferSettings,
    ) -> Result<Peer, Stop> {
        match endpoint {
            Endpoint::Daemon(remote) => {
                let daemon = Daemon::new(remote, arguments)?;
                Ok(Peer::Daemon(Box::new(daemon)))
            }
            Endpoint::Ssh(remote) => {
                let far = Far::new(remote, arguments, settings)?;
                Ok(Peer::Ssh(Arc::new(far)))
            }
            Endpoint::Local(_) | Endpoint::Null | Endpoint::Zero(_) => {
                Err(Stop::new(Exit::Usage, "this path is at no other host"))
            }
        }
    }

    /// The host of an endpoint, as it was introduced to this one.
    pub fn introduced(
        endpoint: &Endpoint,
        arguments: &ConnectionArguments,
        introduction: Introduction,
    ) -> Result<Peer, Stop> {
        match (endpoint, introduction.reach) {
            (Endpoint::Daemon(remote), Reach::Daemon) => {
                let daemon = Daemon::introduced(remote, arguments, introduction)?;
                Ok(Peer::Daemon(Box::new(daemon)))
            }
            (Endpoint::Ssh(remote), Reach::Direct | Reach::Through) => {
                let name = remote.destination.clone();
                let met = Met::new(introduction, name, arguments.timeout)?;
                Ok(Peer::Met(Arc::new(met)))
            }
            _ => Err(Stop::new(Exit::Usage, "this path is not at the other host")),
        }
    }

    /// Connects, and asks for nothing yet.
    pub fn connect(&self, fixed_block_bytes: Option<u32>) -> Result<Connected, Stop> {
        match self {
            Peer::Daemon(daemon) => daemon.connect(fixed_block_bytes),
            Peer::Ssh(far) => far.connect(fixed_block_bytes),
            Peer::Met(met) => met.connect(fixed_block_bytes),
        }
    }

    /// Opens a session; `ahead` are the first messages, which go with the
    /// request.
    pub fn open(
        &self,
        connected: Connected,
        request: Request,
        ahead: &[u8],
    ) -> Result<Opened, Stop> {
        match self {
            Peer::Daemon(daemon) => daemon.open(connected, request, ahead),
            Peer::Ssh(far) => far.open(connected, request, ahead),
            Peer::Met(met) => met.open(connected, request, ahead),
        }
    }

    /// Dials further streams of a session.
    pub fn dialer(&self, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        match self {
            Peer::Daemon(daemon) => daemon.dialer(opened, transfer),
            Peer::Ssh(far) => far.dialer(opened, transfer),
            Peer::Met(met) => met.dialer(opened, transfer),
        }
    }

    /// How the data of a session went, where there is more than one way.
    pub fn route(&self) -> Option<Route> {
        match self {
            Peer::Daemon(_) => None,
            Peer::Ssh(far) => far.route(),
            Peer::Met(met) => Some(met.route()),
        }
    }
}
