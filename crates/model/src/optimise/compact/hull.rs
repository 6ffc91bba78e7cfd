//! The upper hull of a capacity over the number of flows, and the lines that bound it.

use super::component::IMPOSSIBLE;

/// A line: `slope` · flows + `at_none`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Load per flow.
    pub slope: f64,
    /// Load at zero flows.
    pub at_none: f64,
}

impl Line {
    /// Returns the load at a number of flows.
    pub fn at(self, flows: f64) -> f64 {
        self.slope * flows + self.at_none
    }

    fn through(a: (f64, f64), b: (f64, f64)) -> Line {
        let slope = (b.1 - a.1) / (b.0 - a.0);
        Line {
            slope,
            at_none: a.1 - slope * a.0,
        }
    }
}

/// The corners of the least concave function that is not below some points.
#[derive(Clone, Debug, Default)]
pub struct Hull(Vec<(f64, f64)>);

impl Hull {
    /// Computes the hull of the loads for `low` to `high` flows, each limited to `top`. Empty if no
    /// number of flows is possible.
    pub fn new(load: impl Fn(u32) -> f64, low: u32, high: u32, top: f64) -> Hull {
        let mut corners: Vec<(f64, f64)> = Vec::new();
        for flows in low..=high {
            let here = load(flows);
            if here <= IMPOSSIBLE {
                continue;
            }
            let point = (f64::from(flows), here.min(top));
            while let [.., a, b] = corners[..] {
                if (b.1 - a.1) * (point.0 - a.0) > (point.1 - a.1) * (b.0 - a.0) {
                    break;
                }
                corners.pop();
            }
            corners.push(point);
        }
        Hull(corners)
    }

    /// True if there is no point.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first and the last number of flows.
    pub fn ends(&self) -> (f64, f64) {
        let flows = |corner: Option<&(f64, f64)>| corner.map_or(0.0, |it| it.0);
        (flows(self.0.first()), flows(self.0.last()))
    }

    /// Returns the greatest load.
    pub fn most(&self) -> f64 {
        self.0.iter().fold(0.0, |most: f64, it| most.max(it.1))
    }

    /// Returns the line of the hull at a number of flows.
    pub fn line(&self, flows: f64) -> Line {
        let flat = |at_none: f64| Line {
            slope: 0.0,
            at_none,
        };
        if self.0.len() < 2 {
            return flat(self.most());
        }
        let behind = self.0.partition_point(|it| it.0 < flows);
        let to = behind.clamp(1, self.0.len() - 1);
        Line::through(self.0[to - 1], self.0[to])
    }

    /// Returns the lines on both sides of the least number of flows that carries a load.
    pub fn lines_at_load(&self, load: f64) -> [Line; 2] {
        let at = self.0.iter().position(|it| it.1 >= load * (1.0 - 1e-9));
        let at = at.map_or(0.0, |at| self.0[at].0);
        [self.line(at), self.line(at + 0.5)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_bound_from_above() {
        let loads = [0.0, 3.0, 2.0, 4.0, 9.0, 1.0];
        let hull = Hull::new(|flows| loads[flows as usize], 0, 5, 6.0);
        assert_eq!(hull.0, [(0.0, 0.0), (1.0, 3.0), (4.0, 6.0), (5.0, 1.0)]);
        assert_eq!(hull.line(2.0).at(2.0), 4.0);
        for (flows, load) in loads.iter().enumerate() {
            let flows = flows as f64;
            assert!(hull.line(flows).at(flows) >= load.min(6.0) - 1e-12);
        }
        assert!(hull.lines_at_load(6.0).iter().all(|it| it.at(4.0) == 6.0));
        let single = Hull::new(|_| 2.0, 3, 3, 9.0);
        assert_eq!((single.line(3.0).at(3.0), single.ends()), (2.0, (3.0, 3.0)));
    }
}
