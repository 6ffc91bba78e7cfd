//! Runs every test of the workspace, also after one has failed, and ends with one list of what
//! failed and one of what was skipped.
//!
//! Cargo prints the outcome of each test binary where it ran, pages apart. A reader of a long log
//! wants them together at its end.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::process::Command;

use crate::workspace;

/// Binaries that the summary names as slow, at most.
const SLOWEST_SHOWN: usize = 8;

/// What takes less seconds is no reason for a long run.
const WORTH_A_LINE: f64 = 10.0;

/// `cargo xtask test`: further arguments go to `cargo test`.
///
/// # Errors
///
/// Where cargo cannot be run, a test failed, or something did not compile.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut command = workspace::cargo();
    command.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
    command.args(arguments);
    let mut seen = Seen::default();
    let succeeded = shown(&mut command, |line| seen.read(line))
        .map_err(|error| format!("cannot run cargo test: {error}"))?;
    print!("{}", seen.summary());
    if succeeded {
        return Ok(());
    }
    Err(match seen.failed.len() {
        0 => "cargo test failed before any test did: see above".to_owned(),
        _ => "some tests failed: they are listed above".to_owned(),
    })
}

/// Runs a command and shows what it prints on both of its outputs; each line is given to `read`.
fn shown(command: &mut Command, mut read: impl FnMut(&str)) -> io::Result<bool> {
    let (output, input) = io::pipe()?;
    command.stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn()?;
    // Its copies of the pipe's end would keep the pipe open.
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null());
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        read(text.trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// What the lines of `cargo test` said so far.
#[derive(Default)]
struct Seen {
    /// The test binary whose tests run now, as cargo names it.
    binary: String,
    passed: u64,
    /// Binary and test; a binary alone where it ended without naming a test.
    failed: BTreeSet<(String, String)>,
    /// Test and reason.
    skipped: BTreeSet<String>,
    /// Seconds that each binary took, and which it was.
    took: Vec<(f64, String)>,
}

impl Seen {
    fn read(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(binary) = trimmed.strip_prefix("Running ") {
            self.binary = binary.split(" (").next().unwrap_or(binary).to_owned();
        } else if let Some(documented) = trimmed.strip_prefix("Doc-tests ") {
            self.binary = format!("documentation of {documented}");
        } else if let Some(seconds) = duration(line) {
            self.took.push((seconds, self.binary.clone()));
        } else if let Some((_, skipped)) = line.split_once("skipped: ") {
            self.skipped.insert(skipped.to_owned());
        } else if let Some(test) = outcome(line, "FAILED") {
            self.failed.insert((self.binary.clone(), test.to_owned()));
        } else if outcome(line, "ok").is_some() {
            self.passed += 1;
        } else if line.starts_with("error: test failed")
            || line.starts_with("error: doctest failed")
        {
            self.binary_failed();
        }
    }

    /// A binary that failed names its tests, unless it was ended by a signal.
    fn binary_failed(&mut self) {
        let named = self.failed.iter().any(|(binary, _)| *binary == self.binary);
        if !named {
            let test = "ended without naming a test that failed".to_owned();
            self.failed.insert((self.binary.clone(), test));
        }
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "\ntests: {} passed, {} failed, {} skipped\n",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        );
        let mut took = self.took.clone();
        took.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let slow = took.iter().take(SLOWEST_SHOWN);
        for (seconds, binary) in slow.filter(|(seconds, _)| *seconds >= WORTH_A_LINE) {
            text += &format!("slow: {binary}: {seconds:.0} s\n");
        }
        for skipped in &self.skipped {
            text += &format!("skipped: {skipped}\n");
        }
        for (binary, test) in &self.failed {
            text += &format!("failed: {binary}: {test}\n");
        }
        text
    }
}

/// How long a binary took, from the line that ends its tests.
fn duration(line: &str) -> Option<f64> {
    let (_, seconds) = line
        .strip_prefix("test result: ")?
        .rsplit_once("finished in ")?;
    seconds.strip_suffix('s')?.parse().ok()
}

/// The test that a line of the harness gives this outcome.
fn outcome<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (test, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    (outcome == word).then_some(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &str) -> Seen {
        let mut seen = Seen::default();
        for line in lines.lines() {
            seen.read(line);
        }
        seen
    }

    #[test]
    fn failures_of_several_binaries_are_listed_together() {
        let seen = seen(
            "     Running unittests src/lib.rs (target/debug/deps/a-1)\n\
             test one ... ok\n\
             test two ... FAILED\n\
             error: test failed, to rerun pass `-p a --lib`\n\
             \x20    Running tests/b.rs (target/debug/deps/b-2)\n\
             skipped: three: it needs root\n\
             test three ... ok\n\
             error: test failed, to rerun pass `-p a --test b`\n\
             test result: FAILED. 1 passed; 1 failed; finished in 12.34s\n\
             \x20  Doc-tests a\n\
             test src/lib.rs - f (line 3) ... FAILED\n\
             error: doctest failed, to rerun pass `-p a --doc`\n",
        );
        assert_eq!(
            seen.summary(),
            "\ntests: 2 passed, 3 failed, 1 skipped\n\
             slow: tests/b.rs: 12 s\n\
             skipped: three: it needs root\n\
             failed: documentation of a: src/lib.rs - f (line 3)\n\
             failed: tests/b.rs: ended without naming a test that failed\n\
             failed: unittests src/lib.rs: two\n"
        );
    }

    #[test]
    fn output_of_both_kinds_is_read_to_its_end() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; printf three; exit 1"]);
        let succeeded = shown(&mut command, |line| lines.push(line.to_owned())).unwrap();
        assert!(!succeeded);
        assert_eq!(lines, ["one", "two", "three"]);
    }
}
