//! Computes the number of idle cores from the kernel's counts. Only the cores that this process may
//! use count, within the processor limits of its control groups.

use std::ops::RangeInclusive;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use crate::limits::{Quota, quotas};
use crate::queue::lock;

/// Measures idle cores between two calls.
#[derive(Debug, Default)]
pub struct IdleCores {
    seen: Mutex<Seen>,
    quotas: OnceLock<Vec<Quota>>,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<Ticks>,
    cores: Option<f64>,
    /// Time of the last query of the quotas, and the processor time used by each group until then,
    /// in seconds.
    used: Option<(Instant, Vec<f64>)>,
}

/// Sum of the ticks of the permitted cores since the host started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
    cores: u64,
}

/// Minimum number of ticks for a measurement. Each core has 100 ticks a second.
const LEAST_TICKS: u64 = 20;

impl IdleCores {
    /// Returns the number of cores that were idle since the last call. If that was just now,
    /// returns its result again. The first call returns the number of cores without runnable tasks.
    /// `None` if the kernel does not report the counts.
    pub fn look(&self) -> Option<f64> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let now = ticks(&text, &allowed_cores())?;
        let quotas = self.quotas.get_or_init(quotas);
        let mut seen = lock(&self.seen);
        let Some(last) = seen.last else {
            seen.last = Some(now);
            seen.cores = free_of_running(&text, now.cores).map(|idle| idle.min(seen.room(quotas)));
            return seen.cores;
        };
        let all = now.all.saturating_sub(last.all);
        if all >= LEAST_TICKS {
            let idle = now.idle.saturating_sub(last.idle).min(all);
            let idle = idle as f64 / all as f64 * now.cores as f64;
            seen.last = Some(now);
            seen.cores = Some(idle.min(seen.room(quotas)));
        }
        seen.cores
    }
}

impl Seen {
    /// Returns the number of cores that the control groups left unused since the last call;
    /// infinite without a limit.
    fn room(&mut self, quotas: &[Quota]) -> f64 {
        if quotas.is_empty() {
            return f64::INFINITY;
        }
        let now = Instant::now();
        let used: Vec<f64> = quotas.iter().map(Quota::used_seconds).collect();
        let before = self.used.replace((now, used.clone()));
        let Some((at, before)) = before else {
            return f64::INFINITY;
        };
        let span = (now - at).as_secs_f64();
        let spent = used.iter().zip(&before).map(|(now, before)| now - before);
        least_room(
            quotas.iter().map(|quota| quota.cores).zip(spent),
            span.max(1e-3),
        )
    }
}

/// Returns the number of cores without a runnable task, not counting this thread.
fn free_of_running(text: &str, cores: u64) -> Option<f64> {
    let running = text
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "));
    let others = running?.trim().parse::<u64>().ok()?.saturating_sub(1);
    Some(cores.saturating_sub(others) as f64)
}

/// Returns the smallest unused quota in cores. `spent` holds each quota, and the seconds used of it
/// during `span`.
fn least_room(spent: impl Iterator<Item = (f64, f64)>, span: f64) -> f64 {
    let rooms = spent.map(|(cores, spent)| (cores - spent.max(0.0) / span).max(0.0));
    rooms.fold(f64::INFINITY, f64::min)
}

/// Returns the cores that this process may run on; an empty list if unknown.
fn allowed_cores() -> Vec<RangeInclusive<u64>> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    ranges(list.unwrap_or_default())
}

/// Parses a list in the kernel's format, such as `0-3,8`.
fn ranges(list: &str) -> Vec<RangeInclusive<u64>> {
    let range = |one: &str| {
        let (from, to) = one.split_once('-').unwrap_or((one, one));
        Some(from.trim().parse().ok()?..=to.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).collect()
}

/// Sums the lines of `/proc/stat` for the permitted cores, or for all if the list is empty
/// (proc_stat(5)). Their fields are user, nice, system, idle, iowait, irq, softirq and steal. Later
/// fields are already included in these.
fn ticks(text: &str, allowed: &[RangeInclusive<u64>]) -> Option<Ticks> {
    let mut sum = Ticks {
        idle: 0,
        all: 0,
        cores: 0,
    };
    let lines = text.lines().take_while(|line| line.starts_with("cpu"));
    for line in lines {
        let (name, counts) = line.strip_prefix("cpu")?.split_once(' ')?;
        let Ok(core) = name.parse::<u64>() else {
            // The first line is the sum of all cores.
            continue;
        };
        if !allowed.is_empty() && !allowed.iter().any(|range| range.contains(&core)) {
            continue;
        }
        let counts = counts.split_ascii_whitespace().take(8).map(str::parse);
        let counts: Vec<u64> = counts.collect::<Result<_, _>>().ok()?;
        let idle = counts.get(3)?.checked_add(*counts.get(4)?)?;
        sum.idle = sum.idle.saturating_add(idle);
        sum.all = counts.iter().copied().fold(sum.all, u64::saturating_add);
        sum.cores += 1;
    }
    (sum.cores > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  110 1 5 100 4 0 2 0 0 0\ncpu0 5 0 3 50 2 0 1 0 0 0\n\
                        cpu1 105 1 2 50 2 0 1 0\ncpu2 0 0 0 900 0 0 0 0\nintr 5\n";

    #[test]
    fn the_cores_that_may_be_used_count() {
        let of = |idle, all, cores| Some(Ticks { idle, all, cores });
        assert_eq!(ticks(STAT, &ranges("0-1")), of(104, 222, 2));
        assert_eq!(ticks(STAT, &ranges("1")), of(52, 161, 1));
        assert_eq!(ticks(STAT, &[]), of(1004, 1122, 3));
        for bad in ["", "cpu", "cpu0 1 2", "cpu0 a b c d e f g h", "intr 5"] {
            assert_eq!(ticks(bad, &[]), None, "{bad:?}");
        }
    }

    #[test]
    fn ready_threads_reduce_the_idle_cores_at_once() {
        let text = |running: &str| format!("{STAT}procs_running {running}\nprocs_blocked 0\n");
        assert_eq!(free_of_running(&text("1"), 2), Some(2.0));
        assert_eq!(free_of_running(&text("2"), 2), Some(1.0));
        assert_eq!(free_of_running(&text("9"), 2), Some(0.0));
        assert_eq!(free_of_running(&text("x"), 2), None);
        assert_eq!(free_of_running(STAT, 2), None);
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(ranges("\t0-3,8,10-11\n"), vec![0..=3, 8..=8, 10..=11]);
        assert!(ranges("").is_empty() && ranges("x-y").is_empty());
        assert!(!allowed_cores().is_empty());
    }

    #[test]
    fn a_quota_leaves_its_unspent_part() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(
            least_room([(2.0, 0.1), (1.5, 0.1)].into_iter(), 0.1),
            0.5
        ));
        assert!(near(least_room([(1.0, 5.0)].into_iter(), 1.0), 0.0));
        assert!(least_room(std::iter::empty(), 1.0).is_infinite());
    }
}
