//! What the kernel tells of processes, ours or not. One that has just ended has
//! nothing to tell.

use std::fs::read_to_string;
use std::path::Path;

/// The numbers of all processes.
pub fn processes() -> Vec<i32> {
    numbers_in(Path::new("/proc"))
}

/// The numbers of a process's threads.
pub fn threads_of(process: i32) -> Vec<i32> {
    numbers_in(Path::new(&format!("/proc/{process}/task")))
}

/// A process's command, its words with blanks between them.
pub fn command_of(process: i32) -> String {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// Who started a process, or took it over.
pub fn parent_of(process: i32) -> Option<i32> {
    let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may have spaces and brackets in it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn numbers_in(directory: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}
