//! Tries to connect to addresses, from here and from the remote host.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use longhaul_engine::session::Transfer;
use longhaul_net::candidates::interface_addresses;
use longhaul_net::tcp::{self, ConnectError, HostPort, TcpOptions};
use longhaul_net::tcp_info::TcpInfo;
use longhaul_net::tls::TlsError;
use longhaul_proto::calls::{Call, CallLook};
use longhaul_system::limits::thread_refusal;
use longhaul_transfer::daemon::TOLD_WITHIN;
use longhaul_transfer::ssh::remote_end::RemoteEnd;

use super::findings::ports::{Inward, Opening, Tried};
use super::findings::{Known, Options};

/// Time after which an address counts as silent.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Tries all addresses of the remote host in parallel.
pub(super) fn try_all(far: &Arc<RemoteEnd>) -> Vec<Tried> {
    let direct = far.candidates();
    std::thread::scope(|scope| {
        let threads: Vec<_> = direct
            .into_iter()
            .map(|address| {
                let far = Arc::clone(far);
                (
                    address,
                    std::thread::Builder::new()
                        .name("try".into())
                        .spawn_scoped(scope, move || far.try_address(address, PATIENCE)),
                )
            })
            .collect();
        let tried = threads.into_iter().map(|(address, thread)| Tried {
            address,
            opening: match thread.map(ScopedJoinHandle::join) {
                Ok(Ok(Ok(()))) => Opening::Open,
                Ok(Ok(Err(error))) => opening_of(&error),
                Err(error) => Opening::Unreachable(thread_refusal(&error)),
                Ok(Err(_)) => Opening::Unreachable("the attempt failed".to_owned()),
            },
        });
        tried.collect()
    })
}

/// Classifies a connection error.
pub(super) fn opening_of(error: &TlsError) -> Opening {
    use std::io::ErrorKind;
    match error {
        TlsError::Connect(ConnectError::Timeout { timeout, .. }) => Opening::Silent(*timeout),
        TlsError::Connect(ConnectError::Refused { cause, .. }) => match cause.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
                Opening::Reset(cause.to_string())
            }
            ErrorKind::TimedOut => Opening::Silent(PATIENCE),
            _ => Opening::Unreachable(cause.to_string()),
        },
        TlsError::Connect(other) => Opening::Unreachable(other.to_string()),
        TlsError::Deadline { .. } => Opening::Stalled(error.to_string()),
        other => Opening::WrongHost(other.to_string()),
    }
}

/// Returns the remote host's results for this host's addresses.
pub(super) fn try_inward(
    far: &Arc<RemoteEnd>,
    transfer: &Arc<Transfer>,
    seen: Option<IpAddr>,
) -> Known<Inward> {
    if far.own_port().is_none() {
        return Err(
            "this host cannot listen on any port: name other ports with --ports".to_owned(),
        );
    }
    let calls = far.try_inward(transfer, TOLD_WITHIN + PATIENCE);
    let calls = calls.ok_or("the remote host did not report on this host's ports")?;
    Ok(Inward {
        tried: calls.iter().filter_map(tried_of).collect(),
        own: interface_addresses().unwrap_or_default(),
        seen,
    })
}

/// Returns the remote host's result for one address.
fn tried_of(call: &Call) -> Option<Tried> {
    let cause = call.cause.clone();
    let opening = match call.look {
        CallLook::Open => Opening::Open,
        CallLook::Reset => Opening::Reset(cause),
        CallLook::Silent => Opening::Silent(TOLD_WITHIN),
        CallLook::Unreachable => Opening::Unreachable(cause),
        CallLook::WrongHost => Opening::WrongHost(cause),
        CallLook::Stalled => Opening::Stalled(cause),
    };
    let address = call.address.parse().ok()?;
    Some(Tried { address, opening })
}

/// Returns the TCP options negotiated with an address.
pub(super) fn options_at(address: Option<SocketAddr>) -> Known<Options> {
    let address = address.ok_or("no direct connection opens")?;
    let options = TcpOptions::default();
    let socket = tcp::connect(&HostPort::from(address), PATIENCE, &options);
    let socket = socket.map_err(|error| error.to_string())?;
    let info = TcpInfo::of(&socket).map_err(|error| error.to_string())?;
    Ok(Options {
        scaling: info.options.scaling,
        path_mtu: info.path_mtu.0,
    })
}

#[cfg(test)]
mod tests {
    use longhaul_net::tls::End;

    use super::*;
    use std::io;

    #[test]
    fn connection_errors_are_classified() {
        let target = HostPort::new("h", 1);
        let refused = |kind: io::ErrorKind| {
            TlsError::Connect(ConnectError::Refused {
                target: target.clone(),
                addresses: 1,
                last: SocketAddr::from(([192, 0, 2, 1], 1)),
                cause: kind.into(),
            })
        };
        let reset = opening_of(&refused(io::ErrorKind::ConnectionRefused));
        assert!(matches!(reset, Opening::Reset(_)));
        let away = opening_of(&refused(io::ErrorKind::HostUnreachable));
        assert!(matches!(away, Opening::Unreachable(_)));
        let timeout = PATIENCE;
        let silent = TlsError::Connect(ConnectError::Timeout {
            target: target.clone(),
            timeout,
        });
        assert_eq!(opening_of(&silent), Opening::Silent(PATIENCE));
        let peer = target.clone();
        let stalled = opening_of(&TlsError::Deadline {
            peer,
            end: End::Server,
            timeout,
        });
        assert!(matches!(stalled, Opening::Stalled(_)));
        let other = opening_of(&TlsError::NotTls {
            peer: target,
            end: End::Server,
        });
        assert!(matches!(other, Opening::WrongHost(_)));
    }
}
