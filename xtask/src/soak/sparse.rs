//! Copies one sparse file of 300 GiB through a daemon. Its holes stay holes and are hashed, and its
//! digest is that of `b3sum` for the copy.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::copies::{Copies, Way, binary, make};
use super::parts::Step;
use super::{Outcome, Soak};
use crate::workspace;

/// Bytes of the file. They are not a multiple of any block size.
const SIZE: u64 = (300 << 30) + 4567;

/// Maximum space of the copy on the disk.
const TAKEN_BYTES: u64 = 1 << 20;

/// The file to the daemon, and from it.
pub fn steps(_: &Soak) -> Result<Vec<Step>, String> {
    let step = |name: &str, way| Step {
        name: name.to_owned(),
        size: "300 GiB".to_owned(),
        run: Box::new(move |soak: &Soak| run(soak, way)),
    };
    Ok(vec![step("push", Way::Push), step("pull", Way::Pull)])
}

/// Writes a file with data at its start, across a block's edge, in the middle and at its very end.
fn write(path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(SIZE)?;
    file.write_all_at(b"begin", 0)?;
    file.write_all_at(b"across an edge", (1 << 20) - 3)?;
    file.write_all_at(b"middle", SIZE / 2 + 12_345)?;
    file.write_all_at(b"end", SIZE - 3)?;
    file.sync_all()
}

fn run(soak: &Soak, way: Way) -> Outcome {
    let copies = Copies::new(soak, binary(soak, "default")?)?;
    let (here, there) = (copies.place("here")?, copies.place("there")?);
    make(&there)?;
    let source = here.join("sparse");
    write(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    let manifest = here.join("manifest");
    let manifest_option = manifest.display().to_string();
    let options = ["--manifest", manifest_option.as_str()];
    let copied = match way {
        Way::Push => copies.copy(way, &there, &source.display().to_string(), "", &options),
        Way::Pull => {
            let to = format!("{}/", there.display());
            copies.copy(way, &here, "sparse", &to, &options)
        }
    }?;
    let copy = there.join("sparse");
    let status = fs::metadata(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    let taken = status.blocks() * 512;
    if status.len() != SIZE || taken > TAKEN_BYTES {
        return Err(format!("{} bytes, {taken} on the disk", status.len()));
    }
    let listed = fs::read_to_string(&manifest).map_err(|error| error.to_string())?;
    let mut notes = vec![
        format!(
            "{:.0} s; CPU: client {:.0} s, daemon {:.0} s; {taken} bytes taken at the destination",
            copied.seconds, copied.client.cpu_seconds, copied.daemon.cpu_seconds
        ),
        listed.trim().to_owned(),
    ];
    // `b3sum` checks one direction only, because it reads every hole.
    if way == Way::Push {
        notes.push(compare(&copy, &listed)?);
    }
    copies.finish()?;
    Ok(notes)
}

fn compare(copy: &Path, listed: &str) -> Result<String, String> {
    let mut tool = Command::new("b3sum");
    if tool.arg("--version").output().is_err() {
        return Ok("b3sum is not installed: not compared".to_owned());
    }
    let began = Instant::now();
    // Mapping it would fill the page cache with zeros.
    let mut tool = Command::new("b3sum");
    tool.args(["--no-mmap", "--no-names"]).arg(copy);
    let found = workspace::output_of(&mut tool)?;
    let seconds = began.elapsed().as_secs();
    if listed.starts_with(found.trim()) {
        Ok(format!("b3sum of the copy agrees, after {seconds} s"))
    } else {
        Err(format!("b3sum says {found}, the manifest {listed}"))
    }
}
