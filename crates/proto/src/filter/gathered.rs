//! Rules of a command line and of the files that it names, in their order.

use super::lines::{Ends, rules};
use super::pattern::MAXIMUM_PATTERN_BYTES;
use super::syntax::{Action, Match, Reading, Written, read, read_old};
use super::{BadRule, MAXIMUM_RULES, RuleError};

/// Merge files within each other: a file may name itself.
const MOST_NESTED: usize = 16;

/// Rules in their order, without files but per-directory ones: what goes to the sending end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    rules: Vec<Vec<u8>>,
}

/// Why rules cannot be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError<E: std::fmt::Display> {
    /// One is none.
    #[error("{0}")]
    Rule(BadRule),
    /// One in a file is none.
    #[error("{file}: {error}")]
    InFile {
        /// The file.
        file: String,
        /// Which, and why.
        error: BadRule,
    },
    /// A file cannot be read.
    #[error("cannot read the filter file {file}: {error}")]
    File {
        /// The file.
        file: String,
        /// Why.
        error: E,
    },
    /// Files name each other.
    #[error("{0}: more than {MOST_NESTED} filter files name each other: does one name itself?")]
    Nested(String),
}

/// How files are read: their contents by their names.
pub type Read<'a, E> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>, E>;

impl Gathered {
    /// A rule of `--filter`; a merge file's are read.
    ///
    /// # Errors
    ///
    /// [`GatherError`].
    pub fn filter<E: std::fmt::Display>(
        &mut self,
        rule: &[u8],
        ends: Ends,
        file: Read<'_, E>,
    ) -> Result<(), GatherError<E>> {
        let bad = |cause| GatherError::Rule(BadRule::new(rule, cause));
        match read(rule).map_err(bad)? {
            Written::Merge(name, reading) => self.merge((name, reading), ends, file, 0),
            written => self.add(written, ends).map_err(bad),
        }
    }

    /// A pattern of `--exclude` or `--include`; an empty one is none.
    ///
    /// # Errors
    ///
    /// [`BadRule`].
    pub fn pattern(&mut self, action: Action, pattern: &[u8]) -> Result<(), BadRule> {
        self.add(read_old(pattern, action), Ends::Lines)
            .map_err(|cause| BadRule::new(pattern, cause))
    }

    /// A file of `--exclude-from` or `--include-from`.
    ///
    /// # Errors
    ///
    /// [`GatherError`].
    pub fn file<E: std::fmt::Display>(
        &mut self,
        action: Action,
        name: &[u8],
        ends: Ends,
        file: Read<'_, E>,
    ) -> Result<(), GatherError<E>> {
        self.merge((name, Reading::old(action)), ends, file, 0)
    }

    fn merge<E: std::fmt::Display>(
        &mut self,
        (name, reading): (&[u8], Reading),
        ends: Ends,
        file: Read<'_, E>,
        depth: usize,
    ) -> Result<(), GatherError<E>> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        if depth == MOST_NESTED {
            return Err(GatherError::Nested(shown()));
        }
        let text = file(name).map_err(|error| GatherError::File {
            file: shown(),
            error,
        })?;
        let bad = |error| GatherError::InFile {
            file: shown(),
            error,
        };
        for (line, written) in rules(&text, ends, reading).map_err(bad)? {
            match written {
                Written::Merge(name, reading) => {
                    self.merge((name, reading), ends, file, depth + 1)?;
                }
                written => self
                    .add(written, ends)
                    .map_err(|cause| bad(BadRule::new(line, cause)))?,
            }
        }
        Ok(())
    }

    fn add(&mut self, written: Written<'_>, ends: Ends) -> Result<(), RuleError> {
        let rule = match written {
            Written::Clear => {
                self.rules.clear();
                return Ok(());
            }
            Written::Match(Match { pattern: [], .. }) => return Ok(()),
            Written::Match(written) if written.pattern.len() > MAXIMUM_PATTERN_BYTES => {
                return Err(RuleError::Long);
            }
            Written::Match(written) => written.written(),
            Written::PerDirectory(mut file) => {
                file.zeros |= ends == Ends::Zeros;
                file.written()
            }
            Written::Merge(..) => return Err(RuleError::Nested),
        };
        if self.rules.len() == MAXIMUM_RULES {
            return Err(RuleError::TooMany);
        }
        self.rules.push(rule);
        Ok(())
    }

    /// All of them, as [`super::Rules::parse`] reads them.
    pub fn rules(self) -> Vec<Vec<u8>> {
        self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &[u8]) -> Result<Vec<u8>, &'static str> {
        match name {
            b"a" => Ok(b"# all\n- x\n. b\n+ y\n".to_vec()),
            b"b" => Ok(b"dir-merge,n .f\n-_z".to_vec()),
            b"itself" => Ok(b". itself".to_vec()),
            b"clears" => Ok(b"!\nx\n- y\n+ z\n".to_vec()),
            b"bad" => Ok(b"- x\nnothing\n".to_vec()),
            _ => Err("no such file"),
        }
    }

    fn shown(gathered: Gathered) -> Vec<String> {
        let rules = gathered.rules().into_iter();
        rules.map(|rule| String::from_utf8(rule).unwrap()).collect()
    }

    #[test]
    fn rules_stand_where_their_files_are_named() {
        let mut gathered = Gathered::default();
        gathered.pattern(Action::Exclude, b"+ first").unwrap();
        gathered.pattern(Action::Include, b"").unwrap();
        gathered
            .filter(b"merge a", Ends::Lines, &mut files)
            .unwrap();
        gathered.pattern(Action::Include, b"last").unwrap();
        let expected = ["+ first", "- x", ":n .f", "- z", "+ y", "+ last"];
        assert_eq!(shown(gathered.clone()), expected);
        gathered
            .file(Action::Exclude, b"clears", Ends::Lines, &mut files)
            .unwrap();
        assert_eq!(shown(gathered), ["- x", "- y", "+ z"]);
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        for (rule, expected) in [
            (
                ". bad",
                "bad: the filter rule \"nothing\" cannot be used: it begins with no rule",
            ),
            (". none", "cannot read the filter file none: no such file"),
            (
                ". itself",
                "itself: more than 16 filter files name each other",
            ),
        ] {
            let mut gathered = Gathered::default();
            let error = gathered.filter(rule.as_bytes(), Ends::Lines, &mut files);
            let text = error.unwrap_err().to_string();
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
