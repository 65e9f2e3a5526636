//! How the asked error rate is shared out among layers, so that their union never exceeds it.
//!
//! A query is a false positive of the filter if it is one of any layer, so the rates add up at
//! worst. Layer 0 gets 3/4 of the asked rate p, layer i >= 1 gets 1/4 * 1 / (i (i + 1)) of it:
//!
//! ```text
//!   layer      0      1      2      3      4    ...   i
//!   share     3/4    1/8   1/24   1/48   1/80   ...   1 / (4 i (i + 1))        sum up to layer n: 1 - 1 / (4 (n + 1))
//! ```
//!
//! The sum tends to 1 and never reaches it. The series p/2, p/4, p/8 ... (Almeida et al., "Scalable
//! Bloom Filters", 2007, tightening 1/2) also stays below p, but pays 1.44 bits an item more with
//! every layer, for ever: at 1 % and 17 layers that is 33 bits an item against 25 here. And a
//! filter that was sized well, and so has one layer only, pays 0.6 bits for the right to grow
//! instead of 1.44. A non-scaling filter gives layer 0 all of p.

/// The rate that layer `index` of a filter of rate `asked` is built for, in (0, `asked`] (at least
/// the smallest normal double).
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
    // An asked rate near the smallest double must not reach zero.
    (asked * share).max(f64::MIN_POSITIVE)
}
