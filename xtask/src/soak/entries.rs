//! Ten million entries at each end, listed, filtered and compared by a dry run with `--delete`
//! through a daemon: neither end takes much memory for them.
//!
//! Names cost little, as all are hard links to a few hundred empty files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::copies::{Copied, Copies, Way, binary, make};
use super::million::{PEAK_BYTES, mebibytes, verdict, write};
use super::parts::Step;
use super::{Outcome, Soak};

/// Names are made by the thousand, each with the same mixture.
const BLOCK: u64 = 1000;
const BLOCKS: u64 = 10_000;

/// Number of blocks in one common directory, whose listing does not fit into memory. Each other
/// block has a separate directory.
const WIDE_BLOCKS: u64 = 1000;

/// Entries of each thousand that have another state at the destination, that exist only at one end,
/// and that the filter excludes at both.
const CHANGED: u64 = 10;
const ONLY: u64 = 20;
const FILTERED: u64 = 20;

/// Names of one file: ext4 allows 65,000.
const NAMES_PER_FILE: u64 = 60_000;

/// Threads that make names.
const THREADS: u64 = 2;

/// Makes a step for each direction.
pub fn steps(_: &Soak) -> Result<Vec<Step>, String> {
    let step = |name: &str, way, last| Step {
        name: name.to_owned(),
        size: format!("{} names at each end", BLOCK * BLOCKS),
        run: Box::new(move |soak: &Soak| run(soak, way, last)),
    };
    Ok(vec![
        step("push", Way::Push, false),
        step("pull", Way::Pull, true),
    ])
}

/// An end of the copy.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Source,
    Destination,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Source => "source",
            End::Destination => "destination",
        }
    }

    /// Returns the name of an entry of a block at this end, and its state.
    fn entry(self, block: u64, at: u64) -> (String, usize) {
        let number = block * BLOCK + at;
        let same = BLOCK - ONLY - FILTERED;
        if at >= same + ONLY {
            return (format!("{number:08}.skip"), 0);
        }
        if at >= same {
            let only = if self == End::Source { "new" } else { "old" };
            return (format!("{number:08}.{only}"), 0);
        }
        let state = usize::from(self == End::Destination && at < CHANGED);
        (format!("{number:08}"), state)
    }
}

/// Files that get many names: one of each state that is in use.
struct Files {
    directory: PathBuf,
    made: u64,
    /// The file of a state, and the names that it may still get.
    current: [(PathBuf, u64); 2],
}

impl Files {
    fn new(directory: PathBuf) -> Result<Files, String> {
        make(&directory)?;
        Ok(Files {
            directory,
            made: 0,
            current: Default::default(),
        })
    }

    /// Gives a file of this state another name.
    fn name(&mut self, state: usize, path: &Path) -> Result<(), String> {
        if self.current[state].1 == 0 {
            let file = self.directory.join(self.made.to_string());
            self.made += 1;
            let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + state as u64);
            File::create(&file)
                .and_then(|made| made.set_modified(modified))
                .map_err(|error| format!("{}: {error}", file.display()))?;
            self.current[state] = (file, NAMES_PER_FILE);
        }
        let (file, left) = &mut self.current[state];
        *left -= 1;
        fs::hard_link(file, path).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The blocks that a thread makes, at both ends.
fn make_blocks(root: &Path, thread: u64) -> Result<(), String> {
    for end in [End::Source, End::Destination] {
        let pool = root.join(format!("files-{}-{thread}", end.name()));
        let mut files = Files::new(pool)?;
        for block in (thread..BLOCKS).step_by(THREADS as usize) {
            let directory = if block < WIDE_BLOCKS {
                "wide".to_owned()
            } else {
                format!("{:02}/{:02}", block / 100, block % 100)
            };
            let directory = root.join(end.name()).join(directory);
            make(&directory)?;
            for at in 0..BLOCK {
                let (name, state) = end.entry(block, at);
                files.name(state, &directory.join(name))?;
            }
        }
    }
    Ok(())
}

/// Both trees, made once.
fn trees(soak: &Soak) -> Result<PathBuf, String> {
    let root = soak.directory.join("entries");
    let made = soak.directory.join("entries.made");
    if made.exists() {
        return Ok(root);
    }
    println!("soak:   making {} names at each end", BLOCK * BLOCKS);
    remove(&root)?;
    std::thread::scope(|scope| {
        let root = &root;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || make_blocks(root, thread)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err("a thread that makes names panicked".to_owned()))
        })
    })?;
    write(&made, b"")?;
    Ok(root)
}

/// Removes a tree, if it exists.
///
/// # Errors
///
/// If the removal fails.
pub fn remove(tree: &Path) -> Result<(), String> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", tree.display()))
        }
        _ => Ok(()),
    }
}

/// Expected results of a dry run, by the names of its summary.
fn expected() -> [(&'static str, u64); 5] {
    [
        ("new_entries", ONLY * BLOCKS),
        ("changed_entries", CHANGED * BLOCKS),
        (
            "skipped_entries",
            (BLOCK - ONLY - FILTERED - CHANGED) * BLOCKS,
        ),
        ("deleted_entries", ONLY * BLOCKS),
        ("moved_bytes", 0),
    ]
}

fn check(summary: &Value) -> Result<(), String> {
    for (name, count) in expected() {
        if summary[name] != count {
            return Err(format!("{name} is not {count}: {summary}"));
        }
    }
    if summary["left_out"]["rules"] == FILTERED * BLOCKS {
        Ok(())
    } else {
        Err(format!("not as much was left out by rules: {summary}"))
    }
}

fn run(soak: &Soak, way: Way, last: bool) -> Outcome {
    let root = trees(soak)?;
    let copies = Copies::new(soak, binary(soak, "default")?)?.serving(&["--delete"]);
    let options = ["-n", "--delete", "--exclude", "*.skip"];
    let here = |end: End| format!("{}/{}/", root.display(), end.name());
    let copied = match way {
        Way::Push => copies.copy(
            way,
            &root,
            &here(End::Source),
            &format!("{}/", End::Destination.name()),
            &options,
        ),
        Way::Pull => copies.copy(
            way,
            &root,
            &format!("{}/", End::Source.name()),
            &here(End::Destination),
            &options,
        ),
    }?;
    check(&copied.summary)?;
    copies.finish()?;
    let outcome = ends(&copied, 2 * BLOCK * BLOCKS);
    if outcome.is_ok() && last {
        remove(&root)?;
        fs::remove_file(soak.directory.join("entries.made")).map_err(|error| error.to_string())?;
    }
    outcome
}

/// Entries per second, and the peak of each end, which has a bound.
///
/// # Errors
///
/// If an end was above it.
pub fn ends(copied: &Copied, entries: u64) -> Outcome {
    let mut notes = vec![format!(
        "{entries} names in {:.0} s: {:.0} a second; CPU: client {:.0} s, daemon {:.0} s",
        copied.seconds,
        entries as f64 / copied.seconds.max(1e-3),
        copied.client.cpu_seconds,
        copied.daemon.cpu_seconds
    )];
    let mut failures = Vec::new();
    for (end, usage) in [("client", copied.client), ("daemon", copied.daemon)] {
        let note = format!("{end}: peak {:.1} MiB", mebibytes(usage.peak_bytes));
        if usage.peak_bytes > PEAK_BYTES {
            failures.push(note.clone());
        }
        notes.push(note);
    }
    verdict(notes, failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_differ_in_the_intended_entries() {
        let names = |end: End| (0..BLOCK).map(move |at| end.entry(7, at));
        let pairs: Vec<_> = names(End::Source).zip(names(End::Destination)).collect();
        let same = pairs.iter().filter(|(here, there)| here == there).count() as u64;
        assert_eq!(same, BLOCK - CHANGED - ONLY);
        let other = |(here, there): &&((String, usize), (String, usize))| here.0 != there.0;
        assert_eq!(pairs.iter().filter(other).count() as u64, ONLY);
        let left_out = |((name, _), _): &&((String, usize), _)| name.ends_with(".skip");
        assert_eq!(pairs.iter().filter(left_out).count() as u64, FILTERED);
    }

    #[test]
    fn files_get_names_until_they_have_enough() {
        let place = std::env::temp_dir().join(format!("soak-entries-{}", std::process::id()));
        let mut files = Files::new(place.join("files")).unwrap();
        for (number, state) in [0, 0, 1].into_iter().enumerate() {
            files.name(state, &place.join(number.to_string())).unwrap();
        }
        assert_eq!(files.made, 2);
        files.current[0].1 = 0;
        files.name(0, &place.join("3")).unwrap();
        assert_eq!(files.made, 3);
        remove(&place).unwrap();
    }
}
