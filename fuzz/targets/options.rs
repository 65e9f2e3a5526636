//! The options of BF.RESERVE, BF.INSERT and BF.BULKADD, and the numbers in them: random
//! arguments, separated by zero bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    command::{args, options::Options, refusal::Refusal},
    filter,
};

fn check(options: Options) {
    if let (Some(error_rate), Some(capacity)) = (options.error_rate, options.capacity) {
        // valkey-bloom has other ranges.
        if options.valkey.is_some() {
            return;
        }
        let params = filter::Params {
            error_rate,
            capacity,
            expansion: options.expansion.unwrap_or(filter::Expansion::NONSCALING),
            seed: options.seed.unwrap_or(0),
            counts: options.counts,
            shard: options.shard,
        };
        let checked = filter::check_ranges(error_rate, capacity);
        assert_eq!(checked, Ok(()), "the parser accepts a number that is out of range");
        // Must not panic; it may be refused.
        let _ = filter::Filter::new(&params, 1 << 20);
    }
}

fuzz_target!(|data: &[u8]| {
    let words = || data.split(|&byte| byte == 0);
    let refused = |refusal: Refusal| assert!(!refusal.text(words()).is_empty());
    // Those of a client, and those from a primary or an AOF.
    for obeyed in [false, true] {
        args::reserve(words(), obeyed).map_or_else(refused, check);
        args::insert(&mut words(), || obeyed).map_or_else(refused, |(options, _)| check(options));
    }
    args::bulk_add(&mut words()).map_or_else(refused, |(options, _)| check(options));
    args::bulk_exists(&mut words()).map_or_else(refused, |_| {});
});
