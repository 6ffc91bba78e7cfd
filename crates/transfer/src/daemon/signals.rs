//! Signals of a daemon: SIGINT and SIGTERM stop it, or SIGTERM drains it first. SIGHUP makes it
//! read its files again.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_net::identity::Identity;
use longhaul_net::principals::Principals;
use longhaul_net::tls::{TlsOptions, TlsServer};
use longhaul_units::rfc3339;
use rustix::event::{EventfdFlags, eventfd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Daemon, systemd};
use crate::hangup::end_commands_at;
use crate::stop::{Exit, Stop};

/// Files that SIGHUP reloads.
#[derive(Debug, Default)]
pub struct Files {
    /// The file of principals.
    pub principals: Option<PathBuf>,
    /// Certificate and key files.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Remaining validity of a certificate below which a warning is logged.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

impl Files {
    /// Starts catching the signals, which are kept until [`Daemon::obey_signals`]. Without files to
    /// reload, SIGHUP ends the process as usual.
    pub fn heed_signals(&self) -> std::io::Result<Signals> {
        let mut heeded = vec![SIGINT, SIGTERM];
        if self.principals.is_some() || self.identity.is_some() {
            heeded.push(SIGHUP);
        } else {
            end_commands_at(&[SIGHUP]);
        }
        Signals::new(heeded)
    }
}

/// Wakes the accepting thread, which ends the daemon.
fn end_serving(daemon: &Daemon, stopping: &OwnedFd) {
    daemon.stopping.store(true, Ordering::Relaxed);
    // The write cannot block, since the counter is written at most twice.
    let _ = rustix::io::write(stopping, &1_u64.to_ne_bytes());
}

/// Begins to drain the daemon, and stops it when no session is left or the time is over. Returns
/// false if it does not drain, or already does.
fn drain(daemon: &Arc<Daemon>, stopping: &Arc<OwnedFd>) -> bool {
    if daemon.drain.is_zero() {
        return false;
    }
    let Some(count) = daemon.sessions.begin_drain() else {
        return false;
    };
    tracing::info!("no new sessions are accepted; number of running sessions: {count}");
    systemd::report("STATUS=draining");
    let (daemon, stopping) = (Arc::clone(daemon), Arc::clone(stopping));
    let thread = std::thread::Builder::new().name("drain".into());
    let started = thread.spawn(move || {
        daemon.sessions.wait_until_drained(daemon.drain);
        end_serving(&daemon, &stopping);
    });
    started.is_ok()
}

impl Daemon {
    /// Handles signals. SIGINT and SIGTERM stop the daemon and make the returned descriptor
    /// readable. SIGHUP reloads the files.
    pub(super) fn obey_signals(
        self: &Arc<Daemon>,
        mut signals: Signals,
    ) -> Result<Arc<OwnedFd>, Stop> {
        let failed = |error: std::io::Error| Stop::because(Exit::Local, error);
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let stop = Arc::new(stop);
        let (daemon, stopping) = (Arc::clone(self), Arc::clone(&stop));
        let reloading = Arc::new(Mutex::new(()));
        let watcher = std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGHUP {
                        daemon.reload_beside(&reloading);
                        continue;
                    }
                    if signal == SIGTERM && drain(&daemon, &stopping) {
                        continue;
                    }
                    end_serving(&daemon, &stopping);
                    return;
                }
            });
        watcher.map_err(failed)?;
        Ok(stop)
    }

    /// Reloads the files on a separate thread, one reload at a time. A root on an unresponsive file
    /// server must not delay SIGTERM.
    fn reload_beside(self: &Arc<Daemon>, reloading: &Arc<Mutex<()>>) {
        let (daemon, reloading) = (Arc::clone(self), Arc::clone(reloading));
        let thread = std::thread::Builder::new().name("reload".into());
        let started = thread.spawn(move || {
            let _turn = reloading.lock().unwrap_or_else(PoisonError::into_inner);
            daemon.reload_identity();
            daemon.reload_principals();
        });
        if let Err(error) = started {
            tracing::error!("no file was read again: the system has no thread for it: {error}");
        }
    }

    /// Reloads the certificate and key. An invalid file changes nothing.
    fn reload_identity(&self) {
        let Some((certificate, key)) = &self.files.identity else {
            return;
        };
        let loaded = Identity::from_pem_files(certificate, key).map_err(|error| error.to_string());
        let made = loaded.and_then(|identity| {
            TlsServer::new(&identity, TlsOptions::default()).map_err(|error| error.to_string())
        });
        match made {
            Ok(new) => {
                let (older, until) = (self.tls().fingerprint(), new.validity().not_after);
                let (file, until) = (certificate.display(), rfc3339(until));
                if older != new.fingerprint() {
                    tracing::warn!(
                        "the certificate {file} has another key now, {}: clients that know this \
                         daemon by its older key {older} refuse it",
                        new.fingerprint()
                    );
                }
                *self.tls.write().unwrap_or_else(PoisonError::into_inner) = new;
                tracing::info!("the certificate {file} was read again: it is valid until {until}");
                self.warn_of_dates();
            }
            Err(error) => tracing::error!("the certificate stays as it was: {error}"),
        }
    }

    /// Logs a warning if the certificate expires soon.
    pub(super) fn warn_of_dates(&self) {
        let Some((certificate, _)) = &self.files.identity else {
            return;
        };
        let not_after = self.tls().validity().not_after;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let soon = now.unwrap_or_default() + EXPIRES_SOON;
        if not_after < soon.as_secs().cast_signed() {
            tracing::warn!(
                "the certificate {} expires at {}; from then on every client refuses this daemon: \
                 renew it, and send SIGHUP to this daemon",
                certificate.display(),
                rfc3339(not_after)
            );
        }
    }

    /// Reloads the principals. An invalid file changes nothing.
    fn reload_principals(&self) {
        let Some(file) = &self.files.principals else {
            return;
        };
        let loaded = Principals::load(file).map_err(|error| error.to_string());
        let checked = loaded.and_then(|principals| {
            self.secrets.check(&principals)?;
            Ok(principals)
        });
        match checked {
            Ok(principals) => {
                if principals.is_empty() {
                    tracing::warn!(
                        "{} names no principal any more: nobody is let in",
                        file.display()
                    );
                }
                let principals = Arc::new(principals);
                *self
                    .principals
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = Arc::clone(&principals);
                self.vouched.revoke(&principals);
                let revoked = self.sessions.revoke(&principals);
                tracing::info!(
                    "{} was read again; number of sessions that ended because their token or \
                     certificate was revoked: {revoked}; the others continue unchanged",
                    file.display()
                );
            }
            Err(error) => tracing::error!("the principals stay as they were: {error}"),
        }
    }
}
