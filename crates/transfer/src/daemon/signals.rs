//! What a daemon does at a signal: SIGINT and SIGTERM end it, at SIGHUP it reads its files again.

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

use super::Daemon;
use crate::hangup::end_commands_at;
use crate::stop::{Exit, Stop};

/// The files that are read again at SIGHUP.
#[derive(Debug, Default)]
pub struct Files {
    /// The file of principals.
    pub principals: Option<PathBuf>,
    /// The certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A certificate that expires within this time is mentioned.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

impl Files {
    /// Heeds the signals from now on: those that come are kept until [`Daemon::obey_signals`].
    /// Without files to read again SIGHUP ends the process, as one whose terminal was closed.
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

impl Daemon {
    /// SIGINT and SIGTERM end the sessions and then the daemon: what this returns becomes
    /// readable. At SIGHUP the files are read again.
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
                    daemon.stopping.store(true, Ordering::Relaxed);
                    // Wakes the accepting thread. A counter that is written once is never full.
                    let _ = rustix::io::write(&*stopping, &1_u64.to_ne_bytes());
                    return;
                }
            });
        watcher.map_err(failed)?;
        Ok(stop)
    }

    /// Reloads on a thread of its own, one after the other: a root on a file server that does not
    /// answer must not keep the daemon from hearing SIGTERM.
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

    /// Reads the certificate and its key again; a file with a fault changes nothing.
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

    /// Says that the certificate will expire soon.
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

    /// Reads the principals again; a file with a fault changes nothing.
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
                *self
                    .principals
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = Arc::new(principals);
                tracing::info!(
                    "{} was read again; running sessions continue unchanged",
                    file.display()
                );
            }
            Err(error) => tracing::error!("the principals stay as they were: {error}"),
        }
    }
}
