//! File systems created for one test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Reason why a file system could not be tested.
pub struct Skipped(String);

impl Skipped {
    /// Reports the reason.
    pub fn report(self, name: &str) {
        let Skipped(reason) = self;
        longhaul_testing::skip(&format!("{name} was not tried: {reason}"));
    }
}

/// Mounted file systems, until this is dropped, also by a panic. A killed test leaves no mounts
/// either: its mount namespace ends with it, and the loop device ends with the mount.
pub struct Mounted {
    /// Mount points in the order of mounting.
    points: Vec<PathBuf>,
    /// Holds the image and the mount point; dropped after the unmounting.
    _directory: TempDir,
}

impl Mounted {
    pub fn point(&self) -> &Path {
        self.points.last().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for point in self.points.iter().rev() {
            let plain = Command::new("umount").arg(point).status();
            if !plain.is_ok_and(|status| status.success()) {
                let _ = Command::new("umount").arg("--lazy").arg(point).status();
            }
        }
    }
}

/// Large enough for the smallest XFS (300 MB); the file is sparse.
const IMAGE_BYTES: u64 = 512 << 20;

/// Mounts a file system on a loop device, created by a command that takes the image.
pub fn mount_image(kind: &str, make: &[&str]) -> Result<Mounted, Skipped> {
    let directory = private_directory()?;
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
    let point = directory.path().join("mounted");
    fs::create_dir(&point).unwrap();
    mount(["-t", kind, "-o", "loop"], &image, &point)?;
    Ok(Mounted {
        points: vec![point],
        _directory: directory,
    })
}

/// Mounts a tmpfs that is small enough to be filled.
pub fn mount_tmpfs() -> Result<Mounted, Skipped> {
    let directory = private_directory()?;
    let point = directory.path().join("mounted");
    fs::create_dir(&point).unwrap();
    mount(["-t", "tmpfs", "-o", "size=64m"], "tmpfs", &point)?;
    Ok(Mounted {
        points: vec![point],
        _directory: directory,
    })
}

/// Mounts an overlayfs over ext4, so that it does not depend on the file system of temporary files.
pub fn mount_overlay() -> Result<Mounted, Skipped> {
    let mut mounted = mount_image("ext4", &["mkfs.ext4", "-q"])?;
    let base = mounted.point().to_owned();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(base.join(name)).unwrap();
    }
    let layers = format!(
        "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work",
        base.display()
    );
    let point = base.join("merged");
    mount(["-t", "overlay", "-o", &layers], "overlay", &point)?;
    mounted.points.push(point);
    Ok(mounted)
}

/// Mounts NTFS by FUSE, which ignores case in names.
pub fn mount_folding() -> Result<Mounted, Skipped> {
    let directory = private_directory()?;
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    run(Command::new("mkfs.ntfs").arg("-qF").arg(&image))?;
    let point = directory.path().join("mounted");
    fs::create_dir(&point).unwrap();
    let options = ["-o", "ignore_case"];
    run(Command::new("lowntfs-3g")
        .args(options)
        .arg(&image)
        .arg(&point))?;
    Ok(Mounted {
        points: vec![point],
        _directory: directory,
    })
}

fn private_directory() -> Result<TempDir, Skipped> {
    if !rustix::process::geteuid().is_root() {
        return Err(Skipped("it needs root".to_owned()));
    }
    // If a sandbox forbids it, mounts are visible outside for a while.
    if leave_mount_namespace() {
        run(Command::new("mount").args(["--make-rprivate", "/"]))?;
    }
    Ok(tempfile::tempdir().unwrap())
}

/// Gives this thread, and the processes that it starts, a separate mount namespace.
#[expect(unsafe_code, reason = "rustix calls it unsafe as well")]
fn leave_mount_namespace() -> bool {
    // SAFETY: the call touches no memory. The thread no longer shares its
    // working directory and umask with the others, which no test here changes.
    unsafe { libc::unshare(libc::CLONE_NEWNS) == 0 }
}

fn mount(options: [&str; 4], source: impl AsRef<OsStr>, point: &Path) -> Result<(), Skipped> {
    run(Command::new("mount").args(options).arg(source).arg(point))
}

fn run(command: &mut Command) -> Result<(), Skipped> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| Skipped(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Skipped(format!("{program}: {}", complaint.trim())))
}
