//! Estimates the duration of runs: by a guess at first, then from completed runs.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_measure::record::RunRecord;

use super::plan::Cell;

/// Initial estimate of the time around a run: starting and ending a lab, and comparing
/// files.
const AROUND_A_RUN: Duration = Duration::from_secs(5);

/// Initial estimate for an unknown method: duration over the link's time for the data.
const FIRST_GUESS: f64 = 2.0;

/// State of the estimates.
#[derive(Debug, Default)]
pub struct Estimate {
    /// By method: sum of durations over the link's time, and number of runs.
    by_method: HashMap<String, (f64, u32)>,
    /// Duration of the latest run, by configuration.
    by_cell: HashMap<String, Duration>,
    /// Time around a run, averaged.
    around: Option<Duration>,
}

impl Estimate {
    /// Records a run: its duration `wall`, and the duration `whole` including everything
    /// around it.
    pub fn note(&mut self, cell: &Cell, wall: Duration, whole: Duration) {
        let link = cell.link_time().as_secs_f64().max(0.1);
        self.note_method(&cell.method.name, wall.as_secs_f64() / link);
        self.by_cell.insert(cell.key(), wall);
        let around = whole.saturating_sub(wall);
        // Average of the old and the new value, because the first run also generates
        // files.
        self.around = Some(self.around.map_or(around, |before| (before + around) / 2));
    }

    /// Records runs of earlier sweeps.
    pub fn learn(&mut self, runs: &[RunRecord]) {
        for run in runs {
            let bytes = run.dataset.size.0 as f64 * 8.0;
            let link = bytes / run.path.capacity.bits_per_second();
            self.note_method(
                &run.method.name,
                run.outcome.wall.as_secs_f64() / link.max(0.1),
            );
        }
    }

    fn note_method(&mut self, method: &str, ratio: f64) {
        let known = self.by_method.entry(method.to_owned()).or_default();
        known.0 += ratio;
        known.1 += 1;
    }

    /// Returns the expected duration of a run including everything around it.
    pub fn of(&self, cell: &Cell) -> Duration {
        let around = self.around.unwrap_or(AROUND_A_RUN);
        if let Some(wall) = self.by_cell.get(&cell.key()) {
            return *wall + around;
        }
        let ratio = match self.by_method.get(&cell.method.name) {
            Some((sum, count)) => sum / f64::from(*count),
            None => FIRST_GUESS,
        };
        let seconds = cell.link_time().as_secs_f64() * ratio;
        Duration::try_from_secs_f64(seconds).unwrap_or_default() + around
    }
}

/// Formats a time in hours and minutes, minutes, or seconds.
pub fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted() {
        for (seconds, text) in [(59, "59 s"), (61, "2 min"), (7260, "2 h 1 min")] {
            assert_eq!(spoken(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn measurements_replace_the_initial_estimate() {
        let text = "name = \"x\"\n[[paths]]\nrtt = [\"1ms\", \"2ms\"]\nrate = \"1gbit\"\n\
                    [[data]]\nname = \"d\"\nlink-time = \"10s\"\n\
                    [[methods]]\nname = \"m\"\ncommand = \"c\"";
        let plan = super::super::plan::Plan::of(&super::super::file::parse(text).unwrap());
        let cells = plan.unwrap().cells;
        let mut estimate = Estimate::default();
        assert_eq!(estimate.of(&cells[0]).as_secs_f64().round(), 25.0);
        estimate.note(&cells[0], Duration::from_secs(12), Duration::from_secs(15));
        assert_eq!(estimate.of(&cells[0]), Duration::from_secs(15));
        // The same method on another path.
        assert_eq!(estimate.of(&cells[1]).as_secs_f64().round(), 15.0);
    }
}
