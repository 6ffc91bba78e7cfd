//! Detects whether the user is being asked for a password or a code. While a question is open, no
//! time limit applies.
//!
//! ssh and its children (`ProxyJump`, `ProxyCommand`) have no terminal as a standard stream here.
//! ssh opens a terminal to ask a question and closes it after the answer. Without a terminal it
//! starts an askpass program. While a security key waits for a touch, its helper runs. An agent
//! asks through a separate program: `pinentry`, or the one that `SSH_ASKPASS` names (`ssh-add -c`).
//! Agents with their own window, and cards behind gpg-agent, cannot be detected.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Programs that ssh starts and that wait for a password or a touch.
const ASKING: [&str; 2] = ["askpass", "ssh-sk-helper"];

/// Programs that agents start and that wait for the user.
const ASKING_FOR_AGENTS: [&str; 3] = ["pinentry", "gcr-prompter", "ksshaskpass"];

/// Program that an `ssh-agent` runs while a card's library is loaded. Any other child of an agent
/// waits for the user.
const AGENTS_OWN: &str = "ssh-pkcs11-helper";

/// Path prefixes of terminals.
const TERMINALS: [&str; 3] = ["/dev/tty", "/dev/pts/", "/dev/console"];

/// True if a process, one of its descendants or an agent of this user is asking a question.
pub fn is_open(process: u32) -> bool {
    let processes = Processes::read(Path::new("/proc"));
    let family = processes.family(process);
    let asks = |one: &u32| processes.has_terminal(*one) || processes.is_one_of(*one, &ASKING);
    family.iter().any(asks) || processes.agent_asks()
}

/// Processes of this host as `/proc` reports them.
struct Processes<'a> {
    root: &'a Path,
    /// Process IDs with the ID of the parent.
    parents: BTreeMap<u32, u32>,
}

impl Processes<'_> {
    /// Reads all processes. Skips those that cannot be read.
    fn read(root: &Path) -> Processes<'_> {
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        let parents = entries.filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The format is: a name in parentheses, which may contain spaces, then the state and
            // the parent.
            let (_, rest) = text.rsplit_once(')')?;
            let parent = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        });
        Processes {
            root,
            parents: parents.collect(),
        }
    }

    /// Returns a process and all its descendants.
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

    fn text(&self, process: u32, file: &str) -> String {
        let file = self.root.join(process.to_string()).join(file);
        let bytes = std::fs::read(file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// True if the name of the program, or of the script that it runs, contains one of the words.
    fn is_one_of(&self, process: u32, words: &[&str]) -> bool {
        let line = self.text(process, "cmdline");
        let mut named = line.split('\0').take(2);
        named.any(|name| words.iter().any(|word| name.contains(word)))
    }

    fn is_ssh_agent(&self, process: u32) -> bool {
        let line = self.text(process, "cmdline");
        let program = line.split('\0').next();
        program.is_some_and(|program| Path::new(program).ends_with("ssh-agent"))
    }

    /// True if the process belongs to this user. The owner of its directory is not reliable: it is
    /// root for a process that hides its memory, such as one that holds keys.
    fn is_own(&self, process: u32) -> bool {
        let status = self.text(process, "status");
        let mut users = status.lines().filter_map(|line| line.strip_prefix("Uid:"));
        let real = users
            .next()
            .and_then(|line| line.split_ascii_whitespace().next());
        real.and_then(|real| real.parse().ok()) == Some(rustix::process::getuid().as_raw())
    }

    /// True if an agent of this user is asking a question.
    fn agent_asks(&self) -> bool {
        self.parents.iter().any(|(process, parent)| {
            let asks = self.is_one_of(*process, &ASKING_FOR_AGENTS)
                || self.is_ssh_agent(*parent) && !self.is_one_of(*process, &[AGENTS_OWN]);
            asks && self.is_own(*process)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Creates a process with a parent, a command and an open file.
    fn process(root: &Path, number: u32, parent: u32, command: &str, open: &str) {
        let place = root.join(number.to_string());
        std::fs::create_dir_all(place.join("fd")).unwrap();
        let stat = format!("{number} (a) b) S {parent} 1 1 0");
        std::fs::write(place.join("stat"), stat).unwrap();
        std::fs::write(place.join("cmdline"), command.replace(' ', "\0")).unwrap();
        let own = rustix::process::getuid().as_raw();
        let status = format!("Name:\ta\nUid:\t{own}\t{own}\t{own}\t{own}\nGid:\t1\n");
        std::fs::write(place.join("status"), status).unwrap();
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
        assert!(processes.is_one_of(10, &ASKING) && processes.is_one_of(11, &ASKING));
        assert!(!processes.is_one_of(12, &ASKING));
        assert!(!processes.agent_asks());
        for (number, program) in [
            (13, "pinentry-curses"),
            (14, "gcr-prompter"),
            (15, "ksshaskpass"),
        ] {
            process(root.path(), number, 1, program, "/dev/pts/1");
            assert!(Processes::read(root.path()).agent_asks(), "{program}");
            std::fs::remove_dir_all(root.path().join(number.to_string())).unwrap();
        }
    }

    #[test]
    fn questions_of_an_agent_and_touches_wait_for_the_user() {
        let root = tempfile::tempdir().unwrap();
        let agent = "/usr/bin/ssh-agent -s";
        process(root.path(), 20, 1, agent, "/dev/null");
        process(root.path(), 21, 20, "ssh-pkcs11-helper", "/dev/null");
        process(root.path(), 22, 1, "vi ssh-agent", "/dev/null");
        process(root.path(), 23, 22, "sh", "/dev/null");
        assert!(!Processes::read(root.path()).agent_asks());
        process(root.path(), 24, 20, "/opt/confirm", "/dev/null");
        assert!(Processes::read(root.path()).agent_asks());
        // Give the process to a different user.
        std::fs::write(root.path().join("24/status"), "Uid:\t4294967294\t1\t1\t1\n").unwrap();
        assert!(!Processes::read(root.path()).agent_asks());
        process(root.path(), 30, 1, "ssh host", "/dev/null");
        process(
            root.path(),
            31,
            30,
            "/usr/lib/openssh/ssh-sk-helper",
            "/dev/null",
        );
        let processes = Processes::read(root.path());
        let mut family = processes.family(30).into_iter();
        assert!(family.any(|one| processes.is_one_of(one, &ASKING)));
    }
}
