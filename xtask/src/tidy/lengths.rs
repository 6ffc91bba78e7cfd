//! Functions fit a screen, files are about one thing, and the command line is thin.

use super::Finding;
use super::rust_source::RustSource;
use super::tree::Tree;

const RULE: &str = "lengths";

/// Lines between the braces of a function's body: what a screen shows.
const MAXIMUM_BODY_LINES: usize = 70;

/// Lines of a file outside its tests.
const MAXIMUM_FILE_LINES: usize = 600;

/// The command line, which only parses, calls and renders.
const COMMAND_LINE: &str = "crates/cli/src/";

/// Its lines outside tests. What is added beyond it moves to the crates below.
const MAXIMUM_COMMAND_LINE_LINES: usize = 6_000;

/// A function's length is excused by `// tidy: long because …` above it, a file's by
/// `// tidy: long file because …` anywhere in it, such as below its imports.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut command_line = 0;
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
        if file.path.starts_with(COMMAND_LINE) {
            command_line += lines;
        }
        if lines > MAXIMUM_FILE_LINES && !is_file_excused(rust) {
            let message = format!(
                "{lines} lines without tests, more than {MAXIMUM_FILE_LINES}: a file is about \
                 one thing; cut it, or write \"// tidy: long file because …\" below its imports"
            );
            findings.push(Finding::new(&file.path, 1, RULE, message));
        }
    }
    if command_line > MAXIMUM_COMMAND_LINE_LINES {
        let message = format!(
            "{command_line} lines without tests, more than {MAXIMUM_COMMAND_LINE_LINES}: it only \
             parses, calls and renders; move the rest to crates/transfer or crates/instrument"
        );
        findings.push(Finding::new(COMMAND_LINE, 1, RULE, message));
    }
    findings
}

fn is_excused(rust: &RustSource, line: usize) -> bool {
    let said = rust.said_about(line);
    said.lines()
        .any(|said| is_reason(said, "tidy: long because "))
}

fn is_file_excused(rust: &RustSource) -> bool {
    let mut lines = rust.code().map(|(line, _)| line);
    lines.any(|line| is_reason(rust.comment(line), "tidy: long file because "))
}

fn is_reason(comment: &str, begin: &str) -> bool {
    let reason = comment.strip_prefix(begin);
    reason.is_some_and(|reason| !reason.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines))
    }

    #[test]
    fn short_functions_and_files_pass() {
        let fits = function(MAXIMUM_BODY_LINES);
        let excused = format!(
            "// tidy: long because it is one table\n#[inline]\npub(crate) {}",
            function(MAXIMUM_BODY_LINES + 1)
        );
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(1000));
        let file = "// x\n".repeat(MAXIMUM_FILE_LINES);
        let file = format!("//! About.\n// tidy: long file because it is one table\n\n{file}");
        let tree = sample(&[
            ("a.rs", &fits),
            ("b.rs", &excused),
            ("c.rs", &tests),
            ("d.rs", &file),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_command_line_that_grows_is_found() {
        let files = MAXIMUM_COMMAND_LINE_LINES / MAXIMUM_FILE_LINES + 1;
        let file = "// x\n".repeat(MAXIMUM_FILE_LINES);
        let paths: Vec<String> = (0..files)
            .map(|n| format!("crates/cli/src/{n}.rs"))
            .collect();
        let all: Vec<(&str, &str)> = paths.iter().map(|path| (&**path, &*file)).collect();
        let found = check(&sample(&all));
        let found: Vec<&str> = found.iter().map(|found| &*found.path).collect();
        assert_eq!(found, [COMMAND_LINE]);
        assert_eq!(check(&sample(&all[1..])), []);
    }

    #[test]
    fn long_functions_and_files_are_found() {
        let long = function(MAXIMUM_BODY_LINES + 1);
        let unexcused = format!("// tidy: long because\n{long}");
        let file = "// x\n".repeat(MAXIMUM_FILE_LINES + 1);
        let tree = sample(&[("a.rs", &long), ("b.rs", &unexcused), ("c.rs", &file)]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        let expected = [("a.rs", 1), ("b.rs", 2), ("c.rs", 1)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
