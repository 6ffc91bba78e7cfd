//! All measurements: this project's own loops, standard tools that do the same, and copies.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::samples::Sample;
use crate::demo::janitor::Janitor;
use crate::demo::server::Server;
use crate::workspace;

/// Bytes of one large file, and of a piece.
const LARGE_BYTES: u64 = 1 << 30;

/// Large files of the dataset: 4 GiB.
const LARGE_FILES: u64 = 4;

/// Small files of the other dataset.
const SMALL_FILES: u64 = 20_000;

/// Bytes of a small file, as in the example.
const SMALL_BYTES: u64 = 4096;

/// More than any host needs for a copy of the large dataset.
const LONGEST_COPY_SECONDS: &str = "180";

/// The program that does a work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `examples/pieces.rs`.
    Own,
    /// A standard tool.
    Tool,
    /// `longhaul cp`: source, destination, and whether in TLS.
    Copy(&'static str, &'static str, bool),
}

/// A measurement.
pub struct Work {
    /// Its name in the record.
    pub name: &'static str,
    /// The program that does it.
    pub kind: Kind,
}

const fn own(name: &'static str) -> Work {
    let kind = Kind::Own;
    Work { name, kind }
}

const fn tool(name: &'static str) -> Work {
    let kind = Kind::Tool;
    Work { name, kind }
}

/// A round, in its order.
pub const ALL: &[Work] = &[
    own("read"),
    tool("fio-read"),
    own("digest"),
    tool("b3sum"),
    own("socket"),
    tool("iperf3"),
    own("tls"),
    tool("openssl"),
    own("write"),
    tool("fio-write"),
    own("sync"),
    own("create"),
    Work {
        name: "zero-clear",
        kind: Kind::Copy("zero:4GiB", "null:", false),
    },
    Work {
        name: "zero-tls",
        kind: Kind::Copy("zero:4GiB", "null:", true),
    },
    Work {
        name: "files-clear",
        kind: Kind::Copy("source/", "copy", false),
    },
    Work {
        name: "files-tls",
        kind: Kind::Copy("source/", "copy", true),
    },
    Work {
        name: "small-tls",
        kind: Kind::Copy("small/", "copy", true),
    },
];

/// The environment of the measurements.
pub struct Bench<'a> {
    release: &'a Path,
    directory: &'a Path,
    received: PathBuf,
    server: Server,
    /// Copies of files made so far.
    copies: Cell<u64>,
}

impl Bench<'_> {
    /// Writes the datasets, touches them, starts the daemon.
    ///
    /// # Errors
    ///
    /// If there is no room, or the daemon does not start.
    pub fn prepare<'a>(
        release: &'a Path,
        directory: &'a Path,
        janitor: &Janitor,
    ) -> Result<Bench<'a>, String> {
        let received = directory.join("received");
        fs::create_dir(&received).map_err(|error| format!("{}: {error}", received.display()))?;
        write_datasets(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let binary = release.join("longhaul");
        let options = ["--allow-clear"];
        let server = Server::start(&binary, directory, &received, &options, janitor)?;
        Ok(Bench {
            release,
            directory,
            received,
            server,
            copies: Cell::new(0),
        })
    }

    /// Ends the daemon.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub fn stop(self, janitor: &Janitor) -> Result<(), String> {
        self.server.stop(janitor)
    }

    /// Runs one repetition; `None` if the tool is not installed.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub fn run(&self, work: &Work, janitor: &Janitor) -> Result<Option<Sample>, String> {
        match work.kind {
            Kind::Own => self.run_own(work.name).map(Some),
            Kind::Tool => self.run_tool(work.name),
            Kind::Copy(from, to, tls) => self.copy(from, to, tls, janitor).map(Some),
        }
    }

    fn run_own(&self, name: &str) -> Result<Sample, String> {
        let bytes = match name {
            "create" => SMALL_FILES * SMALL_BYTES,
            _ => LARGE_BYTES,
        };
        self.example(name, bytes)
    }

    fn example(&self, piece: &str, bytes: u64) -> Result<Sample, String> {
        let mut command = Command::new(self.release.join("examples/pieces"));
        command
            .arg(piece)
            .arg(self.directory)
            .arg(bytes.to_string());
        let line = workspace::output_of(&mut command)?;
        let value = serde_json::from_str(&line).map_err(|error| format!("\"{line}\": {error}"))?;
        Sample::parse(&value)
    }

    fn run_tool(&self, name: &str) -> Result<Option<Sample>, String> {
        let program = name.split('-').next().unwrap_or(name);
        if !is_installed(program) {
            return Ok(None);
        }
        let mut command = Command::new(program);
        command.current_dir(self.directory);
        let fio = [
            "--name=piece",
            "--bs=1M",
            "--ioengine=psync",
            "--size=1G",
            "--thread",
            "--minimal",
        ];
        match name {
            "fio-read" => command
                .args(fio)
                .args(["--rw=read", "--filename=source/large-0", "--invalidate=0"])
                .arg("--readonly"),
            "fio-write" => command
                .args(fio)
                .args(["--rw=write", "--filename=piece", "--fallocate=none"])
                .arg("--unlink=1"),
            "b3sum" => command.args(["--num-threads", "1", "source/large-0"]),
            "openssl" => return self.run_openssl(command).map(Some),
            _ => return self.run_iperf3(command).map(Some),
        };
        let (sample, _) = timed(LARGE_BYTES, || workspace::output_of(&mut command))?;
        Ok(Some(sample))
    }

    /// Encrypts for one second. Decryption of a byte costs the same.
    fn run_openssl(&self, mut command: Command) -> Result<Sample, String> {
        command.args(["speed", "-mr", "-seconds", "1", "-bytes", "16384"]);
        command.args(["-evp", "aes-128-gcm"]).stderr(Stdio::null());
        let text = workspace::output_of(&mut command)?;
        let rate = text
            .lines()
            .find(|line| line.starts_with("+F:"))
            .and_then(|line| line.rsplit(':').next()?.parse::<f64>().ok())
            .ok_or_else(|| format!("openssl printed no rate: {text}"))?;
        Ok(Sample {
            bytes: rate,
            wall: 1.0,
            cpu: 2.0,
        })
    }

    fn run_iperf3(&self, mut client: Command) -> Result<Sample, String> {
        // This is not the default port, on which another server may listen.
        let port = ["--port", "52017"];
        let bytes = LARGE_BYTES.to_string();
        let (sample, ()) = timed(LARGE_BYTES, || {
            let mut server = Command::new("iperf3")
                .args(["--server", "--one-off", "--bind", "127.0.0.1"])
                .args(port)
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| format!("iperf3: {error}"))?;
            client.args(["--client", "127.0.0.1", "--length", "1M"]);
            client.args(["--bytes", &bytes]).args(port);
            // The server listens within moments. The client tries again if it was too early.
            let mut done = workspace::output_of(&mut client);
            for _ in 0..200 {
                if done.is_ok() {
                    break;
                }
                done = workspace::output_of(&mut client);
            }
            if done.is_err() {
                // The server ends only after a client.
                let _ = server.kill();
            }
            server.wait().map_err(|error| format!("iperf3: {error}"))?;
            done.map(drop)
        })?;
        Ok(sample)
    }

    fn copy(&self, from: &str, to: &str, tls: bool, janitor: &Janitor) -> Result<Sample, String> {
        let large = LARGE_FILES * LARGE_BYTES;
        let bytes = if from == "small/" {
            SMALL_FILES * SMALL_BYTES
        } else {
            large
        };
        let mut place = to.to_owned();
        if to == "copy" {
            // No small files are removed before the end, see `local_writer`.
            let number = self.copies.get();
            self.copies.set(number + 1);
            let _ = fs::remove_dir_all(self.received.join("copy"));
            if from == "small/" {
                place = format!("small-{number}");
            }
            // The destination's pages were just given back: on a virtual machine
            // to the host, from which the copy would have to take them one by one.
            self.example("touch", bytes)?;
        }
        let security = ["--data-security", if tls { "tls" } else { "clear" }];
        copy(
            &self.release.join("longhaul"),
            self.directory,
            &self.server,
            [from, &place],
            &security,
            bytes,
            janitor,
        )
    }
}

/// Copies a tree to a daemon; the CPU time is both ends'.
///
/// # Errors
///
/// If it fails.
pub(super) fn copy(
    binary: &Path,
    directory: &Path,
    server: &Server,
    [from, to]: [&str; 2],
    options: &[&str],
    bytes: u64,
    janitor: &Janitor,
) -> Result<Sample, String> {
    // A copy that hangs is a finding, not a reason to wait.
    let mut command = Command::new("timeout");
    command
        .arg(LONGEST_COPY_SECONDS)
        .arg(binary)
        .current_dir(directory)
        .args(["cp", "--quiet", "--recursive"])
        .args(["--fingerprint", &server.fingerprint])
        .arg("--token-file")
        .arg(&server.token_file)
        .args(options)
        .args([from, &server.url(to)])
        .env("XDG_STATE_HOME", directory.join("client-state"))
        .env("XDG_CONFIG_HOME", directory.join("client-config"));
    let before = cpu_of(&server.pid().to_string())?.0;
    let (mut sample, ()) = timed(bytes, || janitor.run(&mut command))?;
    sample.cpu += cpu_of(&server.pid().to_string())?.0 - before;
    Ok(sample)
}

/// Times work whose processes are children that were waited for.
fn timed<T>(bytes: u64, work: impl FnOnce() -> Result<T, String>) -> Result<(Sample, T), String> {
    let (began, before) = (Instant::now(), cpu_of("self")?.1);
    let result = work()?;
    let sample = Sample {
        bytes: bytes as f64,
        wall: began.elapsed().as_secs_f64(),
        cpu: cpu_of("self")?.1 - before,
    };
    Ok((sample, result))
}

/// CPU seconds of a process, and of its children that ended.
///
/// # Errors
///
/// If there is no such process.
pub(super) fn cpu_of(pid: &str) -> Result<(f64, f64), String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // The second field is a name that may hold spaces; it ends in ")".
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: Vec<f64> = fields
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    match ticks.as_slice() {
        // Linux has always shown 100 ticks a second to user space.
        [user, system, child_user, child_system] => {
            Ok(((user + system) / 100.0, (child_user + child_system) / 100.0))
        }
        _ => Err(format!("{path} has another form: {text}")),
    }
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(program).is_file())
}

/// Bytes that neither compress nor repeat.
fn write_datasets(directory: &Path) -> std::io::Result<()> {
    fs::create_dir(directory.join("source"))?;
    let mut state = 1_u64;
    let mut block = vec![0; 1 << 20];
    for index in 0..LARGE_FILES {
        let mut file = File::create(directory.join(format!("source/large-{index}")))?;
        for _ in 0..LARGE_BYTES >> 20 {
            for word in block.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            file.write_all(&block)?;
        }
        file.sync_all()?;
    }
    for index in 0..SMALL_FILES {
        let folder = directory.join(format!("small/{}", index / 1000));
        fs::create_dir_all(&folder)?;
        let start = index as usize % 256 * 8;
        let data = &block[start..start + SMALL_BYTES as usize];
        fs::write(folder.join(index.to_string()), data)?;
    }
    Ok(())
}
