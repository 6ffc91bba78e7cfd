//! Student's t distribution, for confidence intervals from few points.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// Returns the t for which a share `level` (0 to 1) of Student's t distribution is within ±t. For
/// 95 % it is 12.7 with one degree of freedom and 1.96 with very many. Infinite for a level of 1
/// and for zero degrees of freedom.
///
/// Uses bisection of Abramowitz and Stegun (1964), equations 26.7.3 and 26.7.4, over the angle θ =
/// atan(t/√ν). It is called only once for each interval.
pub fn student_within(level: f64, freedom: usize) -> f64 {
    if freedom == 0 || level >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    // 60 halvings give less than the spacing of floats near 1.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if share_within(middle, freedom) < level {
            low = middle;
        } else {
            high = middle;
        }
    }
    (freedom as f64).sqrt() * f64::midpoint(low, high).tan()
}

/// Returns the share of the distribution within ±√ν tan θ.
fn share_within(theta: f64, freedom: usize) -> f64 {
    let (sine, cosine) = theta.sin_cos();
    let is_odd = freedom % 2 == 1;
    let mut power = usize::from(is_odd);
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    while power + 2 <= freedom {
        sum += term;
        power += 2;
        term *= cosine * cosine * (power - 1) as f64 / power as f64;
    }
    if is_odd {
        FRAC_2_PI * (theta + sine * sum)
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_agree_with_the_published_table() {
        // Abramowitz and Stegun (1964), table 26.10, has three decimals.
        for (level, freedom, published) in [
            (0.95, 1, 12.706),
            (0.95, 2, 4.303),
            (0.95, 3, 3.182),
            (0.95, 4, 2.776),
            (0.95, 5, 2.571),
            (0.95, 30, 2.042),
            (0.9, 2, 2.920),
            (0.99, 3, 5.841),
        ] {
            let found = student_within(level, freedom);
            assert!(
                (found - published).abs() < 6e-4,
                "{level} {freedom}: {found}"
            );
        }
        assert_eq!(student_within(0.95, 0), f64::INFINITY);
        assert_eq!(student_within(1.0, 4), f64::INFINITY);
    }

    #[test]
    fn with_many_degrees_of_freedom_it_is_the_normal_distribution() {
        let normal = super::super::normal_quantile(0.975);
        assert!((student_within(0.95, 100_001) - normal).abs() < 1e-4);
    }
}
