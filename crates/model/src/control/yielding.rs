//! `--nice`: a bound on the rate that gives way as soon as a queue stands on
//! the path, as LEDBAT does (RFC 6817), by the pace of sockets instead of
//! their windows.

/// Kept of the rate when a queue stands.
const DECREASE: f64 = 0.7;

/// Below this part of the rate at which a queue stood last there was room.
const ROOM: f64 = 0.85;

/// By how much the bound grows there.
const RETURN: f64 = 1.25;

/// By how much more it goes beyond in the first span; twice that in the next, and so on. The
/// traffic that filled the path may have ended.
const FIRST_STEP: f64 = 0.04;

/// By how much more it is at most: what is too much stands in a queue for a
/// span.
const LARGEST_STEP: f64 = 0.5;

/// Never less than this in bytes per second, so that it ends one day.
const LEAST: f64 = 125_000.0;

/// The bound so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yielding {
    bytes_per_second: Option<f64>,
    /// The rate at which a queue stood last.
    ceiling: f64,
    /// By how much more the next step beyond that is.
    step: f64,
}

impl Yielding {
    /// Takes what a span showed: the rate in bytes per second, and the part of
    /// it in which a queue stood. Returns the bound where it changed.
    pub fn handle(&mut self, rate: f64, queued: f64) -> Option<f64> {
        let next = match self.bytes_per_second {
            _ if queued >= 0.5 => {
                self.step = FIRST_STEP;
                self.ceiling = self.bytes_per_second.unwrap_or(rate).min(rate.max(LEAST));
                (self.ceiling * DECREASE).max(LEAST)
            }
            // A bound that is not used says nothing about the path.
            Some(bound) if rate >= bound * 0.8 => bound * self.growth(bound),
            _ => return None,
        };
        (self.bytes_per_second.replace(next) != Some(next)).then_some(next)
    }

    fn growth(&mut self, bound: f64) -> f64 {
        if bound < self.ceiling * ROOM {
            return RETURN;
        }
        let step = self.step;
        self.step = (step * 2.0).min(LARGEST_STEP);
        1.0 + step
    }

    /// The bound.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_way_and_comes_back() {
        let mut yielding = Yielding::default();
        assert_eq!(yielding.handle(1e8, 0.0), None);
        let low = yielding.handle(1e8, 1.0).unwrap();
        assert!((low - 7e7).abs() < 1.0);
        assert!(yielding.handle(low, 0.0).unwrap() > low);
        for _ in 0..100 {
            yielding.handle(yielding.bytes_per_second().unwrap(), 1.0);
        }
        assert_eq!(yielding.bytes_per_second(), Some(LEAST));
    }

    /// Spans until all of a path is used that others have left.
    #[test]
    fn what_others_left_is_taken_soon() {
        let (mut yielding, capacity) = (Yielding::default(), 117e6);
        for _ in 0..30 {
            let rate = yielding.bytes_per_second().unwrap_or(capacity);
            yielding.handle(rate, 1.0);
        }
        let rates: Vec<f64> = (0..60)
            .map(|_| {
                let bound = yielding.bytes_per_second().unwrap();
                let queued = if bound > capacity { 1.0 } else { 0.0 };
                yielding.handle(bound.min(capacity), queued);
                bound.min(capacity)
            })
            .collect();
        let full = rates.iter().position(|rate| *rate >= capacity).unwrap();
        assert!((10..=25).contains(&full), "{full}");
        let mean = rates[full..].iter().sum::<f64>() / (60 - full) as f64;
        assert!(mean > 0.85 * capacity, "{mean}");
    }
}
