//! No panics outside tests: a failure names its cause and its remedy. Output to users does not use
//! macros that panic if standard output or error fails. Every sleep has a reason, also in tests,
//! because code waits for events.

use super::Finding;
use super::rust_source::word_offsets;
use super::tree::Tree;

const PANICS: &str = "panics";
const SLEEPS: &str = "sleeps";
const PRINTS: &str = "prints";

/// Code that ends the process without a remedy.
const PANICKING: [&str; 6] = [
    ".unwrap()",
    ".expect(",
    "panic!",
    "todo!",
    "unimplemented!",
    "dbg!",
];

/// Macros that panic on a failed write, for code that users run.
const PRINTING: [&str; 4] = ["print!", "println!", "eprint!", "eprintln!"];

/// All rules; `// tidy: reason` excuses.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (line, code) in rust.product_code() {
            let panicking = PANICKING.iter().find(|call| contains_call(code, call));
            if let Some(call) = panicking.filter(|_| !rust.is_excused(line)) {
                let message = format!(
                    "{call} outside tests: return an error that says what to do, or say why it \
                     cannot happen (\"// tidy: …\")"
                );
                findings.push(Finding::new(&file.path, line, PANICS, message));
            }
            let printing = PRINTING.iter().find(|call| contains_call(code, call));
            let is_run = file.path.starts_with("crates/") && file.path.contains("/src/");
            if let Some(call) = printing.filter(|_| is_run && !rust.is_excused(line)) {
                let message =
                    format!("{call} panics where nothing can be written: use what `messages` has");
                findings.push(Finding::new(&file.path, line, PRINTS, message));
            }
        }
        for (line, code) in rust.code() {
            if code.contains("thread::sleep") && !rust.is_excused(line) {
                let message = "waiting by sleeping: wait for the event itself, with a deadline, or \
                               say what takes time (\"// tidy: reason: …\")";
                findings.push(Finding::new(&file.path, line, SLEEPS, message));
            }
        }
    }
    findings
}

fn contains_call(code: &str, call: &str) -> bool {
    match call.strip_suffix('!') {
        Some(name) => word_offsets(code, name).any(|at| code[at + name.len()..].starts_with('!')),
        None => code.contains(call),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn tests_comments_and_excused_calls_pass() {
        let tree = sample(&[
            (
                "crates/a/src/lib.rs",
                "/// Never `panic!`s.\nfn a() {\n    x.unwrap_or_default();\n    \
                 #[expect(dead_code)]\n    let y = 1;\n    \
                 // tidy: the table has three rows\n    z.expect(\"row\");\n}\n\
                 #[cfg(test)]\nmod tests {\n    fn b() {\n        x.unwrap();\n        \
                 // tidy: a second passes\n        thread::sleep(d);\n    }\n}\n",
            ),
            ("crates/a/tests/whole.rs", "fn a() {\n    x.unwrap();\n}\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_sleep_without_a_reason_is_found_in_tests() {
        let text = "fn a() {\n    thread::sleep(d);\n}\n";
        let found = check(&sample(&[("crates/a/tests/all/main.rs", text)]));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn panics_and_sleeps_are_found() {
        for call in [
            "x.unwrap();",
            "x.expect(\"y\");",
            "panic!(\"x\");",
            "std::todo!();",
            "unimplemented!()",
            "dbg!(x)",
            "eprintln!(\"x\");",
            "print!(\"x\");",
            "std::thread::sleep(d);",
        ] {
            let text = format!("fn a() {{\n    {call}\n}}\n");
            let found = check(&sample(&[("crates/a/src/lib.rs", &text)]));
            assert_eq!(found.len(), 1, "{call}");
            assert_eq!(found[0].line, 2, "{call}");
        }
    }
}
