//! What a principal may do at a daemon.

use super::{Finding, Known, advice, bad, good, not_checked};

/// What a daemon says to one who would read, or write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// It may.
    Granted,
    /// It may not, or there is nothing: the daemon does not say which.
    Denied,
    /// It may, and the path cannot be opened; why.
    Obstructed(String),
}

/// What a principal may do at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The principal; empty if the certificate names it.
    pub principal: String,
    /// Where, as in the URL.
    pub path: String,
    /// Copy from there.
    pub read: Known<Right>,
    /// Copy to there.
    pub write: Known<Right>,
    /// Delete there, as `cp --delete` does; asked only if it may write.
    pub delete: Known<Right>,
}

/// What to report about them.
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
        // A URL that ends with the host; roots are beneath that.
        (Right::Denied, Right::Denied) if path == "/" => {
            return vec![not_checked(
                TOPIC,
                "the URL names no path: name one of the roots that `longhaul ls` shows",
            )];
        }
        (Right::Denied, Right::Denied) => bad(
            TOPIC,
            format!("{who} may neither read nor write {path}, or there is no such path for it"),
            "look at the URL's path; its roots and their rights stand in the daemon's principals \
             file, and `serve --root DIR --write` gives both",
        ),
        (Right::Denied, _) => advice(
            TOPIC,
            format!("{who} may write {path}, not read it"),
            "to copy from there, or compare: the right \"read\" of its root in the daemon's \
             principals file",
        ),
        (_, Right::Denied) => advice(
            TOPIC,
            format!("{who} may read {path}, not write it"),
            "to copy there: start the daemon with `serve --write`, or give the right \"write\" to \
             its root in the principals file",
        ),
        _ => good(TOPIC, format!("{who} may read and write {path}")),
    };
    let mut found = vec![first];
    found.extend(deletion(rights, &who));
    found.extend(obstacle(read, write));
    found
}

/// Whether it may delete, where it may write.
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
             --write --delete`, or give the right \"delete\" to its root in the principals file",
        ),
        Ok(_) => good(TOPIC, format!("{who} may delete at {path}")),
        Err(why) => not_checked(TOPIC, why.clone()),
    })
}

/// What is in the way of who may.
fn obstacle(read: &Right, write: &Right) -> Option<Finding> {
    const TOPIC: &str = "place";
    match (read, write) {
        (Right::Obstructed(why), Right::Obstructed(_) | Right::Denied) => Some(bad(
            TOPIC,
            why.clone(),
            "check how the path is written, and what is there at the daemon's host",
        )),
        (Right::Obstructed(why), Right::Granted) => Some(advice(
            TOPIC,
            why.clone(),
            "a source has to be there: check how it is written; a copy to it makes it",
        )),
        (_, Right::Obstructed(why)) => Some(advice(
            TOPIC,
            why.clone(),
            "to copy there: name a directory, or one file's new name in one",
        )),
        _ => None,
    }
}
