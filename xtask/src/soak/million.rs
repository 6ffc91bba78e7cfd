//! Many small files from and to a disk, through a daemon: neither the live heap
//! nor the peak memory of an end grows with their number.

use std::fs;
use std::path::{Path, PathBuf};

use super::copies::{Copied, Copies, Way, binary, make};
use super::parts::Step;
use super::{Outcome, Soak};

/// The two numbers of files that are compared.
const FEW: u64 = 100_000;
const MANY: u64 = 1_000_000;

/// Files in each directory.
const PER_DIRECTORY: u64 = 1000;

/// Bytes of each file.
const FILE_BYTES: usize = 100;

/// Copies of the few: how much is in flight at once, and so to which power of
/// two a list once grew, is chance.
const COPIES_OF_FEW: usize = 3;

/// Maximum growth of the live heap between the two.
const FLAT_BYTES: u64 = 64 << 10;

/// Maximum growth of the peak for each further file, and its maximum.
const BYTES_PER_FILE: u64 = 16;
pub const PEAK_BYTES: u64 = 256 << 20;

/// Name of an end, and its number in the result of a copy.
type End = (&'static str, fn(&Copied) -> Option<u64>);

/// Heap and peak, to a daemon and from it.
pub fn steps(_: &Soak) -> Result<Vec<Step>, String> {
    let size = "100,000 and 1,000,000 files of 100 bytes";
    let step = |name: &str, run: fn(&Soak, Way) -> Outcome, way| Step {
        name: name.to_owned(),
        size: size.to_owned(),
        run: Box::new(move |soak| run(soak, way)),
    };
    Ok(vec![
        step("peak, push", peak, Way::Push),
        step("peak, pull", peak, Way::Pull),
        step("heap, push", heap, Way::Push),
        step("heap, pull", heap, Way::Pull),
    ])
}

/// Makes a tree of this number of files, once.
fn tree(soak: &Soak, files: u64) -> Result<PathBuf, String> {
    let root = soak.directory.join(format!("files-{files}"));
    let made = soak.directory.join(format!("files-{files}.made"));
    if made.exists() {
        return Ok(root);
    }
    println!("soak:   making {files} files");
    for number in 0..files {
        let directory = root.join(format!("{:04}", number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            make(&directory)?;
        }
        let path = directory.join(format!("{:03}", number % PER_DIRECTORY));
        let mut text = format!("file {number}\n").into_bytes();
        text.resize(FILE_BYTES, b'.');
        write(&path, &text)?;
    }
    write(&made, b"")?;
    Ok(root)
}

/// Writes a file.
///
/// # Errors
///
/// If that fails.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies a tree and removes the copy.
fn copy(copies: &Copies, way: Way, source: &Path, files: u64) -> Result<Copied, String> {
    let there = copies.place("there")?;
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let from = source.display().to_string();
    let to = there.display().to_string();
    let above = source.parent().unwrap_or(source);
    let copied = match way {
        Way::Push => copies.copy(way, &there, &from, "", &[]),
        Way::Pull => copies.copy(way, above, &name, &to, &[]),
    }?;
    if copied.summary["files"] != files {
        return Err(format!("not {files} files came: {}", copied.summary));
    }
    fs::remove_dir_all(&there).map_err(|error| format!("{}: {error}", there.display()))?;
    println!("soak:   {files} files in {:.0} s", copied.seconds);
    Ok(copied)
}

/// Copies the few some times and the many once.
fn few_and_many(soak: &Soak, way: Way, binary: PathBuf) -> Result<(Vec<Copied>, Copied), String> {
    let (few, many) = (tree(soak, FEW)?, tree(soak, MANY)?);
    let copies = Copies::new(soak, binary)?;
    let small = (0..COPIES_OF_FEW).map(|_| copy(&copies, way, &few, FEW));
    let small = small.collect::<Result<Vec<Copied>, String>>()?;
    let large = copy(&copies, way, &many, MANY)?;
    copies.finish()?;
    Ok((small, large))
}

fn peak(soak: &Soak, way: Way) -> Outcome {
    let (small, large) = few_and_many(soak, way, binary(soak, "default")?)?;
    let ends: [End; 2] = [
        ("client", |copied| Some(copied.client.peak_bytes)),
        ("daemon", |copied| Some(copied.daemon.peak_bytes)),
    ];
    let mut notes = vec![times(&small, &large)];
    let mut failures = Vec::new();
    for (end, of) in ends {
        let few = small.iter().filter_map(of).max().unwrap_or(0);
        let many = of(&large).unwrap_or(0);
        let growth = many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
        let note = format!(
            "{end}: peak {:.1} MiB with {FEW} files, {:.1} MiB with {MANY}: {growth:.2} bytes a file",
            mebibytes(few),
            mebibytes(many)
        );
        if many > PEAK_BYTES || growth >= BYTES_PER_FILE as f64 {
            failures.push(note.clone());
        }
        notes.push(note);
    }
    verdict(notes, failures)
}

fn heap(soak: &Soak, way: Way) -> Outcome {
    let (small, large) = few_and_many(soak, way, binary(soak, "count-heap")?)?;
    let ends: [End; 2] = [
        ("client", |copied| copied.summary["heap_bytes"].as_u64()),
        ("daemon", |copied| logged_heap(&copied.log)),
    ];
    let mut notes = vec![times(&small, &large)];
    let mut failures = Vec::new();
    for (end, of) in ends {
        let few: Option<Vec<u64>> = small.iter().map(of).collect();
        let (Some(few), Some(many)) = (few, of(&large)) else {
            return Err(format!("the {end} does not tell its heap"));
        };
        let most = few.iter().copied().max().unwrap_or(0);
        let note = format!(
            "{end}: live heap at the end {few:?} bytes with {FEW} files, {many} with {MANY}"
        );
        if many > most + FLAT_BYTES {
            failures.push(note.clone());
        }
        notes.push(note);
    }
    verdict(notes, failures)
}

/// Passed, unless there are failures.
pub fn verdict(notes: Vec<String>, failures: Vec<String>) -> Outcome {
    if failures.is_empty() {
        Ok(notes)
    } else {
        Err(format!("too much:\n{}", failures.join("\n")))
    }
}

fn times(small: &[Copied], large: &Copied) -> String {
    let few: Vec<u64> = small.iter().map(|copied| copied.seconds as u64).collect();
    format!("{FEW} files in {few:?} s, {MANY} in {:.0} s", large.seconds)
}

/// Converts bytes.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns the live heap that a daemon built with `count-heap` logs at a session's end.
fn logged_heap(log: &str) -> Option<u64> {
    let line = log.lines().rfind(|line| line.contains("live heap: "))?;
    let number = line.split("live heap: ").nth(1)?.split(' ').next()?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_heap_in_a_log() {
        let log = "longhaul: listening\nlonghaul: live heap: 123 bytes\nlonghaul: done\n";
        assert_eq!(logged_heap(log), Some(123));
        assert_eq!(logged_heap("nothing"), None);
    }
}
