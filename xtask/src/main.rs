//! The project's own habits as commands: `cargo xtask help` lists them.
//!
//! - [`tidy`]: proves what can be checked about the sources
//! - [`mod@test`]: every test, with one list of what failed and what was skipped
//! - [`demo`]: a real tree over TLS across an emulated wide area, verified
//! - [`mod@bench`]: what a copy costs beside what its pieces cost alone
//! - [`count`]: lines of product code, files of an option, methods of a type
//! - [`soak`]: the bars at the size they are stated at, resumable
//! - [`fuzz`]: builds and runs a fuzz target on the pinned stable toolchain
//! - [`workspace`]: where things lie, as cargo tells
//!
//! A command is one module with a `run` and one line in [`COMMANDS`].

mod bench;
mod count;
mod demo;
mod fuzz;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

/// One subcommand.
struct Command {
    /// Name on the command line.
    name: &'static str,
    /// Its arguments, as the help shows them.
    arguments: &'static str,
    /// Description in the help, one line.
    summary: &'static str,
    /// Does it; the error is printed and becomes exit code 1.
    run: fn(&[String]) -> Result<(), String>,
}

/// All subcommands, in the order of the help.
const COMMANDS: [Command; 8] = [
    Command {
        name: "tidy",
        arguments: "",
        summary: "check the project's habits; prints path:line: rule: message",
        run: tidy::run,
    },
    Command {
        name: "wire",
        arguments: "",
        summary: "write the table of wire types in FORMAT.md from the derives of the messages",
        run: tidy::write_wire_table,
    },
    Command {
        name: "test",
        arguments: "[ARGUMENTS OF cargo test]",
        summary: "all tests, also after one failed; ends with what failed and what was skipped",
        run: test::run,
    },
    Command {
        name: "demo",
        arguments: "",
        summary: "copy a real tree across an emulated wide area on this host, and verify it",
        run: demo::run,
    },
    Command {
        name: "bench",
        arguments: "(pieces | small | storage | lab) [--again] | plan | \
                    SCENARIO [OPTIONS OF longhaul sweep]",
        summary: "compare a copy with its pieces or with a local writer of small files, threads with \
                  io_uring, the lab and its file system with their settings; print how long plans \
                  take; or run an experiment of bench/scenarios. The same command resumes one that \
                  was stopped",
        run: bench::run,
    },
    Command {
        name: "count",
        arguments: "[--files] [--commits A..B] [NAME=WORD,WORD...]",
        summary: "count lines of product code, product files that options (those given as well) or \
                  commits touch, and inherent methods of the largest types",
        run: count::run,
    },
    Command {
        name: "soak",
        arguments: "[PART...] [--again | --list] [--jobs N] [--fuzz-seconds S] [--fuzz-runs N]",
        summary: "run the long tests at full size, each part once; the same command resumes",
        run: soak::run,
    },
    Command {
        name: "fuzz",
        arguments: "(TARGET | --all | --list) [--runs N] [--seconds S]",
        summary: "build and run fuzz targets, without nightly and sanitizers",
        run: fuzz::run,
    },
];

fn help() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND [ARGUMENTS]\n\n");
    for command in &COMMANDS {
        let line = format!("{} {}", command.name, command.arguments);
        text += &format!("  {}\n      {}\n", line.trim_end(), command.summary);
    }
    text
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", help());
        return ExitCode::from(2);
    };
    if ["help", "--help", "-h"].contains(&name.as_str()) {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprint!("xtask: there is no command \"{name}\"\n\n{}", help());
        return ExitCode::from(2);
    };
    match (command.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        let text = help();
        for command in &COMMANDS {
            assert!(text.contains(command.name), "{}", command.name);
        }
    }
}
