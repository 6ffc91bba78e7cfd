//! Starts a lab in its own process and keeps the parts that end with it.

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

/// Reasons why a lab cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The name is invalid or in use.
    #[error(transparent)]
    Name(StateError),
    /// The directory of labs cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system cannot create a lab.
    #[error(transparent)]
    Isolate(#[from] IsolateError),
    /// The machine's kernel parameters cannot be changed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Storage cannot be mounted.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The lab itself cannot be started.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A file, a signal handler or the control socket cannot be created.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A running lab and the parts that end with it.
pub struct Running {
    /// The lab, shared with the control socket.
    pub lab: Arc<Mutex<Lab>>,
    /// Processes of the lab and its events.
    pub processes: Processes,
    /// Undone after the lab, before the directory is removed.
    _machine: Option<Change>,
    /// Dropped last: removes the directory.
    claim: Claim,
}

/// Name and settings of a lab that is to be started.
pub struct Start {
    /// Settings of the lab and of the machine.
    pub settings: LabSettings,
    /// Name of the lab.
    pub name: String,
}

/// A lab that has a directory but no process yet.
pub struct Prepared {
    start: Start,
    state: StateDirectory,
    claim: Claim,
}

/// Removes leftovers of dead labs, runs `work` in a new lab's process, and returns its
/// exit code. This process must have no other thread.
///
/// # Errors
///
/// Returns an error if the lab's directory or process cannot be created.
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
    // The lab's process may have been killed or not started: removes its leftovers.
    remove_leftovers(&state)?;
    Ok(ended?)
}

/// Removes the files of dead labs and undoes their changes to the machine.
///
/// # Errors
///
/// Returns an error if a file or lock cannot be used.
pub fn remove_leftovers(state: &StateDirectory) -> Result<(), RunError> {
    state.sweep()?;
    Ok(restore_leftovers(state)?)
}

impl Running {
    /// Starts a lab. Must be called in the lab's own process.
    ///
    /// # Errors
    ///
    /// Returns an error if a part of the lab cannot be started.
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
        // No name server is reachable: an empty file makes name lookups fail at once.
        let none = claim.file(RESOLVER);
        std::fs::write(&none, "")?;
        let _ = isolate::cover(inside, "/etc/resolv.conf".as_ref(), &none);
        let own = claim.file(STORAGE);
        let storage = Storages::start(&scenario.storage, &own, inside.private_mounts)?;
        let mut lab = Lab::start(scenario, &state)?;
        lab.add_storage(storage);
        let hosts = claim.file(HOSTS);
        std::fs::write(&hosts, lab.host_names())?;
        // If it is refused, the environment variables still contain the addresses.
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

    /// Returns the path of a file in the lab's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.claim.file(name)
    }

    /// Locks the lab.
    pub fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of the lab.
    ///
    /// # Errors
    ///
    /// Returns an error if the emulator has ended.
    pub fn report(&self) -> Result<LabReport, SetPathError> {
        self.lab().report()
    }
}

impl Drop for Running {
    /// Unmounts the storage before the directory is removed. The lab itself lives until
    /// the process ends, because the control socket shares it.
    fn drop(&mut self) {
        self.lab().end_storage();
    }
}

/// Returns the lab's record as JSON, for processes that enter the lab. FORMAT.md
/// describes the fields.
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
