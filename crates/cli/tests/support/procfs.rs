//! Facts about processes from the kernel. A process that has just ended has none of them.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

/// The numbers of all processes.
pub fn processes() -> Vec<i32> {
    numbers_in(Path::new("/proc"))
}

/// The numbers of a process's threads.
pub fn threads_of(process: i32) -> Vec<i32> {
    numbers_in(Path::new(&format!("/proc/{process}/task")))
}

/// Returns the command line of a process, with spaces between its arguments.
pub fn command_of(process: i32) -> String {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// Returns the parent of a process.
pub fn parent_of(process: i32) -> Option<i32> {
    let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may have spaces and brackets in it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time that a process, and all that descend from it, have used.
pub fn processor_time(root: i32) -> Duration {
    // `USER_HZ`, the unit of these times, is 100 on all Linux systems.
    const TICK: Duration = Duration::from_millis(10);
    let with_parent = |process| Some((process, parent_of(process)?));
    let all: Vec<(i32, i32)> = processes().into_iter().filter_map(with_parent).collect();
    let (mut due, mut ticks) = (vec![root], 0);
    while let Some(process) = due.pop() {
        let children = all.iter().filter(|(_, parent)| *parent == process);
        due.extend(children.map(|(child, _)| *child));
        let stat = read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
        // These are the process's user and system times, and those of its children that have ended.
        let times = rest.split_whitespace().skip(11).take(4);
        ticks += times
            .filter_map(|time| time.parse::<u32>().ok())
            .sum::<u32>();
    }
    TICK * ticks
}

fn numbers_in(directory: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}
