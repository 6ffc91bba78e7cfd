//! The daemon of a demo.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

use super::janitor::Janitor;
use crate::workspace;

/// Maximum time from the start of a daemon to its first line. It makes a key and opens a socket,
/// which takes milliseconds, but the host may be busy.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Maximum time from SIGTERM to the end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A running `longhaul serve`.
pub struct Server {
    process: Child,
    /// Lines of its stdout; closed when it ends.
    lines: Receiver<String>,
    /// Address on which it listens.
    address: String,
    /// Digest of its certificate, as `--fingerprint` takes it.
    pub fingerprint: String,
    /// Owner of the token.
    principal: String,
    /// A file with the token.
    pub token_file: PathBuf,
}

/// The line that a ready daemon prints.
#[derive(Debug, PartialEq, Eq)]
struct Ready {
    listening: String,
    fingerprint: String,
    principal: String,
    token_file: String,
}

impl Ready {
    fn parse(line: &str) -> Result<Ready, String> {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("\"{line}\": {error}"))?;
        let text = |key: &str| match value[key].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("\"{line}\" has no \"{key}\"")),
        };
        Ok(Ready {
            listening: text("listening")?,
            fingerprint: text("fingerprint")?,
            principal: text("principal")?,
            token_file: text("token_file")?,
        })
    }
}

impl Server {
    /// Starts a daemon on loopback that may write below `root`, and waits until it is ready. Its
    /// state is in `directory`; `options` are further options of the command.
    ///
    /// # Errors
    ///
    /// If it does not start, or is not ready in time.
    pub fn start(
        binary: &Path,
        directory: &Path,
        root: &Path,
        options: &[&str],
        janitor: &Janitor,
    ) -> Result<Server, String> {
        Server::start_with_log(binary, directory, root, options, Stdio::inherit(), janitor)
    }

    /// Does the same as [`Server::start`], and writes the log to a file.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_with_log(
        binary: &Path,
        directory: &Path,
        root: &Path,
        options: &[&str],
        log: Stdio,
        janitor: &Janitor,
    ) -> Result<Server, String> {
        let mut process = Command::new(binary)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--write",
                "--print-ready",
            ])
            .args(options)
            .arg("--state")
            .arg(directory.join("server-state"))
            .arg("--root")
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        janitor.started(process.id())?;
        let stdout = process.stdout.take().ok_or("the server has no stdout")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver reads only the first line. Later lines are read here so that the
                // pipe stays empty.
                let _ = sender.send(line);
            }
        });
        let ready = match lines.recv_timeout(READY_WITHIN) {
            Ok(line) => Ready::parse(&line)?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("the server was not ready within {READY_WITHIN:?}"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the server ended before it was ready".to_owned());
            }
        };
        Ok(Server {
            process,
            lines,
            address: ready.listening,
            fingerprint: ready.fingerprint,
            principal: ready.principal,
            token_file: ready.token_file.into(),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Describes the server in one line.
    pub fn describe(&self) -> String {
        format!(
            "server {} listens on {} as {} for {}",
            self.process.id(),
            self.address,
            self.fingerprint,
            self.principal
        )
    }

    /// Returns the URL of a path below its root.
    pub fn url(&self, path: &str) -> String {
        format!("longhaul://{}/{path}", self.address)
    }

    /// Asks it to end, and waits; after [`ENDS_WITHIN`] it is killed.
    ///
    /// # Errors
    ///
    /// If it had to be killed.
    pub fn stop(mut self, janitor: &Janitor) -> Result<(), String> {
        let pid = self.process.id();
        workspace::run(Command::new("kill").args(["-TERM", &pid.to_string()]))?;
        let ended = loop {
            match self.lines.recv_timeout(ENDS_WITHIN) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        if !ended {
            self.process.kill().map_err(|error| error.to_string())?;
        }
        self.process.wait().map_err(|error| error.to_string())?;
        janitor.ended(pid)?;
        if ended {
            return Ok(());
        }
        Err(format!(
            "the server did not end within {ENDS_WITHIN:?} after SIGTERM"
        ))
    }
}

impl Drop for Server {
    /// A previous step failed, so no state needs to be kept.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_ready_line() {
        let line = r#"{"listening":"127.0.0.1:7","fingerprint":"sha256:a","principal":"p",
            "token_file":"t","later":1}"#;
        let ready = Ready::parse(line);
        assert_eq!(
            ready,
            Ok(Ready {
                listening: "127.0.0.1:7".to_owned(),
                fingerprint: "sha256:a".to_owned(),
                principal: "p".to_owned(),
                token_file: "t".to_owned(),
            })
        );
    }

    #[test]
    fn missing_parts_of_a_ready_line_are_named() {
        let error = Ready::parse("{\"listening\":\"x\"}").unwrap_err();
        assert!(error.contains("fingerprint"), "{error}");
        assert!(Ready::parse("listening").is_err());
    }
}
