//! Samples of contenders that take turns, and their statistics.
//!
//! The speed of a machine drifts within a run by more than the contenders differ. So contenders
//! take short turns, round by round, and are compared within a round. A ratio is the median over
//! rounds of the ratio in one round, not a ratio of two medians.

/// One figure per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The number of rounds.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest value: the cost while nothing else runs. NaN if empty.
    pub(crate) fn least(&self) -> f64 {
        percentile(&self.0, 0.0)
    }

    /// The largest value; NaN if empty.
    pub(crate) fn most(&self) -> f64 {
        percentile(&self.0, 1.0)
    }

    /// The median; NaN if empty.
    pub(crate) fn median(&self) -> f64 {
        percentile(&self.0, 0.5)
    }

    /// The median over rounds of the ratio of this series to `other`.
    pub(crate) fn over(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> = self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect();
        percentile(&ratios, 0.5)
    }
}

/// One series for each start of the servers. Memory layout and hash seeds differ between starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(Vec<Series>);

impl Starts {
    /// Begins the series of one more start.
    pub(crate) fn begin(&mut self) {
        self.0.push(Series::default());
    }

    /// Adds a value to the last series. Panics if there is none.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.last_mut().expect("a start").push(value);
    }

    /// The median over starts of the smallest value of each.
    pub(crate) fn least(&self) -> f64 {
        let least: Vec<f64> = self.0.iter().map(Series::least).collect();
        percentile(&least, 0.5)
    }

    /// The median over starts of the ratio of this to `other`.
    pub(crate) fn over(&self, other: &Self) -> f64 {
        percentile(&self.ratios(other), 0.5)
    }

    /// The smallest and the largest ratio of a start; `None` if there is only one start.
    pub(crate) fn spread(&self, other: &Self) -> Option<(f64, f64)> {
        let ratios = self.ratios(other);
        (ratios.len() > 1).then(|| (percentile(&ratios, 0.0), percentile(&ratios, 1.0)))
    }

    fn ratios(&self, other: &Self) -> Vec<f64> {
        self.0.iter().zip(&other.0).map(|(a, b)| a.over(b)).collect()
    }
}

/// The `share` quantile of `values`, 0 to 1; NaN if empty.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
