//! BF.IMPORT of Guava filters: any bytes are refused or give a filter that works.
//!
//! ```text
//!   ┌──────┬──────────┬──────┬─ ─ ─ ─┐   form 0: Guava bytes alone
//!   │ form │ capacity │ rate │ bytes │   form 1: Guava bytes with capacity and rate
//!   │ u8   │ u64      │ f64  │       │
//!   └──────┴──────────┴──────┴─ ─ ─ ─┘
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::guava::{self, Purpose};

fuzz_target!(|data: &[u8]| {
    let Some((&[form, ref numbers @ ..], bytes)) = data.split_first_chunk::<17>() else {
        return;
    };
    let (numbers, _) = numbers.as_chunks::<8>();
    let [capacity, rate] = [0, 1].map(|i| u64::from_le_bytes(numbers[i]));
    let purpose = Purpose { capacity, error_rate: f64::from_bits(rate) };
    // The parser of BF.IMPORT accepts no other capacity and rate.
    let in_range =
        (1..=1 << 62).contains(&capacity) && purpose.error_rate > 0.0 && purpose.error_rate < 1.0;
    let read = match form {
        0 => guava::read(bytes, None, sane::CEILING),
        1 if in_range => guava::read(bytes, Some(purpose), sane::CEILING),
        _ => return,
    };
    if let Ok(mut filter) = read {
        sane::check(&mut filter);
    }
});
