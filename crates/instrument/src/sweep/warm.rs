//! Keeps memory warm between runs.
//!
//! A virtual machine returns idle memory to its host after two seconds, in huge pages,
//! and gets it back one page at a time. 2 GiB that were idle for ten seconds took a file
//! system in memory 1.9 s; memory that was just in use took 0.6 s. Methods that follow a
//! slow run would therefore be measured with colder memory. To prevent this, the memory
//! that runs need is touched, and one page of each half of a huge page is kept. The free
//! memory in between is not a whole huge page and is not returned. Some memory is left in
//! whole huge pages for programs that use them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// Number of bytes that are taken and given back together: half a huge page on most
/// machines.
const RUN_BYTES: u64 = 1 << 20;

/// Number of bytes kept of each run: a page on most machines.
const KEPT_BYTES: u64 = 4096;

/// Number of bytes left in whole huge pages, and touched before each run.
const WHOLE_BYTES: u64 = 512 << 20;

/// Number of bytes of free memory that are never taken.
const SPARED_BYTES: u64 = 1 << 30;

/// The kept pages.
#[derive(Default)]
pub struct WarmMemory {
    kept: Vec<File>,
    bytes: u64,
}

impl WarmMemory {
    /// Prepares memory for a run that uses this many bytes, as far as there is free
    /// memory. If the kernel refuses, memory stays unchanged.
    pub fn make_ready(&mut self, bytes: u64) {
        let room = free_memory().saturating_sub(SPARED_BYTES + WHOLE_BYTES);
        let wanted = bytes.saturating_sub(self.bytes).min(room);
        if wanted >= RUN_BYTES
            && let Ok(file) = touch(wanted)
        {
            // Memory that is not given back is warm as well.
            let _ = give_back(&file, wanted, KEPT_BYTES);
            self.kept.push(file);
            self.bytes += wanted;
        }
        // The memory is given back when the file is dropped.
        let _ = touch(WHOLE_BYTES.min(free_memory() / 2));
    }
}

/// Returns a file in memory with this many bytes, rounded down to whole runs.
fn touch(bytes: u64) -> io::Result<File> {
    let mut file = File::from(memfd_create("warm", MemfdFlags::CLOEXEC)?);
    let run = vec![1; RUN_BYTES as usize];
    for _ in 0..bytes / RUN_BYTES {
        file.write_all(&run)?;
    }
    Ok(file)
}

/// Gives back all memory of a file except the first `kept` bytes of each run.
fn give_back(file: &File, bytes: u64, kept: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for run in 0..bytes / RUN_BYTES {
        fallocate(file, flags, run * RUN_BYTES + kept, RUN_BYTES - kept)?;
    }
    Ok(())
}

/// Returns the free memory in bytes that this process may use; 0 if the kernel does not
/// report it.
fn free_memory() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes
        .unwrap_or_default()
        .saturating_mul(1024)
        .min(allowed_memory())
}

/// Returns the memory in bytes that the control groups of this process still allow;
/// beyond it, the process would be killed. `u64::MAX` without a limit.
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
        // Limits of parent groups also apply. In a container, the path may be that of the
        // host.
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
    fn warm_memory_is_not_touched_again() {
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
