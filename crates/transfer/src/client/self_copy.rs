//! Detects a copy of a file or directory onto or into itself, before anything is written.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use longhaul_engine::recv::backup::real;
use longhaul_engine::send::select::Selected;
use longhaul_proto::backup::Backup;
use longhaul_proto::handshake::Landing;
use longhaul_storage::roots::{Anywhere, OpenRoot, split};

use crate::endpoint::Endpoint;
use crate::spec::names::landing_name;
use crate::stop::{Exit, Stop};

/// Rejects a copy onto itself if source and destination are paths of this host. Follows links on
/// the way, as the copy does. With `as_links`, a source that is a link is copied as a link. A copy
/// that `deletes` must not have its source inside its target. A destination inside the source is
/// allowed if that part is not `selected`.
///
/// # Errors
///
/// The source and the destination that overlap.
pub fn refuse(
    sources: &[Endpoint],
    destination: &Endpoint,
    (as_links, deletes): (bool, bool),
    selected: &Selected,
) -> Result<(), Stop> {
    let Some(to) = destination.local_path() else {
        return Ok(());
    };
    let to = Target::of(as_path(to));
    for source in sources {
        let Some(path) = source.local_path() else {
            continue;
        };
        let shown = String::from_utf8_lossy(path);
        let name = landing_name(source);
        let found = as_path(path).symlink_metadata();
        let link = found.ok().filter(|found| as_links && found.is_symlink());
        // A link must not be copied onto itself.
        if link.as_ref().is_some_and(|link| to.holds(name, link)) {
            return Err(same(&shown, to.named));
        }
        // A source that cannot be read is reported when it is opened.
        let Ok(found) = as_path(path).metadata() else {
            continue;
        };
        let copies_into = |inner: &[&[u8]]| {
            let opened = Anywhere.open_root(as_path(path));
            opened.map_or(true, |source| selected.reaches(source, name, inner))
        };
        if link.is_none() && found.is_dir() && to.lies_in(&found, copies_into) {
            let text = format!(
                "cannot copy a directory, {shown}, into itself, {}: name a destination outside it",
                to.named.display()
            );
            return Err(Stop::new(Exit::Usage, text));
        }
        if deletes && link.is_none() && found.is_dir() && to.surrounds(name, as_path(path)) {
            let text = format!(
                "with --delete {shown} would be deleted itself: it lies within {}, which gets what it \
                 holds and nothing else; name another destination",
                to.named.display()
            );
            return Err(Stop::new(Exit::Usage, text));
        }
        if to.holds(name, &found) {
            return Err(same(&shown, to.named));
        }
    }
    Ok(())
}

/// Rejects a backup directory that overlaps with a source.
///
/// # Errors
///
/// The source that overlaps.
pub fn refuse_backups(
    sources: &[Endpoint],
    (destination, landing): (&Endpoint, Landing),
    backup: Option<&Backup>,
) -> Result<(), Stop> {
    let directory = backup.and_then(|backup| backup.directory.as_ref());
    let (Some(to), Some(directory)) = (destination.local_path(), directory) else {
        return Ok(());
    };
    let is_name = match landing {
        Landing::Within => false,
        Landing::WithinOrAs => !to.ends_with(b"/") && !as_path(to).is_dir(),
        Landing::As => true,
    };
    let anchor = if is_name { split(to).0 } else { to };
    let place = real(&as_path(anchor).join(as_path(directory)));
    for source in sources {
        let Some(path) = source.local_path() else {
            continue;
        };
        let source = real(as_path(path));
        if source.starts_with(&place) || place.starts_with(&source) {
            let text = format!(
                "--backup-dir: backups in {} could replace what is in the source, {}: name another \
                 directory",
                place.display(),
                String::from_utf8_lossy(path)
            );
            return Err(Stop::new(Exit::Usage, text));
        }
    }
    Ok(())
}

fn same(shown: &str, destination: &Path) -> Stop {
    let text = format!(
        "{shown} and its copy in {} would be the same: name another destination",
        destination.display()
    );
    Stop::new(Exit::Usage, text)
}

/// Destination of a copy.
struct Target<'a> {
    named: &'a Path,
    /// Path with links resolved, as far as it exists.
    path: PathBuf,
    is_directory: bool,
}

impl Target<'_> {
    fn of(named: &Path) -> Target<'_> {
        Target {
            named,
            path: resolved(named),
            is_directory: named.is_dir(),
        }
    }

    /// True if the destination is this directory or lies inside it, in a part that is copied.
    fn lies_in(&self, directory: &Metadata, is_copied: impl Fn(&[&[u8]]) -> bool) -> bool {
        let mut above = self.path.ancestors();
        let found = above.find(|above| is_same(above.metadata(), directory));
        let inner = found.and_then(|above| self.path.strip_prefix(above).ok());
        inner.is_some_and(|inner| {
            let names = inner.iter().map(OsStrExt::as_bytes);
            is_copied(&names.collect::<Vec<_>>())
        })
    }

    /// True if the target directory for a source of this name contains the source.
    fn surrounds(&self, name: Option<&[u8]>, source: &Path) -> bool {
        let landing = match name {
            Some(name) if self.is_directory => self.path.join(OsStr::from_bytes(name)),
            _ => self.path.clone(),
        };
        let Ok(landing) = landing.metadata() else {
            return false;
        };
        let source = resolved(source);
        let mut above = source.ancestors().skip(1);
        above.any(|above| is_same(above.metadata(), &landing))
    }

    /// True if the target for a source of this name is this file or directory. A link at the target
    /// is replaced, so it is not followed.
    fn holds(&self, name: Option<&[u8]>, source: &Metadata) -> bool {
        let landing = match name {
            Some(name) if self.is_directory => self.path.join(OsStr::from_bytes(name)),
            // The file gets the destination's name.
            Some(_) if !source.is_dir() => self.named.to_owned(),
            _ => return false,
        };
        is_same(landing.symlink_metadata(), source)
    }
}

fn is_same(found: std::io::Result<Metadata>, other: &Metadata) -> bool {
    found.is_ok_and(|found| (found.dev(), found.ino()) == (other.dev(), other.ino()))
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Resolves links and `..` in a path as the system does. Keeps the names of missing components.
pub fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    let here = std::env::current_dir().unwrap_or_default();
    for component in here.join(path).components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            other => {
                resolved.push(other);
                if let Ok(real) = resolved.canonicalize() {
                    resolved = real;
                }
            }
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    use longhaul_proto::filter::Filter;

    // tidy: long because one tree serves all cases.
    #[test]
    fn a_copy_onto_itself_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            place
                .path()
                .join(path)
                .into_os_string()
                .into_encoded_bytes()
        };
        fs::create_dir_all(place.path().join("data/inner")).unwrap();
        fs::create_dir_all(place.path().join("other")).unwrap();
        fs::write(place.path().join("data/file"), "x").unwrap();
        fs::hard_link(place.path().join("data/file"), place.path().join("hard")).unwrap();
        symlink("data/inner", place.path().join("link")).unwrap();
        symlink("data", place.path().join("whole")).unwrap();
        symlink("data/file", place.path().join("soft")).unwrap();
        let copy_so = |from: &str, to: &str, how| {
            let source = Endpoint::local(at(from));
            refuse(
                &[source],
                &Endpoint::local(at(to)),
                how,
                &Selected::default(),
            )
        };
        let copy_as = |from: &str, to: &str, as_links| copy_so(from, to, (as_links, false));
        let copy = |from: &str, to: &str| copy_as(from, to, false);
        for (from, to) in [
            ("data", "data"),
            ("data", "data/sub"),
            ("data", "data/new/and/new"),
            ("data/", "data/inner"),
            ("data/.", "data"),
            ("whole", "data/sub"),
            ("data", "link/sub"),
            ("data", "missing/../link/sub"),
            ("data", "other/../data/inner"),
            (".", "other"),
            ("data", "."),
            ("data", "other/.."),
            ("data/file", "data/file"),
            ("data/file", "data"),
            ("data/file", "data/inner/.."),
            ("data/file", "hard"),
            ("soft", "data/file"),
        ] {
            let stop = copy(from, to).expect_err(&format!("{from} to {to}"));
            assert_eq!(stop.exit, Exit::Usage);
        }
        for (from, to) in [
            ("data", "other"),
            ("data", "data-new"),
            ("data/", "other"),
            ("data/inner", "."),
            ("data/inner", "other/"),
            ("data/file", "data/file2"),
            ("data/file", "other"),
            ("data/file", "."),
            // The link is replaced by a file.
            ("data/file", "soft"),
            ("missing", "missing/sub"),
        ] {
            assert!(copy(from, to).is_ok(), "{from} to {to}");
        }
        // Entries outside the source are deleted, which would include the source.
        for (from, to, refused) in [
            ("data/inner/", ".", true),
            ("data/inner/", "data", true),
            ("data/inner", ".", false),
            ("data/", "other", false),
        ] {
            let copied = copy_so(from, to, (false, true));
            assert_eq!(copied.is_err(), refused, "{from} to {to}");
        }
        // A link may be copied into the directory that it points to, but must not replace that
        // directory or itself.
        assert!(copy_as("whole", "data/sub", true).is_ok());
        assert!(copy_as("soft", "other", true).is_ok());
        for (from, to) in [
            ("soft", "data/file"),
            ("soft", "."),
            ("whole", "."),
            ("whole/", "data"),
        ] {
            assert!(copy_as(from, to, true).is_err(), "{from} to {to}");
        }
    }

    #[test]
    fn a_destination_in_an_excluded_part_is_not_part_of_the_source() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = place.path().join(path);
            Endpoint::local(path.into_os_string().into_encoded_bytes())
        };
        fs::create_dir_all(place.path().join("data/there/deep")).unwrap();
        let rules = [b"- /backup/".to_vec().into(), b"- deep/".to_vec().into()];
        let selection = Filter {
            rules: rules.to_vec(),
            ..Filter::default()
        };
        let selected = Selected::new(&selection).unwrap();
        let copy = |from: &str, to: &str| refuse(&[at(from)], &at(to), (false, false), &selected);
        for to in [
            "data/backup",
            "data/backup/new",
            "data/there/deep",
            "data/deep",
        ] {
            assert!(copy("data/", to).is_ok(), "{to}");
        }
        for to in ["data", "data/there", "data/there/backup", "data/new"] {
            assert!(copy("data/", to).is_err(), "{to}");
        }
        // If the directory keeps its name, a rule with a leading slash no longer matches.
        assert!(copy("data", "data/backup").is_err());
        assert!(copy("data", "data/there/deep").is_ok());
    }
}
