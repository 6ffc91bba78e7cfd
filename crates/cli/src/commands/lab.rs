//! `longhaul lab`: runs commands across an emulated wide-area path; and `longhaul cp
//! --lab`.

use std::process::ExitCode;

use longhaul_instrument::lab_copy::{AcrossLab, LabCopy, not_run};
use longhaul_instrument::records::write;
use longhaul_lab::client::{self, ClientError};
use longhaul_lab::command::{self, CommandError};
use longhaul_lab::control::Request;
use longhaul_lab::isolate::{self, Inside, Outside, Side};
use longhaul_lab::report::LabReport;
use longhaul_lab::running::{Prepared, Running, Start};
use longhaul_lab::state::StateDirectory;

use crate::arguments::CopyArguments;
use crate::arguments::lab::{LabCommand, LabRunArguments, LabStatusArguments, LabUpArguments};
use crate::commands::cp;
use crate::messages::{Exit, Stop, finish, print_line, say};

/// Runs `longhaul lab`. Returns the exit code of the command in the lab if there is one.
pub fn run(command: LabCommand) -> ExitCode {
    let ended = match command {
        LabCommand::Run(arguments) => run_command(*arguments),
        LabCommand::Up(arguments) => up(*arguments),
        LabCommand::Exec(exec) => {
            client::enter(&exec.name, &exec.host, &exec.command).map_err(not_done)
        }
        LabCommand::Status(arguments) => status(&arguments),
        LabCommand::Set(set) => client::set(&set.name, &set.settings)
            .map(|()| 0)
            .map_err(not_done),
        LabCommand::Down(down) => end(&down.name),
    };
    exit_code(ended)
}

/// Runs a lab for the duration of a command.
fn run_command(arguments: LabRunArguments) -> Result<u8, Stop> {
    let settings = arguments.scenario.settings().map_err(usage)?;
    let name = arguments.name.clone();
    let name = name.unwrap_or_else(|| format!("run-{}", std::process::id()));
    let start = Start { settings, name };
    in_lab(Outside::Attached, start, |inside, prepared| {
        let mut running = Running::start(inside, prepared).map_err(not_run)?;
        let server_failed = |code| say(&format!("the server ended with exit code {code}"));
        let ended = command::run(&mut running, &arguments.command(), server_failed);
        let code = ended.map_err(not_ended)?;
        if let Some(report) = report(&running) {
            if !arguments.quiet {
                report.to_string().lines().for_each(say);
            }
            if let Some(file) = &arguments.report {
                write(file, format!("{}\n", report.to_json()).as_bytes())?;
            }
        }
        Ok(code)
    })
}

/// Starts a lab in the background.
fn up(arguments: LabUpArguments) -> Result<u8, Stop> {
    let start = Start {
        settings: arguments.scenario.settings().map_err(usage)?,
        name: arguments.name.clone(),
    };
    isolate::check().map_err(local)?;
    match isolate::background().map_err(local)? {
        Side::Caller { is_ready: true } => {
            print_line!("{}", client::status(&arguments.name).map_err(not_done)?);
            Ok(0)
        }
        // The background process has reported the reason.
        Side::Caller { is_ready: false } => Ok(Exit::Local.code()),
        Side::Background(announce) => in_lab(Outside::Detached, start, |inside, prepared| {
            let stayed = client::stay(inside, prepared, announce);
            stayed.map(|()| 0).map_err(not_run)
        }),
    }
}

/// Lists running labs, or prints the counters of one.
fn status(arguments: &LabStatusArguments) -> Result<u8, Stop> {
    let Some(name) = &arguments.name else {
        let state = StateDirectory::open().map_err(local)?;
        for name in state.living().map_err(local)? {
            print_line!("{name}");
        }
        return Ok(0);
    };
    let text = if arguments.json {
        client::request(name, &Request::Report).map(|report| report.to_string())
    } else {
        client::status(name)
    };
    print_line!("{}", text.map_err(not_done)?);
    Ok(0)
}

/// Ends a lab after printing its counters.
fn end(name: &str) -> Result<u8, Stop> {
    print_line!("{}", client::status(name).map_err(not_done)?);
    client::down(name).map(|()| 0).map_err(not_done)
}

fn not_done(error: ClientError) -> Stop {
    match error {
        ClientError::Wrong(_) => usage(error),
        ClientError::Local(_) => local(error),
    }
}

/// Converts an error of a command in a lab.
fn not_ended(error: CommandError) -> Stop {
    match error {
        CommandError::NoHost(_) | CommandError::Program { .. } => usage(error),
        CommandError::Interrupted => Stop::because(Exit::Interrupted, error),
        error => local(error),
    }
}

/// Runs `longhaul cp --lab`.
pub fn copy(arguments: CopyArguments) -> ExitCode {
    exit_code(copy_across(arguments))
}

fn copy_across(mut arguments: CopyArguments) -> Result<u8, Stop> {
    cp::check_ends(&arguments.paths)?;
    let lab_copy = LabCopy {
        path: arguments.lab.clone(),
        paths: arguments.paths.clone(),
        as_links: (arguments.recursive || arguments.keeping.archive) && !arguments.copy_links,
        deletes: arguments.deletion.deletion().is_some(),
    };
    let (start, notice) = lab_copy.start()?;
    if let Some(notice) = notice.filter(|_| !arguments.quiet) {
        say(&notice);
    }
    in_lab(Outside::Attached, start, |inside, prepared| {
        let quiet = arguments.quiet || arguments.json;
        let copy = |way: &AcrossLab| {
            if let Some(destination) = arguments.paths.last_mut() {
                destination.clone_from(&way.destination);
            }
            arguments.connection.fingerprint = Some(way.fingerprint);
            arguments.connection.token_file = Some(way.token_file.clone());
            cp::run(&arguments)
        };
        let (running, exit) = lab_copy.run(inside, prepared, copy)?;
        if let Some(report) = report(&running).filter(|_| !quiet) {
            report.to_string().lines().for_each(say);
        }
        Ok(exit.code())
    })
}

fn exit_code(ended: Result<u8, Stop>) -> ExitCode {
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(stop) => finish(Err(stop)).into(),
    }
}

/// Runs `work` in a lab's process, and reports its error there.
fn in_lab(
    outside: Outside,
    start: Start,
    work: impl FnOnce(Inside, Prepared) -> Result<u8, Stop>,
) -> Result<u8, Stop> {
    let inside = |inside, prepared| match work(inside, prepared) {
        Ok(code) => code,
        Err(stop) => finish(Err(stop)).code(),
    };
    longhaul_lab::running::in_lab(outside, start, inside).map_err(not_run)
}

/// Returns the report of a lab, and prints its doubts to standard error.
fn report(running: &Running) -> Option<LabReport> {
    match running.report() {
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

/// Returns a stop for a failure of this machine.
fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Returns a stop for an invalid command line.
fn usage(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Usage, error)
}
