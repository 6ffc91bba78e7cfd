//! `longhaul clean`: what interrupted copies left in a tree, listed or
//! removed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use longhaul_engine::failure::failure_of;
use longhaul_engine::journal::{Leftover, LeftoverKind, expire, leftovers};
use longhaul_engine::recv::landing::{SESSION_NAME, file_time_now};
use longhaul_engine::storage::posix::PosixDirectory;
use longhaul_engine::storage::{Directory, FileKind};
use longhaul_units::ByteCount;

use crate::arguments::CleanArguments;
use crate::messages::{Exit, Stop, finish, print_line, say};

/// Bytes of a session's hash that tell it from others, to the eye.
const SHOWN_BYTES: usize = 6;

/// What was counted.
#[derive(Default)]
struct Count {
    found: u64,
    bytes: u64,
    removed: u64,
    failed: u64,
}

impl Count {
    fn fail(&mut self, what: &str, path: &Path, error: &io::Error) {
        self.failed += 1;
        say(&failure_of(what, &path.display().to_string(), error).text);
    }
}

/// Runs it.
pub fn run(arguments: CleanArguments) -> Exit {
    finish(clean(&arguments))
}

fn clean(arguments: &CleanArguments) -> Result<Exit, Stop> {
    let root = PosixDirectory::open_root(&arguments.directory).map_err(|error| {
        Stop::new(
            Exit::Local,
            format!("cannot open {}: {error}", arguments.directory.display()),
        )
    })?;
    let mut count = Count::default();
    visit(arguments, &root, &arguments.directory, &mut count);
    let verb = if arguments.remove { "removed" } else { "found" };
    let done = if arguments.remove {
        count.removed
    } else {
        count.found
    };
    print_line!("{done} {verb}, {}", ByteCount(count.bytes));
    Ok(if count.failed > 0 {
        Exit::Partial
    } else {
        Exit::Done
    })
}

fn visit(
    arguments: &CleanArguments,
    directory: &Arc<dyn Directory>,
    path: &Path,
    count: &mut Count,
) {
    let looked = visit_leftovers(arguments, directory, path, count);
    let listed = visit_directories(arguments, directory, path, count);
    // One that cannot be listed fails at both.
    if let Err(error) = looked.and(listed) {
        count.fail("list", path, &error);
    }
}

/// What of a directory are directories themselves.
fn visit_directories(
    arguments: &CleanArguments,
    directory: &Arc<dyn Directory>,
    path: &Path,
    count: &mut Count,
) -> io::Result<()> {
    let mut names = directory.list()?;
    while let Some(listed) = names.next_name()? {
        use std::os::unix::ffi::OsStrExt;
        let is_directory = match listed.kind {
            Some(kind) => kind == FileKind::Directory,
            None => directory
                .status_of(&listed.name)
                .is_ok_and(|s| s.kind == FileKind::Directory),
        };
        if !is_directory {
            continue;
        }
        let path = path.join(std::ffi::OsStr::from_bytes(&listed.name));
        match directory.open_directory(&listed.name) {
            Ok(inner) => visit(arguments, &inner, &path, count),
            // A copy at work removes its own.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => count.fail("open", &path, &error),
        }
    }
    Ok(())
}

fn visit_leftovers(
    arguments: &CleanArguments,
    directory: &Arc<dyn Directory>,
    path: &Path,
    count: &mut Count,
) -> io::Result<()> {
    let now = file_time_now();
    if arguments.remove {
        // What is looked at first and removed then may be a living copy's by then: there
        // each is removed under its lock.
        let all = u64::MAX;
        expire(
            &**directory,
            arguments.older_than,
            now,
            all,
            &mut |name, removed| match removed {
                Ok(bytes) => {
                    count.removed += 1;
                    count.bytes += bytes;
                }
                Err(error) => {
                    count.failed += 1;
                    say(&format!("{}: {error}", shown(path, name)));
                }
            },
        )?;
    }
    for leftover in leftovers(Arc::clone(directory))? {
        let leftover = leftover?;
        let is_wanted = leftover.age(now) >= arguments.older_than;
        if is_wanted && (leftover.held || !arguments.remove) {
            print_line!("{}", describe(path, &leftover));
        }
        if is_wanted && !arguments.remove {
            count.found += 1;
            count.bytes += leftover.size;
        }
    }
    Ok(())
}

fn shown(path: &Path, name: &[u8]) -> String {
    format!("{}/{}", path.display(), name.escape_ascii())
}

/// What a journal is about: a file, or the session that holds the directory.
fn subject(name: &[u8]) -> String {
    match name.strip_prefix(SESSION_NAME) {
        Some(source) => {
            let digits = source.iter().take(SHOWN_BYTES);
            let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
            format!("session {digits}")
        }
        None => String::from_utf8_lossy(name).escape_debug().to_string(),
    }
}

fn describe(path: &Path, leftover: &Leftover) -> String {
    let held = if leftover.held { ", in use" } else { "" };
    let whose = match &leftover.kind {
        LeftoverKind::Journal(Some(whose)) => {
            format!(
                ", of {} by {} ({})",
                subject(&whose.name),
                whose.principal,
                whose.owner
            )
        }
        _ => String::new(),
    };
    format!(
        "{}: {}{whose}{held}",
        shown(path, &leftover.name),
        ByteCount(leftover.size)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shown_as_digits_and_a_file_by_its_name() {
        let session = [SESSION_NAME, &[0xab; 32]].concat();
        assert_eq!(subject(&session), "session abababababab");
        assert_eq!(subject("a\u{fc}\x1b".as_bytes()), "a\u{fc}\\u{1b}");
    }
}
