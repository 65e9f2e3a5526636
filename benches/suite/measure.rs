//! Samples of contenders that take turns, and what is said of them.
//!
//! A machine's speed drifts within a run by more than the contenders differ. So they are measured
//! in short turns, one after the other, round by round, and compared within the round: a ratio here
//! is the median over rounds of the ratio in one round, not a ratio of two medians.

/// One figure per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The smallest: what it costs when nothing else runs; NaN of none.
    pub(crate) fn least(&self) -> f64 {
        percentile(&self.0, 0.0)
    }

    /// The middle one; NaN of none.
    pub(crate) fn median(&self) -> f64 {
        percentile(&self.0, 0.5)
    }

    /// The median of what this is to `other`, round by round.
    pub(crate) fn over(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> = self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect();
        percentile(&ratios, 0.5)
    }
}

/// A series from each start of the servers: within one, a contender has luck or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(Vec<Series>);

impl Starts {
    /// One more.
    pub(crate) fn begin(&mut self) {
        self.0.push(Series::default());
    }

    /// Adds to the last, of which there must be one.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.last_mut().expect("a start").push(value);
    }

    /// The median of the smallest of each start.
    pub(crate) fn least(&self) -> f64 {
        let least: Vec<f64> = self.0.iter().map(Series::least).collect();
        percentile(&least, 0.5)
    }

    /// The median of what this is to `other`, start by start.
    pub(crate) fn over(&self, other: &Self) -> f64 {
        percentile(&self.ratios(other), 0.5)
    }

    /// The least and the largest of these; `None` of a single start.
    pub(crate) fn spread(&self, other: &Self) -> Option<(f64, f64)> {
        let ratios = self.ratios(other);
        (ratios.len() > 1).then(|| (percentile(&ratios, 0.0), percentile(&ratios, 1.0)))
    }

    fn ratios(&self, other: &Self) -> Vec<f64> {
        self.0.iter().zip(&other.0).map(|(a, b)| a.over(b)).collect()
    }
}

/// The value that a share of `values` lies below; NaN of none.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
