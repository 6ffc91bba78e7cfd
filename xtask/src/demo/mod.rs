//! Copies a real tree over TLS, across an emulated wide-area path on this host, and verifies and
//! counts it. If the system does not permit the emulated path, the demo uses loopback and reports
//! it. All files are in one temporary directory, which is removed after any end.
//!
//! - [`sources`]: the trees to copy
//! - [`server`]: the daemon on loopback, from its first line to its end
//! - [`janitor`]: removes all leftovers, even after SIGKILL

pub(crate) mod janitor;
pub(crate) mod server;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::workspace;
use janitor::Janitor;
use server::Server;
use sources::Sources;

/// Room beyond the data itself: journal, directories, rounding to blocks.
const SPARE_BYTES: u64 = 512_000_000;

/// Space for a small file beyond its size, with blocks of 4096 bytes.
const OVERHEAD_PER_FILE: u64 = 4096;

/// The path between both ends: a continent, and what a laptop can fill.
const PATH: &str = "rtt=100ms,rate=1gbit";

/// Shows what `make demo` promises.
///
/// # Errors
///
/// If the binary is missing, there is too little room, or any step fails.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no argument, so no \"{argument}\""));
    }
    let binary = workspace::target_directory()?.join("demo/longhaul");
    if !binary.is_file() {
        return Err(format!(
            "{} is missing: run \"make demo\", which builds it",
            binary.display()
        ));
    }
    let sources = Sources::choose()?;
    println!("demo: copying {}", sources.describe());
    let directory = temporary_directory()?;
    let janitor = Janitor::start(&directory)?;
    check_room(&directory, &sources)?;
    let outcome = copy_and_verify(&binary, &directory, &sources, &janitor);
    janitor.finish()?;
    println!("demo: {}", outcome?);
    Ok(())
}

/// A new directory below `TMPDIR`.
fn temporary_directory() -> Result<PathBuf, String> {
    let name = format!("longhaul-demo-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory)
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    Ok(directory)
}

fn check_room(directory: &Path, sources: &Sources) -> Result<(), String> {
    let needed = sources.total.bytes + sources.total.files * OVERHEAD_PER_FILE + SPARE_BYTES;
    let free = df_column(directory, "avail")? * 1024;
    if free < needed {
        return Err(format!(
            "{} has {} MB free and {} MB are needed: name a roomier place in TMPDIR",
            directory.display(),
            free / 1_000_000,
            needed / 1_000_000
        ));
    }
    let inodes = df_column(directory, "iavail")?;
    // Some file systems make inodes as they need them, and say 0.
    if inodes != 0 && inodes < sources.total.files * 2 {
        return Err(format!(
            "{} has {inodes} inodes free: name another place in TMPDIR",
            directory.display()
        ));
    }
    Ok(())
}

/// Returns one number of `df` about a directory's file system; sizes in KiB.
fn df_column(directory: &Path, column: &str) -> Result<u64, String> {
    let text = workspace::output_of(
        Command::new("df")
            .args(["--block-size=1024", &format!("--output={column}")])
            .arg(directory),
    )?;
    let value = text.lines().nth(1).map_or("", str::trim);
    // "-" where the file system has no such number.
    Ok(value.parse().unwrap_or(0))
}

/// Copies and verifies; gives the summary.
fn copy_and_verify(
    binary: &Path,
    directory: &Path,
    sources: &Sources,
    janitor: &Janitor,
) -> Result<String, String> {
    let received = directory.join("received");
    std::fs::create_dir(&received).map_err(|error| format!("{}: {error}", received.display()))?;
    let way = Way::find(binary, directory, &received, janitor)?;
    println!("demo: {}", way.describe());
    let client = Client { binary, directory };
    let destination = match &way {
        Way::Lab => received.join("dst").display().to_string(),
        Way::Loopback(server, _) => server.url("dst"),
    };

    let began = Instant::now();
    let mut copy = client.command("cp", &way);
    if let Way::Lab = way {
        copy.args(["--lab", PATH]);
    }
    copy.arg("-r").args(&sources.roots).arg(&destination);
    janitor.run(&mut copy)?;
    let copied = began.elapsed();

    let began = Instant::now();
    for root in &sources.roots {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let mut verify = client.command("verify", &way);
        verify.arg(root).arg(format!("{destination}/{name}"));
        janitor.run(&mut verify)?;
    }
    let verified = began.elapsed();

    let across = way.name();
    if let Way::Loopback(server, _) = way {
        server.stop(janitor)?;
    }
    let arrived = sources::measure(&received.join("dst"));
    if arrived != sources.total {
        return Err(format!(
            "sent {}, but the destination holds {arrived}",
            sources.total
        ));
    }
    Ok(format!(
        "{arrived} over TLS across {across} in {}; verified in {:.1} s",
        pace(arrived.bytes, copied),
        verified.as_secs_f64()
    ))
}

/// Path of the data from one end to the other.
enum Way {
    /// Across an emulated wide area.
    Lab,
    /// To a daemon on this host, with the reason why a lab is not possible.
    Loopback(Box<Server>, String),
}

impl Way {
    /// A lab where the system permits one.
    fn find(
        binary: &Path,
        directory: &Path,
        received: &Path,
        janitor: &Janitor,
    ) -> Result<Way, String> {
        let mut trial = Command::new(binary);
        trial.args(["lab", "run", "--quiet", "--", "true"]);
        let output = trial
            .output()
            .map_err(|error| format!("cannot run {trial:?}: {error}"))?;
        if output.status.success() {
            return Ok(Way::Lab);
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let server = Server::start(binary, directory, received, &[], janitor)?;
        Ok(Way::Loopback(Box::new(server), why))
    }

    /// Returns a short name of the path.
    fn name(&self) -> &'static str {
        match self {
            Way::Lab => PATH,
            Way::Loopback(..) => "loopback",
        }
    }

    /// Describes the path in one line.
    fn describe(&self) -> String {
        match self {
            Way::Lab => format!("both ends in a lab, {PATH} between them"),
            Way::Loopback(server, why) => format!(
                "over LOOPBACK, not across a wide area, since this system permits no lab: \
                 {why}\ndemo: {}",
                server.describe()
            ),
        }
    }
}

/// Time, and bytes over time.
fn pace(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let rate = bytes as f64 / 1e6 / seconds.max(1e-9);
    format!("{seconds:.1} s ({rate:.0} MB/s)")
}

/// Runs `longhaul` as a user.
struct Client<'a> {
    binary: &'a Path,
    directory: &'a Path,
}

impl Client<'_> {
    /// Returns a command that does not change the user's own state. With a daemon, it has the
    /// daemon's key and a token.
    fn command(&self, name: &str, way: &Way) -> Command {
        let mut command = Command::new(self.binary);
        command
            .arg(name)
            .env("XDG_STATE_HOME", self.directory.join("client-state"))
            .env("XDG_CONFIG_HOME", self.directory.join("client-config"));
        if let Way::Loopback(server, _) = way {
            command
                .args(["--fingerprint", &server.fingerprint])
                .arg("--token-file")
                .arg(&server.token_file);
        }
        command
    }
}
