//! Functions fit a screen, files are about one thing.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "lengths";

/// Lines between the braces of a function's body: what a screen shows.
const MAXIMUM_BODY_LINES: usize = 70;

/// Lines of a file outside its tests.
const MAXIMUM_FILE_LINES: usize = 800;

/// A function's length is excused by `// tidy: long because …` above it.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for function in &rust.functions {
            if function.body_lines <= MAXIMUM_BODY_LINES || is_excused(rust, function.line) {
                continue;
            }
            let message = format!(
                "fn {} has {} lines, more than {MAXIMUM_BODY_LINES}: cut it where its comments \
                 would stand, or write \"// tidy: long because …\" above it",
                function.name, function.body_lines
            );
            findings.push(Finding::new(&file.path, function.line, RULE, message));
        }
        let lines = rust.product_lines();
        if lines > MAXIMUM_FILE_LINES {
            let message = format!(
                "{lines} lines without tests, more than {MAXIMUM_FILE_LINES}: a file is about \
                 one thing"
            );
            findings.push(Finding::new(&file.path, 1, RULE, message));
        }
    }
    findings
}

fn is_excused(rust: &super::rust_source::RustSource, line: usize) -> bool {
    let said = rust.said_about(line);
    said.lines().any(|line| {
        line.strip_prefix("tidy: long because ")
            .is_some_and(|reason| !reason.trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines))
    }

    #[test]
    fn what_fits_passes() {
        let fits = function(MAXIMUM_BODY_LINES);
        let excused = format!(
            "// tidy: long because it is one table\n#[inline]\npub(crate) {}",
            function(MAXIMUM_BODY_LINES + 1)
        );
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(1000));
        let tree = sample(&[("a.rs", &fits), ("b.rs", &excused), ("c.rs", &tests)]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn what_is_too_long_is_found() {
        let long = function(MAXIMUM_BODY_LINES + 1);
        let unexcused = format!("// tidy: long because\n{long}");
        let file = "// x\n".repeat(MAXIMUM_FILE_LINES + 1);
        let tree = sample(&[("a.rs", &long), ("b.rs", &unexcused), ("c.rs", &file)]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        let expected = [("a.rs", 1), ("b.rs", 2), ("c.rs", 1)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
