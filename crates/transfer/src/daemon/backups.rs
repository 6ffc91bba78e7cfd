//! Backups of replaced or deleted files: in any directory of this host's user, or beneath the roots
//! of a principal.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_engine::recv::backup::{Backups, PlaceError, real};
use longhaul_engine::recv::landing::{Destination, LandingError};
use longhaul_net::principals::{Principal, Resolved};
use longhaul_proto::backup::Backup;
use longhaul_proto::handshake::{Refusal, Refused};
use longhaul_storage::roots::{Anywhere, split};

use super::admission::{not_permitted, open_root, path_beneath, refused};

/// Adds backups to a destination of a user who may write to all paths that this process may.
///
/// # Errors
///
/// The backup directory cannot be used.
pub fn keeping_anywhere(
    destination: Destination,
    path: &[u8],
    asked: Option<&Backup>,
) -> Result<Destination, LandingError> {
    let Some(asked) = asked else {
        return Ok(destination);
    };
    let failed = |error: PlaceError| LandingError::Open(error.to_string());
    let backups = match &asked.directory {
        None => Backups::beside(asked),
        Some(directory) => {
            let anchor = as_path(anchor_of(&destination, path));
            let place = anchor.join(as_path(directory));
            let opening = (Box::new(Anywhere) as _, place.clone());
            Backups::within(asked, opening, (anchor, &place)).map_err(failed)?
        }
    };
    Ok(destination.keeping_backups(backups))
}

/// Adds backups to a destination of a principal, whose path is written as in a URL.
///
/// # Errors
///
/// The principal may not write there.
pub(super) fn keeping_beneath(
    destination: Destination,
    (principal, path): (&Principal, &[u8]),
    asked: Option<&Backup>,
) -> Result<Destination, Refused> {
    let Some(asked) = asked else {
        return Ok(destination);
    };
    let Some(directory) = &asked.directory else {
        return Ok(destination.keeping_backups(Backups::beside(asked)));
    };
    let may_not = || not_permitted("write");
    let anchor = anchor_of(&destination, path);
    let whole = joined(anchor, directory).ok_or_else(may_not)?;
    let resolved = principal.resolve(&whole).map_err(|_| may_not())?;
    if !resolved.rights.write {
        return Err(may_not());
    }
    let above = principal.resolve(anchor).map_err(|_| may_not())?;
    let root = open_root(&resolved)?;
    let relative = as_path(&path_beneath(&resolved, &whole)).to_owned();
    let (above, place) = (on_this_host(&above), on_this_host(&resolved));
    if !keeps_secrets(principal, (&above, &place)) {
        return Err(not_permitted("read"));
    }
    let backups = Backups::within(asked, (Box::new(root), relative), (&above, &place));
    let backups = backups.map_err(|error| refused(Refusal::Path, error.to_string()))?;
    Ok(destination.keeping_backups(backups))
}

/// True if the backups do not make files readable that the principal may not read in the directory
/// itself. Checks all roots, since one root may lie inside another.
fn keeps_secrets(principal: &Principal, (anchor, place): (&Path, &Path)) -> bool {
    let (anchor, place) = (real(anchor), real(place));
    let readable = || {
        let roots = principal.roots().filter(|(_, rights)| rights.read);
        roots.map(|(root, _)| real(root))
    };
    readable().any(|root| anchor.starts_with(root))
        || !readable().any(|root| place.starts_with(&root) || root.starts_with(&place))
}

/// Returns the directory in which entries land.
fn anchor_of<'a>(destination: &Destination, path: &'a [u8]) -> &'a [u8] {
    match destination.rename {
        Some(_) => split(path).0,
        None => path,
    }
}

/// Joins a path to another one by names only, since links beneath a root are not followed. Returns
/// `None` if the result would leave the root.
fn joined(anchor: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let slash = |byte: &u8| *byte == b'/';
    let above = anchor.split(slash).filter(|_| !path.starts_with(b"/"));
    let mut names: Vec<&[u8]> = Vec::new();
    for name in above.chain(path.split(slash)) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some([b"/", &*names.join(&b'/')].concat())
}

fn on_this_host(resolved: &Resolved<'_>) -> std::path::PathBuf {
    match &resolved.rest {
        Some(rest) => resolved.root.join(as_path(rest.as_bytes())),
        None => resolved.root.to_owned(),
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_backups_is_found_by_its_names_alone() {
        for (anchor, path, whole) in [
            (&b"/data/a/"[..], &b"old"[..], Some(&b"/data/a/old"[..])),
            (b"/data/a", b"../old/", Some(b"/data/old")),
            (b"/data", b"/other/./x", Some(b"/other/x")),
            (b"/data", b"..", Some(b"/")),
            (b"/data", b"../../x", None),
            (b"/data", b"/..", None),
            (b"/data", b"a/../../../data", None),
        ] {
            assert_eq!(joined(anchor, path).as_deref(), whole, "{path:?}");
        }
    }
}
