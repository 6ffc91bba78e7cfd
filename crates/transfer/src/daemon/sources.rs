//! Opens the sources that a principal requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_engine::send::source::{
    Asked, Source, SourceError, Sources, What, last_name, open_source,
};
use longhaul_engine::send::wildcards::{ExpandError, Room, expand, expand_all};
use longhaul_net::principals::{Principal, Resolved};
use longhaul_proto::command::FileCommand;
use longhaul_proto::handshake::{Operation, Refusal, Refused, Request, RequestPath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::options::FilterAt;
use longhaul_storage::fake_super::FakeRoots;
use longhaul_storage::roots::{Anywhere, OpenRoot};

use super::admission::{
    command_of, lacks, may_not_measure, not_permitted, open_root, path_beneath, refused,
};
use crate::endpoint::zero_of;
use crate::spec::names::check_names;

/// Reasons why a source was not opened.
#[derive(Debug)]
pub enum Unopened {
    /// The principal has no right to it, or its root cannot be opened.
    Refused(Refused),
    /// The source cannot be opened.
    Source(SourceError),
}

impl Unopened {
    /// Returns the refusal for a client if the command ends because of it.
    pub fn refused(self) -> Refused {
        match self {
            Unopened::Refused(refused) => refused,
            Unopened::Source(error) => refused(Refusal::Path, error.to_string()),
        }
    }

    /// Returns the failure of this entry if other sources continue; `None` if the command cannot
    /// continue.
    pub fn failure(&self, path: &[u8]) -> Option<Failure> {
        let refused = match self {
            Unopened::Source(error) => return error.failure(),
            Unopened::Refused(refused) => refused,
        };
        let kind = match refused.refusal {
            Refusal::Forbidden => FailureKind::Permission,
            Refusal::Path => FailureKind::Other,
            _ => return None,
        };
        let shown = String::from_utf8_lossy(path);
        Some(Failure::new(kind, format!("{shown}: {}", refused.text)))
    }
}

/// Roots of sources, each opened at most once.
pub struct Roots {
    /// The whole file system of this host.
    pub anywhere: Arc<dyn OpenRoot>,
    beneath: RefCell<HashMap<PathBuf, Arc<dyn OpenRoot>>>,
    fakes: bool,
}

impl Roots {
    /// Creates the set without opening a root. With `fakes`, metadata is read from extended
    /// attributes (`--fake-super`).
    pub fn new(fakes: bool) -> Roots {
        Roots {
            anywhere: faking(Arc::new(Anywhere), fakes),
            beneath: RefCell::default(),
            fakes,
        }
    }

    fn of(&self, resolved: &Resolved<'_>) -> Result<Arc<dyn OpenRoot>, Refused> {
        if let Some(known) = self.beneath.borrow().get(resolved.root) {
            return Ok(Arc::clone(known));
        }
        let root = faking(Arc::new(open_root(resolved)?), self.fakes);
        let mut known = self.beneath.borrow_mut();
        known.insert(resolved.root.to_owned(), Arc::clone(&root));
        Ok(root)
    }
}

fn faking(root: Arc<dyn OpenRoot>, fakes: bool) -> Arc<dyn OpenRoot> {
    if fakes {
        Arc::new(FakeRoots(root))
    } else {
        root
    }
}

/// Intended use of a source.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// If true, directories may be sources.
    pub recursive: bool,
    /// If true, symbolic links are followed.
    pub copy_links: bool,
    /// If true, the source is deleted after the copy.
    pub moves: bool,
    /// Name of the command that filters the files.
    pub filter: Option<&'a [u8]>,
}

/// Opens a source of a principal.
///
/// # Errors
///
/// If the principal has no such path or right, or it cannot be opened.
pub fn open_source_of(
    principal: &Principal,
    path: &[u8],
    how: Access<'_>,
    roots: &Roots,
) -> Result<Source, Unopened> {
    let (recursive, copy_links) = (how.recursive, how.copy_links);
    if principal.is_owner() {
        let opened = open_source(&roots.anywhere, path, recursive, copy_links);
        return opened.map_err(Unopened::Source);
    }
    let may_not = || Unopened::Refused(not_permitted("read"));
    let resolved = principal.resolve(path).map_err(|_| may_not())?;
    if !resolved.rights.read {
        return Err(if resolved.rights.write {
            Unopened::Refused(lacks(principal, path, "read"))
        } else {
            may_not()
        });
    }
    if how.moves && !resolved.rights.delete {
        return Err(Unopened::Refused(lacks(principal, path, "delete")));
    }
    if let Some(name) = how.filter {
        let allowed = ("--filter-cmd", &resolved.commands.filters);
        command_of(allowed, name).map_err(Unopened::Refused)?;
    }
    let root = roots.of(&resolved).map_err(Unopened::Refused)?;
    let beneath = path_beneath(&resolved, path);
    let opened = open_source(&root, &beneath, recursive, copy_links);
    let mut source = opened.map_err(Unopened::Source)?;
    // A root behaves like any directory: its name is copied too, unless a slash follows.
    if resolved.rest.is_none()
        && let Some(name) = last_name(path)
    {
        source.what = What::Tree(name.into());
    }
    Ok(source)
}

/// Returns the paths that a principal's path with wildcards matches. Wildcards match names beneath
/// one of its roots. Each match is then checked like a path given in full.
///
/// # Errors
///
/// There are too many matches, or a directory cannot be listed completely.
pub fn expand_of(
    principal: &Principal,
    path: &[u8],
    copy_links: bool,
    (roots, room): (&Roots, Room),
) -> Result<Vec<Vec<u8>>, ExpandError> {
    if principal.is_owner() {
        return expand(&*roots.anywhere, path, copy_links, room);
    }
    let found = || {
        let resolved = principal.resolve(path).ok()?;
        if resolved.rest.is_none() || !resolved.rights.read {
            return None;
        }
        let root = roots.of(&resolved).ok()?;
        let found = expand(&*root, &path_beneath(&resolved, path), copy_links, room);
        let whole = |below: Vec<u8>| [resolved.at.as_bytes(), b"/", &below].concat();
        Some(found.map(|found| found.into_iter().map(whole).collect()))
    };
    // A path that is not permitted is reported when it is opened.
    found().unwrap_or_else(|| Ok(vec![path.to_vec()]))
}

/// Returns the requested filter command for sources of a principal. Each root must allow it as well
/// ([`open_source_of`]).
///
/// # Errors
///
/// If no root has a command of that name.
pub fn source_filter_of(
    principal: &Principal,
    mut asked: Option<FileCommand>,
) -> Result<Option<FileCommand>, Refused> {
    if let Some(asked) = asked.as_mut().filter(|_| !principal.is_owner()) {
        let allowed = principal.filters();
        asked.command = command_of(("--filter-cmd", &allowed), &asked.command)?;
    }
    Ok(asked)
}

/// One source of a request.
struct Wanted<'a> {
    request: &'a Request,
    principal: &'a Principal,
    roots: &'a Roots,
    path: &'a RequestPath,
}

impl Asked for Wanted<'_> {
    type Error = Unopened;

    fn open(&self) -> Result<Source, Unopened> {
        match self.path {
            RequestPath::Zero(size) if self.principal.may_measure() => Ok(zero_of(*size)),
            RequestPath::Path(path) => {
                let options = &self.request.options;
                let filter = options.filter_command_at(FilterAt::Source);
                let how = Access {
                    recursive: options.selection.recursive,
                    copy_links: options.selection.copy_links,
                    moves: options.move_away,
                    filter: filter.map(|filter| &filter.command[..]),
                };
                open_source_of(self.principal, path, how, self.roots)
            }
            RequestPath::Zero(_) | RequestPath::Null | RequestPath::Stream(_) => {
                Err(Unopened::Refused(may_not_measure()))
            }
        }
    }

    fn failure(&self, error: &Unopened) -> Option<(&[u8], Failure)> {
        match self.path {
            RequestPath::Path(path) => Some((path, error.failure(path)?)),
            RequestPath::Zero(_) | RequestPath::Null | RequestPath::Stream(_) => None,
        }
    }
}

/// Maximum number of unopened sources that are named in a refusal. The rest are only counted.
const NAMED_SOURCES: usize = 16;

/// Opens all sources of a request.
///
/// # Errors
///
/// If no source can be opened: a refusal of the first error's kind with all messages.
pub(super) fn open_sources(request: &Request, principal: &Principal) -> Result<Sources, Refused> {
    let roots = &Roots::new(request.options.keep.fake_source);
    let each = |path: &RequestPath, room| match path {
        // A verification takes exactly one source, without wildcards.
        RequestPath::Path(path) if request.options.operation != Operation::Verify => expand_of(
            principal,
            path,
            request.options.selection.copy_links,
            (roots, room),
        )
        .map(Some),
        _ => Ok(None),
    };
    let paths = expand_all(&request.paths, RequestPath::Path, each);
    let paths = paths.map_err(|error| refused(Refusal::Path, error.to_string()))?;
    check_names(paths.iter().filter_map(|path| match path {
        RequestPath::Path(path) => Some(path.as_slice()),
        _ => None,
    }))
    .map_err(|text| refused(Refusal::Path, text))?;
    let wanted = paths.iter().map(|path| Wanted {
        request,
        principal,
        roots,
        path,
    });
    let wanted: Vec<Wanted> = wanted.collect();
    Sources::open(&wanted).map_err(|errors| refused_all(&wanted, errors))
}

fn refused_all(wanted: &[Wanted<'_>], errors: Vec<Unopened>) -> Refused {
    let each = wanted.iter().zip(&errors);
    let texts = each.filter_map(|(wanted, error)| Some(wanted.failure(error)?.1.text));
    let mut texts: Vec<String> = texts.collect();
    let first = errors.into_iter().next();
    let mut refused = first.map_or_else(|| not_permitted("read"), Unopened::refused);
    // A single error is reported without its path, since only one path was requested.
    if texts.len() > 1 {
        let more = texts.len().saturating_sub(NAMED_SOURCES);
        texts.truncate(NAMED_SOURCES);
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        refused.text = texts.join("; ");
    }
    refused
}
