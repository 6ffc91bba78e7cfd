//! Labs that stay.

use std::process::Command;

use longhaul_lab::control::{Request, ask};
use longhaul_lab::isolate::{self, Announce, Inside, Outside, Side};
use longhaul_lab::processes::Event;
use longhaul_lab::running::{Prepared, Running, Start, remove_leftovers};
use longhaul_lab::scenario::PairPath;
use longhaul_lab::state::{CONTROL, RECORD, StateDirectory};
use longhaul_units::parse_span;
use rustix::process::Pid;
use serde_json::Value;

use super::{in_lab, local, not_run, usage};
use crate::arguments::lab::{
    LabDownArguments, LabExecArguments, LabSetArguments, LabStatusArguments, LabUpArguments,
};
use crate::messages::{Exit, Stop, print_line};

/// Starts a lab in the background.
pub fn up(arguments: LabUpArguments) -> Result<u8, Stop> {
    let start = Start {
        settings: arguments.scenario.settings().map_err(usage)?,
        name: arguments.name.clone(),
    };
    isolate::check().map_err(local)?;
    match isolate::background().map_err(local)? {
        Side::Caller { is_ready: true } => {
            print_line!("{}", status_text(&arguments.name)?);
            Ok(0)
        }
        // The other has said why.
        Side::Caller { is_ready: false } => Ok(Exit::Local.code()),
        Side::Background(announce) => in_lab(Outside::Detached, start, |inside, prepared| {
            stay(inside, prepared, announce).map(|()| 0)
        }),
    }
}

/// Until somebody asks for the end, or a signal does.
fn stay(inside: Inside, prepared: Prepared, announce: Announce) -> Result<(), Stop> {
    let mut running = Running::start(inside, prepared).map_err(not_run)?;
    announce.ready().map_err(local)?;
    loop {
        match running.processes.next(None) {
            Some(Event::Ended(..)) => {}
            Some(Event::Signal(_) | Event::Down) | None => return Ok(()),
        }
    }
}

/// Runs a command on a host of a lab.
pub fn exec(arguments: &LabExecArguments) -> Result<u8, Stop> {
    let record = record(&arguments.name)?;
    let name = match arguments.host.to_ascii_lowercase() {
        site if site.len() == 1 => format!("{site}1"),
        host => host,
    };
    let hosts = record["hosts"].as_array().map_or(&[][..], Vec::as_slice);
    let host = hosts.iter().find(|host| host["name"] == name.as_str());
    let host = host.ok_or_else(|| usage(format!("the lab has no host \"{name}\"")))?;
    let number = |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok());
    let (Some(pid), Some(network)) = (number(&record["pid"]), number(&host["namespace"])) else {
        return Err(local("the lab does not say where it is: start it again"));
    };
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    for pair in host["environment"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (pair[0].as_str(), pair[1].as_str()) {
            command.env(name, value);
        }
    }
    isolate::enter_lab(pid.unsigned_abs(), network, &format!("lab-{name}"))
        .map_err(|error| local(format!("the lab cannot be entered: {error}")))?;
    let child = command.spawn().map_err(|error| {
        let program = arguments.command[0].to_string_lossy();
        usage(format!("{program}: {error}"))
    })?;
    Ok(isolate::attend(Pid::from_child(&child)))
}

/// What runs, and what it did.
pub fn status(arguments: &LabStatusArguments) -> Result<u8, Stop> {
    let Some(name) = &arguments.name else {
        let state = StateDirectory::open().map_err(local)?;
        for name in state.living().map_err(local)? {
            print_line!("{name}");
        }
        return Ok(0);
    };
    if arguments.json {
        print_line!("{}", request(name, &Request::Report)?);
    } else {
        print_line!("{}", status_text(name)?);
    }
    Ok(0)
}

/// Hosts with their addresses, and each direction's counts.
fn status_text(name: &str) -> Result<String, Stop> {
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

/// Changes a running lab.
pub fn set(arguments: &LabSetArguments) -> Result<u8, Stop> {
    let (cuts, settings): (Vec<&String>, Vec<&String>) = arguments
        .settings
        .iter()
        .partition(|setting| setting.starts_with("cut="));
    // Those of a pair of sites have its name before them.
    let (pairs, all): (Vec<&String>, Vec<&String>) = settings
        .into_iter()
        .partition(|setting| setting.parse::<PairPath>().is_ok());
    if !all.is_empty() {
        let joined: Vec<&str> = all.into_iter().map(String::as_str).collect();
        request(&arguments.name, &Request::Set(joined.join(",")))?;
    }
    for pair in pairs {
        request(&arguments.name, &Request::Set(pair.clone()))?;
    }
    for cut in cuts {
        let time = parse_span(cut.trim_start_matches("cut=")).map_err(usage)?;
        request(&arguments.name, &Request::Cut(time))?;
    }
    Ok(0)
}

/// Ends a lab and waits until it is gone.
pub fn down(arguments: &LabDownArguments) -> Result<u8, Stop> {
    let state = StateDirectory::open().map_err(local)?;
    print_line!("{}", status_text(&arguments.name)?);
    request(&arguments.name, &Request::Down)?;
    state.await_end(&arguments.name).map_err(local)?;
    remove_leftovers(&state).map_err(not_run)?;
    Ok(0)
}

fn record(name: &str) -> Result<Value, Stop> {
    let state = StateDirectory::open().map_err(local)?;
    let file = state.find(name).map_err(usage)?.join(RECORD);
    let text = std::fs::read_to_string(&file);
    let text = text.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => local(format!("lab \"{name}\" is starting: try again")),
        _ => local(format!("{}: {error}", file.display())),
    })?;
    serde_json::from_str(&text).map_err(|error| local(format!("{}: {error}", file.display())))
}

fn request(name: &str, request: &Request) -> Result<Value, Stop> {
    let state = StateDirectory::open().map_err(local)?;
    let socket = state.find(name).map_err(usage)?.join(CONTROL);
    ask(&socket, request).map_err(usage)
}
