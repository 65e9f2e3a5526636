//! How the requested error rate is divided among the layers: on average the filter keeps it.
//!
//! A query is a false positive if any layer answers it wrongly, so in the worst case the rates add
//! up. For an asked rate p, layer 0 gets 3/4 p, and layer i >= 1 gets p / (4 i (i + 1)):
//!
//! ```text
//!   layer      0      1      2      3      4    ...   i
//!   share     3/4    1/8   1/24   1/48   1/80   ...   1 / (4 i (i + 1))
//!
//!   sum of layers 0 to n: 1 - 1 / (4 (n + 1))
//! ```
//!
//! The sum tends to 1 and never reaches it. The series p/2, p/4, p/8 ... (Almeida et al., "Scalable
//! Bloom Filters", 2007, tightening 1/2) also stays below p, but each layer costs 1.44 bits per
//! item more than the one before. At 1 % and 17 layers that is 33 bits per item, against 25 here. A
//! filter of one layer pays 0.6 bits per item for the ability to grow, against 1.44. A non-scaling
//! filter gives layer 0 all of p.

/// The rate that layer `index` of a filter of rate `asked` is built for: in (0, `asked`], and at
/// least the smallest normal double.
#[must_use]
pub fn layer_rate(asked: f64, index: usize, scales: bool) -> f64 {
    let share = match (scales, index) {
        (false, _) => 1.0,
        (true, 0) => 0.75,
        (true, _) => {
            let i = index as f64;
            0.25 / (i * (i + 1.0))
        }
    };
    // Keeps the rate above zero for an asked rate near the smallest double.
    (asked * share).max(f64::MIN_POSITIVE)
}
