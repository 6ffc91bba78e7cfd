//! Opens the sources of a command that are on this host.

use longhaul_engine::send::source::{Asked, Source, Sources};
use longhaul_engine::send::wildcards::{ExpandError, expand_all};
use longhaul_proto::message::Failure;

use super::local_paths::NoSource;
use super::request::zero_of;
use super::run::Task;
use crate::console::say;
use crate::daemon::{Access, Roots};
use crate::endpoint::Endpoint;
use crate::spec::FilterAt;
use crate::spec::names::{check_names, path_of};
use crate::stop::{Exit, Stop};

/// One source of a command.
struct Named<'a> {
    task: &'a Task,
    roots: &'a Roots,
    endpoint: &'a Endpoint,
}

impl Asked for Named<'_> {
    type Error = NoSource;

    fn open(&self) -> Result<Source, NoSource> {
        let task = self.task;
        match self.endpoint {
            Endpoint::Zero(size) => {
                task.here.may_measure()?;
                Ok(zero_of(size.0))
            }
            Endpoint::Local(path) => {
                let filter = task.spec.asked_filter(FilterAt::Source);
                let how = Access {
                    recursive: task.spec.selection.recursive,
                    copy_links: task.spec.selection.copy_links,
                    moves: task.spec.move_away,
                    filter: filter.as_ref().map(|filter| &filter.command[..]),
                };
                task.here.source(path, how, self.roots)
            }
            Endpoint::Standard => match &task.pipe {
                Some(stream) => Ok(stream.source(super::pipe::shown())),
                None => Err(Stop::new(Exit::Usage, "there is no standard input").into()),
            },
            Endpoint::Null | Endpoint::Daemon(_) | Endpoint::Ssh(_) => {
                let text = "null: is a destination; a source of zeros is zero:SIZE";
                Err(Stop::new(Exit::Usage, text).into())
            }
        }
    }

    fn failure(&self, error: &NoSource) -> Option<(&[u8], Failure)> {
        match self.endpoint {
            Endpoint::Local(path) => Some((path, error.failure.clone()?)),
            _ => None,
        }
    }
}

/// Opens the sources. If one of several cannot be opened, it counts as a failure and the others
/// continue. With `written_elsewhere`, as for a job, wildcards are expanded here because no shell
/// has expanded them.
///
/// # Errors
///
/// No source can be opened. All errors but the last are printed.
pub fn open(task: &Task, written_elsewhere: bool) -> Result<Sources, Stop> {
    let roots = &Roots::new(task.spec.keep.fake_source);
    let expanded;
    let sources = if written_elsewhere {
        let each = |source: &Endpoint, room| match source {
            Endpoint::Local(path) => {
                let found = task
                    .here
                    .expand(path, task.spec.selection.copy_links, (roots, room));
                found.map(Some)
            }
            _ => Ok(None),
        };
        expanded = expand_all(&task.sources, Endpoint::Local, each).map_err(|error| {
            let exit = match &error {
                ExpandError::TooMany(_) => Exit::Usage,
                ExpandError::Unlisted { .. } => Exit::Local,
            };
            Stop::because(exit, error)
        })?;
        check_names(expanded.iter().filter_map(path_of))
            .map_err(|text| Stop::new(Exit::Usage, text))?;
        &expanded
    } else {
        &task.sources
    };
    let named = sources.iter().map(|endpoint| Named {
        task,
        roots,
        endpoint,
    });
    let named: Vec<Named> = named.collect();
    Sources::open(&named).map_err(|mut errors| {
        let last = errors.pop();
        for error in errors {
            say(&error.stop.text);
        }
        let none = || Stop::new(Exit::Usage, "there is no source");
        last.map_or_else(none, |error| error.stop)
    })
}
