//! `longhaul probe`: measures a path to a daemon, with advice.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_instrument::probe::known::{KnownPath, of_sweep};
use longhaul_instrument::probe::prober::measure;
use longhaul_instrument::probe::records::Records;
use longhaul_instrument::probe::result::Probe;
use longhaul_instrument::probe::{external, json, text};
use longhaul_transfer::endpoint::{Endpoint, HostAccess, Remote};

use crate::arguments::ProbeArguments;
use crate::messages::{
    Exit, Stop, clear_line, finish, print_json, progress_line, say, write_output,
};

/// Runs `longhaul probe`.
pub fn run(arguments: &ProbeArguments) -> Exit {
    finish(probe(arguments))
}

fn probe(arguments: &ProbeArguments) -> Result<Exit, Stop> {
    if arguments.connection.nice {
        let text = "--nice: a probe fills the path to measure its capacity, so it cannot yield to \
                    other traffic: remove --nice, or set a short --time";
        return Err(Stop::new(Exit::Usage, text));
    }
    let mut probe = Probe::begin(external::read(&arguments.iperf3, &arguments.pscheduler)?);
    let remote = arguments.endpoint.as_deref().map(remote).transpose()?;
    probe.known = known(arguments, remote.as_ref())?;
    // Opened before the measurement, so that its results can be saved.
    let records = arguments.records.as_deref();
    let records = records.map(|path| Records::open(path, &mut say));
    let records = records.transpose()?;
    if let Some(remote) = remote {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // Without a handler, the signal would end the process and leave the daemon waiting.
            let _ = signal_hook::flag::register_conditional_shutdown(
                signal,
                130,
                Arc::clone(&interrupted),
            );
            let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        }
        let settings = arguments.settings();
        measure(&remote, &settings, &interrupted, &mut probe, &mut |next| {
            if io::stderr().is_terminal() {
                progress_line(&next.to_string());
            }
        })?;
    }
    clear_line();
    if arguments.json {
        print_json(&json::json(&probe));
    } else {
        write_output(&text::text(&probe));
    }
    if let Some(records) = records {
        records.append(&probe, &mut say)?;
    }
    Ok(exit_of(&probe))
}

fn remote(endpoint: &OsStr) -> Result<Remote, Stop> {
    let parsed = Endpoint::parse(endpoint).map_err(|e| Stop::because(Exit::Usage, e))?;
    let daemon = parsed.access().and_then(HostAccess::daemon);
    daemon.cloned().ok_or_else(|| {
        let text = format!(
            "{}: a probe needs a daemon at the other end: write longhaul://HOST[:PORT]",
            endpoint.to_string_lossy()
        );
        Stop::new(Exit::Usage, text)
    })
}

/// Returns the facts about the path that the options contain.
fn known(arguments: &ProbeArguments, remote: Option<&Remote>) -> Result<Option<KnownPath>, Stop> {
    match (&arguments.sweep, arguments.capacity, remote) {
        (Some(file), _, Some(remote)) => {
            let written = arguments.endpoint.as_deref().unwrap_or_default();
            of_sweep(file, &written.to_string_lossy(), remote).map(Some)
        }
        (_, Some(capacity), _) => Ok(Some(KnownPath {
            swept: None,
            capacity,
        })),
        _ => Ok(None),
    }
}

fn exit_of(probe: &Probe) -> Exit {
    let failed = probe.paths.iter().filter(|path| path.failure.is_some());
    match failed.count() {
        0 => Exit::Done,
        count if count == probe.paths.len() => Exit::Connection,
        _ => Exit::Partial,
    }
}
