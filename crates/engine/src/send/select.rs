//! Selects the entries to walk: filters, limits of size, time and depth, and lists of files.

use std::io;
use std::sync::Arc;

use longhaul_proto::byte_string::ByteString;
use longhaul_proto::filter::{
    Action, BadRule, FileFacts, Filter, InForce, PerDirectory, Reason, Rules, SelectionError,
};
use longhaul_proto::keeping::Keeping;
use longhaul_proto::manifest::TreePath;
use longhaul_storage::{Directory, FileKind, Special, Status};

use super::list::{Listed, divided, whole_list};
use super::rule_files::rules_at;
use super::source::{Source, Sources, What};

/// A parsed filter.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    rules: Rules,
    filter: Filter,
    /// List of files, until it is divided among the sources.
    files: Option<Vec<ByteString>>,
    /// If true, devices are copied; if true, sockets and FIFOs are copied.
    devices: bool,
    specials: bool,
}

/// Rules and limits in a directory of the walk.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    force: InForce,
    /// Number of names between the source and the directory.
    depth: u32,
    /// Listed paths in the directory; `None` without a list, or if the list has none there.
    listed: Option<Arc<Listed>>,
    /// True if the directory is copied with all its contents.
    whole: bool,
}

/// Reasons why a directory cannot be walked as requested.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    /// A line of one of its rule files is invalid.
    #[error("{0}: fix that file; what is in the directory was not copied")]
    Rule(BadRule),
    /// A file named in one of its rule files cannot be used.
    #[error("{0}; what is in the directory was not copied")]
    Merged(String),
    /// One of its rule files cannot be read.
    #[error("cannot read the filters in it: {0}; what is in the directory was not copied")]
    Io(io::Error),
}

impl Selected {
    /// Parses a filter.
    ///
    /// # Errors
    ///
    /// [`SelectionError`].
    pub fn new(filter: &Filter) -> Result<Selected, SelectionError> {
        Ok(Selected {
            rules: filter.parse()?,
            filter: Filter {
                // The parsed rules contain them.
                rules: Vec::new(),
                files: None,
                ..filter.clone()
            },
            files: filter.files.clone(),
            ..Selected::default()
        })
    }

    /// Divides a list of files among the sources. Paths after `/./` become sources of their own,
    /// and so do lines that cannot be copied.
    pub(super) fn divide(self, sources: Sources) -> (Selected, Sources) {
        let Some(files) = &self.files else {
            return (self, sources);
        };
        let sources = divided(sources, files);
        let selected = Selected {
            files: None,
            ..self
        };
        (selected, sources)
    }

    /// Selects special files if the copy keeps them.
    #[must_use]
    pub(super) fn keeping(self, keeping: &Keeping) -> Selected {
        Selected {
            devices: keeping.devices,
            specials: keeping.specials,
            ..self
        }
    }

    /// True if a special file is copied.
    pub(super) fn takes(&self, special: Option<Special>) -> bool {
        special.is_some_and(|special| {
            if special.kind.is_device() {
                self.devices
            } else {
                self.specials
            }
        })
    }

    /// Returns the rules for a directory in `above`, or for the source itself. A source that fills
    /// the anchor has no path.
    ///
    /// # Errors
    ///
    /// Fails if its rule files cannot be used.
    pub(super) fn enter(
        &self,
        above: Option<&Place>,
        (source, directory): (&Source, &dyn Directory),
        path: Option<&TreePath>,
    ) -> Result<Place, PlaceError> {
        let there = path;
        let path = path.map_or(&b""[..], TreePath::as_bytes);
        let top = Place::default();
        let files = self.rules.per_directory().iter();
        let files = files.map(|file| rules_at((source, there), directory, file));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let outer = &above.unwrap_or(&top).force;
        let force = outer.enter(&self.rules, path, &files);
        let listed = match above {
            None => source.listed.clone(),
            Some(above) => above.below(last_name(path)).cloned(),
        };
        let is_whole = |listed: &Arc<Listed>| self.filter.files_recursive && listed.is_itself();
        let whole = match above {
            None => listed.as_ref().is_none_or(is_whole),
            Some(above) => above.whole || listed.as_ref().is_some_and(is_whole),
        };
        Ok(Place {
            force: force.map_err(PlaceError::Rule)?,
            depth: above.map_or(0, |above| above.depth + 1),
            listed,
            whole,
        })
    }

    /// True if a copy of a source enters the directory that the names `inner` lead to from the
    /// source's directory. `name` is the source's name at the destination; `None` if it fills the
    /// anchor. Directories on the way need not exist.
    pub fn reaches(
        &self,
        directory: Arc<dyn Directory>,
        name: Option<&[u8]>,
        inner: &[&[u8]],
    ) -> bool {
        let mut path = name.and_then(|name| TreePath::new(name).ok());
        let is_left_out = |path: &TreePath| {
            let top = Place::default();
            self.excludes(&top, path.as_bytes(), true)
        };
        if path.as_ref().is_some_and(is_left_out) || self.bars_source().is_some() {
            return false;
        }
        let device = self.device_of(&*directory);
        let what = name.map_or(What::Contents, |name| What::Tree(name.into()));
        let source = Source {
            listed: self.files.as_deref().map(whole_list),
            ..Source::new(Arc::clone(&directory).into(), what, String::new())
        };
        let Ok(mut place) = self.enter(None, (&source, &*directory), path.as_ref()) else {
            return false;
        };
        let mut above = Some(directory);
        for name in inner {
            let next = TreePath::beneath(path.as_ref(), name);
            let Ok(next) = next else {
                return true;
            };
            let is_left = self.leaves_empty(&place, name);
            if is_left || self.excludes(&place, next.as_bytes(), true) {
                return false;
            }
            let status = above.as_ref().and_then(|above| above.status_of(name).ok());
            if status.is_some_and(|status| self.bars(&place, &status, device).is_some()) {
                return false;
            }
            above = above.and_then(|above| above.open_directory(name).ok());
            if let Some(directory) = &above {
                let entered = self.enter(Some(&place), (&source, &**directory), Some(&next));
                let Ok(entered) = entered else {
                    return false;
                };
                place = entered;
            }
            path = Some(next);
        }
        true
    }

    /// Returns the reason to omit a name; `None` if it is copied.
    pub(super) fn judge(&self, place: &Place, path: &[u8], status: &Status) -> Option<Reason> {
        let is_directory = status.kind == FileKind::Directory;
        match status.kind {
            _ if self.excludes(place, path, is_directory) => Some(Reason::Rule),
            FileKind::Special => (!self.takes(status.special)).then_some(Reason::Special),
            FileKind::File => self.filter.judge(FileFacts {
                size: status.size,
                modified: status.modified,
            }),
            FileKind::Directory | FileKind::Symlink => None,
        }
    }

    /// True if a list omits the contents of a directory.
    pub(super) fn leaves_empty(&self, place: &Place, path: &[u8]) -> bool {
        place.leaves_empty(last_name(path), self.filter.files_recursive)
    }

    /// Returns the names of rule files that are read in each directory.
    pub(super) fn per_directory(&self) -> &[PerDirectory] {
        self.rules.per_directory()
    }

    /// True if a rule omits a name.
    pub(super) fn excludes(&self, place: &Place, path: &[u8], is_directory: bool) -> bool {
        let decide = || place.force.decide(&self.rules, path, is_directory);
        !self.rules.is_empty() && decide() == Some(Action::Exclude)
    }

    /// Returns the text of the rule that omits a name.
    pub(super) fn rule_of(&self, place: &Place, path: &[u8], is_directory: bool) -> Option<String> {
        place.force.rule_of(&self.rules, path, is_directory)
    }

    /// True if some directories may be copied without their contents.
    pub(super) fn may_bar(&self) -> bool {
        self.filter.maximum_depth.is_some() || self.filter.one_file_system
    }

    /// Returns the reason to copy a directory without its contents; `None` if it is entered.
    /// `device` is the device of its source.
    pub(super) fn bars(
        &self,
        place: &Place,
        status: &Status,
        device: Option<u64>,
    ) -> Option<Reason> {
        let elsewhere = device.is_some_and(|device| device != status.device);
        let most = self.filter.maximum_depth;
        if elsewhere && self.filter.one_file_system {
            Some(Reason::FileSystem)
        } else {
            most.is_some_and(|most| place.depth + 1 >= most)
                .then_some(Reason::Depth)
        }
    }

    /// Returns the device of a source if the walk must not leave it.
    pub(super) fn device_of(&self, directory: &dyn Directory) -> Option<u64> {
        let status = self.filter.one_file_system.then(|| directory.status());
        Some(status?.ok()?.device)
    }

    /// Returns the reason to copy the source itself without its contents.
    pub(super) fn bars_source(&self) -> Option<Reason> {
        (self.filter.maximum_depth == Some(0)).then_some(Reason::Depth)
    }
}

impl Place {
    /// Returns the names to examine, in order; `None` for all names of the directory.
    pub(super) fn names(&self) -> Option<Vec<Box<[u8]>>> {
        let names = || self.listed.iter().flat_map(|listed| listed.names());
        (!self.takes_all()).then(|| names().cloned().collect())
    }

    /// Returns the listed names that would be missed by listing the whole directory if they do not
    /// exist.
    pub(super) fn expected(&self) -> Vec<Box<[u8]>> {
        let listed = self.listed.as_ref().filter(|_| self.takes_all());
        let names = listed.into_iter().flat_map(|listed| listed.names());
        names.cloned().collect()
    }

    /// True if every name of the directory is examined.
    fn takes_all(&self) -> bool {
        self.whole || self.listed.as_ref().is_some_and(|listed| listed.contents)
    }

    fn below(&self, name: &[u8]) -> Option<&Arc<Listed>> {
        self.listed.as_ref()?.get(name)
    }

    /// True if a list omits the contents of a directory of this name.
    fn leaves_empty(&self, name: &[u8], recursive: bool) -> bool {
        let enters = |listed: &Arc<Listed>| listed.leads_on() || recursive && listed.itself;
        !self.whole && !self.below(name).is_some_and(enters)
    }

    /// Returns the listed paths beneath a name that is not a directory, and true if the name itself
    /// is copied.
    pub(super) fn unreachable(&self, name: &[u8]) -> (Vec<Vec<u8>>, bool) {
        let Some(listed) = self.below(name) else {
            return (Vec::new(), true);
        };
        let mut paths = Vec::new();
        listed.paths_beneath(name, &mut paths);
        (paths, listed.itself || self.takes_all())
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}
