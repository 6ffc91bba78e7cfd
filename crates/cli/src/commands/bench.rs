//! `longhaul bench`: benchmarks of this host, as tables or as JSON.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_instrument::bench::{self, BenchError, Progress, text};

use crate::arguments::BenchCommand;
use crate::messages::{
    Exit, Stop, clear_line, finish, print_json, print_line, progress_line, say, write_output,
};

/// Runs `longhaul bench`.
pub fn run(command: &BenchCommand) -> Exit {
    finish(bench(command))
}

fn bench(command: &BenchCommand) -> Result<Exit, Stop> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let options = command.options();
    let measured = bench::run(
        &command.subject(),
        &options.settings(),
        &stop,
        &mut progress,
    );
    let measured = measured.map_err(|error| match error {
        BenchError::Local(_) => Stop::because(Exit::Local, error),
        BenchError::Interrupted => Stop::because(Exit::Interrupted, error),
    })?;
    clear_line();
    if options.json {
        print_json(&measured.profile.to_json());
    } else {
        write_output(&text::text(&measured.profile, &measured.sections));
        print_line!("host profile: {}", options.output.display());
    }
    if let Some(unfinished) = measured.unfinished {
        say(&unfinished);
    }
    Ok(Exit::Done)
}

fn progress(progress: &Progress<'_>) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        progress_line(&format!(
            "round {}: {}; at most {:.0} s left",
            progress.round,
            progress.job,
            progress.left.as_secs_f64()
        ));
    }
}
