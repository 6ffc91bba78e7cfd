//! Secrets that no root of a principal may contain: the daemon's key, tokens and jobs, and the
//! principals file. A client that can read them could impersonate the daemon. A client that can
//! write them could become any principal.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_net::config_directory::config_directory;
use longhaul_net::principals::Principals;

use super::DaemonSettings;
use crate::state::state_directory;

/// Maximum number of symbolic links that are followed for one path. The kernel follows fewer.
const MAXIMUM_LINKS: usize = 64;

/// Secrets of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    secrets: Vec<Secret>,
}

#[derive(Clone, Debug)]
struct Secret {
    /// Description for messages.
    what: &'static str,
    /// Path as given.
    path: PathBuf,
    remedy: &'static str,
}

impl Secrets {
    /// Returns the secrets of a daemon with these settings and this state directory.
    pub fn new(state: &Path, arguments: &DaemonSettings) -> Secrets {
        let secret = |what, path: &Path, remedy| Secret {
            what,
            path: path.to_owned(),
            remedy,
        };
        let mut secrets = vec![secret(
            "the daemon's state directory, with its key, tokens and jobs",
            state,
            "name another directory with --state",
        )];
        let audit = arguments.audit.as_ref().map(|audit| audit.file.clone());
        let files = [
            ("the daemon's private key", &arguments.key),
            ("the file of principals", &arguments.principals),
            ("the audit log", &audit),
        ];
        for (what, file) in files {
            if let Some(file) = file {
                secrets.push(secret(what, file, "move the file"));
            }
        }
        // Secrets that the same user has as a client.
        let own = [
            (
                "the user's tokens and known hosts",
                config_directory().ok(),
                "set LONGHAUL_CONFIG_DIR to a directory elsewhere",
            ),
            (
                "the user's jobs",
                state_directory().ok(),
                "set XDG_STATE_HOME to a directory elsewhere",
            ),
        ];
        for (what, directory, remedy) in own {
            // A missing directory may be created inside a root later.
            if let Some(directory) = directory {
                secrets.push(secret(what, &directory, remedy));
            }
        }
        Secrets { secrets }
    }

    /// Checks all roots. Each must be a directory that neither contains a secret nor lies inside
    /// one. No symbolic link on its path may be replaceable by a principal.
    ///
    /// # Errors
    ///
    /// A message for the administrator.
    pub fn check(&self, principals: &Principals) -> Result<(), String> {
        let mounts = Mounts::read();
        let mut writable = Vec::new();
        for (principal, root, rights) in principals.served() {
            let of = format!("the root {} of principal \"{principal}\"", root.display());
            let found = root.canonicalize();
            let found = found.map_err(|error| {
                format!("{of}: {error}; make the directory, or correct its path")
            })?;
            if !found.is_dir() {
                return Err(format!("{of} is no directory: correct its path"));
            }
            self.check_root(&found, &of, &mounts)?;
            if rights.write {
                writable.push((principal, mounts.regions(&found)));
            }
        }
        for (principal, root, _) in principals.served() {
            for link in links_to(root) {
                let at = mounts.locate(&link);
                let holds = |(_, regions): &&(&str, Vec<Located>)| {
                    regions.iter().any(|region| region.holds(&at))
                };
                if let Some((writer, _)) = writable.iter().find(holds) {
                    return Err(format!(
                        "the root {} of principal \"{principal}\" is reached by the link {}, which \
                         principal \"{writer}\" may replace: write the path that it leads to",
                        root.display(),
                        link.display()
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_root(&self, root: &Path, of: &str, mounts: &Mounts) -> Result<(), String> {
        let regions = mounts.regions(root);
        for secret in &self.secrets {
            for place in places_of(&secret.path) {
                let at = mounts.locate(&place);
                let relation = if regions.iter().any(|region| region.holds(&at)) {
                    "holds"
                } else if place.is_dir() && regions.iter().any(|region| at.holds(region)) {
                    "lies in"
                } else {
                    continue;
                };
                let (what, path) = (secret.what, secret.path.display());
                return Err(format!(
                    "{of} {relation} {what} ({path}): a client could take it \
                     over; serve another directory, or {}",
                    secret.remedy
                ));
            }
        }
        Ok(())
    }
}

/// Returns the target of a path and each symbolic link on the way. Replacing a link has the same
/// effect as replacing the target.
fn places_of(path: &Path) -> Vec<PathBuf> {
    let mut places = links_to(path);
    places.push(resolved(path));
    places
}

/// Resolves the links in a path. Missing components are kept unchanged.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in absolute.ancestors() {
        if let Ok(found) = above.canonicalize() {
            let missing = absolute.strip_prefix(above).unwrap_or(Path::new(""));
            // Joining with an empty path would add a final slash.
            return if missing.as_os_str().is_empty() {
                found
            } else {
                found.join(missing)
            };
        }
    }
    absolute
}

/// Returns the location of each symbolic link on a path.
fn links_to(path: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut links = Vec::new();
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([absolute]));
    while let Some(next) = queue.pop_front() {
        for step in next.ancestors() {
            let (Some(parent), Some(name)) = (step.parent(), step.file_name()) else {
                continue;
            };
            let Ok(target) = step.read_link() else {
                continue;
            };
            let Ok(parent) = parent.canonicalize() else {
                continue;
            };
            let link = parent.join(name);
            if seen.len() < MAXIMUM_LINKS && seen.insert(link.clone()) {
                queue.push_back(parent.join(target));
                links.push(link);
            }
        }
    }
    links
}

/// Location of a file or directory as a file system and a path within it. It is the same at every
/// mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Located {
    device: String,
    path: PathBuf,
}

impl Located {
    fn holds(&self, other: &Located) -> bool {
        self.device == other.device && other.path.starts_with(&self.path)
    }
}

/// Mount table of this process.
#[derive(Clone, Debug, Default)]
struct Mounts(Vec<Mount>);

#[derive(Clone, Debug)]
struct Mount {
    device: String,
    /// Directory of the file system that is mounted.
    root: PathBuf,
    /// Mount point.
    at: PathBuf,
}

impl Mounts {
    /// Reads the mount table. Without `/proc` it is empty, and paths are compared unchanged.
    fn read() -> Mounts {
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        Mounts::parse(&table)
    }

    /// Parses a mount table; see `proc_pid_mountinfo(5)`.
    fn parse(table: &[u8]) -> Mounts {
        let mounts = table.split(|&byte| byte == b'\n').filter_map(|line| {
            let mut words = line.split(|&byte| byte == b' ').skip(2);
            Some(Mount {
                device: String::from_utf8_lossy(words.next()?).into_owned(),
                root: unescaped(words.next()?),
                at: unescaped(words.next()?),
            })
        });
        Mounts(mounts.collect())
    }

    /// Returns the location of a path without links.
    fn locate(&self, path: &Path) -> Located {
        let mounts = self.0.iter().filter(|mount| path.starts_with(&mount.at));
        // `max_by_key` returns the last of several mounts at one point, which covers the others.
        let mount = mounts.max_by_key(|mount| mount.at.as_os_str().len());
        let below = mount.and_then(|mount| Some((mount, path.strip_prefix(&mount.at).ok()?)));
        match below {
            Some((mount, rest)) => Located {
                device: mount.device.clone(),
                path: mount.root.join(rest).components().collect(),
            },
            None => Located {
                device: String::new(),
                path: path.to_owned(),
            },
        }
    }

    /// Returns the locations inside a directory without links: its part of a file system, and the
    /// mounts below it.
    fn regions(&self, directory: &Path) -> Vec<Located> {
        let below = self.0.iter();
        let below = below.filter(|mount| mount.at != directory && mount.at.starts_with(directory));
        let below = below.map(|mount| Located {
            device: mount.device.clone(),
            path: mount.root.clone(),
        });
        std::iter::once(self.locate(directory))
            .chain(below)
            .collect()
    }
}

/// Decodes three-digit octal escapes, which represent spaces and similar characters.
fn unescaped(word: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| byte == b'\\') {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Checks that other users cannot write to a directory of keys and tokens.
///
/// # Errors
///
/// A message for the administrator.
pub fn check_private(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    let status = std::fs::metadata(directory).map_err(|error| format!("{shown}: {error}"))?;
    let mode = status.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!(
            "others may write into {shown} (mode {mode:o}), where the daemon keeps its key and \
             tokens: run `chmod go-w {shown}`, or name another directory with --state"
        ));
    }
    let (owner, user) = (status.uid(), rustix::process::geteuid().as_raw());
    if owner != user && owner != 0 {
        return Err(format!(
            "{shown}, where the daemon keeps its key and tokens, belongs to another user (uid \
             {owner}): name another directory with --state"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principals(root: &Path) -> Principals {
        let text = format!(
            "[[principal]]\nname = \"a\"\ncertificates = [\"sha256:{}\"]\n[[principal.root]]\n\
             at = \"/\"\npath = \"{}\"\nrights = [\"read\"]\n",
            "A".repeat(43),
            root.display()
        );
        Principals::parse(&text, Path::new("principals.toml")).unwrap()
    }

    fn secrets(path: &Path) -> Secrets {
        let what = "the key";
        Secrets {
            secrets: vec![Secret {
                what,
                path: path.to_owned(),
                remedy: "move it",
            }],
        }
    }

    #[track_caller]
    fn refused(secret: &Path, root: &Path, relation: &str) {
        let error = secrets(secret).check(&principals(root)).unwrap_err();
        assert!(error.contains(&format!(" {relation} the key (")), "{error}");
    }

    /// Returns a temporary directory whose path contains no links.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap();
        for directory in ["home/config/jobs", "data"] {
            std::fs::create_dir_all(path.join(directory)).unwrap();
        }
        std::fs::write(path.join("home/key.pem"), "key").unwrap();
        (place, path)
    }

    #[test]
    fn a_root_neither_contains_a_secret_nor_lies_in_one() {
        let (_place, at) = place();
        let path = |name: &str| at.join(name);
        for root in ["home", "home/config", ""] {
            refused(&path("home/config"), &path(root), "holds");
        }
        refused(&path("home/config"), &path("home/config/jobs"), "lies in");
        refused(&path("home/key.pem"), &path("home"), "holds");
        let check =
            |secret: &str, root: &str| secrets(&path(secret)).check(&principals(&path(root)));
        assert_eq!(check("home/config", "data"), Ok(()));
        assert_eq!(check("home/key.pem", "home/config"), Ok(()));
        // This name only shares a prefix with the secret's.
        std::fs::create_dir(path("home/conf")).unwrap();
        assert_eq!(check("home/config", "home/conf"), Ok(()));
    }

    #[test]
    fn secrets_are_found_through_links() {
        use std::os::unix::fs::symlink;
        let (_place, at) = place();
        let path = |name: &str| at.join(name);
        symlink(path("home"), path("link")).unwrap();
        refused(&path("home/config"), &path("link"), "holds");
        refused(&path("link/config"), &path("home"), "holds");
        // The secret is elsewhere, but a writer of this link could redirect it.
        symlink("../home/config", path("data/state")).unwrap();
        symlink("data/state", path("state")).unwrap();
        refused(&path("state"), &path("data"), "holds");
        refused(&path("data/state/key.pem"), &path("data"), "holds");
    }

    #[test]
    fn a_root_reached_by_a_writable_link_is_refused() {
        let (_place, at) = place();
        std::os::unix::fs::symlink("../home", at.join("data/link")).unwrap();
        let both = |rights: &str| {
            let root = |name: &str, path: &str, rights: &str| {
                format!(
                    "[[principal.root]]\nat = \"/{name}\"\npath = \"{}\"\nrights = [\"{rights}\"]\n",
                    at.join(path).display()
                )
            };
            let text = format!(
                "[[principal]]\nname = \"a\"\ncertificates = [\"sha256:{}\"]\n{}{}",
                "A".repeat(43),
                root("data", "data", rights),
                root("link", "data/link", "read")
            );
            let principals = Principals::parse(&text, Path::new("principals.toml")).unwrap();
            Secrets::default().check(&principals)
        };
        assert_eq!(both("read"), Ok(()));
        let error = both("write").unwrap_err();
        assert!(
            error.contains("data/link, which principal \"a\" may replace"),
            "{error}"
        );
    }

    #[test]
    fn a_root_that_is_no_directory_is_named() {
        let (_place, at) = place();
        let check =
            |name: &str| secrets(&at.join("home/config")).check(&principals(&at.join(name)));
        let missing = check("missing").unwrap_err();
        assert!(missing.contains("missing of principal \"a\""), "{missing}");
        assert!(missing.contains("make the directory"), "{missing}");
        assert!(
            check("home/key.pem")
                .unwrap_err()
                .contains("is no directory")
        );
    }

    #[test]
    fn secrets_are_found_through_mounts() {
        let mounts = Mounts::parse(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 8:2 / /data rw - ext4 /dev/b rw\n\
              3 1 8:2 /me /srv/x\\040y rw - ext4 /dev/b rw\n\
              4 1 0:9 / /srv/tmp rw - tmpfs none rw\n",
        );
        let at = |path: &str| mounts.locate(Path::new(path));
        let holds = |root: &str, secret: &str| {
            let regions = mounts.regions(Path::new(root));
            regions.iter().any(|region| region.holds(&at(secret)))
        };
        assert_eq!(at("/srv/x y/a").path, Path::new("/me/a"));
        for root in ["/srv/x y", "/srv", "/", "/data", "/data/me"] {
            assert!(holds(root, "/data/me/.config"), "{root}");
        }
        for root in ["/srv/tmp", "/data/you", "/srv/x y/kept", "/usr"] {
            assert!(!holds(root, "/data/me/.config"), "{root}");
        }
        // Mount a part of the secret directory inside a root.
        let part = at("/srv/x y");
        assert!(at("/data/me").holds(&part) && !at("/srv").holds(&part));
    }

    #[test]
    fn a_directory_that_others_may_write_keeps_no_key() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        assert_eq!(check_private(place.path()), Ok(()));
        for mode in [0o777, 0o770, 0o1777] {
            let wider = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(place.path(), wider).unwrap();
            let error = check_private(place.path()).unwrap_err();
            assert!(error.contains("chmod go-w"), "{error}");
        }
        let narrow = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.path(), narrow).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(place.path(), Some(65534), None).unwrap();
            let error = check_private(place.path()).unwrap_err();
            assert!(error.contains("belongs to another user"), "{error}");
        }
    }
}
