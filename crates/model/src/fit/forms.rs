//! The forms as equations that are linear in their unknowns.

use super::Observation;
use super::squares::{Row, robust};
use crate::capacity::FlowCapacity;

/// A form that can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// [`FlowCapacity::Constant`].
    Constant,
    /// [`FlowCapacity::Falling`].
    Falling,
    /// [`FlowCapacity::Saturating`].
    Saturating,
    /// [`FlowCapacity::Linear`] with γ = 0.
    Proportional,
    /// [`FlowCapacity::Linear`] with both parameters.
    Linear,
    /// [`FlowCapacity::Quadratic`].
    Quadratic,
    /// [`FlowCapacity::Scalability`].
    Scalability,
}

/// All forms, those with few parameters first.
pub const FORMS: [Form; 7] = [
    Form::Constant,
    Form::Proportional,
    Form::Falling,
    Form::Saturating,
    Form::Linear,
    Form::Scalability,
    Form::Quadratic,
];

impl Form {
    /// Returns the number of fitted parameters. For a line, it includes the number of flows up to
    /// which the line holds.
    pub fn parameters(self) -> usize {
        match self {
            Form::Constant => 1,
            Form::Falling | Form::Saturating | Form::Proportional => 2,
            Form::Linear | Form::Quadratic | Form::Scalability => 3,
        }
    }

    /// Fits the parameters to the observations. Returns the capacity and the remaining cost, or
    /// `None` if the parameters are out of range.
    pub fn solve(
        self,
        observations: &[Observation],
        spread: Option<f64>,
    ) -> Option<(FlowCapacity, f64)> {
        let found = match self {
            Form::Proportional | Form::Linear => return self.broken_line(observations, spread),
            Form::Scalability => return scalability(observations, spread),
            Form::Constant => by(observations, spread, 1, |_, rate| ([1.0, 0.0, 0.0], rate)),
            Form::Falling => by(observations, spread, 2, |n, rate| {
                ([n, 1.0, 0.0], 1.0 / rate)
            }),
            Form::Saturating => by(observations, spread, 2, |n, rate| {
                ([1.0, 1.0 / n, 0.0], 1.0 / rate)
            }),
            Form::Quadratic => by(observations, spread, 3, |n, rate| ([1.0, n, n * n], rate)),
        };
        let ([a, b, c], cost) = found?;
        let capacity = match self {
            Form::Constant => FlowCapacity::Constant { rate: a },
            Form::Falling => FlowCapacity::Falling {
                alpha: 1.0 / a,
                gamma: b / a,
            },
            Form::Saturating => FlowCapacity::Saturating {
                alpha: 1.0 / a,
                gamma: b / a,
            },
            _ => FlowCapacity::Quadratic { a, b, c },
        };
        capacity.check().is_ok().then_some((capacity, cost))
    }

    /// Fits a line up to a number of flows. Tries each measured number and returns the best line.
    fn broken_line(
        self,
        observations: &[Observation],
        spread: Option<f64>,
    ) -> Option<(FlowCapacity, f64)> {
        let unknowns = self.parameters() - 1;
        let counts = super::counts(observations);
        let lines = counts.into_iter().skip(1).filter_map(|most| {
            let broken = |n: f64, rate: f64| {
                let n = n.min(f64::from(most));
                ([n, 1.0, 0.0], rate)
            };
            let ([alpha, gamma, _], cost) = by(observations, spread, unknowns, broken)?;
            let gamma = if unknowns == 1 { 0.0 } else { gamma };
            let line = FlowCapacity::Linear { alpha, gamma, most };
            (line.check().is_ok() && alpha > 0.0).then_some((line, cost))
        });
        lines.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Fits the universal scalability law. λ is the reciprocal of the first unknown, and σ and κ are
/// the others divided by the first. A negative σ or κ is replaced by zero.
fn scalability(observations: &[Observation], spread: Option<f64>) -> Option<(FlowCapacity, f64)> {
    let with = |contention: bool, coherency: bool| {
        let columns = |n: f64| match (contention, coherency) {
            (true, true) => [1.0, n - 1.0, n * (n - 1.0)],
            (true, false) => [1.0, n - 1.0, 0.0],
            _ => [1.0, n * (n - 1.0), 0.0],
        };
        let unknowns = 1 + usize::from(contention) + usize::from(coherency);
        let ([a, b, c], cost) = by(observations, spread, unknowns, |n, rate| {
            (columns(n), n / rate)
        })?;
        let (sigma, kappa) = match (contention, coherency) {
            (true, true) => (b / a, c / a),
            (true, false) => (b / a, 0.0),
            _ => (0.0, b / a),
        };
        let lambda = 1.0 / a;
        let law = FlowCapacity::Scalability {
            lambda,
            sigma,
            kappa,
        };
        law.check().is_ok().then_some((law, cost))
    };
    with(true, true).or_else(|| {
        let simpler = [with(true, false), with(false, true)];
        simpler
            .into_iter()
            .flatten()
            .min_by(|a, b| a.1.total_cmp(&b.1))
    })
}

/// Solves `terms · unknowns = right` with residuals relative to the right side. `equation` returns
/// both sides for a number of flows and a rate.
fn by(
    observations: &[Observation],
    spread: Option<f64>,
    unknowns: usize,
    equation: impl Fn(f64, f64) -> ([f64; 3], f64),
) -> Option<([f64; 3], f64)> {
    let rows: Vec<Row> = observations
        .iter()
        .map(|it| {
            let (terms, right) = equation(f64::from(it.flows), it.rate);
            Row {
                terms: terms.map(|term| term / right),
                right: 1.0,
            }
        })
        .collect();
    robust(&rows, unknowns, spread)
}

/// Returns the parameters of a form by name.
pub fn named(capacity: &FlowCapacity) -> Vec<(&'static str, f64)> {
    match capacity {
        FlowCapacity::Unlimited | FlowCapacity::Tabulated(_) => Vec::new(),
        FlowCapacity::Constant { rate } => vec![("rate", *rate)],
        FlowCapacity::Falling { alpha, gamma } | FlowCapacity::Saturating { alpha, gamma } => {
            vec![("alpha", *alpha), ("gamma", *gamma)]
        }
        FlowCapacity::Linear { alpha, gamma, most } => {
            vec![
                ("alpha", *alpha),
                ("gamma", *gamma),
                ("most", f64::from(*most)),
            ]
        }
        FlowCapacity::Quadratic { a, b, c } => vec![("a", *a), ("b", *b), ("c", *c)],
        FlowCapacity::Scalability {
            lambda,
            sigma,
            kappa,
        } => vec![("lambda", *lambda), ("sigma", *sigma), ("kappa", *kappa)],
    }
}

/// Returns the name of a form, as in a graph's file.
pub fn name(capacity: &FlowCapacity) -> &'static str {
    match capacity {
        FlowCapacity::Unlimited => "unlimited",
        FlowCapacity::Constant { .. } => "constant",
        FlowCapacity::Falling { .. } => "falling",
        FlowCapacity::Saturating { .. } => "saturating",
        FlowCapacity::Linear { .. } => "linear",
        FlowCapacity::Quadratic { .. } => "quadratic",
        FlowCapacity::Scalability { .. } => "scalability",
        FlowCapacity::Tabulated(_) => "table",
    }
}
