//! Resources that the system allows this process: threads, memory and open files, by resource
//! limits and control groups. Also names the limit that caused a failure.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use longhaul_units::ByteCount;
use rustix::process::{Resource, getrlimit};

/// Divisor of the available memory for blocks. Thread stacks, file metadata and the page cache need
/// the rest.
const PART_FOR_BLOCKS: u64 = 4;

/// Size in bytes of the stack of a thread that std starts.
const STACK_BYTES: u64 = 2 << 20;

/// Remaining threads above which threads are not counted, because counting costs about as much as
/// starting them.
const MANY_THREADS: u64 = 16_384;

/// The same for the tasks of a control group, which has few processes.
const MANY_TASKS: u64 = 256;

/// Maximum time that the kernel may need to remove an ended thread from its counts.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(1);

/// Mount point of the control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// Maximum number of nested control groups that are examined.
const MOST_LEVELS: usize = 64;

/// Returns the maximum number of descriptors of this process (`RLIMIT_NOFILE`), as of the first
/// call.
pub(crate) fn files() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile).current;
        limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        })
    })
}

/// Returns one part in `parts` of the maximum number of descriptors.
pub(crate) fn part_of_files(parts: usize) -> usize {
    files() / parts.max(1)
}

/// The files of a control group for one kind of limit.
struct Group {
    directory: PathBuf,
    /// Name of the group, for messages.
    name: String,
}

/// Returns the control groups of this process that may have a limit of the kind `pids`, `memory` or
/// `cpu`, innermost first. The list may be empty.
fn groups(root: &Path, membership: &str, kind: &str) -> Vec<Group> {
    let lines = membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, kinds, path) = (fields.next()?, fields.next()?, fields.next()?);
        Some((kinds, path))
    });
    let mut found = Vec::new();
    for (kinds, path) in lines {
        let mounts: &[&str] = match kinds {
            "" => &["", "unified"],
            _ if kinds.split(',').any(|one| one == kind) => &[kind, kinds],
            _ => continue,
        };
        for mount in mounts {
            let mount = root.join(mount);
            // A container may see its own group as the root, under another name.
            let relative = Path::new(path.trim_start_matches('/'));
            let inside = mount.join(relative).is_dir();
            let levels = relative.ancestors().take(MOST_LEVELS);
            let levels = levels.filter(|level| inside || *level == Path::new(""));
            found.extend(levels.map(|level| Group {
                directory: mount.join(level),
                name: format!("/{}", level.display()),
            }));
        }
    }
    found
}

impl Group {
    /// Reads a number from one of the group's files; `None` if the file is missing or contains
    /// `max`.
    fn number(&self, file: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.directory.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// Returns the group's memory limit in bytes, in either version of control groups.
    fn memory(&self) -> Option<u64> {
        let files = ["memory.max", "memory.high", "memory.limit_in_bytes"];
        let limits = files.into_iter().filter_map(|file| self.number(file));
        limits.min()
    }

    /// Returns the group's processor limit in cores, in either version of control groups.
    fn processor(&self) -> Option<f64> {
        let text = std::fs::read_to_string(self.directory.join("cpu.max")).unwrap_or_default();
        let mut words = text.split_ascii_whitespace().map(str::parse::<f64>);
        let (quota, period) = match (words.next(), words.next()) {
            (Some(Ok(quota)), Some(Ok(period))) => (quota, period),
            _ => (
                self.number("cpu.cfs_quota_us")? as f64,
                self.number("cpu.cfs_period_us")? as f64,
            ),
        };
        (period > 0.0).then_some(quota / period)
    }

    /// Returns the number of tasks that the group has room for, and its maximum.
    fn tasks(&self) -> Option<(u64, u64)> {
        let most = self.number("pids.max")?;
        let now = self.number("pids.current").unwrap_or_default();
        Some((most.saturating_sub(now), most))
    }
}

/// Returns the control groups of this process.
fn own_groups(kind: &str) -> Vec<Group> {
    groups(Path::new(ROOT), &own_membership(), kind)
}

fn own_membership() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Limit on the processor time of a control group's processes.
#[derive(Debug)]
pub(crate) struct Quota {
    /// Seconds of a core in each second.
    pub cores: f64,
    /// File in which the kernel counts the used time.
    usage: PathBuf,
}

impl Quota {
    /// Returns the processor time used by the group in core seconds; 0 if unknown.
    pub fn used_seconds(&self) -> f64 {
        let text = std::fs::read_to_string(&self.usage).unwrap_or_default();
        let named = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        match named {
            Some(microseconds) => microseconds.trim().parse().unwrap_or(0.0) * 1e-6,
            // Version 1 has a single number of nanoseconds.
            None => text.trim().parse().unwrap_or(0.0) * 1e-9,
        }
    }
}

/// Returns the processor limits of this process's groups.
pub(crate) fn quotas() -> Vec<Quota> {
    quotas_of(Path::new(ROOT), &own_membership())
}

fn quotas_of(root: &Path, membership: &str) -> Vec<Quota> {
    let counting = groups(root, membership, "cpuacct");
    let quota = |group: Group| {
        let cores = group.processor()?;
        // In version 1, the counts may lie in a separate hierarchy.
        let elsewhere = counting.iter().filter(|other| other.name == group.name);
        let elsewhere = elsewhere.map(|other| other.directory.join("cpuacct.usage"));
        let here = ["cpu.stat", "cpuacct.usage"].map(|file| group.directory.join(file));
        let counts = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.contains("usage_usec ") || text.trim().parse::<u64>().is_ok()
        };
        let usage = here.into_iter().chain(elsewhere).find(counts)?;
        Some(Quota { cores, usage })
    };
    let limited = groups(root, membership, "cpu");
    let mut found: Vec<Quota> = limited.into_iter().filter_map(quota).collect();
    // A controller that is mounted alone appears under two names.
    found.sort_by(|one, other| one.usage.cmp(&other.usage));
    found.dedup_by(|one, other| one.usage == other.usage);
    found
}

/// Returns the number of bytes of address space that this process has mapped.
fn mapped_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| kibibytes.saturating_mul(1024))
}

/// Returns the number of bytes that this process may still map, if that is limited.
fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    Some(limit.saturating_sub(mapped_bytes()))
}

/// Returns the number of bytes of memory that this process may still use, if a resource limit or a
/// control group limits it.
pub(crate) fn memory_left() -> Option<u64> {
    let data = getrlimit(Resource::Data).current;
    let groups = own_groups("memory");
    let by_group = groups.iter().filter_map(Group::memory);
    by_group
        .chain(address_space_left())
        .chain(data.map(|limit| limit.saturating_sub(mapped_bytes())))
        .min()
}

/// Returns the memory for blocks: `wanted`, or less if the limits of this process require it.
pub fn for_blocks(wanted: ByteCount) -> ByteCount {
    let part = |left: u64| ByteCount(left / PART_FOR_BLOCKS);
    memory_left().map_or(wanted, |left| wanted.min(part(left)))
}

/// Returns the number of threads, at most `wanted`, that this process may start now. If a limit is
/// near, it counts them by starting them.
pub fn threads(wanted: usize) -> usize {
    let by_user = getrlimit(Resource::Nproc).current;
    let by_group = own_groups("pids");
    let near = by_user.is_some_and(|limit| limit < MANY_THREADS)
        || by_group
            .iter()
            .filter_map(Group::tasks)
            .any(|(left, _)| left < MANY_TASKS)
        || address_space_left().is_some_and(|left| left < 2 * STACK_BYTES * wanted as u64);
    if near { count_threads(wanted) } else { wanted }
}

/// Counts the threads that can run at the same time, by starting them.
fn count_threads(wanted: usize) -> usize {
    let before = own_threads();
    let counted = std::thread::scope(|scope| {
        let mut waiting = Vec::new();
        // A starting thread maps more than its stack. If that fails, the process aborts.
        let has_room = || address_space_left().is_none_or(|left| left >= 2 * STACK_BYTES);
        while waiting.len() < wanted && has_room() {
            let (go, wait) = channel::<()>();
            let thread = std::thread::Builder::new().name("count".into());
            // The thread ends when `go` is dropped.
            let started = thread.spawn_scoped(scope, move || wait.recv());
            if started.is_err() {
                break;
            }
            waiting.push(go);
        }
        waiting.len()
    });
    // The kernel may still count a joined thread for a short time.
    let until = Instant::now() + FORGOTTEN_WITHIN;
    while own_threads() > before && Instant::now() < until {
        std::thread::yield_now();
    }
    counted
}

/// Returns the number of threads of this process.
fn own_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Describes why a thread could not be started, with the limit's name and the remedy.
pub fn thread_refusal(error: &io::Error) -> String {
    format!("cannot start a thread: {}", thread_limit(error))
}

fn thread_limit(error: &io::Error) -> String {
    let full = own_groups("pids").into_iter().find_map(|group| {
        let (left, most) = group.tasks()?;
        (left == 0).then_some((group.name, most))
    });
    if let Some((name, most)) = full {
        return format!(
            "the control group {name} allows {most} processes and threads (pids.max), and has \
             them: raise that (TasksMax= of systemd, --pids-limit of a container), or end other \
             processes in it"
        );
    }
    if address_space_left().is_some_and(|left| left < 2 * STACK_BYTES) {
        return "the limit of this process's memory (`ulimit -v`, RLIMIT_AS) leaves no room for \
                its stack: raise that limit"
            .to_owned();
    }
    match getrlimit(Resource::Nproc).current {
        Some(most) if !rustix::process::getuid().is_root() => format!(
            "this user may have {most} processes and threads at once (`ulimit -u`, RLIMIT_NPROC), \
             and has them: end other processes of this user, or have the limit raised"
        ),
        _ => format!(
            "{error}: the system has no room for more (kernel.threads-max, kernel.pid_max), or no \
             memory: end other processes, or raise these"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a tree of control groups with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn least_memory(root: &Path, membership: &str) -> Option<u64> {
        let groups = groups(root, membership, "memory");
        groups.iter().filter_map(Group::memory).min()
    }

    #[test]
    fn processor_time_is_bounded_in_either_version() {
        let root = tree(&[
            ("job/cpu.max", "150000 100000\n"),
            ("job/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("job/step/cpu.max", "max 100000\n"),
            ("cpu/slurm/cpu.cfs_quota_us", "50000\n"),
            ("cpu/slurm/cpu.cfs_period_us", "100000\n"),
            ("cpuacct/slurm/cpuacct.usage", "3000000000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let found = |membership: &str| {
            let quotas = quotas_of(root.path(), membership);
            let found = quotas
                .iter()
                .map(|quota| (quota.cores, quota.used_seconds()));
            found.collect::<Vec<(f64, f64)>>()
        };
        assert_eq!(found("0::/job/step\n"), [(1.5, 2.5)]);
        assert_eq!(found("2:cpuacct:/slurm\n1:cpu:/slurm\n"), [(0.5, 3.0)]);
        assert!(found("0::/other\n").is_empty());
    }

    #[test]
    fn the_tightest_level_of_either_version_counts() {
        let root = tree(&[
            ("job/step/memory.max", "max\n"),
            ("job/memory.max", "200\n"),
            ("job/memory.high", "150\n"),
            ("memory/slurm/memory.limit_in_bytes", "90\n"),
            ("cpu/slurm/memory.max", "1\n"),
        ]);
        assert_eq!(least_memory(root.path(), "0::/job/step\n"), Some(150));
        let both = "5:cpu:/slurm\n4:memory:/slurm\n0::/job/step\n";
        assert_eq!(least_memory(root.path(), both), Some(90));
        assert_eq!(least_memory(root.path(), "0::/other\n"), None);
        assert_eq!(least_memory(root.path(), "nonsense"), None);
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let root = tree(&[("memory/memory.limit_in_bytes", "70\n")]);
        let membership = "4:memory:/docker/abc\n";
        assert_eq!(least_memory(root.path(), membership), Some(70));
    }

    #[test]
    fn a_full_group_is_found_at_any_level() {
        let root = tree(&[
            ("a/b/pids.max", "max\n"),
            ("a/pids.max", "20\n"),
            ("a/pids.current", "20\n"),
        ]);
        let groups = groups(root.path(), "0::/a/b\n", "pids");
        let full = groups.iter().filter(|group| group.tasks() == Some((0, 20)));
        let names: Vec<_> = full.map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/a"]);
    }

    #[test]
    fn threads_are_counted_and_end() {
        assert_eq!(count_threads(5), 5);
        assert_eq!(threads(3), 3);
    }

    #[test]
    fn a_refusal_names_a_remedy() {
        let error = io::Error::from_raw_os_error(rustix::io::Errno::AGAIN.raw_os_error());
        let text = thread_refusal(&error);
        assert!(text.starts_with("cannot start a thread: "), "{text}");
        assert!(text.contains("raise"), "{text}");
    }
}
