//! The confidence interval of a measured rate.
//!
//! False positives are rare and independent, so their number has a Poisson distribution. The ends
//! of the interval are Byar's approximation of its exact limits (Breslow and Day, "Statistical
//! Methods in Cancer Research", volume II, 1987, formula 2.10): within 1 % of them from ten
//! positives on, and wider below.
//!
//! A filter passes if the configured rate is not below the lower end. If its true rate is at most
//! the configured one, it fails by chance with a probability of at most 2.5 %.

use std::ops::RangeInclusive;

/// The quantile of the normal distribution at 97.5 %.
const Z: f64 = 1.959_964;

/// The 95 % confidence interval of a rate, of which `successes` of `trials` were seen.
pub(crate) fn interval(successes: u64, trials: u64) -> RangeInclusive<f64> {
    let end = |x: f64, z: f64| x * (1.0 - 1.0 / (9.0 * x) + z / (3.0 * x.sqrt())).powi(3);
    let low = if successes == 0 { 0.0 } else { end(successes as f64, -Z) };
    let high = end(successes as f64 + 1.0, Z);
    low / trials as f64..=(high / trials as f64).min(1.0)
}

/// The number of trials that give a rate near `rate` with the relative precision `precision` (one
/// standard deviation): 1 / (p e^2).
pub(crate) fn trials(rate: f64, precision: f64) -> u64 {
    // The quotient of doubles is a little above or below a whole number.
    (1.0 / (rate * precision * precision)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(X >= first) for the Poisson distribution.
    fn upper_tail(first: u64, mean: f64) -> f64 {
        let mut term = (-mean).exp();
        let mut below = 0.0;
        for x in 0..first {
            below += term;
            term *= mean / (x + 1) as f64;
        }
        1.0 - below
    }

    /// The ends satisfy the definition of the exact limits, or lie outside of them.
    #[test]
    fn the_ends_have_the_tails_of_the_definition() {
        for successes in [0, 1, 2, 5, 10, 40, 286, 400] {
            let found = interval(successes, 1);
            let (above, below) = (
                upper_tail(successes, *found.start()),
                1.0 - upper_tail(successes + 1, interval(successes, 1_000_000).end() * 1e6),
            );
            assert!(above <= 0.0251 || successes == 0, "{successes}: {found:?}, {above}");
            assert!((0.0245..0.0262).contains(&below), "{successes}: {found:?}, {below}");
            assert!(above > 0.023 || successes < 10, "{successes}: {found:?}, {above}");
        }
    }
}
