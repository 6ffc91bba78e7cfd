//! Memory that stays warm while runs are made.
//!
//! A virtual machine returns idle memory to its host, after two seconds and in huge pages, and
//! gets it back a page at a time. 2 GiB that lay idle for ten seconds took a file system in memory
//! 1.9 s; the same memory in use a moment before took 0.6 s. So a slow method would be measured
//! with colder memory than a fast one. Therefore the memory that runs will need is touched, and
//! then one page of each half of a huge page is kept. The free memory between those pages is not a
//! huge page, and stays. A little is left whole for programs that want huge pages.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// What is taken and given back together: half a huge page of most machines.
const RUN_BYTES: u64 = 1 << 20;

/// Kept of each run; a page of most machines.
const KEPT_BYTES: u64 = 4096;

/// Left in whole huge pages, and touched before each run.
const WHOLE_BYTES: u64 = 512 << 20;

/// What is never taken.
const SPARED_BYTES: u64 = 1 << 30;

/// The pages that are kept.
#[derive(Default)]
pub struct WarmMemory {
    kept: Vec<File>,
    bytes: u64,
}

impl WarmMemory {
    /// Has memory ready for a run that will fill this many bytes of it, or what there is. Where
    /// the kernel refuses, memory is as it is.
    pub fn make_ready(&mut self, bytes: u64) {
        let room = free_memory().saturating_sub(SPARED_BYTES + WHOLE_BYTES);
        let wanted = bytes.saturating_sub(self.bytes).min(room);
        if wanted >= RUN_BYTES
            && let Ok(file) = touch(wanted)
        {
            // Those that are not given back are warm, too.
            let _ = give_back(&file, wanted, KEPT_BYTES);
            self.kept.push(file);
            self.bytes += wanted;
        }
        // Given back with the file.
        let _ = touch(WHOLE_BYTES.min(free_memory() / 2));
    }
}

/// A file in memory with this many bytes, rounded down to whole runs.
fn touch(bytes: u64) -> io::Result<File> {
    let mut file = File::from(memfd_create("warm", MemfdFlags::CLOEXEC)?);
    let run = vec![1; RUN_BYTES as usize];
    for _ in 0..bytes / RUN_BYTES {
        file.write_all(&run)?;
    }
    Ok(file)
}

/// Gives all of its runs back but this many bytes of each.
fn give_back(file: &File, bytes: u64, kept: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for run in 0..bytes / RUN_BYTES {
        fallocate(file, flags, run * RUN_BYTES + kept, RUN_BYTES - kept)?;
    }
    Ok(())
}

/// What nobody has and this process may have, in bytes; nothing where the kernel does not say.
fn free_memory() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes
        .unwrap_or_default()
        .saturating_mul(1024)
        .min(allowed_memory())
}

/// What this process's control groups leave it, in bytes: beyond, it would be killed. All
/// there is where nothing says so.
fn allowed_memory() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            names if names.split(',').any(|name| name == "memory") => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => return None,
        };
        // Its parents' limits are its own as well; in a container its path may be the host's.
        let own = Path::new(path.trim_start_matches('/'));
        let each = own.ancestors().filter_map(|group| {
            let read = |name| {
                let text = fs::read_to_string(Path::new(root).join(group).join(name)).ok()?;
                text.trim().parse::<u64>().ok()
            };
            Some(read(limit)?.saturating_sub(read(used)?))
        });
        each.min()
    };
    groups.lines().filter_map(left).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_page_of_each_run_is_kept() {
        let file = touch(3 * RUN_BYTES + 5).unwrap();
        let taken = |file: &File| file.metadata().unwrap().blocks() * 512;
        assert_eq!(taken(&file), 3 * RUN_BYTES);
        give_back(&file, 3 * RUN_BYTES + 5, KEPT_BYTES).unwrap();
        assert_eq!(taken(&file), 3 * KEPT_BYTES);
    }

    #[test]
    fn what_is_warm_is_not_touched_again() {
        let mut warm = WarmMemory::default();
        warm.make_ready(2 * RUN_BYTES);
        let bytes = warm.bytes;
        warm.make_ready(RUN_BYTES);
        assert_eq!(
            (warm.bytes, warm.kept.len()),
            (bytes, usize::from(bytes > 0))
        );
        warm.make_ready(4 * RUN_BYTES);
        assert!(warm.bytes >= bytes);
    }
}
