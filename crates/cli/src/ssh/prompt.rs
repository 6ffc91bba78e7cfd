//! Whether somebody is being asked for a password or a code: then nobody is cut
//! off, however long it takes.
//!
//! ssh, and what it starts for it (`ProxyJump`, `ProxyCommand`), have no terminal
//! among their standard streams here. It opens one to ask a question, and closes
//! it with the answer; without a terminal it starts an askpass program. An agent
//! asks by a `pinentry` of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where terminals are.
const TERMINALS: [&str; 3] = ["/dev/tty", "/dev/pts/", "/dev/console"];

/// Whether a process, or one that it started, asks somebody something.
pub fn is_open(process: u32) -> bool {
    let processes = Processes::read(Path::new("/proc"));
    let family = processes.family(process);
    let asks = |one: &u32| processes.has_terminal(*one) || processes.is_named(*one, "askpass");
    family.iter().any(asks) || processes.agent_asks()
}

/// Processes of this host as `/proc` tells of them.
struct Processes<'a> {
    root: &'a Path,
    /// Each with the one that started it.
    parents: BTreeMap<u32, u32>,
}

impl Processes<'_> {
    /// What cannot be read is not there.
    fn read(root: &Path) -> Processes<'_> {
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        let parents = entries.filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // A name in parentheses, which may have spaces, a state, the parent.
            let (_, rest) = text.rsplit_once(')')?;
            let parent = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        });
        Processes {
            root,
            parents: parents.collect(),
        }
    }

    /// It and all that descend from it.
    fn family(&self, process: u32) -> BTreeSet<u32> {
        let mut family = BTreeSet::from([process]);
        loop {
            let children = self.parents.iter();
            let children = children.filter(|(_, parent)| family.contains(parent));
            let more: Vec<u32> = children.map(|(child, _)| *child).collect();
            let before = family.len();
            family.extend(more);
            if family.len() == before {
                return family;
            }
        }
    }

    fn has_terminal(&self, process: u32) -> bool {
        let open = self.root.join(process.to_string()).join("fd");
        let entries = std::fs::read_dir(open).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|target| {
                let target = target.to_string_lossy();
                TERMINALS.iter().any(|name| target.starts_with(name))
            })
    }

    /// Whether the program's name, or that of the script it runs, has a word in it.
    fn is_named(&self, process: u32, word: &str) -> bool {
        let file = self.root.join(process.to_string()).join("cmdline");
        let line = std::fs::read(file).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).take(2);
        words.any(|one| String::from_utf8_lossy(one).contains(word))
    }

    /// Whether an agent of this user asks for something.
    fn agent_asks(&self) -> bool {
        let own = rustix::process::getuid().as_raw();
        let is_own = |process: u32| {
            let status = std::fs::metadata(self.root.join(process.to_string()));
            status.is_ok_and(|status| status.uid() == own)
        };
        let mut processes = self.parents.keys();
        processes.any(|process| self.is_named(*process, "pinentry") && is_own(*process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A process with a parent, a command and an open file.
    fn process(root: &Path, number: u32, parent: u32, command: &str, open: &str) {
        let place = root.join(number.to_string());
        std::fs::create_dir_all(place.join("fd")).unwrap();
        let stat = format!("{number} (a) b) S {parent} 1 1 0");
        std::fs::write(place.join("stat"), stat).unwrap();
        std::fs::write(place.join("cmdline"), command.replace(' ', "\0")).unwrap();
        symlink(open, place.join("fd/3")).unwrap();
    }

    #[test]
    fn a_terminal_of_the_process_or_of_one_it_started_is_a_question() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, 1, "ssh host", "socket:[1]");
        process(root.path(), 11, 10, "sh -c ssh", "/dev/null");
        process(root.path(), 12, 11, "ssh jump", "/dev/tty");
        process(root.path(), 20, 1, "bash", "/dev/pts/3");
        process(root.path(), 30, 1, "ssh other", "/dev/ptmx");
        let processes = Processes::read(root.path());
        assert_eq!(processes.family(10), BTreeSet::from([10, 11, 12]));
        assert!(processes.has_terminal(12) && processes.has_terminal(20));
        assert!(!processes.has_terminal(10) && !processes.has_terminal(30));
        assert!(!processes.family(30).contains(&20));
    }

    #[test]
    fn programs_that_ask_are_known_by_their_names() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, 1, "/usr/bin/ssh-askpass a", "/dev/null");
        process(
            root.path(),
            11,
            1,
            "/bin/sh /opt/my-askpass.sh",
            "/dev/null",
        );
        process(root.path(), 12, 1, "ssh a b askpass", "/dev/null");
        let processes = Processes::read(root.path());
        assert!(processes.is_named(10, "askpass") && processes.is_named(11, "askpass"));
        assert!(!processes.is_named(12, "askpass"));
        assert!(!processes.agent_asks());
        process(root.path(), 13, 1, "pinentry-curses", "/dev/pts/1");
        assert!(Processes::read(root.path()).agent_asks());
    }
}
