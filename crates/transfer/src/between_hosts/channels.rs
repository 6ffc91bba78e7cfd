//! Accepts channels for a job that a daemon runs and that connects to no host. The job listens at a
//! socket with a name that the daemon chose. The socket is in a directory of the principal, so that
//! no principal can reach the job of another one.
//!
//! ```text
//! of-PRINCIPAL/channels-NAME/control   exists while the job runs
//! ```

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_net::token::fill_random;

use super::job::at_socket;
use crate::state::make_private;

/// Prefix of a directory's name, before the name of the channels.
const BEGINS: &str = "channels-";

/// Maximum time until a job listens at its place, even on a busy host.
const LISTENS_WITHIN: Duration = Duration::from_secs(600);

/// A directory for the socket, which is removed when this is dropped.
pub struct Place(PathBuf);

impl Place {
    /// Creates a place in the directory of a principal.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created or the system has no randomness.
    pub fn new(own: &Path) -> io::Result<Place> {
        let mut random = [0; 16];
        fill_random(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = u128::from_ne_bytes(random);
        let place = own.join(format!("{BEGINS}{name:032x}"));
        make_private(&place)?;
        Ok(Place(place))
    }

    /// Returns the path of the directory, for the job.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A directory that cannot be removed is empty or leads to no job.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the places that a killed daemon left behind, once their jobs have ended. A place without
/// a listening socket may be new, so it stays for ten minutes.
pub fn clear(own: &Path) {
    // A place that cannot be read or removed does no harm.
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let is_place = entry.file_name().to_string_lossy().starts_with(BEGINS);
        if is_place && entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_over(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_over(place: &Path) -> bool {
    let is_old = || {
        let made = fs::metadata(place).and_then(|status| status.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LISTENS_WITHIN))
    };
    match at_socket(place, UnixStream::connect) {
        // A new place has no socket yet, or one that does not listen yet.
        Err(error) => {
            let kinds = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
            kinds.contains(&error.kind()) && is_old()
        }
        Ok(_) => false,
    }
}

/// Listens at a place; returns the name under which clients request channels.
///
/// # Errors
///
/// Fails if the path is not a place, or if the system refuses the socket.
pub fn listen(place: &Path) -> io::Result<(String, UnixListener)> {
    let name = place.file_name().and_then(|name| name.to_str());
    let name = name.and_then(|name| name.strip_prefix(BEGINS));
    let name = name.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    Ok((name, at_socket(place, UnixListener::bind)?))
}

/// Connects to the job that accepts channels under this name, which consists of letters and digits.
///
/// # Errors
///
/// Fails if this principal has no job of that name.
pub fn connect(own: &Path, name: &str) -> io::Result<UnixStream> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain && !name.is_empty() {
        at_socket(&own.join(format!("{BEGINS}{name}")), UnixStream::connect)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn channels_reach_the_listener_until_its_directory_is_removed() {
        let own = tempfile::tempdir().unwrap();
        let place = Place::new(own.path()).unwrap();
        let (name, listener) = listen(place.path()).unwrap();
        let mut near = connect(own.path(), &name).unwrap();
        near.write_all(b"here").unwrap();
        drop(near);
        let mut heard = String::new();
        let mut far = listener.accept().unwrap().0;
        far.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "here");
        drop((listener, place));
        assert!(connect(own.path(), &name).is_err());
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_without_a_listener_are_removed() {
        let own = tempfile::tempdir().unwrap();
        let places = [(); 5].map(|()| Place::new(own.path()).unwrap());
        let [living, dead, bound, begun, lost] = places.each_ref().map(Place::path);
        let (name, _listener) = listen(living).unwrap();
        // A killed job leaves its socket, which looks like one that is bound and does not listen
        // yet.
        for place in [dead, bound] {
            drop(listen(place).unwrap());
            assert!(place.join("control").exists());
        }
        let old = std::time::SystemTime::now() - 2 * LISTENS_WITHIN;
        for place in [dead, lost] {
            fs::File::open(place).unwrap().set_modified(old).unwrap();
        }
        let foreign = [own.path().join("channels"), own.path().join("channels-x")];
        fs::create_dir(&foreign[0]).unwrap();
        fs::write(&foreign[1], "").unwrap();
        clear(own.path());
        assert!(!dead.exists() && !lost.exists());
        assert!(
            living.exists() && bound.exists() && begun.exists(),
            "{name}"
        );
        assert!(foreign.iter().all(|path| path.exists()));
        connect(own.path(), &name).unwrap();
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let site = tempfile::tempdir().unwrap();
        let [alice, bob] = ["alice", "bob"].map(|name| site.path().join(name));
        let place = Place::new(&alice).unwrap();
        let (name, _listener) = listen(place.path()).unwrap();
        make_private(&bob).unwrap();
        for wrong in [
            name.as_str(),
            &format!("x/../../alice/channels-{name}"),
            "",
            ".",
        ] {
            assert!(connect(&bob, wrong).is_err(), "{wrong}");
        }
        connect(&alice, &name).unwrap();
        assert!(listen(&alice).is_err());
    }
}
