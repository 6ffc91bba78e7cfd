//! A million names of a quarter as many files, copied with `-H` through a daemon: the same names
//! belong together afterwards, and the table of files does not cost memory.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::copies::{Copies, Way, binary, make};
use super::entries::{ends, remove};
use super::million::write;
use super::parts::Step;
use super::{Outcome, Soak};

/// Files, and the names of each. They lie in as many trees, so that the walk has met all
/// files before it meets one again.
const FILES: u64 = 250_000;
const NAMES: u64 = 4;

/// Names in each directory.
const PER_DIRECTORY: u64 = 1000;

/// Makes a step for each direction.
pub fn steps(_: &Soak) -> Result<Vec<Step>, String> {
    let step = |name: &str, way, last| Step {
        name: name.to_owned(),
        size: format!("{} names of {FILES} files", FILES * NAMES),
        run: Box::new(move |soak: &Soak| run(soak, way, last)),
    };
    Ok(vec![
        step("push", Way::Push, false),
        step("pull", Way::Pull, true),
    ])
}

/// Returns one of the names of a file, below the root.
fn name_of(file: u64, name: u64) -> PathBuf {
    let directory = file / PER_DIRECTORY;
    PathBuf::from(format!("{name}/{directory:03}/{:03}", file % PER_DIRECTORY))
}

/// The tree, made once.
fn tree(soak: &Soak) -> Result<PathBuf, String> {
    let root = soak.directory.join("links");
    let made = soak.directory.join("links.made");
    if made.exists() {
        return Ok(root);
    }
    println!("soak:   making {} names", FILES * NAMES);
    remove(&root)?;
    make_links(&root, FILES)?;
    write(&made, b"")?;
    Ok(root)
}

fn make_links(root: &Path, files: u64) -> Result<(), String> {
    for name in 0..NAMES {
        for file in 0..files {
            let path = root.join(name_of(file, name));
            if file % PER_DIRECTORY == 0 {
                make(path.parent().unwrap_or(root))?;
            }
            if name == 0 {
                write(&path, format!("file {file}\n").as_bytes())?;
                continue;
            }
            fs::hard_link(root.join(name_of(file, 0)), &path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Checks that at the destination the names of each file are those of one file of the same size,
/// and that this file has no other names.
fn compare(root: &Path, copy: &Path, files: u64) -> Result<(), String> {
    let status = |path: &Path| {
        let found = fs::symlink_metadata(path);
        found.map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut firsts: HashMap<u64, u64> = HashMap::new();
    for file in 0..files {
        let source = status(&root.join(name_of(file, 0)))?;
        for name in 0..NAMES {
            let path = copy.join(name_of(file, name));
            let found = status(&path)?;
            let whole = found.nlink() == NAMES && found.len() == source.len();
            if *firsts.entry(found.ino()).or_insert(file) != file || !whole {
                return Err(format!("{} is not what it was copied from", path.display()));
            }
        }
    }
    if firsts.len() as u64 == files {
        Ok(())
    } else {
        Err(format!("there are {} files, not {files}", firsts.len()))
    }
}

fn run(soak: &Soak, way: Way, last: bool) -> Outcome {
    let root = tree(soak)?;
    let copies = Copies::new(soak, binary(soak, "default")?)?;
    let there = copies.place("there")?;
    let copy = || match way {
        Way::Push => copies.copy(way, &there, &format!("{}/", root.display()), "", &["-H"]),
        Way::Pull => copies.copy(way, &root, "", &format!("{}/", there.display()), &["-H"]),
    };
    let copied = copy()?;
    if copied.summary["moved_files"] != FILES {
        return Err(format!("not {FILES} files were moved: {}", copied.summary));
    }
    compare(&root, &there, FILES)?;
    let mut notes = vec!["the copy:".to_owned()];
    notes.extend(ends(&copied, FILES * NAMES)?);
    let again = copy()?;
    let idle = again.summary["entries"] == 0 && again.summary["skipped_entries"] == FILES * NAMES;
    if !idle {
        return Err(format!("the second copy found work: {}", again.summary));
    }
    compare(&root, &there, FILES)?;
    notes.push("a second copy, which found nothing to do:".to_owned());
    notes.extend(ends(&again, FILES * NAMES)?);
    copies.finish()?;
    if last {
        remove(&root)?;
        fs::remove_file(soak.directory.join("links.made")).map_err(|error| error.to_string())?;
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pair_and_a_joined_one_are_found() {
        let root = std::env::temp_dir().join(format!("soak-links-{}", std::process::id()));
        make_links(&root, 3).unwrap();
        compare(&root, &root, 3).unwrap();
        let name = root.join(name_of(1, 2));
        let bytes = fs::read(&name).unwrap();
        fs::remove_file(&name).unwrap();
        write(&name, &bytes).unwrap();
        assert!(compare(&root, &root, 3).is_err());
        fs::remove_file(&name).unwrap();
        fs::hard_link(root.join(name_of(2, 0)), &name).unwrap();
        assert!(compare(&root, &root, 3).is_err());
        remove(&root).unwrap();
    }
}
