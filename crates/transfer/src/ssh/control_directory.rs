//! Directory for the sockets of shared logins. Other users can neither read nor replace it.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::state::make_private;

/// Maximum length of a socket's path in bytes, including the final NUL (`sun_path` of Linux).
const MAXIMUM_PATH_BYTES: usize = 108;

/// Bytes that ssh adds to the name while it creates a socket: a dot and 16 letters.
const SSH_ADDS_BYTES: usize = 17;

/// Number of hexadecimal digits in a socket's name: 80 bits, so that collisions are practically
/// impossible.
const NAME_DIGITS: usize = 20;

/// Returns `longhaul` in `XDG_RUNTIME_DIR`, or else `.cache/longhaul/ssh` in the home directory.
/// Skips a directory that belongs to another user, as after `su`, and creates no files there.
///
/// # Errors
///
/// A message for the user with the reason and a remedy, if neither directory can be used.
pub fn of_this_user() -> Result<PathBuf, String> {
    let absolute = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute() && path.is_dir())
    };
    let runtime = absolute("XDG_RUNTIME_DIR").map(|runtime| runtime.join("longhaul"));
    let home = absolute("HOME").map(|home| home.join(".cache/longhaul/ssh"));
    let mut found =
        Err("neither XDG_RUNTIME_DIR nor HOME names a directory: set one of them".to_owned());
    for directory in runtime.into_iter().chain(home) {
        match (private(&directory), &found) {
            (Ok(directory), _) => return Ok(directory),
            // Report the reason for the preferred directory.
            (Err(why), Err(before)) if before.starts_with("neither ") => found = Err(why),
            _ => {}
        }
    }
    found
}

/// Creates the directory if it does not exist, and checks that only this user can access or replace
/// it. Checks the existing ancestors before creating anything.
fn private(directory: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", directory.display());
    let mut there = directory.ancestors().skip(1);
    let there = there.find(|above| above.symlink_metadata().is_ok());
    let there = there.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    irreplaceable(&there.canonicalize().map_err(failed)?)?;
    make_private(directory).map_err(failed)?;
    let own = directory.symlink_metadata().map_err(failed)?;
    if let Some(why) = not_private(&own) {
        return Err(format!("{} {why}", directory.display()));
    }
    let real = directory.canonicalize().map_err(failed)?;
    real.parent().map_or(Ok(()), irreplaceable)?;
    Ok(real)
}

/// Checks that other users cannot replace a directory or any of its ancestors.
fn irreplaceable(directory: &Path) -> Result<(), String> {
    for above in directory.ancestors() {
        let found = above.metadata();
        let found = found.map_err(|error| format!("{}: {error}", above.display()))?;
        if let Some(why) = replaceable(&found) {
            return Err(format!("{} {why}", above.display()));
        }
    }
    Ok(())
}

/// Creates and removes a socket beside the given one, in the same way as ssh. If ssh cannot create
/// its socket, it fails after the login, which is too late.
///
/// # Errors
///
/// A message for the user with the reason.
pub fn try_socket(socket: &Path) -> Result<(), String> {
    let [first, second] = ["try", "tried"].map(|end| {
        let mut name = socket.as_os_str().to_owned();
        name.push(format!(".{end}{}", std::process::id()));
        PathBuf::from(name)
    });
    let made = UnixListener::bind(&first).and_then(|_| std::fs::hard_link(&first, &second));
    // Removal may fail if a file was not created.
    let _ = std::fs::remove_file(&first);
    let _ = std::fs::remove_file(&second);
    made.map_err(|error| {
        format!(
            "no socket can be made in {}: {error}: set XDG_RUNTIME_DIR to a directory on this \
             host's own disk or memory",
            socket.parent().unwrap_or(socket).display()
        )
    })
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the reason why other users may have access, or `None` if the directory is private.
fn not_private(found: &Metadata) -> Option<&'static str> {
    if !found.is_dir() {
        return Some("is no directory: remove it");
    }
    if found.uid() != me() {
        return Some("belongs to another user: remove it, or set XDG_RUNTIME_DIR");
    }
    (found.mode() & 0o077 != 0).then_some("is open to others: chmod 700 it")
}

/// Returns the reason why other users could replace the directory's entries, or `None` if they
/// cannot.
fn replaceable(found: &Metadata) -> Option<&'static str> {
    const STICKY: u32 = 0o1000;
    if found.uid() != me() && found.uid() != 0 {
        return Some("belongs to another user: set XDG_RUNTIME_DIR to a directory of yours");
    }
    let shared = found.mode() & 0o022 != 0 && found.mode() & STICKY == 0;
    shared.then_some("can be written by others: chmod go-w it, or set XDG_RUNTIME_DIR")
}

/// Returns the path of the socket for a destination. The path differs for each local host, ssh
/// command, credential and ssh configuration, since these must not share a login.
///
/// # Errors
///
/// The path would be too long for a socket.
pub fn socket_in(
    directory: &Path,
    words: &[OsString],
    destination: &str,
    configuration: &str,
) -> Result<PathBuf, String> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    // Several hosts may share a home directory but cannot share a socket.
    add(rustix::system::uname().nodename().to_bytes());
    // Different credentials may have different rights at the destination.
    for name in ["SSH_AUTH_SOCK", "KRB5CCNAME"] {
        add(std::env::var_os(name).unwrap_or_default().as_bytes());
    }
    let program = words.first().map(in_path);
    add(program.unwrap_or_default().as_os_str().as_bytes());
    if words.len() > 1 {
        // Paths in ssh's options may be relative to the working directory.
        add(std::env::current_dir()
            .unwrap_or_default()
            .as_os_str()
            .as_bytes());
    }
    words.iter().for_each(|word| add(word.as_bytes()));
    add(destination.as_bytes());
    add(configuration.as_bytes());
    let digits = hasher.finalize().to_hex();
    let socket = directory.join(&digits[..NAME_DIGITS]);
    let bytes = socket.as_os_str().len() + SSH_ADDS_BYTES + 1;
    if bytes > MAXIMUM_PATH_BYTES {
        return Err(format!(
            "a socket in {} would have too long a path ({bytes} bytes of {MAXIMUM_PATH_BYTES}): \
             set XDG_RUNTIME_DIR to a shorter one",
            directory.display()
        ));
    }
    Ok(socket)
}

/// Returns the file that a program name refers to: the name itself if it contains a slash, or else
/// the first match in PATH.
fn in_path(program: &OsString) -> PathBuf {
    let program = Path::new(program);
    if program.components().count() > 1 {
        return program.to_owned();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join(program));
    found.find(|file| file.is_file()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_directory_is_accessible_only_to_its_user() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/longhaul");
        let made = private(&directory).unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o700);
        assert!(private(&directory).is_ok(), "it is there already");
    }

    #[test]
    fn a_directory_that_others_can_reach_or_replace_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/longhaul");
        private(&directory).unwrap();
        mode(&directory, 0o750);
        assert!(private(&directory).unwrap_err().contains("open to others"));
        mode(&directory, 0o700);
        mode(&place.path().join("a"), 0o777);
        assert!(private(&directory).unwrap_err().contains("by others"));
        mode(&place.path().join("a"), 0o1777);
        assert!(private(&directory).is_ok(), "sticky, as /tmp");
        let below = place.path().join("a/other/longhaul");
        mode(&place.path().join("a"), 0o777);
        assert!(private(&below).is_err());
        assert!(!below.exists(), "nothing is made where others write");
        mode(&place.path().join("a"), 0o700);
        let link = place.path().join("a/link");
        symlink(&directory, &link).unwrap();
        assert!(private(&link).unwrap_err().contains("no directory"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&directory, Some(4242), None).unwrap();
            assert!(private(&directory).unwrap_err().contains("another user"));
        } else {
            longhaul_testing::skip("only root gives a directory away");
        }
    }

    #[test]
    fn a_trial_of_a_socket_leaves_no_file() {
        let place = tempfile::tempdir().unwrap();
        try_socket(&place.path().join("0123")).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        let missing = try_socket(&place.path().join("gone/0123"));
        assert!(missing.unwrap_err().contains("XDG_RUNTIME_DIR"));
    }

    #[test]
    fn each_kind_of_login_to_a_host_has_a_separate_socket() {
        let words = |text: &str| vec![OsString::from(text)];
        let of = |words: &[OsString], host, configuration| {
            socket_in(
                Path::new("/run/user/1000/longhaul"),
                words,
                host,
                configuration,
            )
            .unwrap()
        };
        let one = of(&words("ssh"), "host", "port 22\n");
        assert_eq!(one, of(&words("ssh"), "host", "port 22\n"));
        for other in [
            of(&words("ssh"), "host", "port 23\n"),
            of(&words("ssh"), "u@host", "port 22\n"),
            of(&words("ssh2"), "host", "port 22\n"),
        ] {
            assert_ne!(one, other);
        }
        let long = PathBuf::from(format!("/{}", "x".repeat(70)));
        assert!(
            socket_in(&long, &words("ssh"), "host", "")
                .unwrap_err()
                .contains("too long")
        );
    }
}
