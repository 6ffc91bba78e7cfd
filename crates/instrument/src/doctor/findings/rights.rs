//! Findings about the permissions of a principal at a daemon.

use super::{Finding, Known, advice, bad, good, not_checked};

/// Answer of a daemon to a request to read, write or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// Permitted.
    Granted,
    /// Not permitted, or the path does not exist: the daemon does not distinguish these.
    Denied,
    /// Permitted, but the path cannot be opened, for this reason.
    Obstructed(String),
}

/// Permissions of a principal at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The principal; empty if the certificate names it.
    pub principal: String,
    /// Path in the URL.
    pub path: String,
    /// Permission to copy from the path.
    pub read: Known<Right>,
    /// Permission to copy to the path.
    pub write: Known<Right>,
    /// Permission to delete at the path, as `cp --delete` does. Requested only if writing
    /// is permitted.
    pub delete: Known<Right>,
}

/// Returns the findings about permissions.
pub(super) fn rights(known: &Known<Rights>) -> Vec<Finding> {
    const TOPIC: &str = "rights";
    let rights = match known {
        Ok(rights) => rights,
        Err(why) => return vec![not_checked(TOPIC, why.clone())],
    };
    let (read, write) = match (&rights.read, &rights.write) {
        (Ok(read), Ok(write)) => (read, write),
        (Err(why), _) | (_, Err(why)) => return vec![not_checked(TOPIC, why.clone())],
    };
    let who = match rights.principal.as_str() {
        "" => "the certificate's principal".to_owned(),
        name => format!("the principal {name}"),
    };
    let path = &rights.path;
    let first = match (read, write) {
        // The URL has no path; roots are below the host.
        (Right::Denied, Right::Denied) if path == "/" => {
            return vec![not_checked(
                TOPIC,
                "the URL names no path: name one of the roots that `longhaul ls` shows",
            )];
        }
        (Right::Denied, Right::Denied) => bad(
            TOPIC,
            format!("{who} may neither read nor write {path}, or the path does not exist for it"),
            "check the URL's path; roots and rights are defined in the daemon's principals \
             file, and `serve --root DIR --write` grants both rights",
        ),
        (Right::Denied, _) => advice(
            TOPIC,
            format!("{who} may write but not read {path}"),
            "to copy from there, or compare: grant the right \"read\" for its root in the daemon's \
             principals file",
        ),
        (_, Right::Denied) => advice(
            TOPIC,
            format!("{who} may read but not write {path}"),
            "to copy there: start the daemon with `serve --write`, or grant the right \"write\" for \
             its root in the principals file",
        ),
        _ => good(TOPIC, format!("{who} may read and write {path}")),
    };
    let mut found = vec![first];
    found.extend(deletion(rights, &who));
    found.extend(obstacle(read, write));
    found
}

/// Returns the finding about deletion, if writing is permitted.
fn deletion(rights: &Rights, who: &str) -> Option<Finding> {
    const TOPIC: &str = "rights";
    let path = &rights.path;
    if !matches!(rights.write, Ok(Right::Granted)) {
        return None;
    }
    Some(match &rights.delete {
        Ok(Right::Denied) => advice(
            TOPIC,
            format!("{who} may not delete at {path}"),
            "for mirrors (`cp --delete`) and `cp --move` from there: start the daemon with `serve \
             --write --delete`, or grant the right \"delete\" for its root in the principals file",
        ),
        Ok(_) => good(TOPIC, format!("{who} may delete at {path}")),
        Err(why) => not_checked(TOPIC, why.clone()),
    })
}

/// Returns an obstacle at a path for which permission exists.
fn obstacle(read: &Right, write: &Right) -> Option<Finding> {
    const TOPIC: &str = "place";
    match (read, write) {
        (Right::Obstructed(why), Right::Obstructed(_) | Right::Denied) => Some(bad(
            TOPIC,
            why.clone(),
            "check the spelling of the path, and the files at the daemon's host",
        )),
        (Right::Obstructed(why), Right::Granted) => Some(advice(
            TOPIC,
            why.clone(),
            "if it is a source, check its spelling; a copy to it creates it",
        )),
        (_, Right::Obstructed(why)) => Some(advice(
            TOPIC,
            why.clone(),
            "to copy there: name a directory, or a new file name in a directory",
        )),
        _ => None,
    }
}
