//! What Guava wrote, and bitmaps: any bytes are refused, or make a filter that works.
//!
//! ```text
//!   ┌────────┬──────────┬───────┬─ ─ ─
//!   │ form   │ capacity │ rate  │ bytes      form 0: of Guava alone; 1: with the purpose; 2, 3: a bitmap, by strategy
//!   │ u8     │ u64      │ f64   │
//!   └────────┴──────────┴───────┴─ ─ ─
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::guava::{self, Purpose, Strategy};

fuzz_target!(|data: &[u8]| {
    let Some((&[form, ref numbers @ ..], bytes)) = data.split_first_chunk::<17>() else {
        return;
    };
    let (numbers, _) = numbers.as_chunks::<8>();
    let [capacity, rate] = [0, 1].map(|i| u64::from_le_bytes(numbers[i]));
    let purpose = Purpose {
        capacity,
        error_rate: f64::from_bits(rate),
    };
    // The grammar of BF.IMPORT lets no other through.
    let in_range =
        (1..=1 << 62).contains(&capacity) && purpose.error_rate > 0.0 && purpose.error_rate < 1.0;
    let read = match form {
        0 => guava::read(bytes, None, sane::CEILING),
        1 if in_range => guava::read(bytes, Some(purpose), sane::CEILING),
        2 if in_range => guava::read_bitmap(bytes, Strategy::Mitz32, purpose, sane::CEILING),
        3 if in_range => guava::read_bitmap(bytes, Strategy::Mitz64, purpose, sane::CEILING),
        _ => return,
    };
    if let Ok(mut filter) = read {
        sane::check(&mut filter);
    }
});
