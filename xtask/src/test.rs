//! Runs every test of the workspace, also after one has failed, and ends with one list of what
//! failed and one of what was skipped.
//!
//! Two test binaries run at a time, one of each [`Lane`]: tests that mostly wait run beside those
//! that compute. Each one's output is shown whole. Cargo would run the binaries one after another,
//! and print what failed pages apart.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::workspace;

/// Tests of a lane that run at a time, for each processor.
const WAITING_TESTS: usize = 4;
const COMPUTING_TESTS: usize = 2;

/// Niceness of the tests of [`Lane::Computing`], so that they yield to those of the other lane
/// (`nice -n`).
const NICENESS: &str = "5";

/// The variable for the number of tests of a binary that run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// Time limit for the tests of a binary: several times what the slowest takes on a busy host.
const BINARY_ENDS_WITHIN: Duration = Duration::from_secs(1200);

/// Time without output after which a binary that has ended is no longer read.
const LOOKS_EVERY: Duration = Duration::from_secs(10);

/// Binaries that the summary names as slow, at most.
const SLOWEST_SHOWN: usize = 8;

/// Seconds below which a binary is not listed as slow.
const WORTH_A_LINE: f64 = 10.0;

/// `cargo xtask test`: with arguments it runs one `cargo test`, one binary after another.
///
/// # Errors
///
/// If cargo cannot be run, a test failed, or a target did not compile.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut seen = Seen::default();
    let succeeded = match arguments {
        [] => {
            let binaries = built().map_err(|error| format!("cannot run cargo test: {error}"))?;
            let binaries = binaries.ok_or("cargo test failed before any test did: see above")?;
            let passed = in_lanes(binaries, &mut seen, outcome_of, &mut io::stdout());
            // These are compiled by rustdoc, and have no binary.
            documentation(&mut seen)? && passed
        }
        _ => cargo_test(arguments, &mut seen)?,
    };
    print!("{}", seen.summary());
    if succeeded {
        return Ok(());
    }
    Err(match seen.failed.len() {
        0 => "cargo test failed before any test did: see above".to_owned(),
        _ => "some tests failed: they are listed above".to_owned(),
    })
}

fn documentation(seen: &mut Seen) -> Result<bool, String> {
    cargo_test(&["--doc".to_owned()], seen)
}

fn cargo_test(arguments: &[String], seen: &mut Seen) -> Result<bool, String> {
    let mut command = workspace::cargo();
    command.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
    command.args(arguments);
    shown(&mut command, |line| seen.read(line))
        .map_err(|error| format!("cannot run cargo test: {error}"))
}

/// A test binary.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    /// Name in the output of cargo: `tests/a.rs`, `unittests src/lib.rs`.
    name: String,
    /// Directory in which cargo runs it.
    package: PathBuf,
    executable: PathBuf,
}

/// Binaries of one lane run one after another, beside those of the other lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Tests that start processes and wait for them, for logins and for long paths.
    Waiting,
    /// Tests that use the processor all the time.
    Computing,
}

impl Binary {
    fn lane(&self) -> Lane {
        let starts_processes = self.package.ends_with("crates/cli");
        if starts_processes && self.name.starts_with("tests/") {
            Lane::Waiting
        } else {
            Lane::Computing
        }
    }
}

/// Builds all of them. Returns `None` if a target did not compile, which cargo has reported.
fn built() -> io::Result<Option<Vec<Binary>>> {
    let mut command = workspace::cargo();
    command.args(["test", "--locked", "--workspace", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut binaries = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            binaries.extend(binary(&line?));
        }
    }
    Ok(child.wait()?.success().then_some(binaries))
}

/// Returns the test binary that one of cargo's messages describes.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let package = Path::new(message["manifest_path"].as_str()?).parent()?;
    let source = Path::new(message["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(package).unwrap_or(source).display();
    let name = match message["target"]["kind"][0].as_str()? {
        "test" | "bench" => source.to_string(),
        _ => format!("unittests {source}"),
    };
    Some(Binary {
        name,
        package: package.to_owned(),
        executable: executable.into(),
    })
}

/// Runs them with `run`, which gives what one printed and whether it passed; whether all did.
fn in_lanes(
    binaries: Vec<Binary>,
    seen: &mut Seen,
    run: impl Fn(&Binary) -> (Vec<u8>, bool) + Sync,
    output: &mut (impl Write + Send),
) -> bool {
    let (waiting, computing): (Vec<_>, Vec<_>) = binaries
        .into_iter()
        .partition(|binary| binary.lane() == Lane::Waiting);
    let told = Mutex::new((seen, output, true));
    std::thread::scope(|scope| {
        for lane in [waiting, computing] {
            scope.spawn(|| {
                for binary in lane {
                    let (printed, passed) = run(&binary);
                    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                    let (seen, output, all) = &mut *told;
                    seen.read_binary(&binary.name, &printed, passed);
                    *all &= passed;
                    // The tests ran even if their output cannot be shown.
                    let _ = output.write_all(&printed);
                }
            });
        }
    });
    told.into_inner().unwrap_or_else(PoisonError::into_inner).2
}

/// Returns the output of a test binary below its name, and true if its tests passed.
fn outcome_of(binary: &Binary) -> (Vec<u8>, bool) {
    let (mut command, tests) = match binary.lane() {
        Lane::Waiting => (Command::new(&binary.executable), WAITING_TESTS),
        Lane::Computing => {
            let mut command = Command::new("nice");
            command.args(["-n", NICENESS]).arg(&binary.executable);
            (command, COMPUTING_TESTS)
        }
    };
    if std::env::var_os(THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env(THREADS, (processors * tests).to_string());
    }
    command.current_dir(&binary.package).stdin(Stdio::null());
    command.env("CARGO_MANIFEST_DIR", &binary.package);
    let mut output = format!("     Running {}\n", binary.name).into_bytes();
    let ran = collected(&mut command, &mut output, BINARY_ENDS_WITHIN);
    let passed = ran.unwrap_or_else(|error| {
        output.extend(format!("cannot run it: {error}\n").bytes());
        false
    });
    (output, passed)
}

/// Runs a command and adds what it prints on both of its outputs. A command that takes longer than
/// `limit` is killed, and fails.
fn collected(command: &mut Command, output: &mut Vec<u8>, limit: Duration) -> io::Result<bool> {
    let (mut end, input) = io::pipe()?;
    command.stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn()?;
    // Its copies of the pipe's end would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, printed) = mpsc::channel();
    // A process that a test left behind may hold the pipe for ever, and this thread with it.
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = end.read(&mut buffer)
            && sender.send(buffer[..count].to_vec()).is_ok()
        {}
    });
    let until = Instant::now() + limit;
    loop {
        match printed.recv_timeout(LOOKS_EVERY) {
            Ok(bytes) => output.extend(bytes),
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait()?.success()),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    output.extend(b"a process that a test started still runs\n");
                    return Ok(status.success());
                }
            }
        }
        if Instant::now() > until {
            let seconds = limit.as_secs();
            output.extend(format!("\nthis binary was killed after {seconds} s\n").bytes());
            // Its end is not waited for: a dead file system can hold a process even then.
            child.kill()?;
            return Ok(false);
        }
    }
}

/// Runs a command and shows what it prints on both of its outputs; each line is given to `read`.
fn shown(command: &mut Command, mut read: impl FnMut(&str)) -> io::Result<bool> {
    let (output, input) = io::pipe()?;
    command.stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn()?;
    // Its copies of the pipe's end would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
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

/// Results in the output of `cargo test` so far.
#[derive(Default)]
struct Seen {
    /// The test binary whose tests run now, by cargo's name.
    binary: String,
    passed: u64,
    /// Tests of the binary that have run for a minute.
    slow: BTreeSet<String>,
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
        } else if let Some(test) = still_running(line) {
            self.slow.insert(test.to_owned());
        } else if let Some(test) = outcome(line, "FAILED") {
            self.slow.remove(test);
            self.failed.insert((self.binary.clone(), test.to_owned()));
        } else if let Some(test) = outcome(line, "ok") {
            self.slow.remove(test);
            self.passed += 1;
        } else if line.starts_with("error: test failed")
            || line.starts_with("error: doctest failed")
        {
            self.binary_failed();
        }
    }

    /// Reads all that a binary printed.
    fn read_binary(&mut self, name: &str, output: &[u8], passed: bool) {
        name.clone_into(&mut self.binary);
        for line in String::from_utf8_lossy(output).lines() {
            self.read(line);
        }
        // A test may have printed a line that looks like the name of another one.
        name.clone_into(&mut self.binary);
        let slow = std::mem::take(&mut self.slow);
        if !passed {
            for test in slow {
                let test = format!("{test} (did not end)");
                self.failed.insert((self.binary.clone(), test));
            }
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

/// Returns the duration of a binary from the line that ends its tests.
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

/// The test that the harness reports as still running.
fn still_running(line: &str) -> Option<&str> {
    let test = line.strip_prefix("test ")?;
    test.strip_suffix(" has been running for over 60 seconds")
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
    fn test_binaries_are_read_from_cargos_messages() {
        let message = |kind: &str, source: &str, is_test: bool| {
            let message = serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/w/a/Cargo.toml",
                "target": { "kind": [kind], "src_path": format!("/w/a/{source}") },
                "profile": { "test": is_test }, "executable": "/w/target/a-1",
            });
            binary(&message.to_string()).map(|found| found.name)
        };
        let lib = message("lib", "src/lib.rs", true);
        assert_eq!(lib.as_deref(), Some("unittests src/lib.rs"));
        let test = message("test", "tests/b/main.rs", true);
        assert_eq!(test.as_deref(), Some("tests/b/main.rs"));
        assert_eq!(message("bin", "src/main.rs", false), None);
        assert_eq!(binary("no message"), None);
    }

    #[test]
    fn tests_of_commands_wait_and_all_others_compute() {
        let lane = |package: &str, name: &str| {
            let (name, package) = (name.to_owned(), package.into());
            let executable = PathBuf::new();
            let binary = Binary {
                name,
                package,
                executable,
            };
            binary.lane()
        };
        assert_eq!(lane("/w/crates/cli", "tests/hosts/main.rs"), Lane::Waiting);
        let unit = lane("/w/crates/cli", "unittests src/main.rs");
        assert_eq!(unit, Lane::Computing);
        let other = lane("/w/crates/engine", "tests/all/main.rs");
        assert_eq!(other, Lane::Computing);
    }

    #[test]
    fn binaries_run_in_parallel_and_are_reported_one_by_one() {
        let binary = |name: &str| Binary {
            name: name.to_owned(),
            package: if name == "tests/b" {
                "/crates/cli"
            } else {
                "/"
            }
            .into(),
            executable: "/bin/sh".into(),
        };
        let script = |binary: &Binary| {
            let script = match &*binary.name {
                "a" => "echo 'test one ... ok'; echo 'test two ... FAILED' >&2; exit 1",
                "tests/b" => "echo 'test three ... ok'; kill -9 $$",
                "slow" => "echo 'test five has been running for over 60 seconds'; exec sleep 60",
                _ => "echo 'test four ... ok'",
            };
            let mut output = Vec::new();
            let mut command = Command::new(&binary.executable);
            let limit = match &*binary.name {
                "slow" => Duration::ZERO,
                _ => BINARY_ENDS_WITHIN,
            };
            let ran = collected(command.args(["-c", script]), &mut output, limit);
            (output, ran.unwrap())
        };
        let (mut seen, mut shown) = (Seen::default(), Vec::new());
        let binaries = ["a", "tests/b", "c", "slow"].map(binary).into();
        assert!(!in_lanes(binaries, &mut seen, script, &mut shown));
        assert_eq!(
            seen.summary(),
            "\ntests: 3 passed, 3 failed, 0 skipped\n\
             failed: a: two\n\
             failed: slow: five (did not end)\n\
             failed: tests/b: ended without naming a test that failed\n"
        );
        assert!(in_lanes(
            vec![binary("d")],
            &mut Seen::default(),
            script,
            &mut shown
        ));
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
