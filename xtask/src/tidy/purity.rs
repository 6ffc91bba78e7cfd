//! Crates that promise no I/O, no clock and no threads have none, so that their tests can run whole
//! transfers in virtual time.

use super::Finding;
use super::rust_source::{RustSource, word_offsets};
use super::tree::Tree;

const RULE: &str = "purity";

/// The crates, or parts of crates, that promise it.
const PURE_CRATES: [&str; 5] = [
    "crates/units/src/",
    "crates/proto/src/",
    "crates/measure/src/",
    "crates/model/src/",
    "crates/gridftp/src/protocol/",
];

/// Modules of the standard library that do I/O, keep time or start threads.
const IMPURE_MODULES: [&str; 5] = ["net", "fs", "thread", "process", "env"];

/// Types that read a clock.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];

/// Checks the code outside tests.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let Some(pure) = PURE_CRATES.iter().find(|c| file.path.starts_with(**c)) else {
            continue;
        };
        for (line, what) in impurities(rust) {
            let message = format!(
                "{what} in {pure}: no I/O, clock or thread here; the engine drives it and \
                 passes the time in"
            );
            findings.push(Finding::new(&file.path, line, RULE, message));
        }
    }
    findings
}

/// Lines that reach for the world, with what they reach for.
fn impurities(rust: &RustSource) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut in_std_import = false;
    for (line, code) in rust.product_code() {
        in_std_import |= code.contains("use std::{");
        for module in IMPURE_MODULES {
            let direct = code.contains(&format!("std::{module}"))
                && word_offsets(code, module).next().is_some();
            let imported = in_std_import && word_offsets(code, module).next().is_some();
            if direct || imported {
                found.push((line, module));
            }
        }
        for clock in CLOCKS {
            if word_offsets(code, clock).next().is_some() {
                found.push((line, clock));
            }
        }
        in_std_import &= !code.contains(';');
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn lines_found(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&sample(&[(path, text)]));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn pure_code_tests_and_other_crates_pass() {
        let pure = "use std::fmt;\nuse std::{collections, mem};\n\
                    use std::time::Duration;\nfn net() {}\n// std::fs\n\
                    #[cfg(test)]\nmod tests {\n    use std::thread;\n}\n";
        assert!(lines_found("crates/proto/src/a.rs", pure).is_empty());
        assert!(lines_found("crates/engine/src/a.rs", "use std::fs;\n").is_empty());
    }

    #[test]
    fn impure_code_is_found() {
        for text in [
            "use std::fs;\n",
            "use std::{fmt, net};\n",
            "use std::{\n    thread::spawn,\n};\n",
            "fn a() { std::net::TcpStream::connect(b); }\n",
            "fn a(now: std::time::Instant) {}\n",
            "use std::time::{Duration, SystemTime};\n",
        ] {
            assert_eq!(
                lines_found("crates/proto/src/a.rs", text).len(),
                1,
                "{text}"
            );
        }
    }
}
