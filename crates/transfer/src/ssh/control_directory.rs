//! Where the sockets of kept logins are: a directory that nobody but this user can reach or
//! replace.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::state::make_private;

/// Bytes of a socket's path with its end (`sun_path` of Linux).
const MAXIMUM_PATH_BYTES: usize = 108;

/// While ssh makes a socket its name is longer: a dot and 16 letters.
const SSH_ADDS_BYTES: usize = 17;

/// Hexadecimal digits of a socket's name: 80 bits, far above what two hosts could share.
const NAME_DIGITS: usize = 20;

/// `longhaul` in `XDG_RUNTIME_DIR`, else `.cache/longhaul/ssh` of the home.
///
/// # Errors
///
/// For people: why there is none, and what to do.
pub fn of_this_user() -> Result<PathBuf, String> {
    let absolute = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute() && path.is_dir())
    };
    let directory = absolute("XDG_RUNTIME_DIR")
        .map(|runtime| runtime.join("longhaul"))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/longhaul/ssh")));
    let directory =
        directory.ok_or("neither XDG_RUNTIME_DIR nor HOME names a directory: set one of them")?;
    private(&directory)
}

/// Makes it if it is not there, and sees to it that it is this user's alone, with all above it.
fn private(directory: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", directory.display());
    make_private(directory).map_err(failed)?;
    let own = directory.symlink_metadata().map_err(failed)?;
    if let Some(why) = not_private(&own) {
        return Err(format!("{} {why}", directory.display()));
    }
    let real = directory.canonicalize().map_err(failed)?;
    for above in real.ancestors().skip(1) {
        let found = above.metadata().map_err(failed)?;
        if let Some(why) = replaceable(&found) {
            return Err(format!("{} {why}", above.display()));
        }
    }
    Ok(real)
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Why others can reach it.
fn not_private(found: &Metadata) -> Option<&'static str> {
    if !found.is_dir() {
        return Some("is no directory: remove it");
    }
    if found.uid() != me() {
        return Some("belongs to another user: remove it, or set XDG_RUNTIME_DIR");
    }
    (found.mode() & 0o077 != 0).then_some("is open to others: chmod 700 it")
}

/// Why others can put something else in the place of what is in it.
fn replaceable(found: &Metadata) -> Option<&'static str> {
    const STICKY: u32 = 0o1000;
    if found.uid() != me() && found.uid() != 0 {
        return Some("belongs to another user: set XDG_RUNTIME_DIR to a directory of yours");
    }
    let shared = found.mode() & 0o022 != 0 && found.mode() & STICKY == 0;
    shared.then_some("can be written by others: chmod go-w it, or set XDG_RUNTIME_DIR")
}

/// The socket of a destination: each host of this user's, each ssh and each configuration of it
/// has one of its own.
///
/// # Errors
///
/// Where its path would be too long for a socket.
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
    // Hosts may share a home, and no socket.
    add(rustix::system::uname().nodename().to_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_made_for_its_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/longhaul");
        let made = private(&directory).unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o700);
        assert!(private(&directory).is_ok(), "it is there already");
    }

    #[test]
    fn what_others_can_reach_or_replace_is_refused() {
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
    fn each_way_to_a_host_has_a_socket_of_its_own() {
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
