//! The confidence interval of a measured rate.
//!
//! The interval is that of Clopper and Pearson ("The use of confidence or fiducial limits
//! illustrated in the case of the binomial", Biometrika 26, 1934), because its bounds hold for
//! every rate and every number of trials, also where a handful of trials succeeded. The lower end
//! is the rate p at which x or more successes of n trials have a probability of 2.5 %; the upper
//! end is the rate at which x or fewer have it.
//!
//! A filter passes if the rate that was asked for is not below the lower end. A filter whose true
//! rate p is at most what was asked for fails by chance with a probability of at most 2.5 %: it
//! fails if p < lower(x), and by the definition above this means P(X >= x) < 2.5 % for X of the
//! binomial distribution of n and p. These x are all those above some x0, so the event "x is one of
//! them" is X >= x0 + 1, and its probability is that of its smallest x: below 2.5 %.

use std::ops::RangeInclusive;

/// Probability that lies outside of the interval on each side.
const TAIL: f64 = 0.025;

/// The 95 % confidence interval of a rate, of which `successes` of `trials` were seen.
pub(crate) fn interval(successes: u64, trials: u64) -> RangeInclusive<f64> {
    let failures = trials.saturating_sub(successes);
    let (x, y) = (successes as f64, failures as f64);
    // P(X >= x) is the incomplete beta function I_p(x, n - x + 1), so its inverse gives the ends.
    let low = if successes == 0 { 0.0 } else { beta_quantile(TAIL, x, y + 1.0) };
    let high = if failures == 0 { 1.0 } else { beta_quantile(1.0 - TAIL, x + 1.0, y) };
    low..=high
}

/// The number of trials that give a rate near `rate` with the relative precision `precision` (one
/// standard deviation): 1 / (p e^2).
pub(crate) fn trials(rate: f64, precision: f64) -> u64 {
    // The quotient of doubles is a little above or below a whole number.
    (1.0 / (rate * precision * precision)).round() as u64
}

/// The point where the regularized incomplete beta function of `a` and `b` is `wanted`.
fn beta_quantile(wanted: f64, a: f64, b: f64) -> f64 {
    // The function rises. Halving in the exponent finds small rates, too: 2^-200 is below every
    // rate that 2^64 trials tell from zero.
    let (mut low, mut high) = (-200.0, 0.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        let x = f64::exp2(middle);
        if beta(x, 1.0 - x, a, b) < wanted { low = middle } else { high = middle }
    }
    f64::exp2(0.5 * (low + high))
}

/// The regularized incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)
/// and Lentz's algorithm. `y` is 1 - x: the smaller of the two must have all its digits.
fn beta(x: f64, y: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || y <= 0.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges quickly below the mean only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(y, x, b, a);
    }
    let ln_x = if x < 0.5 { x.ln() } else { (-y).ln_1p() };
    let ln_y = if y < 0.5 { y.ln() } else { (-x).ln_1p() };
    let front = a * ln_x + b * ln_y - ln_beta(a, b);
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    // Some multiple of the square root of the larger parameter is enough.
    for step in 1..100_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + coefficient * d);
            c = away_from_zero(1.0 + coefficient / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (front.exp() * fraction / a).clamp(0.0, 1.0)
}

/// The logarithm of the beta function B(a, b) = G(a) G(b) / G(a + b).
fn ln_beta(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    if large < 1e4 {
        return ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    }
    // ln G(large) - ln G(large + small) by Stirling's series, in a form without the difference of
    // large numbers: for 10^9 trials the logarithms are 10^10, and a double would lose ten digits.
    let sum = large + small;
    let difference =
        -small * sum.ln() - (large - 0.5) * (small / large).ln_1p() + small + stirling(large)
            - stirling(sum);
    ln_gamma(small) + difference
}

/// The logarithm of the gamma function, of arguments from 1 on.
fn ln_gamma(x: f64) -> f64 {
    // Shifted upwards by G(x + 1) = x G(x), to where Stirling's series is exact to 1e-16.
    let (mut shifted, mut product) = (x, 1.0);
    while shifted < 16.0 {
        product *= shifted;
        shifted += 1.0;
    }
    let half_ln_tau = 0.5 * std::f64::consts::TAU.ln();
    (shifted - 0.5) * shifted.ln() - shifted + half_ln_tau + stirling(shifted) - product.ln()
}

/// The tail of Stirling's series (DLMF 5.11.1), of arguments from 16 on.
fn stirling(x: f64) -> f64 {
    let square = x * x;
    (1.0 / 12.0
        - (1.0 / 360.0
            - (1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / (1188.0 * square)) / square) / square)
            / square)
        / x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, precision: f64) -> bool {
        (found - expected).abs() <= precision * expected.abs().max(1e-300)
    }

    /// Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine
    /// 17 (1998), table I, method 5 (Clopper-Pearson), four digits.
    #[test]
    fn published_intervals() {
        for (successes, trials, low, high) in [
            (81, 263, 0.2527, 0.3676),
            (15, 148, 0.0578, 0.1617),
            (0, 20, 0.0000, 0.1684),
            (1, 29, 0.0009, 0.1776),
        ] {
            let found = interval(successes, trials);
            let rounded = |end: f64| (end * 1e4).round() / 1e4;
            let ends = (rounded(*found.start()), rounded(*found.end()));
            assert_eq!(ends, (low, high), "{successes} of {trials}");
        }
    }

    /// Where nothing, or all, or one of two was seen, the ends are roots that can be written down.
    #[test]
    fn intervals_in_closed_form() {
        for trials in [1, 2, 10, 1_000, 400_000, 40_000_000] {
            let n = trials as f64;
            // (1 - p)^n = 0.025, in a form that keeps the digits of a small p.
            let expected = -f64::exp_m1(TAIL.ln() / n);
            let none = interval(0, trials);
            assert_eq!(*none.start(), 0.0);
            assert!(close(*none.end(), expected, 1e-8), "{trials}: {none:?}, {expected}");
            let all = interval(trials, trials);
            assert_eq!(*all.end(), 1.0);
            assert!(close(*all.start(), TAIL.powf(1.0 / n), 1e-9), "{trials}: {all:?}");
            // 1 - (1 - p)^n = 0.025
            let one = -f64::exp_m1((1.0 - TAIL).ln() / n);
            let found = interval(1, trials);
            assert!(close(*found.start(), one, 1e-9), "{trials}: {found:?}, {one}");
        }
    }

    /// The ends satisfy their definition, with the binomial tails summed term by term.
    #[test]
    fn the_ends_have_the_tails_of_the_definition() {
        for (successes, trials) in [(3, 10), (7, 1_000), (286, 400_000), (50_000, 100_000)] {
            let found = interval(successes, trials);
            let above = upper_tail(successes, trials, *found.start());
            let below = 1.0 - upper_tail(successes + 1, trials, *found.end());
            assert!(close(above, TAIL, 1e-6), "{successes} of {trials}: {found:?}, {above}");
            assert!(close(below, TAIL, 1e-6), "{successes} of {trials}: {found:?}, {below}");
        }
    }

    /// The rule of `verify`: at its asked rate, a filter fails with a probability of at most 2.5 %.
    #[test]
    fn a_filter_at_its_rate_fails_seldom() {
        for (rate, trials) in [
            (0.5, 10),
            (0.01, 100),
            (0.01, 40_000),
            (0.001, 400_000),
            (1e-5, 40_000_000),
            (1e-7, 40_000_000),
        ] {
            let mean = rate * trials as f64;
            // The smallest number of successes with which it fails.
            let (mut passes, mut fails) = (mean.floor() as u64, trials);
            assert!(*interval(passes, trials).start() <= rate, "the mean passes");
            while fails - passes > 1 {
                let middle = passes + (fails - passes) / 2;
                if *interval(middle, trials).start() > rate {
                    fails = middle;
                } else {
                    passes = middle;
                }
            }
            let probability = upper_tail(fails, trials, rate);
            assert!(probability <= TAIL, "{rate}, {trials}: {probability}");
            // The rule is not much laxer than that either: one success fewer passes.
            assert!(upper_tail(passes, trials, rate) >= TAIL, "{rate}, {trials}");
        }
    }

    #[test]
    fn more_precision_takes_more_trials() {
        assert_eq!(trials(0.001, 0.05), 400_000);
        assert_eq!(trials(0.01, 0.05), 40_000);
        assert_eq!(trials(1e-5, 0.05), 40_000_000);
        assert_eq!(trials(0.01, 0.01), 1_000_000);
    }

    /// P(X >= first) for the binomial distribution, term by term; the logarithm of the first term
    /// is a sum of logarithms, so that it shares nothing with the functions above.
    fn upper_tail(first: u64, trials: u64, rate: f64) -> f64 {
        let odds = rate.ln() - (-rate).ln_1p();
        let mut term = trials as f64 * (-rate).ln_1p();
        for x in 0..first {
            term += odds + ((trials - x) as f64).ln() - ((x + 1) as f64).ln();
        }
        let mut term = term.exp();
        let mut sum = 0.0;
        for x in first..=trials {
            sum += term;
            if term < sum * 1e-18 && x as f64 > rate * trials as f64 {
                break;
            }
            term *= odds.exp() * (trials - x) as f64 / (x + 1) as f64;
        }
        sum
    }
}
