//! Every `unsafe` has a comment with the reason why it is sound. Some crates have no `unsafe`.

use super::Finding;
use super::rust_source::word_offsets;
use super::tree::Tree;

const RULE: &str = "unsafe";

/// Crates that need no `unsafe` at all.
const SAFE_CRATES: [&str; 4] = [
    "crates/units/",
    "crates/proto/",
    "crates/measure/",
    "crates/model/",
];

/// A `// SAFETY:` above the statement, or `# Safety` in the documentation of
/// an `unsafe fn`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let safe_crate = SAFE_CRATES.iter().find(|c| file.path.starts_with(**c));
        for (line, code) in rust.code() {
            if word_offsets(code, "unsafe").next().is_none() {
                continue;
            }
            let said = rust.said_about(line);
            if let Some(name) = safe_crate {
                let message = format!("{name} has no unsafe code");
                findings.push(Finding::new(&file.path, line, RULE, message));
            } else if !said.contains("SAFETY:") && !said.contains("# Safety") {
                let message = "say above it why this is sound (\"// SAFETY: …\")";
                findings.push(Finding::new(&file.path, line, RULE, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn reasoned_unsafe_passes() {
        let tree = sample(&[(
            "crates/engine/src/lib.rs",
            "#![allow(unsafe_code)]\nfn a() {\n    \
             // SAFETY: the descriptor is ours\n    \
             let x =\n        unsafe { f() };\n}\n\
             /// Does.\n///\n/// # Safety\n///\n/// Once.\npub unsafe fn b() {}\n",
        )]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn unsafe_without_reason_or_in_a_safe_crate_is_found() {
        let tree = sample(&[
            (
                "crates/engine/src/a.rs",
                "fn a() {\n    unsafe { f() };\n}\n",
            ),
            (
                "crates/proto/src/b.rs",
                "fn a() {\n    // SAFETY: said\n    unsafe { f() };\n}\n",
            ),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].1, 2);
        assert_eq!(found[1].1, 3);
    }
}
