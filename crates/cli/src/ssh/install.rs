//! Puts this release into the far side's cache, over ssh and with nothing there
//! but a shell: written under another name, run, its digest compared, renamed.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use longhaul_units::ByteCount;

use super::command::{RELEASE, Start};
use super::process::{Login, SshProcess};
use crate::messages::{Exit, Stop, clear_line, say, write_error};

/// More than this the far side does not answer.
const MAXIMUM_ANSWER_BYTES: u64 = 64 << 10;

/// What the script ends with where something is wrong that it knows.
const NO_DIRECTORY: i32 = 41;
const NOT_WRITTEN: i32 = 42;
const DOES_NOT_RUN: i32 = 43;
const OTHER_DIGEST: i32 = 44;

/// What it says at the end, before the path.
const INSTALLED: &str = "longhaul-installed/1 ";

/// The script, for any login shell: within single quotes, without `!`.
fn script(digest: &str) -> String {
    format!(
        "exec sh -c 'umask 077; d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/longhaul\"; t=\"$d/.new.$$\"; \
         mkdir -p \"$d\" || exit {NO_DIRECTORY}; \
         cat >\"$t\" && chmod 700 \"$t\" || {{ rm -f \"$t\"; exit {NOT_WRITTEN}; }}; \
         g=$(\"$t\" remote --digest) || {{ rm -f \"$t\"; exit {DOES_NOT_RUN}; }}; \
         [ \"$g\" = {digest} ] || {{ rm -f \"$t\"; exit {OTHER_DIGEST}; }}; \
         mv -f \"$t\" \"$d/longhaul-{RELEASE}\" || {{ rm -f \"$t\"; exit {NOT_WRITTEN}; }}; \
         echo; echo \"{INSTALLED}$d/longhaul-{RELEASE}\"'"
    )
}

/// Whether to: by the flag, or a person says so.
pub fn is_wanted(flag: bool, host: &str) -> bool {
    if flag {
        return true;
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return false;
    }
    clear_line();
    write_error(&format!(
        "{host} has no longhaul {RELEASE}. Put this one into the user's cache there \
         (~/.cache/longhaul)? Continue (yes/no)? "
    ));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && answer.trim() == "yes"
}

/// The digest of a binary, as the script compares it.
///
/// # Errors
///
/// Where it cannot be read.
pub fn digest(binary: &Path) -> io::Result<(String, u64)> {
    let mut hasher = blake3::Hasher::new();
    let bytes = io::copy(&mut File::open(binary)?, &mut hasher)?;
    Ok((hasher.finalize().to_hex().to_string(), bytes))
}

/// Where `make dist` names its binaries by machine, and a package may put them:
/// beside this one, or in a library's directory.
const PLACES: [&str; 3] = ["", "../lib/longhaul", "../dist"];

/// The binary for a system: a static one for its machine, else this very one
/// where the machine is the same.
fn binary_for(system: Option<&str>) -> Result<PathBuf, Stop> {
    let own = std::env::current_exe().map_err(|error| Stop::because(Exit::Local, error))?;
    if let Some(other) = system.filter(|system| !system.starts_with("Linux ")) {
        let text = format!("longhaul runs on Linux, and the far side is {other}");
        return Err(Stop::new(Exit::Connection, text));
    }
    let uname = rustix::system::uname();
    let here = uname.machine().to_string_lossy().into_owned();
    let machine = system.and_then(|system| system.split_once(' '));
    let machine = machine.map_or(here.as_str(), |(_, machine)| machine);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if machine.is_empty() || !machine.bytes().all(is_word) {
        let text = format!("the far side names no machine, but {machine:?}");
        return Err(Stop::new(Exit::Connection, text));
    }
    let own_is_static = cfg!(target_env = "musl");
    choose(&own, machine, machine == here, own_is_static).ok_or_else(|| {
        let text = format!(
            "the far side is {machine}, and there is no longhaul-{machine} beside {}: `make dist` \
             makes a binary for each machine; put it there",
            own.display()
        );
        Stop::new(Exit::Local, text)
    })
}

/// A static one runs whatever libraries the far side has; this one does where
/// they are not older.
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

/// Puts it there, and says so; gives the path.
///
/// # Errors
///
/// What is in the way, with the remedy.
pub fn install(start: &Start, system: Option<&str>) -> Result<String, Stop> {
    let host = &start.destination;
    let local = |error: io::Error| Stop::because(Exit::Local, error);
    let binary = binary_for(system)?;
    let (digest, bytes) = digest(&binary).map_err(local)?;
    let line = start.script(&script(&digest));
    let (mut process, channel) = SshProcess::start(&line, Login::Asking).map_err(local)?;
    let sent = send(&binary, &channel);
    let mut answer = String::new();
    let _ = (&channel)
        .take(MAXIMUM_ANSWER_BYTES)
        .read_to_string(&mut answer);
    drop(channel);
    let code = process.end().and_then(|status| status.code());
    let path = answer.lines().find_map(|line| line.strip_prefix(INSTALLED));
    match (code, path) {
        (Some(0), Some(path)) => {
            say(&format!(
                "put longhaul {RELEASE} into {host}:{path} ({}, BLAKE3 {digest})",
                ByteCount(bytes)
            ));
            Ok(path.to_owned())
        }
        _ => Err(failed(host, code, sent.err())),
    }
}

fn send(binary: &Path, mut channel: &UnixStream) -> io::Result<()> {
    io::copy(&mut File::open(binary)?, &mut channel)?;
    channel.shutdown(Shutdown::Write)
}

fn failed(host: &str, code: Option<i32>, sent: Option<io::Error>) -> Stop {
    let why = match code {
        Some(NO_DIRECTORY) => {
            "the cache directory cannot be made there (a home that cannot be written?): set \
             XDG_CACHE_HOME there, or put longhaul into its PATH"
        }
        Some(NOT_WRITTEN) => {
            "it could not be written there (a full disk or quota?): make room, set XDG_CACHE_HOME \
             there, or put longhaul into its PATH"
        }
        Some(DOES_NOT_RUN) => {
            "it does not run there (a cache mounted noexec, or a system whose libraries are older: \
             use the static binary that `make dist` makes): set XDG_CACHE_HOME there, or put \
             longhaul into its PATH"
        }
        Some(OTHER_DIGEST) => "it arrived damaged: check the disk there, and try again",
        _ => "the connection was lost: try again",
    };
    let sent = sent.map_or(String::new(), |error| format!(" ({error})"));
    let text = format!(
        "{host}: longhaul could not be put there{sent}; what the far side said is above: {why}"
    );
    Stop::new(Exit::Connection, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_can_read_the_script() {
        let script = script(&"a".repeat(64));
        assert_eq!(script.matches('\'').count(), 2);
        assert!(!script.contains(['!', '\n']), "{script}");
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
    fn what_is_no_machine_is_refused() {
        for system in ["Darwin arm64", "Linux ../../x", "Linux "] {
            assert!(binary_for(Some(system)).is_err(), "{system}");
        }
        assert!(binary_for(None).is_ok());
    }

    #[test]
    fn a_binary_that_is_another_is_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let run = |digest: &str, binary: &str| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", &script(digest)])
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
        let binary = "#!/bin/sh\necho right\n";
        assert_eq!(run("wrong", binary).status.code(), Some(OTHER_DIGEST));
        assert_eq!(run("right", "garbage\n").status.code(), Some(DOES_NOT_RUN));
        let cache = home.path().join(".cache/longhaul");
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
        let output = run("right", binary);
        assert_eq!(output.status.code(), Some(0));
        let kept = cache.join(format!("longhaul-{RELEASE}"));
        let said = format!("\n{INSTALLED}{}\n", kept.display());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), said);
        assert_eq!(std::fs::read_to_string(kept).unwrap(), binary);
    }
}
