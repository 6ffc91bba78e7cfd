//! How many of the host's cores idle, by the kernel's count.

use std::sync::Mutex;

use crate::queue::lock;

/// The host's cores between two looks.
#[derive(Debug, Default)]
pub(crate) struct IdleCores(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<Ticks>,
    cores: Option<f64>,
}

/// Ticks of all cores together, since the host started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
    cores: u64,
}

/// Ticks of all cores after which a look tells something: they have a hundredth of a second.
const LEAST_TICKS: u64 = 20;

impl IdleCores {
    /// Cores that idled since the last look, or at the look before if that was just now; none
    /// if the kernel does not report it.
    pub fn look(&self) -> Option<f64> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let now = ticks(&text)?;
        let mut seen = lock(&self.0);
        let Some(last) = seen.last else {
            seen.last = Some(now);
            return None;
        };
        let all = now.all.saturating_sub(last.all);
        if all >= LEAST_TICKS {
            let idle = now.idle.saturating_sub(last.idle).min(all);
            seen.last = Some(now);
            seen.cores = Some(idle as f64 / all as f64 * now.cores as f64);
        }
        seen.cores
    }
}

/// The first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq,
/// steal; what follows is counted among these. Then a line for each core.
fn ticks(text: &str) -> Option<Ticks> {
    let mut lines = text.lines();
    let of_all = lines.next()?.strip_prefix("cpu ")?;
    let counts = of_all.split_ascii_whitespace().take(8).map(str::parse);
    let counts: Vec<u64> = counts.collect::<Result<_, _>>().ok()?;
    let idle = counts.get(3)?.checked_add(*counts.get(4)?)?;
    let cores = lines.take_while(|line| line.starts_with("cpu")).count() as u64;
    Some(Ticks {
        idle,
        all: counts.iter().copied().fold(0, u64::saturating_add),
        cores,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_all_cores() {
        let text = "cpu  10 1 5 100 4 0 2 0 0 0\ncpu0 5 0 3 50 2 0 1 0 0 0\ncpu1 5 1 2 50 2 0 1 0\n\
                    intr 5\n";
        let expected = Ticks {
            idle: 104,
            all: 122,
            cores: 2,
        };
        assert_eq!(ticks(text), Some(expected));
        for bad in ["", "cpu", "cpu  1 2", "cpu  a b c d e f g h", "intr 5"] {
            assert_eq!(ticks(bad), None, "{bad:?}");
        }
    }
}
