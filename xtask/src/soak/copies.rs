//! A daemon, copies to and from it, and what both ends took.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Soak;
use crate::demo::janitor::Janitor;
use crate::demo::server::Server;
use crate::workspace;

/// Interval between two readings of a running process. Its peak only grows, so only growth in its
/// last moments can be missed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Kernel ticks in a second, on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Most resident memory (`VmHWM`) in bytes.
    pub peak_bytes: u64,
    /// CPU seconds.
    pub cpu_seconds: f64,
}

impl Usage {
    /// Returns the usage of a process; `None` if it has ended.
    fn of(pid: u32) -> Option<Usage> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak: u64 = line?.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may have spaces; user and system time are the
        // 14th and 15th field, the 12th and 13th after it.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Usage {
            peak_bytes: peak * 1024,
            cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
        })
    }
}

/// A copy that was complete.
pub struct Copied {
    /// The client's last event.
    pub summary: Value,
    /// The client.
    pub client: Usage,
    /// The daemon, which had no other session.
    pub daemon: Usage,
    /// Log of the daemon.
    pub log: String,
    /// Seconds by the clock.
    pub seconds: f64,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the daemon.
    Push,
    /// From the daemon.
    Pull,
}

/// A place for copies, which is removed with what they left.
pub struct Copies {
    binary: PathBuf,
    directory: PathBuf,
    janitor: Janitor,
    /// Further options of its daemons.
    serve: &'static [&'static str],
}

impl Copies {
    /// Uses this binary, in a new directory below that of the soak.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made.
    pub fn new(soak: &Soak, binary: PathBuf) -> Result<Copies, String> {
        let directory = soak
            .directory
            .join(format!("copies-{}", std::process::id()));
        make(&directory)?;
        let janitor = Janitor::start(&directory)?;
        Ok(Copies {
            binary,
            directory,
            janitor,
            serve: &[],
        })
    }

    /// Adds options for the daemons.
    pub fn serving(self, serve: &'static [&'static str]) -> Copies {
        Copies { serve, ..self }
    }

    /// Copies with a separate daemon. `from` and `to` are paths, or endpoints without a disk
    /// (`zero:SIZE`, `null:`). The remote one is beneath the daemon's root.
    ///
    /// # Errors
    ///
    /// If the copy is not complete.
    pub fn copy(
        &self,
        way: Way,
        root: &Path,
        from: &str,
        to: &str,
        options: &[&str],
    ) -> Result<Copied, String> {
        let log = self.directory.join("daemon.log");
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let written = Stdio::from(File::create(&log).map_err(failed)?);
        let server = Server::start_with_log(
            &self.binary,
            &self.directory,
            root,
            self.serve,
            written,
            &self.janitor,
        )?;
        let mut command = Command::new(&self.binary);
        command
            .args(["cp", "-r", "--json", "--fingerprint", &server.fingerprint])
            .arg("--token-file")
            .arg(&server.token_file)
            .args(options)
            .env("LONGHAUL_CONFIG_DIR", &self.directory);
        match way {
            Way::Push => command.arg(from).arg(server.url(to)),
            Way::Pull => command.arg(server.url(from)).arg(to),
        };
        let began = Instant::now();
        let (summary, client) = self.follow(&mut command)?;
        let seconds = began.elapsed().as_secs_f64();
        let daemon = Usage::of(server.pid()).ok_or("the daemon is gone")?;
        server.stop(&self.janitor)?;
        Ok(Copied {
            summary,
            client,
            daemon,
            log: fs::read_to_string(&log).map_err(failed)?,
            seconds,
        })
    }

    /// Runs a client to its end; gives its last event and what it took.
    fn follow(&self, command: &mut Command) -> Result<(Value, Usage), String> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {command:?}: {error}"))?;
        let pid = process.id();
        self.janitor.started(pid)?;
        let output = process.stdout.take().ok_or("no output")?;
        let (ended, last) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // The receiver may have given up.
            let _ = ended.send(lines.last().unwrap_or_default());
        });
        let mut usage = Usage::default();
        let last = loop {
            usage = Usage::of(pid).unwrap_or(usage);
            match last.recv_timeout(LOOK_EVERY) {
                Ok(last) => break last,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("no events".to_owned()),
            }
        };
        let status = process.wait().map_err(|error| error.to_string())?;
        self.janitor.ended(pid)?;
        let summary: Value = serde_json::from_str(&last)
            .map_err(|error| format!("{command:?}: {status}: no summary ({error}): {last}"))?;
        let whole = status.success() && summary["complete"] == true;
        if !whole || summary["failed_entries"] != 0 {
            return Err(format!("{command:?}: {status}: {summary}"));
        }
        Ok((summary, usage))
    }

    /// Removes everything.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn finish(self) -> Result<(), String> {
        self.janitor.finish()
    }

    /// A directory that goes with the others.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn place(&self, name: &str) -> Result<PathBuf, String> {
        let place = self.directory.join(name);
        make(&place)?;
        Ok(place)
    }
}

/// Makes a directory and those above it.
///
/// # Errors
///
/// If that fails.
pub fn make(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

/// Returns the binary that was named, or one built in release with these features. The latter is
/// copied to a place where no later build replaces it. A named binary must have the features.
///
/// # Errors
///
/// If it does not build.
pub fn binary(soak: &Soak, features: &str) -> Result<PathBuf, String> {
    if let Some(named) = &soak.options.binary {
        return Ok(named.clone());
    }
    let mut build = workspace::cargo();
    build.args(["build", "--locked", "--release", "-p", "longhaul"]);
    build.args(["--features", features]);
    workspace::run(&mut build)?;
    let built = workspace::target_directory()?.join("release/longhaul");
    let kept = soak.directory.join(format!("longhaul-{features}"));
    // A binary that still runs cannot be overwritten, but it can be replaced.
    let _ = fs::remove_file(&kept);
    fs::copy(&built, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_process_is_read() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_bytes > 100_000);
        assert_eq!(Usage::of(u32::MAX), None);
    }
}
