//! Modules of a crate do not import each other in circles. A top-level module
//! and its children are one: what is drawn is the crate's own map.
//!
//! Circles that are there already are listed in [`EXEMPT`]. The list only
//! shrinks: an entry that is no longer needed is a finding.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::rust_source::RustSource;
use super::tree::Tree;

const RULE: &str = "circles";

/// Stands for all modules of a crate.
const ANY: &str = "*";

/// Modules that import each other in circles, by crate.
const EXEMPT: &[(&str, &[&str])] = &[
    ("crates/cli", &[ANY]),
    (
        "crates/lab",
        &[
            "background",
            "lab",
            "processes",
            "report",
            "scenario",
            "storage",
        ],
    ),
    ("crates/measure", &["analysis", "runs", "scope"]),
    (
        "crates/proto",
        &[
            "allowed",
            "block",
            "handshake",
            "listing",
            "message",
            "notice",
        ],
    ),
    (
        "crates/transfer",
        &["client", "daemon", "remote_process", "ssh", "between_hosts"],
    ),
];

/// Each module with those that it imports, and the line of the first import.
type Imports = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// Checks the imports within each crate.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, EXEMPT)
}

fn check_with(tree: &Tree, exempt: &[(&str, &[&str])]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Imports> = BTreeMap::new();
    for (file, rust) in tree.rust() {
        let Some((crate_path, inner)) = file.path.split_once("/src/") else {
            continue;
        };
        let modules = modules_of(inner);
        let Some(own) = modules.first() else {
            continue;
        };
        let imports = crates.entry(crate_path).or_default();
        let found = imports.entry((*own).to_owned()).or_default();
        for (name, line) in imported(rust, modules.len()) {
            let place = (file.path.clone(), line);
            if name != *own {
                found.entry(name).or_insert(place);
            }
        }
    }
    let mut findings = Vec::new();
    for (crate_path, imports) in crates {
        let listed = exempt.iter().find(|(path, _)| *path == crate_path);
        let listed = listed.map_or(&[][..], |(_, modules)| modules);
        findings.extend(check_crate(crate_path, &imports, listed));
    }
    findings
}

fn check_crate(crate_path: &str, imports: &Imports, exempt: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = BTreeSet::new();
    for (module, imported) in imports {
        for (other, (path, line)) in imported {
            if !imports.contains_key(other) || !reaches(imports, other, module) {
                continue;
            }
            needed.extend([module.as_str(), other.as_str(), ANY]);
            let is_listed = |name: &str| exempt.contains(&ANY) || exempt.contains(&name);
            if !(is_listed(module) && is_listed(other)) {
                let message = format!(
                    "`{module}` imports `{other}`, which imports `{module}` again, perhaps through \
                     others: put what both need into a module that both may import"
                );
                findings.push(Finding::new(path, *line, RULE, message));
            }
        }
    }
    for name in exempt.iter().filter(|name| !needed.contains(*name)) {
        let message = format!(
            "`{name}` of {crate_path} is in no circle any more: take it out of EXEMPT in \
             xtask/src/tidy/circles.rs"
        );
        findings.push(Finding::new(crate_path, 1, RULE, message));
    }
    findings
}

/// True if imports lead from one module to another.
fn reaches(imports: &Imports, from: &str, to: &str) -> bool {
    let (mut due, mut seen) = (vec![from], BTreeSet::new());
    while let Some(module) = due.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            let further = imports.get(module).into_iter().flat_map(BTreeMap::keys);
            due.extend(further.map(String::as_str));
        }
    }
    false
}

/// Returns the modules of a file's path below `src/`, outermost first; empty for the crate root,
/// which is above all modules.
fn modules_of(inner: &str) -> Vec<&str> {
    let stem = inner.trim_end_matches(".rs");
    let mut modules: Vec<&str> = stem.split('/').collect();
    if modules.last().is_some_and(|last| *last == "mod") {
        modules.pop();
    }
    match modules.as_slice() {
        ["lib" | "main"] => Vec::new(),
        _ => modules,
    }
}

/// Returns names directly below the crate root in the product code of a module, with their lines.
/// `depth` is the module's depth below the root.
fn imported(rust: &RustSource, depth: usize) -> Vec<(String, usize)> {
    let (mut text, mut lines) = (String::new(), Vec::new());
    for (line, code) in rust.product_code() {
        text.push_str(code);
        text.push('\n');
        lines.resize(text.len(), line);
    }
    let above = "super::".repeat(depth);
    let mut found = Vec::new();
    for root in ["crate::", above.as_str()] {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            let begins = before.is_none_or(|c| !(c.is_alphanumeric() || "_:$".contains(c)));
            let rest = &text[at + root.len()..];
            if begins && !rest.starts_with("super::") {
                let line = lines.get(at).copied().unwrap_or(1);
                found.extend(names_at(rest).into_iter().map(|name| (name, line)));
            }
        }
    }
    found
}

/// The first names of what follows `crate::`: one, or those of a group in braces.
fn names_at(rest: &str) -> Vec<String> {
    let word = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let (mut depth, mut start, mut names) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match (c, depth) {
            ('{', _) => depth += 1,
            (',' | '}', 0) => {
                names.push(word(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            ('}', _) => depth -= 1,
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    const CIRCLE: [(&str, &str); 3] = [
        ("crates/a/src/lib.rs", "mod one; mod two;"),
        ("crates/a/src/one.rs", "use crate::two::x;"),
        (
            "crates/a/src/two/mod.rs",
            "use crate::{\n    three,\n    one::{y, z},\n};",
        ),
    ];

    #[test]
    fn one_way_is_allowed_and_a_module_and_its_children_are_one() {
        let tree = sample(&[
            ("crates/a/src/one.rs", "use crate::two;\nmod inner;"),
            (
                "crates/a/src/one/inner.rs",
                "use super::x;\nuse crate::one::y;",
            ),
            ("crates/a/src/two.rs", "// crate::one\nuse other::one;"),
            (
                "crates/a/src/two/deep.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::one;\n}\n",
            ),
            ("crates/b/src/two.rs", "use crate::one;"),
        ]);
        assert_eq!(check_with(&tree, &[]), []);
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let found = check_with(&sample(&CIRCLE), &[]);
        let lines: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.line)).collect();
        let expected = [("crates/a/src/one.rs", 1), ("crates/a/src/two/mod.rs", 1)];
        assert_eq!(lines, expected);
        let tree = sample(&[
            ("crates/a/src/one.rs", "fn f() { super::two::g() }"),
            ("crates/a/src/two.rs", "mod deep;"),
            ("crates/a/src/two/deep.rs", "use super::super::three::h;"),
            ("crates/a/src/three.rs", "use crate::one::f;"),
        ]);
        assert_eq!(check_with(&tree, &[]).len(), 3);
    }

    #[test]
    fn an_exemption_that_is_not_needed_is_found() {
        let tree = sample(&CIRCLE);
        for exempt in [&["one", "two"][..], &["*"]] {
            assert_eq!(check_with(&tree, &[("crates/a", exempt)]), []);
        }
        let found = check_with(&tree, &[("crates/a", &["one", "two", "three"])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("`three`"));
        assert_eq!(check_with(&tree, &[("crates/a", &["one"])]).len(), 2);
    }
}
