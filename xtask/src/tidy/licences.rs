//! `deny.toml` is true for `Cargo.lock`: every dependency can be had under
//! allowed licences and comes from an allowed registry, and nothing is allowed
//! that nobody needs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Finding;
use crate::workspace;

const RULE: &str = "licences";
const DENY: &str = "deny.toml";

/// A dependency, as far as this rule cares.
struct Package {
    name: String,
    /// An SPDX expression.
    licence: String,
    /// Where it comes from; none for our own.
    source: Option<String>,
}

/// Asks cargo for the dependencies on this platform and compares.
///
/// # Errors
///
/// Where cargo fails or `deny.toml` cannot be read.
pub fn check_repository() -> Result<Vec<Finding>, String> {
    let path = workspace::root().join(DENY);
    let deny = std::fs::read_to_string(&path).map_err(|error| format!("{DENY}: {error}"))?;
    let metadata = workspace::metadata(true)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages: Vec<Package> = packages.map(package_of).collect();
    Ok(check(&deny, &packages))
}

fn package_of(value: &Value) -> Package {
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Package {
        name: text("name").unwrap_or_default(),
        licence: text("license").unwrap_or_default(),
        source: text("source"),
    }
}

fn check(deny: &str, packages: &[Package]) -> Vec<Finding> {
    let allowed = list(deny, "allow");
    let registries = list(deny, "allow-registry");
    let allowed_names: BTreeSet<&str> = allowed.iter().map(|(_, name)| *name).collect();
    let mut used = BTreeSet::new();
    let mut findings = Vec::new();
    for package in packages {
        match Expression::of(&package.licence).needs(&allowed_names) {
            Some(needed) => used.extend(needed),
            None => {
                let message = format!(
                    "{} is under \"{}\", which {DENY} does not allow",
                    package.name, package.licence
                );
                findings.push(Finding::new("Cargo.lock", 1, RULE, message));
            }
        }
        let source = package.source.as_deref().unwrap_or_default();
        let known = registries
            .iter()
            .any(|(_, registry)| source.strip_prefix("registry+") == Some(registry));
        if !known && !source.is_empty() {
            let message = format!("{} comes from {source}", package.name);
            findings.push(Finding::new("Cargo.lock", 1, RULE, message));
        }
    }
    for (line, name) in allowed {
        if !used.contains(name) {
            let message = format!("no dependency needs {name} any more");
            findings.push(Finding::new(DENY, line, RULE, message));
        }
    }
    findings
}

/// The quoted strings of a list in `deny.toml` with their lines, from 1.
fn list<'a>(deny: &'a str, key: &str) -> Vec<(usize, &'a str)> {
    let opening = format!("{key} = [");
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in deny.lines().enumerate() {
        inside |= line.starts_with(&opening);
        if !inside {
            continue;
        }
        let code = line.split(" #").next().unwrap_or_default();
        found.extend(
            code.split('"')
                .skip(1)
                .step_by(2)
                .map(|name| (index + 1, name)),
        );
        inside = !code.contains(']');
    }
    found
}

/// An SPDX licence expression, as words and parentheses not yet read.
struct Expression {
    /// In reverse, so that the next one is popped.
    tokens: Vec<String>,
}

impl Expression {
    fn of(text: &str) -> Expression {
        // "MIT/Apache-2.0" is how "OR" was written before SPDX.
        let spaced = text
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let tokens = spaced.split_whitespace().rev().map(str::to_owned);
        Expression {
            tokens: tokens.collect(),
        }
    }

    /// The allowed licences that satisfy it; none where nothing does.
    fn needs<'a>(mut self, allowed: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
        self.any_of(allowed)
    }

    /// `A OR B`: the first that can be satisfied. OR binds less than AND.
    fn any_of<'a>(&mut self, allowed: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
        let mut chosen = self.all_of(allowed);
        while self.next_is("OR") {
            let other = self.all_of(allowed);
            chosen = chosen.or(other);
        }
        chosen
    }

    fn all_of<'a>(&mut self, allowed: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
        let mut needed = self.one(allowed);
        while self.next_is("AND") {
            let other = self.one(allowed);
            needed = needed.zip(other).map(|(mut all, more)| {
                all.extend(more);
                all
            });
        }
        needed
    }

    fn one<'a>(&mut self, allowed: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
        if self.next_is("(") {
            let inner = self.any_of(allowed);
            self.next_is(")");
            return inner;
        }
        let mut name = self.tokens.pop()?;
        if self.next_is("WITH") {
            name = format!("{name} WITH {}", self.tokens.pop()?);
        }
        allowed.get(name.as_str()).map(|name| vec![*name])
    }

    /// Takes the next token where it is this one.
    fn next_is(&mut self, token: &str) -> bool {
        let is = self.tokens.last().is_some_and(|next| next == token);
        if is {
            self.tokens.pop();
        }
        is
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "[licenses]\nallow = [\n    \"MIT\",\n    \"ISC\", # \"why\"\n]\n\
                          allow-registry = [\"https://r\"]\n";

    fn package(licence: &str, source: &str) -> Package {
        Package {
            name: "p".to_owned(),
            licence: licence.to_owned(),
            source: Some(source.to_owned()),
        }
    }

    #[test]
    fn allowed_expressions_pass() {
        let packages = [
            "MIT",
            "Apache-2.0 OR MIT",
            "GPL-3.0/MIT",
            "ISC AND (GPL-3.0 OR MIT)",
            "Apache-2.0 WITH LLVM-exception OR ISC",
        ];
        let packages = packages.map(|licence| package(licence, "registry+https://r"));
        assert_eq!(check(SAMPLE, &packages), []);
    }

    #[test]
    fn what_is_not_allowed_is_found() {
        for licence in ["GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR X) AND ISC", ""] {
            let packages = [
                package("MIT AND ISC", "registry+https://r"),
                package(licence, "registry+https://r"),
            ];
            assert_eq!(check(SAMPLE, &packages).len(), 1, "{licence}");
        }
        let foreign = [package("MIT AND ISC", "git+https://elsewhere")];
        assert_eq!(check(SAMPLE, &foreign).len(), 1);
    }

    #[test]
    fn leftovers_are_found() {
        let found = check(SAMPLE, &[package("MIT", "registry+https://r")]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), (DENY, 4));
    }
}
