//! Capacity as a function of the number of flows alone.

/// Bytes per second of a number of flows, by one of the published forms.
///
/// Paper 004 has the first and the third and says of parallel file systems that "linear or
/// quadratic regression" is used (its section 6.2.1); SSDs and parallel file systems need the
/// others.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowCapacity {
    /// Nothing limits it: a logical node.
    Unlimited,
    /// The same for any number of flows from one on: a link, a NIC.
    Constant {
        /// Bytes per second.
        rate: f64,
    },
    /// α / (L + γ): paper 004, Eq. 3. It falls with each further flow: a disk with an arm. Valid
    /// for L ≥ 1 and γ > -1.
    Falling {
        /// Bytes per second times flows.
        alpha: f64,
        /// Flows.
        gamma: f64,
    },
    /// α·L / (L + γ): rises towards α: an SSD, a disk array with a queue. γ ≥ 0.
    Saturating {
        /// Bytes per second that it approaches.
        alpha: f64,
        /// Flows with which it carries half of that.
        gamma: f64,
    },
    /// α·n + γ: paper 004, Eq. 4, up to a number of flows and constant from there on: computation.
    Linear {
        /// Bytes per second of each flow.
        alpha: f64,
        /// Bytes per second that come on top; may be negative.
        gamma: f64,
        /// Flows that still add something, 1 or more; paper 004 sets it where measurements fall.
        most: u32,
    },
    /// a + b·n + c·n²: paper 004, section 6.2.1, for parallel file systems. Never below zero.
    Quadratic {
        /// Bytes per second.
        a: f64,
        /// Bytes per second of each flow.
        b: f64,
        /// Bytes per second of each flow squared; negative where flows disturb each other.
        c: f64,
    },
    /// λ·n / (1 + σ·(n-1) + κ·n·(n-1)): Gunther's universal scalability law (2007). It rises, and
    /// with κ > 0 falls after √((1-σ)/κ) flows.
    Scalability {
        /// Bytes per second of one flow.
        lambda: f64,
        /// The share that is done in turn, 0 to 1.
        sigma: f64,
        /// What each pair of flows costs for agreeing, 0 or more.
        kappa: f64,
    },
    /// As measured: entry `n - 1` is the rate of n flows; more flows than entries carry as much as
    /// the last one.
    Tabulated(Vec<f64>),
}

impl FlowCapacity {
    /// Bytes per second of `flows` flows; zero of none, never negative, infinite where nothing
    /// limits.
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

    /// The same form with all of its rates times a factor, greater than zero.
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

    /// Whether the parameters are numbers in their ranges; says which one is not.
    ///
    /// # Errors
    ///
    /// The name of the parameter and its range.
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
    fn no_flows_carry_nothing_and_nothing_is_negative() {
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
    fn forms_are_the_published_ones() {
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
        // Gunther: the peak is at √((1 - 0.1) / 0.01) = 9.49 flows.
        assert_eq!(scalability.at(1), 100.0);
        assert!(scalability.at(9) > scalability.at(8) && scalability.at(10) > scalability.at(11));
        assert_eq!((table.at(2), table.at(5)), (3.0, 3.0));
    }

    #[test]
    fn parameters_out_of_range_are_named() {
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
