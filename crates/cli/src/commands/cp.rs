//! `longhaul cp`.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use longhaul_transfer::about::About;
use longhaul_transfer::between_hosts::job_protocol::Shown;
use longhaul_transfer::between_hosts::sides::{JobRequest, named_ends};
use longhaul_transfer::between_hosts::{own_job, starting};
use longhaul_transfer::client::observer::{Control, Observer};
use longhaul_transfer::client::run::{self, Place};
use longhaul_transfer::endpoint::check_colons;
use longhaul_transfer::entry_log::Logged;
use longhaul_transfer::running;
use longhaul_transfer::spec::{Direction, ValidSpec};

use super::screen::Screen;
use crate::arguments::{BetweenArguments, CopyArguments, WriteArguments};
use crate::messages::{Exit, Stop, finish};
use crate::report::{Report, end_at_signal};

/// Runs `longhaul cp`.
pub fn run(arguments: &CopyArguments) -> Exit {
    finish(copy(arguments))
}

fn copy(arguments: &CopyArguments) -> Result<Exit, Stop> {
    if arguments.cluster.cluster {
        return super::cluster::copy(arguments);
    }
    check_ends(&arguments.paths)?;
    let command = Command {
        spec: &arguments.spec()?,
        paths: arguments.paths.iter().collect(),
        shown: arguments.shown(),
        manifest: arguments.manifest.as_deref(),
        between: &arguments.between,
        remembers: arguments.lab.is_none(),
        writes: &arguments.accounts.writes,
    };
    command.run()
}

/// Checks that the destination and a single source are not hosts with a forgotten colon.
/// Of several sources, missing ones are reported as failures later.
///
/// # Errors
///
/// Returns an error if one of them looks like such a host.
pub fn check_ends(paths: &[OsString]) -> Result<(), Stop> {
    let checked = match paths {
        [_, _] | [] => paths,
        [.., destination] => std::slice::from_ref(destination),
    };
    check_colons(checked).map_err(|error| Stop::because(Exit::Usage, error))
}

/// A transfer as requested by a command.
pub struct Command<'a> {
    /// Specification of the transfer.
    pub spec: &'a ValidSpec,
    /// Sources and destination as the user wrote them.
    pub paths: Vec<&'a OsString>,
    /// Kinds of output.
    pub shown: Shown,
    /// Path of the manifest, if one is written.
    pub manifest: Option<&'a Path>,
    /// Arguments for two remote hosts, and for jobs.
    pub between: &'a BetweenArguments,
    /// If true, the transfer is added to the history.
    pub remembers: bool,
    /// Logs of entries.
    pub writes: &'a WriteArguments,
}

impl Command<'_> {
    /// Runs the transfer here or as a job.
    ///
    /// # Errors
    ///
    /// Returns an error if the transfer could not start or did not finish.
    pub fn run(&self) -> Result<Exit, Stop> {
        let is_between = self.spec.direction() == Direction::ThirdParty;
        if is_between || self.between.detach {
            if is_between && self.writes.is_any() {
                let text = "--report and --log-file need a copy from or to this host: between two \
                            others use --json, whose events `longhaul attach --json` prints";
                return Err(Stop::new(Exit::Usage, text));
            }
            return self.start(is_between);
        }
        if self.between.through_local {
            let text = "--through-local is for copies between two remote hosts: remove it";
            return Err(Stop::new(Exit::Usage, text));
        }
        let manifest = self.manifest.map(|file| {
            let shown = file.display().to_string();
            (file.to_owned(), shown)
        });
        let control = Control::default();
        let operation = self.spec.options.operation;
        let about = About::new(operation, named_ends(&self.paths), self.shown.verbose);
        let report = Report::new(self.shown, manifest, &control)?.comparing(about.compares());
        end_at_signal(&control);
        let _offer = running::offer(&control, [&about.ends[0], &about.ends[1]]);
        let observer: Arc<dyn Observer> = Arc::new(report);
        let observer = Logged::around(observer, self.writes.files(), about)?;
        let place = Place {
            remembers: self.remembers,
            ..Place::default()
        };
        run::run(self.spec.clone(), place, &control, &observer)
    }

    /// Runs the transfer as a job, on one of two remote hosts or on this host.
    fn start(&self, is_between: bool) -> Result<Exit, Stop> {
        let screen = Screen::new(self.shown);
        let run = if is_between {
            starting::run
        } else {
            own_job::run
        };
        run(&JobRequest {
            spec: self.spec,
            named: named_ends(&self.paths),
            shown: self.shown,
            manifest: self.manifest,
            accounts: self.writes.files().into(),
            detach: self.between.detach,
            through_local: self.between.through_local,
            viewer: &screen,
        })
    }
}
