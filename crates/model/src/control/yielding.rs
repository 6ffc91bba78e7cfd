//! `--nice`: a bound on the rate that gives way as soon as a queue stands on
//! the path, as LEDBAT does (RFC 6817), by the pace of sockets instead of
//! their windows.

/// Kept of the rate when a queue stands.
const DECREASE: f64 = 0.7;

/// By how much the bound grows while none does.
const INCREASE: f64 = 1.08;

/// Never less than this in bytes per second, so that it ends one day.
const LEAST: f64 = 125_000.0;

/// The bound so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yielding {
    bytes_per_second: Option<f64>,
}

impl Yielding {
    /// Takes what a span showed: the rate in bytes per second, and the part of
    /// it in which a queue stood. Returns the bound where it changed.
    pub fn handle(&mut self, rate: f64, queued: f64) -> Option<f64> {
        let next = match self.bytes_per_second {
            _ if queued >= 0.5 => {
                let bound = self.bytes_per_second.unwrap_or(rate).min(rate.max(LEAST));
                (bound * DECREASE).max(LEAST)
            }
            // A bound that is not used says nothing about the path.
            Some(bound) if rate >= bound * 0.8 => bound * INCREASE,
            _ => return None,
        };
        (self.bytes_per_second.replace(next) != Some(next)).then_some(next)
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
}
