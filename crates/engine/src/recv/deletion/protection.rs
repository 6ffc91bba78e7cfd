//! Which names of the destination filters protect.

use std::io;

use longhaul_proto::deletion::Deletion;
use longhaul_proto::filter::{Action, End, InForce, Rules, SelectionError};
use longhaul_proto::manifest::TreePath;
use longhaul_storage::Directory;
use minicbor::bytes::ByteVec;

use crate::send::rule_files::{is_link, rules_of};

/// The rules, as the receiving end reads them.
#[derive(Default)]
pub(super) struct Protection {
    rules: Rules,
    end: Option<End>,
    /// Directories on other file systems than the anchor stay as they are.
    pub one_file_system: bool,
    /// Nothing is copied: files of rules are those that a copy would bring.
    foresees: bool,
    /// The files of rules that the source copies are here afterwards as they are there.
    are_copied: bool,
    /// The other end may read what it writes: errors show it lines of files of rules.
    shows_lines: bool,
}

/// Where a directory is.
pub(super) struct At<'a> {
    pub anchor: &'a dyn Directory,
    /// Its path beneath the anchor.
    pub here: Option<&'a TreePath>,
    /// Its path as rules know it.
    pub source: Option<&'a TreePath>,
}

/// What holds in a directory. A name stays that either protects.
#[derive(Clone, Default)]
pub(super) struct Force {
    /// By the files of rules that are there after the copy.
    there: InForce,
    /// By those of the source, where it has files that are not copied.
    of_source: Option<InForce>,
}

impl Protection {
    /// # Errors
    ///
    /// The first rule that is none.
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

    /// An error without what it shows of a file of rules, if the other end may not read that.
    fn without_lines(&self, error: io::Error) -> io::Error {
        if self.shows_lines || error.kind() != io::ErrorKind::Other {
            error
        } else {
            io::Error::other("a file of rules in it cannot be used")
        }
    }

    /// Whether what holds depends on the directory.
    pub(super) fn is_local(&self) -> bool {
        !self.rules.per_directory().is_empty()
    }

    /// What holds in a directory in one where `above` holds. Of one that the source has, `told` are
    /// its files of rules there.
    ///
    /// # Errors
    ///
    /// Where its files of rules cannot be used.
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
                // It is the link that was copied, or a file that names others, which may be links
                // or not be copied. What they lead to is at the source.
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
        // Files that are not copied are at the source alone.
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

    /// Whether a name stays that the source lacks.
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

    /// A principal without the right to read learns no line of a file that it calls one of rules.
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
