//! Performs one run in its own process: the lab around it, both ends, and observations
//! from outside.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use longhaul_engine::benchmark::this_host;
use longhaul_lab::isolate::{Inside, Outside};
use longhaul_lab::lab::{Host, Lab};
use longhaul_lab::processes::{Event, Processes, Spent, listens, listens_here};
use longhaul_lab::running::{Prepared, Running, Start, in_lab};
use longhaul_lab::settings::LabSettings;
use longhaul_measure::record::{CpuUse, Ended};
use longhaul_net::sockets::SocketTable;
use rustix::process::{Pid, Signal, kill_process_group};

use super::accounts::{self, Account, Sides};
use super::dataset::{Set, sync};
use super::host;
use super::lab_report;
use super::step::{Client, Step, StepError, StepResult};
use super::watcher::{Watched, Watcher};

/// Interval between checks whether a server listens.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Maximum time until a server listens.
const SERVER_WAIT: Duration = Duration::from_secs(30);

/// Time for a server to end by itself.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Performs a run and writes its result. Returns 0, or the exit code that `failed`
/// returns for an error. `failed` must report the error, because it cannot be returned
/// from within a lab. This process must have no other thread.
///
/// # Errors
///
/// Returns an error if the lab cannot be created.
pub fn run(step: Step, failed: impl Fn(&StepError) -> u8) -> Result<u8, StepError> {
    // If the parent dies, this run is no longer needed. If the signal is refused, the run
    // continues to its end.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    match step.lab.clone() {
        None => Ok(code_of(run_here(&step).map_err(StepError::Failed), failed)),
        Some(plan) => {
            let settings = plan.settings.iter().map(|(key, value)| (&**key, &**value));
            let start = Start {
                settings: LabSettings::read(settings)?,
                name: plan.name,
            };
            let work = |inside: Inside, prepared: Prepared| {
                code_of(run_in_lab(inside, prepared, &step), failed)
            };
            Ok(in_lab(Outside::Attached, start, work)?)
        }
    }
}

fn code_of(ended: Result<(), StepError>, failed: impl Fn(&StepError) -> u8) -> u8 {
    ended.map_or_else(|error| failed(&error), |()| 0)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Location of the commands.
enum Place<'a> {
    /// Hosts of a lab.
    Lab(&'a std::sync::Mutex<Lab>),
    /// This machine.
    Here,
}

impl Place<'_> {
    fn lab(&self) -> Option<MutexGuard<'_, Lab>> {
        match self {
            Place::Lab(lab) => Some(
                lab.lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner),
            ),
            Place::Here => None,
        }
    }

    /// Runs `work` in a host's network namespace.
    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        match self.lab() {
            None => Ok(work()),
            Some(lab) => {
                let host = find(&lab, host)?;
                host.namespace().within(work).map_err(text)
            }
        }
    }

    fn start(
        &self,
        processes: &Processes,
        host: &str,
        command: &mut Command,
    ) -> Result<Pid, String> {
        let started = match self.lab() {
            None => command.spawn().map(|child| Pid::from_child(&child)),
            Some(lab) => processes.start(&lab, find(&lab, host)?, command),
        };
        started.map_err(|error| format!("sh: {error}"))
    }

    fn listens(&self, client: &Client) -> Result<bool, String> {
        match self.lab() {
            None => listens_here(client.port).map_err(text),
            Some(lab) => {
                listens(find(&lab, client.server_host())?, Some(client.port)).map_err(text)
            }
        }
    }

    fn sides(&self) -> Sides {
        let mut sides = Sides::default();
        let inode = |descriptor: std::os::fd::BorrowedFd<'_>| {
            let file = File::from(descriptor.try_clone_to_owned()?);
            file.metadata().map(|found| found.ino())
        };
        match self.lab() {
            None => sides.root = i32::try_from(std::process::id()).ok(),
            Some(lab) => {
                for host in lab.hosts() {
                    let side = if host.addresses.name.starts_with('a') {
                        &mut sides.source
                    } else {
                        &mut sides.destination
                    };
                    side.extend(inode(host.namespace().descriptor()));
                }
            }
        }
        sides
    }
}

fn find<'a>(lab: &'a Lab, name: &str) -> Result<&'a Host, String> {
    lab.host(name)
        .ok_or_else(|| format!("the lab has no host {name}"))
}

fn run_in_lab(inside: Inside, prepared: Prepared, step: &Step) -> Result<(), StepError> {
    let mut running = Running::start(inside, prepared)?;
    let lab = std::sync::Arc::clone(&running.lab);
    let mut result = measure(&Place::Lab(&lab), &mut running.processes, step)?;
    let report = running.report().map_err(text)?;
    lab_report::into_result(&report, &mut result);
    compare(step, &mut result)?;
    Ok(write_result(&step.result, &result)?)
}

fn run_here(step: &Step) -> Result<(), String> {
    let mut processes = Processes::watch().map_err(text)?;
    let mut result = measure(&Place::Here, &mut processes, step)?;
    compare(step, &mut result)?;
    write_result(&step.result, &result)
}

/// Compares the files. Called while the lab's mounts still exist.
fn compare(step: &Step, result: &mut StepResult) -> Result<(), String> {
    let destination = &step.clients[0].destination;
    result.storage = host::storage(destination);
    if let Some((shape, below)) = &step.expected {
        result.arrived = Some(Set::load(*shape, below)?.compare(destination));
    }
    Ok(())
}

/// Creates an empty directory that every user may write to, because some servers run as
/// the user nobody.
fn make_destination(directory: &Path) -> Result<(), String> {
    let everybody = std::fs::Permissions::from_mode(0o777);
    let made = std::fs::create_dir_all(directory);
    let made = made.and_then(|()| std::fs::set_permissions(directory, everybody));
    made.map_err(|error| format!("{}: {error}", directory.display()))
}

fn write_result(path: &Path, result: &StepResult) -> Result<(), String> {
    let json = serde_json::to_vec(result).map_err(text)?;
    std::fs::write(path, json).map_err(|error| format!("{}: {error}", path.display()))
}

/// Starts servers, then clients, and measures the time.
fn measure(
    place: &Place<'_>,
    processes: &mut Processes,
    step: &Step,
) -> Result<StepResult, String> {
    let mut servers = Vec::new();
    let mut clients = step.clients.clone();
    for client in &mut clients {
        make_destination(&client.destination)?;
        if let Some(server) = start_server(place, processes, client)? {
            servers.push(server);
        }
    }
    let mut sides = place.sides();
    if let Place::Here = place {
        let numbers = servers.iter().map(|pid: &Pid| pid.as_raw_nonzero().get());
        sides.servers = numbers.collect();
        sides.servers_send = clients[0].pulls;
    }
    let table = place.within("a1", SocketTable::open)?.map_err(text)?;
    let before = accounts::look(&sides);
    processes.take_spent();
    let busy_before = accounts::machine_busy();
    let watcher = Watcher::start(step, table, sides.clone()).map_err(text)?;
    let mut pids = Vec::new();
    let began = Instant::now();
    for client in &clients {
        pids.push(start_client(place, processes, client)?);
    }
    let end = attend(place, processes, step, pids[0], began)?;
    if clients[0].syncs && end.ended == Ended::Done {
        sync(&clients[0].destination)?;
    }
    let wall = began.elapsed();
    let busy = accounts::machine_busy();
    let spent = processes.take_spent();
    let watched = watcher.stop();
    let now = accounts::look(&sides);
    for pid in pids.iter().skip(1) {
        processes.end_group(*pid, SERVER_ENDS_WITHIN);
    }
    for server in servers {
        processes.end_group(server, SERVER_ENDS_WITHIN);
    }
    let mut seen = watched.accounts.clone();
    note_clients(&mut seen, &clients, &pids);
    Ok(StepResult {
        ended: end.ended,
        wall,
        exit: end.exit,
        machine_busy: busy
            .zip(busy_before)
            .map(|(now, then)| now.saturating_sub(then)),
        cpu: cpu(&clients, &before, &seen, &now, &spent),
        emulator: None,
        retransmitted: watched.retransmitted(step),
        tcp: watched.summary(step),
        samples: watched.written,
        beside: beside(&watched, step, wall),
        arrived: None,
        storage: String::new(),
        source_host: place.within("a1", this_host::describe)?,
        destination_host: match place {
            Place::Lab(_) => Some(place.within("b1", this_host::describe)?),
            Place::Here if step.peer.is_none() => Some(this_host::describe()),
            // The other end of a real path is not observable.
            Place::Here => None,
        },
        doubts: Vec::new(),
    })
}

/// Adds accounts of clients that ended before the first observation.
fn note_clients(seen: &mut BTreeMap<i32, Account>, clients: &[Client], pids: &[Pid]) {
    for (client, pid) in clients.iter().zip(pids) {
        let account = Account {
            name: client.method.clone(),
            parent: 0,
            side: Some(client.side()),
            user: Duration::ZERO,
            system: Duration::ZERO,
        };
        seen.entry(pid.as_raw_nonzero().get()).or_insert(account);
    }
}

/// Returns the processor time. With several clients, processes cannot be assigned to one
/// of them by side, so the result is empty.
fn cpu(
    clients: &[Client],
    before: &BTreeMap<i32, Account>,
    seen: &BTreeMap<i32, Account>,
    now: &BTreeMap<i32, Account>,
    ended: &[Spent],
) -> Vec<CpuUse> {
    match clients.len() {
        1 => accounts::spent(before, seen, now, ended),
        _ => Vec::new(),
    }
}

fn beside(watched: &Watched, step: &Step, wall: Duration) -> Vec<longhaul_measure::record::Beside> {
    let others = step.clients.iter().skip(1);
    others
        .map(|client| watched.beside(step, &client.method, client.port, wall))
        .collect()
}

/// Returns a shell command that ends with this process, even without a lab, where no
/// process namespace ends it.
#[allow(unsafe_code)] // Code between fork and exec is unsafe.
fn shell(client: &Client, command: &str) -> Command {
    let mut shell = Command::new("sh");
    // SAFETY: the closure makes one system call and allocates no memory.
    unsafe {
        shell.pre_exec(|| {
            // If the signal is refused, the command is ended explicitly.
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            Ok(())
        });
    }
    shell
        .args(["-c", command])
        .envs(&client.environment)
        .current_dir(&client.directory)
        .stdin(Stdio::null())
        .process_group(0);
    shell
}

fn append(path: &Path) -> Result<File, String> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|error| format!("{}: {error}", path.display()))
}

/// Starts a server in its own process group and waits until it listens. The announcement
/// of a longhaul daemon becomes variables of its client.
fn start_server(
    place: &Place<'_>,
    processes: &mut Processes,
    client: &mut Client,
) -> Result<Option<Pid>, String> {
    let Some(server) = client.server.clone() else {
        return Ok(None);
    };
    let errors = append(&client.errors)?;
    let mut command = shell(client, &server);
    command
        .stderr(errors.try_clone().map_err(text)?)
        .stdout(errors);
    let pid = place.start(processes, client.server_host(), &mut command)?;
    let deadline = Instant::now() + SERVER_WAIT;
    loop {
        if place.listens(client)? && take_ready(client)? {
            return Ok(Some(pid));
        }
        match processes.next(Some(LOOK_AGAIN)) {
            Some(Event::Ended(ended, code)) if ended == pid => {
                let what = format!("ended with exit code {code} before it listened");
                return Err(no_server(client, &what));
            }
            Some(Event::Signal(signal)) if signal != signal_hook::consts::SIGUSR1 => {
                return Err("interrupted".to_owned());
            }
            _ => {}
        }
        if Instant::now() > deadline {
            return Err(no_server(client, "did not listen in time"));
        }
    }
}

fn no_server(client: &Client, what: &str) -> String {
    let said = super::outcome::last_words(&client.errors);
    let server = client.server.as_deref().unwrap_or_default();
    format!(
        "method \"{}\": its server {what}: {server}: {said}",
        client.method
    )
}

/// Reads the daemon's announcement into the client's variables. False if it is not
/// complete yet.
fn take_ready(client: &mut Client) -> Result<bool, String> {
    let Some(path) = &client.ready else {
        return Ok(true);
    };
    let said = std::fs::read_to_string(path).unwrap_or_default();
    if !said.ends_with('\n') {
        return Ok(false);
    }
    let ready: serde_json::Value =
        serde_json::from_str(&said).map_err(|error| format!("{}: {error}", path.display()))?;
    for (key, variable) in [
        ("fingerprint", "SWEEP_FINGERPRINT"),
        ("token_file", "SWEEP_TOKEN_FILE"),
    ] {
        let value = ready[key].as_str().unwrap_or_default().to_owned();
        client.environment.insert(variable.to_owned(), value);
    }
    Ok(true)
}

fn start_client(place: &Place<'_>, processes: &Processes, client: &Client) -> Result<Pid, String> {
    let mut command = shell(client, &client.command);
    command
        .stdout(append(&client.output)?)
        .stderr(append(&client.errors)?);
    place.start(processes, client.host(), &mut command)
}

struct End {
    ended: Ended,
    exit: Option<i32>,
}

/// Waits until the client ends, and ends it at the cap. Cuts and changes the path at
/// their times.
fn attend(
    place: &Place<'_>,
    processes: &mut Processes,
    step: &Step,
    client: Pid,
    began: Instant,
) -> Result<End, String> {
    let (mut cut, mut change) = (step.cut, step.change.as_ref());
    loop {
        let cut_at = cut.map(|(at, _)| at);
        let due = cut_at.into_iter().chain(change.map(|(at, _)| *at));
        let next = due.chain([step.cap]).min().unwrap_or(step.cap);
        let left = next.saturating_sub(began.elapsed());
        match processes.next(Some(left)) {
            Some(Event::Ended(pid, code)) if pid == client => {
                let ended = if code == 0 {
                    Ended::Done
                } else {
                    Ended::Failed
                };
                let exit = Some(i32::from(code));
                return Ok(End { ended, exit });
            }
            Some(Event::Signal(signal)) if signal != signal_hook::consts::SIGUSR1 => {
                return Err("interrupted".to_owned());
            }
            _ => {}
        }
        if let Some((at, length)) = cut
            && began.elapsed() >= at
        {
            if let Some(lab) = place.lab() {
                lab.cut(length).map_err(text)?;
            }
            cut = None;
        }
        if let Some((_, settings)) = change.filter(|(at, _)| began.elapsed() >= *at) {
            if let Some(mut lab) = place.lab() {
                lab.set(settings).map_err(text)?;
            }
            change = None;
        }
        if began.elapsed() >= step.cap {
            // An error means that the group has just ended.
            let _ = kill_process_group(client, Signal::KILL);
            let ended = Ended::Capped;
            return Ok(End { ended, exit: None });
        }
    }
}
