//! Reports the kernel functions in which the processes of a stalled test wait.

use std::fs::read_to_string;

use rustix::process::Pid;

use super::procfs::{command_of, parent_of, processes, threads_of};

/// A process and all that descend from it: their commands, and of each thread
/// its name and the kernel function that it waits in.
pub fn describe(root: Pid) -> String {
    let mut text = String::new();
    let with_parent = |process| Some((process, parent_of(process)?));
    let all: Vec<(i32, i32)> = processes().into_iter().filter_map(with_parent).collect();
    let mut due = vec![root.as_raw_nonzero().get()];
    while let Some(process) = due.pop() {
        let children = all.iter().filter(|(_, parent)| *parent == process);
        due.extend(children.map(|(child, _)| child));
        text += &format!("{process}: {}\n", command_of(process));
        for thread in threads_of(process) {
            let of_thread = |name| {
                let read = read_to_string(format!("/proc/{process}/task/{thread}/{name}"));
                read.unwrap_or_default().trim().to_owned()
            };
            text += &format!("  {} {}\n", of_thread("comm"), of_thread("wchan"));
        }
    }
    text
}
