//! Collects facts through the shell of this host or of the remote host, and reads its clock.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_transfer::console::{one_line, pass_on};
use longhaul_transfer::ssh::command::{RELEASE, Start, quoted};
use longhaul_transfer::ssh::process::{Hearing, Login, SshProcess, output_within};
use longhaul_transfer::ssh::remote_end::was_refused;
use longhaul_transfer::stop::{Exit, Stop};

use super::findings::{Known, Lead};
use super::host::{FACT, HostFacts, READY, script};

/// Maximum number of bytes that a shell may print.
const MOST_ANSWER_BYTES: u64 = 256 << 10;

/// Timeout for a login without questions, and for the shell.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// Returns the facts reported by this host's shell.
pub(super) fn facts_here(path: &[u8]) -> Known<HostFacts> {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new("sh");
    command
        .args(["-c", &script(), "sh"])
        .arg(std::ffi::OsStr::from_bytes(path))
        .arg(RELEASE)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = output_within(&mut command, SILENCE);
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::TimedOut => format!(
            "its shell did not answer for {} s: a file system may hang",
            SILENCE.as_secs()
        ),
        _ => format!("its shell does not run: {error}"),
    })?;
    let mut facts = HostFacts::default();
    let text = String::from_utf8_lossy(&output);
    text.lines().for_each(|line| facts.add_line(line));
    Ok(facts)
}

/// Answer of a remote shell, and the lead of its clock.
pub(super) struct Told {
    /// The reported facts.
    pub facts: HostFacts,
    /// Lead of the remote clock.
    pub clock: Known<Lead>,
    /// Time since the start of the login.
    pub took: Duration,
}

/// Collects the facts through a remote shell. If an ssh master connection does not work,
/// tries again without it.
pub(super) fn ask_shell(
    start: &Start,
    path: &[u8],
    login: (Login, Duration),
) -> Result<Told, Stop> {
    let told = ask_shell_once(start, path, login);
    match told {
        Err(stop) if stop.exit == Exit::Connection && start.is_joined() => {
            start.shun_master("no shell answers through it");
            ask_shell_once(start, path, login)
        }
        told => told,
    }
}

fn ask_shell_once(
    start: &Start,
    path: &[u8],
    (login, bound): (Login, Duration),
) -> Result<Told, Stop> {
    let host = &start.destination;
    let path = String::from_utf8_lossy(path);
    let line = format!("exec sh -c '{}' sh {} {RELEASE}", script(), quoted(&path));
    let began = Instant::now();
    let started = SshProcess::start(&start.script_by(&line, login), login);
    let (mut process, channel) = started.map_err(|error| {
        let text = format!(
            "cannot start {}: {error}: name another with --ssh",
            start.program()
        );
        Stop::new(Exit::Local, text)
    })?;
    let mut facts = HostFacts::default();
    let hearing = process.hear(&channel, bound);
    let mut unknown = Unknown::default();
    let clock = read_facts(hearing, &channel, &mut facts, &mut unknown);
    drop(channel);
    let status = process.end();
    if facts.get("system").is_some() {
        start.note_login(&process);
        // The login's last message is passed on, because no error reports it.
        if let Some(last) = process
            .said()
            .lines()
            .last()
            .filter(|_| login == Login::AskingAside)
        {
            pass_on(format!("{}\n", one_line(last, usize::MAX)).as_bytes());
        }
        return Ok(Told {
            facts,
            clock,
            took: began.elapsed(),
        });
    }
    let said = process.said();
    // A shell such as nologin prints its reason on standard output.
    let last = said.lines().chain(unknown.line.lines()).next_back();
    let last = last.unwrap_or("no output").to_owned();
    let code = status.and_then(|status| status.code());
    Err(match (code, was_refused(&said)) {
        // A shell that had to be abandoned may end with any code when its input ends.
        _ if unknown.timed_out => Stop::new(
            Exit::Connection,
            format!(
                "{host}: no shell answered within {} s, although ssh does not ask for input: a \
                 start-up file of the shell may wait for input",
                bound.as_secs_f64().ceil()
            ),
        ),
        (Some(255), true) => Stop::new(
            Exit::Authentication,
            format!("{host}: ssh could not log in: {last}"),
        ),
        (Some(255), false) => Stop::new(
            Exit::Connection,
            format!("{host}: ssh did not connect: {last}"),
        ),
        _ => Stop::new(
            Exit::Connection,
            format!(
                "{host}: ssh logs in, and no shell runs there: {last}; a login shell such as nologin, \
                 or a forced command (command= in authorized_keys, ForceCommand) prevents other \
                 commands: ask for a key or a user without them"
            ),
        ),
    })
}

/// Output that is not a fact.
#[derive(Default)]
struct Unknown {
    /// The last such line.
    line: String,
    /// True if no output arrived before the timeout.
    timed_out: bool,
}

/// Reads facts until the shell is ready, then sends a line to request the time. The clock
/// was read between the request and the answer.
fn read_facts(
    heard: Hearing<'_>,
    mut channel: &UnixStream,
    facts: &mut HostFacts,
    unknown: &mut Unknown,
) -> Known<Lead> {
    let mut reader = BufReader::new(heard.take(MOST_ANSWER_BYTES));
    let mut asked: Option<(Instant, f64)> = None;
    let mut line = Vec::new();
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) => break,
            Err(error) => {
                unknown.timed_out = error.kind() == std::io::ErrorKind::TimedOut;
                break;
            }
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        facts.add_line(&text);
        if !text.starts_with(FACT) && !text.trim().is_empty() {
            text.trim().clone_into(&mut unknown.line);
        }
        if asked.is_none() && text.starts_with(&format!("{FACT}{READY}")) {
            asked = Some((Instant::now(), now()));
            if channel.write_all(b"go\n").is_err() {
                break;
            }
        }
        if let (Some((asked, then)), Some(clock)) = (asked, facts.clock()) {
            let half = asked.elapsed().as_secs_f64() / 2.0;
            return Ok(Lead {
                ahead: clock - (then + half),
                // A `date` without fractions of a second.
                uncertainty: half + if clock.fract() == 0.0 { 1.0 } else { 0.0 },
            });
        }
        line.clear();
        // Some file systems answer slowly: the timeout restarts after each line.
        reader.get_mut().get_mut().go_on();
    }
    Err("its shell did not report the time".to_owned())
}

/// Returns the seconds since 1970 by this host's clock.
fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
