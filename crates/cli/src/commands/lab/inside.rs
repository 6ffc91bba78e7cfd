//! A lab in its own process: from a scenario to one that runs and answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_lab::control;
use longhaul_lab::isolate::{self, Inside, Outside};
use longhaul_lab::lab::Lab;
use longhaul_lab::machine::{Change, Kind, restore_leftovers};
use longhaul_lab::processes::Processes;
use longhaul_lab::report::LabReport;
use longhaul_lab::scenario::Scenario;
use longhaul_lab::state::{CONTROL, Claim, HOSTS, RECORD, RESOLVER, STORAGE, StateDirectory};
use longhaul_lab::storage::running::Storages;
use serde_json::json;

use super::{local, usage};
use crate::messages::{Stop, finish, say};

/// A lab that runs, and what ends with it.
pub struct Running {
    /// The lab; its control socket has it too.
    pub lab: Arc<Mutex<Lab>>,
    /// What happens.
    pub processes: Processes,
    /// Undone last but for the directory.
    _machine: Option<Change>,
    /// Removed last.
    claim: Claim,
}

/// What is to be started.
pub struct Start {
    /// The lab.
    pub scenario: Scenario,
    /// Its name.
    pub name: String,
    /// Parameters of the machine.
    pub host_sysctl: Vec<(String, String)>,
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
    work: impl FnOnce(Inside, Prepared) -> Result<u8, Stop>,
) -> Result<u8, Stop> {
    isolate::check().map_err(local)?;
    let state = StateDirectory::open().map_err(local)?;
    remove_leftovers(&state)?;
    let claim = state.claim(&start.name).map_err(usage)?.hand_over();
    let prepared = Prepared {
        start,
        state: state.clone(),
        claim,
    };
    let inside = |inside| match work(inside, prepared) {
        Ok(code) => code,
        Err(stop) => finish(Err(stop)).code(),
    };
    let ended = isolate::run(outside, inside).map_err(local);
    // Its process was killed, or never began: what it had is removed at once.
    remove_leftovers(&state)?;
    ended
}

/// Files of labs that died, and what they changed of the machine.
///
/// # Errors
///
/// Where the system refuses.
pub fn remove_leftovers(state: &StateDirectory) -> Result<(), Stop> {
    state.sweep().map_err(local)?;
    restore_leftovers(state).map_err(local)
}

impl Running {
    /// Starts a lab, in its own process.
    pub fn start(inside: Inside, prepared: Prepared) -> Result<Running, Stop> {
        let Prepared {
            start,
            state,
            claim,
        } = prepared;
        let claim = claim.take();
        let machine = match start.host_sysctl.as_slice() {
            [] => None,
            settings => Some(Change::apply(&state, Kind::Lasting, settings).map_err(local)?),
        };
        let processes = Processes::watch().map_err(local)?;
        // No name server is within reach: who asks is told so at once.
        let none = claim.file(RESOLVER);
        std::fs::write(&none, "").map_err(local)?;
        let _ = isolate::cover(inside, "/etc/resolv.conf".as_ref(), &none);
        let own = claim.file(STORAGE);
        let storage =
            Storages::start(&start.scenario.storage, &own, inside.private_mounts).map_err(local)?;
        let mut lab = Lab::start(start.scenario, &state).map_err(local)?;
        lab.add_storage(storage);
        let hosts = claim.file(HOSTS);
        std::fs::write(&hosts, lab.host_names()).map_err(local)?;
        // Without it there are the variables.
        let _ = isolate::cover(inside, "/etc/hosts".as_ref(), &hosts);
        std::fs::write(claim.file(RECORD), record(&lab, &start.name, inside)).map_err(local)?;
        let lab = Arc::new(Mutex::new(lab));
        control::serve(&claim.file(CONTROL), Arc::clone(&lab), processes.sender())
            .map_err(local)?;
        Ok(Running {
            lab,
            processes,
            _machine: machine,
            claim,
        })
    }

    /// A file of the lab's own.
    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.claim.file(name)
    }

    /// The lab, for a moment.
    pub fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the lab did; what speaks against it goes to standard error.
    pub fn report(&self) -> Option<LabReport> {
        match self.lab().report() {
            Ok(report) => {
                for doubt in report.doubts() {
                    say(&format!("doubt: {doubt}"));
                }
                Some(report)
            }
            Err(error) => {
                say(&error.to_string());
                None
            }
        }
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
