//! A lab in its own process: from a scenario to one that runs and answers.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use crate::control;
use crate::isolate::{self, Inside, IsolateError, Outside};
use crate::lab::{Lab, LabError, SetPathError};
use crate::machine::{Change, Kind, MachineError, restore_leftovers};
use crate::processes::Processes;
use crate::report::LabReport;
use crate::settings::LabSettings;
use crate::state::{CONTROL, Claim, HOSTS, RECORD, RESOLVER, STORAGE, StateDirectory, StateError};
use crate::storage::running::{StorageError, Storages};

/// Why a lab does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A lab cannot have this name: choose another.
    #[error(transparent)]
    Name(StateError),
    /// The directory of labs cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// This system allows no lab.
    #[error(transparent)]
    Isolate(#[from] IsolateError),
    /// The machine's parameters cannot be changed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Storage cannot be mounted.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The lab itself does not start.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Its files, its signals or its control socket cannot be had.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A lab that runs, and what ends with it.
pub struct Running {
    /// The lab; its control socket shares it.
    pub lab: Arc<Mutex<Lab>>,
    /// What happens.
    pub processes: Processes,
    /// Undone last, except the directory.
    _machine: Option<Change>,
    /// Removed last.
    claim: Claim,
}

/// What is to be started.
pub struct Start {
    /// The lab, and what it changes of the machine.
    pub settings: LabSettings,
    /// Its name.
    pub name: String,
}

/// A lab that has its directory, and no process of its own yet.
pub struct Prepared {
    start: Start,
    state: StateDirectory,
    claim: Claim,
}

/// Removes what dead labs left, and does `work` in a lab's own process; gives
/// its exit code. This process must have no other thread.
///
/// # Errors
///
/// Where there is no place for a lab, or something is missing for it.
pub fn in_lab(
    outside: Outside,
    start: Start,
    work: impl FnOnce(Inside, Prepared) -> u8,
) -> Result<u8, RunError> {
    isolate::check()?;
    let state = StateDirectory::open()?;
    remove_leftovers(&state)?;
    let claim = state
        .claim(&start.name)
        .map_err(RunError::Name)?
        .hand_over();
    let prepared = Prepared {
        start,
        state: state.clone(),
        claim,
    };
    let ended = isolate::run(outside, |inside| work(inside, prepared));
    // Its process was killed, or never began: what it had is removed at once.
    remove_leftovers(&state)?;
    Ok(ended?)
}

/// Files of labs that died, and what they changed of the machine.
///
/// # Errors
///
/// Where the system refuses.
pub fn remove_leftovers(state: &StateDirectory) -> Result<(), RunError> {
    state.sweep()?;
    Ok(restore_leftovers(state)?)
}

impl Running {
    /// Starts a lab, in its own process.
    ///
    /// # Errors
    ///
    /// Where something is missing for it, or the system refuses.
    pub fn start(inside: Inside, prepared: Prepared) -> Result<Running, RunError> {
        let Prepared {
            start,
            state,
            claim,
        } = prepared;
        let claim = claim.take();
        let LabSettings {
            scenario,
            host_sysctls,
        } = start.settings;
        let machine = match host_sysctls.as_slice() {
            [] => None,
            settings => Some(Change::apply(&state, Kind::Lasting, settings)?),
        };
        let processes = Processes::watch()?;
        // No name server is within reach: who asks is told so at once.
        let none = claim.file(RESOLVER);
        std::fs::write(&none, "")?;
        let _ = isolate::cover(inside, "/etc/resolv.conf".as_ref(), &none);
        let own = claim.file(STORAGE);
        let storage = Storages::start(&scenario.storage, &own, inside.private_mounts)?;
        let mut lab = Lab::start(scenario, &state)?;
        lab.add_storage(storage);
        let hosts = claim.file(HOSTS);
        std::fs::write(&hosts, lab.host_names())?;
        // Without it there are the variables.
        let _ = isolate::cover(inside, "/etc/hosts".as_ref(), &hosts);
        std::fs::write(claim.file(RECORD), record(&lab, &start.name, inside))?;
        let lab = Arc::new(Mutex::new(lab));
        control::serve(&claim.file(CONTROL), Arc::clone(&lab), processes.sender())?;
        Ok(Running {
            lab,
            processes,
            _machine: machine,
            claim,
        })
    }

    /// A file of the lab's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.claim.file(name)
    }

    /// The lab, for a moment.
    pub fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the lab did.
    ///
    /// # Errors
    ///
    /// Where its emulator has ended.
    pub fn report(&self) -> Result<LabReport, SetPathError> {
        self.lab().report()
    }
}

impl Drop for Running {
    /// The lab itself lives as long as its control socket is served: until the
    /// process ends. Its storage is unmounted before its directory is removed.
    fn drop(&mut self) {
        self.lab().end_storage();
    }
}

/// What a lab is, for who wants to enter it: FORMAT.md has the fields.
fn record(lab: &Lab, name: &str, inside: Inside) -> String {
    use std::os::fd::AsRawFd;
    let hosts: Vec<_> = lab
        .hosts()
        .iter()
        .map(|host| {
            json!({
                "name": host.addresses.name,
                "addresses": host.addresses.all(),
                "namespace": host.namespace().descriptor().as_raw_fd(),
                "environment": lab.environment(host),
            })
        })
        .collect();
    let scenario = lab.scenario();
    json!({
        "name": name,
        "pid": inside.outer_pid,
        "path": scenario.shown_path(),
        "pairs": scenario.pairs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "congestion": scenario.congestion,
        "mtu": scenario.mtu,
        "seed": scenario.seed,
        "storage": scenario.storage.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "hosts": hosts,
    })
    .to_string()
}
