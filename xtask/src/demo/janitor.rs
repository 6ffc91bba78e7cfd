//! Removes the files and processes of a demo after any end.
//!
//! A shell in a separate process group waits for its stdin to close, which the kernel does even
//! after SIGKILL. Then it ends the processes that were reported to it, and removes the directory.
//! No signal handler is needed, and one mechanism covers all ways of ending.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Reads `started PID` and `ended PID`; 50 times 0.1 s is how long a process
/// may take after SIGTERM.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
running=
while read -r what pid; do
    case $what in
        started) running="$running $pid" ;;
        ended)
            rest=
            for other in $running; do
                [ "$other" = "$pid" ] || rest="$rest $other"
            done
            running=$rest ;;
    esac
done
for pid in $running; do
    kill -TERM "$pid" 2>/dev/null || continue
    tries=0
    while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 50 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -KILL "$pid" 2>/dev/null
done
rm -rf -- "$1"
"#;

/// The waiting shell.
pub struct Janitor {
    shell: Child,
    orders: ChildStdin,
}

impl Janitor {
    /// Begins to watch over a directory, which it will remove.
    ///
    /// # Errors
    ///
    /// If no shell can be started; then the directory is left.
    pub fn start(directory: &Path) -> Result<Janitor, String> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "janitor"])
            .arg(directory)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start sh: {error}"))?;
        let orders = shell.stdin.take().ok_or("sh has no stdin")?;
        Ok(Janitor { shell, orders })
    }

    /// Reports a new process that must not outlive this one.
    ///
    /// # Errors
    ///
    /// If the shell has ended.
    pub fn started(&self, pid: u32) -> Result<(), String> {
        self.order(&format!("started {pid}\n"))
    }

    /// Reports the end of a process, whose number may belong to another one now.
    ///
    /// # Errors
    ///
    /// If the shell has ended.
    pub fn ended(&self, pid: u32) -> Result<(), String> {
        self.order(&format!("ended {pid}\n"))
    }

    /// Runs a command to its end; its output is shown, and it does not outlive
    /// us.
    ///
    /// # Errors
    ///
    /// If it cannot be started or fails.
    pub fn run(&self, command: &mut Command) -> Result<(), String> {
        let mut process = command
            .spawn()
            .map_err(|error| format!("cannot run {command:?}: {error}"))?;
        self.started(process.id())?;
        let status = process.wait().map_err(|error| error.to_string())?;
        self.ended(process.id())?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{command:?}: {status}"))
    }

    /// Cleans up and waits until that is done.
    ///
    /// # Errors
    ///
    /// If the directory could not be removed.
    pub fn finish(mut self) -> Result<(), String> {
        drop(self.orders);
        let status = self.shell.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        Err(format!("cleaning up failed: {status}"))
    }

    fn order(&self, line: &str) -> Result<(), String> {
        (&self.orders)
            .write_all(line.as_bytes())
            .map_err(|error| format!("the janitor is gone: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_processes_and_removes_the_directory() {
        let name = format!("longhaul-janitor-test-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(directory.join("below")).unwrap();
        let janitor = Janitor::start(&directory).unwrap();
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        janitor.started(sleeper.id()).unwrap();
        janitor.started(1_999_999_999).unwrap();
        janitor.ended(1_999_999_999).unwrap();
        let waiting = std::thread::spawn(move || sleeper.wait().unwrap());
        janitor.finish().unwrap();
        assert!(!waiting.join().unwrap().success());
        assert!(!directory.exists());
    }
}
