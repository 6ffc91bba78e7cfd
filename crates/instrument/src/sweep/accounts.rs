//! Processor time per process: from `/proc` for running processes, and from `wait4` for
//! ended ones. Also processor time of the whole machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use longhaul_lab::processes::Spent;
use longhaul_measure::record::{CpuUse, Side};

/// Clock ticks per second in `/proc`, fixed for user space on Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of a process, including children that it waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of the process.
    pub name: String,
    /// Process id of the parent.
    pub parent: i32,
    /// End of the transfer; `None` if the process belongs to neither host.
    pub side: Option<Side>,
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
}

/// Assignment of processes to the ends of a transfer, by network namespaces (inodes) or
/// by ancestors.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// Network namespaces of the sending hosts.
    pub source: Vec<u64>,
    /// Network namespaces of the receiving hosts.
    pub destination: Vec<u64>,
    /// If both ends are on this host, the process whose descendants belong to the run.
    pub root: Option<i32>,
    /// Processes whose descendants belong to the other end.
    pub servers: Vec<i32>,
    /// True if the other end sends.
    pub servers_send: bool,
}

impl Sides {
    fn of(&self, pid: i32, parents: &BTreeMap<i32, i32>) -> Option<Side> {
        let ancestors = || std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        let (here, there) = if !self.servers_send {
            (Side::Source, Side::Destination)
        } else {
            (Side::Destination, Side::Source)
        };
        if ancestors().any(|pid| self.servers.contains(&pid)) {
            return Some(there);
        }
        if let Some(root) = self.root {
            return ancestors().any(|pid| pid == root).then_some(here);
        }
        let namespace = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino();
        match () {
            () if self.source.contains(&namespace) => Some(Side::Source),
            () if self.destination.contains(&namespace) => Some(Side::Destination),
            () => None,
        }
    }
}

/// Returns the accounts of all visible processes except this one.
pub fn look(sides: &Sides) -> BTreeMap<i32, Account> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let others = numbers.filter(|pid| pid.unsigned_abs() != own);
    let read = others.filter_map(|pid| {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, read_stat(&String::from_utf8_lossy(&text))?))
    });
    let mut accounts: BTreeMap<i32, Account> = read.collect();
    let parents = accounts.iter().map(|(pid, account)| (*pid, account.parent));
    let parents: BTreeMap<i32, i32> = parents.collect();
    for (pid, account) in &mut accounts {
        account.side = sides.of(*pid, &parents);
    }
    accounts
}

/// Merges new accounts into the earlier ones. An ended process that was not waited for
/// has no namespace any more and keeps its earlier side.
pub fn remember(seen: &mut BTreeMap<i32, Account>, look: BTreeMap<i32, Account>) {
    for (pid, account) in look {
        let side = account
            .side
            .or_else(|| seen.get(&pid).and_then(|before| before.side));
        seen.insert(pid, Account { side, ..account });
    }
}

/// Parses a line of `/proc/PID/stat`. The second field is a name in parentheses that may
/// contain any characters.
fn read_stat(text: &str) -> Option<Account> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let parent = after.split_whitespace().nth(1)?.parse().ok()?;
    let fields: Vec<u64> = after
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|field| field.parse().unwrap_or_default())
        .collect();
    let [user, system, children_user, children_system] = fields.try_into().ok()?;
    let time = |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND));
    Some(Account {
        name: name.to_owned(),
        parent,
        side: None,
        user: time(user.saturating_add(children_user)),
        system: time(system.saturating_add(children_system)),
    })
}

/// Returns the busy time of all processors since the machine started, including kernel
/// threads and interrupts. `None` if the kernel does not report it.
pub fn machine_busy() -> Option<Duration> {
    read_busy(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, I/O wait, interrupts,
/// software interrupts. The following fields belong to guests or are already counted.
fn read_busy(text: &str) -> Option<Duration> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields = line.split_whitespace().map(|field| field.parse::<u64>());
    let fields: Vec<u64> = fields.collect::<Result<_, _>>().ok()?;
    let [user, nice, system, _, _, interrupts, soft, ..] = fields[..] else {
        return None;
    };
    let busy = [user, nice, system, interrupts, soft];
    let ticks = busy.into_iter().fold(0, u64::saturating_add);
    Some(Duration::from_millis(
        ticks.saturating_mul(1000 / TICKS_PER_SECOND),
    ))
}

/// Returns the processor time spent between two moments, by process and side.
///
/// `seen` are the accounts of all processes ever seen, and `ended` the processes that
/// ended since `before`. Processes without a side are left out.
pub fn spent(
    before: &BTreeMap<i32, Account>,
    seen: &BTreeMap<i32, Account>,
    now: &BTreeMap<i32, Account>,
    ended: &[Spent],
) -> Vec<CpuUse> {
    let mut sums: BTreeMap<(bool, String), (Duration, Duration)> = BTreeMap::new();
    let mut add = |account: &Account, user: Duration, system: Duration| {
        let Some(side) = account.side else { return };
        let key = (side == Side::Destination, account.name.clone());
        let sum = sums.entry(key).or_default();
        sum.0 += user;
        sum.1 += system;
    };
    let since = |pid: i32, user: Duration, system: Duration| match before.get(&pid) {
        Some(then) => (
            user.saturating_sub(then.user),
            system.saturating_sub(then.system),
        ),
        None => (user, system),
    };
    let gone: Vec<i32> = ended
        .iter()
        .map(|spent| spent.pid.as_raw_nonzero().get())
        .collect();
    for (spent, pid) in ended.iter().zip(&gone) {
        if let Some(account) = seen.get(pid) {
            let (user, system) = since(*pid, spent.user, spent.system);
            add(account, user, system);
        }
    }
    for (pid, account) in now.iter().filter(|(pid, _)| !gone.contains(pid)) {
        let (user, system) = since(*pid, account.user, account.system);
        // A process that just ended has no namespace any more.
        let named = Account {
            side: account.side.or_else(|| seen.get(pid)?.side),
            ..account.clone()
        };
        add(&named, user, system);
    }
    let uses = sums
        .into_iter()
        .map(|((is_far, process), (user, system))| CpuUse {
            process,
            side: if is_far {
                Side::Destination
            } else {
                Side::Source
            },
            user,
            system,
        });
    uses.filter(|cpu| !(cpu.user + cpu.system).is_zero())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;

    fn account(name: &str, side: Side, seconds: u64) -> Account {
        Account {
            name: name.to_owned(),
            parent: 1,
            side: Some(side),
            user: Duration::from_secs(seconds),
            system: Duration::ZERO,
        }
    }

    #[test]
    fn names_may_contain_any_characters() {
        let line = "17 (a ) b) S 1 17 17 0 -1 4194560 100 0 0 0 150 50 25 75 20 0 1 0 5 6 7";
        let account = read_stat(line).unwrap();
        assert_eq!(account.name, "a ) b");
        assert_eq!(account.user, Duration::from_millis(1750));
        assert_eq!(account.system, Duration::from_millis(1250));
        assert_eq!(read_stat("17 (x"), None);
    }

    #[test]
    fn idle_and_waiting_time_is_not_busy() {
        let text = "cpu  100 20 3 4000 500 6 1 70 8 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(read_busy(text), Some(Duration::from_millis(1300)));
        for other in [
            "",
            "cpu 1 2 3 4 5 6\n",
            "cpu0 1 2 3 4 5 6 7 8\n",
            "cpu 1 2 x 4 5 6 7\n",
        ] {
            assert_eq!(read_busy(other), None, "{other}");
        }
    }

    #[test]
    fn time_counts_once_and_only_since_the_start() {
        let before = [(2, account("sshd", Side::Destination, 5))].into();
        let mut seen: BTreeMap<i32, Account> = [
            (2, account("sshd", Side::Destination, 5)),
            (3, account("scp", Side::Source, 0)),
        ]
        .into();
        seen.insert(4, account("sshd", Side::Destination, 1));
        let mut now = seen.clone();
        now.insert(2, account("sshd", Side::Destination, 7));
        let ended = [Spent {
            pid: Pid::from_raw(3).unwrap(),
            user: Duration::from_secs(9),
            system: Duration::from_secs(1),
        }];
        let uses = spent(&before, &seen, &now, &ended);
        let told: Vec<_> = uses
            .iter()
            .map(|cpu| {
                (
                    cpu.process.as_str(),
                    cpu.side,
                    (cpu.user + cpu.system).as_secs(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [("scp", Side::Source, 10), ("sshd", Side::Destination, 3)]
        );
    }

    #[test]
    fn an_ended_process_keeps_its_side() {
        let mut seen = [(3, account("iperf3", Side::Destination, 1))].into();
        let mut ended = account("iperf3", Side::Destination, 2);
        ended.side = None;
        remember(&mut seen, [(3, ended.clone()), (4, ended)].into());
        assert_eq!(seen[&3], account("iperf3", Side::Destination, 2));
        assert_eq!(seen[&4].side, None);
    }

    #[test]
    fn other_processes_are_seen() {
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let sides = Sides {
            source: vec![own],
            ..Sides::default()
        };
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let all = look(&sides);
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(all[&pid].side, Some(Side::Source));
        let servers = Sides {
            servers: vec![pid],
            ..sides
        };
        assert_eq!(look(&servers)[&pid].side, Some(Side::Destination));
        let pulled = Sides {
            servers_send: true,
            ..servers
        };
        assert_eq!(look(&pulled)[&pid].side, Some(Side::Source));
        let rooted = |root| Sides {
            root: Some(root),
            ..Sides::default()
        };
        let parent = i32::try_from(std::process::id()).unwrap();
        assert_eq!(look(&rooted(parent))[&pid].side, Some(Side::Source));
        assert_eq!(look(&rooted(pid + 1))[&pid].side, None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
