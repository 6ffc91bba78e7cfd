//! The rules of a copy, and the rules in force in a directory.

use std::sync::Arc;

use super::gathered::GATHERED;
use super::lines::{self, Ends};
use super::pattern::Pattern;
use super::syntax::{
    Action, End, Ends as Sides, Form, Match, PerDirectory, Reading, Written, read,
};
use super::{BadRule, MAXIMUM_PER_DIRECTORY, MAXIMUM_RULES, MAXIMUM_RULES_BYTES, RuleError};

/// The rules of a copy, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    items: Vec<Item>,
    per_directory: Vec<PerDirectory>,
    size: Size,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Rule(Rule),
    /// The rules of a per-directory file, by the file's number.
    PerDirectory(usize),
}

/// A rule that matches paths.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    action: Action,
    negated: bool,
    ends: Sides,
    /// The rule as it was written, for reports.
    written: Box<[u8]>,
    pattern: Pattern,
    /// Number of bytes of a path that lead to the directory of the rule.
    root: usize,
}

/// Number of rules and total size of their patterns in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    rules: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        self.rules += 1;
        self.bytes += pattern.len();
        if self.rules > MAXIMUM_RULES || self.bytes > MAXIMUM_RULES_BYTES {
            Err(RuleError::TooMany)
        } else {
            Ok(())
        }
    }
}

impl Rule {
    fn new(written: Match<'_>, root: usize) -> Result<Rule, RuleError> {
        Ok(Rule {
            action: written.action,
            negated: written.negated,
            ends: written.ends,
            written: written.written().into(),
            pattern: Pattern::new(written.pattern)?,
            root,
        })
    }

    fn matches(&self, path: &[u8], is_directory: bool, end: End) -> bool {
        self.ends.has(end) && self.pattern.matches(path, self.root, is_directory) != self.negated
    }
}

impl PerDirectory {
    /// True if this text already includes the rules of other files
    /// ([`super::Gathered::per_directory`]).
    pub fn is_gathered(&self, text: &[u8]) -> bool {
        self.reading.form == Form::Rules && text.first() == Some(&GATHERED)
    }

    pub(super) fn line_ends(&self) -> Ends {
        if self.zeros { Ends::Zeros } else { Ends::Lines }
    }
}

impl Rules {
    /// Parses rules in the format of [`super::Gathered`], which name only per-directory files.
    ///
    /// # Errors
    ///
    /// The first rule that is invalid or exceeds the limits.
    pub fn parse<T: AsRef<[u8]>>(written: &[T]) -> Result<Rules, BadRule> {
        let mut rules = Rules::default();
        for rule in written {
            let rule = rule.as_ref();
            rules.add(rule).map_err(|cause| BadRule::new(rule, cause))?;
        }
        Ok(rules)
    }

    fn add(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match read(rule)? {
            Written::Match(written) => {
                self.size.add(written.pattern)?;
                self.note_excluded(written);
                self.items.push(Item::Rule(Rule::new(written, 0)?));
            }
            Written::Clear => *self = Rules::default(),
            Written::Merge(..) => return Err(RuleError::Nested),
            Written::PerDirectory(file) => {
                self.size.add(&file.name)?;
                if file.excludes_itself {
                    let itself = Match {
                        action: Action::Exclude,
                        negated: false,
                        ends: Sides::Unnamed,
                        pattern: &file.name,
                    };
                    self.items.push(Item::Rule(Rule::new(itself, 0)?));
                }
                // As in rsync, the first rule that names a file determines its place.
                let mut known = self.per_directory.iter();
                if known.any(|known| known.name == file.name) {
                    return Ok(());
                }
                let number = self.per_directory.len();
                if number == MAXIMUM_PER_DIRECTORY {
                    return Err(RuleError::TooManyFiles);
                }
                self.items.push(Item::PerDirectory(number));
                self.per_directory.push(file);
            }
        }
        Ok(())
    }

    /// Marks excluded per-directory files: `: NAME` and a later `- NAME` mean what `-FF` means, so
    /// that the files are read and not copied.
    fn note_excluded(&mut self, written: Match<'_>) {
        if written.action != Action::Exclude || written.negated || !written.ends.has(End::Sending) {
            return;
        }
        let named = self.per_directory.iter_mut();
        named
            .filter(|file| *file.name == *written.pattern)
            .for_each(|file| file.is_excluded = true);
    }

    /// True if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the kinds of files that each directory is searched for.
    pub fn per_directory(&self) -> &[PerDirectory] {
        &self.per_directory
    }
}

/// Rules of one kind of per-directory file, in a directory and in the directories above it.
#[derive(Debug)]
struct Layer {
    rules: Vec<Rule>,
    above: Option<Arc<Layer>>,
}

impl Drop for Layer {
    /// Drops the layers in a loop, because directories can be deeper than a stack allows.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut layer) = above.and_then(Arc::into_inner) {
            above = layer.above.take();
        }
    }
}

/// The rules of per-directory files in force in a directory, by kind of file. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    layers: Vec<Option<Arc<Layer>>>,
    size: Size,
}

impl InForce {
    /// Returns the rules in force in the directory at `path` (empty for the root), whose parent
    /// these rules are for. `files` are the contents of the directory's rule files, in the order of
    /// [`Rules::per_directory`]. The files that they name are already included
    /// ([`super::Gathered::per_directory`]).
    ///
    /// # Errors
    ///
    /// The first line that is invalid or exceeds the limits.
    pub fn enter(
        &self,
        rules: &Rules,
        path: &[u8],
        files: &[Option<Vec<u8>>],
    ) -> Result<InForce, BadRule> {
        let mut size = if self.layers.is_empty() {
            rules.size
        } else {
            self.size
        };
        let root = if path.is_empty() { 0 } else { path.len() + 1 };
        let mut layers = Vec::with_capacity(rules.per_directory.len());
        for (number, file) in rules.per_directory.iter().enumerate() {
            let above = self.layers.get(number).cloned().flatten();
            let above = above.filter(|_| file.inherits);
            layers.push(match files.get(number).and_then(Option::as_ref) {
                Some(text) => Some(layer(text, file, (root, above), &mut size)?),
                None => above,
            });
        }
        Ok(InForce { layers, size })
    }

    /// Returns the action of the first matching rule for the sending end; `None` if no rule
    /// matches.
    pub fn decide(&self, rules: &Rules, path: &[u8], is_directory: bool) -> Option<Action> {
        self.decide_at(End::Sending, rules, path, is_directory)
    }

    /// Returns the action of the first matching rule for an end; `None` if no rule matches.
    pub fn decide_at(
        &self,
        end: End,
        rules: &Rules,
        path: &[u8],
        is_directory: bool,
    ) -> Option<Action> {
        let rule = self.deciding(end, rules, path, is_directory);
        rule.map(|rule| rule.action)
    }

    /// Returns the text of the first matching rule for the sending end; `None` if no rule matches.
    pub fn rule_of(&self, rules: &Rules, path: &[u8], is_directory: bool) -> Option<String> {
        let rule = self.deciding(End::Sending, rules, path, is_directory)?;
        Some(rule.written.escape_ascii().to_string())
    }

    fn deciding<'a>(
        &'a self,
        end: End,
        rules: &'a Rules,
        path: &[u8],
        is_directory: bool,
    ) -> Option<&'a Rule> {
        let matching = |rule: &&Rule| rule.matches(path, is_directory, end);
        rules.items.iter().find_map(|item| match item {
            Item::Rule(rule) => Some(rule).filter(matching),
            Item::PerDirectory(number) => {
                let mut layer = self.layers.get(*number)?.as_deref();
                while let Some(here) = layer {
                    if let Some(rule) = here.rules.iter().find(matching) {
                        return Some(rule);
                    }
                    layer = here.above.as_deref();
                }
                None
            }
        })
    }
}

/// Parses one per-directory file and places its rules before those of the directories above.
fn layer(
    text: &[u8],
    file: &PerDirectory,
    (root, mut above): (usize, Option<Arc<Layer>>),
    size: &mut Size,
) -> Result<Arc<Layer>, BadRule> {
    if file.reading.form == Form::Git {
        let rules = git_rules(text, (root, file.reading.ends), size)?;
        return Ok(Arc::new(Layer { rules, above }));
    }
    let mut rules = Vec::new();
    let (text, ends, reading) = match text {
        [GATHERED, text @ ..] => (text, Ends::Zeros, Reading::RULES),
        text => (text, file.line_ends(), file.reading),
    };
    for (line, written) in lines::rules(text, ends, reading)? {
        let added = match written {
            Written::Match(written) => size
                .add(written.pattern)
                .and_then(|()| Rule::new(written, root))
                .map(|rule| rules.push(rule)),
            Written::Clear => {
                above = None;
                rules.clear();
                Ok(())
            }
            Written::Merge(..) | Written::PerDirectory(_) => Err(RuleError::Nested),
        };
        added.map_err(|cause| BadRule::new(line, cause))?;
    }
    Ok(Arc::new(Layer { rules, above }))
}

/// Parses the rules of a git ignore file, the last one first.
fn git_rules(
    text: &[u8],
    (root, ends): (usize, Sides),
    size: &mut Size,
) -> Result<Vec<Rule>, BadRule> {
    if text.len() > super::MAXIMUM_FILE_BYTES {
        return Err(BadRule::new(b"", RuleError::LargeFile));
    }
    let lines = text.split(|byte| *byte == b'\n').rev();
    let rule = |(includes, pattern): (bool, &[u8])| {
        size.add(pattern)?;
        Ok(Rule {
            action: if includes {
                Action::Include
            } else {
                Action::Exclude
            },
            negated: false,
            ends,
            written: pattern.into(),
            pattern: Pattern::of_git(pattern)?,
            root,
        })
    };
    let mut rule = rule;
    lines
        .filter_map(lines::of_git)
        .map(|line| rule(line).map_err(|cause| BadRule::new(line.1, cause)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(rules: &[&str], path: &str) -> Option<Action> {
        let rules = Rules::parse(rules).unwrap();
        InForce::default().decide(&rules, path.as_bytes(), false)
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = ["+ a.c", "- *.c", "-! *.h"];
        assert_eq!(decided(&rules, "d/a.c"), Some(Action::Include));
        assert_eq!(decided(&rules, "d/b.c"), Some(Action::Exclude));
        assert_eq!(decided(&rules, "d/b"), Some(Action::Exclude));
        assert_eq!(decided(&rules, "d/b.h"), None);
        assert_eq!(decided(&["- a", "!", "- b"], "a"), None);
    }

    #[test]
    fn each_end_gets_its_own_rules() {
        let rules = Rules::parse(&["P a", "H b", "R c", "- c", "- d", "-sr e"]).unwrap();
        let force = InForce::default();
        let decide = |end, path: &str| force.decide_at(end, &rules, path.as_bytes(), false);
        let (yes, no) = (Some(Action::Exclude), None);
        for (path, sends, receives, alone) in [
            ("a", no, yes, yes),
            ("b", yes, no, no),
            ("c", yes, Some(Action::Include), Some(Action::Include)),
            ("d", yes, yes, no),
            ("e", yes, yes, yes),
        ] {
            assert_eq!(decide(End::Sending, path), sends, "{path}");
            assert_eq!(decide(End::Receiving, path), receives, "{path}");
            assert_eq!(decide(End::ReceivingOnly, path), alone, "{path}");
        }
    }

    #[test]
    fn rules_of_a_directorys_file_take_the_place_of_its_rule() {
        let rules = Rules::parse(&["- x", ": .f", ":n- .n", "- *"]).unwrap();
        let file = |text: &str| Some(text.as_bytes().to_vec());
        let root = InForce::default()
            .enter(&rules, b"", &[file("+ x\n+ y\n- z"), file("q")])
            .unwrap();
        let decide = |force: &InForce, path: &str| force.decide(&rules, path.as_bytes(), false);
        assert_eq!(decide(&root, "x"), Some(Action::Exclude));
        assert_eq!(decide(&root, "y"), Some(Action::Include));
        assert_eq!(decide(&root, "q"), Some(Action::Exclude));
        let below = root
            .enter(&rules, b"d", &[file("+ /z\n+ q"), None])
            .unwrap();
        assert_eq!(decide(&below, "d/z"), Some(Action::Include));
        assert_eq!(decide(&below, "d/e/z"), Some(Action::Exclude));
        assert_eq!(decide(&below, "d/q"), Some(Action::Include));
        let cleared = below.enter(&rules, b"d/e", &[file("!"), None]).unwrap();
        assert_eq!(decide(&cleared, "d/e/y"), Some(Action::Exclude));
        let gathered = file("\0-s s\0- a b\0!\0- t u");
        let gathered = below.enter(&rules, b"d/e", &[gathered, None]).unwrap();
        assert_eq!(decide(&gathered, "d/e/t u"), Some(Action::Exclude));
        assert_eq!(decide(&gathered, "d/e/a b"), Some(Action::Exclude));
        assert_eq!(decide(&gathered, "d/e/x"), Some(Action::Exclude));
        let bad = below.enter(&rules, b"d/e", &[file(": other"), None]);
        assert_eq!(bad.unwrap_err().cause, RuleError::Nested);
    }

    #[test]
    fn the_last_rule_of_git_decides() {
        let rules = Rules::parse(&[":g .gitignore"]).unwrap();
        let file = |text: &str| Some(text.as_bytes().to_vec());
        let root = InForce::default()
            .enter(&rules, b"", &[file("*.o\n!keep.o\n/build/\n")])
            .unwrap();
        let below = root.enter(&rules, b"d", &[file("keep.o\n!a.o")]).unwrap();
        for (force, path, expected) in [
            (&root, "a.o", Some(Action::Exclude)),
            (&root, "keep.o", Some(Action::Include)),
            (&below, "d/keep.o", Some(Action::Exclude)),
            (&below, "d/a.o", Some(Action::Include)),
            (&below, "d/b.o", Some(Action::Exclude)),
        ] {
            assert_eq!(
                force.decide(&rules, path.as_bytes(), false),
                expected,
                "{path}"
            );
        }
        let build = root.decide(&rules, b"build", true);
        assert_eq!(build, Some(Action::Exclude));
        assert_eq!(below.decide(&rules, b"d/build", true), None);
    }

    #[test]
    fn rules_are_bounded_over_all_directories() {
        let rules = Rules::parse(&[": .f"]).unwrap();
        let many = |count: usize| Some("- a\n".repeat(count).into_bytes());
        let first = InForce::default().enter(&rules, b"", &[many(MAXIMUM_RULES / 2)]);
        let first = first.unwrap();
        let second = first.enter(&rules, b"d", &[many(MAXIMUM_RULES / 2)]);
        assert_eq!(second.unwrap_err().cause, RuleError::TooMany);
        let long = vec![format!("- {}", "x".repeat(4096)); 65];
        assert_eq!(Rules::parse(&long).unwrap_err().cause, RuleError::TooMany);
        let many = (0..=MAXIMUM_PER_DIRECTORY).map(|number| format!(": .{number}"));
        let many: Vec<String> = many.collect();
        assert_eq!(
            Rules::parse(&many).unwrap_err().cause,
            RuleError::TooManyFiles
        );
    }

    #[test]
    fn a_chain_of_many_directories_is_dropped_without_a_deep_stack() {
        let rules = Rules::parse(&[": .f"]).unwrap();
        let mut force = InForce::default();
        for _ in 0..MAXIMUM_RULES - 1 {
            force = force.enter(&rules, b"d", &[Some(b"- a".to_vec())]).unwrap();
        }
        drop(force);
    }
}
