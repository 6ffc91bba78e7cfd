//! Parses a rule in the form `RULE [PATTERN]` or `RULE,MODIFIERS [PATTERN]`.

use super::RuleError;

/// Action of a rule on matching paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The path is copied, regardless of later rules.
    Include,
    /// The path is left out, including all contents of a directory.
    Exclude,
}

/// End for which a rule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sending end: excluded paths are not copied.
    Sending,
    /// The receiving end: excluded paths are not deleted.
    Receiving,
    /// The receiving end of a copy that deletes filtered paths. Rules that name no end apply only
    /// at the sending end.
    ReceivingOnly,
}

/// Ends at which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// The rule names no end: it applies at both ends, or only at the sending end if filtered paths
    /// are deleted.
    Unnamed,
    /// The rule names both ends.
    Both,
    Sending,
    Receiving,
}

impl Ends {
    /// Returns the ends as modifiers of a rule.
    fn written(self) -> &'static str {
        match self {
            Ends::Unnamed => "",
            Ends::Both => "sr",
            Ends::Sending => "s",
            Ends::Receiving => "r",
        }
    }

    /// Returns the ends of a rule in a file whose own rule names the ends `file`.
    fn within(self, file: Ends) -> Result<Ends, RuleError> {
        match (self, file) {
            (_, Ends::Unnamed) => Ok(self),
            (Ends::Unnamed, _) => Ok(file),
            _ => Err(RuleError::NamedTwice),
        }
    }

    pub(super) fn has(self, end: End) -> bool {
        match end {
            End::Sending => self != Ends::Receiving,
            End::Receiving => self != Ends::Sending,
            End::ReceivingOnly => matches!(self, Ends::Both | Ends::Receiving),
        }
    }
}

/// A parsed rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written<'a> {
    /// `+` or `-`.
    Match(Match<'a>),
    /// `!`: clears all rules before it.
    Clear,
    /// `.`: inserts the rules of a file.
    Merge(&'a [u8], Reading),
    /// `:`: inserts the rules of a file in each directory.
    PerDirectory(PerDirectory),
}

/// A rule that matches paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match<'a> {
    pub action: Action,
    /// True if the rule matches the paths that its pattern does not match.
    pub negated: bool,
    pub ends: Ends,
    pub pattern: &'a [u8],
}

/// A kind of per-directory file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerDirectory {
    /// Name of the file in each directory, without a slash.
    pub name: Box<[u8]>,
    /// True if the rules also apply in the directories below.
    pub(super) inherits: bool,
    /// True if the file's own rule excludes the file from the copy.
    pub(super) excludes_itself: bool,
    /// True if a rule excludes files of this name from the copy.
    pub is_excluded: bool,
    /// True if rules end with a NUL.
    pub(super) zeros: bool,
    pub(super) reading: Reading,
}

/// Format of a file of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub form: Form,
    /// True if each word, not each line, is a rule or a pattern.
    pub words: bool,
    /// Ends at which the rules apply. If the ends are named, the rules in the file must not name
    /// any.
    pub ends: Ends,
}

/// Meaning of the lines or words of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Rules.
    Rules,
    /// Patterns for `--exclude` or `--include`. Lines that begin with `+ ` or `- `, and `!`, are
    /// rules.
    Old(Action),
    /// Patterns only.
    Patterns(Action),
    /// Patterns of CVS to exclude. A `!` is a rule.
    Cvs,
    /// Patterns of git. The last matching one decides.
    Git,
}

impl Reading {
    /// A file of rules, one per line.
    pub(super) const RULES: Reading = Reading {
        form: Form::Rules,
        words: false,
        ends: Ends::Unnamed,
    };

    /// A file of patterns for `--exclude` or `--include`.
    pub(super) fn old(action: Action) -> Reading {
        Reading {
            form: Form::Old(action),
            words: false,
            ends: Ends::Unnamed,
        }
    }
}

impl<'a> Written<'a> {
    /// Returns the rule as it applies in a file whose own rule names the ends `file`.
    pub(super) fn within(self, file: Ends) -> Result<Written<'a>, RuleError> {
        Ok(match self {
            Written::Match(mut found) => {
                found.ends = found.ends.within(file)?;
                Written::Match(found)
            }
            Written::Clear => Written::Clear,
            Written::Merge(name, mut reading) => {
                reading.ends = reading.ends.within(file)?;
                Written::Merge(name, reading)
            }
            Written::PerDirectory(mut found) => {
                found.reading.ends = found.reading.ends.within(file)?;
                Written::PerDirectory(found)
            }
        })
    }
}

/// Kind of a rule, by its prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Match(Action),
    Merge,
    PerDirectory,
}

impl Match<'_> {
    /// Returns the rule in the format of [`read`].
    pub(super) fn written(&self) -> Vec<u8> {
        let sign = match self.action {
            Action::Include => "+",
            Action::Exclude => "-",
        };
        let negated = if self.negated { "!" } else { "" };
        [sign, negated, self.ends.written(), " "]
            .concat()
            .into_bytes()
            .into_iter()
            .chain(self.pattern.iter().copied())
            .collect()
    }
}

impl PerDirectory {
    /// Returns the rule in the format of [`read`].
    pub(super) fn written(&self) -> Vec<u8> {
        let form = match self.reading.form {
            Form::Rules | Form::Old(_) => "",
            Form::Git => "g",
            Form::Cvs => "C",
            Form::Patterns(Action::Include) => "+",
            Form::Patterns(Action::Exclude) => "-",
        };
        let flags = [
            (self.reading.words, "w"),
            (!self.inherits, "n"),
            (self.excludes_itself, "e"),
            (self.zeros, "0"),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let flags: String = flags.map(|(_, letter)| *letter).collect();
        let prefix = format!(":{form}{flags}{} ", self.reading.ends.written());
        [prefix.as_bytes(), &self.name].concat()
    }
}

/// Parses a rule.
///
/// # Errors
///
/// [`RuleError`] if the rule is invalid.
pub(super) fn read(rule: &[u8]) -> Result<Written<'_>, RuleError> {
    let (prefix, rest) = prefix(rule).ok_or(RuleError::Unknown)?;
    let kind = match prefix {
        b'+' | b'S' | b'R' => Kind::Match(Action::Include),
        b'-' | b'H' | b'P' => Kind::Match(Action::Exclude),
        b'.' => Kind::Merge,
        b':' => Kind::PerDirectory,
        _ if rest.is_empty() || rest == b"," => return Ok(Written::Clear),
        _ => return Err(RuleError::Trailing),
    };
    let (modifiers, argument) = split(rest);
    let modifiers = Modifiers::read(modifiers, kind, prefix)?;
    let argument = match argument {
        [] if modifiers.cvs => b".cvsignore",
        [] => return Err(RuleError::Ended),
        argument => argument,
    };
    match kind {
        Kind::Match(action) => Ok(Written::Match(Match {
            action,
            negated: modifiers.negated,
            ends: match prefix {
                b'H' | b'S' => Ends::Sending,
                b'P' | b'R' => Ends::Receiving,
                _ => modifiers.ends(),
            },
            pattern: argument,
        })),
        Kind::Merge => Ok(Written::Merge(argument, modifiers.reading()?)),
        Kind::PerDirectory if argument.contains(&b'/') => Err(RuleError::Slash),
        Kind::PerDirectory => Ok(Written::PerDirectory(PerDirectory {
            name: argument.into(),
            inherits: modifiers.inherits && !modifiers.cvs,
            excludes_itself: modifiers.excludes_itself,
            is_excluded: modifiers.excludes_itself,
            zeros: modifiers.zeros,
            reading: modifiers.reading()?,
        })),
    }
}

/// Parses a line of a file of patterns for `--exclude` or `--include`.
pub(super) fn read_old(line: &[u8], action: Action) -> Written<'_> {
    let matching = |action, pattern| {
        Written::Match(Match {
            action,
            negated: false,
            ends: Ends::Unnamed,
            pattern,
        })
    };
    match line {
        b"!" => Written::Clear,
        [b'-', b' ', pattern @ ..] => matching(Action::Exclude, pattern),
        [b'+', b' ', pattern @ ..] => matching(Action::Include, pattern),
        pattern => matching(action, pattern),
    }
}

/// Returns the short name of a rule and the text after the name.
fn prefix(rule: &[u8]) -> Option<(u8, &[u8])> {
    let long: [(&[u8], u8); 9] = [
        (b"clear", b'!'),
        (b"dir-merge", b':'),
        (b"exclude", b'-'),
        (b"hide", b'H'),
        (b"include", b'+'),
        (b"merge", b'.'),
        (b"protect", b'P'),
        (b"risk", b'R'),
        (b"show", b'S'),
    ];
    let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b' ' | b'_' | b','));
    let long = long.iter().find_map(|(name, short)| {
        let rest = rule.strip_prefix(*name)?;
        ends(rest).then_some((*short, rest))
    });
    long.or(match rule {
        [
            short @ (b'!' | b':' | b'-' | b'H' | b'+' | b'.' | b'P' | b'R' | b'S'),
            rest @ ..,
        ] => Some((*short, rest)),
        _ => None,
    })
}

/// Splits the text after a rule's name at the first space or underscore, into modifiers and
/// argument.
fn split(rest: &[u8]) -> (&[u8], &[u8]) {
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    let end = rest.iter().position(|byte| b" _".contains(byte));
    match end {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        None => (rest, b""),
    }
}

struct Modifiers {
    negated: bool,
    sending: bool,
    receiving: bool,
    inherits: bool,
    excludes_itself: bool,
    words: bool,
    cvs: bool,
    git: bool,
    zeros: bool,
    only: Option<Action>,
}

impl Modifiers {
    fn read(written: &[u8], kind: Kind, prefix: u8) -> Result<Modifiers, RuleError> {
        let mut read = Modifiers {
            negated: false,
            sending: false,
            receiving: false,
            inherits: true,
            excludes_itself: false,
            words: false,
            cvs: false,
            git: false,
            zeros: false,
            only: None,
        };
        let matches = matches!(kind, Kind::Match(_));
        for modifier in written {
            match modifier {
                b'!' if matches => read.negated = true,
                b's' if !b"HSPR".contains(&prefix) => read.sending = true,
                b'r' if !b"HSPR".contains(&prefix) => read.receiving = true,
                b'0' if kind == Kind::PerDirectory => read.zeros = true,
                // The modifier would protect less, so it is ignored: contents of deleted
                // directories stay protected.
                b'p' => (),
                b'+' if !matches && read.only.is_none() => read.only = Some(Action::Include),
                b'-' if !matches && read.only.is_none() => read.only = Some(Action::Exclude),
                b'e' if !matches => read.excludes_itself = true,
                b'n' if !matches => read.inherits = false,
                b'w' if !matches => read.words = true,
                b'C' if !matches && read.only.is_none() => {
                    (read.cvs, read.words) = (true, true);
                }
                b'g' if kind == Kind::PerDirectory => read.git = true,
                b'C' if prefix == b'-' => {
                    let text = "write the patterns that CVS leaves out yourself";
                    return Err(RuleError::Absent('C', text));
                }
                b'x' => {
                    let text = "extended attributes are not copied";
                    return Err(RuleError::Absent('x', text));
                }
                b'/' => {
                    let text =
                        "patterns begin where the copied tree does: write what is beneath it";
                    return Err(RuleError::Absent('/', text));
                }
                other => return Err(RuleError::Modifier(char::from(*other))),
            }
        }
        Ok(read)
    }

    /// Returns the ends that the modifiers name.
    fn ends(&self) -> Ends {
        match (self.sending, self.receiving) {
            (true, false) => Ends::Sending,
            (false, true) => Ends::Receiving,
            (true, true) => Ends::Both,
            (false, false) => Ends::Unnamed,
        }
    }

    fn reading(&self) -> Result<Reading, RuleError> {
        let form = match (self.only, self.cvs, self.git) {
            (None, false, true) if !self.words => Form::Git,
            (_, _, true) => return Err(RuleError::Modifier('g')),
            (_, true, _) => Form::Cvs,
            (Some(action), ..) => Form::Patterns(action),
            (None, ..) => Form::Rules,
        };
        Ok(Reading {
            form,
            words: self.words,
            ends: self.ends(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(rule: &str) -> Option<(Action, bool, String)> {
        match read(rule.as_bytes()) {
            Ok(Written::Match(found)) => {
                let pattern = String::from_utf8(found.pattern.to_vec()).unwrap();
                Some((found.action, found.negated, pattern))
            }
            _ => None,
        }
    }

    #[test]
    fn rules_are_read_as_rsync_reads_them() {
        let excluded = Some((Action::Exclude, false, "f".to_owned()));
        for rule in [
            "- f",
            "-_f",
            "-,s_f",
            "-ss f",
            "-p f",
            "exclude f",
            "exclude,s f",
            "H f",
        ] {
            assert_eq!(matching(rule), excluded, "{rule}");
        }
        let included = Some((Action::Include, false, " f".to_owned()));
        for rule in ["+  f", "include  f", "S  f", "show_ f"] {
            assert_eq!(matching(rule), included, "{rule}");
        }
        assert_eq!(
            matching("-! */"),
            Some((Action::Exclude, true, "*/".into()))
        );
        for clear in ["!", "clear", "clear,", "!,"] {
            assert_eq!(read(clear.as_bytes()), Ok(Written::Clear));
        }
    }

    #[test]
    fn an_invalid_rule_is_refused_with_a_reason() {
        use RuleError::*;
        for (rule, expected) in [
            ("", Unknown),
            ("foo", Unknown),
            ("mergex f", Unknown),
            (",f", Unknown),
            ("-", Ended),
            ("- ", Ended),
            ("-,", Ended),
            (".", Ended),
            ("clear ", Trailing),
            ("! f", Trailing),
            ("-f", Modifier('f')),
            ("-e f", Modifier('e')),
            ("+- f", Modifier('-')),
            ("Hs f", Modifier('s')),
            (":! f", Modifier('!')),
            (".+- f", Modifier('-')),
            (".g f", Modifier('g')),
            (":g- f", Modifier('g')),
            ("Ps f", Modifier('s')),
            ("risk,r f", Modifier('r')),
            (": a/f", Slash),
        ] {
            assert_eq!(read(rule.as_bytes()), Err(expected), "{rule}");
        }
        for absent in ["-C", "-/ f", "-x f"] {
            let error = read(absent.as_bytes()).unwrap_err();
            assert!(matches!(error, Absent(..)), "{absent} {error}");
        }
    }

    #[test]
    fn rules_count_at_the_ends_that_they_name() {
        let ends = |rule: &str| match read(rule.as_bytes()) {
            Ok(Written::Match(found)) => {
                let again = found.written();
                assert_eq!(read(&again), Ok(Written::Match(found)), "{rule}");
                (found.action, found.ends)
            }
            other => panic!("{rule}: {other:?}"),
        };
        for (rule, expected) in [
            ("- f", (Action::Exclude, Ends::Unnamed)),
            ("-! f", (Action::Exclude, Ends::Unnamed)),
            ("-sr f", (Action::Exclude, Ends::Both)),
            ("-s f", (Action::Exclude, Ends::Sending)),
            ("H f", (Action::Exclude, Ends::Sending)),
            ("show f", (Action::Include, Ends::Sending)),
            ("-r f", (Action::Exclude, Ends::Receiving)),
            ("+!r f", (Action::Include, Ends::Receiving)),
            ("P f", (Action::Exclude, Ends::Receiving)),
            ("risk f", (Action::Include, Ends::Receiving)),
        ] {
            assert_eq!(ends(rule), expected, "{rule}");
        }
        assert!(Ends::Unnamed.has(End::Receiving) && !Ends::Unnamed.has(End::ReceivingOnly));
        assert!(Ends::Both.has(End::Receiving) && Ends::Both.has(End::ReceivingOnly));
        assert!(!Ends::Sending.has(End::Receiving) && Ends::Receiving.has(End::ReceivingOnly));
    }

    #[test]
    fn files_are_read_as_their_modifiers_say() {
        let per_directory = |rule: &str| match read(rule.as_bytes()) {
            Ok(Written::PerDirectory(found)) => found,
            other => panic!("{rule}: {other:?}"),
        };
        let cvs = per_directory(":C");
        assert_eq!(&*cvs.name, b".cvsignore");
        assert!(!cvs.inherits);
        let ends = Ends::Unnamed;
        let reading = |form, words| Reading { form, words, ends };
        assert_eq!(cvs.reading, reading(Form::Cvs, true));
        let itself = per_directory("dir-merge,en .f");
        assert!(itself.excludes_itself && !itself.inherits);
        assert_eq!(itself.reading, reading(Form::Rules, false));
        let git = per_directory(":g .gitignore").reading;
        assert_eq!(git, reading(Form::Git, false));
        let merged = read(b".- f").unwrap();
        for rule in [
            ":C", ":eC .f", ": .f", ":n- .f", ":+we .f", ":g .f", ":w .f", ":s .f", ":sr .f",
            ":r0 .f",
        ] {
            let file = per_directory(rule);
            assert_eq!(read(&file.written()), Ok(Written::PerDirectory(file)));
        }
        let patterns = reading(Form::Patterns(Action::Exclude), false);
        assert_eq!(merged, Written::Merge(b"f", patterns));
    }
}
