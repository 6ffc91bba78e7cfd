//! `--nice`: limits the rate and reduces it as soon as the path has a queue, like LEDBAT (RFC
//! 6817), but by pacing sockets instead of their windows.

/// Factor on the rate when the path has a queue.
const DECREASE: f64 = 0.7;

/// Part of the rate at the last queue below which the path had room.
const ROOM: f64 = 0.85;

/// Growth factor of the limit below this part.
const RETURN: f64 = 1.25;

/// Growth of the limit above this part in the first span, as a share. It doubles with each span,
/// because the traffic that filled the path may have ended.
const FIRST_STEP: f64 = 0.04;

/// Maximum growth of the limit in a span, as a share. The excess stays in a queue for one span.
const LARGEST_STEP: f64 = 0.5;

/// Minimum limit in bytes per second, so that the transfer always ends.
const LEAST: f64 = 125_000.0;

/// The current limit and its history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yielding {
    bytes_per_second: Option<f64>,
    /// Rate at the last queue in bytes per second.
    ceiling: f64,
    /// Growth in the next span above that rate, as a share.
    step: f64,
}

impl Yielding {
    /// Adds a span: its rate in bytes per second, and its share of samples with a queue. Returns
    /// the new limit if it changed.
    pub fn handle(&mut self, rate: f64, queued: f64) -> Option<f64> {
        let next = match self.bytes_per_second {
            _ if queued >= 0.5 => {
                self.step = FIRST_STEP;
                self.ceiling = self.bytes_per_second.unwrap_or(rate).min(rate.max(LEAST));
                (self.ceiling * DECREASE).max(LEAST)
            }
            // A limit that is not reached gives no information about the path.
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

    /// Returns the limit in bytes per second, or `None` if there is no limit yet.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_falls_with_a_queue_and_rises_without() {
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

    /// Returns the number of spans until the whole path is used after other traffic has ended.
    #[test]
    fn freed_capacity_is_soon_used() {
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
