//! The numbers of the sizing calculator (docs/guide/calculator.md). `site/calculator.js` calls
//! them. Functions take and return numbers alone, so the page needs no generated code.

use redis_bloom::filter::{Error, Expansion, Params, Rules, Span, expected_bytes, expected_rate};

/// The most items: with 32 bits, sums are right to the table of a filter of ten times as many.
const MOST_ITEMS: f64 = 1e10;

/// The capacity of a filter that BF.ADD creates.
const UNRESERVED: u64 = 100;

/// A filter of the page. Its numbers are those of `kind`.
struct Asked {
    params: Params,
    rules: Option<Rules>,
    /// Items of a full filter.
    items: u64,
}

impl Asked {
    /// The filter for `items` items. `kind` is the number of the choice in the page's list;
    /// `generations` are those of a window.
    fn new(kind: u32, items: f64, error_rate: f64, generations: u32) -> Option<Self> {
        // NaN is in no range.
        if !(1.0..=MOST_ITEMS).contains(&items) {
            return None;
        }
        let items = items as u64;
        let (grows, capacity, counts, span) = match kind {
            0 => (true, items, false, None),
            1 => (true, UNRESERVED, false, None),
            2 => (false, items, false, None),
            3 => (true, items, true, None),
            // The length of a window decides no memory.
            4 => (true, items, false, Some(Span::Time(86_400_000))),
            5 => (false, items, false, Some(Span::Items)),
            _ => return None,
        };
        let expansion = if grows { Expansion::USUAL } else { Expansion::NONSCALING };
        let generations = u8::try_from(generations).ok()?;
        let rules = span.map(|span| Rules { span, generations, refresh: true });
        let items = rules.map_or(items, |rules| rules.most_items(capacity));
        Some(Self {
            params: Params { error_rate, capacity, expansion, seed: 0, counts, shard: None },
            rules,
            items,
        })
    }

    /// What `figure` says of the filter with this share of its items in it.
    fn at<T>(
        &self,
        share: f64,
        figure: impl Fn(&Params, Option<Rules>, u64) -> Result<T, Error>,
    ) -> Option<T> {
        figure(&self.params, self.rules, (self.items as f64 * share).ceil() as u64).ok()
    }
}

/// The bytes of the filter with a share of its items in it: 1 is full. NaN if there is no such
/// filter, or it refuses as many.
#[unsafe(no_mangle)]
pub extern "C" fn bytes(
    kind: u32,
    items: f64,
    error_rate: f64,
    generations: u32,
    share: f64,
) -> f64 {
    let asked = Asked::new(kind, items, error_rate, generations);
    asked.and_then(|asked| asked.at(share, expected_bytes)).map_or(f64::NAN, |bytes| bytes as f64)
}

/// The false positive rate of the same filter.
#[unsafe(no_mangle)]
pub extern "C" fn rate(
    kind: u32,
    items: f64,
    error_rate: f64,
    generations: u32,
    share: f64,
) -> f64 {
    let asked = Asked::new(kind, items, error_rate, generations);
    asked.and_then(|asked| asked.at(share, expected_rate)).unwrap_or(f64::NAN)
}
