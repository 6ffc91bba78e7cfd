//! Describes the storage of a directory: file system, mount, device, and the striping of
//! files if the file system reports it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::host::{line, number};

/// Maximum number of bytes kept of a file system's answer.
const MOST_ANSWER: usize = 4096;

/// Commands that report a directory's layout, by the file system's name in the mount
/// table. The directory is appended.
const COMMANDS: [(&str, &[&str]); 3] = [
    ("lustre", &["lfs", "getstripe", "-d"]),
    ("beegfs", &["beegfs-ctl", "--getentryinfo"]),
    ("gpfs", &["mmlsattr", "-L"]),
];

/// Extended attributes that report the layout, by the file system's name.
const ATTRIBUTES: [(&str, &str); 2] = [
    ("ceph", "ceph.dir.layout"),
    ("fuse.glusterfs", "trusted.glusterfs.pathinfo"),
];

/// An entry of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    point: String,
    kind: String,
    source: String,
    options: String,
}

/// Returns all facts about a path, which must not contain symbolic links.
pub fn facts(path: &Path) -> Value {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(mount) = mount_of(&table, path) else {
        return json!({ "path": path.display().to_string() });
    };
    let status = rustix::fs::statvfs(path).ok();
    json!({
        "path": path.display().to_string(),
        "file_system": mount.kind,
        "mount_point": mount.point,
        "mount_options": mount.options,
        "source": mount.source,
        "bytes": status.as_ref().map(|s| s.f_blocks.saturating_mul(s.f_frsize)),
        "free_bytes": status.as_ref().map(|s| s.f_bavail.saturating_mul(s.f_frsize)),
        "device": device(&mount.device),
        "layout": layout(&mount.kind, path),
    })
}

/// Returns the mount that contains the path: the one with the longest mount point.
fn mount_of(table: &str, path: &Path) -> Option<Mount> {
    let mounts = table.lines().filter_map(parse);
    let beneath = mounts.filter(|mount| path.starts_with(&mount.point));
    // `max_by_key` returns the last of equal mount points, which hides the others.
    beneath.max_by_key(|mount| mount.point.len())
}

/// Parses `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS FIELDS... - KIND SOURCE SUPER`.
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?.to_owned(), unescaped(after.next()?));
    let rest = after.next().unwrap_or_default();
    Some(Mount {
        device: (*before.get(2)?).to_owned(),
        point: unescaped(before.get(4)?),
        kind,
        source,
        options: joined(before.get(5)?, rest),
    })
}

/// Joins the options of the mount and of its file system without duplicates.
fn joined(own: &str, file_system: &str) -> String {
    let mut options: Vec<&str> = own.split(',').collect();
    for option in file_system.split(',').filter(|option| !option.is_empty()) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    options.join(",")
}

/// Replaces octal escapes of the mount table.
fn unescaped(text: &str) -> String {
    let blanks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n")];
    let text = blanks
        .iter()
        .fold(text.to_owned(), |text, (written, meant)| {
            text.replace(written, meant)
        });
    text.replace("\\134", "\\")
}

/// Describes the block device; null without one.
fn device(number_of_it: &str) -> Value {
    let own = Path::new("/sys/dev/block").join(number_of_it);
    // A partition uses the queue of its disk.
    let queue = [own.join("queue"), own.join("../queue")];
    let Some(queue) = queue.into_iter().find(|queue| queue.is_dir()) else {
        return Value::Null;
    };
    json!({
        "scheduler": line(queue.join("scheduler")),
        "requests": number(queue.join("nr_requests")),
        "read_ahead_kib": number(queue.join("read_ahead_kb")),
        "rotational": number(queue.join("rotational")),
        "largest_request_kib": number(queue.join("max_sectors_kb")),
        "largest_request_segments": number(queue.join("max_segments")),
        "block_bytes": number(queue.join("logical_block_size")),
        "write_cache": line(queue.join("write_cache")),
    })
}

/// Returns the layout command and its answer; null for file systems without a known
/// command.
fn layout(kind: &str, path: &Path) -> Value {
    if let Some((_, words)) = COMMANDS.iter().find(|(name, _)| *name == kind) {
        let output = Command::new(words[0]).args(&words[1..]).arg(path).output();
        let (answer, error) = match output {
            Ok(output) if output.status.success() => (Some(kept(&output.stdout)), None),
            Ok(output) => (None, Some(kept(&output.stderr))),
            Err(error) => (None, Some(error.to_string())),
        };
        return json!({ "asked": words.join(" "), "answer": answer, "error": error });
    }
    let Some((_, name)) = ATTRIBUTES.iter().find(|(name, _)| *name == kind) else {
        return Value::Null;
    };
    let mut value = vec![0; MOST_ANSWER];
    let (answer, error) = match rustix::fs::getxattr(path, *name, &mut value) {
        Ok(length) => (Some(kept(&value[..length])), None),
        Err(error) => (None, Some(error.to_string())),
    };
    json!({ "asked": format!("getfattr -n {name}"), "answer": answer, "error": error })
}

fn kept(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_ANSWER)]);
    text.trim_end_matches(['\0', '\n']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:24 / /dev/shm rw - tmpfs tmpfs rw,size=24684096k
31 27 8:1 / /my\\040data rw,noatime shared:5 - xfs /dev/sda1 rw,attr2
32 27 8:2 / /my\\040data rw - btrfs /dev/sdb rw
";

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let of = |path: &str| mount_of(TABLE, Path::new(path)).unwrap();
        assert_eq!(of("/usr/a").kind, "ext4");
        assert_eq!(of("/dev/shm/x").kind, "tmpfs");
        assert_eq!(of("/dev/shmoo").kind, "ext4");
        let data = of("/my data/run");
        assert_eq!((data.kind.as_str(), data.device.as_str()), ("btrfs", "8:2"));
        assert_eq!(data.options, "rw", "options of both appear once");
        assert_eq!(of("/usr/a").options, "rw,relatime,discard");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn the_file_system_of_a_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let facts = facts(&directory.path().canonicalize().unwrap());
        assert!(facts["file_system"].is_string(), "{facts}");
        assert!(facts["free_bytes"].as_u64().is_some());
    }

    #[test]
    fn a_layout_contains_the_command() {
        assert_eq!(layout("ext4", Path::new("/")), Value::Null);
        let asked = layout("ceph", Path::new("/"));
        assert_eq!(asked["asked"], "getfattr -n ceph.dir.layout");
        assert!(asked["answer"].is_null() && asked["error"].is_string());
    }
}
