//! The `longhaul` command.

mod arguments;
mod commands;
mod heap;
mod log;
mod messages;
mod report;

use std::process::ExitCode;

use longhaul_transfer::console;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    heap::share_where_limited();
    console::install(messages::Terminal);
    if let Some(text) = Arguments::short_help() {
        messages::write_output(text);
        messages::leave(messages::after_output(messages::Exit::Done));
    }
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => {
            let exit = if error.use_stderr() {
                messages::Exit::Usage
            } else {
                messages::Exit::Done
            };
            let text = error.render().to_string();
            match messages::harmless(&text) {
                shown if shown == text => messages::note_output(exit, error.print()),
                // The text may contain a name from another source, for example from a wildcard.
                shown => messages::write_error(&shown),
            }
            messages::leave(messages::after_output(exit));
        }
    };
    // A command in a lab keeps the limits of the caller.
    if let Command::Lab(command) = arguments.command {
        return commands::lab::run(command);
    }
    if let Command::SweepStep = arguments.command {
        return commands::sweep::step();
    }
    raise_open_files();
    if let Command::Cp(copy) = &arguments.command
        && copy.lab.is_some()
    {
        return commands::lab::copy((**copy).clone());
    }
    let exit = match arguments.command {
        Command::Lab(_) | Command::SweepStep => messages::Exit::Usage,
        Command::Records(command) => commands::records::run(&command),
        Command::Sweep(arguments) => commands::sweep::run(&arguments),
        Command::Cp(arguments) => commands::cp::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Ls(arguments) => commands::ls::run(&arguments),
        Command::Verify(arguments) => commands::verify::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Worker(arguments) => commands::cluster::worker(arguments),
        Command::Remote(arguments) => commands::remote::run(&arguments),
        Command::Jobs(arguments) => commands::jobs::jobs(&arguments),
        Command::Attach(arguments) => commands::jobs::attach(&arguments),
        Command::Limit(arguments) => commands::jobs::limit(&arguments),
        Command::Cancel(arguments) => commands::jobs::cancel(&arguments),
        Command::Clean(arguments) => commands::clean::run(arguments),
        Command::Bench(command) => commands::bench::run(&command),
        Command::Probe(arguments) => commands::probe::run(&arguments),
        Command::History(arguments) => commands::history::run(&arguments),
        Command::Model(command) => commands::model::run(&command),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Profile(arguments) => commands::profile::profile(&arguments),
        Command::Report(arguments) => commands::profile::report(&arguments),
        Command::Token(arguments) => commands::token::run(&arguments),
        Command::Fingerprint(arguments) => commands::fingerprint::run(&arguments),
    };
    messages::leave(messages::after_output(exit))
}

/// Raises the soft limit of open files to the hard limit, because many streams and files
/// need more descriptors.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // If it is refused, the limit is unchanged, and a later error will name it.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                ..limit
            },
        );
    }
}
