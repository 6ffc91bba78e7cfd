//! Collects the rules of a command line and of the files that it names, in their order.

use super::lines::{Ends, rules};
use super::pattern::MAXIMUM_PATTERN_BYTES;
use super::syntax::{Action, Form, Match, PerDirectory, Reading, Written, read, read_old};
use super::{BadRule, MAXIMUM_RULES, MAXIMUM_RULES_BYTES, RuleError};

/// Maximum depth of nested merge files, because a file may name itself.
const MOST_NESTED: usize = 16;

/// Maximum number of merge files that are read for the command line, or for one per-directory file.
const MOST_FILES: usize = 256;

/// First byte of a per-directory file's rules after [`Gathered::per_directory`] inserted the rules
/// of the files that it names. Each of these rules ends with a NUL.
pub(super) const GATHERED: u8 = 0;

/// Rules in their order, as they are sent to the sending end. They name only per-directory files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    rules: Vec<Vec<u8>>,
    /// Total bytes of the patterns.
    bytes: usize,
    /// Number of files that were read.
    files: usize,
    /// True if a rule cleared the rules before it.
    clears: bool,
}

/// Reason why rules cannot be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError<E: std::fmt::Display> {
    /// A rule is invalid.
    #[error("{0}")]
    Rule(BadRule),
    /// A rule in a file is invalid.
    #[error("{file}: {error}")]
    InFile {
        /// The file.
        file: String,
        /// The rule and the reason.
        error: BadRule,
    },
    /// A file cannot be read.
    #[error("cannot read the filter file {file}: {error}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        error: E,
    },
    /// Files are nested too deeply.
    #[error("{0}: more than {MOST_NESTED} filter files name each other: does one name itself?")]
    Nested(String),
    /// There are more than `MOST_FILES` files.
    #[error("{0}: with it more than {MOST_FILES} filter files are named: join them")]
    Files(String),
}

/// Function that reads a file by its name.
pub type Read<'a, E> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>, E>;

impl Gathered {
    /// Adds a rule of `--filter`. For a merge file, adds the rules of the file.
    ///
    /// # Errors
    ///
    /// [`GatherError`] if a rule is invalid or a file cannot be read.
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

    /// Adds a pattern of `--exclude` or `--include`. An empty pattern is ignored.
    ///
    /// # Errors
    ///
    /// [`BadRule`] if the pattern is invalid.
    pub fn pattern(&mut self, action: Action, pattern: &[u8]) -> Result<(), BadRule> {
        self.add(read_old(pattern, action), Ends::Lines)
            .map_err(|cause| BadRule::new(pattern, cause))
    }

    /// Adds the patterns of a file of `--exclude-from` or `--include-from`.
    ///
    /// # Errors
    ///
    /// [`GatherError`] if a rule is invalid or a file cannot be read.
    pub fn file<E: std::fmt::Display>(
        &mut self,
        action: Action,
        name: &[u8],
        ends: Ends,
        file: Read<'_, E>,
    ) -> Result<(), GatherError<E>> {
        self.merge((name, Reading::old(action)), ends, file, 0)
    }

    /// Returns the text of a per-directory file with the rules of the files that it names in their
    /// place. A text that names no files is returned unchanged. So is a text with an error, which
    /// [`super::InForce::enter`] reports.
    ///
    /// # Errors
    ///
    /// [`GatherError`] if one of the named files has an error.
    pub fn per_directory<E: std::fmt::Display>(
        file: &PerDirectory,
        text: Vec<u8>,
        read: Read<'_, E>,
    ) -> Result<Vec<u8>, GatherError<E>> {
        let ends = file.line_ends();
        if file.reading.form != Form::Rules {
            return Ok(text);
        }
        let Ok(written) = rules(&text, ends, file.reading) else {
            return Ok(text);
        };
        let names_files = |(_, written): &(_, Written<'_>)| matches!(written, Written::Merge(..));
        if text.first() != Some(&GATHERED) && !written.iter().any(names_files) {
            return Ok(text);
        }
        let mut gathered = Gathered::default();
        let shown = || String::from_utf8_lossy(&file.name).into_owned();
        gathered.add_all(written, (ends, &shown), read, 0)?;
        let clear = gathered.clears.then(|| b"!".to_vec());
        let rules: Vec<Vec<u8>> = clear.into_iter().chain(gathered.rules).collect();
        Ok([&[GATHERED], &*rules.join(&0)].concat())
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
        self.files += 1;
        if self.files > MOST_FILES {
            return Err(GatherError::Files(shown()));
        }
        let text = file(name).map_err(|error| GatherError::File {
            file: shown(),
            error,
        })?;
        let bad = |error| GatherError::InFile {
            file: shown(),
            error,
        };
        let written = rules(&text, ends, reading).map_err(bad)?;
        self.add_all(written, (ends, &shown), file, depth + 1)
    }

    /// Adds the rules of a file and of the files that it names.
    fn add_all<E: std::fmt::Display>(
        &mut self,
        rules: Vec<(&[u8], Written<'_>)>,
        (ends, shown): (Ends, &dyn Fn() -> String),
        read: Read<'_, E>,
        depth: usize,
    ) -> Result<(), GatherError<E>> {
        for (line, written) in rules {
            match written {
                Written::Merge(name, reading) => self.merge((name, reading), ends, read, depth)?,
                written => self
                    .add(written, ends)
                    .map_err(|cause| GatherError::InFile {
                        file: shown(),
                        error: BadRule::new(line, cause),
                    })?,
            }
        }
        Ok(())
    }

    fn add(&mut self, written: Written<'_>, ends: Ends) -> Result<(), RuleError> {
        let rule = match written {
            Written::Clear => {
                self.rules.clear();
                (self.bytes, self.clears) = (0, true);
                return Ok(());
            }
            Written::Match(Match { pattern: [], .. }) => return Ok(()),
            Written::Match(written) if written.pattern.len() > MAXIMUM_PATTERN_BYTES => {
                return Err(RuleError::Long);
            }
            Written::Match(written) => {
                self.bytes += written.pattern.len();
                written.written()
            }
            Written::PerDirectory(mut file) => {
                file.zeros |= ends == Ends::Zeros;
                file.written()
            }
            Written::Merge(..) => return Err(RuleError::Nested),
        };
        if self.rules.len() == MAXIMUM_RULES || self.bytes > MAXIMUM_RULES_BYTES {
            return Err(RuleError::TooMany);
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Returns all rules in the format of [`super::Rules::parse`].
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
            b"clears" => Ok(b"!\n- y\n".to_vec()),
            b"old" => Ok(b"!\nx\n- y\n+ z\n".to_vec()),
            b"c" => Ok(b"- x y\n".to_vec()),
            b"doubles" => Ok(b". end\n".repeat(256)),
            b"end" => Ok(Vec::new()),
            b"bad" => Ok(b"- x\nnothing\n".to_vec()),
            _ => Err("no such file"),
        }
    }

    fn shown(gathered: Gathered) -> Vec<String> {
        let rules = gathered.rules().into_iter();
        rules.map(|rule| String::from_utf8(rule).unwrap()).collect()
    }

    #[test]
    fn rules_of_a_file_take_the_place_of_its_rule() {
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
            .file(Action::Exclude, b"old", Ends::Lines, &mut files)
            .unwrap();
        assert_eq!(shown(gathered), ["- x", "- y", "+ z"]);
    }

    fn of_directory(rule: &[u8], text: &str) -> Result<String, String> {
        let Written::PerDirectory(file) = read(rule).unwrap() else {
            panic!("it names a per-directory file");
        };
        let text = Gathered::per_directory(&file, text.into(), &mut files);
        let text = text.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn rules_of_files_named_by_a_per_directory_file_take_its_place() {
        for (rule, text, expected) in [
            (": .f", "- a\n- b", "- a\n- b"),
            (": .f", "- q\n. c\n- r", "\0- q\0- x y\0- r"),
            (": .f", ".s c\n- r", "\0-s x y\0- r"),
            (":r .f", ". c\n- r", "\0-r x y\0-r r"),
            (":w .f", "._c -_r", "\0- x y\0- r"),
            (": .f", "- q\n. clears", "\0!\0- y"),
            (": .f", "- q\n.- c", "\0- q\0- - x y"),
            // A file that has only patterns.
            (":- .f", ". c", ". c"),
            // The error is reported when the file is used.
            (": .f", "nothing\n. c", "nothing\n. c"),
            (":0 .f", "\0- a\0", "\0- a"),
        ] {
            let files = of_directory(rule.as_bytes(), text);
            assert_eq!(files.as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            (". none", "cannot read the filter file none"),
            (". itself", "itself: more than 16 filter files"),
            (". doubles", "with it more than 256 filter files are named"),
            (". bad", "bad: the filter rule \"nothing\""),
        ] {
            let error = of_directory(b": .f", text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
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
