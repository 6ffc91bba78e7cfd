//! The normal distribution functions that the bootstrap needs.

use std::f64::consts::PI;

/// Beyond this value, Φ differs from 0 or 1 by less than 1e-16.
const FARTHEST: f64 = 8.3;

/// Returns Φ(x), the standard normal distribution function, with an error of about 1e-15.
///
/// Uses the series of Marsaglia (2004, "Evaluating the Normal Distribution", equation 3): Φ(x) =
/// ½ + φ(x)(x + x³/3 + x⁵/(3·5) + …).
pub fn normal_below(x: f64) -> f64 {
    if x < -FARTHEST {
        return 0.0;
    }
    if x > FARTHEST {
        return 1.0;
    }
    let (mut sum, mut term, mut odd) = (x, x, 1.0);
    loop {
        odd += 2.0;
        term *= x * x / odd;
        let next = sum + term;
        if next == sum {
            break;
        }
        sum = next;
    }
    let density = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
    (0.5 + sum * density).clamp(0.0, 1.0)
}

/// Returns Φ⁻¹(p), the quantile of the standard normal distribution. Returns minus or plus infinity
/// at 0 and 1.
///
/// Uses bisection. It is called only a few times for each interval.
pub fn normal_quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (-FARTHEST, FARTHEST);
    // 60 halvings of 16.6 give less than the spacing of floats near 1.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_below(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}
