//! Throughput as a function of loss, and the power law that fits it.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::BitRate;

use super::Analysis;
use crate::profile::PointFigure;
use crate::runs::{Configuration, Runs};
use crate::stats::{Figure, Interval, student_within};

/// Share of the capacity above which the path limits the throughput instead of the loss.
const BOUND_BY_PATH: f64 = 0.9;

/// Minimum number of points for a fit. Every power law fits two points.
const FEWEST_POINTS: usize = 3;

/// Confidence level of the interval of an exponent.
const INTERVAL_LEVEL: f64 = 0.95;

/// Runs that differ only in the loss of their path, at one round-trip time.
#[derive(Clone, Debug, PartialEq)]
pub struct LossLine {
    /// Short name of the configurations.
    pub label: String,
    /// Round-trip time of the path.
    pub rtt: Duration,
    /// Capacity of the path.
    pub capacity: BitRate,
    /// Congestion control of the streams, if it is known. `None` if the method chose it
    /// automatically.
    pub congestion: Option<String>,
    /// Points in ascending order of loss. Each loss is greater than zero.
    pub points: Vec<LossPoint>,
    /// The fitted law. `None` if loss limits the throughput at fewer than three loss rates.
    pub law: Option<LossLaw>,
}

/// The repetitions at one loss rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossPoint {
    /// Share of packets lost at random, greater than 0 and at most 1.
    pub loss: f64,
    /// Mean throughput in bits per second.
    pub mean: Figure,
    /// Standard error of the mean in bits per second. `None` if there is only one run.
    pub standard_error: Option<f64>,
    /// Number of repetitions.
    pub runs: usize,
}

/// The law `rate = factor × loss^-exponent`, fitted by least squares of the logarithms.
///
/// The laws of one stream, and of several equal streams, have this form. Mathis et al., "The
/// macroscopic behavior of the TCP congestion avoidance algorithm" (1997), equation 3, has the
/// exponent [`MATHIS_EXPONENT`]. CUBIC as specified in RFC 9438, equation 5, has the exponent
/// [`CUBIC_EXPONENT`] if the loss is below [`cubic_bend`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossLaw {
    /// Rate in bits per second at a loss of 1. This is an extrapolation: the law does not hold
    /// there.
    pub factor: f64,
    /// Confidence interval of the factor, computed like the interval of the exponent.
    pub factor_interval: Interval,
    /// Exponent of the loss. Greater values mean that throughput falls faster.
    pub exponent: f64,
    /// Standard error of the exponent.
    pub exponent_error: f64,
    /// Confidence interval of the exponent at a level of 95 %. Uses Student's t; the number of
    /// degrees of freedom is the number of points minus two.
    pub exponent_interval: Interval,
    /// Standard deviation of the points from the law, as a share of the predicted values.
    pub residual: f64,
    /// Number of points in the fit. These have the highest losses: all points from the first loss
    /// above which every point is below 90 % of the capacity.
    pub points: usize,
    /// Lowest and highest loss in the fit.
    pub losses: (f64, f64),
}

/// Exponent of Reno: Mathis et al. (1997), equation 3.
pub const MATHIS_EXPONENT: f64 = 0.5;

/// Exponent of CUBIC while it sends more than Reno: RFC 9438, equation 5.
pub const CUBIC_EXPONENT: f64 = 0.75;

/// CUBIC's constant C in segments per second cubed (RFC 9438, section 5).
const CUBIC_C: f64 = 0.4;

/// Factor by which CUBIC reduces its window after a loss (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// Returns the loss below which CUBIC sends more than Reno and has the exponent [`CUBIC_EXPONENT`].
/// Above this loss CUBIC is Reno-friendly (RFC 9438, section 4.3) and has Reno's exponent. The
/// result is greater than 0 and at most 1.
///
/// At this loss the windows of RFC 9438, equation 5, and Mathis et al. (1997), equation 3, are
/// equal: (C (3 + β) / (4 (1 - β)))^¼ (τ/p)^¾ = (3/(2 p))^½. It follows that p = C (3 + β) / (9
/// (1 - β)) τ³, with τ in seconds.
pub fn cubic_bend(rtt: Duration) -> f64 {
    (cubic_bend_factor() * rtt.as_secs_f64().powi(3)).min(1.0)
}

/// Returns the factor of τ³ in the bend, in 1/s³.
fn cubic_bend_factor() -> f64 {
    CUBIC_C * (3.0 + CUBIC_BETA) / (9.0 * (1.0 - CUBIC_BETA))
}

impl LossLaw {
    /// Fits a law to points of loss and rate. Returns `None` for fewer than three usable points.
    pub fn fit(points: &[(f64, f64)]) -> Option<LossLaw> {
        let usable = |(loss, rate): &&(f64, f64)| *loss > 0.0 && *rate > 0.0;
        let logs = points.iter().filter(usable);
        let logs: Vec<(f64, f64)> = logs.map(|(loss, rate)| (loss.ln(), rate.ln())).collect();
        if logs.len() < FEWEST_POINTS {
            return None;
        }
        let count = logs.len() as f64;
        let centre_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
        let centre_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = logs.iter().map(|(x, _)| (x - centre_x).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let product = logs.iter().map(|(x, y)| (x - centre_x) * (y - centre_y));
        let slope = product.sum::<f64>() / spread;
        let distance = |(x, y): &(f64, f64)| (y - centre_y - slope * (x - centre_x)).powi(2);
        // The law has two parameters, which reduce the degrees of freedom by two.
        let residual = (logs.iter().map(distance).sum::<f64>() / (count - 2.0)).sqrt();
        let error = residual / spread.sqrt();
        let within = student_within(INTERVAL_LEVEL, logs.len() - 2);
        let half = error * within;
        let at_one = centre_y - slope * centre_x;
        let half_at_one = within * residual * (1.0 / count + centre_x.powi(2) / spread).sqrt();
        let ends = points.iter().filter(usable).map(|(loss, _)| *loss);
        Some(LossLaw {
            factor: at_one.exp(),
            factor_interval: Interval {
                low: (at_one - half_at_one).exp(),
                high: (at_one + half_at_one).exp(),
            },
            exponent: -slope,
            exponent_error: error,
            exponent_interval: Interval {
                low: -slope - half,
                high: -slope + half,
            },
            residual,
            points: logs.len(),
            losses: ends.fold((1.0, 0.0), |(least, greatest), loss| {
                (loss.min(least), loss.max(greatest))
            }),
        })
    }

    /// Returns the rate in bits per second at a loss greater than zero.
    pub fn rate(&self, loss: f64) -> f64 {
        self.factor * loss.powf(-self.exponent)
    }
}

impl LossPoint {
    fn of(loss: f64, point: &PointFigure, capacity: BitRate) -> LossPoint {
        let capacity = capacity.bits_per_second();
        LossPoint {
            loss,
            mean: point.mean.scaled(capacity),
            standard_error: point.summary.standard_error.map(|error| error * capacity),
            runs: point.summary.count,
        }
    }
}

impl LossLine {
    fn of(label: String, rtt: Duration, own: &Configuration, points: Vec<LossPoint>) -> Self {
        let capacity = own.capacity;
        let bound = BOUND_BY_PATH * capacity.bits_per_second();
        // From this point on, loss limits every point. A point before it that is low by chance is
        // not part of the fit.
        let by_loss = points.iter().rev();
        let by_loss = by_loss.take_while(|point| point.mean.estimate < bound);
        let by_loss = by_loss.map(|point| (point.loss, point.mean.estimate));
        let by_loss: Vec<(f64, f64)> = by_loss.collect();
        LossLine {
            label,
            rtt,
            capacity,
            congestion: own.governor(),
            law: LossLaw::fit(&by_loss),
            points,
        }
    }

    /// Returns the rate that the law and the capacity allow, in bits per second. Returns `None`
    /// without a law.
    pub fn rate(&self, loss: f64) -> Option<f64> {
        let law = self.law?;
        Some(law.rate(loss).min(self.capacity.bits_per_second()))
    }

    /// Describes the law in a sentence and compares it with theory.
    pub fn sentence(&self) -> String {
        let begin = format!("{} at {} ms", self.label, super::milliseconds(self.rtt));
        let theory = self.theory();
        match &self.law {
            None => format!(
                "{begin}: loss limits it at fewer than {FEWEST_POINTS} of {} loss rates, so no law is \
                fitted; {theory}",
                self.points.len()
            ),
            Some(law) => format!(
                "{begin}: throughput is proportional to loss to the power of {:.2}, {} % interval [{:.2}, {:.2}] \
                 (Student's t, {} of freedom; standard error {:.2}; least squares over the {} highest \
                 loss rates, from {:e} on, all below {} % of the capacity; residual deviation \
                 {:.0} %); {theory}",
                -law.exponent,
                INTERVAL_LEVEL * 100.0,
                -law.exponent_interval.high,
                -law.exponent_interval.low,
                match law.points - 2 {
                    1 => "one degree".to_owned(),
                    degrees => format!("{degrees} degrees"),
                },
                law.exponent_error,
                law.points,
                law.losses.0,
                BOUND_BY_PATH * 100.0,
                law.residual * 100.0
            ),
        }
    }

    /// Returns the clause about the exponent that theory predicts.
    fn theory(&self) -> String {
        let bend = cubic_bend(self.rtt);
        match self.congestion.as_deref() {
            Some("reno") => format!("theory predicts -{MATHIS_EXPONENT} for Reno"),
            Some("bbr") => "theory predicts no power law for BBR".to_owned(),
            Some("cubic") => format!(
                "theory predicts {} for CUBIC, whose power is -{CUBIC_EXPONENT} below a loss of {bend:.1e} at \
                 this round-trip time and -{MATHIS_EXPONENT} above",
                self.law
                    .map_or("no single power".to_owned(), |law| match law.losses {
                        (least, _) if least >= bend =>
                            format!("-{MATHIS_EXPONENT} over this range"),
                        (_, greatest) if greatest <= bend =>
                            format!("-{CUBIC_EXPONENT} over this range"),
                        _ => format!(
                            "a power from -{CUBIC_EXPONENT} to -{MATHIS_EXPONENT} over this range"
                        ),
                    })
            ),
            _ => format!(
                "if the congestion control was CUBIC, theory predicts -{CUBIC_EXPONENT} below a loss \
                of {bend:.1e} at this round-trip time and -{MATHIS_EXPONENT} above"
            ),
        }
    }
}

/// Returns the explanation of the exponents.
pub fn loss_laws() -> String {
    format!(
        "for one stream, and for several equal ones, theory predicts -{MATHIS_EXPONENT} for Reno \
        (Mathis et al. (1997), equation 3); for CUBIC it predicts -{CUBIC_EXPONENT} (RFC 9438, \
        equation 5) while CUBIC sends more than Reno, which is below a loss of {:.3} × (round-trip \
        time in seconds)³; above this loss, CUBIC is Reno-friendly (section 4.3) with \
        -{MATHIS_EXPONENT}; for BBR, theory predicts no power law",
        cubic_bend_factor()
    )
}

/// Collects lines with at least two loss rates, sorted by round-trip time, name and number of
/// streams. Each point is the mean of the runs of one configuration.
pub fn lines_over_loss(runs: &Runs, analysis: &Analysis) -> Vec<LossLine> {
    let mut groups: BTreeMap<(Duration, String), Vec<(usize, LossPoint)>> = BTreeMap::new();
    for method in analysis.transfers.iter().chain(&analysis.memory) {
        let own = &runs.configurations()[method.configuration];
        for point in method.figures.points.iter().filter(|_| own.loss > 0.0) {
            let group = groups.entry((point.rtt, own.key_without_loss()));
            let at_loss = LossPoint::of(own.loss, point, own.capacity);
            group.or_default().push((method.configuration, at_loss));
        }
    }
    let lines = groups.into_iter().filter_map(|((rtt, _), mut points)| {
        points.sort_by(|(_, a), (_, b)| a.loss.total_cmp(&b.loss));
        let first = points.first()?.0;
        let configuration = &runs.configurations()[first];
        let loss = configuration.traits.get("loss").cloned();
        let loss = format!(" loss={}", loss.unwrap_or_default());
        let label = analysis.labels[first].replacen(&loss, "", 1);
        let streams = configuration.count("streams").unwrap_or_default();
        let others = label.replacen(&format!(" streams={streams}"), "", 1);
        let points = points.into_iter().map(|(_, point)| point).collect();
        let line = LossLine::of(label, rtt, configuration, points);
        (line.points.len() > 1).then_some(((rtt, others, streams), line))
    });
    let mut lines: Vec<((Duration, String, u64), LossLine)> = lines.collect();
    lines.sort_by(|(a, _), (b, _)| a.cmp(b));
    lines.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Measures;

    #[test]
    fn a_fit_recovers_the_law_of_exact_points() {
        let law = |loss: f64| 3e5 * loss.powf(-0.75);
        let points = [1e-6, 1e-5, 1e-4, 1e-3].map(|loss| (loss, law(loss)));
        let found = LossLaw::fit(&points).unwrap();
        assert!((found.exponent - 0.75).abs() < 1e-9, "{found:?}");
        assert!((found.factor / 3e5 - 1.0).abs() < 1e-9, "{found:?}");
        assert!(found.residual < 1e-9 && found.exponent_error < 1e-9);
        assert!((found.rate(1e-4) / law(1e-4) - 1.0).abs() < 1e-9);
        assert_eq!(LossLaw::fit(&points[..2]), None);
        assert_eq!(LossLaw::fit(&[(1e-4, 1.0); 5]), None);
        assert_eq!(LossLaw::fit(&[(0.0, 1.0), (1e-4, 1.0), (1e-3, 0.0)]), None);
    }

    #[test]
    fn errors_of_a_fit_equal_those_of_a_regression() {
        // x = ln loss is -3, -2, -1, 0; y is 2, 1.2, 0.9, 0.1. Computed by hand: the slope is -0.6
        // and the sum of squared residuals is 0.05. So s = sqrt(0.05/2), and the standard error of
        // the slope is s/sqrt(5).
        let points = [(-3.0, 2.0), (-2.0, 1.2), (-1.0, 0.9), (0.0, 0.1)];
        let found = LossLaw::fit(&points.map(|(x, y): (f64, f64)| (x.exp(), y.exp()))).unwrap();
        assert!((found.exponent - 0.6).abs() < 1e-9, "{found:?}");
        let residual = (0.05_f64 / 2.0).sqrt();
        assert!((found.residual - residual).abs() < 1e-9, "{found:?}");
        let error = residual / 5_f64.sqrt();
        assert!((found.exponent_error - error).abs() < 1e-9);
        // Student's t for 95 % and two degrees of freedom is 4.303.
        let Interval { low, high } = found.exponent_interval;
        assert!((low - (0.6 - 4.303 * error)).abs() < 1e-4, "{found:?}");
        assert!((high - (0.6 + 4.303 * error)).abs() < 1e-4, "{found:?}");
        // At a loss of 1 the line has the value 0.15 with a standard error of s sqrt(1/4 + 1.5²/5).
        let half = 4.303 * residual * 0.7_f64.sqrt();
        let Interval { low, high } = found.factor_interval;
        assert!((found.factor.ln() - 0.15).abs() < 1e-9, "{found:?}");
        assert!((low.ln() - (0.15 - half)).abs() < 1e-3, "{found:?}");
        assert!((high.ln() - (0.15 + half)).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn points_limited_by_the_path_are_not_fitted() {
        let rates = [(1e-6, 0.8e9), (1e-5, 0.95e9), (1e-4, 4e8), (1e-3, 1e8)];
        let rtt = Duration::from_millis(50);
        let points = rates.map(|(loss, rate)| point(loss, rate)).to_vec();
        let line = LossLine::of("x".to_owned(), rtt, &gigabit(), points);
        assert_eq!((line.points.len(), line.law), (4, None));
        assert!(line.sentence().contains("no law"), "{}", line.sentence());
    }

    fn point(loss: f64, rate: f64) -> LossPoint {
        let interval = Interval {
            low: rate,
            high: rate,
        };
        LossPoint {
            loss,
            mean: Figure {
                estimate: rate,
                interval,
            },
            standard_error: None,
            runs: 1,
        }
    }

    /// Returns a configuration of one gigabit per second with CUBIC.
    fn gigabit() -> Configuration {
        Configuration {
            measures: Measures::Memory,
            method: "iperf3".to_owned(),
            knobs: BTreeMap::new(),
            capacity: BitRate::new(1e9).unwrap(),
            loss: 0.0,
            traits: [("congestion", "cubic".to_owned())].into(),
        }
    }

    #[test]
    fn cubic_is_reno_friendly_above_its_bend() {
        // Computed by hand: 0.4 × 3.7 / 2.7 × 0.1³, and likewise for the other two round-trip
        // times.
        for (microseconds, loss) in [(100_000, 5.48e-4), (22_600, 6.33e-6), (91_600, 4.21e-4)] {
            let found = cubic_bend(Duration::from_micros(microseconds));
            assert!((found / loss - 1.0).abs() < 2e-3, "{microseconds}: {found}");
        }
        assert_eq!(cubic_bend(Duration::from_secs(3)), 1.0);
        let bound = |rtt: u64, losses: [f64; 3]| {
            let points = losses.map(|loss| point(loss, 1e5 * loss.powf(-0.5)));
            let rtt = Duration::from_millis(rtt);
            LossLine::of("x".to_owned(), rtt, &gigabit(), points.to_vec()).sentence()
        };
        let says = |text: &str, part: &str| assert!(text.contains(part), "{text}");
        says(
            &bound(20, [1e-5, 1e-4, 1e-3]),
            "theory predicts -0.5 over this range",
        );
        says(
            &bound(366, [1e-5, 1e-4, 1e-3]),
            "theory predicts -0.75 over this range",
        );
        let across = bound(100, [1e-5, 1e-4, 1e-3]);
        says(&across, "from -0.75 to -0.5 over this range");
        says(&across, "-0.75 below a loss of 5.5e-4");
        says(&across, "the 3 highest loss rates, from 1e-5 on");
        says(&across, "one degree of freedom");
    }
}
