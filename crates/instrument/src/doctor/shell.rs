//! Asks the shell of a host to describe it, here and on a far side, and reads its clock.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_transfer::console::{one_line, pass_on};
use longhaul_transfer::ssh::command::{RELEASE, Start, quoted};
use longhaul_transfer::ssh::far::was_refused;
use longhaul_transfer::ssh::process::{Hearing, Login, SshProcess, output_within};
use longhaul_transfer::stop::{Exit, Stop};

use super::findings::{Known, Lead};
use super::host::{FACT, HostFacts, READY, script};

/// Bytes that a shell may print in all.
const MOST_ANSWER_BYTES: u64 = 256 << 10;

/// How long a login that asks nobody, and the shell then, may take.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// What this host's own shell reports.
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
            "its shell said nothing for {} s: a file system may stand still",
            SILENCE.as_secs()
        ),
        _ => format!("its shell does not run: {error}"),
    })?;
    let mut facts = HostFacts::default();
    let text = String::from_utf8_lossy(&output);
    text.lines().for_each(|line| facts.add_line(line));
    Ok(facts)
}

/// What a far shell told, and the clock beside ours.
pub(super) struct Told {
    /// The facts.
    pub facts: HostFacts,
    /// How far its clock is ahead.
    pub clock: Known<Lead>,
    /// From the login on.
    pub took: Duration,
}

/// Asks a shell there to describe its host. A master that does not serve is left.
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
        // No failure tells it.
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
    // A shell such as nologin says on its standard output why it runs nothing.
    let last = said.lines().chain(unknown.line.lines()).next_back();
    let last = last.unwrap_or("it said nothing").to_owned();
    let code = status.and_then(|status| status.code());
    Err(match (code, was_refused(&said)) {
        // A shell that had to be left may end in any way once its input ends.
        _ if unknown.timed_out => Stop::new(
            Exit::Connection,
            format!(
                "{host}: no shell answered there within {} s, and ssh asks nothing: a start-up \
                 file of it may wait for input",
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
                 or a forced command (command= in authorized_keys, ForceCommand) keeps commands from \
                 being run: ask for a key or a user without them"
            ),
        ),
    })
}

/// What came and was no fact.
#[derive(Default)]
struct Unknown {
    /// The last line.
    line: String,
    /// Nothing came any more, for too long.
    timed_out: bool,
}

/// Reads facts until the shell is ready, then asks for the time: what it says
/// lies between the question and the answer.
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
                // A `date` without parts of a second.
                uncertainty: half + if clock.fract() == 0.0 { 1.0 } else { 0.0 },
            });
        }
        line.clear();
        // Asking some file systems takes a while, each by itself.
        reader.get_mut().get_mut().go_on();
    }
    Err("its shell does not tell the time".to_owned())
}

/// Seconds since 1970, by this host's clock.
fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
