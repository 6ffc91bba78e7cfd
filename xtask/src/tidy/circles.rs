//! Modules of a crate do not import each other in circles.
//!
//! - Between top-level modules, each with its children, no circle of any length is allowed, except
//!   between those of [`EXEMPT`].
//! - Between files, also of one top-level module, no two import each other, except the pairs of
//!   `circles.txt`.
//!
//! Both lists only shrink: an entry that is no longer needed is a finding.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::rust_source::RustSource;
use super::tree::Tree;

const RULE: &str = "circles";

/// Top-level modules that import each other in circles, by crate.
const EXEMPT: &[(&str, &[&str])] = &[
    ("crates/cli", &["heap", "messages"]),
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

/// Pairs of modules that import each other, one on each line: the crate, and two paths of modules.
const PAIRS: &str = include_str!("circles.txt");

/// A module's path below its crate; empty for the crate itself.
type Module = Vec<String>;

/// The modules of a crate, with the modules that each imports: file and line of the first import.
type Modules = BTreeMap<Module, BTreeMap<Module, (String, usize)>>;

/// Each module with those that it imports, and the line of the first import.
type Imports = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// Checks the imports within each crate.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = check_with(tree, EXEMPT);
    findings.extend(check_pairs(tree, PAIRS));
    findings
}

fn check_with(tree: &Tree, exempt: &[(&str, &[&str])]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (crate_path, modules) in crates(tree) {
        let listed = exempt.iter().find(|(path, _)| *path == crate_path);
        let listed = listed.map_or(&[][..], |(_, modules)| modules);
        findings.extend(check_crate(crate_path, &top_level(&modules), listed));
    }
    findings
}

/// Returns the imports between top-level modules, each with its children.
fn top_level(modules: &Modules) -> Imports {
    let mut imports = Imports::new();
    for (module, imported) in modules {
        let Some(own) = module.first() else {
            continue;
        };
        let found = imports.entry(own.clone()).or_default();
        for (other, place) in imported {
            if let Some(other) = other.first().filter(|other| *other != own) {
                found.entry(other.clone()).or_insert_with(|| place.clone());
            }
        }
    }
    imports
}

/// Finds pairs of files that import each other and are not listed, and listed ones that do not.
fn check_pairs(tree: &Tree, listed: &str) -> Vec<Finding> {
    let listed: BTreeSet<&str> = listed.lines().collect();
    let mut findings = Vec::new();
    let mut found = BTreeSet::new();
    for (crate_path, modules) in crates(tree) {
        for (module, imported) in &modules {
            for (other, (path, line)) in imported {
                let again = modules
                    .get(other)
                    .is_some_and(|back| back.contains_key(module));
                if module >= other || !again {
                    continue;
                }
                let [one, two] = [module, other].map(|module| match module.as_slice() {
                    [] => "crate".to_owned(),
                    names => names.join("::"),
                });
                let pair = format!("{crate_path} {one} {two}");
                if !listed.contains(pair.as_str()) {
                    let message = format!(
                        "`{one}` and `{two}` import each other: put what both need into a module \
                         that both may import"
                    );
                    findings.push(Finding::new(path, *line, RULE, message));
                }
                found.insert(pair);
            }
        }
    }
    for pair in listed.iter().filter(|pair| !found.contains(**pair)) {
        let message = format!("\"{pair}\" is no pair any more: remove the line");
        findings.push(Finding::new("xtask/src/tidy/circles.txt", 1, RULE, message));
    }
    findings
}

/// Returns the modules of each crate.
fn crates(tree: &Tree) -> BTreeMap<&str, Modules> {
    let files = || {
        tree.rust().filter_map(|(file, rust)| {
            let (crate_path, inner) = file.path.split_once("/src/")?;
            Some((crate_path, modules_of(inner), file, rust))
        })
    };
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for (crate_path, module, ..) in files() {
        let modules = crates.entry(crate_path).or_default();
        modules.extend([Module::new(), module].map(|module| (module, BTreeMap::new())));
    }
    for (crate_path, module, file, rust) in files() {
        let Some(modules) = crates.get_mut(crate_path) else {
            continue;
        };
        let imported: Vec<_> = imported(rust, &module, modules)
            .into_iter()
            .filter(|(other, _)| *other != module)
            .collect();
        let own = modules.entry(module).or_default();
        for (other, line) in imported {
            own.entry(other)
                .or_insert_with(|| (file.path.clone(), line));
        }
    }
    crates
}

fn check_crate(crate_path: &str, imports: &Imports, exempt: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = BTreeSet::new();
    for (module, imported) in imports {
        for (other, (path, line)) in imported {
            if !imports.contains_key(other) || !reaches(imports, other, module) {
                continue;
            }
            needed.extend([module.as_str(), other.as_str()]);
            let is_listed = |name: &str| exempt.contains(&name);
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

/// Returns the module of a file, from its path below `src/`.
fn modules_of(inner: &str) -> Module {
    let stem = inner.trim_end_matches(".rs");
    let mut modules: Vec<&str> = stem.split('/').collect();
    if modules.last().is_some_and(|last| *last == "mod") {
        modules.pop();
    }
    match modules.as_slice() {
        ["lib" | "main"] => Vec::new(),
        names => names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Returns the modules that product code of a module names, with their lines.
fn imported(rust: &RustSource, module: &Module, modules: &Modules) -> Vec<(Module, usize)> {
    let (mut text, mut lines) = (String::new(), Vec::new());
    for (line, code) in rust.product_code() {
        text.push_str(code);
        text.push('\n');
        lines.resize(text.len(), line);
    }
    let mut found = Vec::new();
    for (at, _) in text.match_indices("::") {
        let first = text[..at]
            .rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
            .next();
        let first = first.unwrap_or_default();
        let before = &text[..at - first.len()];
        if before.ends_with([':', '$', '\'']) {
            continue;
        }
        let mut base = match first {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len().saturating_sub(1)].to_vec(),
            child => [module.as_slice(), &[child.to_owned()]].concat(),
        };
        if !modules.contains_key(&base) {
            continue;
        }
        let mut rest = &text[at + 2..];
        while let Some(above) = rest.strip_prefix("super::") {
            base.pop();
            rest = above;
        }
        let line = lines.get(at).copied().unwrap_or(1);
        for path in paths_at(rest) {
            let known = (0..=path.len()).rev().find_map(|length| {
                let named = [base.as_slice(), &path[..length]].concat();
                modules.contains_key(&named).then_some(named)
            });
            found.extend(known.map(|known| (known, line)));
        }
    }
    found
}

/// Returns the paths of a tree of imports: `a::{b, c::d}` has two.
fn paths_at(rest: &str) -> Vec<Module> {
    let rest = rest.trim_start();
    let Some(group) = rest.strip_prefix('{') else {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let further = match after.strip_prefix("::") {
            Some(after) => paths_at(after),
            None => vec![Vec::new()],
        };
        let with_name = |path: Module| [vec![name.to_owned()], path].concat();
        return further.into_iter().map(with_name).collect();
    };
    let (mut depth, mut start, mut paths) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match (c, depth) {
            ('{', _) => depth += 1,
            (',' | '}', 0) => {
                paths.extend(paths_at(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            ('}', _) => depth -= 1,
            _ => {}
        }
    }
    paths
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
        assert_eq!(check_with(&tree, &[("crates/a", &["one", "two"])]), []);
        let found = check_with(&tree, &[("crates/a", &["one", "two", "three"])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("`three`"));
        assert_eq!(check_with(&tree, &[("crates/a", &["one"])]).len(), 2);
    }

    #[test]
    fn files_that_import_each_other_are_found_within_a_module() {
        let tree = sample(&[
            ("crates/a/src/lib.rs", "mod one;"),
            (
                "crates/a/src/one.rs",
                "mod inner;\nmod other;\nuse inner::{x, y};",
            ),
            ("crates/a/src/one/inner.rs", "use super::{other::z, x};"),
            ("crates/a/src/one/other.rs", "use crate::one::inner::x;"),
        ]);
        let found = check_pairs(&tree, "");
        let named = |text: &str| found.iter().any(|finding| finding.message.contains(text));
        assert_eq!(found.len(), 2);
        assert!(named("`one` and `one::inner`"));
        assert!(named("`one::inner` and `one::other`"));
        let listed = "crates/a one one::inner\ncrates/a one::inner one::other\ncrates/a b c";
        let found = check_pairs(&tree, listed);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("crates/a b c"));
    }
}
