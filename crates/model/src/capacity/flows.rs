//! Capacity as a function of the number of flows.

/// The rate of a number of flows in bytes per second, by one of the published functions.
///
/// Paper 004 has the first and the third, and says of parallel file systems that "linear or
/// quadratic regression" is used (section 6.2.1). SSDs and parallel file systems need the others.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowCapacity {
    /// No limit: a logical node.
    Unlimited,
    /// The same rate for any number of flows greater than zero: a link, a NIC.
    Constant {
        /// Rate in bytes per second.
        rate: f64,
    },
    /// α / (L + γ): paper 004, Eq. 3. The rate falls with each further flow: a disk with a moving
    /// arm. Valid for L ≥ 1 and γ > -1.
    Falling {
        /// α, in bytes per second times flows.
        alpha: f64,
        /// γ, in flows.
        gamma: f64,
    },
    /// α·L / (L + γ): the rate rises towards α: an SSD, or a disk array with a queue. γ ≥ 0.
    Saturating {
        /// Limit of the rate in bytes per second.
        alpha: f64,
        /// Number of flows that reach half of the limit.
        gamma: f64,
    },
    /// α·n + γ up to a maximum number of flows, then constant: paper 004, Eq. 4, for computation.
    Linear {
        /// Rate of each flow in bytes per second.
        alpha: f64,
        /// Constant term in bytes per second; may be negative.
        gamma: f64,
        /// Number of flows up to which the rate rises, at least 1. Paper 004 chooses the number at
        /// which measured rates fall.
        most: u32,
    },
    /// a + b·n + c·n²: paper 004, section 6.2.1, for parallel file systems. Negative values count
    /// as zero.
    Quadratic {
        /// Constant term in bytes per second.
        a: f64,
        /// Coefficient of n, in bytes per second.
        b: f64,
        /// Coefficient of n², in bytes per second. Negative if flows disturb each other.
        c: f64,
    },
    /// λ·n / (1 + σ·(n-1) + κ·n·(n-1)): Gunther's universal scalability law (2007). For κ > 0 the
    /// rate falls beyond √((1-σ)/κ) flows.
    Scalability {
        /// Rate of one flow in bytes per second.
        lambda: f64,
        /// Serial share of the work, 0 to 1.
        sigma: f64,
        /// Cost of coordination for each pair of flows, at least 0.
        kappa: f64,
    },
    /// Measured rates in bytes per second: entry `n - 1` is the rate of n flows. More flows than
    /// entries have the rate of the last entry.
    Tabulated(Vec<f64>),
}

impl FlowCapacity {
    /// Returns the rate of `flows` flows in bytes per second. Zero for zero flows, never negative,
    /// infinite if there is no limit.
    pub fn at(&self, flows: u32) -> f64 {
        if flows == 0 {
            return 0.0;
        }
        let n = f64::from(flows);
        let rate = match self {
            FlowCapacity::Unlimited => f64::INFINITY,
            FlowCapacity::Constant { rate } => *rate,
            FlowCapacity::Falling { alpha, gamma } => alpha / (n + gamma),
            FlowCapacity::Saturating { alpha, gamma } => alpha * n / (n + gamma),
            FlowCapacity::Linear { alpha, gamma, most } => {
                alpha * f64::from(flows.min((*most).max(1))) + gamma
            }
            FlowCapacity::Quadratic { a, b, c } => a + b * n + c * n * n,
            FlowCapacity::Scalability {
                lambda,
                sigma,
                kappa,
            } => lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0)),
            FlowCapacity::Tabulated(rates) => {
                let at = (flows as usize).min(rates.len());
                at.checked_sub(1).map_or(0.0, |entry| rates[entry])
            }
        };
        rate.max(0.0)
    }

    /// Returns the same function with all rates multiplied by a factor greater than zero.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> FlowCapacity {
        let mut scaled = self.clone();
        match &mut scaled {
            FlowCapacity::Unlimited => {}
            FlowCapacity::Constant { rate } => *rate *= factor,
            FlowCapacity::Falling { alpha, .. } | FlowCapacity::Saturating { alpha, .. } => {
                *alpha *= factor;
            }
            FlowCapacity::Linear { alpha, gamma, .. } => {
                *alpha *= factor;
                *gamma *= factor;
            }
            FlowCapacity::Quadratic { a, b, c } => {
                for value in [a, b, c] {
                    *value *= factor;
                }
            }
            FlowCapacity::Scalability { lambda, .. } => *lambda *= factor,
            FlowCapacity::Tabulated(rates) => rates.iter_mut().for_each(|rate| *rate *= factor),
        }
        scaled
    }

    /// Checks that the parameters are numbers in their ranges.
    ///
    /// # Errors
    ///
    /// The name of the first invalid parameter and its range.
    pub fn check(&self) -> Result<(), &'static str> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let is_right = match self {
            FlowCapacity::Unlimited => return Ok(()),
            FlowCapacity::Constant { rate } => (positive(*rate), "rate must be greater than zero"),
            FlowCapacity::Falling { alpha, gamma } if positive(*alpha) => (
                gamma.is_finite() && *gamma > -1.0,
                "gamma must be greater than -1",
            ),
            FlowCapacity::Saturating { alpha, gamma } if positive(*alpha) => (
                gamma.is_finite() && *gamma >= 0.0,
                "gamma must not be negative",
            ),
            FlowCapacity::Falling { .. } | FlowCapacity::Saturating { .. } => {
                (false, "alpha must be greater than zero")
            }
            FlowCapacity::Linear { alpha, gamma, most } => (
                alpha.is_finite() && *alpha >= 0.0 && gamma.is_finite() && *most >= 1,
                "alpha must not be negative, gamma must be a number, most must be 1 or more",
            ),
            FlowCapacity::Quadratic { a, b, c } => (
                [a, b, c].iter().all(|value| value.is_finite()),
                "a, b and c must be numbers",
            ),
            FlowCapacity::Scalability {
                lambda,
                sigma,
                kappa,
            } => (
                positive(*lambda)
                    && (0.0..=1.0).contains(sigma)
                    && kappa.is_finite()
                    && *kappa >= 0.0,
                "lambda must be greater than zero, sigma 0 to 1, kappa not negative",
            ),
            FlowCapacity::Tabulated(rates) => (
                !rates.is_empty() && rates.iter().all(|rate| rate.is_finite() && *rate >= 0.0),
                "the table must have entries, none of them negative",
            ),
        };
        is_right.0.then_some(()).ok_or(is_right.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<FlowCapacity> {
        vec![
            FlowCapacity::Unlimited,
            FlowCapacity::Constant { rate: 7.0 },
            FlowCapacity::Falling {
                alpha: 1000.0,
                gamma: 1.0,
            },
            FlowCapacity::Saturating {
                alpha: 1000.0,
                gamma: 1.0,
            },
            FlowCapacity::Linear {
                alpha: 100.0,
                gamma: -20.0,
                most: 8,
            },
            FlowCapacity::Quadratic {
                a: 10.0,
                b: 100.0,
                c: -5.0,
            },
            FlowCapacity::Scalability {
                lambda: 100.0,
                sigma: 0.1,
                kappa: 0.01,
            },
            FlowCapacity::Tabulated(vec![1.0, 3.0]),
        ]
    }

    #[test]
    fn zero_flows_have_zero_capacity_and_rates_are_not_negative() {
        for form in all() {
            assert_eq!(form.at(0), 0.0, "{form:?}");
            assert_eq!(form.check(), Ok(()));
            for flows in 1..100 {
                assert!(form.at(flows) >= 0.0, "{form:?}");
                let (once, twice) = (form.at(flows), form.scaled(2.0).at(flows));
                assert!(
                    twice == once || (twice / once - 2.0).abs() < 1e-9,
                    "{form:?}"
                );
                assert!(
                    twice > once || once == 0.0 || once.is_infinite(),
                    "{form:?}"
                );
            }
        }
    }

    #[test]
    fn rates_equal_those_of_the_published_formulas() {
        let [
            _,
            _,
            falling,
            saturating,
            linear,
            quadratic,
            scalability,
            table,
        ] = &all()[..]
        else {
            unreachable!()
        };
        assert_eq!((falling.at(1), falling.at(4)), (500.0, 200.0));
        assert_eq!((saturating.at(1), saturating.at(4)), (500.0, 800.0));
        assert_eq!(
            (linear.at(1), linear.at(8), linear.at(9)),
            (80.0, 780.0, 780.0)
        );
        assert_eq!((quadratic.at(1), quadratic.at(30)), (105.0, 0.0));
        // Gunther: the maximum is at √((1 - 0.1) / 0.01) = 9.49 flows.
        assert_eq!(scalability.at(1), 100.0);
        assert!(scalability.at(9) > scalability.at(8) && scalability.at(10) > scalability.at(11));
        assert_eq!((table.at(2), table.at(5)), (3.0, 3.0));
    }

    #[test]
    fn errors_name_parameters_out_of_range() {
        let wrong = FlowCapacity::Falling {
            alpha: 1.0,
            gamma: -1.0,
        };
        assert!(wrong.check().is_err_and(|text| text.contains("gamma")));
        let wrong = FlowCapacity::Constant { rate: f64::NAN };
        assert!(wrong.check().is_err_and(|text| text.contains("rate")));
        assert!(FlowCapacity::Tabulated(Vec::new()).check().is_err());
    }
}
