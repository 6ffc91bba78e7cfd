//! Inherent methods: functions in inherent `impl` blocks. Types are distinguished by crate and
//! name, and the blocks of one type in all files are counted together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::product;
use crate::tidy::{RustSource, Tree, closing_brace, word_offsets};

/// The methods of one type.
#[derive(Default)]
struct Methods {
    number: usize,
    files: BTreeSet<String>,
}

/// Returns the types with the most methods, with the number of files that have some of them.
pub fn report(tree: &Tree, shown: usize) -> String {
    let types = types(tree);
    let total: usize = types.values().map(|methods| methods.number).sum();
    let mut sorted: Vec<_> = types.iter().collect();
    sorted.sort_by_key(|(_, methods)| std::cmp::Reverse(methods.number));
    let mut text = format!("\ninherent methods: {total} of {} types\n", types.len());
    for ((krate, name), methods) in sorted.into_iter().take(shown) {
        let (number, files) = (methods.number, methods.files.len());
        let _ = writeln!(text, "  {number:>4} in {files:>2} files  {krate} {name}");
    }
    text
}

/// Returns the methods of each type, by crate and name.
fn types(tree: &Tree) -> BTreeMap<(String, String), Methods> {
    let mut types: BTreeMap<_, Methods> = BTreeMap::new();
    for (krate, file, rust) in product(tree) {
        for (name, number) in blocks(&product_text(rust)) {
            let methods = types.entry((krate.to_owned(), name)).or_default();
            methods.number += number;
            methods.files.insert(file.path.clone());
        }
    }
    types
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
    use super::*;
    use crate::tidy::sample;

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
        let methods = types.get(&("a".to_owned(), "A".to_owned())).unwrap();
        assert_eq!(
            (types.len(), methods.number, methods.files.len()),
            (1, 3, 2)
        );
        assert!(report(&tree, 1).contains("3 in  2 files  a A"));
    }
}
