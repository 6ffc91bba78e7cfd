//! `longhaul cp --cluster` and `longhaul worker`.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use longhaul_cluster::coordinator::{self, ClusterCopy, Viewer};
use longhaul_cluster::protocol::Output;
use longhaul_cluster::site;
use longhaul_cluster::worker::{self, WorkerSettings};
use longhaul_transfer::signals::at_signal;

use crate::arguments::{CopyArguments, WorkerArguments};
use crate::messages::{
    Exit, Stop, clear_line, finish, progress_line, say, write_error_line, write_names,
};

/// Ends of the specification of a copy between clusters. The workers replace them.
const ENDS: [&str; 2] = ["/", "longhaul://user@destination/"];

/// Runs `longhaul cp --cluster`.
///
/// # Errors
///
/// Returns an error if the copy could not start or did not finish.
pub fn copy(arguments: &CopyArguments) -> Result<Exit, Stop> {
    let [from, to] = arguments.paths.as_slice() else {
        let text = "--cluster: name one source and one destination, each as SITE:/PATH";
        return Err(Stop::new(Exit::Usage, text));
    };
    let file = arguments.cluster.sites.as_deref();
    let places: [&OsStr; 2] = [from, to];
    let mut places = site::find(file, &places)?.into_iter();
    let (Some(from), Some(to)) = (places.next(), places.next()) else {
        return Err(Stop::new(Exit::Usage, "--cluster: a site is missing"));
    };
    let spec = CopyArguments {
        paths: ENDS.map(Into::into).to_vec(),
        ..arguments.clone()
    };
    let shown = arguments.shown();
    let copy = ClusterCopy {
        from,
        to,
        hosts: arguments.cluster.hosts,
        spec: spec.spec()?,
        output: Output {
            json: shown.json,
            quiet: shown.quiet,
            verbose: shown.verbose,
        },
    };
    let screen = Screen {
        progress: !shown.quiet && !shown.json,
    };
    coordinator::run(&copy, &screen, |interrupt| {
        if let Err(error) = at_signal(move || interrupt.interrupt()) {
            say(&format!(
                "an interrupt will end this process at once: {error}"
            ));
        }
    })
}

/// Output of a copy between clusters.
struct Screen {
    /// If true, shows progress on a terminal.
    progress: bool,
}

impl Viewer for Screen {
    fn print(&self, bytes: &[u8]) {
        clear_line();
        write_names(bytes);
    }

    fn note(&self, text: &str) {
        clear_line();
        write_error_line(text);
    }

    fn progress(&self, text: &str) {
        if self.progress && longhaul_transfer::console::shows_progress() {
            progress_line(text);
        }
    }
}

/// Runs `longhaul worker`.
pub fn worker(arguments: WorkerArguments) -> Exit {
    let settings = WorkerSettings {
        root: arguments.root,
    };
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let run = |input, output| worker::run(settings, input, output);
    finish(match (input, output) {
        (Ok(input), Ok(output)) => run(input, output),
        (Err(error), _) | (_, Err(error)) => Err(Stop::because(Exit::Local, error)),
    })
}
