//! Installs this release on a remote host over ssh. Requires only a shell there. It uses the first
//! directory that has room and allows execution. It writes a temporary file, compares its size and
//! digest, runs it to compare the digest again, and renames it.
//!
//! The remote shell that found no longhaul waits for the script on the same channel, so the
//! installation needs no further login.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_net::sha256::Sha256;
use longhaul_units::ByteCount;

use super::command::{CACHE, IS_OWN, OTHER_PLACES, RELEASE, Start};
use super::image::Image;
use super::process::{Hearing, Login, SshProcess};
use crate::console::{
    MAXIMUM_LOGGED_BYTES, clear_line, confirm, one_line, progress_line, say, shows_progress,
};
use crate::stop::{Exit, Stop};

/// Maximum length of the script's answer in bytes.
const MAXIMUM_ANSWER_BYTES: u64 = 64 << 10;

/// Exit codes of the script for known errors.
const NOT_WRITTEN: i32 = 42;
const DOES_NOT_RUN: i32 = 43;
const OTHER_DIGEST: i32 = 44;
const NOT_WHOLE: i32 = 45;
const NO_PLACE: i32 = 46;

/// Start of the script's last line, before the path.
const INSTALLED: &str = "longhaul-installed/1 ";

/// Start of the script's line about an unusable directory, before the reason and the path.
const UNFIT: &str = "longhaul-unfit/1 ";

/// Maximum number of unusable directories that are kept. The script tries fewer.
const MAXIMUM_UNFIT: usize = 16;

/// Number of bytes sent at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum time of one write. After it the sender checks whether it should continue.
const WRITE_FOR: Duration = Duration::from_millis(500);

/// Interval between updates of the progress line.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// Expected size and digests of the installed file.
struct Expected {
    bytes: u64,
    /// Hexadecimal digest for the remote host's own tools, checked before the binary runs.
    sha256: String,
    /// Digest that the binary computes of itself.
    blake3: String,
}

impl Expected {
    fn of(image: &Image) -> io::Result<Expected> {
        let (mut blake3, mut sha256) = (blake3::Hasher::new(), Sha256::default());
        let mut from = image.read()?;
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match from.read(&mut buffer)? {
                0 => break,
                count => {
                    blake3.update(&buffer[..count]);
                    sha256.update(&buffer[..count]);
                }
            }
        }
        Ok(Expected {
            bytes: image.bytes(),
            sha256: sha256.finish(),
            blake3: blake3.finalize().to_hex().to_string(),
        })
    }
}

/// Returns the script as one line for single quotes, without `!`. Without `sha256sum`, only the
/// size is checked before the binary runs. At the end, `c` holds the path.
///
/// Tests each directory before anything is sent: a small script must run in it, and as many zeros
/// as the binary has bytes must fit.
fn script(expected: &Expected) -> String {
    let Expected {
        bytes,
        sha256,
        blake3,
    } = expected;
    format!(
        "k=$(umask); umask 077; u=$(id -u); c=; f=1; {IS_OWN} \
         unfit() {{ echo; echo \"{UNFIT}$1 $d\"; }}; \
         for d in \"{CACHE}\" {OTHER_PLACES}; do \
         case \"$d\" in /-/*) continue;; esac; \
         o=$f; f=; if [ \"$o\" ]; then mkdir -p \"$d\" 2>/dev/null; \
         else mkdir -m 700 \"$d\" 2>/dev/null; fi; \
         {{ [ -d \"$d\" ] && [ -w \"$d\" ]; }} || {{ unfit directory; continue; }}; \
         [ \"$o\" ] || own \"$d\" || {{ unfit foreign; continue; }}; \
         t=\"$d/.new.$$\"; \
         {{ printf \"#\\041/bin/sh\\n\" >\"$t\" && chmod 700 \"$t\"; }} 2>/dev/null \
         || {{ rm -f \"$t\"; unfit room; continue; }}; \
         \"$t\" 2>/dev/null || {{ rm -f \"$t\"; unfit noexec; continue; }}; \
         {{ head -c {bytes} /dev/zero >\"$t\" && [ $(wc -c <\"$t\") -eq {bytes} ]; }} 2>/dev/null \
         || {{ rm -f \"$t\"; unfit room; continue; }}; \
         c=\"$d/longhaul-{RELEASE}\"; break; done; \
         [ \"$c\" ] || exit {NO_PLACE}; \
         trap \"rm -f \\\"$t\\\"; exit {NOT_WHOLE}\" HUP INT TERM; \
         head -c {bytes} >\"$t\" && chmod 700 \"$t\" || {{ rm -f \"$t\"; exit {NOT_WRITTEN}; }}; \
         [ $(wc -c <\"$t\") -eq {bytes} ] || {{ rm -f \"$t\"; exit {NOT_WHOLE}; }}; \
         if command -v sha256sum >/dev/null; then s=$(sha256sum <\"$t\"); \
         [ \"${{s%% *}}\" = {sha256} ] || {{ rm -f \"$t\"; exit {OTHER_DIGEST}; }}; fi; \
         g=$(\"$t\" remote --digest </dev/null) || {{ rm -f \"$t\"; exit {DOES_NOT_RUN}; }}; \
         [ \"$g\" = {blake3} ] || {{ rm -f \"$t\"; exit {OTHER_DIGEST}; }}; \
         mv -f \"$t\" \"$c\" || {{ rm -f \"$t\"; exit {NOT_WRITTEN}; }}; \
         trap - HUP INT TERM; umask $k; echo; echo \"{INSTALLED}$c\""
    )
}

/// Returns true if the flag is set or the user confirms the installation.
pub fn is_wanted(flag: bool, host: &str) -> bool {
    if flag {
        return true;
    }
    confirm(&format!(
        "{host} has no longhaul {RELEASE}. Put this one into the user's cache there \
         (~/.cache/longhaul)? Continue (yes/no)? "
    ))
}

/// Returns the hexadecimal BLAKE3 digest of a binary, which the script compares.
///
/// # Errors
///
/// The file cannot be read.
pub fn digest(binary: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut File::open(binary)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Directories, relative to this binary, that may hold the per-machine binaries of `make dist`: its
/// own directory, a package's library directory, and the output of `make dist`.
const PLACES: [&str; 3] = ["", "../lib/longhaul", "../dist"];

/// Returns the binary for a system: a static one for its machine, or else this binary if the
/// machine type is the same.
fn binary_for(system: Option<&str>) -> Result<PathBuf, Stop> {
    let own = std::env::current_exe().map_err(|error| Stop::because(Exit::Local, error))?;
    if let Some(other) = system.filter(|system| !system.starts_with("Linux ")) {
        let text = format!("longhaul runs on Linux, and the remote host is {other}");
        return Err(Stop::new(Exit::Connection, text).that_stays());
    }
    let uname = rustix::system::uname();
    let here = uname.machine().to_string_lossy().into_owned();
    let machine = system.and_then(|system| system.split_once(' '));
    let machine = machine.map_or(here.as_str(), |(_, machine)| machine);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if machine.is_empty() || !machine.bytes().all(is_word) {
        let text = format!("the remote host names no machine, but {machine:?}");
        return Err(Stop::new(Exit::Connection, text).that_stays());
    }
    let own_is_static = cfg!(target_env = "musl");
    choose(&own, machine, machine == here, own_is_static).ok_or_else(|| {
        let text = format!(
            "the remote host is {machine}, and there is no longhaul-{machine} beside {}: `make dist` \
             makes a binary for each machine; put it there",
            own.display()
        );
        Stop::new(Exit::Local, text)
    })
}

/// Chooses a static binary if one exists, because it runs with any libraries. This binary requires
/// libraries at least as recent as its own.
fn choose(own: &Path, machine: &str, same: bool, own_is_static: bool) -> Option<PathBuf> {
    if same && own_is_static {
        return Some(own.to_owned());
    }
    let directory = own.parent().unwrap_or(Path::new("/"));
    let name = format!("longhaul-{machine}");
    let places = PLACES.map(|place| directory.join(place).join(&name));
    let found = places.into_iter().find(|place| place.is_file());
    found.or_else(|| same.then(|| own.to_owned()))
}

/// An installation: the start settings, the binary, and the maximum time without progress while no
/// question is open.
struct Putting<'a> {
    start: &'a Start,
    image: Image,
    expected: Expected,
    bound: Duration,
}

impl Putting<'_> {
    fn new<'a>(
        start: &'a Start,
        system: Option<&str>,
        bound: Duration,
    ) -> Result<Putting<'a>, Stop> {
        let local = |error: io::Error| Stop::because(Exit::Local, error);
        let image = Image::open(&binary_for(system)?).map_err(local)?;
        let expected = Expected::of(&image).map_err(local)?;
        Ok(Putting {
            start,
            image,
            expected,
            bound,
        })
    }

    /// Sends `first` and then the binary to the script that waits on the channel.
    fn put(
        &self,
        first: &str,
        process: &mut SshProcess,
        channel: UnixStream,
    ) -> Result<UnixStream, Stop> {
        let host = &self.start.destination;
        let mut hearing = process.hear(&channel, self.bound);
        let sent = send(
            host,
            first,
            (&self.image, self.expected.bytes),
            &channel,
            &mut hearing,
        );
        // A process that ended early explains why. A process that hangs sends no explanation.
        let stands_still = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        let answer = match &sent {
            Err(error) if stands_still(error) => Answer::default(),
            _ => {
                hearing.go_on();
                Answer::hear(&mut hearing)
            }
        };
        if let Some(path) = &answer.installed {
            say(&format!(
                "put longhaul {RELEASE} into {host}:{} ({}, BLAKE3 {})",
                one_line(path, MAXIMUM_LOGGED_BYTES),
                ByteCount(self.expected.bytes),
                self.expected.blake3
            ));
            answer.tell_unfit(host);
            return Ok(channel);
        }
        drop(channel);
        let code = process.end().and_then(|status| status.code());
        let error = sent
            .err()
            .or(answer.error.as_ref().map(|kind| (*kind).into()));
        Err(failed(host, code, error, (&process.said(), &answer.unfit)))
    }
}

/// Installs the release over a new ssh process and reports the result.
///
/// # Errors
///
/// The reason why it cannot be installed, with a remedy.
pub fn install(start: &Start, system: Option<&str>, bound: Duration) -> Result<(), Stop> {
    let putting = Putting::new(start, system, bound)?;
    let local = |error: io::Error| Stop::because(Exit::Local, error);
    loop {
        let line = start.script(&format!("exec sh -c '{}'", script(&putting.expected)));
        let (mut process, channel) = SshProcess::start(&line, Login::Asking).map_err(local)?;
        match putting.put("", &mut process, channel) {
            Err(_) if start.is_joined() && !process.ended_by_itself() => {
                start.shun_master("its connection was lost");
            }
            done => return done.map(drop),
        }
    }
}

/// Installs the release over the channel of the shell that found no longhaul. The shell then runs
/// it.
///
/// # Errors
///
/// See [`install`].
pub fn install_through(
    start: &Start,
    (process, channel): (&mut SshProcess, UnixStream),
    system: Option<&str>,
    bound: Duration,
) -> Result<UnixStream, Stop> {
    let putting = Putting::new(start, system, bound)?;
    let first = format!("{}; exec \"$c\" $a\n", script(&putting.expected));
    putting.put(&first, process, channel)
}

/// Answer of the script.
#[derive(Debug, Default)]
struct Answer {
    installed: Option<String>,
    unfit: Vec<Unfit>,
    error: Option<io::ErrorKind>,
}

/// A directory that cannot be used.
#[derive(Debug)]
pub(super) struct Unfit {
    place: String,
    why: &'static str,
}

impl Answer {
    /// Reads up to the end of the line that reports the installation. The bytes after it come from
    /// the installed binary.
    fn hear(channel: &mut impl Read) -> Answer {
        let mut answer = Answer::default();
        let mut channel = channel.take(MAXIMUM_ANSWER_BYTES);
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            match channel.read(&mut byte) {
                Ok(0) => return answer,
                Ok(_) if byte == [b'\n'] => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    line.clear();
                    if let Some(path) = text.strip_prefix(INSTALLED) {
                        answer.installed = Some(path.to_owned());
                        return answer;
                    }
                    let unfit = text.strip_prefix(UNFIT).and_then(unfit_of);
                    answer.unfit.extend(unfit);
                    answer.unfit.truncate(MAXIMUM_UNFIT);
                }
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    answer.error = Some(error.kind());
                    return answer;
                }
            }
        }
    }

    fn tell_unfit(&self, host: &str) {
        for Unfit { place, why } in &self.unfit {
            say(&format!("not into {host}:{place}: {why}"));
        }
    }
}

fn unfit_of(told: &str) -> Option<Unfit> {
    let (word, place) = told.split_once(' ')?;
    let why = match word {
        "directory" => "the directory cannot be made or written",
        "foreign" => "it or the directory above it is not yours alone",
        "room" => "there is no room for it (a full disk or quota?)",
        "noexec" => "programs do not run there (mounted noexec)",
        _ => return None,
    };
    Some(Unfit {
        place: one_line(place, MAXIMUM_LOGGED_BYTES),
        why,
    })
}

fn send(
    host: &str,
    first: &str,
    (image, bytes): (&Image, u64),
    channel: &UnixStream,
    hearing: &mut Hearing<'_>,
) -> io::Result<()> {
    channel.set_write_timeout(Some(WRITE_FOR))?;
    let mut from = image.read()?;
    let terminal = shows_progress();
    if !terminal {
        say(&sending(host, 0, bytes));
    }
    write_patiently(channel, first.as_bytes(), hearing)?;
    let (mut buffer, mut sent, mut drawn) = (vec![0; CHUNK_BYTES], 0, None);
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            clear_line();
            return Ok(());
        }
        write_patiently(channel, &buffer[..count], hearing)?;
        sent += count as u64;
        let is_due = drawn.is_none_or(|at: Instant| at.elapsed() >= DRAW_EVERY);
        if terminal && is_due {
            progress_line(&sending(host, sent, bytes));
            drawn = Some(Instant::now());
        }
    }
}

/// Returns the progress line.
fn sending(host: &str, sent: u64, bytes: u64) -> String {
    let (sent, bytes) = (ByteCount(sent), ByteCount(bytes));
    format!("putting longhaul {RELEASE} onto {host}: {sent} of {bytes}")
}

/// Writes all bytes. Fails if no byte is accepted within the bound while no question is open.
fn write_patiently(
    mut channel: &UnixStream,
    mut bytes: &[u8],
    hearing: &mut Hearing<'_>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match channel.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                hearing.go_on();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => hearing.look()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn failed(
    host: &str,
    code: Option<i32>,
    sent: Option<io::Error>,
    (said, unfit): (&str, &[Unfit]),
) -> Stop {
    let stands_still = sent
        .as_ref()
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    let why = match code {
        Some(NO_PLACE) => {
            "make room, set XDG_CACHE_HOME there to a directory where programs may run, or put \
             longhaul into its PATH"
        }
        Some(NOT_WRITTEN) => {
            "it could not be written there (a full disk or quota?): make room, set XDG_CACHE_HOME \
             there, or put longhaul into its PATH"
        }
        Some(DOES_NOT_RUN) => {
            "it does not run there (a system whose libraries are older: use the static binary that \
             `make dist` makes): put longhaul into its PATH"
        }
        Some(OTHER_DIGEST) => "it arrived damaged: check the disk there, and try again",
        _ if stands_still => {
            "nothing moved for --timeout: try again, and check that the host and its file systems \
             answer"
        }
        Some(NOT_WHOLE) => "not all of it arrived: try again",
        _ => "the connection was lost: try again",
    };
    // If no directory is usable, the script exits early, so a failed send adds no information.
    let sent = sent.filter(|_| code != Some(NO_PLACE));
    let sent = sent.map_or(String::new(), |error| format!(" ({error})"));
    let above = if said.trim().is_empty() {
        ""
    } else {
        "; what the remote host said is above"
    };
    let places: String = unfit
        .iter()
        .map(|Unfit { place, why }| format!("{place}: {why}; "))
        .collect();
    let text = format!("{host}: longhaul could not be put there{sent}{above}: {places}{why}");
    Stop::new(Exit::Connection, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(binary: &str, blake3: &str) -> Expected {
        let mut sha256 = Sha256::default();
        sha256.update(binary.as_bytes());
        Expected {
            bytes: binary.len() as u64,
            sha256: sha256.finish(),
            blake3: blake3.to_owned(),
        }
    }

    #[test]
    fn every_shell_accepts_the_script() {
        let script = script(&expected("a", "b"));
        assert!(!script.contains(['!', '\n', '\'']), "{script}");
    }

    #[test]
    fn a_static_binary_is_preferred_and_another_machine_needs_one() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("bin/longhaul");
        for directory in ["bin", "lib/longhaul"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        assert_eq!(choose(&own, "aarch64", false, true), None);
        assert_eq!(choose(&own, "x86_64", true, false), Some(own.clone()));
        let beside = place.path().join("bin/longhaul-x86_64");
        std::fs::write(&beside, "").unwrap();
        assert_eq!(choose(&own, "x86_64", true, false), Some(beside));
        assert_eq!(choose(&own, "x86_64", true, true), Some(own.clone()));
        let far = place.path().join("lib/longhaul/longhaul-aarch64");
        std::fs::write(&far, "").unwrap();
        let found = choose(&own, "aarch64", false, false).unwrap();
        assert_eq!(found.canonicalize().unwrap(), far.canonicalize().unwrap());
    }

    #[test]
    fn invalid_machine_names_are_refused() {
        for system in ["Darwin arm64", "Linux ../../x", "Linux "] {
            assert!(binary_for(Some(system)).is_err(), "{system}");
        }
        assert!(binary_for(None).is_ok());
    }

    #[test]
    fn a_different_binary_is_neither_run_nor_kept() {
        let home = tempfile::tempdir().unwrap();
        let ran = home.path().join("ran");
        let run = |expected: &Expected, binary: &str| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", &script(expected)])
                .env_clear()
                .env("HOME", home.path())
                .env("PATH", "/usr/bin:/bin")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            std::io::Write::write_all(&mut input, binary.as_bytes()).unwrap();
            drop(input);
            child.wait_with_output().unwrap()
        };
        let binary = "#!/bin/sh\ntouch \"$HOME/ran\"; echo right\n";
        let other = binary.replace("right", "wrong");
        let whole = expected(binary, "right");
        let half = run(&whole, &binary[..binary.len() / 2]);
        assert_eq!(half.status.code(), Some(NOT_WHOLE));
        assert_eq!(run(&whole, &other).status.code(), Some(OTHER_DIGEST));
        assert!(!ran.exists(), "it was run before it was known to be whole");
        let unknown = run(&expected(binary, "wrong"), binary);
        assert_eq!(unknown.status.code(), Some(OTHER_DIGEST));
        let garbage = "garbage\n";
        let broken = run(&expected(garbage, "right"), garbage);
        assert_eq!(broken.status.code(), Some(DOES_NOT_RUN));
        let cache = home.path().join(".cache/longhaul");
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
        let output = run(&whole, binary);
        assert_eq!(output.status.code(), Some(0));
        let kept = cache.join(format!("longhaul-{RELEASE}"));
        let said = format!("\n{INSTALLED}{}\n", kept.display());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), said);
        assert_eq!(std::fs::read_to_string(kept).unwrap(), binary);
    }
}
