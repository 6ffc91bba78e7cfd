//! Opens the sources of a command that are on this host.

use std::sync::Arc;

use longhaul_engine::send::source::{Asked, Source, Sources, open_source};
use longhaul_engine::send::wildcards::{ExpandError, expand_all};
use longhaul_proto::message::Failure;
use longhaul_proto::options::FilterAt;
use longhaul_storage::roots::OpenRoot;

use super::local_paths::no_source;
use super::run::Task;
use crate::console::say;
use crate::daemon::{Access, Roots};
use crate::endpoint::{Endpoint, NoSource, SourceOpening, standard};
use crate::settings::ConnectionSettings;
use crate::spec::SpecError;
use crate::spec::names::check_names;
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
        let missing = || Stop::because(Exit::Usage, SpecError::NullSource);
        let source = self.endpoint.source().ok_or_else(missing)?;
        source.open(self)
    }

    fn failure(&self, error: &NoSource) -> Option<(&[u8], Failure)> {
        Some((self.endpoint.path()?, error.failure.clone()?))
    }
}

impl SourceOpening for Named<'_> {
    fn may_measure(&self) -> Result<(), Stop> {
        self.task.here.may_measure()
    }

    fn open_path(&self, path: &[u8]) -> Result<Source, NoSource> {
        let task = self.task;
        let filter = task.spec.options.filter_command_at(FilterAt::Source);
        let how = Access {
            recursive: task.spec.options.selection.recursive,
            copy_links: task.spec.options.selection.copy_links,
            moves: task.spec.options.move_away,
            filter: filter.map(|filter| &filter.command[..]),
        };
        task.here.source(path, how, self.roots)
    }

    fn open_in(&self, root: Arc<dyn OpenRoot>, path: &[u8]) -> Result<Source, NoSource> {
        let selection = &self.task.spec.options.selection;
        let opened = open_source(&root, path, selection.recursive, selection.copy_links);
        opened.map_err(|error| no_source(&error))
    }

    fn standard_input(&self) -> Option<Source> {
        self.task.pipe.as_ref().map(standard::source_of)
    }

    fn streams(&self) -> Option<u32> {
        self.task.spec.flows.streams
    }

    fn connection(&self) -> &ConnectionSettings {
        &self.task.spec.connection
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
    let roots = &Roots::new(task.spec.options.keep.fake_source);
    let expanded;
    let sources = if written_elsewhere {
        let each = |source: &Endpoint, room| match source.local_path() {
            Some(path) => {
                let found =
                    task.here
                        .expand(path, task.spec.options.selection.copy_links, (roots, room));
                found.map(Some)
            }
            None => Ok(None),
        };
        expanded = expand_all(&task.sources, Endpoint::local, each).map_err(|error| {
            let exit = match &error {
                ExpandError::TooMany(_) => Exit::Usage,
                ExpandError::Unlisted { .. } => Exit::Local,
            };
            Stop::because(exit, error)
        })?;
        check_names(expanded.iter().filter_map(Endpoint::path))
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
