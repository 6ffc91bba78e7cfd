//! Access to labs that run in the background, for other processes of the same user.

use std::ffi::OsString;
use std::fmt::Display;
use std::process::Command;

use longhaul_units::parse_span;
use rustix::process::Pid;
use serde_json::Value;

use crate::control::{Request, ask};
use crate::isolate::{self, Announce, Inside};
use crate::processes::Event;
use crate::running::{Prepared, RunError, Running, remove_leftovers};
use crate::scenario::PairPath;
use crate::state::{CONTROL, RECORD, StateDirectory};

/// Reasons why a request to a lab fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The lab or host does not exist, or the request is invalid.
    #[error("{0}")]
    Wrong(String),
    /// The lab cannot be reached, or a system call failed.
    #[error("{0}")]
    Local(String),
}

fn local(error: impl Display) -> ClientError {
    ClientError::Local(error.to_string())
}

fn wrong(error: impl Display) -> ClientError {
    ClientError::Wrong(error.to_string())
}

/// Starts a lab and keeps it until a `down` request or a signal ends it. Calls `announce`
/// when the lab runs.
///
/// # Errors
///
/// Returns an error if the lab cannot be started.
pub fn stay(inside: Inside, prepared: Prepared, announce: Announce) -> Result<(), RunError> {
    let mut running = Running::start(inside, prepared)?;
    announce.ready()?;
    loop {
        match running.processes.next(None) {
            Some(Event::Ended(..)) => {}
            Some(Event::Signal(_) | Event::Down) | None => return Ok(()),
        }
    }
}

/// Runs a command on a host of a lab and returns its exit code. A single letter as `host`
/// means the first host of that site.
///
/// # Errors
///
/// Returns an error if the lab, the host or the program does not exist, or the lab cannot
/// be entered.
pub fn enter(lab: &str, host: &str, words: &[OsString]) -> Result<u8, ClientError> {
    let record = record(lab)?;
    let name = match host.to_ascii_lowercase() {
        site if site.len() == 1 => format!("{site}1"),
        host => host,
    };
    let hosts = record["hosts"].as_array().map_or(&[][..], Vec::as_slice);
    let host = hosts.iter().find(|host| host["name"] == name.as_str());
    let host = host.ok_or_else(|| wrong(format!("the lab has no host \"{name}\"")))?;
    let number = |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok());
    let (Some(pid), Some(network)) = (number(&record["pid"]), number(&host["namespace"])) else {
        return Err(local(
            "the lab's record has no process or namespace: start the lab again",
        ));
    };
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| wrong("there is no command to run"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    for pair in host["environment"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (pair[0].as_str(), pair[1].as_str()) {
            command.env(name, value);
        }
    }
    isolate::enter_lab(pid.unsigned_abs(), network, &format!("lab-{name}"))
        .map_err(|error| local(format!("the lab cannot be entered: {error}")))?;
    let child = command.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        wrong(format!("{program}: {error}"))
    })?;
    Ok(isolate::attend(Pid::from_child(&child)))
}

/// Returns the hosts with their addresses, and the counters of each direction, as text.
///
/// # Errors
///
/// Returns an error if the lab does not exist or does not answer.
pub fn status(name: &str) -> Result<String, ClientError> {
    let record = record(name)?;
    let report = request(name, &Request::Report)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!(
        "lab {name}: path {}, hosts use {}",
        text(&report["path"]),
        text(&record["congestion"])
    )];
    for host in record["hosts"].as_array().into_iter().flatten() {
        let addresses = host["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<String> = addresses.map(text).collect();
        lines.push(format!(
            "host {}: {}; nsenter --net=/proc/{}/fd/{}",
            text(&host["name"]),
            addresses.join(" "),
            record["pid"],
            host["namespace"]
        ));
    }
    for way in report["directions"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{} to {}: {} segments, {} bytes on the wire, {} dropped by the queue, {} lost",
            text(&way["from"]),
            text(&way["to"]),
            way["segments"],
            way["wire_bytes"],
            way["queue_drops"],
            way["losses"]
        ));
    }
    for doubt in report["doubts"].as_array().into_iter().flatten() {
        lines.push(format!("doubt: {}", text(doubt)));
    }
    Ok(lines.join("\n"))
}

/// Changes the paths of a running lab. Each setting has the form `KEY=VALUE`, `cut=TIME`,
/// or the form of [`PairPath`].
///
/// # Errors
///
/// Returns an error if the lab does not exist or a setting is invalid.
pub fn set(name: &str, settings: &[String]) -> Result<(), ClientError> {
    let (cuts, settings): (Vec<&String>, Vec<&String>) = settings
        .iter()
        .partition(|setting| setting.starts_with("cut="));
    // Settings of one pair of sites begin with the name of the pair.
    let (pairs, all): (Vec<&String>, Vec<&String>) = settings
        .into_iter()
        .partition(|setting| setting.parse::<PairPath>().is_ok());
    if !all.is_empty() {
        let joined: Vec<&str> = all.into_iter().map(String::as_str).collect();
        request(name, &Request::Set(joined.join(",")))?;
    }
    for pair in pairs {
        request(name, &Request::Set(pair.clone()))?;
    }
    for cut in cuts {
        let time = parse_span(cut.trim_start_matches("cut=")).map_err(wrong)?;
        request(name, &Request::Cut(time))?;
    }
    Ok(())
}

/// Ends a lab and waits until its processes have ended.
///
/// # Errors
///
/// Returns an error if the lab does not exist or its leftovers cannot be removed.
pub fn down(name: &str) -> Result<(), ClientError> {
    let state = StateDirectory::open().map_err(local)?;
    request(name, &Request::Down)?;
    state.await_end(name).map_err(local)?;
    remove_leftovers(&state).map_err(local)
}

fn record(name: &str) -> Result<Value, ClientError> {
    let state = StateDirectory::open().map_err(local)?;
    let file = state.find(name).map_err(wrong)?.join(RECORD);
    let text = std::fs::read_to_string(&file);
    let text = text.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => local(format!("lab \"{name}\" is starting: try again")),
        _ => local(format!("{}: {error}", file.display())),
    })?;
    serde_json::from_str(&text).map_err(|error| local(format!("{}: {error}", file.display())))
}

/// Sends a request to a lab and returns the result.
///
/// # Errors
///
/// Returns an error if the lab does not exist, cannot be reached or rejects the request.
pub fn request(name: &str, request: &Request) -> Result<Value, ClientError> {
    let state = StateDirectory::open().map_err(local)?;
    let socket = state.find(name).map_err(wrong)?.join(CONTROL);
    ask(&socket, request).map_err(wrong)
}
