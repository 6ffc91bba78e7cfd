//! What the processes of a test that does not go on wait for, as the kernel
//! tells it.

use std::fs::read_to_string;
use std::path::Path;

use rustix::process::Pid;

/// A process and all that descend from it: their commands, and of each thread
/// its name and the kernel function that it waits in.
pub fn describe(root: Pid) -> String {
    let mut text = String::new();
    let processes: Vec<(i32, i32)> = children_of(Path::new("/proc"))
        .into_iter()
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut due = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = due.pop() {
        due.extend(
            processes
                .iter()
                .filter(|(_, parent)| *parent == pid)
                .map(|(child, _)| child),
        );
        let place = format!("/proc/{pid}");
        let command = read_to_string(format!("{place}/cmdline")).unwrap_or_default();
        text += &format!("{pid}: {}\n", command.replace('\0', " "));
        for thread in children_of(Path::new(&format!("{place}/task"))) {
            let of_thread = |name| {
                let read = read_to_string(format!("{place}/task/{thread}/{name}"));
                read.unwrap_or_default().trim().to_owned()
            };
            text += &format!("  {} {}\n", of_thread("comm"), of_thread("wchan"));
        }
    }
    text
}

/// Entries of a directory that are numbers.
fn children_of(directory: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may have spaces and brackets in it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
