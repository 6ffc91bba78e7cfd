//! Inherent methods: functions in `impl` blocks of no trait. A type has at most [`MOST`] of them,
//! in the module that defines it or in its children.
//!
//! Types that have more, or have them elsewhere, are listed in [`LARGE`]. The list only shrinks: a
//! type that needs no entry any more is a finding.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::rust_source::{RustSource, closing_brace, word_offsets};
use super::tree::Tree;

const RULE: &str = "methods";

/// Maximum number of inherent methods of a type.
const MOST: usize = 40;

/// Types with more methods, or with methods outside of their modules: module, name and the maximum
/// number of their methods.
const LARGE: &[(&str, &str, usize)] = &[
    ("crates/cli/src/arguments/filters", "FilterArguments", MOST),
    ("crates/cli/src/arguments/ssh", "SshArguments", MOST),
    ("crates/engine/src/recv/deletion/plan", "Plan", MOST),
    ("crates/engine/src/recv/landing", "Destination", 57),
    ("crates/engine/src/send", "Sending", 63),
    ("crates/engine/src/session", "Transfer", MOST),
    ("crates/engine/src/session/streams", "Slot", MOST),
    ("crates/gridftp/src/session", "Session", 48),
    (
        "crates/model/src/explain/compression",
        "CompressionGain",
        MOST,
    ),
    ("crates/model/src/fit", "Fit", MOST),
    ("crates/model/src/optimise/build", "Built", 41),
    ("crates/model/src/optimise/prices", "Constraint", MOST),
    ("crates/model/src/optimise/program/simplex", "Simplex", MOST),
    ("crates/model/src/optimise/program/tree", "Change", MOST),
    ("crates/proto/src/filter/syntax", "PerDirectory", MOST),
    ("crates/transfer/src/client/run", "Task", MOST),
    ("crates/transfer/src/daemon", "Daemon", 47),
    ("crates/transfer/src/spec", "FixedFlows", MOST),
];

/// A type: the path of its module's file without `.rs`, and its name.
pub type Type = (String, String);

/// The inherent methods of one type.
#[derive(Default)]
pub struct Methods {
    /// Number of methods.
    pub number: usize,
    /// Files that have some of them.
    pub files: BTreeSet<String>,
}

/// Checks the types of all product code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, LARGE)
}

fn check_with(tree: &Tree, large: &[(&str, &str, usize)]) -> Vec<Finding> {
    let types = types(tree);
    let mut findings = Vec::new();
    for ((module, name), methods) in &types {
        let listed = large
            .iter()
            .find(|(path, listed, _)| path == module && listed == name);
        let most = listed.map_or(MOST, |(.., most)| *most);
        let elsewhere = methods.files.iter().find(|file| !is_within(file, module));
        let path = methods
            .files
            .first()
            .map_or(module.as_str(), String::as_str);
        if methods.number > most {
            let message = format!(
                "`{name}` has {} methods, at most {most} are allowed",
                methods.number
            );
            findings.push(Finding::new(path, 1, RULE, message));
        }
        match (listed, elsewhere) {
            (None, Some(file)) => {
                let message = format!("`{name}` of {module}.rs has methods outside of its module");
                findings.push(Finding::new(file, 1, RULE, message));
            }
            (Some(_), None) if methods.number <= MOST => {
                let message =
                    format!("`{name}` needs no entry in xtask/src/tidy/methods.rs any more");
                findings.push(Finding::new(path, 1, RULE, message));
            }
            _ => {}
        }
    }
    let known = |(module, name, _): &&(&str, &str, usize)| {
        types.contains_key(&((*module).to_owned(), (*name).to_owned()))
    };
    for (module, name, _) in large.iter().filter(|large| !known(large)) {
        let message =
            format!("there is no `{name}`: remove its entry in xtask/src/tidy/methods.rs");
        findings.push(Finding::new(module, 1, RULE, message));
    }
    findings
}

/// True if a file is that of the module, or of one of its children.
fn is_within(file: &str, module: &str) -> bool {
    let module = module.trim_end_matches("/mod");
    let rest = file.strip_prefix(module);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Returns the inherent methods of each type in product code. A type is the nearest one of its name
/// above the methods, or the only one in the crate.
pub fn types(tree: &Tree) -> BTreeMap<Type, Methods> {
    let files: Vec<_> = tree
        .rust()
        .filter(|(file, _)| file.path.starts_with("crates/") && file.path.contains("/src/"))
        .map(|(file, rust)| (file.path.as_str(), product_text(rust)))
        .collect();
    let mut defined: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, text) in &files {
        for name in definitions(text) {
            defined.entry(name).or_default().push(path);
        }
    }
    let mut types: BTreeMap<Type, Methods> = BTreeMap::new();
    for (path, text) in &files {
        for (name, number) in blocks(text) {
            let module = module_of(path, defined.get(&name).map_or(&[], Vec::as_slice));
            let methods = types.entry((module, name)).or_default();
            methods.number += number;
            methods.files.insert((*path).to_owned());
        }
    }
    types
}

/// Returns the module of the definition that methods in a file belong to.
fn module_of(path: &str, defined: &[&str]) -> String {
    let source = path.find("/src/").map_or("", |at| &path[..at + 5]);
    let stem = |file: &str| file.trim_end_matches(".rs").to_owned();
    let in_crate = defined.iter().filter(|file| file.starts_with(source));
    let above = in_crate.clone().filter(|file| is_within(path, &stem(file)));
    let nearest = above.max_by_key(|file| file.len());
    let shared = |file: &&&str| {
        file.bytes()
            .zip(path.bytes())
            .take_while(|(a, b)| a == b)
            .count()
    };
    stem(
        nearest
            .or_else(|| in_crate.clone().max_by_key(shared))
            .unwrap_or(&path),
    )
}

/// Returns the names of the types that a text defines.
fn definitions(code: &str) -> Vec<String> {
    let words = ["struct", "enum", "union"];
    let after = words
        .iter()
        .flat_map(|word| word_offsets(code, word).map(|at| code[at + word.len()..].trim_start()));
    let name = |rest: &str| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        rest[..end.unwrap_or(rest.len())].to_owned()
    };
    after.map(name).filter(|name| !name.is_empty()).collect()
}

/// Returns the code outside tests as one text.
fn product_text(rust: &RustSource) -> String {
    rust.product_code()
        .fold(String::new(), |text, (_, line)| text + line + "\n")
}

/// Returns the type and the number of methods of each inherent `impl` block.
fn blocks(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for at in word_offsets(code, "impl") {
        let Some(open) = code[at..].find('{').map(|open| at + open) else {
            continue;
        };
        if !begins_item(&code[..at]) {
            continue;
        }
        if let Some(name) = inherent_type(&code[at + "impl".len()..open]) {
            found.push((name, functions(&code[open + 1..closing_brace(code, open)])));
        }
    }
    found
}

/// True if an item can begin after this code: `impl` also stands in types of arguments.
fn begins_item(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with(['}', ';', '{', ']'])
}

/// Returns the name of the type from the text between `impl` and the brace; `None` if a trait is
/// implemented.
fn inherent_type(head: &str) -> Option<String> {
    let head = head.trim_start();
    let head = if head.starts_with('<') {
        &head[end_of_generics(head)?..]
    } else {
        head
    };
    let head = head.split(" where").next().unwrap_or(head).trim();
    let is_trait = word_offsets(head, "for").any(|at| !head[at + 3..].starts_with('<'));
    let path = head.split('<').next().unwrap_or(head).trim();
    let name = path.rsplit("::").next().unwrap_or(path);
    (!is_trait && !name.is_empty()).then(|| name.to_owned())
}

/// Returns the offset behind the bracket that closes the first one; `->` closes none.
fn end_of_generics(head: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, character) in head.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if before == '-' => {}
            '>' if depth == 1 => return Some(at + 1),
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = character;
    }
    None
}

/// Returns the number of functions in the body of a block, without those inside other functions.
fn functions(body: &str) -> usize {
    let named = |at: &usize| {
        let rest = body[at + "fn".len()..].trim_start();
        rest.starts_with(|c: char| c.is_alphabetic() || c == '_')
    };
    let at_the_top = |at: &usize| {
        let before = &body[..*at];
        before.matches('{').count() == before.matches('}').count()
    };
    word_offsets(body, "fn")
        .filter(named)
        .filter(at_the_top)
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn methods_of_a_type_are_counted_over_its_files() {
        let tree = sample(&[
            (
                "crates/a/src/lib.rs",
                "struct A;\nimpl A {\n    fn a(f: fn(u8)) { fn inner() {} }\n    pub fn b() {}\n}\n\
                 impl Clone for A {\n    fn clone(&self) -> A { A }\n}\n\
                 fn f(x: impl Fn()) {}\n",
            ),
            (
                "crates/a/src/more.rs",
                "impl<F: Fn() -> u8> super::A<F> where F: Send {\n    fn c() {}\n}\n\
                 #[cfg(test)]\nimpl A {\n    fn d() {}\n}\n",
            ),
        ]);
        let types = types(&tree);
        let methods = types.get(&("crates/a/src/lib".to_owned(), "A".to_owned()));
        let methods = methods.unwrap();
        assert_eq!(
            (types.len(), methods.number, methods.files.len()),
            (1, 3, 2)
        );
    }

    #[test]
    fn types_of_one_name_are_distinguished_by_their_modules() {
        let code = "struct State;\nimpl State {\n    fn a() {}\n}\n";
        let below = "impl super::State {\n    fn b() {}\n}\n";
        let tree = sample(&[
            ("crates/a/src/one.rs", code),
            ("crates/a/src/two.rs", code),
            ("crates/a/src/two/below.rs", below),
        ]);
        assert_eq!(types(&tree).len(), 2);
        assert_eq!(check_with(&tree, &[]), []);
    }

    #[test]
    fn too_many_methods_and_those_outside_of_the_module_are_found() {
        let many: String = (0..=MOST)
            .map(|n| format!("    fn m{n}() {{}}\n"))
            .collect();
        let many = format!("struct A;\nimpl A {{\n{many}}}\n");
        let tree = sample(&[
            ("crates/a/src/one.rs", &many),
            ("crates/a/src/two.rs", "struct B;\n"),
            (
                "crates/a/src/three.rs",
                "use two::B;\nimpl B {\n    fn b() {}\n}\n",
            ),
        ]);
        assert_eq!(check_with(&tree, &[]).len(), 2);
        let listed = [
            ("crates/a/src/one", "A", MOST + 1),
            ("crates/a/src/two", "B", 1),
        ];
        assert_eq!(check_with(&tree, &listed), []);
        let needless = [
            ("crates/a/src/one", "A", MOST + 1),
            ("crates/a/src/two", "C", 1),
        ];
        assert_eq!(check_with(&tree, &needless).len(), 2);
    }
}
