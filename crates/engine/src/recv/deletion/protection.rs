//! Decides which names of the destination filters protect from deletion.

use std::io;

use longhaul_proto::deletion::Deletion;
use longhaul_proto::filter::{Action, End, InForce, Rules, SelectionError};
use longhaul_proto::manifest::TreePath;
use longhaul_storage::Directory;
use minicbor::bytes::ByteVec;

use crate::send::rule_files::{is_link, rules_of};

/// The filter rules as the receiving end applies them.
#[derive(Default)]
pub(super) struct Protection {
    rules: Rules,
    end: Option<End>,
    /// If true, directories on other file systems than the anchor stay.
    pub one_file_system: bool,
    /// True if no data is copied: rule files are then those that a copy would bring.
    foresees: bool,
    /// True if the rule files of the source have the same content here after the copy.
    are_copied: bool,
    /// True if the other end may read the destination: errors may then show lines of rule files.
    shows_lines: bool,
}

/// Location of a directory.
pub(super) struct At<'a> {
    pub anchor: &'a dyn Directory,
    /// Path beneath the anchor.
    pub here: Option<&'a TreePath>,
    /// Path as the rules see it.
    pub source: Option<&'a TreePath>,
}

/// Rules that apply in a directory. A name stays if either set protects it.
#[derive(Clone, Default)]
pub(super) struct Force {
    /// Rules of the files that exist after the copy.
    there: InForce,
    /// Rules of the source's files, if some of these are not copied.
    of_source: Option<InForce>,
}

impl Protection {
    /// # Errors
    ///
    /// Returns the error of the first rule that is not valid.
    pub(super) fn new(
        asked: &Deletion,
        (foresees, are_copied): (bool, bool),
        shows_lines: bool,
    ) -> Result<Protection, SelectionError> {
        Ok(Protection {
            rules: asked.parse()?,
            end: Some(if asked.excluded {
                End::ReceivingOnly
            } else {
                End::Receiving
            }),
            one_file_system: asked.one_file_system,
            foresees,
            are_copied,
            shows_lines,
        })
    }

    /// Removes lines of rule files from an error, unless the other end may read them.
    fn without_lines(&self, error: io::Error) -> io::Error {
        if self.shows_lines || error.kind() != io::ErrorKind::Other {
            error
        } else {
            io::Error::other("a file of rules in it cannot be used")
        }
    }

    /// True if the rules depend on the directory.
    pub(super) fn is_local(&self) -> bool {
        !self.rules.per_directory().is_empty()
    }

    /// Returns the rules in a directory within one where `above` applies. `told` are the source's
    /// rule files of this directory, if it exists in the source.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule files cannot be used.
    pub(super) fn enter(
        &self,
        above: &Force,
        (directory, told): (&dyn Directory, &[Option<ByteVec>]),
        at: &At<'_>,
    ) -> io::Result<Force> {
        if !self.is_local() {
            return Ok(Force::default());
        }
        let files = self.rules.per_directory();
        let told = |number: usize| told.get(number).and_then(Option::as_ref);
        let there = files
            .iter()
            .enumerate()
            .map(|(number, file)| match told(number) {
                Some(told) if self.foresees && !file.is_excluded => Ok(Some(told.to_vec())),
                // The copied file is a link, or names other files, which may be links or may not be
                // copied. Their targets are at the source.
                Some(told)
                    if self.are_copied
                        && (file.is_gathered(told) || is_link(directory, &file.name)) =>
                {
                    Ok(Some(told.to_vec()))
                }
                _ => rules_of((at.anchor, at.here), directory, file),
            });
        let there = there.collect::<io::Result<Vec<_>>>();
        let there = there.map_err(|error| self.without_lines(error))?;
        // Files that are not copied exist at the source only.
        let of_source = files
            .iter()
            .enumerate()
            .map(|(number, file)| match told(number) {
                Some(told) if file.is_excluded => Some(told.to_vec()),
                _ => there[number].clone(),
            });
        let of_source: Vec<_> = of_source.collect();
        let path = at.source.map_or(&b""[..], TreePath::as_bytes);
        let enter = |above: &InForce, files: &[Option<Vec<u8>>]| {
            let entered = above.enter(&self.rules, path, files);
            entered.map_err(|error| self.without_lines(io::Error::other(error.to_string())))
        };
        let differs = above.of_source.is_some() || of_source != there;
        let of_source = differs.then(|| {
            let above = above.of_source.as_ref().unwrap_or(&above.there);
            enter(above, &of_source)
        });
        Ok(Force {
            of_source: of_source.transpose()?,
            there: enter(&above.there, &there)?,
        })
    }

    /// True if a name that the source lacks must stay.
    pub(super) fn protects(&self, force: &Force, path: &TreePath, is_directory: bool) -> bool {
        let Some(end) = self.end else {
            return false;
        };
        let protects = |force: &InForce| {
            let decided = force.decide_at(end, &self.rules, path.as_bytes(), is_directory);
            decided == Some(Action::Exclude)
        };
        protects(&force.there) || force.of_source.as_ref().is_some_and(protects)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use longhaul_storage::posix::PosixDirectory;

    use super::*;

    /// Errors must not show lines of a file to a principal without the right to read.
    #[test]
    fn errors_show_lines_of_rules_only_to_readers() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
        let asked = Deletion {
            rules: vec![b": .f".to_vec().into()],
            ..Deletion::default()
        };
        let directory = PosixDirectory::open_root(place.path()).unwrap();
        let error = |shows: bool| {
            let protection = Protection::new(&asked, (false, true), shows).unwrap();
            let at = At {
                anchor: &*directory,
                here: None,
                source: None,
            };
            let entered = protection.enter(&Force::default(), (&*directory, &[]), &at);
            entered.err().unwrap().to_string()
        };
        write("private", "password");
        for text in ["password", ". ./private"] {
            write(".f", text);
            assert!(error(true).contains("\"password\""), "{}", error(true));
            assert!(!error(false).contains("password"), "{}", error(false));
        }
    }
}
