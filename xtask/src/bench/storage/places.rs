//! The file systems that are measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ACCESSES, FILE_BYTES, fio};
use crate::workspace;

/// The file system of the build.
pub const HERE: &str = "here";
/// A file system without a disk.
pub const MEMORY: &str = "tmpfs";
/// A file system on top of [`HERE`].
pub const OVERLAY: &str = "overlayfs";

/// Those that lie on loop devices, and what makes them.
const IMAGES: [(&str, &str, &[&str]); 2] = [
    ("XFS", "xfs", &["mkfs.xfs", "-q"]),
    ("btrfs", "btrfs", &["mkfs.btrfs", "-q"]),
];

/// The large file twice, its copy that is written, and small files of six
/// rounds, each a page and an inode. The file is sparse.
const IMAGE_BYTES: u64 = 4 << 30;

/// All places in their order, whether measured or not.
pub fn names() -> [&'static str; 5] {
    [HERE, IMAGES[0].0, IMAGES[1].0, MEMORY, OVERLAY]
}

/// A directory on the file system to measure.
pub struct Place {
    name: &'static str,
    path: PathBuf,
}

impl Place {
    /// Returns its name in the record.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A directory in it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Those that could be made.
pub struct Places(Vec<Place>);

/// True if this process may make a mount namespace.
pub fn may_mount() -> bool {
    let trial = ["--mount", "--", "true"];
    let output = Command::new("unshare").args(trial).output();
    output.is_ok_and(|output| output.status.success())
}

impl Places {
    /// Makes file systems beneath a directory, and a file in each of them. What
    /// cannot be made is named on stdout and left out.
    ///
    /// # Errors
    ///
    /// If not even the directory can be used.
    pub fn prepare(directory: &Path) -> Result<Places, String> {
        let mut places = Vec::new();
        for name in names() {
            let path = directory.join(name);
            fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            match mount(name, directory, &path) {
                Ok(()) => places.push(Place { name, path }),
                Err(reason) => println!("bench: {name} is left out: {reason}"),
            }
        }
        for place in &places {
            write_files(place)?;
        }
        Ok(Places(places))
    }

    /// All of them.
    pub fn all(&self) -> &[Place] {
        &self.0
    }
}

fn mount(name: &str, directory: &Path, point: &Path) -> Result<(), String> {
    if name == HERE {
        return Ok(());
    }
    if !may_mount() {
        return Err("mounting needs root".to_owned());
    }
    let text = |path: &Path| path.display().to_string();
    if name == MEMORY {
        return mounted(&["-t", "tmpfs", "-o", "size=2g", "tmpfs", &text(point)]);
    }
    if name == OVERLAY {
        let layers = ["lower", "upper", "work"].map(|layer| directory.join(layer));
        for layer in &layers {
            fs::create_dir(layer).map_err(|error| error.to_string())?;
        }
        let [lower, upper, work] = layers.each_ref().map(|layer| text(layer));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        return mounted(&["-t", "overlay", "-o", &options, "overlay", &text(point)]);
    }
    let (_, kind, make) = IMAGES
        .into_iter()
        .find(|image| image.0 == name)
        .ok_or(name)?;
    let image = directory.join(format!("{name}.image"));
    File::create(&image)
        .and_then(|file| file.set_len(IMAGE_BYTES))
        .map_err(|error| error.to_string())?;
    workspace::output_of(Command::new(make[0]).args(&make[1..]).arg(&image))?;
    // Direct I/O bypasses the page cache of the file system beneath. Otherwise a second cache would
    // be measured.
    let attach = ["--find", "--show", "--direct-io=on"];
    let device = workspace::output_of(Command::new("losetup").args(attach).arg(&image))?;
    let device = device.trim();
    let done = mounted(&["-t", kind, device, &text(point)]);
    // The device stays attached until its last user ends.
    workspace::output_of(Command::new("losetup").args(["--detach", device]))?;
    done
}

fn mounted(arguments: &[&str]) -> Result<(), String> {
    workspace::output_of(Command::new("mount").args(arguments)).map(drop)
}

/// Writes the files to read: one that stays in memory, and one that does not.
fn write_files(place: &Place) -> Result<(), String> {
    let accesses = ACCESSES
        .iter()
        .filter(|access| access.name.starts_with("read"));
    for file in accesses.map(|access| access.options.last()) {
        let path = file
            .and_then(|option| option.split_once('='))
            .ok_or("no file")?
            .1;
        let wanted = super::blocks_of(place.name());
        let used = wanted
            .iter()
            .any(|(access, _)| access.options.last() == file);
        if !used || place.path().join(path).exists() {
            continue;
        }
        let options = [
            "--rw=write".to_owned(),
            "--bs=1m".to_owned(),
            "--end_fsync=1".to_owned(),
            format!("--size={FILE_BYTES}"),
            format!("--filename={path}"),
        ];
        fio(place.path(), &options)?;
    }
    Ok(())
}
